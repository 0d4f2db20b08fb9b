"""RabbitMQ behind the port of queues: what it promises, and where it differs, is told in docs/rabbitmq.md."""
