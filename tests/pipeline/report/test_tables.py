"""The tables: all figures, as text."""

from dataclasses import replace

from pipeline.inspect.typed_status import LogPlace, TypedCounts, TypedStatus
from pipeline.report.drawing import tables
from pipeline.report.drawing.sections import PageSection, sections
from pipeline.report.facts import Election, Facts, Flaw, Timeline
from sinks.typed.columns import Column
from sinks.typed.dead_letters import UnfitCount
from tests.pipeline.report.samples import BROKER, SHOP, bare, before, commits, flawed, log


def cells(table: tables.Table, row: int = 0) -> dict[str, str]:
    return {column.name: cell for column, cell in zip(table.columns, table.rows[row], strict=True)}


def test_logs() -> None:
    flaws = (flawed(Flaw.MISSING, 2500, 5000, units_of_log=2500), flawed(Flaw.DELETED, 0, 1000))
    table = tables.logs(bare(log(complete_to=2500, open_incidents=3), log(SHOP), flaws=flaws))
    assert cells(table) == {
        "log": BROKER,
        "records": "100",
        "size": "10.0 kB",
        "from offset": "0",
        "complete to": "2,500",
        "end": "10,000",
        "complete through": "2026-11-22 11:59:00 UTC",
        "offsets missing": "2,500",
        "accepted": "0",
        "deleted": "1,000",
        "open incidents": "3",
    }
    assert cells(table, 1)["offsets missing"] == "0"


def test_a_topic_is_one_row_and_its_partitions_have_a_table_of_their_own() -> None:
    parts = [log(f"kafka/prod/orders/{number}", end=1000 * (number + 1)) for number in (0, 1, 10)]
    flaws = (flawed(Flaw.MISSING, 10, 20, parts[0].log_id), flawed(Flaw.MISSING, 10, 15, parts[2].log_id))
    facts = bare(log(), *parts, flaws=flaws)
    table = tables.logs(facts)
    assert [row[0] for row in table.rows] == [BROKER, "kafka/prod/orders"]
    whole = cells(table, 1)
    assert (whole["records"], whole["end"], whole["offsets missing"]) == ("300", "14,000", "15")
    table = tables.partitions(facts)
    assert [(row[0], cells(table, at)["offsets missing"]) for at, row in enumerate(table.rows)] == [
        ("kafka/prod/orders/0", "10"),
        ("kafka/prod/orders/1", "0"),
        ("kafka/prod/orders/10", "5"),
    ]
    assert [row[0] for row in tables.throughput(facts).rows] == [BROKER, "kafka/prod/orders"]
    assert [row[0] for row in tables.waits(facts).rows] == [BROKER, "kafka/prod/orders"]


def test_elections() -> None:
    won = Election(log_id=BROKER, number=3, start=8000, master="10.0.0.5:10912", since=before(minutes=1))
    table = tables.elections((won, replace(won, number=1, start=0, master=None)))
    assert cells(table) == {
        "log": BROKER,
        "number": "3",
        "from offset": "8,000",
        "master": "10.0.0.5:10912",
        "first seen": "2026-11-22 11:59:00 UTC",
    }
    assert cells(table, 1)["master"] == ""
    coverage, *_ = sections(bare(log(), elections=(won,)))
    assert coverage.tables[-1] == tables.elections((won,))
    (whole, *_) = sections(bare(log(), unconfigured=(SHOP,)))
    assert whole.sentences == (f"The warehouse also holds {SHOP}, not configured here.",)
    assert "Elections of masters" not in {one.name for one in sections(bare(log()))[0].tables}


def typed_section(facts: Facts) -> PageSection:
    (found,) = (one for one in sections(facts) if one.name == "typed")
    return found


def test_typed_tables() -> None:
    place = LogPlace(BROKER, 9, 9, 9, int(before(minutes=1).timestamp()) * 1_000_000)
    logs = (*(place,) * 5, replace(place, log_position=10))
    columns = tuple(Column(name, name, "string") for name in "abcdefghi")
    orders = TypedStatus("orders", ("orders",), "upsert", TypedCounts(5000, 4, UnfitCount(7, 3, 2)), columns, logs)
    late = replace(orders, name="late", counts=None, columns=(), logs=())
    table = tables.typed((orders, late))
    assert cells(table) == {
        "table": "orders",
        "rows": "5,000",
        "deleted since": "4",
        "values unfit": "7",
        "in messages": "3",
        "without a row": "2",
        "columns": "9",
        "complete through": "2026-11-22 11:59:00 UTC",
        "logs": "6",
        "of these behind": "1",
    }
    late_cells = cells(table, 1)
    assert (late_cells["rows"], late_cells["values unfit"], late_cells["complete through"]) == ("–", "–", "–")
    assert "typed" not in {one.name for one in sections(bare(log()))}
    section = typed_section(bare(log(), tables=(orders, late)))
    assert section.tables == (table,)
    assert section.sentences == ("Behind their logs: orders, late.", "7 values unfit: the table unfit has them.")
    section = typed_section(bare(log(), tables=(replace(orders, logs=(place,), counts=TypedCounts(5000)),)))
    assert section.sentences == ("All are where their logs are.",)
    section = typed_section(bare(log(), tables=(replace(orders, logs=(place,), flaws=("no key",)),)))
    assert section.sentences[-1] == "no key"


def test_throughput_has_the_peaks_of_the_logs_that_were_told_apart() -> None:
    timeline = Timeline(60, (commits(BROKER, 3, 60), commits(BROKER, 2, 600), commits(None, 2, 9)))
    table = tables.throughput(bare(log(), log(SHOP), timeline=timeline))
    assert table.name == "Throughput, peaks over 1 min"
    assert (cells(table)["peak records/s"], cells(table)["peak MB/s"]) == ("10.0", "0.0")
    assert cells(table, 1)["peak records/s"] == "–"


def test_a_table_says_how_many_rows_there_are_and_has_so_many_at_most() -> None:
    table = tables.flawed_ranges(bare(log(), flaws=(flawed(Flaw.MISSING, 1, 9, all_of_log=70, why="gap: x"),)))
    assert table.note == "1 of 70 rows."
    assert cells(table)["offsets"] == "1 – 9, 8 B"
    assert cells(table)["why"] == "gap: x"
    table = tables.waits(bare(*(log(f"rocketmq/b{number}") for number in range(501))))
    assert (len(table.rows), table.note) == (500, "500 of 501 rows.")
