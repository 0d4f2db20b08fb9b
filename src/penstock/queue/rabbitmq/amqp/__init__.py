"""The client library: connections, channels and messages as AMQP has them."""
