"""The durable outbox: intents are written with the epoch, a sender acts on them behind it and notes the outcome of each."""
