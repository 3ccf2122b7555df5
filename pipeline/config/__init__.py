"""The configuration file as typed values: the job, its Kafka topics and its typed tables."""
