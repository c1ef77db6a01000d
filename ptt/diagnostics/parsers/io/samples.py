"""What readers of sampled trajectories share: rows of the five tables built in one place, each value of its type."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from ptt.diagnostics.parsers.io.conversations import as_hash, as_json, as_name, calls_of, messages_of, turns_of
from ptt.diagnostics.parsers.io.interface import Context, Lost, Piece, Rows, RunFile, count_notes
from ptt.diagnostics.parsers.io.lines import line_objects
from ptt.diagnostics.parsers.io.metric_rows import as_step, as_value
from ptt.diagnostics.schema import TABLES

LARGEST: Final = 2**31


def number(found: Any) -> float | None:
    """Return a number, a truth value or a spelt-out NaN as float; None for all else."""
    try:
        return as_value(found)
    except TypeError:  # a text, a list: no score
        return None


def count(found: Any) -> int | None:
    """Return a count that fits the tables; counts may come as text, as OTLP spells integers."""
    value = as_step(found)
    return value if value is not None and 0 <= value < LARGEST else None


def flag(found: Any) -> bool | None:
    """Return a truth value; None for all else."""
    return found if isinstance(found, bool) else None


def label(found: Any) -> str | None:
    """Return a name or a number as text; None for all else."""
    return str(found) if isinstance(found, int) and not isinstance(found, bool) else as_name(found)


def inner(found: Any, *path: str) -> Any:
    """Follow keys into nested objects; None where one is missing or is none."""
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found


FLUSH_ROWS: Final = 20_000  # messages and calls kept as Python objects before they become frames
WORD: Final = re.compile(r"[a-z]+")
EVALUATION: Final = frozenset({"val", "valid", "validation", "eval", "evals", "evaluation", "test"})
TRAINING: Final = frozenset({"train", "training", "rollout", "rollouts"})

Facts = Mapping[str, str | int | float | bool | None]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One trajectory as its file tells it; None is what the file does not say.

    `completion`: the messages of the trajectory, or its text where roles are lost; then turns and calls are not known.
    `identity`: what tells this sample from all others of the run, the same wherever its file lies.
    `columns`: further columns of the table of trajectories.
    """

    step: int | None
    split: str
    completion: list[dict[str, Any]] | str
    identity: Sequence[Any]
    prompt: Any = None
    reward: float | None = None
    components: Mapping[str, float | None] = field(default_factory=dict)
    calls: list[dict[str, Any]] | None = None  # paired already; else they are paired here
    timing: Sequence[Mapping[str, Any]] = ()  # of each message: n_tokens, t_start, t_end
    columns: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Samples:
    """Rows of one file, table by table, and the means of what it evaluates."""

    file: RunFile
    parser: str
    rows: dict[str, list[dict[str, Any]]] = field(
        default_factory=lambda: {name: [] for name in ("trajectories", "rewards", "turns", "tool_calls", "evals")}
    )
    _seen: Counter[int] = field(default_factory=Counter)
    _means: dict[tuple[str, int | None, str], list[float]] = field(default_factory=dict)

    def add(self, sample: Sample) -> None:
        """Add one trajectory with its rewards, turns and tool calls."""
        messages = messages_of(sample.completion) or []
        known = not isinstance(sample.completion, str)
        calls = (calls_of(messages) if sample.calls is None else sample.calls) if known else []
        turns = turns_of(messages, keep_text=self.file.keep_text)
        for turn, timing in zip(turns, sample.timing, strict=False):
            turn.update(timing)
        columns = {
            "step": sample.step,
            "split": sample.split,
            "prompt_hash": None if sample.prompt is None else as_hash(as_json(sample.prompt)),
            "reward": sample.reward,
            "n_turns": sum(message.get("role") == "assistant" for message in messages) if known else None,
            **sample.columns,
        }
        name = self.new_id(as_hash(as_json([self.parser, *sample.identity])))
        self.put(name, columns, turns=turns, calls=calls if known else None, rewards=scores_of(sample.components))

    def new_id(self, digest: int) -> str:
        """Name a trajectory by its digest, numbered where the file repeats it."""
        repeat, self._seen[digest] = self._seen[digest], self._seen[digest] + 1
        return f"{digest:016x}-{repeat}" if repeat else f"{digest:016x}"

    def put(
        self,
        trajectory_id: str,
        columns: Mapping[str, Any],
        *,
        turns: Iterable[Mapping[str, Any]] = (),
        calls: Sequence[Mapping[str, Any]] | None = None,
        rewards: Iterable[Mapping[str, Any]] = (),
    ) -> None:
        """Add one trajectory's rows, which come without its id; without `calls` their number is not known."""
        key, calls_made = {"trajectory_id": trajectory_id}, calls or ()
        self.rows["rewards"] += [{**key, **reward} for reward in rewards]
        self.rows["turns"] += [{**key, **turn} for turn in turns]
        self.rows["tool_calls"] += [{**key, "step": columns["step"], **call} for call in calls_made]
        counts = {"n_tool_calls": len(calls_made), "n_tool_fail": sum(call["ok"] is False for call in calls_made)}
        self.rows["trajectories"].append(
            {**key, **(counts if calls is not None else {}), "source": self.file.rel, **columns}
        )

    def mean(self, suite: str, step: int | None, metric: str, value: float | None) -> None:
        """Count a score of an evaluated sample towards the mean of its suite."""
        if value is not None:
            total = self._means.setdefault((suite, step, metric), [0.0, 0.0])
            total[0] += value
            total[1] += 1

    def evaluated(self, **row: Any) -> None:
        """Add a figure that the writer worked out itself."""
        self.rows["evals"].append({**row, "source": self.file.rel})

    @property
    def full(self) -> bool:
        """Whether it is time to take the rows out."""
        return sum(map(len, self.rows.values())) >= FLUSH_ROWS

    def take(self) -> Iterator[Rows]:
        """Yield the rows that were added as frames, and start again empty."""
        for table, rows in self.rows.items():
            if rows:
                yield Rows(table=table, frame=pl.DataFrame(rows, schema=TABLES[table], orient="row"))
                rows.clear()

    def close(self, **columns: Any) -> Iterator[Rows]:
        """Yield what is left, and the means of the evaluated scores."""
        for (suite, step, metric), (total, count) in self._means.items():
            self.evaluated(suite=suite, step=step, metric=metric, value=total / count, n=int(count), **columns)
        self._means.clear()
        yield from self.take()


