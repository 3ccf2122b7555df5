import gc
import hashlib
import mmap
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.errors import CorruptRecord
from sources.offsets import Offset
from sources.records import RECORD_SCHEMA
from sources.rocketmq.columns import codec, restore
from sources.rocketmq.columns import scan as scan_module
from sources.rocketmq.columns.restore import encode_rows
from sources.rocketmq.columns.scan import SuspectRecord
from sources.rocketmq.format import commitlog
from sources.rocketmq.format.bodies import Compression
from sources.rocketmq.format.commitlog import Blank, Message
from sources.rocketmq.format.layout import BLANK, HEAD, V1, V2, Host, Limits
from tests import truth
from tests.sampling import some_of
from tests.sources.rocketmq import plain_decoder
from tests.sources.rocketmq.plain_decoder import END_MS, FIRST_MS, rows_of
from tests.sources.rocketmq.records import VECTORS, Log, log_of, logs, message


def decode_all(log: Log, limits: Limits | None = None) -> list[dict[str, Any]]:
    decoded = codec.decode(log.stored, log.start, log.end, limits or Limits())
    decoded.records.validate(full=True)
    assert decoded.end == log.end
    return rows_of(decoded.records)


def one_row(sent: Message, limits: Limits | None = None) -> dict[str, Any]:
    rows = decode_all(log_of([sent]), limits)
    assert len(rows) == 1
    return rows[0]


def test_every_column_of_every_record_is_what_java_says(fixture_log: truth.Fixture) -> None:
    end = Offset(fixture_log.max_offset)
    decoded = codec.decode(fixture_log.log, Offset(0), end)
    decoded.records.validate(full=True)
    assert decoded.end == end
    assert decoded.records.schema.equals(RECORD_SCHEMA, check_metadata=True)
    rows = rows_of(decoded.records)
    assert len(rows) == len(fixture_log.rows)
    for row, java in zip(rows, fixture_log.rows, strict=True):
        check_against_java(row, java, fixture_log.log)


def check_against_java(row: dict[str, Any], java: dict[str, Any], log: bytes) -> None:
    expected = expected_blank(java) if java.get("blank") else expected_message(java)
    assert {name: row[name] for name in expected} == expected
    if java.get("blank"):
        return
    stored = row["body"] if row["stored_body"] is None else row["stored_body"]
    assert hashlib.sha256(row["body"]).hexdigest() == java["body_sha256_decompressed"]
    assert hashlib.sha256(stored).hexdigest() == java["body_sha256_raw"]
    assert (row["stored_body"] is not None) == bool(java["sys_flag"] & 1)
    end = row["offset"] + row["size"]
    assert row["stored_properties"] == log[end - len(row["stored_properties"]) : end]
    length = len(row["stored_properties"])
    assert log[end - length - 2 : end - length] == length.to_bytes(2, "big")
    store_host = Host.parse(row["store_host"], ipv6=bool(row["sys_flag"] & 0x20))
    assert (store_host.pack() + row["offset"].to_bytes(8, "big")).hex().upper() == java["msg_id"]


def expected_blank(java: dict[str, Any]) -> dict[str, Any]:
    given = {"offset": java["physical_offset"], "size": java["size"], "kind": "blank", "magic": java["magic"]}
    return {**dict.fromkeys(RECORD_SCHEMA.names), **given}  # the fixtures' blanks hold zeros only


def expected_message(java: dict[str, Any]) -> dict[str, Any]:
    """Every column whose value the truth has; the other three are body, stored_body and stored_properties."""
    same = ("size", "topic", "queue_id", "queue_offset", "properties", "magic", "body_crc", "flag", "sys_flag",
            "born_host", "store_host", "reconsume_times", "prepared_transaction_offset", "tags_code")  # fmt: skip
    keys = java["properties"].get("KEYS")
    expected = {
        **{name: java[name] for name in same},
        "offset": java["physical_offset"],
        "kind": "message",
        "tags": java["properties"].get("TAGS"),
        "keys": None if keys is None else [key for key in keys.split(" ") if key],
        "unique_key": java["properties"].get("UNIQ_KEY"),
        "store_timestamp": java["store_timestamp"] * 1000,
        "born_timestamp": java["born_timestamp"] * 1000,
    }
    assert len(expected) == len(RECORD_SCHEMA.names) - 3
    return expected


