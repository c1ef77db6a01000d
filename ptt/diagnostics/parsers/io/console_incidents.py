"""What the lines between a console's rows tell: samples that failed or were dropped, by step, and a run that stalls."""

from __future__ import annotations

import re
from collections import Counter as Tally
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

import numpy as np

from ptt.diagnostics.definitions import compiled
from ptt.diagnostics.parsers.io.telemetry import ESCAPES, NOISE, Facts, safe_line
from ptt.diagnostics.parsers.io.tracebacks import without_prefix

NAME: Final = "console_lines/"  # of the series that count lines: `console_lines/dropped/<words of the line>`
UNIT: Final = (
    r"(?:samples?|rollouts?|episodes?|trajector(?:y|ies)|completions?|generations?|groups?|prompts?|rows?|requests?|"
    r"sessions?|sandbox(?:es)?|environments?|envs?|verif\w{1,9}|rewards?|scor(?:er|ing|e)|grad(?:er|ing)|judges?|"
    r"tool(?: ?call)?s?|tasks?|instances?)"
)
"""What a line must speak of to count: a failed import or a dropped packet is no sample."""
WAITING: Final = "waiting"
TIMEOUT: Final = (
    r"\btim(?:ed|ing)[ -]?out\b|\btimeouts\b|Timeout(?:Error|Exception|Expired)|(?:\b|(?-i:(?<=[a-z])(?=T)))timeout\b"
    r"(?!\s?(?:[=:(]|of|is|set)\s?\w*\s?\d(?!.*(?:exceed|expire|reach|wait)))"
)
"""Something timed out; a timeout with its number of seconds is a setting, unless it was exceeded or waited for."""
ZERO: Final = r"(?:0(?:\.0{1,6})?(?!\.?\d)|zero\b)"
SCORE: Final = r"(?<! in )\b(?:rewards?|scores?|grades?)(?: (?:for|of)(?: [\w#-]{1,40}){1,3})?"
SCORER: Final = r"\b(?:reward|scorer|grader|verifier|judge)(?: (?:function|fn|model|server|worker|call))?"
MASKED: Final = r"\bset(?:ting)? (?:\w+ ){0,2}\w{0,20}masks? to (?:all )?(?:0s?|zeros?)\b"
"""A sample that stays in the batch and trains nothing."""
KINDS: Final = {
    "unscored": rf"{SCORE} (?:is|was|are|were) None\b|{SCORER} (?:returned|returning|returns|got) None\b|"
    rf"{SCORE} (?:(?:is|was|are|were|will be) )?(?:auto-)?set to {ZERO}|"
    rf"\bset(?:ting)? (?:\w+ ){{0,2}}(?:reward|score|grade)s? to {ZERO}|"
    rf"\bscor(?:e|ed|ing) (?:\w+ ){{0,2}}as {ZERO}|\bscoring {ZERO}(?=[.,;)]|$)|"
    rf"\bscores?\b[^.]{{0,40}}\bdefault(?:ed|ing) to {ZERO}|"
    rf"\bassign(?:s|ed|ing)? (?:an? )?(?:(?:reward|score)s? ){{0,2}}(?:of )?{ZERO}",
    "evicted": r"\bevict\w{0,4}\b|\b(?:too |as )?stale\b",
    "dropped": r"\b(?:dropp(?:ed|ing)|discard(?:ed|ing)|throw(?:n|ing) away|skipp(?:ed|ing))\b",
    "timed_out": TIMEOUT,
    "retried": r"\bretr(?:y|ying|ied|ies)\b|\bre-?(?:dispatch|schedul|queu|submit)\w{0,4}\b",
    WAITING: r"\bno progress\b|\b(?:still )?waiting (?:for|on)\b|\bstuck\b",
    "failed": r"\bempty (?:output|response|completion|generation|trajector)\w{0,4} (?:for|from|of|in)\b"
    r"|\bfail(?:ed|ures?|ing|s)?\b|\berror(?:ed)?\b|\b\w{2,40}(?:Error|Exception)\b|\bcrashed\b|\baborted\b"
    r"|\bHTTP (?:status |code ){0,2}[4-7]\d\d\b|\b(?:no|without) (?:interactions|traces|token (?:ids|data))\b"
    rf"|{MASKED}",
}
"""How a line says what became of a sample, the plainest first: what was dropped after a timeout was dropped."""
TROUBLE: Final = "trouble"
OF_TROUBLE: Final = compiled(
    rf"{KINDS['failed']}|{TIMEOUT}|{KINDS['retried']}|\brefused\b|\bunreachable\b|\bunavailable\b|\bunhealthy\b|"
    r"\bout of memory\b|\bOOM\b|\bno (?:space|resources)\b|\b(?:died|dead|killed|exited|lost|restart\w{0,4})\b|"
    r"\bfall(?:s|ing)?[ -]?back\b|\brate.?limit|\bgiving up\b|\bbroken\b|\bterminated abruptly\b|"
    r"\borphan(?:ed)?\b|\bunreleased\b|\bleak(?:s|ed|ing)\b(?! (?:semaphore|shared))|\bproduced no\b|"
    r"\bexception (?:in|while|when|during)\b|\bdeadline exceeded\b|\bexceeded (?:\w+ ){0,2}time budget\b|"
    r"\bempty (?:output|response|completion|generation)\b",
    re.IGNORECASE,
)
"""A line of trouble that speaks of no sample: of a server, a network, a worker."""
NO_TROUBLE: Final = compiled(
    r"(?i)\bmax_?retr|\bretries\s?[=:]|\b(?:error|fail)\w{0,5}[_ ]?(?:rate|ratio|mean)?\s?[:=]\s?[\d.]"
)
"""A setting, or a figure among others."""
PATTERNS: Final = {kind: re.compile(pattern, re.IGNORECASE) for kind, pattern in KINDS.items()}
MARKS: Final = (b"ail", b"rror", b"xception", b"rop", b"iscard", b"hrow", b"kipp", b"ime", b"imi", b"etr", b"tale",
                b"vict", b"bort", b"rash", b"redisp", b"resch", b"re-", b"progress", b"aiting", b"tuck", b"requeu",
                b"resub", b"efused", b"nreach", b"memory", b"OOM", b"died", b"dead", b"kill", b"lost", b"exited",
                b"HTTP", b"limit", b"allback", b"alling back", b" None", b"_parsed", b"_extracted",
                b"set to", b" to 0", b" to zero", b" as 0", b" as zero", b"ssign", b"coring 0", b"eadline", b"xceeded",
                b"interactions", b"traces", b"token ids", b"token data", b"iving up", b"roken", b"bruptly", b"rphan",
                b"nreleased", b"leak", b"ask to ", b"asks to ", b"roduced no", b"mpty ")  # fmt: skip
