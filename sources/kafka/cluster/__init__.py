"""A Kafka cluster: connections, leaders, topics, consumer groups, error codes."""
