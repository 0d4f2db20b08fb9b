"""Queues on RabbitMQ; docs/rabbitmq.md says what they promise, and where they differ."""
