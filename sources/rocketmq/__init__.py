"""RocketMQ's commit log: storage format, HA protocol, remoting protocol, segment files."""
