"""What a configured path means: to Arrow, to Python, and to Hadoop, which must come to the same folder."""

from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import pyarrow.fs as pafs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from sinks.delta.kernel import KernelTable
from sinks.storage.check import check_one_place_alone
from sinks.storage.place import placed
from sinks.tables import LEDGER
from sinks.warehouse import ensure_table, ensure_tables
from sources.errors import ConfigurationError

ODD_NAMES = ["a b", "a%20b", "a#b", "a?b", "größe-数", "a+b&c", "100%"]
CORE_SITE = """<configuration><property><name>fs.trash.interval</name><value>1</value></property>
<property><name>fs.defaultFS</name><value>hdfs://nn:8020</value></property></configuration>"""


@pytest.mark.parametrize("given", ["/data/a b", "file:/data/a b", "file:///data/a b/", "file://localhost/data/a b"])
def test_every_spelling_of_a_local_folder_is_that_folder(given: str) -> None:
    place = placed(given)
    assert place.local == Path("/data/a b")
    filesystem, inner = place.open()
    assert isinstance(filesystem, pafs.LocalFileSystem)
    assert inner == "/data/a b"


def test_a_relative_path_is_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert placed("./lake").local == placed("lake/").local == tmp_path / "lake"
    assert placed("./a:b").local == tmp_path / "a:b"


@given(st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1).filter(lambda name: name != "."))
def test_no_character_of_a_name_means_anything(name: str) -> None:
    for text in (f"/lake/{name}", f"file:/lake/{name}", f"file:///lake/{name}"):
        assert str(placed(text).local) == f"/lake/{name}"


@pytest.mark.parametrize("name", ODD_NAMES)
def test_what_arrow_is_told_comes_back_as_the_same_name(name: str) -> None:
    """Its S3 answers without a network where the region is given."""
    place = placed(f"s3a://bucket/lake/{name}")
    assert (place.local, str(place)) == (None, f"s3a://bucket/lake/{name}")
    filesystem, inner = pafs.FileSystem.from_uri(f"{place.arrow_uri}?region=eu-west-1")
    assert (filesystem.type_name, inner) == ("s3", f"bucket/lake/{name}")


@pytest.mark.parametrize(
    ("given", "hadoop", "arrow"),
    [
        ("hdfs://nn:8020/lake", "hdfs://nn:8020/lake", "hdfs://nn:8020/lake"),
        ("viewfs://cluster/lake", "viewfs://cluster/lake", "viewfs://cluster/lake"),
        ("s3://bucket", "s3://bucket", "s3://bucket"),
        ("S3A://bucket/a/", "s3a://bucket/a", "s3://bucket/a"),
        ("gs://bucket/a", "gs://bucket/a", "gs://bucket/a"),
        ("abfss://box@account.dfs.core.windows.net/a", *["abfss://box@account.dfs.core.windows.net/a"] * 2),
    ],
)
def test_another_file_system_has_a_name_for_each_of_both(given: str, hadoop: str, arrow: str) -> None:
    place = placed(given)
    assert (place.local, str(place), place.arrow_uri) == (None, hadoop, arrow)


