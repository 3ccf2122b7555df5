"""What a client is told when its request cannot be served."""

from __future__ import annotations


class Refused(Exception):
    """The request is answered with `code` and `remark`, and nothing was stored.

    Not one of `sources.errors`: it is for the client that asked, not for an operator.
    """

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark
