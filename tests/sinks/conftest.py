"""Fixtures for what writes replicas."""

from tests.sinks.plain_session import plain as plain
