"""What Debezium, Canal and Maxwell really sent (`tests/fixtures/changes`) makes the rows that stood in the database."""

import base64
import gzip
import json
import math
import random
import re
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, cast

import pytest

from sinks.typed.formats.changes import Change, WantedRows
from sinks.typed.formats.debezium import Debezium
from sinks.typed.formats.json_fields import kind_of
from sinks.typed.formats.maxwell import Maxwell
from sinks.typed.readers import of_canal, of_debezium
from sinks.typed.registry import Registered
from tests.documents import PROJECT
from tests.fixtures.changes.make import MAKERS, PROGRAMS, record
from tests.sinks.typed.formats.columns import row_of

RECORDED = PROJECT / "tests" / "fixtures" / "changes"
READERS: dict[str, Callable[[WantedRows], Callable[[bytes], list[Change]]]] = {
    "debezium": Debezium,
    "canal": cast("Callable[[WantedRows], Callable[[bytes], list[Change]]]", of_canal),
    "maxwell": Maxwell,
}
NAMES = sorted(f"{file.parent.name}/{file.name.partition('.')[0]}" for file in RECORDED.glob("*/*.jsonl.gz"))
DECLARED = {
    "datetime": "timestamp",
    "timestamp": "timestamp",
    "date": "date",
    "decimal": "decimal",
    "bit(1)": "boolean",
}


LOST: Final = {"maxwell": r"(time|bit|binary|set)\(|date$"}
"""Types that a system does not tell in full: Maxwell's README in that folder says what it loses of MariaDB's."""
NEVER_SENT: Final = {("maxwell", "visits"): 7}
"""How many rows a TRUNCATE took that was not told."""


