"""Bring the attempts at one prompt together without holding all conversations: buckets of prompts on disk.

What grows with the episodes is a row of numbers and names each; the texts pass through once, part by part.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Final

import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.traces.exports.messages import ASSISTANT, Conversation, read_conversation, read_tools
from ptt.diagnostics.traces.tables import scan_table

BUCKET_BYTES: Final = 24_000_000  # of texts: what is in memory at once, several times over
PART_ROWS: Final = 4_000  # of a part of the table that are spread over the buckets at once
MAX_DRAWN: Final = 64  # attempts at a prompt among which pairs are sought: 2,016 pairs, or 1,024 of two outcomes
FACTS: Final = (
    "sample_id", "step", "split", "task", "group_id", "env", "model", "reward", "success", "truncated", "source",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One episode as exports see it."""

    number: int  # in the order of the files
    trajectory_id: str
    facts: dict[str, Any]  # the columns FACTS
    tools: str | None  # JSON of the definitions
    drawn: bool  # pairs are sought among it
    judged: bool  # success is labelled for some attempt at the prompt
    mean_reward: float | None  # of all attempts at the prompt
    masked_prompt: int  # texts before the assistant's first word, and of tools, in which a key or token is masked
    masked_completion: int
    chat: Conversation

    @property
    def success(self) -> bool | None:
        """Return what the file says of its outcome."""
        return self.facts["success"]  # type: ignore[no-any-return]

    @property
    def masked(self) -> int:
        """Return in how many texts of it a key or token is masked."""
        return self.masked_prompt + self.masked_completion

    @property
    def has_masked_prompt(self) -> bool:
        """Return whether its prompt may hold a mask; one that the assistant opens goes on behind its first word."""
        return bool(self.masked if ASSISTANT in self.chat.prompt.roles else self.masked_prompt)

    @property
    def reward(self) -> float | None:
        """Return its reward; None if it is missing or not finite."""
        reward = self.facts["reward"]
        return reward if reward is not None and math.isfinite(reward) else None


@dataclass(frozen=True, kw_only=True)
class PromptGroup:
    """Where the attempts at prompts of one text lie, in the order of the files."""

    attempts: Iterator[Attempt]


def prompt_groups(store: Path, index: pl.DataFrame, scratch: Path) -> Iterator[PromptGroup]:
    """Yield the episodes of a store prompt by prompt, prompts in the order in which they first appear.

    A group holds all episodes whose prompt is the same text and that were offered the same tools.
    """
    _spread(store, index, scratch)
    for bucket in index["bucket"].unique().sort():
        of_bucket = index.filter(pl.col("bucket") == bucket).drop("bucket")
        parts = sorted((scratch / f"{bucket:06d}").glob("*.parquet"))
        if of_bucket["first"].n_unique() == 1:  # maybe of any size; its parts are in order
            yield PromptGroup(attempts=chain.from_iterable(_attempts(_joined([part], of_bucket)) for part in parts))
        else:
            rows = _joined(parts, of_bucket)
            for _, place, count in _runs(rows["first"]):
                yield PromptGroup(attempts=_attempts(rows.slice(place, count)))
        for part in parts:
            part.unlink()


def _joined(parts: list[Path], index: pl.DataFrame) -> pl.DataFrame:
    """Return the conversations of some parts, those at one prompt together."""
    return pl.read_parquet(parts).join(index, on="number").sort("first", "number")


def reworded_tasks(index: pl.DataFrame) -> int:
    """Return how many tasks were tried more than once, each time from another prompt."""
    tasks = index.lazy().filter(pl.col("task").is_not_null()).group_by("task")
    counts = tasks.agg(pl.len().alias("episodes"), pl.col("first").n_unique().alias("prompts")).collect()
    return counts.filter((pl.col("episodes") > 1) & (pl.col("episodes") == pl.col("prompts"))).height


