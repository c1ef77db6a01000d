"""Metrics that contradict each other: what the rule says of them, and on a run that a trainer logged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import Array
from rule_cases import broken, healthy, judged, not_judged

from ptt import api
from ptt.diagnostics.evidence.contradictions import Contradiction, find_contradictions
from ptt.diagnostics.evidence.series import finite_series
from ptt.diagnostics.metrics.aliases import canonical
from ptt.diagnostics.model import Agreement, Broken, Finding, Severity

RULE = "metrics-contradict-each-other"
STEPS = 60
NOISE = np.random.default_rng(3).normal(scale=1e-3, size=STEPS)
SOUND = {
    "sampling/importance_sampling_ratio/min": 0.9 + NOISE,
    "sampling/importance_sampling_ratio/mean": 0.998 + NOISE,
    "sampling/importance_sampling_ratio/max": 1.1 + NOISE,
    "sampling/sampling_logp_difference/mean": 0.002 + NOISE / 10,
    "sampling/sampling_logp_difference/max": 0.11 + NOISE,
    "clip_ratio/region_mean": 0.03 + NOISE,
}


def held(**changes: Array) -> tuple[Contradiction, ...]:
    """Hold the metrics, some of them changed, against every identity."""
    logged = {**SOUND, **{name.replace("__", "/"): values for name, values in changes.items()}}
    steps = np.arange(1, STEPS + 1)
    made = {
        canonical(raw) or raw: finite_series(canonical(raw) or raw, steps, values, raw_name=raw)
        for raw, values in logged.items()
    }
    return find_contradictions(made, {}, {"framework": "trl"})


def from_step(step: int, values: Array, factor: float) -> Array:
    """Return values that are multiplied from a step on."""
    return np.where(np.arange(1, STEPS + 1) >= step, factor * values, values)


def ratio(factor: float, since: int = 1) -> dict[str, Array]:
    """Return a mean ratio that is multiplied from a step on."""
    name = "sampling/importance_sampling_ratio/mean"
    return {name.replace("/", "__"): from_step(since, SOUND[name], factor)}


def test_a_mean_above_its_maximum_is_named_with_its_numbers_and_its_onset() -> None:
    finding = broken(judged(RULE, {}, contradictions=held(**ratio(8.0, since=31))), severity=Severity.MEDIUM)
    assert (finding.onset_step, finding.onset_interval) == (31, (31, 31))
    assert (finding.observed, finding.evidence["steps_broken"]) == (30, 30)
    assert finding.evidence["first_step"] == 31
    assert (
        "sampling/importance_sampling_ratio/mean is 7.99 and sampling/importance_sampling_ratio/max is 1.1"
        in finding.claim
    )
    assert any("[B, 1]" in cause for cause in finding.causes)


def test_a_ratio_far_from_one_beside_engines_that_agree_is_told_as_one_of_sequences() -> None:
    least = {"sampling__importance_sampling_ratio__min": 0.01 + np.abs(NOISE)}
    finding = broken(judged(RULE, {}, contradictions=held(**ratio(0.57), **least)), severity=Severity.MEDIUM)
    assert finding.held_from_step == 1
    assert "trainer and engine differ by 0.00198 nats a token" in finding.claim
    assert any("vllm_importance_sampling_mode" in step for step in finding.next)


def test_identities_of_one_cause_give_one_finding_and_others_their_own() -> None:
    changed = held(
        **ratio(0.57),
        sampling__sampling_logp_difference__max=12.0 + NOISE,
        clip_ratio__region_mean=1.5 + NOISE,
    )
    verdict = judged(RULE, {}, contradictions=changed)
    assert isinstance(verdict, Broken)
    named = [set(str(finding.evidence["identities"]).split(", ")) for finding in verdict.findings]
    ratios = {"ratio-unlike-gap", "gap-unlike-ratio-range", "mean-outside-extremes"}
    assert sorted(named, key=len) == [{"share-outside-0-1"}, ratios]
    assert not any(
        "{" in text for finding in verdict.findings for text in (finding.claim, *finding.causes, *finding.next)
    )


def test_a_bound_broken_at_one_step_is_a_low_finding() -> None:
    share = SOUND["clip_ratio/region_mean"].copy()
    share[40] = 1.7
    finding = broken(judged(RULE, {}, contradictions=held(clip_ratio__region_mean=share)), severity=Severity.LOW)
    assert finding.claim.endswith("at step 41")


@pytest.mark.parametrize(("off", "severity"), [(0.0, Severity.LOW), (0.02, Severity.MEDIUM)])
def test_parts_averaged_over_other_batches_are_low_and_a_gap_of_one_sign_is_not(off: float, severity: Severity) -> None:
    rng = np.random.default_rng(5)
    parts = {f"clip_ratio__{side}_mean": 0.01 + NOISE for side in ("low", "high")}
    whole = 0.02 + 2 * NOISE + off + 0.003 * rng.choice([-1.0, 1.0], STEPS)
    finding = broken(judged(RULE, {}, contradictions=held(clip_ratio__region_mean=whole, **parts)), severity=severity)
    assert finding.evidence["identities"] == "clip-parts-unlike-whole"


def test_sound_metrics_are_healthy_and_the_audit_says_what_holds() -> None:
    contradictions = held()
    assert "hold" in healthy(judged(RULE, {}, contradictions=contradictions)).reason
    assert {one.row.agreement for one in contradictions} == {Agreement.AGREES}


def test_a_longer_stretch_can_be_asked_for() -> None:
    few = held(**ratio(8.0, since=54))
    assert isinstance(judged(RULE, {}, contradictions=few), Broken)
    healthy(judged(RULE, {}, contradictions=few, limits={"steps": 10.0}))


def test_without_metrics_that_belong_together_it_is_not_judged() -> None:
    not_judged(judged(RULE, {}))


def _logged(folder: Path, **changes: Array) -> dict[str, Any]:
    """Write a trainer's state, diagnose it and return its findings.json."""
    logged = {**SOUND, "loss": 0.1 + NOISE, "frac_reward_zero_std": np.abs(NOISE), "reward_std": 0.3 + NOISE}
    logged |= {name.replace("__", "/"): values for name, values in changes.items()}
    rows = [{"step": step + 1, **{raw: float(values[step]) for raw, values in logged.items()}} for step in range(STEPS)]
    folder.mkdir()
    state = {"global_step": STEPS, "max_steps": STEPS, "log_history": rows}
    folder.joinpath("trainer_state.json").write_text(json.dumps(state))
    diagnosis = api.diagnose(folder, out=folder.parent / f"out_{folder.name}")
    found: list[Finding] = [finding for finding in diagnosis.findings if finding.id == RULE]
    return {"findings": found, "audit": diagnosis.audit or ()}


def test_a_run_whose_log_contradicts_itself_says_so_and_a_sound_one_does_not(tmp_path: Path) -> None:
    sick, sound = _logged(tmp_path / "sick", **ratio(8.0)), _logged(tmp_path / "sound")
    (finding,) = sick["findings"]
    assert finding.evidence["identities"] == "mean-outside-extremes"
    (row,) = [row for row in sick["audit"] if row.agreement is Agreement.DIFFERS]
    assert (row.finding, row.quantity, row.steps, row.agreeing) == (RULE, "is/ratio_mean", STEPS, 0)
    assert sound["findings"] == []
    assert {row.agreement for row in sound["audit"]} == {Agreement.AGREES}
