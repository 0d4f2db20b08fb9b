"""What is read: topics as streams and tables, static rows, the clocks of devices."""
