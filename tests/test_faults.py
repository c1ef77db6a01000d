"""Faults put into a real run's logprobs: each is named as what it is, none makes a signature of its own."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import ptt

SAMPLES = Path(__file__).parents[1] / "sample_logs"
SEED = 20_260_128
Harm = Callable[[pl.DataFrame, np.random.Generator], pl.DataFrame]


def zero_fill(frame: pl.DataFrame, generator: np.random.Generator) -> pl.DataFrame:
    hit = pl.Series(generator.random(frame.height) < 0.01)
    zeros = pl.col("ref_logp").list.eval(pl.element() * 0.0)
    return frame.with_columns(pl.when(hit).then(zeros).otherwise(pl.col("ref_logp")))


def shift_by_one(frame: pl.DataFrame, _: np.random.Generator) -> pl.DataFrame:
    return frame.with_columns(pl.col("ref_logp").list.eval(pl.element().shift(1)))


def temperature(frame: pl.DataFrame, _: np.random.Generator) -> pl.DataFrame:
    return frame.with_columns(pl.col("policy_logp").list.eval(pl.element() / 0.7))


def unmask_tools(frame: pl.DataFrame, _: np.random.Generator) -> pl.DataFrame:
    return frame.with_columns(pl.col("model_mask").list.eval(pl.element() | True))


def drop_a_rank(frame: pl.DataFrame, _: np.random.Generator) -> pl.DataFrame:
    ranked = frame.with_columns((pl.int_range(pl.len()) % 4).cast(pl.Int32).alias("rank"))
    return ranked.filter(~((pl.col("rank") == 3) & (pl.col("step") > 200)))


def round_to_four(frame: pl.DataFrame, _: np.random.Generator) -> pl.DataFrame:
    return frame.with_columns(pl.col("policy_logp", "ref_logp").list.eval(pl.element().round(4)))


def write_twice(frame: pl.DataFrame, _: np.random.Generator) -> pl.DataFrame:
    return pl.concat([frame, frame.head(8)])


def pad_with_minus_one(frame: pl.DataFrame, _: np.random.Generator) -> pl.DataFrame:
    last = pl.element().cum_count(reverse=True) == 1
    return frame.with_columns(pl.col("ref_logp").list.eval(pl.when(last).then(-1.0).otherwise(pl.element())))


def send_minus_9999(frame: pl.DataFrame, _: np.random.Generator) -> pl.DataFrame:
    low = pl.element() < -1.0
    return frame.with_columns(pl.col("policy_logp").list.eval(pl.when(low).then(-9999.0).otherwise(pl.element())))


def copy_the_policy(frame: pl.DataFrame, _: np.random.Generator) -> pl.DataFrame:
    return frame.with_columns(pl.col("policy_logp").alias("ref_logp"))


FAULTS: dict[str, tuple[Harm, str]] = {
    "zero-filled rows": (zero_fill, "filled-rows"),
    "shifted by one": (shift_by_one, "shifted-logprobs"),
    "raw against scaled": (temperature, "scaled-logprobs"),
    "tool tokens as model tokens": (unmask_tools, "unmasked-tools"),
    "a dropped rank": (drop_a_rank, "missing-parts"),
    "four decimals": (round_to_four, "rounded-logprobs"),
    "written twice": (write_twice, "repeated-sequences"),
    "padded with -1": (pad_with_minus_one, "placeholder-logprobs"),
    "-9999 for rare tokens": (send_minus_9999, "placeholder-logprobs"),
    "copies": (copy_the_policy, "copied-logprobs"),
}


def harmed(story: str, harm: Harm, folder: Path) -> ptt.Diagnosis:
    shutil.copytree(SAMPLES / story, folder / story)
    generator = np.random.default_rng(SEED)
    for path in sorted((folder / story / "tokens").glob("*.parquet")):
        harm(pl.read_parquet(path), generator).write_parquet(path)
    return ptt.diagnose(folder / story)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_healthy_run_is_named_and_never_found_as_the_signature(fault: str, tmp_path: Path) -> None:
    harm, name = FAULTS[fault]
    found = harmed("healthy", harm, tmp_path)
    assert found.crashes == ()
    assert name in {finding.id for finding in found.findings}
    assert found.signature.status != "found"
    others = {f.id for f in found.findings if f.severity.rank <= 2 and f.consequence_of is None} - {name}
    assert others == set()


def test_no_fault_is_seen_where_there_is_none() -> None:
    for story in ("healthy", "tool_tail_growth", "kl_penalised", "collapse"):
        links = {finding.link for finding in ptt.diagnose(SAMPLES / story).findings}
        assert "data_validity" not in links, story


def test_a_few_zero_filled_rows_do_not_hide_a_real_signature(tmp_path: Path) -> None:
    found = harmed("tool_tail_growth", zero_fill, tmp_path)
    assert found.signature.status == "found"
    assert "filled-rows" in {finding.id for finding in found.findings}


def test_logprobs_that_cannot_be_trusted_block_the_signature_and_come_first(tmp_path: Path) -> None:
    found = harmed("tool_tail_growth", shift_by_one, tmp_path)
    assert found.signature.status == "cannot_say"
    assert "cannot be trusted" in found.signature.reason
    assert found.verdict.first_broken_link == "data_validity"
    assert "shifted" in found.verdict.headline


def test_half_of_the_rows_filled_is_cannot_say(tmp_path: Path) -> None:
    def fill_half(frame: pl.DataFrame, _: np.random.Generator) -> pl.DataFrame:
        zeros = pl.col("ref_logp").list.eval(pl.element() * 0.0)
        half = pl.int_range(pl.len()) % 2 == 0
        return frame.with_columns(pl.when(half).then(zeros).otherwise(pl.col("ref_logp")))

    assert harmed("tool_tail_growth", fill_half, tmp_path).signature.status == "cannot_say"
