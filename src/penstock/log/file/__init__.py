"""The embedded log: topics in a directory."""
