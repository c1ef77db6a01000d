"""Which pattern the differences of recorded tokens follow: each fault in a made dump, and none in plain noise."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from builders import write_recorder_run
from slow_cases import first_fast

import ptt
from ptt.diagnostics.evidence.mismatch_causes import sign
from ptt.diagnostics.evidence.mismatch_tokens import name_pattern
from ptt.diagnostics.statistics.mismatch_fingerprint import MismatchFingerprint, mismatch_fingerprint
from ptt.diagnostics.statistics.mismatch_levels import by_order
from ptt.diagnostics.statistics.scored_tokens import lay_out_scored

STEPS, ROWS, LENGTH, GAP = 24, 16, 64, range(24, 32)
SHAPE = STEPS * ROWS, LENGTH
NAMED = (
    "copied", "copied_reference", "shifted", "negative", "certain", "r_squared", "persists", "token_share",
    "step_share", "rounded", "mean", "slope", "rank_factor", "after", "start", "boundary", "spread", "fall", "gap",
    "correlation", "by_prompt", "follows_update", "in_rows", "off_gap", "later", "at_reference", "at_trainer", "apart",
    "off_share", "memory", "behind",
)  # fmt: skip
Array = np.ndarray[Any, Any]


class Dump:
    """Logits of a likely token each, so that u adds to them: trainer and engine agree but for noise."""

    def __init__(self) -> None:
        """Draw logits, token ids and the healthy noise."""
        self.generator = np.random.default_rng(11)
        self.logit = self.generator.normal(2.0, 2.0, SHAPE)
        self.ids = self.generator.integers(0, 200, SHAPE)
        self.noise = 0.02 * self.generator.normal(size=SHAPE)
        self.step = np.repeat(np.arange(1, STEPS + 1), ROWS)
        self.row = np.tile(np.arange(ROWS), STEPS)
        self.place = np.arange(LENGTH)
        self.trainer = self.logit.copy()
        self.engine = self.logit + self.noise
        self.reference: Array | None = self.logit + 0.5 * self.generator.normal(size=SHAPE)
        self.policy: Array | None = None  # None: the dump is taken before any update
        self.columns: dict[str, Array] = {}
        self.stored = dict[str, Any]()  # by column: a narrower type of its values

    def off(self, scale: float | Array) -> None:
        """Move the trainer's logits by noise of this scale, downwards on average."""
        self.trainer = self.trainer + scale * (self.generator.normal(size=SHAPE) - 0.5)

    def frame(self) -> pl.DataFrame:
        """Return the sequences as a recorder writes them."""
        mask = ~np.isin(self.place, GAP)
        policy = self.trainer if self.policy is None else self.policy
        logps = {"policy_logp": policy, "old_logp": self.trainer, "rollout_logp": self.engine}
        logps |= {"ref_logp": self.reference} if self.reference is not None else {}
        lists = {
            name: (-np.logaddexp(0.0, -logit)).astype(self.stored.get(name, np.float64)).tolist()
            for name, logit in logps.items()
        }
        return pl.DataFrame(
            {
                "seq": np.arange(SHAPE[0]).astype(np.uint32),
                "step": self.step,
                "model_mask": [mask.tolist()] * SHAPE[0],
                "token_ids": self.ids.tolist(),
                **lists,
                **self.columns,
            }
        )


def pattern_of(dump: Dump) -> tuple[MismatchFingerprint, str | None]:
    """Measure the dump and name its pattern."""
    unknown = pl.lit(None, pl.Float64)
    frame = dump.frame().with_columns(sample=pl.col("seq"))
    lag = pl.col("step") - pl.col("policy_version") if "policy_version" in frame.columns else unknown
    added = {name: unknown for name in ("rank", "prompt") if name not in frame.columns}
    added |= {} if "ref_logp" in frame.columns else {"ref_logp": pl.lit(None, pl.List(pl.Float64))}
    frame = frame.with_columns(lag=lag, **added)
    named = {"old_logp": "trainer", "rollout_logp": "engine", "ref_logp": "reference", "policy_logp": "policy"}
    found = mismatch_fingerprint(lay_out_scored(frame.rename(named)))
    assert found is not None, "the dump has uncertain tokens"
    temperature = float(dump.columns["temperature"][0]) if "temperature" in dump.columns else math.nan
    return found, name_pattern(found, temperature=temperature)