UNREAD: Final = compiled(
    r"\b(?:fail(?:ed|ure|s|ing)? to|could ?n[o']t|cannot|unable to) (?:parse|extract|read|verify) (?:\w+ ){0,2}"
    r"(?:gold|reference|ground[ -_]?truth)\b(?! model)"
    r"|\b(?:gold|reference|ground_truth)_(?:parsed|extracted)\s?[:=]\s?(?:\[\s?\]|None\b|'')",
    re.IGNORECASE,
)
"""The verifier cannot read the right answer: no answer of the policy can be scored."""
OF_SAMPLES: Final = compiled(rf"(?<![A-Za-z]){UNIT}(?![a-z])|{UNIT}(?=[A-Z])", re.IGNORECASE)
QUEUES: Final = compiled(
    r"\A(?=.*\bno progress\b)(?=.*\b(?:queue|collected|workers?)\b)|\baborted\W{1,3}exception\b", re.IGNORECASE
)
HEADED: Final = compiled(
    r"(?:\S{1,80} )?(?:\[\w{1,40}\] ){0,3}(?:training |train |global )?step ?#?(\d{1,9})[:,]", re.IGNORECASE
)
"""A line that begins with the step it speaks of."""
NONE: Final = compiled(
    r"\bNamespace\(.*|\b(?:no|without|0|zero) (?:\w+ )?(?:fail|error|timeout|dropp|skipp|retr)\w{0,5}|"
    r"\b(?:fail|error|drop|skipp|tim(?:ed|e|ing)[ _-]?out)\w{0,5}(?: \w{1,20}){0,2}\s?[:=]\s?0\b(?!\.\d)",
    re.IGNORECASE,
)
NO_SAMPLES: Final = (
    r"(?!(?:s|m|h|ms|secs?|seconds?|mins?|minutes?|hours?|errors?|attempts?|retr\w*|tries|times|for|in|of|to|from|by|on|"
    r"at|with)\s)"
)
"""A number before these words is no count of samples."""
NUMBERED: Final = compiled(
    rf"(?<![\w.#-])(\d{{1,6}})(?:\s?(?:/|of|out of)\s?\d{{1,6}})?\s(?:{NO_SAMPLES}\w{{1,20}}\s){{0,2}}{UNIT}(?![a-z])",
    re.IGNORECASE,
)
ALIKE: Final = bytes.maketrans(
    b"123456789", b"777777777"
)  # a line and the next differ by digits; a 0 says that none was
DONE: Final = compiled(rb"\b(HTTP (?:status |code ){0,2})[1-3]\d\d\b", re.IGNORECASE)
"""A status of success, which its digits alone tell from one of failure."""
MAX_CACHED_LINES: Final = 10_000  # distinct lines, digits aside, whose reading is cached
WORD: Final = compiled(r"[A-Za-z][A-Za-z]+")
INSTANCE_NAME: Final = compiled(r"(?<!\S)[\w.]*\w[_-]\S*\d[\w-]*")  # one sample's or one machine's own name
MAX_WORDS: Final = 7  # of a line that name what happened
ALIKE_WORDS: Final = 0.8  # of the words: names of hosts and folders may be masked
MAX_SHAPES: Final = 12  # of a kind: a line that holds names of samples would otherwise make a series of each
MAX_TROUBLES: Final = 40  # of lines that speak of no sample: what is new where a metric breaks must not be lost
OTHER: Final = "other"

