"""Faults put into a real run's logprobs: each is named as what it is, none makes a signature of its own."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from judged_runs import judged_run

import ptt

pytestmark = pytest.mark.slow

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


def keep_the_worst(frame: pl.DataFrame, _: np.random.Generator) -> pl.DataFrame:
    return frame.filter((pl.col("step") <= 200) | (pl.col("reward").rank("ordinal") <= pl.len() / 4))


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


def at_temperature(logp: list[float], temperature: float) -> list[float]:
    """Score tokens at another temperature, as if the vocabulary held the token and one other."""
    values = np.minimum(np.array(logp, dtype=np.float64), -1e-12)
    own, other = np.exp(values / temperature), (-np.expm1(values)) ** (1 / temperature)
    return np.log(own / (own + other)).tolist()  # type: ignore[no-any-return]


def mix_temperatures(frame: pl.DataFrame, generator: np.random.Generator, temperature: float = 0.7) -> pl.DataFrame:
    hot = generator.random(frame.height) < 0.3
    rows = zip(frame["policy_logp"].to_list(), hot, strict=True)
    mixed = [at_temperature(logp, temperature) if hit else logp for logp, hit in rows]
    return frame.with_columns(pl.Series("policy_logp", mixed, dtype=frame.schema["policy_logp"]))


def record_temperatures(frame: pl.DataFrame, generator: np.random.Generator) -> pl.DataFrame:
    hot = pl.Series(generator.random(frame.height) < 0.2)
    return frame.with_columns(pl.when(hot).then(1.3).otherwise(1.0).alias("temperature"))


FAULTS: dict[str, tuple[Harm, str]] = {
    "zero-filled rows": (zero_fill, "filled-rows"),
    "shifted by one": (shift_by_one, "shifted-logprobs"),
    "raw against scaled": (temperature, "scaled-logprobs"),
    "tool tokens as model tokens": (unmask_tools, "unmasked-tools"),
    "a dropped rank": (drop_a_rank, "missing-parts"),
    "the worst quarter alone": (keep_the_worst, "incomplete-batches"),
    "four decimals": (round_to_four, "rounded-logprobs"),
    "written twice": (write_twice, "repeated-sequences"),
    "padded with -1": (pad_with_minus_one, "placeholder-logprobs"),
    "-9999 for rare tokens": (send_minus_9999, "placeholder-logprobs"),
    "two temperatures": (mix_temperatures, "mixed-temperatures"),
    "two recorded temperatures": (record_temperatures, "mixed-temperatures"),
    "copies": (copy_the_policy, "copied-logprobs"),
}


EXTENT = {"tokens", "sequences", "first_step", "last_step", "files", "example", "effect"}


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
    for finding in (one for one in found.findings if one.id == name):
        assert set(finding.evidence) >= EXTENT
        assert all(finding.evidence[key] is not None for key in EXTENT - {"example"})
    others = {f.id for f in found.findings if f.severity.rank <= 2 and f.consequence_of is None} - {name}
    assert others == set()


def truncate_the_engine(frame: pl.DataFrame, _: np.random.Generator) -> pl.DataFrame:
    lower = pl.element() - 0.05  # the engine renormalised over what top_p left
    return frame.with_columns(
        pl.col("policy_logp").alias("rollout_logp"),
        pl.col("policy_logp", "ref_logp").list.eval(lower),
    )


def retokenise_turns(frame: pl.DataFrame, generator: np.random.Generator) -> pl.DataFrame:
    engine = []
    for logps, mask in frame.select("policy_logp", "model_mask").iter_rows():
        values = np.array(logps, dtype=np.float64) - np.abs(generator.normal(0, 1e-3, len(logps)))
        sampled = np.array(mask)
        values[1:][sampled[1:] & ~sampled[:-1]] -= 4.0  # the first token of a turn is another one
        engine.append(values.tolist())
    return frame.with_columns(pl.Series("rollout_logp", engine, dtype=frame.schema["policy_logp"]))


@pytest.mark.parametrize(
    ("harm", "name"), [(truncate_the_engine, "truncated-support"), (retokenise_turns, "retokenised-turns")]
)
def test_an_engine_that_scored_other_tokens_is_named(harm: Harm, name: str, tmp_path: Path) -> None:
    found = harmed("healthy", harm, tmp_path)
    assert found.crashes == ()
    assert name in {finding.id for finding in found.findings}


def test_no_fault_is_seen_where_there_is_none() -> None:
    for story in ("healthy", "tool_tail_growth", "kl_penalised", "collapse"):
        links = {finding.link for finding in judged_run(story).findings}
        assert "data_validity" not in links, story


@pytest.mark.parametrize(("pair", "temperature"), [(("policy", "ref"), 0.7), (("policy", "rollout"), 1.4)])
def test_mixed_temperatures_are_estimated_and_one_for_all_is_not_mixed(
    pair: tuple[str, str], temperature: float, tmp_path: Path
) -> None:
    """The engine's logprobs of a sound run are the policy's own, but for rounding."""

    def prepared(frame: pl.DataFrame, generator: np.random.Generator, share: float) -> pl.DataFrame:
        if pair[1] == "rollout":
            frame = frame.with_columns(pl.col("policy_logp").alias("rollout_logp")).drop("ref_logp")
        hit = generator.random(frame.height) < share
        rows = zip(frame["policy_logp"].to_list(), hit, strict=True)
        mixed = [at_temperature(logp, temperature) if one else logp for logp, one in rows]
        return frame.with_columns(pl.Series("policy_logp", mixed, dtype=frame.schema["policy_logp"]))

    some = harmed("healthy", lambda frame, generator: prepared(frame, generator, 0.3), tmp_path / "some")
    (finding,) = [one for one in some.findings if one.id == "mixed-temperatures"]
    assert finding.evidence["pair"] == "/".join(pair)
    assert finding.evidence["temperature"] == pytest.approx(temperature, rel=0.1)
    assert finding.observed == pytest.approx(0.25, abs=0.12)
    assert some.signature.status == "cannot_say"
    none = harmed("healthy", lambda frame, generator: prepared(frame, generator, 0.0), tmp_path / "none")
    every = harmed("healthy", lambda frame, generator: prepared(frame, generator, 1.0), tmp_path / "every")
    for told in (none, every):
        assert "mixed-temperatures" not in {one.id for one in told.findings}


def test_recorded_temperatures_tell_share_steps_and_values(tmp_path: Path) -> None:
    found = harmed("healthy", record_temperatures, tmp_path)
    (finding,) = [one for one in found.findings if one.id == "mixed-temperatures"]
    assert finding.evidence["temperatures"] == "1, 1.3"
    assert finding.observed == pytest.approx(0.2, abs=0.03)
    assert found.signature.status == "not_found"  # scores agree: nothing is contaminated

    def anneal(frame: pl.DataFrame, _: np.random.Generator) -> pl.DataFrame:
        return frame.with_columns((1.3 - 0.001 * pl.col("step")).alias("temperature"))

    annealed = harmed("healthy", anneal, tmp_path / "annealed")
    assert "mixed-temperatures" not in {one.id for one in annealed.findings}


def resumed(folder: Path, *, where: str) -> ptt.Diagnosis:
    """Put a lost segment's steps 97 to 210 of the healthy run beside it, its sequences being others."""
    shutil.copytree(SAMPLES / "healthy", folder / "healthy")
    tokens = folder / "healthy" / "tokens"
    (tokens / "lost").mkdir()
    for path in sorted(tokens.glob("*.parquet")):
        frame = pl.read_parquet(path)
        if 97 <= frame["step"][0] <= 210:
            lost = frame.with_columns(pl.concat_str(pl.lit("lost "), "sample_id").alias("sample_id"))
            if where == "other files":
                lost.write_parquet(tokens / "lost" / path.name)
            else:
                pl.concat([frame, lost]).write_parquet(path)
    if where == "one file":
        whole = pl.concat(pl.read_parquet(path) for path in sorted(tokens.glob("*.parquet")))
        again = pl.col("sample_id").str.starts_with("lost ")
        parts = [whole.filter(~again & (pl.col("step") <= 96)), whole.filter(again)]
        for path in tokens.glob("*.parquet"):
            path.unlink()
        pl.concat([*parts, whole.filter(~again & (pl.col("step") > 96))]).write_parquet(tokens / "all.parquet")
    return ptt.diagnose(folder / "healthy")