def by_token(dump: Dump) -> None:
    """An adapter: each token id has its own shift."""
    dump.trainer += 0.4 * (np.random.default_rng(3).normal(size=200)[dump.ids] - 0.5)
    dump.reference = dump.trainer.copy()


def by_token_growing(dump: Dump) -> None:
    """A third of each token's last shift is there from the start; the rest comes with the updates."""
    grown = 0.3 * (0.5 + (dump.step / STEPS)[:, None])
    dump.trainer += grown * (np.random.default_rng(3).normal(size=200)[dump.ids] - 0.5)


def from_one_token(dump: Dump) -> None:
    """Every sixth sequence loses a logit or more from token 15 on, which is at no observation."""
    hit = (dump.row % 6 == 0)[:, None] & (dump.place >= 15)
    dump.trainer -= np.where(hit, 1.5 + dump.generator.exponential(1.0, SHAPE), 0.0)


def at_boundaries(dump: Dump) -> None:
    """Every third sequence is off at the two tokens before the observation, and more right after it."""
    near = ((dump.place >= GAP[0] - 2) & (dump.place < GAP[0])) | ((dump.place > GAP[-1]) & (dump.place <= GAP[-1] + 3))
    dump.trainer -= np.where((dump.row % 3 == 0)[:, None] & near, 3.0, 0.0)


def shifted(dump: Dump) -> None:
    """The engine's column is moved by one in every other sequence."""
    moved = np.roll(dump.engine[:, : GAP[0]], 1, axis=1)
    dump.engine[::2, : GAP[0]] = moved[::2]


def shifted_by_three(dump: Dump) -> None:
    """The same by three places, backwards."""
    moved = np.roll(dump.engine[:, : GAP[0]], -3, axis=1)
    dump.engine[::2, : GAP[0]] = moved[::2]


