"""Several databases as one sink: an epoch is prepared in all of them, then committed in all of them."""
