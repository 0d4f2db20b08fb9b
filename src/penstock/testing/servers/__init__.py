"""Real servers for tests: logs, queues, databases, search, a Spark cluster. Each is started when a test asks for it."""
