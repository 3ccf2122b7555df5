"""README and docs as somebody follows them: every command and query in a code block, in order, on what a demo left.

What a block must print is said here, from what the document says of it. One that is not run is marked in the document
(`tests/documents.py`), and listed here. Commands run in this process, with one Spark session; names in them that stand
for the reader's own are exchanged for the demo's. From the wheel, in an environment of its own: `tests/soak`.
"""

import functools
import json
import re
import runpy
import shlex
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from deltalake import DeltaTable
from pyspark.sql import Row, SparkSession

from sinks.tables import TABLES as TABLES_OF_A_WAREHOUSE
from sinks.views.definition import VIEWS
from sinks.views.registration import register
from tests.documents import PROJECT, Block, blocks
from tests.pipeline.demos import DemoHere
from tests.pipeline.operator_at_work import run
from tests.test_translations_doc import CHINESE

pytestmark = pytest.mark.timeout(600)

README, FIRST_JOB, OPERATING = "README.md", "docs/first-job.md", "docs/operating.md"
SQL, ENGINES = "docs/sql.md", "docs/other-engines.md"
DISTER, TABLES, TYPED, CHANGES = "docs/dister.md", "docs/tables.md", "docs/typed-tables.md", "docs/change-tables.md"
LATER = (OPERATING, DISTER, TABLES, ENGINES)
GET = "logtwin get "
"""Asked of the demo of dister."""
DOCUMENTS: Final = (
    README,
    *sorted(f"docs/{one.name}" for one in (PROJECT / "docs").glob("*.md") if not one.name.endswith(CHINESE)),
)
NOT_RUN: Final = {
    README: ["make test", "logtwin replicate", "logtwin sql", "logtwin report"],
    FIRST_JOB: ["logtwin replicate", "logtwin init", "logtwin sql", "logtwin sql", "logtwin report", "make wheel",
                "logtwin master", "logtwin --install-completion"],
    OPERATING: ["logtwin incidents close"],
    "docs/deploying.md": ["logtwin jars", "<ivysettings>", "# useradd", "docker build", "python3 -m venv env"],
    SQL: ["logtwin sql", "logtwin sql", "logtwin report", "mkdir -p tour", *["SELECT"] * 4],
    ENGINES: ["export AWS_ACCESS_KEY_ID", "CREATE SECRET"],
    TYPED: ["logtwin tables add", "logtwin replicate", "format ="],
    "docs/elections.md": ["SELECT number"],
    "docs/kafka.md": ["from logtwin import"],
    "docs/metrics.md": ["scrape_configs", "route:"],
    "docs/object-stores.md": ["aws=", '{"packages"'],
    "docs/scaling.md": ["logtwin replicate"],
    "docs/security.md": ["accounts:", "mqadmin createUser", "mqadmin createAcl"],
    "docs/soak.md": ["python -m tests.fuzz"],
}  # fmt: skip
"""What each begins with."""

TRIED: Final = {
    *((name, "toml") for name in DOCUMENTS),  # in tests/test_commands_doc.py
    *((README, language) for language in ("console", "sql")),
    *((FIRST_JOB, language) for language in ("console", "sh", "python")),
    (OPERATING, "console"),
    *((SQL, language) for language in ("sh", "sql", "python")),
    *((document, language) for document in (DISTER, TYPED) for language in ("console", "sql")),
    (ENGINES, "python"),  # in tests/sinks/views/test_other_engines.py
    (TABLES, "sql"),
    (TYPED, "python"),
    *((CHANGES, language) for language in ("sql", "python")),  # in tests/pipeline/typed/test_history.py
}
"""What the tests below run of a document, by the language of its blocks."""

MARK = "rocketmq/embedded"


@dataclass(frozen=True)
class Left:
    """What a demo has left: its folder, what it printed."""

    folder: Path
    out: str

    @property
    def warehouse(self) -> Path:
        return self.folder / "warehouse"

    @property
    def job(self) -> Path:
        return self.warehouse / "demo.toml"

    @property
    def log(self) -> Path:
        """Of the demo's master."""
        return self.folder / "store" / "commitlog"

    @property
    def position(self) -> int:
        position: int | None = DeltaTable(self.warehouse / "log").transaction_version(f"logtwin/{MARK}@0")
        assert position is not None
        return position


