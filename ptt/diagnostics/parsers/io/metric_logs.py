"""Decide what is a metric log (rows of numbers by name, over a counter), for JSON lines, JSON documents and tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, islice, pairwise
from typing import Any, Final

from ptt.diagnostics.metrics.aliases import CACHED_NAMES, canonical, split_of
from ptt.diagnostics.metrics.name_words import words_of
from ptt.diagnostics.parsers.io.counters import (
    COUNTERS,
    KINDS,
    ROWS_PER_COUNT,
    Counter,
    Flat,
    Unit,
    choose_counter,
    count_name,
    count_of,
    counter_of_runs,
    has_several_runs,
)
from ptt.diagnostics.parsers.io.interface import Context, RunFile
from ptt.diagnostics.parsers.io.metric_rows import SAMPLE_KEYS, TIME_KEYS, MetricColumns, flatten, metric_values
from ptt.diagnostics.parsers.io.printed_dicts import read_dict
from ptt.diagnostics.parsers.io.values import NON_FINITE, as_number, as_seconds, as_step

TRAINING: Final = frozenset(
    {"loss", "losses", "reward", "rewards", "rew", "kl", "kld", "kldiv", "grad", "gradient", "gradnorm", "gnorm",
     "entropy", "ppl", "perplexity", "advantage", "advantages", "adv", "clipfrac", "logp", "logps", "logprob",
     "logprobs", "nll", "bpb", "bpc", "td", "fitness"}
)  # fmt: skip
"""Words of quantities that only training has."""
MEASURED: Final = frozenset(
    {"lr", "acc", "accuracy", "accuracies", "score", "scores", "return", "returns", "margin", "margins", "f1", "bleu",
     "rouge", "auc", "iou", "map", "mse", "rmse", "mae", "error", "err", "wer", "cer", "recall", "precision", "success",
     "win", "solved", "epsilon", "qvalue", "ce", "bce", "ret"}
)  # fmt: skip
"""Words of quantities that training logs, and other tables too."""
SETTING: Final = frozenset(
    {"coef", "coeff", "coefficient", "weight", "weights", "type", "fn", "function", "path", "target", "threshold",
     "limit", "decay", "schedule", "scheduler", "warmup", "init", "initial", "final", "best", "config", "total", "max"}
)  # fmt: skip
"""Words that make a setting or a summary of a quantity; a running total or maximum tells nothing either."""
RUNNING: Final = frozenset({"total", "max"})
IDENTITIES: Final = frozenset(
    {"id", "idx", "index", "name", "model", "file", "filename", "path", "sha", "hash", "key", "label", "category",
     "task", "dataset", "title", "url", "user", "date", "symbol", "ticker", "policy", "config", "experiment", "method",
     "seed", "arm", "trial"}
)  # fmt: skip
"""Columns that identify rows where nothing is counted: a table of things rather than a course over time."""
COUNTED: Final = frozenset({"batch", "epoch", "episode", "step", "iteration", "iter", "update", "round", "query"})
COUNT_NAME: Final = COUNTED | {"idx", "index", "global", "train", "current", "total", "mini"}
"""Words of names like `global_batch_idx`."""
SAMPLE_TEXTS: Final = frozenset(
    {"question", "answer", "instruction", "chosen", "rejected", "observation", "obs", "action", "thought", "role",
     "query", "conversations", "tool_calls", "source", "code", "prompts", "completions", "responses"}
)  # fmt: skip
"""Keys of a sample where they hold a text."""
LABELS: Final = frozenset({"source", "action", "role"})
LABEL: Final = re.compile(r"[\w./:-]{1,40}")
"""Keys of a sample that a log may have too, for one word that says where its row comes from."""
OF_UPDATE: Final = frozenset({"loss", "grad", "gradnorm", "kl"})
OF_REWARD: Final = frozenset({"reward", "rewards", "return", "returns"})
"""Words of quantities that no sample has together: what was paid for it, and what the update on it came to."""
MASKS: Final = frozenset({"loss_mask", "model_mask", "completion_mask"})
"""Keys of a sample unless they hold a number: Detectron2's `loss_mask` is the loss of a mask."""

