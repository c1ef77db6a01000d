"""Place printed rows: by counters that restart in each epoch, and by headlines or progress bars before rows.

A script prints `rollout batch 3 generated`, then the numbers of that batch: a headline that precedes every row and
counts up by one each time places them all.

tqdm clears its bar before other text is printed and redraws it afterwards, at the same count. These marks show the step
of each row, even if the console was redirected to a file and rows were flushed in bundles, later than the bar. Without
marks, the spacing shows it: rows come at regular steps, and if a finished run of 1,875 steps left 93 rows with epochs
up to 0.99, only one spacing fits."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter as Tally
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

from ptt.diagnostics.definitions import compiled
from ptt.diagnostics.parsers.io.console_pairs import Counter, Values, is_metric_name

MAX_UNCOUNTED_ROWS: Final = 100_000  # lines without a counter, held back until they are seen to recur
MIN_RECURRING: Final = 3  # fewer lines with the same names are echoed settings, or a summary
MAX_SHAPES: Final = 400  # of headlines; prose with numbers has a new shape in each line
MAX_HEADLINES: Final = 200_000
SHAPE_CHARS: Final = 60
MIN_SHARE: Final = 0.9  # of rows that follow a headline of their own; a resumed run counts some twice
DIGITS: Final = compiled(r"\d+")
MAX_TOTALS: Final = 4  # of counts that belong together: batches of training, and data sets of evaluation
CHECKED_ROWS: Final = 50  # with the same names, checked for a preceding sample: the others are like these
SAMPLE_LINES: Final = 400  # before a row, within which its sample begins: an answer is long
SAMPLE: Final = compiled(
    rb"^.{0,100}?\b(?:prompt|question|query|problem|completion|response|model[ _]output|output|generated(?:[ _]text)?"
    rb"|generation|answer|ground[ _]truth|expected|target|label|prediction|predicted|sample(?: \d+)?|example(?: \d+)?"
    rb"|solution|assistant|user)\]?[\"']?\s?(?::|=(?!\d)|$)",
    re.IGNORECASE,
)
COURSE: Final = compiled(r"(?:^|[/_ ])(?:loss|grad_norm|learning_rate|lr|kl|entropy)(?:$|[/_ ])", re.IGNORECASE)
"""Names of values that a whole step has, and a sample does not."""


@dataclass(frozen=True)
class UncountedRow:
    """A row, and the number of its line."""

    line: int
    values: Values
    sampled: bool = False  # printed beside a sample, and describes that sample


@dataclass
class Headlines:
    """Lines that count, grouped by their other words: at which line each count is found."""

    _shapes: dict[tuple[str, str], tuple[list[int], list[Counter]]] = field(default_factory=dict)
    _held: int = 0

    def see(self, line: int, text: str, counter: Counter) -> None:
        """Note a line that counts."""
        shape = (DIGITS.sub("#", text[:SHAPE_CHARS]), counter.unit)
        if shape not in self._shapes and len(self._shapes) >= MAX_SHAPES:
            return
        if self._held < MAX_HEADLINES:
            places, counters = self._shapes.setdefault(shape, ([], []))
            places.append(line)
            counters.append(counter)
            self._held += 1

    def place(self, lines: Sequence[int]) -> list[Counter] | None:
        """Return the counter of each row by the headline that has one for each; None where no headline has."""
        best: tuple[float, list[Counter]] | None = None
        for places, counters in self._shapes.values():
            if len(places) < MIN_RECURRING:
                continue
            at = [bisect_right(places, line) - 1 for line in lines]
            if at[0] < 0:  # this headline comes behind its rows
                at = [index + 1 for index in at]
                if at[-1] >= len(places):
                    continue
            found = [counters[index] for index in at]
            counts = [_count(counter) for counter in found]
            alone = sum(one < other for one, other in pairwise(counts)) / max(1, len(counts) - 1)
            coverage = len(set(at)) / len(places)  # of two headlines, prefer the one that comes only with these rows
            if alone >= MIN_SHARE and (best is None or coverage > best[0]):
                best = (coverage, found)
        return None if best is None else best[1]


def _line(row: UncountedRow) -> int:
    return row.line


def _count(counter: Counter) -> tuple[int, int]:
    return (counter.epoch or 0, counter.at or 0)


class Uncounted:
    """Lines of metrics that count nothing: log calls only where the same names come again with other numbers."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, ...], list[UncountedRow]] = {}
        self._headed: dict[tuple[str, ...], list[UncountedRow]] = {}  # below the headline of an epoch
        self._sampled: dict[tuple[str, ...], list[bool]] = {}  # for the first rows with these names
        self._recent: deque[bytes] = deque(maxlen=SAMPLE_LINES)
        self.held = 0

    def other(self, line: bytes) -> None:
        """Note a line that is not a row."""
        self._recent.append(line)

    def counted(self) -> None:
        """Note that a row has come, behind which another sample begins."""
        self._recent.clear()

    def is_sampled(self, values: Values) -> bool:
        """Return whether a row belongs to the sample that was printed before it."""
        if "epoch" in values or any(map(COURSE.search, values)):
            return False
        checked = self._sampled.setdefault(tuple(values), [])
        if len(checked) < CHECKED_ROWS:
            checked.append(any(map(SAMPLE.match, self._recent)))
        return 2 * sum(checked) > len(checked)

    def add(self, line: int, values: Values) -> None:
        """Hold a line back, if one of its names is a metric's."""
        if any(map(is_metric_name, values)) and self.held < MAX_UNCOUNTED_ROWS:
            rows = self._rows.setdefault(tuple(values), [])
            rows.append(UncountedRow(line, values, self.is_sampled(values)))
            self.held += 1
        self.counted()

    def add_headed(self, line: int, values: Values) -> None:
        """Note a row behind the headline of an epoch: of the first step in it, if others without one follow."""
        rows = self._headed.setdefault(tuple(values), [])
        if len(rows) < MAX_SHAPES:
            rows.append(UncountedRow(line, values))

    def rows(self) -> Iterator[list[UncountedRow]]:
        """Yield the rows that recur, grouped by their names."""
        for names, alone in self._rows.items():
            headed = self._headed.get(names, []) if len(alone) >= MIN_RECURRING else []
            rows = sorted((*alone, *(headed if MIN_RECURRING * len(headed) <= len(alone) else ())), key=_line)
            rows = _of_one_total(rows)
            if len(rows) >= MIN_RECURRING and any(row.values != rows[0].values for row in rows):
                yield rows


