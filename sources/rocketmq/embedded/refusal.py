"""The error for a client whose request cannot be served."""

from __future__ import annotations


class Refused(Exception):
    """The request is answered with `code` and `remark`; nothing was stored.

    Not derived from `sources.errors`: it is for the client that asked, not for an operator.
    """

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark
