"""Real servers for tests: Kafka, RabbitMQ, PostgreSQL, a Spark cluster. Each is started when a test asks for it."""
