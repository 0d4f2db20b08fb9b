"""Real servers for tests: Kafka, RabbitMQ, a Spark cluster. Each is started when a test asks for it."""
