"""The meaning of the error codes in a broker's answers; only this module decides about them.

Codes, and whether a retry can help, are those of Kafka's protocol, as kafka-python lists them (kafka.errors).
"""

from __future__ import annotations

from typing import Any, Final

import kafka.errors as kafka_errors

from sources.errors import ConfigurationError, CorruptRecord, LogtwinError, MasterRefused, ProtocolViolation

NONE: Final[int] = kafka_errors.NoError.errno


def check_code(code: int, doing: str, *, offset: int | None = None) -> None:
    """Raise `refusal` unless `code` is none; `doing` is what was asked, for example "where topic t lies"."""
    if code != NONE:
        raise refusal(code, doing, offset=offset)


def refusal(code: int, doing: str, *, offset: int | None = None) -> LogtwinError:
    """Return the error for `code`.

    MasterRefused if a retry can help, perhaps after new metadata; ConfigurationError if a permission is missing;
    CorruptRecord if the broker cannot read its own log; ProtocolViolation for a code that makes no sense here.
    """
    kind = kafka_errors.for_code(code)
    facts: dict[str, Any] = {"offset": offset, "found": f"{kind.message} (error {code})"}
    if issubclass(kind, kafka_errors.AuthorizationError):
        hint = (
            "Grant our user READ, DESCRIBE and DESCRIBE_CONFIGS on the topic, READ and DESCRIBE on the group, "
            "DESCRIBE on the cluster."
        )
        return ConfigurationError(f"not allowed to ask {doing}", hint=hint, **facts)
    if kind is kafka_errors.CorruptRecordError:
        hint = "Read the partition's segment files with kafka-dump-log, and restore the broker from a replica."
        return CorruptRecord(f"the broker finds its own log corrupt, asked {doing}", hint=hint, **facts)
    if kind.retriable or kind is kafka_errors.UnknownError:
        return MasterRefused(f"the broker does not answer {doing}", **facts)
    return ProtocolViolation(f"the broker cannot answer {doing}", **facts)
