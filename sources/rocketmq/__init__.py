"""RocketMQ's commit log as a master: read from its broker as a slave, or from its segment files.

Begin with `log`, the master log; `over_ha` reads it from a broker, `files` from segment files.
"""
