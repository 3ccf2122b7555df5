from __future__ import annotations

from typing import Any

import pytest

from sources.errors import ConfigurationError
from sources.options import MasterOptions, ReadOptions, parse_options
from sources.registry import open_log


def parse(**given: Any) -> ReadOptions:
    return parse_options(ReadOptions, {"id": "rocketmq/a", **given}, where="x.toml [[logs]]")


def test_both_spellings_name_the_same_option_and_a_missing_one_is_named() -> None:
    assert parse(max_bytes_per_trigger=5) == parse(maxBytesPerTrigger="5") == parse(maxbytespertrigger="5")
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
    assert open_log(by_name).place == "broker-a at name server 10.0.0.1:9876;10.0.0.2:9876"
    assert open_log(by_address).place == "10.0.0.5:10912"
    with pytest.raises(ConfigurationError, match="not one way to the log"):
        open_log(by_address.model_copy(update={"name_server": "10.0.0.1:9876"}))