MAX_CHARS: Final = 1000  # of a line that are looked at
LOGGER: Final = compiled(
    r"^(?:\d\d:\d\d:\d\d[.,\d]*\s+|\[[^\]]{1,60}\]\s*|(?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL)\b:?\s*|"
    r"[\w./-]{1,80}\.py:\d{1,6}\s*[-:]?\s*)+"
)
"""A time without a date, groups in brackets, a level, a place in the code."""

STAMP: Final = compiled(r"(?<![<\d])(?:(\d{4})[-/](\d\d)[-/](\d\d)[ T_-])?(\d\d):(\d\d):(\d\d)(?![\d<])")
"""A date, if there is one, and a time of day; a bar's elapsed and remaining times, `10:02:03<00:40:00`, are none."""
STAMPED: Final = 160  # letters at the beginning of a line in which its time stands
DAY: Final = 86400.0
BACK: Final = 0.5 * DAY  # a clock without a date that falls by more passed midnight
ROW_GAP: Final = 1.0  # seconds: rows printed closer together are of one step
MIN_ROWS: Final = 5  # with a time: from fewer no usual distance is known
LONG_STEP: Final = 98.0  # percentile of the times between rows: one of a hundred is a restart or an evaluation
TRAILING_LINES: Final = 400  # after the last row; the most frequent of them is quoted
LAST_SAID: Final = 3  # of a repeated line: they must follow the last row
WAITS: Final = compiled(
    rf"\bwait(?:s|ing)?\b|\bretr(?:y|ie)|{TIMEOUT}|\berror|(?-i:[a-z](?:Error|Exception))\b|\bdropp|\bfail|\bstuck\b|"
    r"\b(?:hang(?:s|ing)?|hung|unreachable|refused|pending|not ready|no response|unavailable|idle|unhealthy|blocked|"
    r"exhausted)\b",
    re.IGNORECASE,
)
BUSY: Final = compiled(
    r"throughput|\breqs?\b|\b(?:waiting|pending|errors?|failed|dropped)\s?[:=]\s?0\b|"
    r"\bwaiting for (?:(?:new|incoming|more) )?(?:requests|connections|jobs)\b(?! to\b)",
    re.IGNORECASE,
)
"""An engine's statistics, a count of none, a server without work: nothing waits for what does not come."""
DIGITS: Final = compiled(r"\d+(?:\.\d+)?")


