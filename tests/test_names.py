"""One name, one thing."""

import re
from collections import defaultdict
from pathlib import Path

PROJECT = Path(__file__).parents[1]
PACKAGES = ("logtwin", "sources", "sinks", "pipeline", "bench", "airflow_dags")
_CLASS = re.compile(r"^ *class ([A-Za-z]\w*)[:(\[]", re.MULTILINE)


def test_no_public_class_has_the_name_of_another() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for package in PACKAGES:
        for file in sorted((PROJECT / package).rglob("*.py")):
            for name in _CLASS.findall(file.read_text()):
                places[name].append(str(file.relative_to(PROJECT)))
    assert len(places) > 500
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
