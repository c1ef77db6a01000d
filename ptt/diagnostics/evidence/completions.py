"""Logged samples beside recorded sequences: which tokens are whose, and rewards and tool calls from recorder files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import polars as pl

from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.evidence.environment import Environment
from ptt.diagnostics.evidence.validity import file_names
from ptt.diagnostics.schema import ADVANTAGE, COMPONENT, REWARDS, TOOL_CALLS, TRAJECTORIES
from ptt.diagnostics.statistics.cells import conform

WINDOW: Final = 400  # characters of text shown for a sequence
BEFORE: Final = 120  # of these, for the tool output before
SHAPE: Final = ("length", "n_model", "n_obs")
OBSERVATION: Final[dict[str, pl.DataType]] = {
    "seq": pl.UInt32(),
    "turn": pl.UInt32(),  # from 1: the observations of a sequence in order
    "tool": pl.String(),  # null where not known
    "failed": pl.Boolean(),
}


@dataclass(frozen=True)
class Completions:
    """The samples of a store, as far as they lead back to sequences."""

    trajectories: pl.DataFrame  # one row a sample
    calls: pl.DataFrame  # one row a tool call
    turns: pl.DataFrame  # one row a message

    def tied(self, sequences: pl.DataFrame) -> pl.DataFrame:
        """Return seq and trajectory_id of the sequences that name a sample, by its own id or by the trajectory's.

        `sequences`: seq, step, length, n_model, n_obs, and sample_id and trajectory_id where they are recorded. Some
        trainers restart sample numbers at each step, so where one sample_id belongs to sequences of different shape,
        the step must agree as well. An id that several samples share matches nothing.
        """
        matches = []
        if "trajectory_id" in sequences.columns:
            known = self.trajectories.select("trajectory_id").unique()
            matches.append(sequences.select("seq", "trajectory_id").join(known, on="trajectory_id", how="semi"))
        if "sample_id" in sequences.columns:
            shapes = sequences.drop_nulls("sample_id").group_by("sample_id").agg(pl.struct(SHAPE).n_unique())
            anew = bool((shapes[SHAPE[0]] > 1).any())
            key = ["sample_id", "step"] if anew else ["sample_id"]
            once = self.trajectories.drop_nulls("sample_id").filter(pl.len().over(key) == 1)
            matches.append(sequences.select("seq", *key).join(once.select(*key, "trajectory_id"), on=key))
        if not matches:
            return sequences.select("seq", pl.lit(None, pl.String).alias("trajectory_id")).clear()
        ids = pl.concat(frame.select("seq", "trajectory_id") for frame in matches)
        return ids.unique("seq", keep="first", maintain_order=True).sort("seq")

    def observations(self, sequences: pl.DataFrame, tied: pl.DataFrame) -> pl.DataFrame:
        """Return tool and failure of each observation (OBSERVATION) in the tied sequences.

        Calls of one message make one observation, since their results are adjacent. A last result that nothing follows
        is not an observation. Sequences whose mask shows another number of observations than the sample are left out.
        """
        calls = self.calls.join(tied.select("trajectory_id").unique(), on="trajectory_id", how="semi")
        results = (
            calls.filter(pl.col("ok").is_not_null())
            .sort("trajectory_id", "turn_idx", "call_idx")
            .group_by("trajectory_id", "turn_idx", maintain_order=True)
            .agg(
                pl.col("name").unique(maintain_order=True).str.join(" + ").alias("tool"),
                (~pl.col("ok")).any().alias("failed"),
            )
            .with_columns(
                (pl.int_range(pl.len()) + 1).over("trajectory_id").cast(pl.UInt32).alias("turn"),
                pl.len().over("trajectory_id").alias("results"),
            )
        )
        if results.is_empty():
            return pl.DataFrame(schema=OBSERVATION)
        last = self.turns.join(results, on="trajectory_id", how="semi").sort("turn_idx")
        last = last.group_by("trajectory_id").agg((pl.col("role").last() == "tool").cast(pl.UInt32).alias("open"))
        return (
            results.join(last, on="trajectory_id", how="left")
            .join(tied.join(sequences.select("seq", "n_obs"), on="seq"), on="trajectory_id")
            .filter(pl.col("results") - pl.col("open").fill_null(0) == pl.col("n_obs"))
            .filter(pl.col("turn") <= pl.col("n_obs"))
            .select(pl.col(name).cast(kind) for name, kind in OBSERVATION.items())
            .sort("seq", "turn")
        )

    def windows(self, wanted: pl.DataFrame) -> dict[int, str]:
        """Give, by seq, the text around an observation: the end of what the tool said and the beginning of the answer.

        `wanted`: seq, trajectory_id, n_obs and turn, the number of the observation. It is the beginning of the sample
        for turn 0, and where its messages show another number of observations than the mask. At most WINDOW letters
        each; nothing where texts were not kept.
        """
        turns = self.turns.join(wanted.select("trajectory_id").unique(), on="trajectory_id", how="semi")
        messages = {
            str(name[0]): part.to_dicts()
            for name, part in turns.filter(pl.col("text").is_not_null()).sort("turn_idx").group_by("trajectory_id")
        }
        texts = {}
        for row in wanted.to_dicts():
            answers = _answers(messages.get(row["trajectory_id"], []))
            if answers:
                texts[row["seq"]] = answers[row["turn"] if len(answers) == row["n_obs"] + 1 else 0]
        return texts

    def texts_left_out(self, tied: pl.DataFrame) -> bool:
        """Return whether the tied samples have texts that were not kept."""
        turns = self.turns.join(tied, on="trajectory_id", how="semi")
        return bool((turns["text"].is_null() & (turns["text_len"] > 0)).any())


def _answers(messages: list[dict[str, Any]]) -> list[str]:
    """Return the first message, and the first after each run of tool messages with the end of what the tool said."""
    answers: list[str] = []
    before = None
    for message in messages:
        if message["role"] == "tool":
            before = message["text"]
        elif before is not None or not answers:
            head = "" if before is None else f"[tool] {before[-BEFORE:]} "
            answers.append(f"{head}[{message['role'] or 'unknown'}] {message['text']}"[:WINDOW])
            before = None
    return answers


def recorded_observations(sequences: pl.DataFrame) -> pl.DataFrame:
    """Return tool and failure of each observation (OBSERVATION) from the sequences' own lists.

    `sequences`: seq, n_obs, and tool_names and tool_failed where they are recorded. A list whose length differs from
    the number of observations in the mask is ignored.
    """
    observations = pl.DataFrame(schema=OBSERVATION).select("seq", "turn")
    for column, name in (("tool_names", "tool"), ("tool_failed", "failed")):
        if column in sequences.columns:
            fit = sequences.filter((pl.col(column).list.len() == pl.col("n_obs")) & (pl.col("n_obs") > 0))
            turn = pl.int_ranges(1, pl.col("n_obs").cast(pl.Int64) + 1, dtype=pl.UInt32)
            each = fit.select("seq", turn.alias("turn"), pl.col(column).alias(name)).explode("turn", name)
            observations = observations.join(each, on=["seq", "turn"], how="full", coalesce=True)
    return conform(observations, OBSERVATION)


PARALLEL: Final = "+"  # between the names of parallel calls, with or without spaces
OF_CALLS: Final = frozenset({"calls", "failures", "tools", "recovered"})
"""Fields of an environment that names and outcomes give. Samples without any call are not counted, because they may
have had one: a result at the very end is not an observation."""
CONTENT: Final = ("length", "n_model", "n_obs", "tool_names", "reward")


def recorded_calls(tokens: Tokens | None) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return samples and their tool calls (TRAJECTORIES, TOOL_CALLS); empty where no tool is named.

    A sample that several steps train on counts once, at the first. Where numbers restart at each step (one name,
    different contents), each step's samples are distinct. If one of several parallel calls failed, it is unknown which:
    each counts as a call of its tool without an outcome, and the failure as one call without a name.
    """
    nothing = pl.DataFrame(schema=TRAJECTORIES), pl.DataFrame(schema=TOOL_CALLS)
    if tokens is None or "tool_names" not in tokens.scan.columns:
        return nothing
    shapes = tokens.sound_rows.select("seq", "step", "length", "n_model", "n_obs")
    named = shapes.join(tokens.scalars, on="seq").filter(pl.col("tool_names").is_not_null()).sort("step", "seq")
    if named.is_empty():
        return nothing
    samples = distinct_samples(named)
    trajectories = samples.unique("trajectory_id", keep="first", maintain_order=True)
    trajectories = trajectories.with_columns(pl.lit("unknown").alias("split"))
    return conform(trajectories, TRAJECTORIES), _calls(samples)