def test_bytes_cut_at_every_place() -> None:
    records: list[Message | Blank] = [vector.message for vector in VECTORS[:2]]
    log = log_of([records[0], Blank(Offset(0), 8, b""), records[1], Blank(Offset(0), 20, bytes(12))], 7)
    rows = decode_all(log)
    for cut in some_of(range(len(log.stored) + 1), [at - log.start for at in log.boundaries]):
        whole = [at for at in log.boundaries if at <= 7 + cut]
        decoded = codec.decode(log.stored[:cut], Offset(7), log.end)
        assert decoded.end == whole[-1]
        assert rows_of(decoded.records) == rows[: len(whole) - 1]
        assert decoded.records.schema.equals(RECORD_SCHEMA, check_metadata=True)


@given(logs(), st.data())
def test_records_that_start_at_or_after_stop_are_left(log: Log, data: st.DataObject) -> None:
    stop = data.draw(st.integers(log.start, log.end + 10))
    decoded = codec.decode(log.stored, log.start, Offset(stop))
    assert (rows_of(decoded.records), decoded.end) == plain_decoder.decode(log.stored, log.start, stop)


@given(logs(max_records=5), st.data())
def test_damage_is_reported_as_the_record_by_record_decoder_reports_it(log: Log, data: st.DataObject) -> None:
    damaged = bytearray(log.stored)
    for _ in range(data.draw(st.integers(1, 3)) if damaged else 0):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    limits = Limits(max_record_bytes=10_000)
    assert outcome(columns_decode, damaged, log, limits) == outcome(plain_decoder.decode, damaged, log, limits)


def columns_decode(data: bytes, start: int, stop: int, limits: Limits) -> tuple[list[dict[str, Any]], int]:
    decoded = codec.decode(data, Offset(start), Offset(stop), limits)
    return rows_of(decoded.records), decoded.end


def outcome(decode: Any, damaged: bytearray, log: Log, limits: Limits) -> Any:
    try:
        return decode(bytes(damaged), log.start, log.end, limits)
    except CorruptRecord as error:
        return error.facts()


@pytest.mark.parametrize("size", [-(2**31), -8, -1, 0, 1, 7, 8, 90, 2**31 - 1])
@pytest.mark.parametrize("rest", [b"", bytes(100), HEAD.pack(8, BLANK) * 3])
def test_a_size_that_no_message_has_is_the_end_whatever_follows(size: int, rest: bytes) -> None:
    log = log_of([message(), message()], 1000)
    stored = log.stored + HEAD.pack(size, V1) + rest
    decoded = codec.decode_sound(stored, log.start, Offset(log.start + len(stored)))
    assert (decoded.records["offset"].to_pylist(), decoded.end) == (log.boundaries[:-1], log.end)
    assert isinstance(decoded.error, CorruptRecord)
    assert decoded.error.offset == log.end


def test_a_topic_length_with_its_top_bit_set_is_negative() -> None:
    wide = commitlog.encode(message(magic=V2, topic="t" * 200))
    narrow = (len(wide) - 1).to_bytes(4, "big") + b"\xda\xa3\x20\xa7" + wide[8:93] + wide[94:]
    with pytest.raises(CorruptRecord, match="the topic does not fit") as caught:
        codec.decode(narrow, Offset(0), Offset(1))
    assert caught.value.found == "-56 bytes"


