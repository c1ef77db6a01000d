"""That findings.json has exactly the published shape, is finite and is the same every time."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest

from ptt.diagnostics.model import Diagnosis
from ptt.reports.run.findings_json import findings_json

SHAPE: dict[str, list[str]] = {
    "": [
        "schema_version", "ptt_version", "run", "verdict", "cost", "signature", "findings", "audit",
        "not_judged", "crashes", "sources",
    ],
    "run": ["name", "framework", "algorithm", "steps", "sequences", "model_tokens"],
    "verdict": ["status", "headline", "first_broken_link", "next"],
    "signature": [
        "status", "reason", "pair", "onset_step", "onset_interval", "limit_passed_step", "limit_passed_interval",
        "aggregates", "lead_steps", "lead_is_lower_bound", "lead_interval", "growth", "p_value", "false_alarm_rate",
    ],
}  # fmt: skip
FINDING = [
    "id", "severity", "link", "slice", "onset_step", "onset_interval", "claim", "observed", "limit", "unit",
    "evidence", "causes", "next", "consequence_of",
]  # fmt: skip


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} in findings.json")


@pytest.mark.parametrize("name", ["baseline", "healthy", "cannot_say", "collapse", "crashed", "hostile"])
def test_shape_is_the_published_one(name: str, samples: dict[str, Diagnosis]) -> None:
    content = json.loads(findings_json(samples[name], "0.1.0"), parse_constant=refuse)
    for place, keys in SHAPE.items():
        assert list(content[place] if place else content) == keys
    assert content["schema_version"] == 1
    assert content["ptt_version"] == "0.1.0"
    assert list(content["run"]["steps"]) == ["first", "last", "count"]
    assert list(content["signature"]["aggregates"]) == ["status", "metrics"]
    assert all(list(growth) == ["p95", "p99", "interval_p99"] for growth in content["signature"]["growth"].values())
    passed = {"limit_passed_step", "limit_passed_interval"}  # of growth alone
    assert all([key for key in finding if key not in passed] == FINDING for finding in content["findings"])
    assert all(list(n) == ["id", "link", "reason", "missing", "enable"] for n in content["not_judged"])
    assert all(list(crash) == ["id", "error"] for crash in content["crashes"])
    source = ["path", "kind", "rows_ok", "rows_bad", "bytes_lost", "note"]
    assert all(list(s) == source for s in content["sources"])


def test_values_are_the_diagnosis_own(samples: dict[str, Diagnosis]) -> None:
    content = json.loads(findings_json(samples["baseline"], "0.1.0"))
    assert content["verdict"]["status"] == "unstable"
    assert content["verdict"]["first_broken_link"] == "policy_update"
    assert content["signature"]["onset_interval"] == [113, 145]
    assert content["signature"]["growth"]["post_tool"] == {
        "p95": 5.29,
        "p99": 1.94,
        "interval_p99": [1.6, 2.4],
    }
    assert content["findings"][1]["consequence_of"] == "tool-tail-growth"


def test_numbers_that_are_not_finite_are_null(samples: dict[str, Diagnosis]) -> None:
    content = json.loads(findings_json(samples["hostile"], "0.1.0"), parse_constant=refuse)
    assert content["findings"][0]["observed"] is None
    assert content["findings"][0]["evidence"]["inf"] is None
    assert content["signature"]["p_value"] is None


def test_floats_have_six_significant_digits_and_integers_all(samples: dict[str, Diagnosis]) -> None:
    base = samples["baseline"]
    finding = dataclasses.replace(
        base.findings[0], observed=math.pi * 1e-9, evidence={"count": 123_456_789, "yes": True}
    )
    content = json.loads(findings_json(dataclasses.replace(base, findings=(finding,)), "0.1.0"))
    assert content["findings"][0]["observed"] == 3.14159e-09
    assert content["findings"][0]["evidence"] == {"count": 123_456_789, "yes": True}


def test_same_diagnosis_gives_same_bytes_whatever_the_order_of_mappings(
    samples: dict[str, Diagnosis],
) -> None:
    base = samples["baseline"]
    turned = tuple(
        dataclasses.replace(f, evidence=dict(sorted(f.evidence.items(), reverse=True))) for f in base.findings
    )
    assert findings_json(base, "1") == findings_json(dataclasses.replace(base, findings=turned), "1")


def test_lone_surrogates_can_be_written(samples: dict[str, Diagnosis]) -> None:
    assert "\\\\udcff" in findings_json(samples["hostile"], "1").encode("utf-8").decode("utf-8")