def with_recorded(logged: Environment | None, recorded: Environment | None) -> Environment | None:
    """Return what logged samples tell, and of calls what recorder files do where samples have no call's outcome."""
    if recorded is None or not recorded.calls:
        return logged
    of_calls = {name: getattr(recorded, name) for name in sorted(OF_CALLS)} | {"from_recorder": True}
    if logged is None:
        unlisted = Environment(
            split=recorded.split, trajectories=recorded.trajectories, steps=recorded.steps, calls=recorded.calls
        )
        return replace(unlisted, **of_calls)
    return logged if logged.failures is not None else replace(logged, **of_calls)


def distinct_samples(named: pl.DataFrame) -> pl.DataFrame:
    """Keep each sample's first row, under a name of its own in `trajectory_id`."""
    content = [name for name in CONTENT if name in named.columns]
    ids = [name for name in ("trajectory_id", "sample_id") if name in named.columns]
    known = pl.any_horizontal(pl.col(name).is_not_null() for name in ids) if ids else pl.lit(value=False)
    place = ["step", "rank"] if "rank" in named.columns else ["step"]
    identified = named.filter(known)
    shapes = identified.group_by(ids).agg(pl.struct(content).n_unique() > 1) if ids else identified
    anew = bool(ids and shapes.height and shapes[content[0]].any())
    key = [*ids, *(place if anew else ()), *content]
    first = pl.concat(
        [identified.unique(key, keep="first", maintain_order=True), named.filter(~known)], how="vertical"
    ).sort("step", "seq")
    trajectory = pl.col("trajectory_id") if "trajectory_id" in ids and not anew else pl.lit(None, pl.String)
    return first.with_columns(pl.coalesce(trajectory, pl.format("{}", "seq")).alias("trajectory_id"))