@pytest.mark.parametrize("where", ["other files", "one file"])
def test_the_sequences_of_a_lost_segment_are_named_with_steps_files_and_effect(where: str, tmp_path: Path) -> None:
    found = resumed(tmp_path, where=where)
    (finding,) = [one for one in found.findings if one.id == "resumed-segments"]
    assert (finding.evidence["first_step"], finding.evidence["last_step"]) == (97, 210)
    assert set(finding.evidence) >= EXTENT
    assert finding.evidence["files"] == (32 if where == "other files" else 1)
    assert "ESS" in str(finding.evidence["effect"])
    assert finding.severity == "medium"
    assert found.signature.status != "found"
    assert {f.id for f in found.findings if f.severity.rank <= 2} == {"resumed-segments"}


def test_a_rank_that_ends_and_a_single_step_written_again_are_no_resume(tmp_path: Path) -> None:
    def two_ranks(frame: pl.DataFrame, _: np.random.Generator) -> pl.DataFrame:
        ranked = frame.with_columns((pl.int_range(pl.len()) % 2).cast(pl.Int32).alias("rank"))
        return ranked.filter((pl.col("rank") == 0) | (pl.col("step") < 300))

    ended = harmed("healthy", two_ranks, tmp_path / "ranks")
    assert "resumed-segments" not in {one.id for one in ended.findings}
    shutil.copytree(SAMPLES / "healthy", tmp_path / "healthy")
    tokens = tmp_path / "healthy" / "tokens"
    shutil.copy(tokens / "step_000097.parquet", tokens / "step_000097_again.parquet")
    once = ptt.diagnose(tmp_path / "healthy")
    assert "resumed-segments" not in {one.id for one in once.findings}


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


def test_a_single_step_that_looks_scaled_is_an_update(tmp_path: Path) -> None:
    shutil.copytree(SAMPLES / "healthy", tmp_path / "run")
    first, *others = sorted((tmp_path / "run" / "tokens").glob("*.parquet"))
    for path in others[4:]:
        path.unlink()
    frame = pl.read_parquet(first)
    colder = [at_temperature(logp, 0.5) for logp in frame["policy_logp"].to_list()]
    frame.with_columns(pl.Series("policy_logp", colder, dtype=frame.schema["policy_logp"])).write_parquet(first)
    assert "mixed-temperatures" not in {one.id for one in ptt.diagnose(tmp_path / "run").findings}