def tables(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(((RECORDED / name).parent / "rows.json").read_text())
    return found


def declared(type_: str) -> str | None:
    """The kind that a table of Maxwell's would declare, which tells no types."""
    if type_ == "bigint(20) unsigned":
        return "decimal(20,0)"
    word = type_ if type_ in DECLARED else type_.partition("(")[0]
    kind = DECLARED.get(word)
    return type_ if kind == "decimal" else kind


def changes(name: str, table: str, of: dict[str, Any], *, needs_order: bool) -> Iterator[Change]:
    system = Path(name).parent.name.partition("-")[0]
    said = {column: declared(type_) for column, type_ in of["columns"].items()} if system == "maxwell" else {}
    kinds = tuple((column, kind) for column, kind in said.items() if kind is not None)
    read = READERS[system](WantedRows("shop", table, tuple(of["key"]), kinds, needs_order=needs_order))
    if name.endswith("/avro"):
        read = in_frames(name, WantedRows("shop", table, tuple(of["key"]), needs_order=needs_order))
    for body in bodies(name):
        for one in read(body):
            one.kinds = {**one.kinds, **dict(kinds)}
            yield one


def lines(name: str) -> Iterator[str]:
    with gzip.open(RECORDED / name, "rt", encoding="utf-8") as file:
        yield from file.read().split("\n")[:-1]


def bodies(name: str) -> Iterator[bytes]:
    """What each message has; none of tombstones."""
    for line in lines(f"{name}.jsonl.gz"):
        value = json.loads(line)["value"]
        if value is not None:
            yield base64.b64decode(value) if name.endswith(("/avro", "/packets")) else value.encode()


def in_frames(name: str, wanted: WantedRows) -> Callable[[bytes], list[Change]]:
    """A reader with what the converter has put into a registry."""
    ids = json.loads(gzip.decompress((RECORDED / name).with_name("registered.json.gz").read_bytes()))
    read = of_debezium(wanted, lambda number: Registered("AVRO", ids[str(number)]))
    return cast("Callable[[bytes], list[Change]]", read)


def applied(events: list[Change], key: list[str]) -> dict[tuple[bytes, ...], Change]:
    """What stands when they have come one after the other."""
    rows: dict[tuple[bytes, ...], Change] = {}
    for one in events:
        if one.empties:
            rows.clear()
            continue
        of = tuple(bytes(one[name]) for name in key)
        rows.pop(of, None)
        if not one.deletes:
            rows[of] = one
    return rows


def instant(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def seconds(text: str) -> Decimal:
    sign, hours, minutes, rest = re.fullmatch(r"(-?)(\d+):(\d+):([\d.]+)", text).groups()  # type: ignore[union-attr]
    return Decimal(f"{sign}1") * (int(hours) * 3600 + int(minutes) * 60 + Decimal(rest))


NUMBERS = ("decimal", "numeric", "double", "int", "tinyint", "smallint", "mediumint", "bigint", "integer", "year")
EQUAL: dict[str, Callable[[Any, str], bool]] = {
    **dict.fromkeys(NUMBERS, lambda value, text: Decimal(str(value)) == Decimal(text)),
    **dict.fromkeys(
        ("blob", "binary", "varbinary", "bytea"), lambda value, text: base64.b64decode(value).hex() == text
    ),
    **dict.fromkeys(("timestamp", "datetime"), lambda value, text: bool(value == instant(text))),
    **dict.fromkeys(("json", "jsonb"), lambda value, text: bool(json.loads(value) == json.loads(text))),
    **dict.fromkeys(("boolean", "bit(1)"), lambda value, text: value is (text in ("1", "true"))),
    # a snapshot of MariaDB has six digits
    **dict.fromkeys(("float", "real"), lambda value, text: math.isclose(value, float(text), rel_tol=1e-6)),
    "date": lambda value, text: bool(value == date.fromisoformat(text)),
    "time": lambda value, text: seconds(value) == seconds(text),
    "text[]": lambda value, text: json.loads(value) == [one for one in text.strip("{}").split(",") if one],
}


def is_equal(type_: str, value: Any, text: str | None) -> bool:
    """Whether a column has what `SELECT` has given as text. Debezium's MariaDB has 1970 for a zero date NOT NULL."""
    if text is not None and text.startswith("0000-00-00"):
        return value in (None, date(1970, 1, 1), datetime(1970, 1, 1, tzinfo=UTC))
    if value is None or text is None:
        return value is text
    compare = EQUAL.get(type_ if type_ in EQUAL else re.split(r"[( ]", type_)[0])
    return bool(value == text) if compare is None else compare(value, text)


@pytest.mark.parametrize("table", ["customers", "orders", "products", "visits", "carriers"])
@pytest.mark.parametrize("name", [one for one in NAMES if not one.endswith("/plain")])
def test_every_value_is_that_of_the_database(name: str, table: str) -> None:
    """Also that of a column that was added. One that was renamed keeps its old name in rows that did not change."""
    of, system = tables(name)[table], Path(name).parent.name
    found = {}
    for one in applied([*changes(name, table, of, needs_order=False)], of["key"]).values():
        kinds = {column: one.kinds.get(column) or kind_of(raw) or "string" for column, raw in one.items()}
        values, wrong = row_of(Change(dict(one), one.kinds), kinds)
        values["title"] = values.get("title", values.get("name"))
        found[tuple(str(values[column]) for column in of["key"])] = values, {*wrong, *one.unfit}
    assert len(found) == len(of["rows"]) + NEVER_SENT.get((system, table), 0)
    for row in of["rows"]:
        values, unfit = found[tuple(row[column] for column in of["key"])]
        told = {
            column: values.get(column)
            for column, type_ in of["columns"].items()
            if column not in unfit and not re.match(LOST.get(system, "$"), type_)
        }
        assert [(column, value, row[column]) for column, value in told.items()
                if not is_equal(of["columns"][column], value, row[column])] == []  # fmt: skip


@pytest.mark.parametrize("table", ["customers", "orders", "products", "visits"])
@pytest.mark.parametrize("name", [one for one in NAMES if one.startswith(("debezium", "canal/packets"))])
def test_the_order_of_the_source_puts_them_right_again(name: str, table: str) -> None:
    of = tables(name)[table]
    come = [*changes(name, table, of, needs_order=True)]
    mixed = random.Random(1).sample(come, len(come))
    right = sorted(mixed, key=lambda one: one.order or "")
    assert {key: dict(one) for key, one in applied(right, of["key"]).items()} == {
        key: dict(one) for key, one in applied(come, of["key"]).items()
    }
    assert applied(mixed, of["key"]).keys() != applied(come, of["key"]).keys() or table == "visits"


FORMS = [
    ("debezium-mariadb", "avro", "schemas"),
    ("debezium-postgresql", "avro", "schemas"),
    ("canal", "packets", "flat"),
]


@pytest.mark.parametrize("table", ["customers", "orders", "products", "visits", "carriers"])
@pytest.mark.parametrize(("system", "form", "other"), FORMS, ids=[one for one, *_ in FORMS])
def test_each_form_says_the_same(system: str, form: str, other: str, table: str) -> None:
    def told(form: str) -> list[Any]:
        name = f"{system}/{form}"
        needs_order = not system.endswith("canal")  # flat messages have none
        come = changes(name, table, tables(name)[table], needs_order=needs_order)
        return [
            (one.kinds, row_of(Change(dict(one), {}), dict(one.kinds)), [*one], one.deletes, one.empties, one.order,
             one.at_us, one.unfit)
            for one in come
        ]  # fmt: skip

    assert told(form) == told(other)


@pytest.mark.parametrize("name", [one for one in NAMES if not one.endswith("/plain")])
def test_each_change_says_when_it_was_made(name: str) -> None:
    """In the hour of the recording, of which only the systems' times tell."""
    times = [one.at_us for one in changes(name, "orders", tables(name)["orders"], needs_order=False)]
    known = [datetime.fromtimestamp(one / 1_000_000, UTC) for one in times if one is not None]
    assert len(known) == len(times)
    assert max(known) - min(known) < timedelta(hours=1)
    assert known[-1] > known[0] > datetime(2026, 1, 1, tzinfo=UTC)


def test_what_is_recorded() -> None:
    assert {one.partition("/")[0] for one in NAMES} == {*MAKERS}
    assert len(NAMES) == 9


@pytest.mark.nightly
@pytest.mark.parametrize("system", MAKERS)
def test_what_the_servers_send_today(system: str, tmp_path: Path) -> None:
    """The servers themselves, where they are installed: Debian's mariadb-server, postgresql and maven."""
    lacking = [one for one in PROGRAMS if shutil.which(one) is None]
    if lacking:
        pytest.skip(f"no {', '.join(lacking)}")
    record(system).keep(tmp_path / system)
    names = [f"{tmp_path}/{system}/{file.name.partition('.')[0]}" for file in (tmp_path / system).glob("*.jsonl.gz")]
    assert len(names) == len([one for one in NAMES if one.startswith(f"{system}/")])
    for table in tables(names[0]):
        for name in (one for one in names if not one.endswith("/plain")):
            test_every_value_is_that_of_the_database(name, table)
        for _, form, other in (one for one in FORMS if one[0] == system):
            test_each_form_says_the_same(f"{tmp_path}/{system}", form, other, table)