def _of_one_total(rows: list[UncountedRow]) -> list[UncountedRow]:
    """Return the rows of counts whose total comes most often, where there are a few: batches, and evaluations."""
    if not rows or len(rows[0].values) < 2 or not all(_counts(row.values) for row in rows):
        return rows
    totals = [sum(value or 0.0 for value in row.values.values()) for row in rows]
    tally = Tally(totals)
    if not 1 < len(tally) <= MAX_TOTALS or min(tally.values()) < MIN_RECURRING:
        return rows
    return [row for row, total in zip(rows, totals, strict=True) if total == tally.most_common(1)[0][0]]


def _counts(values: Values) -> bool:
    return all(value is not None and value >= 0 and value.is_integer() for value in values.values())


class EpochSteps:
    """Counts on where a counter starts again in each epoch."""

    def __init__(self) -> None:
        self._offset = 0
        self._last: Counter | None = None
        self._spacing = 1  # of the last two rows
        self._first_epoch = 1  # 0 where epochs are counted from there
        self.max_steps: int | None = None

    def step(self, counter: Counter) -> int | None:
        """Return the step of the run; None if the line names none."""
        if counter.at is None or counter.unit != "step":
            return None
        if counter.nested and counter.epoch is not None and counter.total:
            self._first_epoch = 0 if counter.epoch == 0 else self._first_epoch
            self._offset = (counter.epoch - self._first_epoch) * counter.total
            self.max_steps = counter.epochs * counter.total if counter.epochs else None
        elif last := self._before_restart(counter):
            self._offset += last
            self.max_steps = counter.total * counter.epochs if counter.total and counter.epochs else None
        elif not self._offset and counter.total and counter.epochs in (None, 1):
            self.max_steps = counter.total
        if self._last is not None and self._last.at is not None and counter.at > self._last.at:
            self._spacing = counter.at - self._last.at
        self._last = counter
        return self._offset + counter.at

    def _before_restart(self, counter: Counter) -> int:
        """Return how many steps the previous epoch had, if the counter restarted; else 0."""
        last = self._last
        if last is None or last.at is None or counter.at is None or counter.at >= last.at:
            return 0
        if counter.epoch is not None and last.epoch is not None:
            behind = self._spacing if counter.at == 0 else 0  # counted from 0, the next would have been one on
            return (last.total or last.at + behind) if counter.epoch > last.epoch else 0
        whole = counter.total is not None and counter.total == last.total and last.at >= counter.total - 1
        return counter.total or 0 if whole else 0