def speaks_of_samples(text: str) -> bool:
    """Return whether a line says that a sample failed, was dropped, timed out or was tried again."""
    return kind_of(text) is not None


BY_DESIGN: Final = compiled(r"(?i)\b(?:eval\w*|skip\w*|disabled|initial|cached?|optional)\b")
"""Words of lines that say why nothing is scored, and that it need not be."""


def kind_of(text: str) -> str | None:
    """Return what a line says became of samples, or None."""
    if UNREAD.search(text):
        return "unscored"
    if NOISE.search(text) or not (OF_SAMPLES.search(text) or QUEUES.search(text)):
        return None
    said = NONE.sub("", text)
    kind = next((kind for kind, pattern in PATTERNS.items() if pattern.search(said)), None)
    return None if kind == "unscored" and BY_DESIGN.search(said) else kind


def _is_trouble(text: str) -> bool:
    return bool(OF_TROUBLE.search(NONE.sub("", text))) and not (NOISE.search(text) or NO_TROUBLE.search(text))


def words_alike(text: str, shape: str) -> bool:
    """Return whether a line is one of those that a series counts by their first words, whatever was put before it."""
    words = shape.split()
    return len(set(words) & set(WORD.findall(text))) >= ALIKE_WORDS * len(set(words))


def _shape(text: str) -> str:
    return " ".join(WORD.findall(INSTANCE_NAME.sub(" ", safe_line(text)))[:MAX_WORDS])


def _spoken(line: bytes) -> str:
    return without_loggers(ESCAPES.sub("", line[:MAX_CHARS].decode("utf-8", "replace")))


def without_loggers(text: str) -> str:
    """Return what a line says, without what launchers and loggers put before it."""
    return LOGGER.sub("", without_prefix(text.strip()))


LOADERS: Final = (b"oader", b"ataset", b"xhausted", b"pisode [1/1]")
PROMPT_BAR: Final = compiled(r"^\W{0,4}Episode \[1/1\]: +\d+%\|.{0,400}?\| *\d[\d,]*/(\d[\d,]{1,11})\b")
"""OpenRLHF's bar of a single pass: of prompts, not of steps, where it exceeds the steps (data_position.py)."""
LOADED: Final = compiled(
    r"(?i)^(?!.*\b(?:val|validation|eval|evaluation|test)\b)(?=.*\b(?:train\w*|prompts?)\b)"
    r".*\bdata ?(?:loader|set)\b\D{0,25}(\d[\d,]{1,11}) (?:samples|prompts|examples|rows|records)\b"
)
EXHAUSTED: Final = compiled(r"(?i)\b(?:data ?loader|data ?set|prompts?)\b.{0,12}\bexhausted\b")


