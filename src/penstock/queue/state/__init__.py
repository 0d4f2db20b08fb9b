"""The state of a queue: which messages are ready, delayed, leased or dead, and the rules by which that changes."""