BAR = compiled(rb"([^\r\n%|]{0,120}?)\s{0,4}\d{1,3}%\|[^|]{0,600}\|\s{0,8}(\d{1,12})/(\d{1,12}) \[")
OTHER_WORK = compiled(
    rb"load|download|map|filter|token|eval|valid|test|generat|predict|sav|fetch|shard|pack|truncat|format|extract|apply"
    rb"|convert|add|comput|process|captur|prompt|roll|sampl|cach",
    re.IGNORECASE,
)
CLEARED: Final = 10  # spaces that overwrite a bar; a bar is longer
MAX_HELD_ROWS: Final = 50_000  # rows held back until the bars have shown their steps
MIN_ROWS: Final = 3  # two rows fit nearly any spacing
ON_TIME: Final = 0.9  # of the bars followed by rows, drawn before the row
EPOCH_UNIT: Final = 0.0051  # half of an epoch's last printed digit, plus rounding


@dataclass(frozen=True, kw_only=True)
class PrintedRow:
    """A row without a step: what it is, its epoch, and the bar drawn last before it."""

    training: bool
    trainer: bool  # with the learning rate that a trainer's own rows hold
    closing: bool
    epoch: float | None
    total: int | None  # of the bar
    at: int | None


@dataclass
class _Track:
    """The bars of one total."""

    drawn: int = 0
    last: int = -1
    marks: list[int] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Placement:
    """The step of each row, why, the number of steps in all, and how many rows were printed and never came out."""

    steps: tuple[int, ...]
    by: str
    total: int
    lost: int = 0


