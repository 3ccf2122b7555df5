"""The embedded master: a commit log on disk that real RocketMQ slaves and logtwin replicate from."""
