"""Check once, before a session is started, that the warehouse's object store answers: an error is one line in seconds.

Hadoop would report the same after minutes, with a JVM started, in a page of Java.
"""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa
import pyarrow.fs as pafs

from sinks.storage.errors import passes
from sinks.storage.place import Place
from sinks.storage.settings import S3, storage
from sources.errors import ConfigurationError, StorageUnreachable

_SCHEME_AND_PORT: Final = "Look at endpoint in [storage]: http:// or https://, and the port."
_WRONG: Final = {
    "ACCESS_DENIED": (
        "we may not read it",
        "Give our account the rights to list, read, write and delete below this path; without keys requests are "
        "anonymous.",
    ),
    "INVALID_ACCESS_KEY_ID": (
        "it does not know our access key",
        "Look at access_key in [storage], or AWS_ACCESS_KEY_ID.",
    ),
    "SIGNATURE_DOES_NOT_MATCH": ("our secret key is not the right one", "Look at secret_key in [storage]."),
    "ExpiredToken": ("our keys have expired", "Renew them where [storage] or AWS's own chain finds them."),
    "InvalidToken": (
        "our session token is not one of its own",
        "Look at session_token in [storage], or AWS_SESSION_TOKEN.",
    ),
    "PermanentRedirect": ("the bucket is elsewhere", "Look at region and endpoint in [storage]."),
    "AuthorizationHeaderMalformed": ("the bucket is in another region", "Look at region in [storage]."),
    "curlCode: 6,": ("its host name has no address", "Look at endpoint in [storage]."),
    "curlCode: 7,": ("nobody answers at its endpoint", "Look at endpoint in [storage]; the store may also be down."),
    "curlCode: 35,": (
        "its endpoint does not speak TLS",
        _SCHEME_AND_PORT,
    ),
    "curlCode: 1,": ("its endpoint does not speak HTTP", _SCHEME_AND_PORT),
    "curlCode: 28,": (
        "its endpoint does not answer in time",
        "Look at endpoint in [storage]; the store may also be down.",
    ),
    "curlCode: 52,": ("its endpoint closes the connection", _SCHEME_AND_PORT),
    "curlCode: 56,": ("its endpoint closes the connection", _SCHEME_AND_PORT),
    "SLOW_DOWN": ("it is asked for too much", "Try again later."),
    "INTERNAL_FAILURE": ("it is not well", "Try again later; what it says stands here."),
    "SERVICE_UNAVAILABLE": ("it is not well", "Try again later; what it says stands here."),
    "curlCode: 60,": (
        "the certificate of its endpoint is not to be trusted",
        "Have its authority trusted by the system.",
    ),
}
"""By the words of AWS's client in Arrow's errors: what they mean, and what to do."""
_NO_TLS: Final = ("curlCode: 35,", "curlCode: 60,")
_SAYS: Final = re.compile(r"AWS Error .*?(?= \(Request ID: |$)", re.DOTALL)


def check_storage(place: Place) -> None:
    """Raises ConfigurationError if the store of `place` cannot be used, StorageUnreachable if that may pass."""
    if place.scheme not in S3:
        return
    filesystem, folder = place.open()
    try:
        found = filesystem.get_file_info(pafs.FileSelector(folder, allow_not_found=True))
        is_there = bool(found) or filesystem.get_file_info(place.authority).type != pafs.FileType.NotFound
    except (OSError, pa.ArrowException) as error:
        raise _refused(place, error) from error
    if not is_there:
        raise ConfigurationError(
            f"there is no bucket {place.authority}",
            expected=f"the bucket of {place}",
            found=f"none at {storage().url or 'Amazon S3'}",
            hint="Create it, or look at warehouse, and at endpoint in [storage].",
        )


def _refused(place: Place, error: Exception) -> ConfigurationError | StorageUnreachable:
    said = _SAYS.search(str(error))
    unknown = ("it refuses to answer", "Look at [storage].")
    what, hint = next((told for words, told in _WRONG.items() if words in str(error)), unknown)
    may_pass = passes(error) and not any(words in str(error) for words in _NO_TLS)
    return (StorageUnreachable if may_pass else ConfigurationError)(
        f"the storage of {place} cannot be used: {what}",
        expected=f"an answer of S3 at {storage().url or 'Amazon S3'}",
        found=error if said is None else said.group(),
        hint=hint,
    )
