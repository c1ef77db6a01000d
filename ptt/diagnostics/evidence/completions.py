"""Tie logged samples to sequences of tokens: which tool gave each observation, whether it failed, what was said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from ptt.diagnostics.statistics.cells import conform

WINDOW: Final = 400  # letters of text shown of a sequence
BEFORE: Final = 120  # of them, of the tool output before
CONTENT: Final = ("length", "n_model", "n_obs")
OBSERVATION: Final[dict[str, pl.DataType]] = {
    "seq": pl.UInt32(),
    "turn": pl.UInt32(),  # from 1: the observations of a sequence in their order
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
        trainers number their samples anew each step; where one sample_id stands for sequences of unlike shape, the
        step must agree as well. An id that several samples carry ties nothing.
        """
        matches = []
        if "trajectory_id" in sequences.columns:
            known = self.trajectories.select("trajectory_id").unique()
            matches.append(sequences.select("seq", "trajectory_id").join(known, on="trajectory_id", how="semi"))
        if "sample_id" in sequences.columns:
            shapes = sequences.drop_nulls("sample_id").group_by("sample_id").agg(pl.struct(CONTENT).n_unique())
            anew = bool((shapes[CONTENT[0]] > 1).any())
            key = ["sample_id", "step"] if anew else ["sample_id"]
            once = self.trajectories.drop_nulls("sample_id").filter(pl.len().over(key) == 1)
            matches.append(sequences.select("seq", *key).join(once.select(*key, "trajectory_id"), on=key))
        if not matches:
            return sequences.select("seq", pl.lit(None, pl.String).alias("trajectory_id")).clear()
        ids = pl.concat(frame.select("seq", "trajectory_id") for frame in matches)
        return ids.unique("seq", keep="first", maintain_order=True).sort("seq")

    def observations(self, sequences: pl.DataFrame, tied: pl.DataFrame) -> pl.DataFrame:
        """Return tool and failure of each observation (OBSERVATION) of the tied sequences.

        Calls of one message are one observation: their results stand side by side. A sequence whose mask shows
        another number of observations than the sample has is left out; a last result that nothing follows is none.
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

    `sequences`: seq, n_obs, and tool_names and tool_failed where they are recorded. A list of another length than
    the mask shows observations names none of them.
    """
    observations = pl.DataFrame(schema=OBSERVATION).select("seq", "turn")
    for column, name in (("tool_names", "tool"), ("tool_failed", "failed")):
        if column in sequences.columns:
            fit = sequences.filter((pl.col(column).list.len() == pl.col("n_obs")) & (pl.col("n_obs") > 0))
            turn = pl.int_ranges(1, pl.col("n_obs").cast(pl.Int64) + 1, dtype=pl.UInt32)
            each = fit.select("seq", turn.alias("turn"), pl.col(column).alias(name)).explode("turn", name)
            observations = observations.join(each, on=["seq", "turn"], how="full", coalesce=True)
    return conform(observations, OBSERVATION)
