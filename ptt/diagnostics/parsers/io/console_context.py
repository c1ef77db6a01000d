"""Read lines of a console in the context of earlier ones: boxes, tables, epochs, redrawn bars.

Dicts printed over several lines are read at their last line. Words in other languages are translated if a number
follows. Text tables with column names in the first line come from fastai, pandas and home-made loops."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from typing import Final

from ptt.diagnostics.definitions import compiled
from ptt.diagnostics.parsers.io.console_lines import (
    DIALECTS,
    ConsoleRow,
    counted,
    labelled_dicts,
    may_name_counter,
    may_name_metric,
)
from ptt.diagnostics.parsers.io.console_pairs import (
    NUMBER,
    PAIR_CHARS,
    Counter,
    Values,
    counter_of,
    is_metric_name,
    lone_pair,
    number_of,
    of_split,
    pairs_of,
    printed_number,
)
from ptt.diagnostics.parsers.io.counters import COUNTERS, count_name
from ptt.diagnostics.parsers.io.printed_dicts import OpenDict
from ptt.diagnostics.parsers.io.printed_rows import Headlines, Uncounted

SPOKEN: Final = {
    "loss": "损失 損失 损失值 손실 verlust perte pérdida perdida perda потери потеря лосс ロス",
    "train_loss": "训练损失 訓練損失 학습손실 trainingsverlust",
    "val_loss": "验证损失 驗證損失 検証損失 검증손실 validierungsverlust",
    "reward": "奖励 獎勵 報酬 보상 belohnung récompense recompensa награда",
    "mean_reward": "平均奖励 平均獎勵 平均報酬 평균보상",
    "policy_loss": "策略损失",
    "value_loss": "价值损失",
    "accuracy": "准确率 準確率 精度 正解率 정확도 genauigkeit précision exactitude precisión acurácia точность",
    "perplexity": "困惑度 perplexité perplexität perplejidad перплексия",
    "entropy": "熵 エントロピー 엔트로피 entropie",
    "learning_rate": "学习率 學習率 学習率 학습률 lernrate",
    "grad_norm": "梯度范数 梯度範數 勾配ノルム",
    "epoch": "轮次 训练轮次 エポック 에폭 에포크 epoche époque época эпоха",
    "step": "步数 当前步数 步骤 ステップ 스텝 schritt étape passo paso шаг",
}  # fmt: skip
ENGLISH: Final = {word: name for name, words in SPOKEN.items() for word in words.split()}
BEFORE_NUMBER = r"(?=\s{0,4}[:=]?\s{0,4}[\[(]?\s{0,4}[+-]?(?:\d|nan\b|inf\b))"
SPOKEN_WORD: Final = compiled(
    rf"(?<![^\W\d_])({'|'.join(sorted(map(re.escape, ENGLISH), key=len, reverse=True))}){BEFORE_NUMBER}", re.IGNORECASE
)
ORDINAL: Final = compiled(r"第\s?(\d{1,9})(?:\s?/\s?(\d{1,9}))?\s?(轮|輪|步|个?epoch|エポック|ステップ)")
STEPS: Final = ("步", "ステップ")
WIDE: Final = str.maketrans("：，；（）＝｜【】", ":,;()=|[]")
ASCII: Final = tuple(word.encode() for word in ENGLISH if word.isascii())


def in_english(line: bytes, lower: bytes) -> bytes:
    """Return a line of a console with the words before its numbers in English."""
    if len(line) > PAIR_CHARS or (line.isascii() and not any(word in lower for word in ASCII)):
        return line
    text = line.decode("utf-8", "replace").translate(WIDE)
    told = SPOKEN_WORD.sub(_word, ORDINAL.sub(_ordinal, text))
    return line if told == text else told.encode("utf-8", "replace")


def _word(match: re.Match[str]) -> str:
    return ENGLISH[match[1].lower()]


def _ordinal(match: re.Match[str]) -> str:
    unit = "step" if match[3] in STEPS else "epoch"
    return f"{unit} {match[1]}" + (f"/{match[2]}" if match[2] else "")


COLUMNS: Final = compiled(r"\s*[|\u2502\u2503\t]\s*|\s{2,}")
NAME: Final = compiled(r"[^\W\d][\w/.@%()# -]{0,40}")
CELL: Final = compiled(rf"({NUMBER})(%)?")
RULE: Final = compiled(r"[\s|+=:\u2500-\u257f-]{1,400}")
OTHER_CELL: Final = compiled(r"[\w.:/% -]{0,40}")  # a time, a name, a dash
MAX_CHARS: Final = 1000
MAX_CELLS: Final = 64


def cells_of(text: str) -> list[str]:
    """Return the cells of a line, however they are separated."""
    return COLUMNS.split(text.strip(" |\t\u2502\u2503"), MAX_CELLS)


class TextTable:
    """A table whose header was read, and how its rows are counted."""

    def __init__(self, names: list[str], counter: str) -> None:
        self._names, self._counter = names, counter
        self.others = 0  # lines since the last row

    @classmethod
    def headed(cls, text: str) -> TextTable | None:
        """Return the table that a header begins: only names, one of them a counter and one a known metric."""
        if len(text) > MAX_CHARS:
            return None
        names = cells_of(text)
        if len(names) < 2 or len(set(names)) < len(names) or not all(map(NAME.fullmatch, names)):
            return None
        counters = [name for name in names if COUNTERS.get(count_name(name), (0, "row"))[1] != "row"]
        known = any(is_metric_name(name) for name in names if name not in counters)
        return cls(names, min(counters, key=lambda name: COUNTERS[count_name(name)])) if counters and known else None

    def row(self, text: str) -> tuple[Counter, Values] | None:
        """Read a line of the table; None for any other line."""
        cells = cells_of(text) if len(text) <= MAX_CHARS else []
        if len(cells) != len(self._names):
            return None
        values: Values = {}
        at: int | None = None
        for name, cell in zip(self._names, cells, strict=True):
            match = CELL.fullmatch(cell)
            if match is None and not OTHER_CELL.fullmatch(cell):
                return None
            if name == self._counter:
                at = int(cell.replace(",", "")) if cell.replace(",", "").isdecimal() else None
            elif match is not None:
                values[name] = printed_number(match[1], match[2])
        if at is None or not values:
            return None
        unit = COUNTERS[count_name(self._counter)][1]
        counter = Counter(epoch=at, unit="epoch") if unit == "epoch" else Counter(at=at, unit=unit)
        return counter, values


def is_rule(text: str) -> bool:
    """Return whether a line only rules a table."""
    return RULE.fullmatch(text) is not None


MAX_BETWEEN: Final = 3  # lines between two rows of a table: of a checkpoint, or a warning
BOX_LINES: Final = 60  # how many lines a headline applies to; one of all steps, `Step 3/100`, from each row on
EPOCH_LINES: Final = 8  # an epoch's headline: a summary follows at once, or else steps do
FOLLOWING_LINES: Final = 2  # that go on where a counted line ended: `average reward score: 0.5`
BANNER_CHARS: Final = 160
BANNER_WORDS: Final = 3  # beside the counter: `Starting epoch 3 of 10` is a headline, a sentence is not
INDENTED = compiled(r"\s{2,16}[\w/.@-]{1,120}=\S{1,40}")  # OLMo's: a name and its number, and nothing else
SPLITS: Final = frozenset({"train", "training", "val", "valid", "validation", "test", "eval", "dev"})
OTHER_WORDS: Final = 3  # in a line of numbers, beside their names
BULLETS: Final = ("•", "-", "*", "·")
HEADLINE_CHARS: Final = 300  # in a line that counts but has no numbers
BARS: Final = (b"\xe2\x94\x82", b"\xe2\x94\x83")  # separators of a box's cells
BOX_CELL = compiled(r"[│┃]\s*")
BOX_TITLES: Final = ("╭", "┌", "╔", "┏")  # `╭── Sample 1 | Reward: 1.0 ──╮`: of what is printed in the box
HELD_OUT_TITLE = compiled(r"\W{0,8}(?:eval|evaluation|validation|test) (?:results?|metrics)\W{0,4}", re.IGNORECASE)
OF_WORKER = compiled(rb"\s{0,4}\((?:[\w.:]{1,80} )?pid=\d")  # what a worker of Ray prints comes between any two lines
BOX_NUMBER = compiled(rf"({NUMBER})\s?(%)?")


class ConsoleContext:
    """Reads lines one after the other; `lower` is the line in lower case, for the cheap tests."""

    def __init__(self) -> None:
        self._banner: tuple[Counter, int] | None = None  # and for how many more lines it applies
        self._epoch = Counter()
        self._bar: tuple[Values, Counter] = {}, Counter()  # the last one that was taken
        self._loggers = False  # whether a trainer's own logger was seen: boxes are then those of samples' texts
        self._table: _Table | None = None
        self._columns: TextTable | None = None
        self._held_out = False  # whether a list of an evaluation's results goes on
        self._below: set[str] = set()  # names of what was read below the headline: a later value is another's
        self._dict = OpenDict()
        self.number = 0  # of the current line
        self.sampled = False  # whether its row belongs to the sample that was printed before it
        self.uncounted, self.headlines = Uncounted(), Headlines()

    def row(self, line: bytes) -> ConsoleRow | None:
        """Read one line, or the part between two carriage returns, as a log call; None if it is not one."""
        self.number += 1
        line = in_english(line, line.lower())
        if self._dict.open:
            whole = self._dict.add(line)
            if whole is not None and not self._dict.wrapped:
                return self._labelled(labelled_dicts(whole))
            if self._dict.open:
                return None
            line = line if whole is None else whole.encode()
        if (b"{'" in line or b'{"' in line) and b"}" not in line and self._dict.wraps(line):
            return None
        row = self._row(line, line.lower())
        if row is None:
            self.uncounted.other(line)
            return None
        self.sampled = not row.counter.known and self.uncounted.is_sampled(row.values)
        self.uncounted.counted()
        return row

    def _row(self, line: bytes, lower: bytes) -> ConsoleRow | None:
        if line[:1] in (b"|", b"-") and (self._table is not None or line.startswith(b"----------")):
            return self._table_row(line)
        text, counts = "", False
        for dialect in DIALECTS:
            if dialect.may_be(lower) and len(line) <= dialect.longest:
                text = text or line.decode("utf-8", "replace").rstrip()
                counts |= dialect.read is counted
                if row := dialect.read(text):
                    return self._labelled(row) if row.dialect == "labelled" else self._settled(row)
        if self._loggers or len(line) > PAIR_CHARS or (b"{" in line and self._dict.begins(line)):
            return None
        if counts and len(line) <= HEADLINE_CHARS:
            self._headline(text)
        if self._columns is not None and (row := self._text_row(line)):
            return row
        return self._box(line, lower, text)

    def _headline(self, text: str) -> None:
        """Note a line with a counter; the numbers for that count may follow."""
        text = unlogged(text)
        counter = counter_of(text, loose=True)[0]
        if counter.known:
            self.headlines.see(self.number, text, counter)

    def _labelled(self, row: ConsoleRow | None) -> ConsoleRow | None:
        """Return a row of dicts that gives its place; hold others back until they recur."""
        if row is None or row.counter.known or "epoch" in row.values:
            return row
        if self._banner and self._banner[1] > FOLLOWING_LINES:  # a headline, not a counted line
            return replace(row, counter=self._banner[0])
        self.uncounted.add(self.number, row.values)
        return None

    def _text_row(self, line: bytes) -> ConsoleRow | None:
        text = line.decode("utf-8", "replace").rstrip()
        table = self._columns
        found = table.row(text) if table else None
        if table is None or found is None:
            if table and not is_rule(text):
                table.others += 1
                self._columns = table if table.others <= MAX_BETWEEN else None
            return None
        table.others = 0
        return ConsoleRow(dialect="table", values=found[1], counter=found[0])

    def _settled(self, row: ConsoleRow) -> ConsoleRow | None:
        if row.dialect == "bar":
            counter = row.counter
            full = counter.total is not None and counter.at == counter.total and counter != self._bar[1]
            if row.values == self._bar[0] and not full:  # redrawn, with nothing logged since
                return None
            self._bar = row.values, counter
        self._held_out = False
        at, counter = self._epoch, row.counter
        if row.dialect in ("keras", "bar") and at.known and counter.total and counter.epoch is None:
            return replace(row, counter=replace(counter, epoch=at.epoch, epochs=at.epochs, nested=True))
        self._loggers |= row.framework is not None
        if row.dialect == "counted":  # what comes now may be of this line as well as of a headline before
            self._banner = (row.counter, FOLLOWING_LINES)
            self._below.clear()
        return row

    def _box(self, line: bytes, lower: bytes, text: str) -> ConsoleRow | None:
        """Read a headline, or a line of the box below one."""
        if may_name_metric(lower) and not _DIGIT.search(lower):
            self._columns = TextTable.headed(line.decode("utf-8", "replace")) or self._columns
            return None
        below = self._banner[0] if self._banner else None
        worker = OF_WORKER.match(line) is not None
        if self._banner and not worker:
            counter, left = self._banner
            self._banner = (counter, left - 1) if left > 1 else None
        if len(line) <= BANNER_CHARS and may_name_counter(lower):
            text = unlogged(text or line.decode("utf-8", "replace").rstrip())
            counter = banner(text.strip())
            if counter.known and (counter.total or not any(bar in line for bar in BARS)):  # no step of an answer's
                self._begin(counter)
                return None
        if b"results" in lower or b"metrics" in lower:
            self._held_out = HELD_OUT_TITLE.fullmatch(line.decode("utf-8", "replace").strip()) is not None
        elif self._held_out and not worker:
            self._held_out = _is_listed(unlogged(line.decode("utf-8", "replace").rstrip()))
        if not (below or may_name_metric(lower)) or not _DIGIT.search(lower):
            return None
        if below and any(bar in line for bar in BARS) and (cells := _box_cells(line.decode("utf-8", "replace"))):
            return self._row_below(below, cells)
        text = unlogged(text or line.decode("utf-8", "replace").rstrip())
        if text.lstrip().startswith(BOX_TITLES):
            return None
        listed = _is_listed(text)
        split = below is not None and "%|" not in text  # `Train: 0.25` below `Epoch 3`
        found = pairs_of(text, spaced=False)[0] or lone_pair(text)
        if len(WORD.findall(QUOTED.sub("=", text))) > sum(len(WORD.findall(name)) for name in found) + OTHER_WORDS:
            return None  # prose
        values = {
            name: value
            for name, value in found.items()
            if listed or is_metric_name(name) or (split and name.lower() in SPLITS)
        }
        if not values:
            return None
        if below:
            values = of_split(f"validation: {text}" if self._held_out else text, values)
            if below.unit == "epoch":
                self.uncounted.add_headed(self.number, values)
                return ConsoleRow(dialect="box", values=values, counter=below)
            return self._row_below(below, values)
        self.uncounted.add(self.number, of_split(text, values))
        return None

    def _begin(self, counter: Counter) -> None:
        """Take a headline; one that names the same step again, as `Saving step 3` in step 3, begins none."""
        before = self._banner
        again = before is not None and before[0].at == counter.at is not None
        lines = EPOCH_LINES if counter.unit == "epoch" else BOX_LINES
        if before is None or not again:
            self._below.clear()
        if before is None or not again or (counter.total and not before[0].total):
            self._banner = counter, lines
        else:
            self._banner = before[0], max(before[1], lines)
        self._epoch = counter if counter.epoch is not None else self._epoch
        self._held_out = False

    def _row_below(self, headline: Counter, values: Values) -> ConsoleRow | None:
        """Return the values below a headline that it has not named yet."""
        new = {name: value for name, value in values.items() if name not in self._below}
        self._below |= new.keys()
        if new and headline.total and self._banner and self._banner[1] > FOLLOWING_LINES:
            self._banner = self._banner[0], BOX_LINES
        return ConsoleRow(dialect="box", values=new, counter=headline) if new else None

    def _table_row(self, line: bytes) -> ConsoleRow | None:
        if line.startswith(b"----------"):
            row = self._table.row() if self._table else None
            self._table = _Table()
            return row
        if self._table is not None and not self._table.add(line.decode("utf-8", "replace")):
            self._table = None
        return None


def _is_listed(text: str) -> bool:
    return text.lstrip().startswith(BULLETS) or INDENTED.fullmatch(text) is not None


_DIGIT = compiled(rb"\d")


def _box_cells(text: str) -> Values:
    """Return the numbers in a box's row, in which names and numbers alternate."""
    cells = [cell.strip() for cell in BOX_CELL.split(text) if cell.strip()]
    pairs = zip(cells[::2], cells[1::2], strict=False)
    return {name: printed_number(match[1], match[2]) for name, cell in pairs if (match := BOX_NUMBER.fullmatch(cell))}