MAX_KEYS: Final = 5000  # of a row, looked at to decide what it is
MIN_ROWS: Final = 2  # one row has no course
MIN_UNCOUNTED_ROWS: Final = 3  # and of rows that count nothing, two could be anything
PLAIN_ROWS: Final = 10  # of only numbers beside a trainer's step: a log, whatever it measures
MIN_TRAINING: Final = 2  # training metrics, where little else marks a log call
MIN_MEASURES: Final = 3  # beside a task id: the row is an episode then, not a sample
MAX_TEXT_CHARS: Final = 200  # a metric row may name its run or host; it holds no prose
MAX_LIST_LENGTH: Final = 64  # nor a sequence's tokens
MODEL: Final = frozenset({"weight", "weights", "bias", "biases", "genome", "params", "parameters", "population"})
"""Words of lists of any length that a log of evolution keeps beside its numbers: the best model so far."""

WRAPPERS: Final = ("data", "metrics", "values", "scalars", "logs")
"""Objects that hold the whole log call and are no part of its names."""
MESSAGES: Final = ("message", "msg", "event", "text", "log", "payload", "metrics", "data")
"""Fields of a structured logger that may hold a whole log call as text."""
NAME_KEYS: Final = ("metric", "name", "key", "tag", "metricName")  # of a log with one value a row
VALUE_KEYS: Final = ("value", "metricValue")
MARKS: Final = ("eval", "is_eval")  # true in a row of an evaluation
UPDATE_KEYS: Final = frozenset({"lr", "learning_rate", "grad_norm"})  # beside them such a mark is a setting
EVALUATION: Final = frozenset({"eval", "evaluate", "evaluation", "val", "valid", "validation", "test", "dev"})
NUMBER: Final = re.compile(r"[+-]?(?:\d{1,18}(?:\.\d{0,18})?|\.\d{1,18})(?:[eE][+-]?\d{1,3})?")
MEASURE: Final = re.compile(r"[+-]?\d+(?:\.\d+)?\s?(?:%|[a-zA-Z]{1,5}\b)")  # a number with its unit: 8.2GB, 69%, 1h 2m
TOTALS: Final[Mapping[str, tuple[str, ...]]] = {
    "step": ("total_steps", "max_steps", "num_training_steps", "total_training_steps", "total_iterations",
             "max_iterations", "max_iters", "total_updates"),
    "episode": ("total_episodes", "max_episodes"),
    "epoch": ("total_epochs", "max_epochs", "num_epochs"),
    "row": (),
}  # fmt: skip
FORM: Final = frozenset({"current_steps", "total_steps", "percentage"})
"""Keys of each row of LLaMA-Factory's `trainer_log.jsonl`; older versions write null for what the current stage lacks,
such as the reward in SFT or the loss in an evaluation."""
DONE_SHARE: Final = "progress/done_frac"  # Tinker's: (step + 1) / steps
ROUNDED_TOTAL: Final = 0.01  # steps: another share than that of the last step gives no whole number
SWIFT_STEP: Final = "global_step/max_steps"  # ms-swift's: "3/100"
MAX_SET_BACK: Final = 3600.0  # seconds, as local clocks are at the end of summer time
TAG: Final = "-tag-"  # TensorBoard downloads a curve as run-RUN-tag-TAG, as JSON or CSV
RUNTIME: Final = "train_runtime"  # only the last row of a Hugging Face run has it
LENGTHS: Final = frozenset({*chain.from_iterable(TOTALS.values()), SWIFT_STEP, RUNTIME, DONE_SHARE})
"""Everything that shows how long a run was to be, or how long it took."""


