"""RocketMQ's protocols: HA and remoting frames, signatures, connections."""
