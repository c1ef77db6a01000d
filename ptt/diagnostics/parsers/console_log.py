"""Console logs as text: the metrics printed on them, how the run ended, and the lines that speak of trouble as events.

Any text file is one that holds log calls (`io/console_lines.py` has the dialects) or that ends in an exception, a
signal or a trainer's closing words, whatever its name. Where rows name no step, progress bars tell it
(`io/printed_rows.py`), or the rows are numbered; then their names begin with `console:`, so that they never stand in
one series with rows whose step is known.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final

import polars as pl

from ptt.diagnostics.metrics.aliases import framework_of
from ptt.diagnostics.parsers.io.console_context import ConsoleContext
from ptt.diagnostics.parsers.io.console_files import LINE_BYTES, is_too_long, recognises, segments
from ptt.diagnostics.parsers.io.console_incidents import SampleLines, Silence
from ptt.diagnostics.parsers.io.console_lines import ConsoleRow, overwritten
from ptt.diagnostics.parsers.io.console_pairs import Counter
from ptt.diagnostics.parsers.io.interface import Context, Lost, Parser, Piece, Rows, RunFile
from ptt.diagnostics.parsers.io.lines import blocks, is_torn, torn_line
from ptt.diagnostics.parsers.io.metric_rows import UNNUMBERED, MetricColumns, framework_facts
from ptt.diagnostics.parsers.io.printed_dicts import PrintedConfig
from ptt.diagnostics.parsers.io.printed_rows import MAX_HELD_ROWS, EpochSteps, Placement, ProgressBars
from ptt.diagnostics.parsers.io.setup_files import (
    banner_packages,
    engine_settings,
    kept,
    listed_arguments,
    namespace_arguments,
    printed_fields,
    printed_settings,
)
from ptt.diagnostics.parsers.io.telemetry import ESCAPES, EventLog, Facts, safe_settings
from ptt.diagnostics.parsers.io.tracebacks import EndingLog, without_bar
from ptt.diagnostics.parsers.io.values import as_step
from ptt.diagnostics.wording import counted

ELSEWHERE: Final = "elsewhere"  # the headline that lines read otherwise are, all of one kind
RATES: Final = frozenset({"learning_rate", "train/learning_rate"})  # of a Hugging Face trainer's own rows
CLOSING = "train_runtime"  # only the last row of a Hugging Face run has it
ANNOUNCED = re.compile(r"Total (?:optimization )?steps = (\d{1,3}(?:,\d{3})+|\d{1,12})\b")
PLANNED = re.compile(  # any loop's wording: its rows may count something else, so this places none of them
    r"(?:total|number of|num) (?:training |train |optimi[sz]ation |optimi[sz]er |gradient |update )?steps ?[:=] ?"
    r"(\d{1,3}(?:,\d{3})+|\d{1,12})\b",
    re.IGNORECASE,
)
# a drawn bar, tqdm's in ASCII too, which ends in a digit; other pipes enclose logged values
BLOCKS = re.compile(r"(?<=%)\|[#\u2580-\u259f]{0,400}[1-9]?\s{0,400}\||\|[#=>\u2580-\u259f]{1,400}[ .-]{0,400}\|")
DONE = re.compile(r"\W{0,4}(?:All )?(?:[Dd]one|DONE|[Ff]inished)\W{0,4}")

LAST_WORDS = re.compile(r"error|exception|interrupt|kill|cancel|abort|complete|finish|\bdone\b|saved", re.IGNORECASE)
AREAL_DONE: Final = re.compile(rb"\bTrain step (\d{1,9})/\d{1,9} done\b")  # counts from 1, its metrics from 0
CROWD: Final = 3  # rows of one metric at one epoch, on average: more are lines of single batches
OF_LINES: Final = -(1 << 40)  # from here on, places count lines downwards, while no row is placed
BANNER_BYTES: Final = 128 << 10  # of a console's beginning: where programs say which they are, and print their settings


def read(file: RunFile) -> Iterator[Piece]:
    """Yield metrics block by block, then events; a line that is cut off is counted."""
    console = ConsoleReader(file)
    banners: list[bytes] | None = []
    for block in blocks(file):
        if isinstance(block, Lost):
            yield block
            continue
        if banners is not None:
            banners.append(block[:BANNER_BYTES])
            if sum(map(len, banners)) >= BANNER_BYTES:
                yield from console.setup(banners)
                banners = None
        lines = block.split(b"\n")
        torn = lines.pop() if is_torn(block) else None
        for line in lines:
            console.line(line)
        if torn is not None:
            yield from console.torn(torn)
        yield from console.flush()
    yield from console.setup(banners or [])
    yield from console.close()


def _may_be_cut(last: bytes) -> bool:
    """Return whether a text without a line end may have gone on: it is no bar and holds no last words."""
    return bool(last.strip()) and b"%|" not in last and not LAST_WORDS.search(last.decode("utf-8", "replace"))


class ConsoleReader:
    """State while the lines of a console are read."""

    def __init__(self, file: RunFile) -> None:
        self.file = file
        self.context, self.epochs, self.bars = ConsoleContext(), EpochSteps(), ProgressBars()
        self.config = PrintedConfig()
        self.events = EventLog(file)
        self.endings = EndingLog(self.events)
        self.samples, self.silence = SampleLines(), Silence()
        self.counted_at: int | None = None  # the last step at which lines about samples were counted
        self.counted_steps: set[int] = set()
        self.columns_at: dict[str, set[int]] = {}  # by name of a series that counts lines: the steps that have some
        self.columns, self.other_units = MetricColumns(file), MetricColumns(file)
        self.unplaced = MetricColumns(file)  # rows without a counter, by their place in `numbers`
        self.numbers: list[int] = []  # for each such row, how many training rows came before
        self.marks: list[tuple[int, tuple[str, ...], bool]] = []  # for each: line, names, whether it is a sample's
        self.steps: list[int | None] = []  # for each: its step, if a headline gives it
        self.stepped: list[int | None] = []  # for each: the last step that another row had named
        self.recurred: list[tuple[int, int]] = []  # lines of rows without a counter, and the places of these
        self.in_order = 0  # rows whose places follow their lines: behind them come lines that were seen to recur
        self.headed = 0  # rows placed at the step of a headline
        self.counted: list[pl.DataFrame] = []  # rows that count epochs or episodes, until it is known whether these do
        self.held: list[pl.DataFrame] = []  # such rows, until it is known whether bars place them
        self.placing = True
        self.step: int | None = None
        self.overwritten = 0
        self.units: set[str] = set()
        self.crowded = False  # rows that count epochs are numbered: those of one would hide each other
        self.by_epoch: set[frozenset[str]] = set()  # names of rows placed at their epoch, so all such rows are
        self.frameworks: set[str] = set()
        self.announced: int | None = None
        self.spacing: int | None = None  # steps from one row to the next, by the settings
        self.planned: int | None = None
        self.last: bytes = b""

    def setup(self, beginning: list[bytes]) -> Iterator[Context]:
        """Yield the versions and settings that programs print when they start."""
        text = ESCAPES.sub("", b"".join(beginning).decode("utf-8", "replace")).replace("\r\n", "\n")
        packages, named = banner_packages(text), namespace_arguments(text)
        settings = printed_settings(text) or named or printed_fields(text)
        listed = {} if settings else listed_arguments(text)
        if engine := engine_settings(text):
            yield Context(facts={}, settings=kept(engine), in_part=True)
        self.spacing = as_step(settings.get("logging_steps"))
        if packages or settings or listed:
            yield Context(
                facts=safe_settings(named), settings=kept(settings or listed), in_part=bool(listed), packages=packages
            )

    @property
    def place(self) -> int:
        """The step where the run now is; below zero it counts rows or lines, whose steps are known at the end."""
        if self.stepped[-1:] == [self.step]:  # the last row named no step
            return -len(self.numbers)
        return OF_LINES - self.context.number if self.step is None else self.step

    def line(self, line: bytes) -> None:
        """Take a line."""
        if is_too_long(line):
            return
        last = b""
        rows = 0  # a line holds several where each is followed by a carriage return
        held = self.context.uncounted.held
        for segment in segments(line):
            blank = not segment or segment.isspace()
            if blank or b"%|" in segment:
                self.bars.see(segment, self.step)
            if blank:
                continue
            last = segment
            if row := self.context.row(segment):
                self._row(row)
                rows += 1
            elif b"%|" in segment and overwritten(segment.decode("utf-8", "replace")):
                self.overwritten += 1
        if last:
            self.last = last
        if rows or self.context.uncounted.held > held:
            self.silence.row(line)
        if not rows and last:
            self._other(last)
        elif b"omplete" in last or b"inish" in last or b"inal validation" in last:  # closing words beside numbers
            self.endings.line(self.place, None, last.decode("utf-8", "replace"))

    def line_elsewhere(self, line: bytes, step: int | None) -> None:
        """Take a line whose values another reading takes: lines without a step behind it are of its step."""
        self.context.number += 1
        self.last = segments(line)[-1] if len(line) <= LINE_BYTES else self.last
        if step is None:
            return
        self.endings.settle(self.place)
        self.step = step
        self.silence.row(line)
        self._count_samples(step)
        self.context.headlines.see(self.context.number, ELSEWHERE, Counter(at=step))
        if self.endings.told:
            self.endings.trained()

    def torn(self, line: bytes) -> Iterator[Piece]:
        """Take the last line of a file that does not end with a line: words and bars are whole all the same."""
        redrawn = segments(line)
        row = self.context.row(redrawn[-1]) if len(redrawn[-1]) <= LINE_BYTES else None
        if row is not None or b"{'" in redrawn[-1] or b'{"' in redrawn[-1]:
            yield torn_line(self.file, line)
            line = b"\r".join(redrawn[:-1])
        elif _may_be_cut(redrawn[-1]):
            yield Lost(bytes=len(redrawn[-1]))  # the beginning of a row, or prose: nobody knows
        self.line(line)

    def _other(self, last: bytes) -> None:
        """Take a line without log calls, in its last redrawn state."""
        self.config.see(last)
        self.samples.see(last)
        if b"Train step " in last and (done := AREAL_DONE.search(last)):
            self._count_samples(int(done[1]) - 1)
        self.silence.line(last)
        text = last.decode("utf-8", "replace")
        if "teps = " in text and (match := ANNOUNCED.search(text)):
            self.announced = int(match[1].replace(",", ""))
        elif "steps" in text and (match := PLANNED.search(text)):
            self.planned = int(match[1].replace(",", ""))
        if spoken := without_bar(text):
            self.endings.line(self.place, None, spoken)
        if self.step and self.step == self.epochs.max_steps and DONE.fullmatch(text):
            self.endings.complete(self.place)
        self.events.add_output(self.place, None, "stdout", text)

    def _row(self, row: ConsoleRow) -> None:
        self.endings.settle(self.place)
        self.frameworks |= {row.framework} if row.framework else set()
        step = self.epochs.step(row.counter)
        names = frozenset(row.values)
        if step is None and row.counter.unit == "epoch" and self.step is not None and names not in self.by_epoch:
            step = self.step  # an epoch's summary behind its steps
        if step is not None:
            self.step = step
            self._count_samples(step)
        self._place(row, step)
        if CLOSING in row.values:
            self.endings.runtime = row.values[CLOSING]
            self.endings.complete(self.place)
        elif self.endings.told and _is_step(row):
            self.endings.trained()

    def _count_samples(self, step: int) -> None:
        """Count at a new step what lines said of samples since the last one."""
        if self.counted_at is not None and step <= self.counted_at:
            return
        self.counted_at = step
        self.counted_steps.add(step)
        for name, count in self.samples.take():
            self.columns_at.setdefault(name, set()).add(step)
            self.columns.add(step, name, float(count), None, self.context.number)

    def _place(self, row: ConsoleRow, step: int | None, number: int | None = None) -> None:
        """Keep a row at its step, at its other count, or in order; `number`: among rows with the same names."""
        if step is not None:
            self._add(self.columns, step, row)
        elif row.counter.known:
            at = row.counter.epoch if row.counter.at is None else row.counter.at
            self._add(self.other_units, at or 0, row)
            self.by_epoch.add(frozenset(row.values))
            self.units.add(row.counter.unit)
        else:
            self._unnumbered(row, number)

    def _unnumbered(self, row: ConsoleRow, number: int | None) -> None:
        training = _is_step(row)
        self.marks.append((self.context.number, tuple(row.values), self.context.sampled))
        self.numbers.append(number or (self.numbers[-1] if self.numbers else 0) + training)
        self.stepped.append(self.step)
        if self.placing:
            self.bars.add(
                training=training,
                trainer=not row.values.keys().isdisjoint(RATES),
                closing=CLOSING in row.values,
                epoch=row.values.get("epoch"),
            )
            self.placing = len(self.numbers) <= MAX_HELD_ROWS
        self._add(self.unplaced, len(self.numbers) - 1, row)
        for name, count in self.samples.take() if training else ():
            self.unplaced.add(len(self.numbers) - 1, name, float(count), None, self.context.number)
        self.units.add("row")

    def _add(self, columns: MetricColumns, step: int, row: ConsoleRow) -> None:
        for name, value in row.values.items():
            columns.add(step, name, value, None, self.context.number)  # which orders rows that were held back

    def flush(self) -> Iterator[Piece]:
        """Yield rows whose step is known; hold the others back as long as bars may place them."""
        yield from self.columns.pieces()
        self.counted += self.other_units.frames()
        if sum(frame.height for frame in self.counted) > MAX_HELD_ROWS:
            yield from self._counted()
        self.held += self.unplaced.frames()
        if not self.placing:
            yield from self._numbered()

    def _counted(self) -> Iterator[Piece]:
        """Yield rows that count epochs or episodes at these; numbered where those of one would hide each other."""
        frames, self.counted = self.counted, []
        lines = _crowded(frames)
        if lines is not None:
            self.units, self.crowded = {"row"}, True
            for frame in frames:
                at = pl.Series(lines.search_sorted(frame["seq"], side="right"), dtype=pl.Int64).clip(lower_bound=1)
                yield from _unnumbered_pieces([frame.with_columns(step=at)], None)
            marks = pl.Series([line for line, _, _ in self.marks], dtype=pl.Int64)
            placed = pl.Series(lines.search_sorted(marks, side="right"), dtype=pl.Int64).clip(lower_bound=1)
            self.numbers = placed.to_list() if len(marks) else []
        else:
            yield from _unnumbered_pieces(frames, None)

    def _numbered(self) -> Iterator[Piece]:
        """Yield rows where headlines place them, or numbered in their order."""
        kept = pl.Series([not dropped for dropped in self._dropped()], dtype=pl.Boolean)
        steps = pl.Series([*self.steps, *[None] * (len(self.numbers) - len(self.steps))], dtype=pl.Int64)
        for frame in self.held:
            frame = frame.filter(kept.gather(frame["step"]))
            placed = frame.with_columns(step=steps.gather(frame["step"])).drop_nulls("step")
            if placed.height:
                yield Rows(table="metrics", frame=placed)
            yield from _unnumbered_pieces([frame.filter(steps.gather(frame["step"]).is_null())], self.numbers)
        self.held = []

    def _dropped(self) -> list[bool]:
        """Return whether each row without a step came with a sample; beside other rows, those are not a curve."""
        samples = [sampled for _, _, sampled in self.marks]
        others = self.columns.names or self.other_units.names or not all(samples)
        return samples if others else [False] * len(samples)

    def _recurring(self) -> None:
        """Take the lines that count nothing and recur: where a headline places them, or numbered in their order."""
        whole, self.in_order = self.columns.names | self.unplaced.names, len(self.numbers)
        for rows in self.context.uncounted.rows():
            self.counted = [frame.filter(~pl.col("seq").is_in([row.line for row in rows])) for frame in self.counted]
            if rows[0].values.keys() <= whole:  # a callback printed again some figures of the trainer's own rows
                continue
            sampled = 2 * sum(row.sampled for row in rows) > len(rows)
            counters = None if sampled else self.context.headlines.place([row.line for row in rows])
            epochs = EpochSteps()
            for number, row in enumerate(rows, start=1):
                counter = counters[number - 1] if counters else Counter()
                self.context.number, self.context.sampled = row.line, sampled
                called = ConsoleRow(dialect="uncounted", values=row.values, counter=counter)
                step = epochs.step(counter)
                self._place(called, step, number)
                self.recurred.append((row.line, number if step is None else step))
                self.headed += counter.known

    def _by_headlines(self) -> None:
        """Find the steps of the rows of each names by the headlines that come before them."""
        self.steps = [None] * len(self.marks)
        by_names: dict[tuple[str, ...], list[int]] = {}
        for index, (_, names, _) in enumerate(self.marks):
            by_names.setdefault(names, []).append(index)
        for indices in by_names.values():
            counters = self.context.headlines.place([self.marks[index][0] for index in indices])
            epochs = EpochSteps()
            for index, counter in zip(indices, counters or (), strict=False):
                self.steps[index] = epochs.step(counter)
        rows = [*zip(self.steps, self._dropped(), strict=True)]
        self.headed += sum(step is not None and not dropped for step, dropped in rows)
        if not self.crowded and all(step is not None or dropped for step, dropped in rows):
            self.units.discard("row")

    def close(self) -> Iterator[Piece]:
        """Yield what had to wait for the end of the file."""
        ended = self.endings.close(self.place)
        for step, name, count in self.samples.headed():
            self.columns_at.setdefault(name, set()).add(step)
            self.columns.add(step, name, float(count), None, self.context.number)
        for name in sorted(self.samples.waited):  # 0 where it did not wait, as a series that is held against others
            for step in sorted(self.counted_steps - self.columns_at.get(name, set())):
                self.columns.add(step, name, 0.0, None, self.context.number)
        self.counted += self.other_units.frames()
        self._recurring()
        yield from self.flush()
        yield from self._counted()
        placement = self.bars.placement(self.announced, self.spacing) if self.placing else None
        if placement is not None:
            steps = pl.Series(placement.steps, dtype=pl.Int64)
            for frame in self.held:
                late = frame["step"] >= self.in_order if self.bars.of_trainer else frame["step"] < 0
                known = frame.filter(~late)
                yield Rows(table="metrics", frame=known.with_columns(step=steps.gather(known["step"])))
                yield from _unnumbered_pieces([frame.filter(late)], self.numbers)
        else:
            self._by_headlines()
            yield from self._numbered()
        self._last_line()
        places = self._places() if placement is None else placement.steps
        for piece in self.events.pieces():
            at = pl.col("step")
            placed = at.replace_strict(range(-len(places), 0), places[::-1], default=at, return_dtype=pl.Int64)
            frame = piece.frame.with_columns(step=placed) if places else piece.frame
            frame = frame.with_columns(step=self._of_lines(frame["step"]))
            before = self.step is not None or bool(places)  # what happened before the first row was survived
            yield Rows(table="events", frame=frame.with_columns(pl.col("step").fill_null(0)) if before else frame)
        yield from self._notes(placement)
        names = self.columns.names | self.unplaced.names | self.other_units.names
        yield from framework_facts(self.frameworks.pop() if len(self.frameworks) == 1 else framework_of(names))
        if (
            facts := self.config.facts
            | self._facts(placement)
            | ended
            | self.silence.facts(self.step)
            | self.samples.facts()
        ):
            yield Context(facts=facts)

    def _of_lines(self, places: pl.Series) -> pl.Series:
        """Replace places that are lines by the place of the last row above; null where there is none."""
        lines = [line for line, _ in sorted(self.recurred)]
        last = [None, *accumulate((at for _, at in sorted(self.recurred)), max)]
        found = [
            at if at is None or at > OF_LINES else last[bisect_right(lines, OF_LINES - at)] for at in places.to_list()
        ]
        return pl.Series("step", found, dtype=pl.Int64)

    def _places(self) -> list[int]:
        """Return the step of each row without one, else the last that another row had named, else its number."""
        known = zip(self.steps or [None] * len(self.numbers), self.stepped, self.numbers, strict=True)
        return [next(at for at in found if at is not None) for found in known]

    def _last_line(self) -> None:
        """Keep the last line of a console that does not say that or how it ended."""
        if self.last and self.endings.open:
            self.events.add(self.place, None, "last_line", BLOCKS.sub("|", self.last.decode("utf-8", "replace")))

    def _notes(self, placement: Placement | None) -> Iterator[Lost]:
        rel, count = self.file.rel, max(self.numbers, default=0)
        if self.headed:
            yield Lost(note=f"{rel}: {counted(self.headed, 'row(s)')} placed at the step of the headline before each.")
        if placement is None and (dropped := sum(self._dropped())):
            yield Lost(note=f"{rel}: {counted(dropped, 'row(s)')} printed with samples left out: no training curve.")
        if placement is not None:
            yield Lost(note=f"{rel}: {counted(count, 'row(s)')} without a step, placed by {placement.by}.")
            if placement.lost:
                note = f"{rel}: the console output was cut; printed rows missing: {placement.lost}."
                yield Lost(rows=placement.lost, note=note)
        elif count and "row" in self.units:
            yield Lost(note=f"{rel}: {counted(count, 'row(s)')} without a step, numbered from 1 in their order.")
        for unit in sorted(self.units - {"row"}):
            yield Lost(note=f"{rel}: rows are counted by {unit}, not by step.")
        if self.overwritten:
            note = f"{rel}: {counted(self.overwritten, 'row(s)')} lost where a progress bar overwrote the line."
            yield Lost(rows=self.overwritten, note=note)

    def _facts(self, placement: Placement | None) -> Facts:
        facts: Facts = {}
        if placement is not None:
            facts["rows_placed_by"] = placement.by
        units = self.units - {"row"} if placement is not None else self.units
        if units and not self.columns.names and (self.crowded or not self.headed) and placement is None:
            facts["row_unit"] = units.pop() if len(units) == 1 else "row"
        if (
            total := (placement.total if placement else None)
            or self.announced
            or self.epochs.max_steps
            or self.bars.agreed
            or (self.planned if self.step is not None and self.step <= (self.planned or 0) else None)
        ):
            facts["max_steps"] = total
        return facts


def _crowded(frames: list[pl.DataFrame]) -> pl.Series | None:
    """Return the lines of the metric printed many times at each count, as for each batch; None if there is none."""
    if not frames:
        return None
    rows = pl.concat(frames, how="vertical_relaxed")
    tally = rows.group_by("name_raw").agg(pl.len().alias("rows"), pl.col("step").n_unique().alias("counts"))
    crowded = tally.filter(pl.col("rows") > CROWD * pl.col("counts")).sort("rows", "name_raw", descending=[True, False])
    if not crowded.height:
        return None
    return rows.filter(pl.col("name_raw") == crowded["name_raw"][0])["seq"].sort().cast(pl.Int64)


def _is_step(row: ConsoleRow) -> bool:
    """Return whether a row without step is a training step's: not an evaluation, not the closing one."""
    return CLOSING not in row.values and not all(name.startswith("eval_") or name == "epoch" for name in row.values)


def _unnumbered_pieces(frames: Iterable[pl.DataFrame], numbers: list[int] | None) -> Iterator[Rows]:
    """Yield rows that are counted otherwise than by step; `numbers`: of the rows that the frames number from 0."""
    for frame in frames:
        if numbers is not None:
            frame = frame.with_columns(step=pl.Series(numbers, dtype=pl.Int64).gather(frame["step"]))
        yield Rows(table="metrics", frame=frame.with_columns(name_raw=UNNUMBERED + pl.col("name_raw")))


PARSER = Parser(
    name="console_log",
    describes="Console logs of any trainer: metrics as they are printed, how the run ended, lines of trouble.",
    held_against="real: TRL, veRL and minimind console logs; torchtune, Megatron, NeMo-RL and Lightning by source",
    priority=50,
    general=True,
    recognises=recognises,
    read=read,
)
