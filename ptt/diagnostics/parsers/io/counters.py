"""Find what counts the rows of a log: the trainer's step, another counter, or only their order."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, Literal

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.metrics.aliases import CACHED_NAMES
from ptt.diagnostics.metrics.name_words import CAMEL, words_of
from ptt.diagnostics.parsers.io.metric_rows import STEP_KEYS, UNNUMBERED
from ptt.diagnostics.parsers.io.values import as_step

Unit = Literal["step", "episode", "epoch", "row"]
Flat = dict[str, Any]

# Other names of what a trainer counts, the finest first; those of STEP_KEYS come before them.
UPDATES: Final = (
    "current_steps", "current_step", "global_steps", "steps", "train_steps", "training_steps", "optimizer_step",
    "optimizer_steps", "opt_step", "gradient_step", "gradient_steps", "grad_step", "step_num", "step_idx", "num_steps",
    "update", "updates", "num_updates", "update_step", "total_timesteps", "num_timesteps",
    "n_updates", "nb_updates",  # stable-baselines3's passes over the data, logged from the second row on
    "env_step", "env_steps", "total_env_steps", "iterations", "training_iteration", "iter_num", "iteration_num", "it",
    "iters", "global_iter", "global_iteration", "train_iter", "training_iter", "train_iteration", "current_iter",
    "current_iteration", "timestep", "timesteps", "timesteps_total", "num_env_steps_sampled_lifetime", "total_steps",
    "frame", "frames", "eval_step", "eval_steps", "val_step", "val_steps",
)  # fmt: skip
EPISODES: Final = (
    "episode", "episodes", "episode_num", "episode_number", "episode_idx", "episode_index", "episode_count", "ep",
    "i_episode", "n_episode", "n_episodes", "num_episodes", "episodes_total", "total_episodes",
)  # fmt: skip
EPOCHS: Final = (
    "epoch", "epochs", "epoch_num", "epoch_number", "epoch_idx", "current_epoch", "eval_epoch", "eval_epochs",
)  # fmt: skip
# Words that count other things as well: trusted with a training quantity beside them only.
VAGUE: Final = (
    "batch", "batch_idx", "batch_num", "minibatch", "round", "rounds", "generation", "gen", "cycle", "game", "games",
    "t", "n", "i", "", "unnamed:_0", "index",
)  # fmt: skip
_COUNTED: Final[tuple[tuple[Unit, tuple[str, ...]], ...]] = (
    ("step", (*STEP_KEYS, *UPDATES)), ("episode", EPISODES), ("epoch", EPOCHS), ("row", VAGUE),
)  # fmt: skip
COUNTERS: Final[Mapping[str, tuple[int, Unit]]] = {
    name: (rank, unit) for rank, (name, unit) in enumerate((name, unit) for unit, names in _COUNTED for name in names)
}
FRONTS: Final = frozenset(
    {"time", "train", "training", "trainer", "global", "rollout", "charts", "progress", "counters", "evaluation"}
)
BARE: Final = frozenset({"batch", "round", "update", "iteration", "iter", "epoch", "episode", "step"})
AROUND_COUNTS: Final = frozenset({"index", "idx", "num", "number", "global", "current", "train", "training"})
"""Words that go with such a name and leave its meaning: `batch_index`, `current_round`."""
SPACES: Final = re.compile(r"[\s-]+")

PART_STEP: Final = "/step"  # ends what a part of a trainer calls its step
DROPS: Final = 20  # one fall of a counter is allowed in this many rows: several writers, or a resumed run
STARTS: Final = 2  # falls allowed whatever the number of rows: a log to which two more starts append
MIN_STARTS_ROWS: Final = 12  # in a log with several starts
MIN_RUN_ROWS: Final = 3  # in each run of a file: fewer are the results of a sweep
MIN_LABELLED_ROWS: Final = 10  # in each run that a text names: a table of results has few rows a name
CYCLE_ROWS: Final = 3  # rows of an inner counter before it restarts
CYCLE_SPREAD: Final = 0.1  # relative, between the ends of its cycles
ROWS_PER_COUNT: Final = 1.5  # above it most rows of a count would hide each other

COPIES: Final = 0.9  # of the rows that repeat a count: from here on, another process wrote them
COPY_SPREAD: Final = 0.01  # between a value and its copy: ranks round in their own way

RUN_WORDS: Final = frozenset({"seed", "run", "fold", "trial", "agent"})  # columns that name a run by a number
KINDS: Final = ("type", "event", "split", "phase", "mode", "kind", "stage")


@dataclass(frozen=True, kw_only=True)
class Counter:
    """What counts the rows of a log: its possible names, and its unit; without a name, rows are numbered."""

    keys: tuple[str, ...]
    unit: Unit

    @property
    def prefix(self) -> str:
        """What the names of its rows begin with."""
        return "" if self.unit == "step" else UNNUMBERED

    @property
    def of_trainer(self) -> bool:
        """Whether it has one of the names that trackers and trainers give their step."""
        return any(key in STEP_KEYS for key in self.keys)


ROW_NUMBERS: Final = Counter(keys=(), unit="row")


def _plain(name: str) -> str:
    return SPACES.sub("_", CAMEL.sub("_", name.strip()).lower())


@lru_cache(maxsize=CACHED_NAMES)
def count_name(name: str) -> str:
    """Return a name as COUNTERS spells it."""
    plain = _plain(name)
    front, slash, last = plain.rpartition("/")
    plain = last if slash and plain not in COUNTERS and front in FRONTS else plain
    core = [word for word in plain.split("_") if word not in AROUND_COUNTS]
    return core[0] if plain not in COUNTERS and len(core) == 1 and core[0] in BARE else plain


def is_counter_name(name: str) -> bool:
    """Return whether counters use this name."""
    return count_name(name) in COUNTERS


def count_of(call: Flat, counter: Counter) -> int | None:
    """Return a call's value of the counter."""
    return next((as_step(call[key]) for key in counter.keys if key in call), None)


