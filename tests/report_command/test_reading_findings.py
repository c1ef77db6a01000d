"""findings.json comes back as it was written, and nothing else gets in under its name."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ptt import InputError, api
from ptt.diagnostics.store import findings_file as reader
from ptt.diagnostics.store.findings_file import read_findings
from ptt.reports.run.findings_json import findings_json
from ptt.reports.run.html import render_html
from ptt.reports.run.postmortem import postmortem
from ptt.version import __version__

GOOD: dict[str, Any] = {
    "schema_version": 1,
    "ptt_version": "0.1.0",
    "run": {
        "name": "r", "framework": None, "algorithm": "grpo", "sequences": 3, "model_tokens": 40,
        "steps": {"first": 1, "last": 9, "count": 9, "unit": "row", "placed_by": "progress bars"},
    },
    "verdict": {
        "status": "suspect", "headline": "it broke", "first_broken_link": "reward", "next": ["look"],
        "coverage": {
            "judged": 14, "asked": 60,
            "core": [
                {
                    "question": "reward", "judged": True, "rows": 200, "metric": "reward", "detectable": 0.31,
                    "change": "a fall of the reward by", "unit": "", "why": "",
                },
                {
                    "question": "entropy", "judged": False, "rows": 0, "metric": None, "detectable": None,
                    "change": "", "unit": "", "why": "not recorded",
                },
            ],
        },
    },
    "signature": {
        "status": "cannot_say", "reason": "no tokens", "pair": None, "onset_step": None, "onset_interval": None,
        "limit_passed_step": None, "limit_passed_interval": None,
        "aggregates": {"status": "quiet", "metrics": {"kl/ref": "flat"}, "last_steps": {"kl/ref": 7}},
        "lead_steps": None, "lead_is_lower_bound": False, "lead_interval": [3, None],
        "growth": {"post_tool": {"p95": 1.5, "p99": None, "interval_p99": [1, 2.5]}},
        "p_value": None, "false_alarm_rate": 0.01,
    },
    "findings": [
        {
            "id": "a", "severity": "high", "link": "reward", "slice": None, "onset_step": 4, "onset_interval": [3, 5],
            "claim": "it fell", "observed": 1, "limit": 0.5, "unit": "x",
            "evidence": {"n": 3, "yes": True, "what": "w", "none": None}, "causes": ["c"], "next": ["d"],
            "consequence_of": None,
        }
    ],
    "cost": {
        "rule": "entropy-collapse", "onset_step": 3, "last_step": 9, "steps": 7, "hours": 1.5, "stop_step": 5,
        "steps_after_stop": 4, "hours_after_stop": 0.5,
        "said": "4 more took 30 minutes.",
    },
    "audit": [
        {
            "quantity": "kl/ref", "agreement": "differs", "logged_as": "actor/kl", "said": "k3, mean over a step",
            "formula": "k3", "reduction": "token_mean/model_mask", "logged": 0.04, "recomputed": 0.05, "error": 0.25,
            "steps": 48, "agreeing": 3, "since": 4, "reason": "r", "missing": [], "finding": "a",
        },
        {
            "quantity": "entropy", "agreement": "not_checkable", "logged_as": None, "said": "", "formula": None,
            "reduction": None, "logged": None, "recomputed": None, "error": None, "steps": 0, "agreeing": 0,
            "since": None, "reason": "no column", "missing": ["entropy"], "finding": None,
        },
    ],
    "not_judged": [{"id": "b", "link": "critic", "reason": "r", "missing": ["value"], "enable": "log it"}],
    "crashes": [{"id": "c", "error": "ValueError: x (a.py:1)"}],
    "sources": [{"path": "p", "kind": "k", "rows_ok": 1, "rows_bad": 0, "bytes_lost": 0, "note": None}],
}  # fmt: skip

OTHERS: tuple[Any, ...] = (None, True, -1, 1.5, 10**30, "", "x", [], [1], [[]], {}, {"a": {}}, "\ud800", "a" * 5000)


def written(place: Path, document: object) -> Path:
    place.write_text(json.dumps(document), encoding="utf-8")
    return place


def refusal(place: Path) -> str:
    try:
        read_findings(place)
    except InputError as error:
        return str(error)
    return ""


def leaves(value: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [way] if way else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return found + [leaf for key, item in items for leaf in leaves(item, (*way, key))]


def changed(way: tuple[Any, ...], value: Any) -> dict[str, Any]:
    document = copy.deepcopy(GOOD)
    at: Any = document
    for key in way[:-1]:
        at = at[key]
    at[way[-1]] = value
    return document


@pytest.mark.slow
def test_every_run_comes_back_to_the_last_byte(judged: dict[str, api.Diagnosis], findings: dict[str, Path]) -> None:
    assert len(findings) >= 16
    for name, place in findings.items():
        held = read_findings(place)
        assert findings_json(held, __version__) == place.read_text(encoding="utf-8"), name
        asked = [(item.id, item.applies) for item in judged[name].not_judged]
        assert [(item.id, item.applies) for item in held.not_judged] == asked, name
        assert held.from_findings


def test_a_made_document_comes_back(tmp_path: Path) -> None:
    held = read_findings(written(tmp_path / "findings.json", GOOD))
    assert json.loads(findings_json(held, "0.1.0")) == GOOD
    assert held.findings[0].onset_interval == (3, 5)
    assert held.signature.lead_interval == (3, None)
    assert held.audit is not None
    assert [(row.agreement, row.missing) for row in held.audit] == [("differs", ()), ("not_checkable", ("entropy",))]


def test_a_document_of_an_earlier_version_says_nothing_of_coverage_and_counts_steps(tmp_path: Path) -> None:
    earlier = copy.deepcopy(GOOD)
    del (
        earlier["audit"],
        earlier["verdict"]["coverage"],
        earlier["run"]["steps"]["unit"],
        earlier["run"]["steps"]["placed_by"],
    )
    held = read_findings(written(tmp_path / "findings.json", earlier))
    assert held.verdict.coverage is None
    assert held.audit is None
    assert (held.run.step_unit, held.run.placed_by) == ("step", None)


def test_keys_that_a_later_release_adds_are_passed_over(tmp_path: Path) -> None:
    more = copy.deepcopy(GOOD) | {"new": {"deep": [1]}}
    more["findings"][0]["new"] = more["run"]["new"] = 1
    assert read_findings(written(tmp_path / "a.json", more)) == read_findings(written(tmp_path / "b.json", GOOD))


@pytest.mark.parametrize(
    "way",
    [
        pytest.param(way, id=".".join(map(str, way)), marks=pytest.mark.slow if place % 3 else ())
        for place, way in enumerate(leaves(GOOD))
    ],
)
def test_whatever_stands_in_a_field_is_read_or_refused(way: tuple[Any, ...], tmp_path: Path) -> None:
    """What is read can be shown; what is refused is named."""
    for value in OTHERS:
        place = written(tmp_path / "findings.json", changed(way, value))
        refused = refusal(place)
        if refused:
            assert str(place) in refused
            assert "ptt diagnose" in refused
        else:
            json.loads(findings_json(read_findings(place), "1"))


@pytest.mark.parametrize("way", [way for way in leaves(GOOD) if isinstance(way[-1], str)])
def test_a_field_that_is_missing_is_named(way: tuple[Any, ...], tmp_path: Path) -> None:
    document = copy.deepcopy(GOOD)
    at: Any = document
    for key in way[:-1]:
        at = at[key]
    del at[way[-1]]
    place = written(tmp_path / "findings.json", document)
    free = {"ptt_version", "crashes", "lead_interval", "kl/ref", "post_tool", "n", "yes", "what", "none"}
    free |= {"coverage", "placed_by", "limit_passed_step", "limit_passed_interval", "last_steps", "audit"}
    if way[-1] in free or way in {("run", "steps", "unit"), ("cost",), ("cost", "said")}:
        read_findings(place)
        return
    with pytest.raises(InputError, match=f"has no `{way[-1]}`"):
        read_findings(place)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is not JSON"),
        ("{", "is not JSON"),
        ("[]", "the document must be an object"),
        ("3", "the document must be an object"),
        ("[" * 200_000, "nested too deeply"),
        ('{"schema_version": 2}', "schema_version is 2, and this version of ptt reads 1"),
        ('{"schema_version": "1"}', "schema_version must be a whole number"),
        ('{"schema_version": ' + "9" * 5000 + "}", "is not JSON"),
        ('{"schema_version": NaN}', "NaN is not a JSON number"),
        ('{"schema_version": 1, "run": 1e999}', "has no `verdict`|run must be an object"),
    ],
)
def test_other_files_are_refused_with_the_reason(text: str, told: str, tmp_path: Path) -> None:
    place = tmp_path / "findings.json"
    place.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=told):
        read_findings(place)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    place = tmp_path / "findings.json"
    place.write_bytes(b"\xff\xfe\x00{")
    with pytest.raises(InputError, match="is not JSON"):
        read_findings(place)
    with pytest.raises(InputError, match="cannot be read"):
        read_findings(tmp_path)


def test_a_number_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "findings.json"
    place.write_text(json.dumps(GOOD).replace('"observed": 1,', '"observed": 1e999,'), encoding="utf-8")
    with pytest.raises(InputError, match=r"findings\[0\].observed must be a finite number"):
        read_findings(place)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_BYTES", 1000)
    with pytest.raises(InputError, match="give the store"):
        read_findings(written(tmp_path / "findings.json", GOOD))


def many(number: int, **changes: Any) -> dict[str, Any]:
    document = copy.deepcopy(GOOD)
    document["findings"] = [GOOD["findings"][0] | {"id": f"f{i}"} | changes for i in range(number)]
    return document


def test_more_findings_than_there_can_be_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="1001 entries; it can have at most 1000"):
        read_findings(written(tmp_path / "findings.json", many(1001)))


@pytest.mark.parametrize("alike", [True, False])
def test_a_chain_without_end_is_refused_and_one_that_is_read_can_be_shown(alike: bool, tmp_path: Path) -> None:
    def chain(length: int) -> Path:
        document = many(length)
        for index, finding in enumerate(document["findings"]):
            finding["id"] = "same" if alike else f"f{index}"
            finding["consequence_of"] = "same" if alike else f"f{index - 1}"
        return written(tmp_path / "findings.json", document)

    with pytest.raises(InputError, match="both follow from another"):
        read_findings(chain(200))
    held = read_findings(chain(reader.MAX_CHAIN))
    assert render_html(held)
    assert postmortem(held, {})


TEXTS = st.text(max_size=40) | st.sampled_from(
    ["</script><script>alert(1)</script>", "\x1b[31m", "{{ 7*7 }}", "\ud800"]
)


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(TEXTS, min_size=6, max_size=6), steps=st.tuples(st.integers(-(2**53), 2**53), st.integers()))
def test_hostile_texts_and_steps_make_a_harmless_page(texts: list[str], steps: tuple[int, int], tmp_path: Path) -> None:
    document = copy.deepcopy(GOOD)
    document["run"]["name"], document["verdict"]["headline"] = texts[:2]
    finding = document["findings"][0]
    finding["claim"], finding["causes"], finding["evidence"] = texts[2], [texts[3]], {texts[4]: texts[5]}
    finding["onset_step"] = steps[0]
    finding["onset_interval"] = [steps[0], min(max(steps[1], -(2**53)), 2**53)]
    held = read_findings(written(tmp_path / "findings.json", document))
    page = render_html(held)
    assert "<script" not in page
    page.encode("utf-8")
    assert "\x1b" not in page + postmortem(held, {})