class Demos:
    """Each is run once, when the first block asks for it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._left: dict[str, Left] = {}

    def left(self, master: str, here: DemoHere) -> Left:
        if master not in self._left:
            folder = self._folder / master
            folder.mkdir()
            rate = {"kafka": "700", "dister": "200"}.get(master, "500")
            out, _ = here(folder, "--master", master, "--duration-s", "6", "--rate-per-s", rate)
            self._left[master] = Left(folder, out)
        return self._left[master]


@pytest.fixture(scope="module")
def demos(tmp_path_factory: pytest.TempPathFactory) -> Demos:
    return Demos(tmp_path_factory.mktemp("demos"))


@pytest.fixture
def here(spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> DemoHere:
    return DemoHere(capsys, monkeypatch)


@pytest.fixture
def shop(demos: Demos, here: DemoHere) -> Left:
    """What ``make run`` has left."""
    return demos.left("rocketmq", here)


class Typist:
    """Types what a document says, with the demo's names in the place of the reader's."""

    def __init__(self, left: Left, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.left = left
        self.folder = folder
        self._capsys = capsys

    @property
    def names(self) -> dict[str, str]:
        """What stands for the reader's own, and what the demo has in its place."""
        return {
            "job.toml": str(self.left.job),
            "warehouse/demo.toml": str(self.left.job),
            "rocketmq/broker-a": MARK,
            "/mnt/archive": str(self.left.log),
            "/mnt/new/commitlog": str(self.folder / "commitlog"),
        }

    def does(self, command: str) -> str:
        """What a command prints; it has to succeed."""
        words = [self.names.get(word, word) for word in shlex.split(command)]
        assert Path(words[0]).name == "logtwin", command
        into = next((at for at, word in enumerate(words) if word in (">", ">>")), len(words))
        said = run(self._capsys, *words[1:into])
        assert said.code == 0, f"{command}: {said.err[-3000:]}"
        return said.out