@pytest.mark.parametrize("name", ["born_timestamp_ms", "store_timestamp_ms"])
@pytest.mark.parametrize("time_ms", [END_MS, FIRST_MS - 1, 2**63 // 1000 + 1, 2**63 - 1, -(2**63)])
def test_a_record_of_a_time_that_no_table_takes_is_kept_whole(name: str, time_ms: int) -> None:
    """It is what a clock said, no damage: the records around it come, too, and the master's bytes of all of them."""
    log = log_of([message(), message(**{name: time_ms}), message()], 77)
    records = codec.decode(log.stored, log.start, log.end).records
    (before, odd, behind) = plain_decoder.rows_of(records)
    column = name.removesuffix("_ms")
    (other,) = {"born_timestamp", "store_timestamp"} - {column}
    assert (odd[column], odd[other]) == (None, before[other])
    assert (odd["body"], odd["stored_body"]) == (before["body"], log.stored[len(log.stored) // 3 :][: odd["size"]])
    assert (before["stored_body"], behind["stored_body"]) == (None, None)
    assert restore.encode(records) == log.stored
    assert restore.encode(records.select(list(restore.COLUMNS)).slice(1, 1)) == odd["stored_body"]
    for last_ms in (FIRST_MS, END_MS - 1):
        row = one_row(message(**{name: last_ms}))
        assert (row[column], row["stored_body"]) == (last_ms * 1000, None)


def failing_at(monkeypatch: pytest.MonkeyPatch, places: set[int], error: Exception, start: int = 0) -> None:
    """The reader of many records raises `error` over those at these offsets, and nothing else is wrong with them."""
    scan = scan_module.scan

    def scanned(view: memoryview, starts: Any, ends: Any, offsets: Any) -> Any:
        if start in offsets - starts and places & {*offsets.tolist()}:
            raise error
        return scan(view, starts, ends, offsets)

    monkeypatch.setattr(codec, "scan", scanned)


UNTHOUGHT_OF = (SuspectRecord(), ValueError("4300 digits"), OverflowError(), RecursionError(), pa.ArrowInvalid("?"))


@pytest.mark.parametrize("error", UNTHOUGHT_OF, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("guilty", [{0}, {5}, {9}, {3, 7}])
def test_an_unexpected_failure_is_damage_of_the_first_guilty_record(
    monkeypatch: pytest.MonkeyPatch, error: Exception, guilty: set[int]
) -> None:
    log = log_of([message(queue_id=number) for number in range(10)], 77)
    size = len(log.stored) // 10
    failing_at(monkeypatch, {77 + number * size for number in guilty}, error, 77)
    first = min(guilty)

    decoded = codec.decode_sound(log.stored, log.start, log.end)

    assert decoded.records["queue_id"].to_pylist() == list(range(first))
    assert decoded.end == 77 + first * size
    assert isinstance(decoded.error, CorruptRecord)
    assert decoded.error.offset == decoded.end
    assert type(error).__name__ in str(decoded.error)
    with pytest.raises(CorruptRecord, match="makes its decoder fail"):
        codec.decode(log.stored, log.start, log.end)


def test_more_names_than_fit_16_bits() -> None:
    width, last = 500, 2**16 // 500
    names = [[str(number * width + i) for i in range(width)] for number in range(last + 1)]
    assert "65536" in names[last]  # the first name and the one 2**16 names later meet in one block, and one is repeated
    blocks = [b"".join(b"%s\x01v\x02" % name.encode() for name in block) for block in names]
    blocks[last] = b"0\x01v\x02" + blocks[last] + b"0\x01w\x02"
    rows = decode_all(log_of([message(properties=block) for block in blocks]))
    expected = [dict.fromkeys(block, "v") for block in names]
    assert [row["properties"] for row in rows] == [*expected[:last], expected[last] | {"0": "w"}]


def test_keys_are_what_stands_between_spaces() -> None:
    stored = [b"TAGS\x01t\x02", *(b"KEYS\x01%s\x02" % keys for keys in (b" a  b ", b" ", b"c", b"d e"))]
    rows = decode_all(log_of([message(properties=block) for block in stored]))
    assert [row["keys"] for row in rows] == [None, ["a", "b"], [], ["c"], ["d", "e"]]


def test_a_body_above_the_limit_stays_stored() -> None:
    stored = commitlog.compress(bytes(1000), Compression.ZLIB)
    sent = message(sys_flag=0x301, body=stored)
    assert one_row(sent, Limits(max_body_bytes=1000))["body"] == bytes(1000)
    row = one_row(sent, Limits(max_body_bytes=999))
    assert (row["body"], row["stored_body"]) == (None, stored)


def test_decompressed_bodies_above_the_limit_of_a_batch_end_it_early() -> None:
    packed = message(sys_flag=0x301, body=commitlog.compress(bytes(1000), Compression.ZLIB))
    log = log_of([packed, message(), packed, Blank(Offset(0), 8, b""), packed, packed])
    limits = Limits(max_decompressed_bytes=2500)
    first = codec.decode(log.stored, log.start, log.end, limits)
    assert first.end == log.records[4].offset
    assert codec.decode(log.stored + b"\xff" * 8, log.start, Offset(log.end + 8), limits).end == first.end
    with pytest.raises(CorruptRecord, match="no record starts here"):  # which lies beyond the early end
        codec.decode(log.stored[first.end :] + b"\xff" * 8, first.end, Offset(log.end + 8), limits)
    parts, at = [], log.start
    while at < log.end:
        decoded = codec.decode(log.stored[at:], at, log.end, Limits(max_decompressed_bytes=1))
        parts += rows_of(decoded.records)
        at = decoded.end
    assert parts == decode_all(log)


def test_two_gibibytes_at_once_are_too_many(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("w+b") as file:
        file.truncate(2**31)
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            with pytest.raises(ValueError, match="2147483648 bytes at once"):
                codec.decode(mapped, Offset(0), Offset(100))
            with memoryview(mapped)[1:] as view, pytest.raises(CorruptRecord, match="nothing was written"):
                codec.decode(view, Offset(0), Offset(100))


def test_the_input_is_not_copied_as_a_whole_and_not_kept(tmp_path: Path) -> None:
    log = log_of([vector.message for vector in VECTORS])
    path = tmp_path / "log"
    path.write_bytes(log.stored)
    with path.open("r+b") as file:
        file.truncate(256 * 1024 * 1024)
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        gc.collect()
        before = pa.total_allocated_bytes()
        tracemalloc.start()
        decoded = codec.decode(mapped, log.start, log.end)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 1_000_000
        assert pa.total_allocated_bytes() - before < 1_000_000
        mapped.close()  # raises BufferError if anything still refers to it
    assert len(rows_of(decoded.records)) == len(VECTORS)


def test_a_memory_map_can_be_closed_while_the_error_is_held(tmp_path: Path) -> None:
    damaged = bytearray(log_of([vector.message for vector in VECTORS]).stored)
    damaged[229 + 88] ^= 1  # the body of the second
    (tmp_path / "log").write_bytes(damaged)
    with (tmp_path / "log").open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        with pytest.raises(CorruptRecord) as held:
            codec.decode(mapped, Offset(0), Offset(len(damaged)))
        mapped.close()
    assert held.value.offset == 229


# rows back to the master's bytes


def test_the_brokers_files_come_back_to_the_byte(fixture_log: truth.Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """HA-01. All forms in one batch: only the blanks that end the files are looked at one by one."""
    rows: list[int] = []

    def counted(records: pa.RecordBatch) -> list[bytes]:
        rows.append(records.num_rows)
        return encode_rows(records)

    monkeypatch.setattr(restore, "encode_rows", counted)
    decoded = codec.decode(fixture_log.log, Offset(0), Offset(fixture_log.max_offset))
    assert codec.encode(decoded.records) == fixture_log.log
    assert rows == [sum(row.get("blank", False) for row in fixture_log.rows)]


@given(logs(), st.integers(0, 40), st.integers(0, 40))
def test_any_log_comes_back_and_any_part_of_it(log: Log, start: int, count: int) -> None:
    records = codec.decode(log.stored, log.start, log.end).records
    assert codec.encode(records) == log.stored
    first, last = (log.boundaries[min(at, len(records))] - log.start for at in (start, start + count))
    assert codec.encode(records.slice(start, count)) == log.stored[first:last]


@pytest.mark.parametrize(
    "changes",
    [
        {"body": None},
        {"topic": None},
        {"born_host": "nowhere"},
        {"born_host": None},
        {"sys_flag": None},
        {"magic": 1},
        {"topic": "t" * 200},
        {"born_timestamp": None},
        {"size": 100},
        {"body": b"another length"},
    ],
)
def test_a_row_that_no_decoder_made(changes: dict[str, Any]) -> None:
    log = log_of([message()], 77)
    (row,) = codec.decode(log.stored, log.start, log.end).records.to_pylist()
    with pytest.raises(CorruptRecord) as caught:
        codec.encode(pa.RecordBatch.from_pylist([row | changes], RECORD_SCHEMA))
    assert caught.value.offset == 77
    assert caught.value.hint is not None


@pytest.mark.parametrize(
    ("change", "problem"),
    [({"size": 13}, "another size"), ({"size": None}, "no record"), ({"offset": None}, "no record")],
)
def test_a_blank_row_of_the_wrong_size_or_without_a_place(change: dict[str, Any], problem: str) -> None:
    log = log_of([Blank(Offset(0), 12, b"abcd")])
    (row,) = codec.decode(log.stored, log.start, log.end).records.to_pylist()
    with pytest.raises(CorruptRecord, match=problem):
        codec.encode(pa.RecordBatch.from_pylist([row | change], RECORD_SCHEMA))


def test_times_below_a_millisecond_are_not_dropped_silently() -> None:
    log = log_of([message()])
    (row,) = codec.decode(log.stored, log.start, log.end).records.to_pylist()
    later = row["store_timestamp"].replace(microsecond=row["store_timestamp"].microsecond + 1)
    with pytest.raises(CorruptRecord, match="no record"):
        codec.encode(pa.RecordBatch.from_pylist([row | {"store_timestamp": later}], RECORD_SCHEMA))