def _calls(samples: pl.DataFrame) -> pl.DataFrame:
    """Return one row a call, in their order."""
    failed = pl.col("tool_failed") if "tool_failed" in samples.columns else pl.lit(None, pl.List(pl.Boolean))
    fits = failed.list.len() == pl.col("tool_names").list.len()
    unknown = pl.col("tool_names").list.eval(pl.lit(None, pl.Boolean))
    seen = samples.select(
        "trajectory_id",
        "step",
        pl.col("tool_names").alias("name"),
        pl.when(fits).then(failed).otherwise(unknown).alias("failed"),
    )
    seen = seen.filter(pl.col("name").list.len() > 0).explode("name", "failed")
    seen = seen.with_columns(pl.int_range(pl.len(), dtype=pl.Int32).over("trajectory_id").alias("turn_idx"))
    apart = seen.with_columns(pl.col("name").str.split(PARALLEL)).explode("name")
    apart = apart.with_columns(pl.col("name").str.strip_chars(), pl.len().over("trajectory_id", "turn_idx") > 1)
    unclear = pl.col("len") & pl.col("failed").fill_null(value=False)
    parts = [
        apart.with_columns(pl.when(unclear).then(None).otherwise("failed").alias("failed")),
        apart.filter(unclear)
        .unique(["trajectory_id", "turn_idx"], keep="first", maintain_order=True)
        .with_columns(pl.lit(None, pl.String).alias("name")),
    ]
    rows = pl.concat(parts).sort("step", "trajectory_id", "turn_idx", maintain_order=True)
    number = pl.int_range(pl.len(), dtype=pl.Int32).over("trajectory_id")
    rows = rows.with_columns(
        number.alias("call_idx"),
        (~pl.col("failed")).alias("ok"),
        pl.when(pl.col("failed").is_null()).then(pl.lit("unknown")).otherwise(pl.lit("flag")).alias("ok_source"),
    )
    return conform(rows, TOOL_CALLS)


def recorded_rewards(tokens: Tokens | None) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return samples with their reward (TRAJECTORIES) and its components (REWARDS); empty if neither is recorded.

    A sample that several steps train on counts once, at the first.
    """
    nothing = pl.DataFrame(schema=TRAJECTORIES), pl.DataFrame(schema=REWARDS)
    if tokens is None:
        return nothing
    components = sorted(name for name in tokens.scalars.columns if name.startswith(COMPONENT))
    earned = [name for name in ("reward", ADVANTAGE) if name in tokens.scalars.columns] + components
    if not earned:
        return nothing
    rows = tokens.sound_rows.select("seq", "step", "length", "n_model", "n_obs").join(tokens.scalars, on="seq")
    rows = rows.filter(pl.any_horizontal(pl.col(name).is_finite() for name in earned)).sort("step", "seq")
    if rows.is_empty():
        return nothing
    samples = distinct_samples(rows).unique("trajectory_id", keep="first", maintain_order=True)
    samples = samples.with_columns(
        pl.lit("train").alias("split"),
        file_names(tokens, samples["seq"]).alias("source"),
        pl.col(ADVANTAGE).alias("advantage") if ADVANTAGE in samples.columns else pl.lit(None).alias("advantage"),
    )
    parts = samples.select("trajectory_id", *components).unpivot(
        components, index="trajectory_id", variable_name="name", value_name="score"
    )
    parts = parts.filter(pl.col("score").is_finite()).with_columns(pl.col("name").str.strip_prefix(COMPONENT))
    return conform(samples, TRAJECTORIES), conform(parts, REWARDS)


def with_recorded_rewards(
    trajectories: pl.DataFrame, rewards: pl.DataFrame, recorded: tuple[pl.DataFrame, pl.DataFrame]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the samples and components that single rewards are taken from: of recorder files where no others are."""
    trained = trajectories.filter(pl.col("split") != "eval")
    told = pl.col("reward").is_finite() | pl.col("advantage").is_finite() | pl.col("success").is_not_null()
    own = rewards.height or trained.filter(told).height
    return (trajectories, rewards) if own or recorded[0].is_empty() else recorded
