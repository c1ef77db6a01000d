"""Samples with a reward and an advantage: of token dumps, one or a list a sequence, or of logged completions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.schema import ADVANTAGE, COMPONENT
from ptt.diagnostics.statistics.token_advantages import LEVELS, sequence_levels
from ptt.diagnostics.store.scan import READ_ERRORS, scan_range

TOKENS_AT_A_TIME: Final = 1 << 20
MAX_LIST_TOKENS: Final = 1 << 26  # read once more for their advantages: a second; of a longer run, steps spread over it


@dataclass(frozen=True, kw_only=True)
class AdvantageRows:
    """One row a sample, in the order of steps and of the dump."""

    frame: pl.DataFrame  # step, group_id, rank, trajectory_id, reward, advantage, length, sample, place
    by_token: float  # share of the sequences whose advantage differs between their tokens
    source: str  # "sequences" or "completions"
    components: tuple[str, ...] = ()  # columns of the frame that hold components of the reward

    @property
    def grouped(self) -> bool:
        """Whether prompt groups are recorded."""
        return bool(self.frame["group_id"].is_not_null().any())


def advantage_rows(tokens: Tokens | None, trajectories: pl.DataFrame) -> AdvantageRows | None:
    """Return samples with finite reward and advantage; None where there is none."""
    if tokens is not None and (found := _of_tokens(tokens)) is not None:
        return found
    return _of_completions(trajectories)


def _of_tokens(tokens: Tokens) -> AdvantageRows | None:
    scalars = tokens.scalars
    single = ADVANTAGE in scalars.columns and bool(scalars[ADVANTAGE].is_finite().any())
    lists = tokens.scan.frame.collect_schema().get("advantage")
    if "reward" not in scalars.columns or not (single or isinstance(lists, pl.List)):
        return None
    parts = sorted(name for name in scalars.columns if name.startswith(COMPONENT))
    ids = [name for name in ("group_id", "rank", "sample_id", "trajectory_id")
           if name in scalars.columns]  # fmt: skip
    columns = ["seq", *ids, "reward", *([ADVANTAGE] if single else []), *parts]
    rows = tokens.sound_rows.select("seq", "step", "n_model").drop_nulls("step").join(scalars.select(columns), on="seq")
    by_token = 0.0
    if single:
        rows = rows.rename({ADVANTAGE: "advantage"})
    else:
        steps = _steps_to_read(tokens)
        rows = rows.filter(pl.col("step").is_in(steps))
        levels = _sequence_levels(tokens, rows["seq"])
        by_token = float(levels["varies"].mean()) if levels.height else 0.0  # type: ignore[arg-type]
        rows = rows.join(levels, on="seq")
    rows = rows.with_columns(sample=_sample(ids), place=pl.col("seq").cast(pl.Int64), length=pl.col("n_model"))
    return _finished(rows, by_token=by_token, source="sequences", components=tuple(parts))


def _of_completions(trajectories: pl.DataFrame) -> AdvantageRows | None:
    rows = trajectories.filter(pl.col("step").is_not_null() & (pl.col("split") != "eval"))
    prompt = _of_prompt(rows)
    rows = rows.with_columns(
        group_id=pl.coalesce("group_id", prompt) if rows["group_id"].is_not_null().any() else prompt,
        sample=pl.coalesce("sample_id", "trajectory_id"),
        place=pl.int_range(pl.len()),
        length=pl.col("tokens_out"),
    )
    return _finished(rows, by_token=0.0, source="completions", components=())


def _of_prompt(rows: pl.DataFrame) -> pl.Expr:
    """Return the group of samples by their prompt; one that a step asks again is as many groups, in their order."""
    key, prompt = ["step", "prompt_hash"], pl.col("prompt_hash").cast(pl.String)
    sizes = rows.drop_nulls("prompt_hash").group_by(key).len()["len"]
    usual = int(sizes.mode().min()) if len(sizes) else 0  # type: ignore[arg-type]
    if usual < 2:
        return prompt
    again = (pl.len().over(key) > usual) & (pl.len().over(key) % usual == 0)
    place = pl.int_range(pl.len()).over(key) // usual
    return pl.when(again).then(pl.format("{}#{}", prompt, place)).otherwise(prompt)


def _sample(ids: Sequence[str]) -> pl.Expr:
    named = [name for name in ("sample_id", "trajectory_id") if name in ids]
    return pl.coalesce(*named, pl.format("{}", "seq")) if named else pl.format("{}", "seq")


def _finished(rows: pl.DataFrame, *, by_token: float, source: str, components: tuple[str, ...]) -> AdvantageRows | None:
    absent = {
        name: kind
        for name, kind in (("group_id", pl.String), ("rank", pl.Int32), ("trajectory_id", pl.String))
        if name not in rows.columns
    }
    rows = rows.with_columns(pl.lit(None, kind).alias(name) for name, kind in absent.items())
    known = rows.filter(pl.col("reward").is_finite() & pl.col("advantage").is_finite())
    if known.is_empty():
        return None
    wanted = ("step", "group_id", "rank", "trajectory_id", "reward", "advantage", "length", "sample", "place")
    known = known.select(*wanted, *components).sort("step", "place")
    # a trajectory of several rows, or one that fills up a batch, counts once in its group
    once = known.unique(["step", "group_id", "sample", "reward", "advantage"], keep="first", maintain_order=True)
    return AdvantageRows(frame=once, by_token=by_token, source=source, components=components)


def _steps_to_read(tokens: Tokens) -> list[int]:
    """Return the steps whose lists are read: all, or of a very long run as many as MAX_LIST_TOKENS allow."""
    lines = tokens.sound_rows.select("step", "length").drop_nulls("step")
    sizes = lines.group_by("step").agg(pl.col("length").cast(pl.Int64).sum()).sort("step")
    total = int(sizes["length"].sum())
    every = max(1, -(-total // MAX_LIST_TOKENS))
    steps: list[int] = sizes["step"].to_list()[::every]
    return steps


def _sequence_levels(tokens: Tokens, wanted: pl.Series) -> pl.DataFrame:
    """Return the advantage of each sequence (LEVELS)."""
    parts = [sequence_levels(part) for part in _pieces(tokens, wanted)]
    return pl.concat(parts) if parts else pl.DataFrame(schema=LEVELS)


def _pieces(tokens: Tokens, wanted: pl.Series) -> Iterator[pl.DataFrame]:
    """Yield seq, advantage and model_mask of the wanted sequences, about TOKENS_AT_A_TIME at a time."""
    scan, columns = tokens.scan, ("seq", "advantage", "model_mask")
    each = max(1, int(TOKENS_AT_A_TIME / max(scan.tokens_per_row, 1.0)))
    whole = not scan.divisible or not scan.files
    ranges = [(0, scan.rows)] if whole else [(at, min(at + each, scan.rows)) for at in range(0, scan.rows, each)]
    for first, end in ranges:
        inside = wanted if whole else wanted.filter((wanted >= first) & (wanted < end))
        if not len(inside):
            continue
        frame = (
            scan.frame
            if whole
            else scan_range(
                [file for file in scan.files if file.start < end and file.start + file.rows > first], first, end
            )
        )
        if not set(columns) <= set(frame.collect_schema().names()):
            continue
        kept = frame.select(columns).join(inside.to_frame("seq").lazy(), on="seq", how="semi")
        try:
            yield kept.filter(pl.col("advantage").list.len() == pl.col("model_mask").list.len()).collect()
        except READ_ERRORS:  # a damaged column of advantages costs its own rows alone
            continue
