"""What is said of the recorded logprobs themselves: placeholders, rounding and copies, each in its own words."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from builders import evidence_of, frame_of_r
from rule_cases import BY_ID, level

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.column_faults import ColumnFault, fault_of
from ptt.diagnostics.evidence.validity import AnomalyCount, Coverage, Extent, MissingLogprobs, Rounding, Validity
from ptt.diagnostics.model import Broken, Finding, Healthy, Severity
from ptt.diagnostics.statistics.column_faults import Found
from ptt.diagnostics.statistics.fault_since import FaultSpan
from ptt.diagnostics.statistics.fill_values import Grid
from ptt.diagnostics.statistics.pair_sample import PairSample

SOME = Extent(tokens=10_000, sequences=100, first_step=1, last_step=60, files=1, example="tokens/all.parquet")
PAIR = PairSample(
    tokens=10_000, slope=0.0, r_squared=0.0, median_r=0.0, p99=0.1, negative_share=0.5,
    boundary_share=0.0, boundary_tokens=0.01, zero_share=0.0, usual_ratio=0.0,
)  # fmt: skip


def validity(**parts: Any) -> Validity:
    """Return what is known of sound logprobs, but for `parts`."""
    nothing = replace(SOME, tokens=0, sequences=0)
    sound = Validity(
        anomalies=(),
        pairs={"policy/ref": (PAIR, PAIR)},
        rounding={},
        extent=SOME,
        observed_share=0.5,
        missing=MissingLogprobs(**vars(nothing), pair="policy/ref", finite_tokens=10_000, dead_since=None),
        coverage=Coverage(
            repeated=nothing,
            step_gaps=(),
            ranks=0,
            missing_ranks=(),
            steps_missing_ranks=0,
            first_step_missing_rank=-1,
            last_step_missing_rank=-1,
            usual_sequences=2.0,
            usual_tokens=200.0,
        ),
    )
    return replace(sound, **parts)


def run(rule: str, known: Validity, evidence: Evidence | None = None, **limits: float) -> Any:
    base = evidence or evidence_of(frame_of_r(np.linspace(-0.2, 0.3, 50)))
    return BY_ID[rule].run(replace(base, validity=known, limits={rule: limits}))


def only(verdict: Any) -> Finding:
    assert isinstance(verdict, Broken), verdict
    (finding,) = verdict.findings
    return finding


def anomaly(kind: str, tokens: int, **more: Any) -> AnomalyCount:
    return AnomalyCount(**vars(replace(SOME, tokens=tokens)) | {"column": "ref_logp", "kind": kind} | more)


def test_a_sentinel_is_named_with_its_value_and_the_limit_in_force() -> None:
    known = validity(anomalies=(anomaly("pad", 200, values=(-1.0,)),))
    found = only(run("placeholder-logprobs", known, worth_telling=0.01))
    assert "exactly -1 on 200 model tokens" in found.claim
    assert (found.severity, found.limit) == (Severity.MEDIUM, 0.01)
    assert isinstance(run("placeholder-logprobs", known, worth_telling=0.05), Healthy)


@pytest.mark.parametrize(("highest", "words"), [(0.99, "probabilities"), (7.0, "negated logprobs")])
def test_a_column_above_0_throughout_is_another_quantity(highest: float, words: str) -> None:
    known = validity(anomalies=(anomaly("positive", 9_000, highest=highest),))
    found = only(run("placeholder-logprobs", known))
    assert f"ref_logp contains {words}" in found.claim
    assert found.severity is Severity.HIGH


@pytest.mark.parametrize(
    ("grid", "words"), [(Grid("bfloat16"), "bfloat16 numbers"), (Grid("decimals", 4), "at most four decimals")]
)
def test_rounding_is_told_with_its_quantum_and_is_no_fault(grid: Grid, words: str) -> None:
    coarse = Rounding(grid=grid, usual=-1.2, spacing=grid.spacing(-1.2))
    found = only(run("rounded-logprobs", validity(rounding={"policy_logp": coarse})))
    assert words in found.claim
    assert found.severity is Severity.LOW
    assert found.evidence["quantum"] == pytest.approx(2**-7 if grid.name == "bfloat16" else 1e-4)
    partly = replace(coarse, grid=replace(grid, share=0.95))
    assert isinstance(run("rounded-logprobs", validity(rounding={"policy_logp": partly})), Healthy)
    assert only(run("rounded-logprobs", validity(rounding={"policy_logp": partly}), rounded=0.94)).limit == 0.94


COPY = {"policy/ref": (replace(PAIR, zero_share=1.0),) * 2}


def still(metrics: dict[str, Any], steps: int = 60, **context: Any) -> Evidence:
    """Return a run whose r is 0 on all tokens."""
    made = evidence_of(frame_of_r(np.zeros(50)), metrics=metrics)
    assert made.tails is not None
    return replace(made, tails=replace(made.tails, zero_share=1.0, steps=steps), run=replace(made.run, context=context))


@pytest.mark.parametrize("metrics", [{"kl/ref": level(0.05)}, {"grad_norm": level(1.0)}])
def test_a_policy_that_moves_beside_a_reference_that_is_the_same_is_a_copy(metrics: dict[str, Any]) -> None:
    found = only(run("copied-logprobs", validity(pairs=COPY), still(metrics)))
    assert found.severity is Severity.MEDIUM
    assert "one logprob is a copy of the other" in found.claim
    assert str(found.evidence["moved"]).startswith("logged/")


@pytest.mark.parametrize(
    ("evidence", "words"),
    [
        (still({"lr": np.zeros(60), "grad_norm": level(1.0)}), "the learning rate is 0"),
        (still({}, learning_rate=0), "the learning rate is 0"),
        (still({"grad_norm": np.zeros(60)}), "every gradient is 0"),
        (still({"grad_norm": level(1.0)}, steps=1), "before its first update"),
    ],
)
def test_a_policy_that_does_not_move_is_no_copy(evidence: Evidence, words: str) -> None:
    found = only(run("copied-logprobs", validity(pairs=COPY), evidence))
    assert found.severity is Severity.INFO
    assert words in found.claim
    assert "copy" not in found.claim
    assert found.evidence["contaminates"] == "policy/ref"


def test_old_logprobs_equal_to_the_policy_s_are_no_copy() -> None:
    made = still({"grad_norm": level(1.0)})
    assert made.tails is not None
    on_policy = replace(made, tails=replace(made.tails, pair="policy/old"))
    found = only(run("copied-logprobs", validity(pairs={"policy/old": COPY["policy/ref"]}), on_policy))
    assert found.severity is Severity.INFO
    assert "each batch gets one update" in found.claim


def test_old_logprobs_of_the_first_batch_alone_are_no_copy_of_the_reference() -> None:
    pairs = {"old/ref": COPY["policy/ref"]}
    moving = still({"kl/ref": level(0.05)}, steps=4)
    assert moving.tails is not None
    first = replace(moving, tails=replace(moving.tails, pair="old/ref", observations=1))
    found = only(run("copied-logprobs", validity(pairs=pairs), first))
    assert found.severity is Severity.INFO
    assert "one batch of rollouts" in found.claim
    later = replace(moving, tails=replace(moving.tails, pair="old/ref", observations=2))
    assert only(run("copied-logprobs", validity(pairs=pairs), later)).severity is Severity.MEDIUM


def test_numbers_too_coarse_for_the_logged_kl_are_no_copy() -> None:
    coarse = Rounding(grid=Grid("bfloat16"), usual=-1.2, spacing=2**-7)
    known = validity(pairs=COPY, rounding={"policy_logp": coarse})
    assert only(run("copied-logprobs", known, still({"kl/ref": level(1e-5)}))).severity is Severity.INFO
    assert only(run("copied-logprobs", known, still({"kl/ref": level(1e-2)}))).severity is Severity.MEDIUM


def test_where_nothing_says_whether_the_policy_moved_both_are_named() -> None:
    found = only(run("copied-logprobs", validity(pairs=COPY), still({})))
    assert "or the policy does not move" in found.claim


def test_an_engine_that_agrees_but_for_a_few_coarse_numbers_is_no_copy() -> None:
    coarse = {"old_logp": Rounding(grid=Grid("bfloat16"), usual=-1.2, spacing=2**-7)}
    nearly = replace(PAIR, zero_share=0.9996)
    pairs = {"policy/ref": (PAIR, PAIR), "old/rollout": (nearly, nearly)}
    assert isinstance(run("copied-logprobs", validity(pairs=pairs, rounding=coarse)), Healthy)
    pairs["old/rollout"] = COPY["policy/ref"]
    assert only(run("copied-logprobs", validity(pairs=pairs, rounding=coarse))).severity is Severity.LOW


def test_an_engine_that_agrees_to_the_last_bit_is_a_copy() -> None:
    same = {"policy/ref": (PAIR, PAIR), "old/rollout": COPY["policy/ref"]}
    found = only(run("copied-logprobs", validity(pairs=same)))
    assert (found.severity, found.evidence["pair"]) == (Severity.LOW, "old/rollout")
    assert isinstance(run("copied-logprobs", validity()), Healthy)


def test_truncated_support_tells_the_limit_in_force() -> None:
    cut = replace(PAIR, negative_share=0.99, median_r=-0.05, slope=math.nan, r_squared=math.nan)
    known = validity(pairs={"old/rollout": (cut, cut)})
    assert only(run("truncated-support", known, shift=0.02)).limit == -0.02
    assert isinstance(run("truncated-support", known, shift=0.1), Healthy)


@pytest.mark.parametrize("pair", ["policy/ref", "old/rollout"])
@pytest.mark.parametrize(
    ("base", "ratio"), [(2, math.log(2) - 1), (2, 1 / math.log(2) - 1), (10, 1 / math.log(10) - 1)]
)
def test_logprobs_to_another_base_are_told_by_the_first_steps(pair: str, base: int, ratio: float) -> None:
    first = replace(PAIR, usual_ratio=ratio + 0.02, negative_share=0.99 if ratio > 0 else 0.01)
    assert f"base {base}" in only(run("scaled-logprobs", validity(first={pair: first}))).claim
    drifted = replace(first, negative_share=0.6)
    assert isinstance(run("scaled-logprobs", validity(first={pair: drifted})), Healthy)


def test_a_slope_names_the_temperature() -> None:
    line = replace(PAIR, slope=1 / 0.7 - 1, r_squared=0.99, negative_share=0.99)
    assert (
        "0.70 times the temperature" in only(run("scaled-logprobs", validity(pairs={"policy/ref": (line, line)}))).claim
    )
    assert isinstance(run("scaled-logprobs", validity()), Healthy)


SPAN = FaultSpan(since=61, since_interval=(60, 61), until=120, until_interval=(120, 120), from_start=False, to_end=True)
EARLY = replace(SPAN, since=1, since_interval=(1, 1), until=40, until_interval=(40, 41), from_start=True, to_end=False)
ALL_ALONG = replace(EARLY, until=120, until_interval=(120, 120), to_end=True)


def fault(kind: Any, *pairs: str, column: str | None = None, **parts: Any) -> ColumnFault:
    told: dict[str, Any] = {"slice": None, "span": SPAN, "during": 0.9, "otherwise": 0.1, "here": 0.2}
    return ColumnFault(found=Found(kind=kind, **told | parts), pairs=pairs, column=column, extent=SOME)


def faulty(rule: str, *faults: ColumnFault, metrics: dict[str, np.ndarray] | None = None, **parts: Any) -> Any:
    base = evidence_of(frame_of_r(np.linspace(-0.2, 0.3, 50)), metrics=metrics or {})
    return run(rule, validity(**parts), replace(base, column_faults=faults))


def test_a_shift_says_since_when_where_and_of_which_column() -> None:
    found = only(
        faulty(
            "shifted-logprobs",
            fault("shifted", "policy/ref", "old/ref", column="ref_logp", slice="post_tool", lag=-3),
        )
    )
    assert "t-3 after the first observation from step 61 on: ref_logp is shifted" in found.claim
    assert (found.onset_step, found.onset_interval, found.slice) == (61, (60, 61), "post_tool")
    assert found.evidence["contaminates"] == "ref_logp"
    all_along = only(faulty("shifted-logprobs", fault("shifted", "policy/ref", span=ALL_ALONG, lag=1)))
    assert (all_along.onset_step, all_along.held_from_step) == (None, 1)
    assert all_along.evidence["contaminates"] == "policy/ref"


def test_rows_of_other_sequences_say_since_when() -> None:
    found = only(faulty("unrelated-logprobs", fault("unrelated", "policy/ref", during=0.3, otherwise=0.95)))
    assert (found.severity, found.onset_step) == (Severity.HIGH, 61)
    assert isinstance(faulty("unrelated-logprobs", fault("shifted", "policy/ref")), Healthy)


def test_another_scale_says_until_when() -> None:
    found = only(faulty("scaled-logprobs", fault("scaled", "policy/ref", during=1.5, otherwise=1.0, span=EARLY)))
    assert (found.observed, found.held_from_step, found.onset_step) == (1.5, 1, None)
    assert "up to step 40" in found.claim
    assert isinstance(faulty("scaled-logprobs", fault("scaled", "policy/ref", during=1.2, otherwise=1.0)), Healthy)


def copy(*pairs: str, **parts: Any) -> ColumnFault:
    return fault("copied", *pairs, **{"during": 1.0, "otherwise": 0.02, "edge": 0.9} | parts)


def test_a_copy_from_a_step_on_is_named() -> None:
    found = only(faulty("copied-logprobs", copy("policy/ref")))
    assert (found.severity, found.onset_step) == (Severity.MEDIUM, 61)
    assert found.evidence["contaminates"] == "policy/ref"
    engine = only(faulty("copied-logprobs", copy("policy/rollout")))
    assert engine.severity is Severity.LOW


@pytest.mark.parametrize(
    ("early", "metrics", "named"),
    [
        (copy("policy/ref", span=EARLY), {"kl/ref": level(0.05)}, True),
        (copy("policy/ref", span=EARLY), {"kl/ref": np.zeros(60)}, False),
        (copy("policy/ref", span=EARLY), {}, True),
        (copy("policy/ref", span=EARLY, edge=0.1), {}, False),  # the policy begins to move there
        (copy("policy/old"), {}, False),  # a single update a batch, and then two
    ],
    ids=["a KL meanwhile", "no KL meanwhile", "no log", "warm-up", "one update"],
)
def test_a_policy_that_does_not_move_yet_is_no_copy(
    early: ColumnFault, metrics: dict[str, np.ndarray], named: bool
) -> None:
    verdict = faulty("copied-logprobs", early, metrics=metrics)
    assert isinstance(verdict, Broken) == named


def test_old_logprobs_of_the_reference_are_named_and_no_update() -> None:
    reference = copy("old/ref", column="old_logp", span=ALL_ALONG, otherwise=math.nan)
    found = only(faulty("copied-logprobs", reference))
    assert found.evidence["contaminates"] == "old_logp"
    assert found.held_from_step == 1
    assert fault_of((reference,), "policy/old") is reference
    assert fault_of((reference,), "policy/ref") is None
    assert fault_of((copy("policy/old"),), "policy/old") is None


def test_a_fill_value_says_since_when() -> None:
    filled = AnomalyCount(**vars(SOME) | {"tokens": 300}, column="ref_logp", kind="fill", values=(-20.0,), span=SPAN)
    found = only(run("placeholder-logprobs", validity(anomalies=(filled,))))
    assert "from step 61 on" in found.claim
    assert (found.onset_step, found.onset_interval) == (61, (60, 61))
    held = only(run("placeholder-logprobs", validity(anomalies=(replace(filled, span=ALL_ALONG),))))
    assert (held.onset_step, held.held_from_step) == (None, 1)
