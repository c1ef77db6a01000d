"""The trainer's own KL as a witness of what is recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
from builders import Array, Story, evidence_of, sequences_of, series_of, tokens_of
from rule_cases import GRPO, healthy, not_judged

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.reference import gather_kl_witness
from ptt.diagnostics.model import Broken, Finding, RuleVerdict, Severity
from ptt.diagnostics.rules.data_validity import BLOCKS
from ptt.diagnostics.rules.data_validity.kl_disagrees import RULE
from ptt.diagnostics.store.deduplicate_sources import SequenceFile

STEPS = 40


def run(seed: int = 1) -> pl.DataFrame:
    return sequences_of(Story(steps=STEPS, sequences=8, text=lambda _: 0.2, post=lambda _: 0.2, seed=seed))


def k3_of(frame: pl.DataFrame) -> Array:
    """Give k3 by step, over the sampled tokens."""
    tokens = frame.explode("model_mask", "policy_logp", "ref_logp").filter("model_mask")
    r = pl.col("policy_logp") - pl.col("ref_logp")
    means = tokens.group_by("step").agg(((-r).exp() - 1 + r).mean().alias("k3")).sort("step")
    return means["k3"].to_numpy()


def evidence(frame: pl.DataFrame, logged: Array, *, raw_name: str = "kl", framework: str = "trl") -> Evidence:
    tokens = tokens_of(frame)
    columns = tuple(frame.columns)
    file = SequenceFile(
        path=Path("a"),
        name="tokens/a.parquet",
        kind="recorder",
        first_row=0,
        start=0,
        rows=frame.height,
        columns=columns,
    )
    tokens = replace(tokens, scan=replace(tokens.scan, files=(file,)))
    kl = replace(series_of("kl/ref", logged), raw_name=raw_name)
    made = evidence_of(metrics={"kl/ref": kl})
    return replace(
        made,
        run=replace(made.run, framework=framework),
        algorithm=GRPO,
        kl_witness=gather_kl_witness(tokens, {"kl/ref": kl}),
    )


def off_since(frame: pl.DataFrame, step: int, change: pl.Expr | pl.Series) -> pl.DataFrame:
    return frame.with_columns(pl.when(pl.col("step") >= step).then(change).otherwise("ref_logp").alias("ref_logp"))


SHIFTED = pl.col("ref_logp").list.eval(pl.element().shift(1).fill_null(-1.5))


def found(verdict: RuleVerdict) -> Finding:
    assert isinstance(verdict, Broken), verdict
    (finding,) = verdict.findings
    return finding


def test_a_reference_column_that_is_off_since_a_step_parts_from_the_logged_kl_there() -> None:
    frame = run()
    finding = found(RULE.run(evidence(off_since(frame, 25, SHIFTED), k3_of(frame))))
    assert finding.severity is Severity.HIGH
    assert finding.onset_step == 25
    assert finding.evidence[BLOCKS] == "policy/ref"
    assert finding.evidence["first_step"] == 25
    assert finding.observed is not None
    assert finding.observed > 10


def test_what_is_off_after_observations_alone_is_said_to_lie_there() -> None:
    frame = run()
    finding = found(RULE.run(evidence(off_since(frame, 25, pl.Series(_shifted_after_tools(frame))), k3_of(frame))))
    assert finding.slice == "post_tool"
    assert finding.onset_step == 25


def _shifted_after_tools(frame: pl.DataFrame) -> list[list[float]]:
    shifted = []
    for mask, logp in zip(frame["model_mask"].to_list(), frame["ref_logp"].to_list(), strict=True):
        start = int(np.argmin(mask)) if not all(mask) else len(mask)
        shifted.append([*logp[:start], *np.roll(logp[start:], 1)])
    return shifted


def test_a_copy_up_to_a_step_holds_from_the_first_one() -> None:
    frame = run()
    copied = frame.with_columns(
        pl.when(pl.col("step") <= 14).then("policy_logp").otherwise("ref_logp").alias("ref_logp")
    )
    finding = found(RULE.run(evidence(copied, k3_of(frame))))
    assert finding.onset_step is None
    assert finding.held_from_step == 1
    assert finding.evidence["off_until"] == 14


def test_a_fault_that_the_log_shares_is_none_of_this_rules() -> None:
    shifted = off_since(run(), 25, SHIFTED)
    healthy(RULE.run(evidence(shifted, k3_of(shifted))))


def test_sound_records_agree_whatever_the_log_multiplies_by() -> None:
    for seed in range(8):
        frame = run(seed)
        noise = np.exp(0.1 * np.random.default_rng(seed).normal(size=STEPS))
        healthy(RULE.run(evidence(frame, 0.04 * noise * k3_of(frame), raw_name="actor/kl_loss", framework="verl")))


def test_records_that_are_off_all_along_show_where_the_logged_kl_is_known_to_be_k3() -> None:
    frame = run()
    shifted = off_since(frame, 1, SHIFTED)
    finding = found(RULE.run(evidence(shifted, k3_of(frame))))
    assert finding.severity is Severity.MEDIUM
    assert finding.held_from_step == 1
    assert finding.evidence[BLOCKS] == "policy/ref"
    healthy(RULE.run(evidence(shifted, k3_of(frame), raw_name="actor/kl_loss", framework="verl")))


def test_without_a_logged_kl_or_with_few_steps_nothing_is_judged() -> None:
    frame = run()
    assert not_judged(RULE.run(evidence_of(frame))).absent
    not_judged(RULE.run(evidence(frame.filter(pl.col("step") <= 6), k3_of(frame))))
