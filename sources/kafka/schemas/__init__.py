"""Messages of Kafka's protocol that kafka-python does not bring, in the notation of its own schemas."""