def counter_of(rows: Sequence[dict[str, Any]], *, trust_steps: bool) -> Counter | None:
    """Return what counts the rows of a metric log; None if the rows are not one.

    `trust_steps`: numbers beside a trainer's step count as metrics, whatever their names.
    """
    calls: list[Flat] = []
    asides = 0
    for row in rows:
        if len(row) > MAX_KEYS:
            row = dict(islice(row.items(), MAX_KEYS))
        if not sample_keys(row) <= {"task_id"} | _labels(row) and not is_of_update(row):
            return None
        call = flat_call(row)
        measured = any(_is_number(value) for value in call.values())
        asides += not measured
        calls += [call] if measured else []
    if not calls or asides > len(calls):
        return None
    counter = choose_counter(calls)
    if has_several_runs(calls):
        several = counter_of_runs(calls)
        if several is None:
            return None
        counter = several
    if counter.keys:
        calls = [call for call in calls if any(key in call for key in counter.keys)]
        if is_table_of_things(calls, counter.keys):
            return None
    trusted = counter.of_trainer and (trust_steps or (len(calls) >= PLAIN_ROWS and _all_numbers(calls)))
    if trusted and "task_id" not in calls[0] and not _has_prose(calls):
        return counter if _numeric_names(calls, counter) else None
    return counter if _is_log(calls, counter) else None


def sample_keys(row: Mapping[str, Any]) -> set[str]:
    """Return the keys that only samples of text have."""
    texts = {key for key in SAMPLE_TEXTS & row.keys() if isinstance(row[key], str | list)}
    return texts | {key for key in SAMPLE_KEYS & row.keys() if not (key in MASKS and _is_number(row[key]))}


def is_of_update(row: Mapping[str, Any]) -> bool:
    """Return whether a row with a sample's texts logs the update made on it: with a loss or gradient, and a reward."""
    words = [words_of(name) for name, value in row.items() if _is_number(value) and len(row) <= MAX_KEYS]
    return any(one & OF_UPDATE and not one & SETTING for one in words) and any(one & OF_REWARD for one in words)


def _labels(row: Mapping[str, Any]) -> set[str]:
    """Return the keys of a sample that are a mere label here, in one word beside several quantities of training."""
    texts = {key for key in LABELS & row.keys() if isinstance(row[key], str) and LABEL.fullmatch(row[key])}
    trained = sum(is_training_name(name) for name, value in row.items() if _is_number(value)) if texts else 0
    return texts if trained >= MIN_TRAINING else set()


def _is_log(calls: Sequence[Flat], counter: Counter) -> bool:
    """Judge rows that carry no tracker's step."""
    names = _numeric_names(calls, counter)
    if counter.unit == "row":  # in a table of settings, each setting has its own row
        names = [name for name in names if sum(name in call for call in calls) > 1]
    training = [name for name in names if is_training_name(name)]
    known = [name for name in names if name in training or is_measured_name(name)]
    telling = [call for call in calls if any(name in call for name in known)]
    calls = telling if 2 * len(telling) >= len(calls) else calls  # settings may come first
    if not known or len(calls) < (MIN_ROWS if counter.keys else MIN_UNCOUNTED_ROWS):
        return False
    counted = counter.unit != "row" or (_is_count_restarted(calls) and not _tell_things(calls))
    if "task_id" in calls[0] and not (counted and len(names) >= MIN_MEASURES):
        return False
    updates = all(map(is_of_update, calls))
    if updates and _has_prose(calls):
        return True
    if _has_prose(calls) and not (_is_row_acount_of(calls, counter) and len(training) >= MIN_TRAINING):
        return False
    texts = sum(_is_text(name, value) for call in calls for name, value in call.items())
    numbers = sum(_is_number(value) for call in calls for name, value in call.items() if name in names)
    if texts > numbers:
        return False
    if counted:
        return True
    if not training or _tell_things(calls):
        return False
    course = bool(counter.keys) or _is_timed(calls)
    return course or len(training) >= MIN_TRAINING or 2 * len(known) > len(names)


