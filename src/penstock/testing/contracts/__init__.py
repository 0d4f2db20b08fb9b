"""What every log, queue, capture, sink and keeper of groups must pass: public, for adapters of your own."""