class SampleLines:
    """Counts lines that speak of lost samples, at the step of the next row: it is logged when its samples are done."""

    def __init__(self) -> None:
        self._shapes: dict[str, list[str]] = {}
        self._ones: Tally[tuple[str, str]] = Tally()  # lines without a number: one sample each
        self._sums: Tally[tuple[str, str]] = Tally()  # lines that say how many
        self._read: dict[bytes, tuple[str, str, bool] | None] = {}  # by line without its numbers
        self.waited: set[str] = set()  # names of the series that count waiting
        self._headed: Tally[tuple[int, str]] = Tally()  # lines that name their step, by it and by the series' name
        self._loaded: int | None = None  # prompts of the training data
        self._passes: list[int] = []  # through the data, as they end: the steps trained in each
        self._steps = 0

    def see(self, line: bytes) -> None:
        """Take a line that is no row."""
        if any(mark in line for mark in LOADERS):
            self._see_data(line[:MAX_CHARS].decode("utf-8", "replace"))
        if not any(mark in line for mark in MARKS):
            return
        masked = DONE.sub(rb"\g<1>000", line[:MAX_CHARS]).translate(ALIKE)
        if masked not in self._read:
            if len(self._read) >= MAX_CACHED_LINES:
                self._read.clear()
            self._read[masked] = self._words(_spoken(masked))
        if (words := self._read[masked]) is None:
            return
        kind, shape, numbered = words
        text = _spoken(line) if numbered else ""
        if headed := HEADED.match(text):
            told, name = NUMBERED.search(text, headed.end()), f"{NAME}{kind}/{shape}"
            self._headed[int(headed[1]), name] += int(told[1]) if told else 1
            self.waited |= {name} if kind == WAITING else set()
            return
        told = NUMBERED.search(text)
        counts = self._ones if told is None else self._sums
        counts[kind, shape] += 1 if told is None else int(told[1])

    def _words(self, text: str) -> tuple[str, str, bool] | None:
        """Return the kind of a line, the words that name what happened, and whether a number in it counts."""
        kind = kind_of(text) or (TROUBLE if _is_trouble(text) else None)
        if kind is None:
            return None
        headed = HEADED.match(text)
        start = headed.end() if headed is not None else 0
        if masked := re.search(MASKED, text, re.IGNORECASE):
            start = masked.start()
        shape = self._shape(kind, text[start:])
        return kind, shape, headed is not None or NUMBERED.search(text) is not None

    def _see_data(self, text: str) -> None:
        if EXHAUSTED.search(text):
            self._passes.append(self._steps - sum(self._passes))
        elif found := LOADED.search(text) or PROMPT_BAR.search(text):
            self._loaded = int(found[1].replace(",", ""))

    def facts(self) -> Facts:
        """Return how many prompts the data hold, how often they were exhausted, and how often without a step."""
        facts: Facts = {} if self._loaded is None else {"data_prompts": self._loaded}
        if self._passes:
            empty = sum(not steps for steps in self._passes)
            facts |= {"data_exhausted": len(self._passes), "data_exhausted_without_step": empty}
            facts |= {"data_exhausted_after_steps": sum(self._passes)}
        return facts

    def headed(self) -> Iterator[tuple[int, str, int]]:
        """Yield step, name and count of the lines that name their step."""
        yield from ((step, name, count) for (step, name), count in sorted(self._headed.items()))

    def take(self) -> Iterator[tuple[str, int]]:
        """Yield what was counted, by name, and start again.

        Lines that tell a number sum up those that do not: of both, the larger sum counts.
        """
        self._steps += 1
        for kind in dict.fromkeys(kind for kind, _ in (*self._ones, *self._sums)):
            either = [{key: n for key, n in one.items() if key[0] == kind} for one in (self._ones, self._sums)]
            larger = max(either, key=lambda counts: sum(counts.values()))
            yield from ((f"{NAME}{kind}/{shape}", n) for (_, shape), n in sorted(larger.items()))
            if kind == WAITING:
                self.waited |= {f"{NAME}{kind}/{shape}" for _, shape in larger}
        self._ones.clear()
        self._sums.clear()

    def _shape(self, kind: str, text: str) -> str:
        shape = _shape(text)
        known = self._shapes.setdefault(kind, [])
        if shape not in known:
            if len(known) >= (MAX_TROUBLES if kind == TROUBLE else MAX_SHAPES):
                return OTHER
            known.append(shape)
        return shape


def _waits(line: bytes) -> str:
    """Return what a line of waiting or failing says, its numbers left out; nothing for any other line."""
    text = _spoken(line)
    waits = WAITS.search(NONE.sub("", text)) and "%|" not in text and not BUSY.search(text)
    return DIGITS.sub("N", safe_line(text)) if waits else ""