def one_rank(dump: Dump) -> None:
    """The sequences of rank 2 are off."""
    dump.columns["rank"] = dump.row // 4
    dump.off(np.where(dump.row // 4 == 2, 0.6, 0.0)[:, None])


def packed(dump: Dump) -> None:
    """All but the first of four documents are off at their start."""
    amount = np.where(dump.row % 4 > 0, 0.5, 0.0)[:, None] * (0.2 + np.exp(-dump.place / 12.0))
    dump.off(amount)


def lagging(dump: Dump) -> None:
    """Sequences are off by how many versions old they are."""
    lag = dump.generator.integers(0, 5, SHAPE[0])
    dump.columns["policy_version"] = dump.step - lag
    dump.off(0.15 * lag[:, None])


def growing(dump: Dump) -> None:
    """The distance grows with the steps."""
    dump.off(0.04 * dump.step[:, None])


def growing_without_reference(dump: Dump) -> None:
    """The same where no reference is recorded: nothing tells what the engine holds instead."""
    growing(dump)
    dump.reference = None


def sawtooth(dump: Dump) -> None:
    """The engine is synced every eight steps; what it lacks belongs to tokens."""
    bias = np.random.default_rng(3).normal(size=200)[dump.ids] - 0.5
    dump.trainer += 0.1 * ((dump.step - 1) % 8)[:, None] * bias


def is_reference(dump: Dump) -> None:
    """The engine holds the reference."""
    assert dump.reference is not None
    dump.engine = dump.reference + dump.noise


def partly_copied(dump: Dump) -> None:
    """A third of the engine's sequences are the trainer's to the bit."""
    dump.engine[::3] = dump.trainer[::3]


def cut(dump: Dump) -> None:
    """The engine's logprobs are normalised over what top-p leaves: certain tokens, and others lifted."""
    dump.engine = np.where(dump.trainer > 3.0, 40.0, dump.trainer + 1.0)


def colder(dump: Dump) -> None:
    """The trainer leaves a temperature of 0.7 out."""
    dump.engine = dump.trainer / 0.7 + dump.noise
    dump.columns["temperature"] = np.full(SHAPE[0], 0.7)


def raw(dump: Dump) -> None:
    """The engine reports logprobs at temperature 1 for tokens that it draws at 0.7."""
    dump.trainer = dump.logit / 0.7
    dump.columns["temperature"] = np.full(SHAPE[0], 0.7)


def step_by_step(dump: Dump) -> None:
    """Some steps are far off to both sides, whatever the token."""
    far = np.isin(dump.step, (5, 6, 14, 15, 16))
    dump.engine += np.where(far, 0.8, 0.15)[:, None] * dump.generator.normal(size=SHAPE)


def noisy(dump: Dump) -> None:
    """Noise beyond what healthy arithmetic leaves."""
    dump.engine += 0.5 * dump.generator.normal(size=SHAPE)


def partly_reference(dump: Dump) -> None:
    """Every other request goes to an engine without the adapter, which is the reference."""
    assert dump.reference is not None
    dump.engine = np.where((dump.row % 2 == 0)[:, None], dump.reference, dump.logit) + dump.noise


def behind_updates(dump: Dump) -> None:
    """The engine lacks a share of what the next update moves too."""
    movement = 0.2 * dump.generator.normal(size=SHAPE)
    dump.policy = dump.trainer + movement
    dump.engine = dump.engine - 0.8 * movement + 0.1 * dump.generator.normal(size=SHAPE)


def by_prompt(dump: Dump) -> None:
    """Three of sixteen prompts have both their samples off, to both sides."""
    dump.columns["prompt"] = dump.step * ROWS + dump.row // 2
    dump.engine = dump.engine + np.where(dump.row // 2 == 3, 1.0, 0.0)[:, None] * dump.generator.normal(size=SHAPE)


def few_sequences(dump: Dump) -> None:
    """One in five sequences is off, whichever it is."""
    hit = dump.generator.random(SHAPE[0]) < 0.2
    dump.engine = dump.engine + np.where(hit, 1.0, 0.0)[:, None] * dump.generator.normal(size=SHAPE)


def in_pieces(dump: Dump) -> None:
    """One token in eight comes back as other pieces, which the trainer did not expect."""
    hit = dump.generator.random(SHAPE) < 0.12
    dump.trainer -= np.where(hit, 1.0 + dump.generator.exponential(1.0, SHAPE), 0.0)


def other_template(dump: Dump) -> None:
    """All sequences begin after another system prompt."""
    dump.off(1.5 * np.exp(-dump.place / 8.0))


def positions_kept(dump: Dump) -> None:
    """Rows of four documents, whose positions run on: the later ones are off the more, all along."""
    dump.engine = dump.engine + 0.4 * (dump.row % 4)[:, None] * dump.generator.normal(size=SHAPE)


def later_turns(dump: Dump) -> None:
    """After the first observation the trainer renders what came before it otherwise."""
    after = dump.place > GAP[-1] + 3
    dump.engine = dump.engine + np.where(after, 0.5, 0.0) * dump.generator.normal(size=SHAPE)


def other_context(dump: Dump) -> None:
    """What is off carries over from token to token, at all steps."""
    drawn = dump.generator.normal(size=SHAPE)
    dump.engine = dump.engine + 0.3 * sum(0.7**lag * np.roll(drawn, lag, axis=1) for lag in range(6))


FAULTS: dict[Callable[[Dump], None], tuple[str, str]] = {
    partly_copied: ("partly_copied", "copied-column"),
    shifted: ("neighbours", "shift"),
    shifted_by_three: ("neighbours", "shift"),
    cut: ("cut", "top-p"),
    colder: ("scaled_raw_trainer", "temperature"),
    raw: ("scaled_raw_engine", "raw-vs-processed"),
    one_rank: ("by_rank", "one-rank"),
    is_reference: ("is_reference", "base-weights"),
    at_boundaries: ("at_boundaries", "template-or-retokenisation"),
    from_one_token: ("from_one_token", "prompt-bound-fault"),
    packed: ("some_fade", "packing"),
    positions_kept: ("in_rows", "packing"),
    other_template: ("all_fade", "template-or-retokenisation"),
    in_pieces: ("set_apart", "template-or-retokenisation"),
    later_turns: ("later_turns", "template-or-retokenisation"),
    other_context: ("smooth", "adapter-missing"),
    partly_reference: ("partly_reference", "adapter-missing"),
    behind_updates: ("follows_update", "stale-weights"),
    by_prompt: ("by_prompt", "prompt-bound-fault"),
    few_sequences: ("few_sequences_off", "prompt-bound-fault"),
    lagging: ("by_lag", "stale-weights"),
    sawtooth: ("falls", "stale-weights"),
    growing: ("grows_apart", "weights-partly-synced"),
    growing_without_reference: ("grows", "weights-not-synced"),
    by_token: ("by_token", "adapter-missing"),
    by_token_growing: ("by_token_growing", "adapter-missing"),
    step_by_step: ("by_step", "stale-weights"),
    noisy: ("noise", "precision"),
}


@pytest.mark.parametrize("fault", first_fast(FAULTS, 12), ids=lambda fault: fault.__name__)
def test_each_fault_is_known_by_its_pattern(fault: Callable[[Dump], None]) -> None:
    dump = Dump()
    fault(dump)
    pattern, cause = FAULTS[fault]
    _, name = pattern_of(dump)
    assert name == pattern
    weights = sign(pattern, **dict.fromkeys(NAMED, "1")).weights
    assert max(weights, key=lambda other: weights[other]) == cause


def test_healthy_noise_follows_no_pattern() -> None:
    assert pattern_of(Dump())[1] is None


def test_a_dump_stored_in_16_bits_says_nothing_of_the_engine() -> None:
    dump = Dump()
    dump.stored["rollout_logp"] = np.float16
    assert pattern_of(dump)[1] == "rounded"
    dump.stored |= dict.fromkeys(("old_logp", "policy_logp", "ref_logp"), np.float16)
    assert pattern_of(dump)[1] is None


def test_one_difference_for_all_tokens_has_no_memory() -> None:
    dump = Dump()
    dump.engine = dump.trainer + 0.5
    assert pattern_of(dump)[0].memory == 0


def order_of(levels: Array, step: Array, prompt: Array) -> dict[str, float]:
    """Return what the order in the file tells of sequences with these levels."""
    count = len(levels)
    frame = pl.DataFrame({"step": step, "sample": np.arange(count), "prompt": prompt, "model_mask": [[True]] * count})
    scores = pl.lit([-1.0]).alias("trainer"), pl.lit([-1.0]).alias("engine")
    nothing = (pl.lit(None, pl.Float64).alias(name) for name in ("rank", "lag"))
    lists = (pl.lit(None, pl.List(pl.Float64)).alias(name) for name in ("reference", "policy", "token_ids"))
    return by_order(levels, lay_out_scored(frame.with_columns(*scores, *nothing, *lists)))


def test_the_climbs_of_exchangeable_sequences_are_standard_normal_in_short_steps_too() -> None:
    generator, unknown = np.random.default_rng(3), np.full(120, math.nan)
    climbs = [order_of(generator.normal(size=120), np.repeat(np.arange(60), 2), unknown)["climbs"] for _ in range(200)]
    assert 0.85 < np.std(climbs) < 1.15
    assert abs(np.mean(climbs)) < 0.25


def test_sequences_of_no_known_prompt_do_not_tell_of_prompts() -> None:
    prompt, step = np.repeat(np.arange(40.0), 2), np.repeat(np.arange(10), 8)
    levels = np.random.default_rng(3).normal(size=80) + np.random.default_rng(4).normal(size=40).repeat(2)
    others = np.full(80, math.nan)
    both = order_of(np.tile(levels, 2), np.append(step, step + 10), np.append(prompt, others))
    assert both["by_prompt"] == pytest.approx(order_of(levels, step, prompt)["by_prompt"])


def test_without_token_ids_what_goes_with_them_is_not_seen() -> None:
    dump = Dump()
    by_token(dump)
    dump.ids[:] = -1
    found, name = pattern_of(dump)
    assert math.isnan(found.token_share)
    assert name in {None, "noise"}


def test_the_mean_and_the_slope_are_those_of_the_logits() -> None:
    dump = Dump()
    dump.engine = dump.trainer / 0.8
    found, name = pattern_of(dump)
    assert name == "scaled"
    assert math.isclose(found.mean, np.abs(rs_of(dump)).mean(), rel_tol=1e-5)
    assert math.isclose(found.slope, (1 - 1.25) / 1.125, rel_tol=1e-3)  # of u on the middle of both logits
    assert math.isclose(found.r_squared, 1.0, rel_tol=1e-3)


def test_a_small_mismatch_that_follows_a_pattern_is_a_low_finding(tmp_path: Path) -> None:
    dump = Dump()
    dump.columns["rank"] = dump.row // 4
    dump.off(np.where(dump.row // 4 == 2, 0.4, 0.0)[:, None])
    diagnosis = ptt.diagnose(write_recorder_run(tmp_path / "run", dump.frame()), out=tmp_path / "out")
    found = next(finding for finding in diagnosis.findings if finding.id == "engine-mismatch")
    assert found.severity == "low"
    assert found.evidence["cause_1"] == "one-rank"
    assert found.observed is not None
    assert math.isclose(found.observed, np.abs(rs_of(dump)).mean(), rel_tol=1e-3)


@pytest.mark.slow
def test_a_pattern_as_faint_as_rounding_is_a_note(tmp_path: Path) -> None:
    dump = Dump()
    dump.columns["rank"] = dump.row // 4
    dump.off(np.where(dump.row // 4 == 2, 0.1, 0.0)[:, None])
    diagnosis = ptt.diagnose(write_recorder_run(tmp_path / "run", dump.frame()), out=tmp_path / "out")
    assert 0.003 < np.abs(rs_of(dump)).mean() < 0.01
    found = next(finding for finding in diagnosis.findings if finding.id == "engine-mismatch")
    assert found.severity == "info"
    assert found.evidence["cause_1"] == "one-rank"


@pytest.mark.parametrize(("cap", "severity"), first_fast([(1.2, "high"), (1e9, "medium")]))
def test_harm_is_the_weight_that_the_cap_cuts(cap: float, severity: str, tmp_path: Path) -> None:
    dump = Dump()
    dump.engine = dump.engine + 1.2 * dump.generator.normal(size=SHAPE)
    run = write_recorder_run(tmp_path / "run", dump.frame())
    run.joinpath("config.json").write_text(json.dumps({"rollout_is_threshold": cap}))
    found = next(one for one in ptt.diagnose(run, out=tmp_path / "out").findings if one.id == "engine-mismatch")
    r, open_ = rs_of(dump), 1 / (1 + np.exp(dump.trainer[:, ~np.isin(dump.place, GAP)]))
    weight = np.minimum(np.exp(r), cap) * open_
    assert found.severity == severity
    assert found.evidence["weight_beyond_cap"] == pytest.approx(weight[np.exp(r) > cap].sum() / weight.sum(), rel=1e-3)


def test_tokens_after_tools_are_accused_once(tmp_path: Path) -> None:
    dump = Dump()
    at_boundaries(dump)
    found = ptt.diagnose(write_recorder_run(tmp_path / "run", dump.frame()), out=tmp_path / "out").findings
    names = [one.id for one in found if one.id in {"engine-mismatch", "mismatch-after-tools", "retokenised-turns"}]
    assert names == ["engine-mismatch"]


@pytest.mark.parametrize(("most", "speaks"), first_fast([(24, "stale-rollouts"), (6, "engine-mismatch")]))
def test_what_goes_with_the_lag_is_told_once(most: int, speaks: str, tmp_path: Path) -> None:
    dump = Dump()
    lag = dump.generator.integers(0, most, SHAPE[0])
    dump.columns["policy_version"] = dump.step - lag
    dump.off(0.6 * lag[:, None] / most)
    found = ptt.diagnose(write_recorder_run(tmp_path / "run", dump.frame()), out=tmp_path / "out").findings
    told = [one for one in found if one.id in {"engine-mismatch", "stale-rollouts"}]
    assert [one.id for one in told] == [speaks]
    assert told[0].evidence["cause_1"] == "stale-weights"


def rs_of(dump: Dump) -> Array:
    """Return r of the model tokens, from the logits."""
    r = np.logaddexp(0.0, -dump.engine) - np.logaddexp(0.0, -dump.trainer)
    return r[:, ~np.isin(dump.place, GAP)]
