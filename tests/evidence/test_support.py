"""What a late tail follows, on runs made with a known cause, and the reference's mass in them by hand."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from builders import NO_SAMPLES, tails_of, tokens_of, write_recorder_run
from html_structure import page_with
from slow_cases import first_fast

from ptt import api
from ptt.diagnostics.evidence.support import gather_support
from ptt.diagnostics.model import Support, SupportShare
from ptt.diagnostics.store.findings_file import read_findings
from ptt.reports.redact.redact import redacted
from ptt.reports.run.findings_json import findings_json
from ptt.reports.text.support import support_sentences

STEPS, SEQUENCES, GROUP = 48, 16, 4
TEXT, OUTPUT, AFTER = 12, 8, 12
Scale = Callable[[bool, bool, bool], float]
"""Late spread of r after a tool, nats: of a failed call, of unusual output, of a long context."""


def run_rows(scale: Scale, *, seed: int = 0) -> list[dict[str, Any]]:
    """Return sequences with one call: a tenth fail, half of the outputs are unusual, half of the contexts long."""
    generator = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for step in range(1, STEPS + 1):
        for place in range(SEQUENCES):
            failed, unusual, long = generator.random(3) < (0.1, 0.5, 0.5)
            output = np.arange(100, 100 + OUTPUT) if not unusual else generator.integers(200, 5000, OUTPUT)
            output = np.arange(10, 10 + OUTPUT) if failed else output
            text = TEXT * (3 if long else 1)
            late = scale(bool(failed), bool(unusual), bool(long)) if step > STEPS // 3 else 0.05
            r = np.concatenate(
                [0.02 * generator.normal(size=text), np.zeros(OUTPUT), late * generator.normal(size=AFTER)]
            )
            top = -0.01 - generator.exponential(0.4, len(r))
            rows.append(
                {
                    "step": step,
                    "seq": len(rows),
                    "group_id": f"{step}-{place // GROUP}",
                    "token_ids": [*generator.integers(20, 90, text), *output, *generator.integers(20, 90, AFTER)],
                    "model_mask": [True] * text + [False] * OUTPUT + [True] * AFTER,
                    "policy_logp": np.minimum(top, top + r),
                    "ref_logp": np.minimum(top, top - r),
                    "tool_names": ["search"],
                    "tool_failed": [bool(failed)],
                }
            )
    return rows


SCHEMA: Mapping[str, Any] = {
    "policy_logp": pl.List(pl.Float32),
    "ref_logp": pl.List(pl.Float32),
    "token_ids": pl.List(pl.Int32),
}


def frame_of(rows: list[dict[str, Any]], *without: str) -> pl.DataFrame:
    """Lay rows out as sequences, without some columns."""
    return pl.DataFrame(rows, schema_overrides=SCHEMA).with_columns(pl.col("seq").cast(pl.UInt32)).drop(without)


def diagnosed(folder: Path, rows: list[dict[str, Any]]) -> api.Diagnosis:
    """Write the rows as a run and judge it."""
    return api.diagnose(write_recorder_run(folder, frame_of(rows)))


def support_of(rows: list[dict[str, Any]], *without: str) -> Support:
    """Return what the tail of a run follows, asked without a rule."""
    frame = frame_of(rows, *without)
    tokens = tokens_of(frame)
    whole = replace(tokens, scan=replace(tokens.scan, divisible=False))  # there are no files to read a part of
    found = gather_support(whole, NO_SAMPLES, tails_of(frame))
    assert found is not None
    return found[0]


def shares(support: Support) -> dict[str, SupportShare]:
    """Return the shares by cause."""
    return {share.cause: share for share in support.shares}


@pytest.mark.parametrize(
    ("cause", "scale"),
    first_fast(
        [
            ("errors", lambda failed, _unusual, _long: 6.0 if failed else 0.6),
            ("novelty", lambda failed, unusual, _long: 3.0 if unusual and not failed else 0.6),
            ("length", lambda _failed, _unusual, long: 3.0 if long else 0.6),
        ]
    ),
)
def test_the_cause_that_a_run_was_made_with_is_found(cause: str, scale: Scale) -> None:
    support = support_of(run_rows(scale))
    assert support.follows == cause
    found = shares(support)
    assert (found[cause].share or 0.0) > 0.5
    for other, share in found.items():
        assert other in (cause, "exposure") or (share.interval is not None and share.interval[0] < 0.1)


def test_where_all_tool_output_is_alike_in_its_effect_none_dominates() -> None:
    support = support_of(run_rows(lambda *_: 2.0))
    assert support.follows == "none"
    assert not support.reason


def test_what_is_not_recorded_is_no_answer() -> None:
    support = support_of(run_rows(lambda *_: 2.0), "token_ids", "tool_failed")
    assert support.follows == "cannot_tell"
    found = shares(support)
    assert found["novelty"].share is None
    assert "token_ids" in found["novelty"].reason
    assert found["errors"].share is None
    assert "tool_failed" in found["errors"].reason
    assert found["length"].share is not None
    assert not support.outputs


def test_nothing_is_read_again_where_no_finding_asks(tmp_path: Path) -> None:
    diagnosis = diagnosed(tmp_path / "run", run_rows(lambda *_: 0.05))
    assert diagnosis.support is None
    assert "support_course" not in diagnosis.tables


def test_masses_are_means_over_the_tokens_of_the_late_third() -> None:
    rows = run_rows(lambda failed, *_: 6.0 if failed else 0.6)
    support = support_of(rows)
    late = [row for row in rows if row["step"] > 2 * STEPS // 3]
    for value, failed in (("failed", True), ("not failed", False)):
        chosen = [row for row in late if row["tool_failed"] == [failed]]
        reference = np.exp([np.asarray(row["ref_logp"], np.float32)[-AFTER:].astype(float) for row in chosen])
        policy = np.exp([np.asarray(row["policy_logp"], np.float32)[-AFTER:].astype(float) for row in chosen])
        (mass,) = [one for one in support.masses if (one.window, one.by, one.value) == ("late", "tool result", value)]
        assert mass.tokens == reference.size
        assert mass.groups == len({row["group_id"] for row in chosen})
        assert mass.reference == pytest.approx(reference.mean(), rel=1e-6)
        assert mass.policy == pytest.approx(policy.mean(), rel=1e-6)
        assert mass.unsupported == pytest.approx((reference < 0.01).mean())
        assert mass.reference_interval[0] < mass.reference < mass.reference_interval[1]
    parts = {one.value: one for one in support.masses if (one.window, one.by) == ("late", "slice")}
    assert sum(one.tail_share or 0.0 for one in parts.values()) == pytest.approx(1.0)


def test_exposure_is_its_part_of_the_growth_a_token() -> None:
    rows = [
        row
        for row in run_rows(lambda *_: 2.0)
        if row["step"] > STEPS // 3 or row["seq"] % 2  # late steps have twice the sequences
    ]
    for row in rows:
        if row["step"] <= STEPS // 3 and row["seq"] % 4 == 1:  # half of the early ones call no tool
            row |= {"tool_names": [], "tool_failed": [], "model_mask": [True] * len(row["model_mask"])}
    support = support_of(rows)
    assert support.alpha is not None
    means = []
    for first, last in ((1, STEPS // 3), (2 * STEPS // 3 + 1, STEPS)):
        sums = {True: [0.0, 0], False: [0.0, 0]}
        for row in rows:
            if first <= row["step"] <= last:
                after = False
                gaps = np.abs(np.float32(row["policy_logp"]).astype(float) - np.float32(row["ref_logp"]).astype(float))
                for own, gap in zip(row["model_mask"], gaps, strict=True):
                    after = after or not own
                    if own:
                        sums[after][0] += max(0.0, float(gap) - math.log(2.0))
                        sums[after][1] += 1
        means.append(
            (sums[True][1] / (sums[True][1] + sums[False][1]), *(sums[key][0] / sums[key][1] for key in (False, True)))
        )
    (alpha0, text0, post0), (alpha1, text1, post1) = means
    assert support.alpha == pytest.approx((alpha0, alpha1))
    growth = (1 - alpha1) * text1 + alpha1 * post1 - (1 - alpha0) * text0 - alpha0 * post0
    exposure = (alpha1 - alpha0) * ((post0 + post1) / 2 - (text0 + text1) / 2)
    assert shares(support)["exposure"].share == pytest.approx(exposure / growth, rel=1e-6)


def test_a_policy_that_stands_still_after_tools_is_told_from_one_that_moves() -> None:
    still = support_of(run_rows(lambda *_: 2.0))
    assert still.changes == "frozen"
    rows = run_rows(lambda *_: 1.0)
    moving = [
        row | {"ref_logp": row["policy_logp"] - abs(row["policy_logp"] - row["ref_logp"]) * row["step"] / 12}
        for row in rows
    ]
    found = support_of(moving)
    assert found.changes == "moves"
    assert (found.change or 0.0) > 1.2


def test_rollouts_that_are_trained_on_twice_are_no_known_output() -> None:
    rows = run_rows(lambda failed, unusual, _: 3.0 if unusual and not failed else 0.6)
    twice = [
        row | {"step": 2 * row["step"] - other, "policy_logp": row["policy_logp"] - 0.001 * other}
        for row in rows
        for other in (1, 0)
    ]
    again = support_of([row | {"seq": at} for at, row in enumerate(sorted(twice, key=lambda row: int(row["step"])))])
    once = support_of(rows)
    for one, two in zip(once.outputs, again.outputs, strict=True):
        assert two.outputs == one.outputs
        assert two.exact == pytest.approx(one.exact, abs=0.02)


def test_reports_tell_it_and_findings_json_is_read_back(tmp_path: Path) -> None:
    diagnosis = diagnosed(tmp_path / "run", run_rows(lambda failed, *_: 6.0 if failed else 0.6))
    text = findings_json(diagnosis, "0")
    (tmp_path / "findings.json").write_text(text, encoding="utf-8")
    told = json.loads(text)["support"]
    assert told["follows"] == "errors"
    assert {share["cause"] for share in told["shares"]} == {"errors", "novelty", "length", "exposure"}
    page = page_with(diagnosis)
    assert page.count("The late tail after tools follows failed calls") == 2  # under its finding, and behind the tail
    assert page.count('id="support-finding-') == 2  # title and description of one plot
    again = read_findings(tmp_path / "findings.json").support
    assert diagnosis.support is not None
    assert again is not None
    assert again.follows == "errors"
    assert len(again.masses) == len(diagnosis.support.masses)
    shared = redacted(diagnosis, salt="any").support
    assert shared is not None
    assert support_sentences(shared) == support_sentences(diagnosis.support)


@pytest.mark.slow
def test_compare_says_that_arms_tails_follow_different_causes(tmp_path: Path) -> None:
    scales: dict[str, Scale] = {
        "errors": lambda failed, *_: 6.0 if failed else 0.6,
        "novelty": lambda failed, unusual, _: 3.0 if unusual and not failed else 0.6,
    }
    runs = [write_recorder_run(tmp_path / name, frame_of(run_rows(scale))) for name, scale in scales.items()]
    said = " ".join(api.compare(runs).sentences)
    assert "novelty: its late tail after tools follows unfamiliar tool output (" in said
    assert "that of errors failed calls (" in said