@pytest.mark.parametrize("given", ["hdfs:/lake", "hdfs:///lake"])
def test_without_a_name_node_it_is_the_default_one(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(pafs, "HadoopFileSystem", asked.append)
    place = placed(given)
    assert (place.local, str(place)) == (None, "hdfs:///lake")
    assert place.open()[1] == "/lake"
    assert asked == ["default"]


@pytest.mark.parametrize(
    "given", ["s3n://bucket/a", "nowhere://a/b", "http://host/a", "file:lake", "file://host/lake", "s3a:/lake", "a:b"]
)
def test_what_not_everybody_would_understand_is_refused(given: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^job\.toml: warehouse is not a place") as caught:
        placed(given, "job.toml: warehouse")
    assert caught.value.found == given
    assert "s3a" in str(caught.value.expected)


@pytest.mark.parametrize(
    "given",
    [
        "s3a://AKIA:SECRET@bucket/a", "s3://SECRET@bucket", "s3a://AKIA:SEC/SECRET@bucket/a", "s3n://AKIA:SECRET@bucket/a",
        "gs://a:SECRET@bucket", "abfss://a:SECRET@account.dfs.core.windows.net/a", "hdfs://a:SECRET@nn/a",
        "http://a:SECRET@host/a", "s3://bucket/a?access_key=a&secret_key=SECRET", "abfss://c@a.dfs.core.windows.net/?sig=SECRET",
    ],
)  # fmt: skip
def test_credentials_in_a_place_are_refused_and_not_repeated(given: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^job\.toml: warehouse has credentials in it.*\[storage\]") as caught:
        placed(given, "job.toml: warehouse")
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("given", ["abfss://box@account.dfs.core.windows.net/a", "hdfs://user@nn:8020/a@b:c"])
def test_a_name_before_a_host_is_no_credential(given: str) -> None:
    assert str(placed(given)) == given


def test_a_storage_that_arrow_cannot_open_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    no_library = OSError("Unable to load libhdfs: libhdfs.so: cannot open shared object file")
    monkeypatch.setattr(pafs, "HadoopFileSystem", Mock(side_effect=no_library))
    with pytest.raises(ConfigurationError, match=r"hdfs:///lake cannot be opened.*Unable to load libhdfs"):
        placed("hdfs:/lake").open()


@pytest.mark.spark
@pytest.mark.parametrize(
    "form",
    ["{}", *(pytest.param(uri, marks=pytest.mark.nightly) for uri in ("file:{}", "file://{}", "file://localhost{}"))],
)
def test_spark_kernel_and_arrow_meet_in_the_same_folder(spark: SparkSession, tmp_path: Path, form: str) -> None:
    lake = tmp_path / "ä b%20c#d?e"
    place = placed(form.format(lake))
    path = LEDGER.path(str(place))
    table = KernelTable(spark, path)
    ensure_table(table, LEDGER)
    assert {one.name for one in lake.iterdir()} == {"ledger"}
    assert spark.read.format("delta").load(path).columns == LEDGER.schema.names
    filesystem, inner = placed(path).open()
    names = {one.base_name for one in filesystem.get_file_info(pafs.FileSelector(f"{inner}/_delta_log"))}
    assert f"{0:020d}.json" in names
    assert [one.name for one in tmp_path.iterdir()] == [lake.name]


@pytest.mark.parametrize(
    ("core_site", "properties", "is_local"),
    [
        (None, {}, True),
        ("no XML", {}, True),
        ("<configuration/>", {}, True),
        (CORE_SITE, {}, False),
        (CORE_SITE, {"spark.hadoop.fs.defaultFS": "file:///"}, True),  # what Spark is told goes over it
        (None, {"spark.hadoop.fs.defaultFS": "hdfs://nn:8020"}, False),
    ],
)
def test_without_a_jvm_a_plain_path_is_refused_on_a_hadoop_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, core_site: str | None, properties: dict[str, str], is_local: bool
) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    if core_site is not None:
        (tmp_path / "core-site.xml").write_text(core_site)
    with nullcontext() if is_local else pytest.raises(ConfigurationError, match="expected a URI: hdfs://nn:8020/lake"):
        check_one_place_alone("/lake", properties)
    check_one_place_alone("s3a://lake/twin", {"spark.hadoop.fs.defaultFS": "hdfs://nn:8020"})


@pytest.mark.spark
def test_a_plain_path_is_refused_on_a_hadoop_cluster(spark: SparkSession, tmp_path: Path) -> None:
    configuration = spark._jsc.hadoopConfiguration()
    before = configuration.get("fs.defaultFS")
    configuration.set("fs.defaultFS", "hdfs://nn:8020")
    try:
        with pytest.raises(ConfigurationError, match="ambiguous") as caught:
            ensure_tables(spark, f"{tmp_path}/lake")
    finally:
        configuration.set("fs.defaultFS", before)
    assert f"hdfs://nn:8020{tmp_path}/lake/log or file:{tmp_path}/lake/log" in str(caught.value.expected)
    assert list(tmp_path.iterdir()) == []
