"""Messages of Kafka's protocol that kafka-python lacks, in its own schema notation."""
