"""Labels from a side file: success and reward of episodes by their ids, in place of what the traces themselves say."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import file_digest
from pathlib import Path
from typing import Any, Final

import msgspec
import polars as pl

from ptt.diagnostics.errors import InputError
from ptt.diagnostics.model import Source
from ptt.diagnostics.traces.tables import scan_table, table_parts
from ptt.diagnostics.wording import counted

KIND: Final = "labels"
ID, SUCCESS, REWARD = "id", "success", "reward"
YES: Final = ("true", "1", "1.0", "yes", "pass", "passed", "success", "resolved")
NO: Final = ("false", "0", "0.0", "no", "fail", "failed", "failure", "unresolved")
NOTHING: Final = ("", "null", "none", "nan", "na", "n/a")
EPISODE_IDS: Final = ("sample_id", "trajectory_id", "task")  # by what an episode may be called, the surest first
MAX_BYTES: Final = 500_000_000
MAX_NAMED: Final = 3


def apply_labels(store: Path, path: Path) -> Source:
    """Write the labels of a file into the trajectories of a store, and return what became of them.

    An id is an episode's own, the one that ptt shows, or the name of its task; where it names several episodes it
    labels none. InputError where the file cannot be read, or names no episode.
    """
    labels = read_labels(path)
    episodes = scan_table(store, "trajectories").select("source", *EPISODE_IDS).collect()
    episodes = episodes.unique("trajectory_id", keep="first", maintain_order=True)
    found, unknown = _matched(labels, episodes)
    if found.is_empty():
        known = _named([_own_name(row) for row in episodes.head(MAX_NAMED).to_dicts()], episodes.height)
        raise InputError(
            f"{path}: none of its ids ({_named(unknown, len(unknown))}) names one episode; the traces have {known}."
        )
    kept = [pl.col(name).alias(f"new_{name}") for name in (SUCCESS, REWARD)]
    for part, rows in zip(_part_paths(store), table_parts(store, "trajectories"), strict=True):
        labelled = rows.collect().join(found.select("trajectory_id", *kept), on="trajectory_id", how="left")
        told = [pl.coalesce(f"new_{name}", name).alias(name) for name in (SUCCESS, REWARD)]
        labelled.with_columns(told).drop("new_success", "new_reward").write_parquet(part, compression_level=1)
    bare = episodes.join(found, on="trajectory_id", how="anti")
    return Source(
        path=path.name,
        kind=KIND,
        bytes=path.stat().st_size,
        rows_ok=found.height,
        rows_bad=len(unknown),
        bytes_lost=0,
        note=_told(labels.height, unknown, episodes.height, [_own_name(row) for row in bare.to_dicts()]),
    )


def digest_of(path: Path) -> str:
    """Return what tells a file of labels from another; InputError where it cannot be read."""
    try:
        with path.open("rb") as file:
            return f"labels {file_digest(file, 'sha256').hexdigest()[:16]}"
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error} while reading --labels.") from error


def read_labels(path: Path) -> pl.DataFrame:
    """Return `id`, `success` and `reward` of a file of CSV, JSON lines, JSON or Parquet; InputError for any other."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(
                f"{path}: larger than {MAX_BYTES // 10**6} MB; give --labels id, success and reward alone."
            )
        table = _read(path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error} while reading --labels.") from error
    except (msgspec.DecodeError, UnicodeDecodeError, pl.exceptions.PolarsError) as error:
        raise InputError(f"{path}: --labels cannot be read: {error}") from error
    table = table.rename({name: name.strip().lower() for name in table.columns if name.strip().lower() not in table})
    held = [name for name in (SUCCESS, REWARD) if name in table]
    if ID not in table or not held:
        columns = ", ".join(table.columns[:20]) or "none"
        raise InputError(f"{path}: --labels needs the columns id and success or reward; it has {columns}.")
    text = {name: pl.col(name).cast(pl.String).str.strip_chars() for name in (ID, *held)}
    table = table.select(**text).with_row_index("row", offset=1).filter(pl.col(ID).fill_null("") != "")
    absent = [pl.lit(None, pl.String).alias(name) for name in (SUCCESS, REWARD) if name not in held]
    return _of_one_kind(_parsed(table.with_columns(absent), path), path)