def episode_index(store: Path) -> pl.DataFrame:
    """Return a row an episode: where its conversation goes, and what its file says of it."""
    text = pl.col("prompt").fill_null("")
    kept = (
        scan_table(store, "conversations")
        .select(
            "trajectory_id",
            pl.concat_str(text, pl.col("tools").fill_null(""), separator="\0").hash().alias("key"),
            pl.sum_horizontal(pl.col("prompt", "completion", "tools").str.len_bytes()).alias("bytes"),
        )
        .with_row_index("number")
        .collect(engine="streaming")
    )
    facts = scan_table(store, "trajectories").select("trajectory_id", *FACTS).unique("trajectory_id", keep="first")
    index = kept.lazy().join(facts, on="trajectory_id", how="left", maintain_order="left").collect()
    index = index.with_columns(pl.col("number").min().over("key").alias("first"), *_of_prompt())
    sizes = index.group_by("first").agg(pl.col("bytes").sum()).sort("first")
    filled = (pl.col("bytes").cum_sum() - 1).clip(0) // BUCKET_BYTES
    large = pl.col("bytes") > BUCKET_BYTES  # alone in its bucket
    begins = (filled != filled.shift(1)) | large | large.shift(1)
    buckets = sizes.select("first", begins.fill_null(False).cast(pl.Int64).cum_sum().alias("bucket"))
    return index.join(buckets, on="first").drop("key", "bytes").sort("number")


def _of_prompt() -> list[pl.Expr]:
    """Say of each attempt what all at its prompt have in common, and draw those that pairs are sought among.

    They are drawn by their ids, which are digests; as many successes as failures where these are known.
    """
    prompt = ("key", "task", "group_id")
    judged = pl.col("success").is_not_null().any().over(prompt)
    rank = pl.col("trajectory_id").rank("ordinal").over(*prompt, "success")
    finite = pl.when(pl.col("reward").is_finite()).then("reward")
    return [
        judged.alias("judged"),
        (rank <= pl.when(judged).then(MAX_DRAWN // 2).otherwise(MAX_DRAWN)).alias("drawn"),
        finite.mean().over(prompt).alias("mean_reward"),
    ]


def _spread(store: Path, index: pl.DataFrame, scratch: Path) -> None:
    """Write conversations into the folder of their bucket."""
    of_row = index.select("number", "bucket")
    number, written = 0, 0
    for part in sorted((store / "conversations").glob("part-*.parquet")):
        height = pl.scan_parquet(part).select(pl.len()).collect().item()
        for start in range(0, height, PART_ROWS):
            rows = pl.scan_parquet(part).slice(start, PART_ROWS).drop("trajectory_id").collect()
            rows = rows.with_row_index("number", offset=number)
            number += rows.height
            for (bucket,), of_bucket in rows.join(of_row, on="number").partition_by("bucket", as_dict=True).items():
                folder = scratch / f"{bucket:06d}"
                folder.mkdir(exist_ok=True)
                of_bucket.drop("bucket").write_parquet(folder / f"{written:08d}.parquet", compression="lz4")
                written += 1


def _runs(values: pl.Series) -> Iterator[tuple[Any, int, int]]:
    """Yield each value of a sorted series with its place and count."""
    place = 0
    lengths = values.rle().struct.unnest()
    for count, value in lengths.iter_rows():
        yield value, place, count
        place += count


def _attempts(rows: pl.DataFrame) -> Iterator[Attempt]:
    tools = {text: read_tools(text) for text in rows["tools"].unique()}
    for row in rows.iter_rows(named=True):
        yield Attempt(
            number=row["number"],
            trajectory_id=row["trajectory_id"],
            facts={name: row[name] for name in FACTS},
            tools=tools[row["tools"]],
            drawn=row["drawn"],
            judged=row["judged"],
            mean_reward=row["mean_reward"],
            masked_prompt=row["masked_prompt"] or 0,
            masked_completion=row["masked_completion"] or 0,
            chat=read_conversation(row["prompt"], row["completion"]),
        )