def _numeric_names(calls: Sequence[Flat], counter: Counter) -> list[str]:
    """Return the names of measured values: neither the counter nor other bookkeeping."""
    aside = {*counter.keys, *TIME_KEYS}
    names = dict.fromkeys(name for call in calls for name, value in call.items() if _is_number(value))
    return [name for name in names if name not in aside and not _is_bookkeeping(name)]


@lru_cache(maxsize=CACHED_NAMES)
def is_training_name(name: str) -> bool:
    """Return whether a name belongs to a metric that only training has."""
    words = words_of(name)
    return bool(words & TRAINING) and not words & SETTING


@lru_cache(maxsize=CACHED_NAMES)
def is_measured_name(name: str) -> bool:
    """Return whether a name belongs to a metric that training logs."""
    words = words_of(name)
    return canonical(name) is not None or (bool(words & (MEASURED | TRAINING)) and not words & (SETTING - RUNNING))


@lru_cache(maxsize=CACHED_NAMES)
def _is_bookkeeping(name: str) -> bool:
    return count_name(name) in COUNTERS or bool(words_of(name) & {"percentage", "elapsed", "remaining", "eta"})


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) or (isinstance(value, str) and is_number_text(value))


def is_number_text(text: str) -> bool:
    """Return whether a text spells a number."""
    return NUMBER.fullmatch(text) is not None or text.lower() in NON_FINITE


def _is_text(name: str, value: Any) -> bool:
    clock = name in TIME_KEYS or _is_bookkeeping(name)
    return isinstance(value, str) and not clock and not is_number_text(value) and not MEASURE.match(value)


def _all_numbers(calls: Sequence[Flat]) -> bool:
    return all(value is None or _is_number(value) for call in calls for value in call.values())


def _has_prose(calls: Sequence[Flat]) -> bool:
    """Return whether a row holds a text or a list that no logger of metrics writes."""
    for call in calls:
        for name, value in call.items():
            if isinstance(value, str) and len(value) > MAX_TEXT_CHARS:
                return True
            if isinstance(value, list) and len(value) > MAX_LIST_LENGTH and words_of(name).isdisjoint(MODEL):
                return True
    return False


def is_table_of_things(calls: Sequence[Flat], keys: Sequence[str]) -> bool:
    """Return whether all rows have one step and a column identifies them: W&B's table of runs, a leaderboard."""
    counted = {str(next((call[key] for key in keys if key in call), None)) for call in calls} - {"None"}
    return len(calls) >= MIN_UNCOUNTED_ROWS and len(counted) <= 1 and _tell_things(calls)


def _tell_things(calls: Sequence[Flat]) -> bool:
    """Return whether a column identifies the rows, which makes them things rather than a course over time."""
    for name in calls[0]:
        values = [call.get(name) for call in calls]
        measured = any(isinstance(value, float) and not value.is_integer() for value in values)
        if name not in ("", "task_id") and not measured and _is_identity(name) and len(set(map(str, values))) > 1:
            return True
        texts = [value for value in values if _is_text(name, value)]
        if len(texts) > 1 and as_seconds(texts[0]) is None and 2 * len(set(map(str, texts))) > len(calls):
            return True
    return False


@lru_cache(maxsize=CACHED_NAMES)
def _is_identity(name: str) -> bool:
    """Return whether a column tells things apart; the index of a batch, an epoch or an episode counts.

    What a nested value is kept by (`per_task/NAME/count`) tells no row from another.
    """
    words = words_of(name.rpartition("/")[2])
    return bool(words & IDENTITIES) and not (words & {"idx", "index"} and words & COUNTED and words <= COUNT_NAME)


