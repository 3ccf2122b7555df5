"""Kinds with parts: how they are written, what they may not be, how they grow."""

import pytest

from sinks.typed.kinds import MOST_LEVELS, MOST_PARTS, grown_kind, leaves, normal_kind
from sources.errors import ConfigurationError


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        ("ARRAY<STRUCT<sku: STRING, n Int>>", "array<struct<sku:string,n:int>>"),
        ("map< string , decimal( 12, 2 ) >", "map<string,decimal(12,2)>"),
        ("struct<`a-b`:json, `c.d` array<date>, `x``y`:int>", "struct<`a-b`:json,`c.d`:array<date>,`x``y`:int>"),
        ("struct<Größe:int,int:int>", "struct<`Größe`:int,int:int>"),
    ],
)  # fmt: skip
def test_words(written: str, kind: str) -> None:
    assert normal_kind(written) == kind == normal_kind(kind)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("struct<>", "a name that a column can have, at character 8"),
        ("struct<`a b`:int>", "a name that a column can have, at character 8"),
        ("struct<a:int,A:int>", "names that differ in more than upper and lower case"),
        ("struct<a:int NOT NULL>", ">, at character 14"),
        ("array<int", ">, at character 10"),
        ("array<int>>", "nothing more, at character 11"),
        ("array<float>", "one of boolean, .*, at character 7"),
        ("array<decimal(39,2)>", "one of boolean"),
        ("map<int,int>", "string, which names in JSON are, at character 5"),
        ("array<" * (MOST_LEVELS + 1) + "int" + ">" * (MOST_LEVELS + 1), f"at most {MOST_LEVELS} levels"),
        (f"struct<{','.join(f'f{number}:int' for number in range(MOST_PARTS + 1))}>", f"at most {MOST_PARTS} types"),
    ],
)
def test_no_kinds(written: str, expected: str) -> None:
    with pytest.raises(ConfigurationError, match=f"a column has no such type; expected {expected}"):
        normal_kind(written)
    assert normal_kind("array<" * MOST_LEVELS + "int" + ">" * MOST_LEVELS)


def test_leaves_are_where_parquet_has_them() -> None:
    kind = "struct<a:array<struct<b:int>>,c:map<string,double>>"
    assert list(leaves(kind)) == [
        (".a.list.element.b", "int"), (".c.key_value.key", "string"), (".c.key_value.value", "double")
    ]  # fmt: skip
    assert list(leaves("date")) == [("", "date")]


@pytest.mark.parametrize(
    ("one", "other", "grown"),
    [
        ("struct<a:int>", "struct<b:string,a:bigint>", "struct<a:int,b:string>"),
        ("array<struct<a:struct<x:int>>>", "array<struct<A:int>>", "array<struct<a:struct<x:int>>>"),
        ("struct<a:struct<x:int>>", "struct<a:struct<y:int>>", "struct<a:struct<x:int,y:int>>"),
        ("struct<a:int>", "array<int>", "struct<a:int>"),
        ("map<string,struct<a:int>>", "map<string,struct<a:int,b:int>>", "map<string,struct<a:int>>"),
        ("array<int>", "array<string>", "array<int>"),
        ("struct<a:int>", f"struct<{','.join(f'f{number}:int' for number in range(MOST_PARTS))}>", "struct<a:int>"),
    ],
)  # fmt: skip
def test_growth(one: str, other: str, grown: str) -> None:
    assert grown_kind(one, other) == grown
    assert grown_kind(grown, other) == grown