def _read(path: Path) -> pl.DataFrame:
    match path.suffix.lower():
        case ".csv" | ".tsv":
            separator = "\t" if path.suffix.lower() == ".tsv" else ","
            return pl.read_csv(path, infer_schema=False, separator=separator)
        case ".parquet":
            return pl.read_parquet(path, glob=False)
        case ".jsonl" | ".ndjson":
            with path.open("rb") as lines:
                return _of_objects([msgspec.json.decode(line) for line in lines if line.strip()])
        case ".json":
            found = msgspec.json.decode(path.read_bytes())
            return _of_objects(found if isinstance(found, list) else [found])
    raise InputError(f"{path}: --labels reads .csv, .tsv, .jsonl, .json and .parquet.")


def _of_objects(rows: Sequence[Any]) -> pl.DataFrame:
    objects = [
        {str(name).strip().lower(): value for name, value in row.items()} for row in rows if isinstance(row, dict)
    ]
    names = [name for name in (ID, SUCCESS, REWARD) if any(name in row for row in objects)]
    spelt = {name: [None if row.get(name) is None else str(row[name]) for row in objects] for name in names}
    others = dict.fromkeys(name for row in objects[:1] for name in row if name not in names)
    return pl.DataFrame(spelt | {name: [None] * len(objects) for name in others})


def _parsed(table: pl.DataFrame, path: Path) -> pl.DataFrame:
    """Turn the texts into values; InputError names the first that is none."""
    told = {
        name: pl.when(~pl.col(name).str.to_lowercase().is_in(NOTHING)).then(pl.col(name)) for name in (SUCCESS, REWARD)
    }
    table = table.with_columns(**told)
    low, number = pl.col(SUCCESS).str.to_lowercase(), pl.col(REWARD).cast(pl.Float64, strict=False)
    outcome = pl.when(low.is_in(YES)).then(statement=True).when(low.is_in(NO)).then(statement=False)
    read = table.with_columns(outcome.alias("s"), pl.when(number.is_finite()).then(number).alias("r"))
    for name, value, what in ((SUCCESS, "s", "neither true nor false"), (REWARD, "r", "no finite number")):
        bad = read.filter(pl.col(name).is_not_null() & pl.col(value).is_null()).head(1)
        for row in bad.iter_rows(named=True):
            raise InputError(f"{path}: row {row['row']}: {name} is {row[name]!r:.60}, {what}.")
    return read.select(ID, pl.col("s").alias(SUCCESS), pl.col("r").alias(REWARD))


def _of_one_kind(labels: pl.DataFrame, path: Path) -> pl.DataFrame:
    """Return one row an id; InputError where two rows say different things of one."""
    labels = labels.unique(maintain_order=True)
    twice = labels.filter(pl.col(ID).is_duplicated())
    if not twice.is_empty():
        raise InputError(f"{path}: two rows label {twice[ID][0]!r:.60} differently; give each id once.")
    if labels.is_empty():
        raise InputError(f"{path}: --labels holds no row with an id.")
    return labels


def _matched(labels: pl.DataFrame, episodes: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """Return the labels with the episode of each, and the ids that name none, or several."""
    left, found = labels, []
    for name in EPISODE_IDS:
        once = episodes.filter(pl.col(name).is_not_null() & ~pl.col(name).is_duplicated())
        of_name = once.select(pl.col(name).alias(ID), pl.col("trajectory_id").alias("of"))
        found.append(left.join(of_name, on=ID, maintain_order="left"))
        left = left.join(of_name, on=ID, how="anti", maintain_order="left")
    rows = pl.concat(found).unique("of", keep="first", maintain_order=True).rename({"of": "trajectory_id"})
    return rows, left[ID].to_list()


def _part_paths(store: Path) -> list[Path]:
    return sorted((store / "trajectories").glob("part-*.parquet"))


def _own_name(row: dict[str, Any]) -> str:
    return str(row["sample_id"] or row["task"] or row["trajectory_id"])


def _told(labels: int, unknown: Sequence[str], episodes: int, bare: Sequence[str]) -> str:
    """Say what is matched, seen from both sides."""
    told = [f"{labels - len(unknown)} of {counted(labels, 'label(s)')} match an episode"]
    if unknown:
        told.append(f"labels that match none, or several: {_named(unknown, len(unknown))}")
    if bare:
        told.append(f"{len(bare)} of {counted(episodes, 'episode(s)')} without a label: {_named(bare, len(bare))}")
    return "; ".join(told)


def _named(names: Sequence[str], count: int) -> str:
    shown = ", ".join(f"{name:.60}" for name in names[:MAX_NAMED])
    more = count - min(count, MAX_NAMED)
    return f"{shown} and {more} more" if more else shown