WORD = compiled(r"[^\W\d_]+")
QUOTED = compiled(r"=\s?(?:'[^']{0,400}'|\"[^\"]{0,400}\")")  # a sample's text beside its numbers
# What Python's logging puts in front: the time, perhaps host and logger, and the level, in this order.
TIME = compiled(r"\[?(?:\d{4}[-/]?\d\d[-/]?\d\d[ T-])?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?!\d)")
LEVEL = compiled(r"\b(?:INFO|DEBUG|WARNING)\b\]?(?: ?[\t:|-])?(?=\s|$)")
PLACE = compiled(r"[ |]{0,8}[\w.]{1,80}:[\w.<>]{1,80}:\d{1,6} - ")  # loguru's, in the code
LEVEL_FIRST = compiled(r"(?:INFO|DEBUG):[\w.]{1,80}:")
PREFIX_CHARS: Final = 160  # of time, host, logger and level
PREFIX_WORDS: Final = 5  # more make a sentence that mentions a level


def unlogged(text: str) -> str:
    """Return a line without the prefix of its logger."""
    end = 0
    if time := TIME.match(text):
        level = LEVEL.search(text, time.end(), PREFIX_CHARS)
        if level and len(text[time.end() : level.start()].split()) <= PREFIX_WORDS:
            end = place.end() if (place := PLACE.match(text, level.end())) else level.end()
    elif level := LEVEL_FIRST.match(text):
        end = level.end()
    return text[end:].removeprefix(" ") if end else text