def choose_counter(calls: Sequence[Flat]) -> Counter:
    """Choose what counts the rows: the trainer's step before other counters, and those before row numbers."""
    names = dict.fromkeys(name for call in calls for name in call)
    ranked = sorted((COUNTERS[spelt], name) for name in names if (spelt := count_name(name)) in COUNTERS)
    columns = {name: [as_step(call.get(name)) for call in calls] for _, name in ranked}
    if (parted := _of_parts(calls)) is not None:
        return parted
    inner = {name for name in columns if _is_inner(name, columns)}
    named = [name for _, name in ranked if _plain(name) in STEP_KEYS and name not in inner]
    if named:
        own = () if set(named) <= set(STEP_KEYS) else named
        keys = tuple(dict.fromkeys((*own, *(key for key in STEP_KEYS if key not in inner))))
        counter = Counter(keys=keys, unit="step")
        steps = [count_of(call, counter) for call in calls if not call.keys().isdisjoint(keys)]
        if _counts(steps, len(calls), strict=False):
            return counter
    for (_, unit), name in ranked:
        held = [at for at, call in enumerate(calls) if call.get(name) is not None]
        usable = name not in inner and _plain(name) not in STEP_KEYS
        steps = [columns[name][at] for at in held]
        if usable and _counts(steps, len(calls)) and not _is_repeated(name, calls):
            return Counter(keys=(name,), unit=unit)
        if usable and unit == "step" and _counts(steps, len(calls), strict=False) and _are_copies(name, calls):
            return Counter(keys=(name,), unit=unit)
    return ROW_NUMBERS


def _of_parts(calls: Sequence[Flat]) -> Counter | None:
    """Return the counter of a log whose parts each name the step their own way: `rollout/step`, `train/step` (slime).

    Every call holds one of them, and they count the same: where a rollout serves several updates, they do not.
    """
    names = {name for call in calls for name in call if name.count("/") == 1 and name.endswith(PART_STEP)}
    if len(names) < 2 or not all(len(names & call.keys()) == 1 for call in calls):
        return None
    ends = {name: max((as_step(call.get(name)) or 0 for call in calls), default=0) for name in names}
    if min(ends.values()) < (1 - CYCLE_SPREAD) * max(ends.values()):
        return None
    return Counter(keys=tuple(sorted(names)), unit="step")


def has_several_runs(calls: Sequence[Flat]) -> bool:
    """Return whether rows come from several runs in a row: each restarts the count, and a column names it."""
    counts = [name for name in (calls[0] if calls else ()) if COUNTERS.get(count_name(name), (0, "row"))[1] != "row"]
    for name in counts:
        steps = [as_step(call.get(name)) for call in calls]
        falls = [at for at in range(1, len(steps)) if (steps[at] or 0) < (steps[at - 1] or 0)]
        if falls and None not in steps and any(_names_runs(column, calls, falls) for column in calls[0]):
            return True
    return False


def counter_of_runs(calls: Sequence[Flat]) -> Counter | None:
    """Return the counter of consecutive runs in one file, if a number identifies each; None for a sweep.

    Runs are separated once all rows are read. Only numbers are kept by then, so runs named by text could not be.
    """
    for _, name, unit in _ranked(calls):
        for column in calls[0]:
            runs = [as_step(call.get(column)) for call in calls]
            if words_of(column).isdisjoint(RUN_WORDS) or None in runs:
                continue
            steps = [as_step(call.get(name)) for call in calls]
            bounds = [0, *(at for at in range(1, len(runs)) if runs[at] != runs[at - 1]), len(runs)]
            parts = [steps[one:end] for one, end in pairwise(bounds)]
            whole = parts if len(parts) == 1 else parts[:-1]  # the last may be cut
            rising = all(None not in part and all(one < other for one, other in pairwise(part)) for part in parts)  # type: ignore[operator]
            if rising and len(parts) > 1 and min(map(len, whole)) >= MIN_RUN_ROWS and unit != "row":
                return Counter(keys=(name,), unit=unit)
    return None


