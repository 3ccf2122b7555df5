"""Which places a statement may name, by their texts alone."""

import pytest

from pipeline.sql.named_places import is_reachable, unreachable_option
from sinks.storage.place import LOCAL, Place, placed

S3, AZURE, HDFS = placed("s3a://lake/twin"), placed("abfss://c@a.dfs.core.windows.net/x"), placed("hdfs://nn:8020/x")


@pytest.mark.parametrize("text", ["/x", "x/y.csv", "./a:b", "file:/x", "file:///x", "FILE:/x", "/x/*.csv", "/x/{a,b}"])
def test_the_local_disk_may_be_named_beside_any_warehouse(text: str) -> None:
    assert all(is_reachable(text, warehouse) for warehouse in (LOCAL, S3, AZURE, HDFS))


@pytest.mark.parametrize(
    ("text", "warehouse"),
    [
        ("s3a://lake/other", S3),
        ("s3://lake", S3),
        ("abfss://c@a.dfs.core.windows.net/y", AZURE),
        ("hdfs://nn:8020/y", HDFS),
        ("hdfs:/y", placed("hdfs:/x")),
    ],
)
def test_the_warehouses_own_store_may_be_named(text: str, warehouse: Place) -> None:
    assert is_reachable(text, warehouse)
    assert not is_reachable(text, LOCAL)


@pytest.mark.parametrize(
    "text",
    (
        "s3a://other/x", "s3a://lake.evil/x", "s3a://key:secret@lake/x", "s3n://lake/x",
        "abfs://c@a.dfs.core.windows.net/y", "abfss://c@evil.example/y", "hdfs://evil:8020/x", "hdfs:/x",
        "webhdfs://evil/x", "swebhdfs://evil/x", "http://evil/x", "HTTP://evil/x", " http://evil/x", "ftp://evil/x",
        "har://hdfs-evil:8020/x", "jar:file:/x", "file://evil/x", "//evil/x", "///evil/x", "{http://evil/x,/y}",
    ),
)  # fmt: skip
def test_no_other_place_may_be_named_beside_any_warehouse(text: str) -> None:
    assert not [warehouse for warehouse in (LOCAL, S3, AZURE, HDFS) if is_reachable(text, warehouse)]


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ({"path": "/x", "header": "true", "sep": "://"}, None),
        ({"PATH": "http://evil/x"}, "PATH http://evil/x"),
        ({"header": "true", "paths": "[]"}, "paths"),
        ({"fs.s3a.endpoint": "evil"}, "fs.s3a.endpoint"),
        ({"rowValidationXSDPath": "/x"}, "rowValidationXSDPath"),
        ({"": "x"}, ""),
    ],
)
def test_options_of_a_format_name_no_other_place(options: dict[str, str], refused: str | None) -> None:
    assert unreachable_option(options, LOCAL) == refused