SETTING = compiled(r"(?:steps|iters|epochs|episodes|batches) ?[=:]", re.IGNORECASE)  # how many there are to be


def banner(text: str) -> Counter:
    """Read a headline that counts and says nothing more: `===== Step 3/100 =====`, `Epoch 2/5`, `Iteration 7:`."""
    counter, rest = counter_of(text)
    if counter.total is None and SETTING.search(text):
        return Counter()
    if counter.known and not any(map(str.isdigit, rest)) and len(WORD.findall(rest)) <= BANNER_WORDS:
        return counter
    return Counter()


CELLS = compiled(r"\|\s{0,40}([^|]{1,80}?)\s{0,80}\|\s{0,40}([^|]{0,80}?)\s{0,80}\|\s*")
TABLE_STEPS: Final = (
    "time/total_timesteps", "total_timesteps", "TotalEnvInteracts", "timesteps_total", "misc/total_timesteps",
    "TimestepsSoFar", "frame", "frames", "timesteps",
    "iterations", "time/iterations", "n_updates", "nupdates", "misc/nupdates", "Epoch", "epoch", "steps", "step",
)  # fmt: skip


class _Table:
    """A table of names and numbers between two rules, as Stable-Baselines3, Baselines and Spinning Up print it."""

    def __init__(self) -> None:
        self.group = ""
        self.values: Values = {}

    def add(self, line: str) -> bool:
        """Take a line; False if it is not part of such a table."""
        match = CELLS.fullmatch(line.rstrip())
        if match is None:
            return False
        name, text = match.groups()
        if name.endswith("/") and not text:
            self.group = name
            return True
        with suppress(ValueError):  # a text
            self.values[self.group + name if self.group and "/" not in name else name] = number_of(text)
        return True

    def row(self) -> ConsoleRow | None:
        """Return the table as a log call."""
        key = next((key for key in TABLE_STEPS if key in self.values), None)
        at = self.values.pop(key) if key else None
        if not any(map(is_metric_name, self.values)):
            return None
        counter = Counter(at=int(at)) if at is not None and at == at and abs(at) < 2**62 else Counter()
        return ConsoleRow(dialect="table", values=self.values, counter=counter)
