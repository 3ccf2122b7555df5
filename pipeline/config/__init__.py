"""The configuration file as typed values: the job, its Kafka topics and its typed tables.

Begin with `configuration.py`; `found.py` replaces its patterns by the logs that they stand for now.
"""