class ProgressBars:
    """The bars of a console, and the rows without a step between them."""

    def __init__(self) -> None:
        self.rows: list[PrintedRow] = []
        self.after: list[tuple[int, int] | None] = []  # for each row the first bar behind it: total, count
        self._tracks: dict[int, _Track] = {}
        self._current: tuple[int, int] | None = None
        self._agreeing: dict[int, int] = {}  # by total: how often a bar was at the step of the row before it
        self._cleared = False
        self._waiting = 0  # rows not yet followed by a bar

    @property
    def agreed(self) -> int | None:
        """The number of steps, where a bar counted along with rows that name theirs."""
        most = max(self._agreeing, key=self._agreeing.__getitem__, default=None)
        return most if most is not None and self._agreeing[most] >= MIN_ROWS else None

    @property
    def of_trainer(self) -> bool:
        """Whether a trainer's own rows tell the steps."""
        return sum(row.trainer for row in self.rows) >= MIN_ROWS

    def see(self, segment: bytes, step: int | None) -> None:
        """Take the part between two carriage returns; `step` is that of the previous row."""
        if not segment.strip():
            self._cleared |= len(segment) >= CLEARED
            return
        match = BAR.match(segment) if b"%|" in segment else None
        if match is None or OTHER_WORK.search(match[1]) or b"examples/s" in segment:  # datasets' own progress
            return
        at, total = int(match[2]), int(match[3])
        track = self._tracks.setdefault(total, _Track())
        track.drawn += 1
        if step is not None and step == at != track.last:
            self._agreeing[total] = self._agreeing.get(total, 0) + 1
        if self._cleared and track.last == at and self._current == (total, at) and len(track.marks) < MAX_HELD_ROWS:
            track.marks.append(at)
        track.last, self._cleared, self._current = at, False, (total, at)
        for row in range(self._waiting, len(self.after)):
            self.after[row] = (total, at)
        self._waiting = len(self.after)

    def add(self, *, training: bool, trainer: bool, closing: bool, epoch: float | None) -> None:
        """Note a row at its place among the bars."""
        total, at = self._current or (None, None)
        row = PrintedRow(training=training, trainer=trainer, closing=closing, epoch=epoch, total=total, at=at)
        self.rows.append(row)
        self.after.append(None)

    def placement(self, total: int | None, spacing: int | None = None) -> Placement | None:
        """Place the rows; None if nothing is certain.

        `total`: the number of steps that the trainer announced; `spacing`: of its rows, by its settings.
        """
        if self.of_trainer:  # what a script prints besides, for each batch, is no step
            self.rows = [replace(row, training=row.training and row.trainer) for row in self.rows]
        training = sum(row.training for row in self.rows)
        several = sum(row.closing for row in self.rows) > 1  # runs in one console
        if several or training < (1 if spacing else MIN_ROWS):
            return None
        totals = (
            [total]
            if total
            else sorted(
                self._tracks, key=lambda name: (-len(self._tracks[name].marks), -self._tracks[name].drawn, -name)
            )
        )
        for candidate in totals:
            if candidate >= training:
                found = self._by_spacing(candidate, range(spacing, spacing + 1) if spacing else None)
                if training >= MIN_ROWS:
                    found = self._by_marks(candidate) or self._by_neighbours(candidate) or found
                if found:
                    return found
        return None

    def _by_marks(self, total: int) -> Placement | None:
        marks = self._tracks[total].marks if total in self._tracks else []
        closed = any(row.closing for row in self.rows)
        training = [index for index, row in enumerate(self.rows) if row.training]
        if len(marks) == len(training) < len(self.rows):
            steps = self._carried(marks)
        elif len(marks) == len(self.rows) or (len(marks) > len(self.rows) and not closed):
            steps = tuple(marks[: len(self.rows)])
        else:
            return None
        if any(later < step for step, later in pairwise(steps)) or not self._fits(
            [steps[index] for index in training], training, total
        ):
            return None
        spacing = {later - step for step, later in pairwise(steps[index] for index in training)}
        every = f", one row every {spacing.pop()} steps" if len(spacing) == 1 else ""
        lost = max(0, len(marks) - len(self.rows)) if len(marks) != len(training) else 0
        return Placement(steps=steps, by=f"progress bars{every}", total=total, lost=lost)

    def _by_neighbours(self, total: int) -> Placement | None:
        """Place rows that each follow a bar, where the bars advance by one spacing."""
        training = [index for index, row in enumerate(self.rows) if row.training]
        steps = [self.rows[index].at for index in training if self.rows[index].total == total]
        known = [step for step in steps if step is not None]
        if len(known) != len(training):
            return None
        known = self._caught_up(known, training, total)
        spacing = {later - step for step, later in pairwise(known)}
        if len(spacing) != 1 or min(spacing) < 1 or not self._fits(known, training, total):
            return None
        by = f"progress bars, one row every {spacing.pop()} steps"
        return Placement(steps=self._carried(known), by=by, total=total)

    def _caught_up(self, known: list[int], training: Sequence[int], total: int) -> list[int]:
        """Return evenly spaced steps if some bars were drawn late, as by tqdm after a resume; else the same steps."""
        spacing, left = divmod(known[-1] - known[0], len(known) - 1)
        even = [known[0] + spacing * number for number in range(len(known))]
        agree = sum(one == other for one, other in zip(even, known, strict=True))
        fit = not left and agree >= ON_TIME * len(known) and self._between_bars(even, training, total)
        return even if fit else known

    def _by_spacing(self, total: int, known: range | None) -> Placement | None:
        training = [index for index, row in enumerate(self.rows) if row.training]
        closed = next((row for row in self.rows if row.closing), None)
        count = len(training)
        fitting: list[tuple[int, list[int]]] = []
        for spacing in known or range(1, total // count + 2):
            for first in (0, 1):  # `logging_first_step` adds a row at step 1
                steps = [spacing * (number + 1 - first) or 1 for number in range(count)]
                if (first and spacing == 1) or steps[-1] > total or (closed and steps[-1] + spacing <= total):
                    continue
                if self._fits(steps, training, total) and (closed or self._between_bars(steps, training, total)):
                    fitting.append((spacing, steps))
        if len(fitting) != 1:
            return None
        spacing, steps = fitting[0]
        return Placement(steps=self._carried(steps), by=f"progress bars, one row every {spacing} steps", total=total)

    def _fits(self, steps: Sequence[int], training: Sequence[int], total: int) -> bool:
        """Return whether no bar behind a row counts less than the row's step, and the epochs grow as the steps do."""
        low, high = 0.0, float("inf")  # steps an epoch
        closed = next((row.epoch for row in self.rows if row.closing), None)
        if closed:
            low, high = total / (closed + EPOCH_UNIT), total / max(closed - EPOCH_UNIT, 1e-9)
        for step, index in zip(steps, training, strict=True):
            after, epoch = self.after[index], self.rows[index].epoch
            if after is not None and after[0] == total and after[1] < step:
                return False
            if epoch is not None:  # an epoch ends inside a step, which is counted to it or to the next
                low = max(low, (step - epoch - 1) / (epoch + EPOCH_UNIT))
                high = min(high, (step + epoch + 1) / (epoch - EPOCH_UNIT)) if epoch > EPOCH_UNIT else high
        return low <= high * (1 + 1e-9)

    def _between_bars(self, steps: Sequence[int], training: Sequence[int], total: int) -> bool:
        """Return whether each row was printed while the bar stood at its step, of rows that came out at once."""
        for step, index in zip(steps, training, strict=True):
            row, after = self.rows[index], self.after[index]
            if row.total != total or row.at is None or row.at > step or (after and after[1] < step):
                return False
        return True

    def _carried(self, steps: Sequence[int]) -> tuple[int, ...]:
        """Return rows with evaluations at the step of the training row before them, and the closing row at the last.

        The closing row holds what was measured since the row before: the bar behind it shows the end.
        """
        placed: list[int] = []
        following = iter(steps)
        step = 0
        for row, after in zip(self.rows, self.after, strict=True):
            step = next(following) if row.training else step
            ended = row.closing and after is not None and after[0] == after[1] == row.total
            placed.append(after[1] if ended and after is not None else step)
        return tuple(placed)
