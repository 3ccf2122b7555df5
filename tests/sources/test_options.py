from typing import Any

import pytest

from sources.errors import ConfigurationError
from sources.options import MasterOptions, ReadOptions, parse_options
from sources.registry import open_log


def parse(**given: Any) -> ReadOptions:
    return parse_options(ReadOptions, {"id": "rocketmq/a", **given}, where="x.toml [[logs]]")


def test_an_option_has_two_spellings_a_key_has_one_and_a_missing_one_is_named() -> None:
    """Spark ignores the case of options; what a file has is a key of the file's, or none."""
    for spelled in ("max_bytes_per_trigger", "maxBytesPerTrigger", "maxbytespertrigger"):
        given = {"id": "rocketmq/a", spelled: "5"}
        assert parse_options(ReadOptions, given, where="x", camel=True).max_bytes_per_trigger == 5
    with pytest.raises(ConfigurationError, match=r"^x\.toml \[\[logs\]\]: there is no key 'nameserver'\. Did you mean"):
        parse(nameserver="h:1")
    with pytest.raises(ConfigurationError, match="'id' is missing"):
        parse_options(ReadOptions, {}, where="x.toml")


@pytest.mark.parametrize(("given", "expected"), [("latest", "latest"), ("123", 123), (123, 123), ("0", 0)])
def test_a_starting_offset_is_a_name_or_a_number(given: object, expected: object) -> None:
    assert parse(starting_offset=given).starting_offset == expected


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"startng_offset": "earliest"}, ["startng_offset", "starting_offset", "x.toml"]),
        ({"maxBytePerTrigger": "5"}, ["maxBytePerTrigger", "max_bytes_per_trigger"]),
        ({"max_bytes_per_trigger": "many"}, ["max_bytes_per_trigger", "many"]),
        ({"max_bytes_per_trigger": 0}, ["max_bytes_per_trigger", "greater than 0"]),
        ({"zzz": 1}, ["there is no key 'zzz'; expected one of access_key", "parallel_reads"]),  # nothing is near: all
        ({"id": "rocketmq/broker a"}, ["id is not usable; expected rocketmq/<broker name>", "'rocketmq/broker a'"]),
        ({"starting_offset": "-5"}, ["starting_offset", "0 or more"]),
        ({"starting_offset": "newest"}, ["starting_offset", "newest"]),
        ({"id": "broker-a"}, ["id", "rocketmq/broker-a"]),
    ],
)
def test_a_mistake_names_file_key_and_what_was_meant(given: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(**given)
    for word in words:
        assert word in str(caught.value)


def test_a_master_may_be_named_instead_of_located() -> None:
    by_name = MasterOptions(id="rocketmq/broker-a", name_server="10.0.0.1:9876; 10.0.0.2:9876")
    by_address = MasterOptions(id="rocketmq/broker-a", master="10.0.0.5:10912", remoting="10.0.0.5:10911")
    assert open_log(by_name).address == "broker-a at name server 10.0.0.1:9876;10.0.0.2:9876"
    assert open_log(by_address).address == "10.0.0.5:10912"
    with pytest.raises(ConfigurationError, match="not one way to the log"):
        open_log(by_address.model_copy(update={"name_server": "10.0.0.1:9876"}))
