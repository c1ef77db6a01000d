"""Foreign documents are converted to their types, or an error names the key and what would be right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta, Struct, field

from ptt.diagnostics.documents import (
    Count,
    DocumentError,
    Finite,
    Integer,
    Number,
    Scalar,
    closest,
    convert_document,
    parse_json,
)
from ptt.diagnostics.model import Severity


@dataclass(frozen=True, kw_only=True)
class Growth:
    p95: Finite | None
    ends: tuple[Integer, Integer] | None = None


class Rule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: Annotated[str, Meta(min_length=1, max_length=5)]
    severity: Severity = Severity.HIGH
    test: str | None = field(default=None, name="is")
    evidence: Mapping[str, Scalar] = {}


class Document(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    steps: Count = 0
    observed: Number | None = None
    growth: Mapping[str, Growth] = {}
    limits: Mapping[str, Mapping[str, Finite]] = {}
    rule: Annotated[tuple[Rule, ...], Meta(max_length=2)] = ()
    answer: Literal["yes", "no"] = "yes"
    expires: date | None = None
    keep: bool = False


def test_a_document_is_converted_without_loss() -> None:
    document = {
        "steps": 3,
        "observed": 2,
        "growth": {"post_tool": {"p95": 1, "new": 1}},
        "rule": [{"id": "a", "is": "> 3", "evidence": {"n": 1, "x": 0.5, "\udcff": None, "t": True}}],
        "expires": date(2031, 12, 31),
    }
    found = convert_document(document, Document)
    assert (found.steps, found.observed, type(found.observed)) == (3, 2, int)
    assert found.growth == {"post_tool": Growth(p95=1.0)}
    assert found.rule[0].test == "> 3"
    assert list(found.rule[0].evidence.values()) == [1, 0.5, None, True]
    assert found.expires == date(2031, 12, 31)


@pytest.mark.parametrize(
    ("document", "key", "problem"),
    [
        ([], "", "must be an object"),
        ({"steps": "3"}, "steps", "must be a whole number"),
        ({"steps": True}, "steps", "must be a whole number"),
        ({"steps": 3.0}, "steps", "must be a whole number"),
        ({"steps": -1}, "steps", "is -1; it must be a whole number of at least 0"),
        ({"steps": 10**30}, "steps", "it must be a whole number of at most 9007199254740992"),
        ({"observed": float("inf")}, "observed", "must be a finite number"),
        ({"observed": float("nan")}, "observed", "must be a finite number"),
        ({"observed": "x"}, "observed", "must be a number or null"),
        ({"growth": {"a": {"p95": 1}, "b": {}}}, "growth.b", "has no `p95`"),
        ({"growth": {"a": {"p95": 1}, "b": {"p95": "x"}}}, "growth.b.p95", "must be a number or null"),
        ({"growth": {"b": {"p95": 1, "ends": [1]}}}, "growth.b.ends", "has 1 entries; it can have exactly 2"),
        ({"growth": {"b": {"p95": 1, "ends": [1, 2.5]}}}, "growth.b.ends[1]", "must be a whole number"),
        ({"limits": {"a": {"ok": 1}, "b": {"x": 1, "y": "z"}}}, "limits.b.y", "must be a number"),
        ({"rule": {}}, "rule", "must be a list"),
        ({"rule": [{"id": "a"}] * 3}, "rule", "has 3 entries; it can have at most 2"),
        ({"rule": [{"id": "a"}, {"id": ""}]}, "rule[1].id", "has 0 characters; it can have at least 1"),
        ({"rule": [{"id": "a", "is": 3}]}, "rule[0].is", "must be a text or null"),
        ({"rule": [{"id": "a", "severity": "bad"}]}, "rule[0].severity", "is 'bad'; it can be critical, high, medium"),
        ({"rule": [{"id": "a", "evidence": {"n": [1]}}]}, "rule[0].evidence.n", "must be a single value"),
        ({"rule": [{"id": "a", "severty": "high"}]}, "rule[0]", "unknown key 'severty'; is severity meant?"),
        ({"answer": "maybe"}, "answer", "is 'maybe'; it can be yes, no"),
        ({"answer": "\udcff"}, "", "not Unicode text"),
        ({"expires": "2031-12-31"}, "expires", "must be a date"),
        ({"expires": datetime(2031, 12, 31)}, "expires", "must be a date"),
        ({"keep": 1}, "keep", "must be true or false"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(document: Any, key: str, problem: str) -> None:
    with pytest.raises(DocumentError) as caught:
        convert_document(document, Document)
    assert caught.value.key == key
    assert problem in caught.value.problem
    assert str(caught.value) == f"{key or 'the document'} {caught.value.problem}"


def test_toml_has_tables_and_no_null() -> None:
    with pytest.raises(DocumentError, match=r"^growth must be a table$"):
        convert_document({"growth": 3}, Document, mapping="a table")
    with pytest.raises(DocumentError, match=r"^observed must be a number$"):
        convert_document({"observed": "3"}, Document, mapping="a table")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "Expecting value"),
        ("{", "Expecting"),
        ("NaN", "NaN is not a JSON number"),
        ("9" * 5000, "Exceeds the limit"),
        (str(2**53 + 1), "larger than any number"),
        ("[" * 200_000, "nested too deeply"),
        ("\udcff", "can't decode"),
    ],
)
def test_what_is_no_json_of_ours_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_json(text.encode("utf-8", "surrogateescape"))


def test_what_python_writes_of_numbers_that_are_not_finite_is_read_where_it_may_stand() -> None:
    assert parse_json(b"[-Infinity, 1e999]", finite=False) == [float("-inf"), float("inf")]


def test_an_unknown_name_is_held_against_the_known_ones() -> None:
    assert closest("rewrd", ["reward", "policy"]) == "is reward meant?"
    assert closest("zzz", ["reward", "policy"]) == "known are policy, reward"
    assert closest("zzz", [f"metric{i}" for i in range(30)]) == "none is similar"