def _is_timed(calls: Sequence[Flat]) -> bool:
    """Return whether rows of only numbers are in order of time."""
    name = next((key for key in TIME_KEYS if key in calls[0]), "")
    times = [seconds for call in calls if (seconds := as_seconds(call.get(name))) is not None]
    plain = not any(_is_text(key, value) for call in calls for key, value in call.items())
    back = [after - before for before, after in pairwise(times) if after < before]
    set_back = len(back) == 1 and back[0] >= -MAX_SET_BACK
    return plain and len(times) == len(calls) and (not back or set_back) and times[0] < times[-1]


def _is_count_restarted(calls: Sequence[Flat]) -> bool:
    """Return whether a column counts, by its name and most of its rows, but begins again and again."""
    for name in calls[0]:
        steps = [step for call in calls if (step := as_step(call.get(name))) is not None]
        rises = sum(one < other for one, other in pairwise(steps))
        if COUNTERS.get(count_name(name), (0, "row"))[1] != "row" and 2 * rises >= len(calls):
            return True
    return False


def _is_row_acount_of(calls: Sequence[Flat], counter: Counter) -> bool:
    """Return whether there is hardly more than one row of a count: of samples there are many."""
    counted = {count_of(call, counter) for call in calls} - {None}
    return ROWS_PER_COUNT * len(counted) >= len(calls)


def flat_call(found: Mapping[str, Any]) -> Flat:
    """Join the names of nested objects; a wrapper around the whole call is no part of them."""
    flat = flatten({key: value for key, value in found.items() if key not in WRAPPERS or not isinstance(value, dict)})
    for wrapper in WRAPPERS:
        inner = found.get(wrapper)
        if isinstance(inner, dict):
            flat |= flatten(inner)
    for key in [key for key in MESSAGES if key in flat]:
        text = flat[key]
        if isinstance(text, str) and text.startswith("{") and (inside := read_dict(text, 0)) is not None:
            del flat[key]
            flat |= inside[0]
    value = next((key for key in VALUE_KEYS if key in flat), None)
    name = next((key for key in NAME_KEYS if isinstance(flat.get(key), str)), None) if value else None
    if value and name and (number := as_number_text(flat[value])) is not None:
        flat |= {flat.pop(name): number}
        del flat[value]
    return flat


def curve_name(file: RunFile) -> str:
    """Return the metric of a file that holds the points of one curve and does not name it."""
    stem = file.name.rpartition(".")[0] or file.name
    return stem.partition(TAG)[2] or stem


def as_number_text(value: Any) -> Any:
    """Return a number, or the number that a text spells; None for anything else."""
    if isinstance(value, str):
        return float(value) if is_number_text(value) else None
    return value if isinstance(value, int | float) else None


def measured_values(flat: Mapping[str, Any]) -> dict[str, float | None]:
    """Keep what is a metric value; a number that is spelt as a text counts under a name that training logs."""
    values = metric_values(flat)
    for name, value in flat.items() if len(values) < len(flat) else ():
        if isinstance(value, str) and name not in values and NUMBER.fullmatch(value) and is_measured_name(name):
            values[name] = float(value)
    return values


@dataclass(frozen=True)
class MetricRow:
    """One log call: what was measured at a step."""

    step: int
    wall_time: float | None
    values: dict[str, float | None]


def metric_row(flat: Flat, keys: Sequence[str], file: RunFile) -> MetricRow | None:
    """Read one flat object of a file as a log call; None if none of `keys` gives a step."""
    used = next((key for key in keys if key in flat), "")
    step = as_step(flat.get(used))
    if step is None:
        return None
    rest = dict(flat)
    del rest[used]
    return MetricRow(step, _wall_time(rest, file), measured_values(rest))


def _wall_time(flat: Flat, file: RunFile) -> float | None:
    """Take the wall time out of a call."""
    times = ((key, file.seconds(flat[key])) for key in TIME_KEYS if key in flat)
    for clock, wall_time in times:
        if wall_time is not None:
            del flat[clock]
            return wall_time
    return None


