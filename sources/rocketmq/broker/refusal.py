"""What a client is told when its request cannot be served."""

from __future__ import annotations


class Refused(Exception):
    """The request is answered with `code` and `remark`; nothing was stored. It is the client's matter, not an operator's."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark
