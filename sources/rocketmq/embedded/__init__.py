"""The embedded master: a commit log on disk that real RocketMQ slaves and logtwin replicate from.

Begin with `master`, which starts the services around a `store`.
"""