@dataclass
class CallLog:
    """Log calls in order: counted or numbered, named, with what they show of the run's length."""

    columns: MetricColumns
    counter: Counter
    front: str = ""  # prefix of the names, for one of several series in a document
    seq: int = 0
    length: RunLength = field(init=False)
    _rows: int = 0

    def __post_init__(self) -> None:
        self.length = RunLength(self.counter.unit)

    def add(self, found: Mapping[str, Any]) -> bool:
        """Keep one call; False where it has no step, or nothing measured."""
        flat = flat_call(found)
        keys, file = self.counter.keys, self.columns.file
        row = metric_row(flat, keys, file) if keys else self._numbered(flat)
        self.length.see(row.step if row else None, flat)
        if row is None:
            return False
        evaluation = _is_evaluation(flat)
        blank = flat.keys() >= FORM  # a form, whose empty fields nobody measured
        for name, value in row.values.items():
            if (blank and value is None) or (name in MARKS and evaluation):
                continue
            named = f"{self.front}{name}"
            if evaluation and split_of(named) != "eval":
                named = f"eval/{named}"
            self.columns.add(row.step, self.counter.prefix + named, value, row.wall_time, self.seq)
        self.seq += 1
        return True

    def _numbered(self, flat: Flat) -> MetricRow | None:
        """Number the rows of training; an evaluation, a setting or a closing value belongs to the row before it."""
        rest = dict(flat)
        wall_time, values = _wall_time(rest, self.columns.file), measured_values(rest)
        if not values:
            return None
        trained = any(split_of(name) == "train" and is_measured_name(name) for name in values)
        self._rows += trained and RUNTIME not in flat and not _is_evaluation(flat)
        return MetricRow(max(1, self._rows), wall_time, values)

    def facts(self) -> Iterator[Context]:
        """Yield what the rows count, if not steps, and how long the run was to be."""
        facts = self.length.facts() if self.seq else {}
        if self.seq and self.counter.unit != "step":
            facts["row_unit"] = self.counter.unit
        if facts:
            yield Context(facts=facts)


def _is_evaluation(flat: Flat) -> bool:
    kinds = (flat.get(key) for key in KINDS)
    marked = any(flat.get(key) is True for key in MARKS) and UPDATE_KEYS.isdisjoint(flat)
    return marked or any(isinstance(kind, str) and kind.strip().lower() in EVALUATION for kind in kinds)


@dataclass
class RunLength:
    """How far a run came, how long it was to be, and how long it took, where its rows tell."""

    unit: Unit
    last: int | None = None
    totals: set[int] = field(default_factory=set)
    runtime: float | None = None
    share: float | None = None  # done, by the last step

    def see(self, step: int | None, flat: Mapping[str, Any]) -> None:
        """Note what one call tells."""
        self.last = step if step is not None else self.last
        self.runtime = as_number(flat.get(RUNTIME)) or self.runtime
        for name in TOTALS[self.unit]:
            if (total := as_step(flat.get(name))) is not None:
                self.totals.add(total)
        self.share = as_number(flat.get(DONE_SHARE)) or self.share
        swift = flat.get(SWIFT_STEP)
        if isinstance(swift, str) and (total := as_step(swift.rpartition("/")[2])) is not None:
            self.totals.add(total)

    def facts(self) -> dict[str, str | int | float | bool | None]:
        """Return what is sure: one total throughout, that no step exceeds."""
        facts: dict[str, str | int | float | bool | None] = {}
        if self.runtime is not None:
            facts[RUNTIME] = self.runtime
        if self.unit == "step" and self.last is not None and self.share is not None and 0 < self.share <= 1:
            total = (self.last + 1) / self.share
            self.totals |= {round(total)} if abs(total - round(total)) < ROUNDED_TOTAL else set()
        if self.last is not None and len(self.totals) == 1 and self.last <= (total := next(iter(self.totals))):
            facts |= {"max_steps": total, "global_step": self.last}
            facts |= {} if self.unit in ("step", "row") else {f"planned_{self.unit}s": total}
        return facts