def label_of_runs(calls: Sequence[Flat], step: str) -> str | None:
    """Return the column of texts that names each of consecutive runs, whose steps rise and restart with each name."""
    steps = [as_step(call.get(step)) for call in calls]
    for column in calls[0] if calls else ():
        names = [call.get(column) for call in calls]
        if not all(isinstance(name, str) and name and as_step(name) is None for name in names):
            continue
        bounds = [0, *(at for at in range(1, len(names)) if names[at] != names[at - 1]), len(names)]
        parts = [steps[one:end] for one, end in pairwise(bounds)]
        rising = all(None not in part and all(one < other for one, other in pairwise(part)) for part in parts)  # type: ignore[operator]
        fell = rising and all(other[0] < one[-1] for one, other in pairwise(parts))  # type: ignore[operator]
        whole = parts if len(parts) == 1 else parts[:-1]  # the last may be cut
        once = len(set(names)) == len(parts) > 1
        if once and fell and min(map(len, whole)) >= MIN_LABELLED_ROWS:
            return column
    return None


def _ranked(calls: Sequence[Flat]) -> list[tuple[int, str, Unit]]:
    """Return the columns with a counter's name, the finest counter first."""
    names = dict.fromkeys(name for call in calls for name in call)
    return sorted(
        (*COUNTERS[spelt][:1], name, COUNTERS[spelt][1]) for name in names if (spelt := count_name(name)) in COUNTERS
    )


def _names_runs(column: str, calls: Sequence[Flat], falls: Sequence[int]) -> bool:
    values = [call[column] for call in calls if column in call]  # the last row of a document's head may be cut
    changes = [at for at in range(1, len(values)) if values[at] != values[at - 1]]
    named = isinstance(values[0], str) or not words_of(column).isdisjoint(RUN_WORDS)
    return named and column not in KINDS and changes == list(falls) and len(set(map(str, values))) == len(falls) + 1


def _counts(steps: Sequence[int | None], rows: int, *, strict: bool = True) -> bool:
    """Return whether values are those of a counter: whole numbers in most rows, which hardly ever fall."""
    known = [step for step in steps if step is not None]
    if 2 * len(steps) < rows or 2 * len(known) < len(steps):
        return False
    if not strict:
        return True
    falls = sum(one > other for one, other in pairwise(known))
    whole = DROPS * (len(steps) - len(known)) <= len(steps) and min(known) >= 0
    most = STARTS if len(known) >= MIN_STARTS_ROWS else 1
    return whole and len(set(known)) > 1 and falls <= max(most, len(known) // DROPS)


def _is_inner(name: str, columns: Mapping[str, Sequence[int | None]]) -> bool:
    """Return whether a counter begins again with each epoch, episode or round, or in cycles of one length."""
    held = [at for at, step in enumerate(columns[name]) if step is not None]
    own = [step for step in columns[name] if step is not None]
    falls = [at for at in range(1, len(own)) if own[at] < own[at - 1]]
    if not falls:
        return False
    for other, column in columns.items():
        outer = [step for at in held if (step := column[at]) is not None]
        coarser = other != name and COUNTERS[count_name(other)][1] != "step" and len(outer) == len(own)
        if coarser and all(outer[at] > outer[at - 1] for at in falls):
            return True
    bounds = [0, *falls]
    lengths = [end - start for start, end in pairwise(bounds)]
    ends = [own[at - 1] for at in falls]
    return len(falls) > 1 and min(lengths) >= CYCLE_ROWS and max(ends) - min(ends) <= CYCLE_SPREAD * max(ends)


def _is_repeated(name: str, calls: Sequence[Flat]) -> bool:
    """Return whether most rows of a count measure the same names, so that the last would hide the others."""
    seen: dict[tuple[Any, ...], list[Any]] = {}
    for call in calls:
        if name in call:
            kind = tuple(call[key] for key in KINDS if isinstance(call.get(key), str))
            for key, value in call.items():
                if isinstance(value, int | float):
                    seen.setdefault((key, *kind), []).append(call[name])
    counted = max(seen.values(), key=len, default=[])
    return len(counted) > ROWS_PER_COUNT * len(set(map(str, counted))) and not _are_copies(name, calls)


def _are_copies(name: str, calls: Sequence[Flat]) -> bool:
    """Return whether the rows of a count say the same: two processes of a run that write one file."""
    first: dict[Any, Flat] = {}
    pairs = [
        (first[at], call) for call in calls if (at := str(call.get(name))) in first or not first.setdefault(at, call)
    ]
    alike = sum(map(_is_copy, pairs))
    return 2 * len(pairs) >= len(first) and alike >= COPIES * len(pairs)


def _is_copy(pair: tuple[Flat, Flat]) -> bool:
    one, other = ({key: at for key, at in call.items() if isinstance(at, int | float)} for call in pair)
    return one.keys() == other.keys() and all(
        abs(at - other[key]) <= COPY_SPREAD * abs(at) or at != at for key, at in one.items()
    )
