"""The epoch file of a broker in controller mode: section 3.5 of the RocketMQ notes."""

from __future__ import annotations

from sources.epochs import Epoch
from sources.offsets import Offset
from sources.rocketmq.files.controller_store import encode_epoch_file


def test_a_line_an_epoch_as_a_broker_has_written_it() -> None:
    assert encode_epoch_file((Epoch(1, Offset(0)),)) == b"1\n1725254278\n1-0\n"
    head, _, lines = encode_epoch_file((Epoch(1, Offset(0)), Epoch(12, Offset(4096)))).split(b"\n", 2)
    assert (head, lines) == (b"2", b"1-0\n12-4096\n")
