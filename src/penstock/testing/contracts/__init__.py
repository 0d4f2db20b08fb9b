"""What every log, queue, sink and keeper of groups must pass: public, for adapters of your own."""