def read_lines(
    file: RunFile, parser: str, add: Callable[[dict[str, Any], Samples], bool], facts: Facts | None = None
) -> Iterator[Piece]:
    """Read a line file of samples: `add` takes one object, and says whether it was one."""
    yield from read_samples(Samples(file, parser), objects(file), add)
    if facts:
        yield Context(facts=dict(facts))


def attempt(add: Callable[[dict[str, Any], Samples], bool], found: Any, samples: Samples) -> bool:
    """Add a sample if it is one; nesting that was just decoded may still be too deep to spell out again."""
    try:
        return isinstance(found, dict) and add(found, samples)
    except RecursionError:
        return False


def objects(file: RunFile) -> Iterator[dict[str, Any] | Lost]:
    """Yield the JSON objects of a line file; lines that are none are counted."""
    bad = 0
    for found in line_objects(file):
        if found is not None:
            yield found
        bad += found is None
    if bad:
        yield Lost(rows=bad, note=f"{file.rel}: {bad} line(s) are no JSON objects and do not count.")


def rows_of_columns(found: dict[str, Any], length_of: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Turn an object of lists into rows, as many as the list `length_of` has; name the lists of another length."""
    leading = found.get(length_of)
    if not isinstance(leading, list):
        return [], []
    fitting = {
        name: column for name, column in found.items() if isinstance(column, list) and len(column) == len(leading)
    }
    uneven = [name for name, column in found.items() if isinstance(column, list) and name not in fitting]
    names = list(fitting)
    return [dict(zip(names, row, strict=True)) for row in zip(*fitting.values(), strict=True)], uneven


def split_of_path(rel: str) -> str:
    """Tell training from evaluation by the names of file and folders, the innermost first; `unknown` if they do not."""
    for part in reversed(rel.lower().split("/")):
        words = set(WORD.findall(part))
        if words & EVALUATION:
            return "eval"
        if words & TRAINING:
            return "train"
    return "unknown"


def read_samples(
    samples: Samples,
    rows: Iterable[dict[str, Any] | Lost],
    add: Callable[[dict[str, Any], Samples], bool],
    lacking: str = "row(s) lack what makes a sample and do not count.",
) -> Iterator[Piece]:
    """Read `rows` of one file as samples: `add` takes one, and says whether it was a sample."""
    bad = 0
    for row in rows:
        if isinstance(row, Lost):
            yield row
            continue
        bad += not attempt(add, row, samples)
        if samples.full:
            yield from samples.take()
    yield from samples.close()
    yield from count_notes(samples.file, {lacking: bad}, lost=lacking)


def scores_of(components: Mapping[str, float | None]) -> list[dict[str, Any]]:
    """Spell the parts of a reward out as rows."""
    return [{"name": name, "score": score} for name, score in components.items()]
