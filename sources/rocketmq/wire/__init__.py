"""RocketMQ's protocols: HA and remoting frames, signatures, connections.

Begin with `ha` and `remoting`, the two wire formats; `client` asks a broker.
"""
