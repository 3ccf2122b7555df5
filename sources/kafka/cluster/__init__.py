"""A Kafka cluster: connections, topics, their partitions' leaders, consumer groups, error codes.

Begin with `connection`, which sends every request; the other modules are the requests and what their answers mean.
"""