@pytest.fixture
def typist(shop: Left, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Typist:
    monkeypatch.chdir(tmp_path)
    return Typist(shop, tmp_path, capsys)


Expected = Callable[[str, Typist], bool]


def says(*patterns: str) -> Expected:
    return lambda out, _: all(re.search(pattern, out, re.M) for pattern in patterns)


def rebuilt_is_the_master_s(out: str, typist: Typist) -> bool:
    """ "The broker's files out of the table": every byte below the position."""
    end = typist.left.position
    joined = [b"".join(file.read_bytes() for file in sorted(folder.iterdir()))[:end] for folder in _both(typist)]
    return MARK in out and joined[0] == joined[1] and len(joined[0]) == end


def _both(typist: Typist) -> tuple[Path, Path]:
    return typist.left.log, typist.folder / "commitlog"


def is_json_of_the_log(out: str, typist: Typist) -> bool:
    (log,) = json.loads(out)["logs"]
    return (log["id"], log["position"]) == (MARK, typist.left.position)


def has_the_names_that_are_shown(out: str, _: Typist) -> bool:
    """Those of the block, in their order."""
    (shown,) = (one for one in blocks(OPERATING) if "until loss" in one.text)
    names = [match[1] for match in re.finditer(r"^ {2,4}(\S.*?)  ", shown.text, re.M)]
    at = [out.index(f"  {name}") for name in names]
    return len(names) > 10 and at == sorted(at)


COMMANDS: Final[Mapping[str, Expected]] = {
    # README, docs/first-job.md, docs/operating.md
    "logtwin replicate --config job.toml --available-now": says(rf"^{MARK}: done at offset \d+, 0 records in this run"),
    "logtwin status --config job.toml --json": is_json_of_the_log,
    "logtwin status --config job.toml": has_the_names_that_are_shown,
    "logtwin coverage --config job.toml": says(rf"^{MARK}$", r"^  complete +0 to "),
    "logtwin verify --config job.toml": says(rf"^{MARK}: .* compared with ", r"^  equal$"),
    "logtwin incidents list --config job.toml": says(r"^no open incidents$"),
    "logtwin backfill --config job.toml --log rocketmq/broker-a --path /mnt/archive": says(MARK),
    "logtwin repair --config job.toml": says(MARK),
    "logtwin rebuild --config job.toml --log rocketmq/broker-a --to /mnt/new/commitlog": rebuilt_is_the_master_s,
    "logtwin maintain --config job.toml": says(r"^\d+ of \d+ tables changed; \d+ steps in "),
    ".venv/bin/logtwin tables all --config job.toml": says(r"^  messages +\S", r"^  log +\S", r"^  incidents +\S"),
    ".venv/bin/logtwin report --config job.toml": says(r"^report.html$"),
    # docs/sql.md
    '.venv/bin/logtwin sql -e "SELECT * FROM completeness" --format csv > complete.csv': says(
        r"^log_id,complete_from,complete_to", rf"^{MARK},0,\d+,"
    ),
    # docs/typed-tables.md
    "logtwin tables list --config job.toml": says(r"\borders\b"),
    "logtwin tables check --config job.toml": says(r"\borders\b"),
    "logtwin sql --config job.toml -e 'SELECT status, sum(amount) FROM orders GROUP BY status'": says(r"delivered +\d"),
    ".venv/bin/logtwin tables show messages": says(r"^messages: ", r"^  topic +string +\S", r"^  json +variant +\S"),
}


def of(document: str, *languages: str) -> list[Any]:
    """Its blocks that are run. Those of a job that is no longer a reader's first wait for the soak."""
    found = [one for one in blocks(document) if one.language in languages and one.is_run]
    return [
        pytest.param(one, id=str(one), marks=[pytest.mark.soak] if document in LATER or GET in one.text else [])
        for one in found
    ]


def test_what_is_not_run_is_marked_in_the_document_and_listed_here() -> None:
    """Every block of README and docs is one or the other: run below, or marked."""
    for document in DOCUMENTS:
        skipped = [
            one.text.strip().removeprefix("$ ") if what is None else what
            for one in blocks(document)
            for what in one.marks
        ]
        listed = NOT_RUN.get(document, [])
        assert len(skipped) == len(listed), skipped
        for text, begins in zip(skipped, listed, strict=True):
            assert text.removeprefix(".venv/bin/").startswith(begins)
        for one in blocks(document):
            assert set(one.marks) - {None} <= set(one.commands), f"{one}: a mark of nothing"
            assert not one.is_run or (document, one.language) in TRIED, one


@pytest.mark.spark
@pytest.mark.nightly
def test_make_run_ends_with_what_it_did_queries_and_the_proof(shop: Left) -> None:
    (block, *_) = blocks(README)
    assert block.wanted == ["make run"]
    at = [
        shop.out.index(what) for what in ("records ", "messages and bytes by topic", "is anything missing", "  equal")
    ]
    assert at == sorted(at)
    assert shop.job.exists()


CONSOLES = [
    *of(README, "console")[1:], *of(FIRST_JOB, "console", "sh"), *of(OPERATING, "console"), *of(SQL, "sh"),
    *of(TYPED, "console"), *of(DISTER, "console"),
]  # fmt: skip


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.parametrize("block", [one for one in CONSOLES if GET not in one.values[0].text])
def test_commands_of_a_job(block: Block, typist: Typist, monkeypatch: pytest.MonkeyPatch) -> None:
    for command in block.wanted:
        if command.startswith("export "):
            monkeypatch.setenv("LOGTWIN_CONFIG", str(typist.left.job))
            continue
        said = typist.does(command)
        assert COMMANDS[re.sub(" +", " ", command)](said, typist), f"{command}\n{said}"


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.parametrize("block", [one for one in CONSOLES if GET in one.values[0].text])
def test_values_of_keys(
    block: Block, demos: Demos, here: DemoHere, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of one key, and of all of them: they are what the table has, which is the newest of the log."""
    left = demos.left("dister", here)
    rows = DeltaTable(left.warehouse / "dister_kv").to_pyarrow_table().to_pylist()
    values = {row["key"]: row["value"] for row in rows if not row["deleted"]}
    for command in block.wanted:
        said = Typist(left, tmp_path, capsys).does(command)
        if command.startswith(GET):
            assert said == f"{values['settings/currency']}\n"
        else:
            assert all(key in said for key in values)


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.parametrize("block", [*of(DISTER, "sql"), *of(TABLES, "sql")])
def test_queries_of_other_documents(spark: SparkSession, demos: Demos, here: DemoHere, block: Block) -> None:
    """Where the demo has nobody who consumes there are no rows; elsewhere there are."""
    is_of_consumers = "consumer_offsets" in block.text
    left = demos.left("rocketmq" if is_of_consumers else "dister", here)
    for statement in block.statements:
        mine = statement.replace("/data/lake", str(left.warehouse)).replace("default.group.dister", "demo")
        assert bool(asked(spark, left, mine.rstrip(";\n"))) is not is_of_consumers


@functools.cache
def session_of(spark: SparkSession, warehouse: Path) -> SparkSession:
    """One session for all questions: to register the views takes longer than to ask."""
    session = spark.newSession()
    register(session, str(warehouse))
    return session


def asked(spark: SparkSession, left: Left, statement: str) -> list[Row]:
    return session_of(spark, left.warehouse).sql(statement).collect()


def messages_of(left: Left, topic: str) -> int:
    """Not by way of our views."""
    log = DeltaTable(left.warehouse / "log").to_pyarrow_table(columns=["topic", "kind"])
    return sum(one == {"topic": topic, "kind": "message"} for one in log.to_pylist())


def test_what_the_readme_queries_is_in_any_warehouse_or_in_that_of_its_job() -> None:
    [job] = [tomllib.loads(block.text) for block in blocks(README) if block.language == "toml"]
    [block] = [block for block in blocks(README) if block.language == "sql"]
    there = {*VIEWS, *(one.name for one in TABLES_OF_A_WAREHOUSE), *(one["name"] for one in job["tables"])}
    assert set(re.findall(r"\bFROM +(\w+)", block.text)) <= there


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.parametrize("block", of(README, "sql"))
def test_queries_of_the_readme_have_rows(spark: SparkSession, shop: Left, block: Block) -> None:
    by_hour, by_status, unfit, by_topic, complete = (asked(spark, shop, one) for one in block.statements)
    orders = messages_of(shop, "orders")
    assert sum(row[1] for row in by_hour) <= orders  # the batches' messages are apart in the view
    assert by_hour and by_status and unfit
    assert {row["topic"] for row in by_topic} == {"orders", "payments", "user-events", "telemetry", "canal-shop"}
    assert [(row["log_id"], row["complete_to"], row["gaps"]) for row in complete] == [(MARK, shop.position, 0)]


def questions(part: str, master: str) -> list[Any]:
    """The queries below a heading of docs/sql.md."""
    lines = (PROJECT / SQL).read_text().splitlines()
    start = lines.index(part) + 1
    end = next((at for at, line in enumerate(lines[start:], start) if line.startswith("## ")), len(lines))
    marks = {"rocketmq": [], "dister": [pytest.mark.soak], "kafka": [pytest.mark.soak, pytest.mark.peer]}[master]
    return [
        pytest.param(master, one, id=str(one), marks=marks)
        for one in blocks(SQL)
        if one.language == "sql" and one.is_run and start < one.line <= end
    ]


QUESTIONS = [
    *questions("## After `make run`", "rocketmq"),
    *questions("## After `make run MASTER=kafka`", "kafka"),
    *questions("## After `make run MASTER=dister`", "dister"),
]


def test_each_question_is_asked_of_a_demo() -> None:
    assert {str(one.values[1]) for one in QUESTIONS} == {str(one.values[0]) for one in of(SQL, "sql")}


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.parametrize(("master", "block"), QUESTIONS)
def test_questions_have_answers(spark: SparkSession, demos: Demos, here: DemoHere, master: str, block: Block) -> None:
    left = demos.left(master, here)
    (statement,) = (one.rstrip(";\n") for one in block.statements)
    rows = asked(spark, left, statement)
    assert bool(rows) != ("FROM incidents" in statement), statement
    if "O-000000067" in statement:
        assert [row["topic"] for row in rows] == ["orders", *["payments"] * (len(rows) - 1)]
        assert len(rows) > 1
    if statement.endswith("FROM completeness"):
        assert [(row["complete_from"], row["gaps"]) for row in rows] == [(0, 0)]
    if "FROM kafka_lag" in statement:
        assert_nothing_is_behind(rows)
    if "AS without" in statement:
        assert sum(row["without"] for row in rows) > 0  # some were sent in transactions
    if "FROM removed" in statement:
        assert sum(row["entries"] for row in rows) == 50  # as the demo says


def assert_nothing_is_behind(rows: list[Row]) -> None:
    """The demo ends when all is committed and the group told: metadata is of then, of the new partitions, too."""
    assert [row["partition"] for row in rows] == list(range(8))
    for row in rows:
        assert row["position"] == row["log_end"] == row["group_offset"] > 0
        assert row["offsets_behind"] == row["group_offsets_behind"] == 0


def names_left_by(block: Block, left: Left, folder: Path, **given: Any) -> dict[str, Any]:
    """The block, run as a program, with the demo's places in those of the document."""
    text = block.text.replace("/data/lake", str(left.warehouse)).replace("rocketmq/broker-a", MARK)
    text = text.replace("/mnt/broker-b/store/commitlog", str(left.log)).replace('"…"', repr(str(left.log)))
    program = folder / "block.py"
    program.write_text(text)
    return runpy.run_path(str(program), init_globals=given)


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.parametrize("block", of(FIRST_JOB, "python"))
def test_the_data_source(spark: SparkSession, shop: Left, tmp_path: Path, block: Block) -> None:
    left = names_left_by(block, shop, tmp_path, spark=spark)
    assert left["records"].isStreaming
    rows = DeltaTable(shop.warehouse / "log").to_pyarrow_table(columns=["offset"])["offset"].to_pylist()
    assert left["first_megabyte"].count() == sum(offset < 1 << 20 for offset in rows) < len(rows)


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.parametrize("block", of(SQL, "python"))
def test_the_names_of_sql_in_a_notebook(spark: SparkSession, shop: Left, tmp_path: Path, block: Block) -> None:
    session = spark.newSession()
    try:
        names_left_by(block, shop, tmp_path, spark=session)
        assert session.table("messages").where("topic = 'orders'").count() > 0
        assert spark.table("rocketmq.messages").where("topic = 'orders'").count() > 0  # "for everybody"
    finally:
        spark.sql("DROP SCHEMA IF EXISTS rocketmq CASCADE")


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.parametrize("block", of(TYPED, "python"))
def test_a_typed_table_in_another_engine(shop: Left, tmp_path: Path, block: Block) -> None:
    names_left_by(block, shop, tmp_path)