class Clock:
    """Reads the times at the beginning of lines, in seconds; without a date, from the first midnight on.

    `dated`: whether they name dates; where None, the first time that is read decides. Times of the other kind are
    passed over: no distance between both is known.
    """

    def __init__(self, *, dated: bool | None = None) -> None:
        self.dated = dated
        self._last, self._days = 0.0, 0.0

    def read(self, line: bytes) -> float | None:
        """Return the time of a line, or None where it names none."""
        if b":" not in line[:STAMPED]:
            return None
        stamps = STAMP.finditer(line[:STAMPED].decode("utf-8", "replace"))
        match = next((one for one in stamps if self.dated in (None, one[1] is not None)), None)
        if match is None:
            return None
        year, month, day, *time = match.groups()
        hour, minute, second = map(int, time)
        if max(minute, second) > 59 or hour > 23:
            return None
        if year is None:
            self.dated = False
            at = 3600.0 * hour + 60.0 * minute + second
            self._days += DAY * (at + self._days < self._last - BACK)
            self._last = max(self._last, at + self._days)
            return at + self._days
        try:
            at = datetime(int(year), int(month), int(day), hour, minute, second, tzinfo=UTC).timestamp()
        except ValueError:
            return None
        self.dated = True
        return at


class Silence:
    """What a console says after its last row, and for how long."""

    def __init__(self) -> None:
        self._clock, self._calendar = Clock(), Clock(dated=True)
        self._rows: list[float] = []
        self._begun = False  # a row was seen
        self._from: float | None = None  # first date and time of a console without rows
        self._lines: deque[bytes] = deque(maxlen=TRAILING_LINES)
        self._count = 0

    def row(self, line: bytes) -> None:
        """Take a line that holds a row."""
        at = self._clock.read(line)
        if at is not None and (not self._rows or at - self._rows[-1] >= ROW_GAP):
            self._rows.append(at)
        self._begun = True
        self._lines.clear()
        self._count = 0

    def line(self, line: bytes) -> None:
        """Take any other line."""
        self._count += 1
        self._lines.append(line)
        if self._from is None and not self._begun:
            self._from = self._calendar.read(line)

    def facts(self, step: int | None) -> Facts:
        """Return the time between rows, and what came after the last one: how long, how many lines, which most often.

        `step`: of the last row; `rows_until`, of a console whose lines name dates, is in seconds of the epoch. A
        console without rows tells by names of its own, so that what it says is not taken for another's.
        """
        if not self._begun:
            return self._without_rows()
        facts: Facts = {}
        if len(self._rows) >= MIN_ROWS:
            facts["long_step_seconds"] = float(np.percentile(np.diff(self._rows), LONG_STEP))
        if self._rows and self._clock.dated:
            facts["rows_until"] = self._rows[-1]
        said, times = self._most_frequent()
        until = next((at for line in reversed(self._lines) if (at := self._clock.read(line)) is not None), None)
        if said and until is not None and self._rows:
            told: Facts = {"silent_says": said, "silent_said": times, "silent_lines": self._count}
            facts |= told | {"silent_seconds": until - self._rows[-1]}
            facts |= {} if step is None else {"silent_after_step": step}
        return facts | ({} if step is None or not facts else {"rows_until_step": step})

    def _without_rows(self) -> Facts:
        """Return, in seconds of the epoch, when the console begins and when its most frequent line came last.

        `lines_said_from`: of the last LAST_SAID such lines, when the first came.
        """
        said, times = self._most_frequent()
        repeated = (
            at for line in self._lines if _waits(line) == said and (at := self._calendar.read(line)) is not None
        )
        last = sorted(repeated)[-LAST_SAID:] if said else []
        if self._from is None or len(last) < LAST_SAID:
            return {}
        return {"lines_from": self._from, "lines_until": last[-1], "lines_said_from": last[0],
                "lines_count": self._count, "lines_say": said, "lines_said": times}  # fmt: skip

    def _most_frequent(self) -> tuple[str, int]:
        """Return the line of waiting or failing that comes most often, its numbers left out, and how often."""
        tally = Tally(said for line in self._lines if (said := _waits(line)))
        if not tally:
            return "", 0
        said, times = max(tally.items(), key=lambda entry: entry[1])
        return said, times if len(self._lines) == self._count else round(times * self._count / len(self._lines))
