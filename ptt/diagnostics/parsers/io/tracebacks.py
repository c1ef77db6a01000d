"""How a run ended, as its console tells it: exceptions and the line that raised, signals, closing words."""

from __future__ import annotations

import re
from collections import Counter as Tally
from collections import deque
from dataclasses import field
from typing import Final

from ptt.diagnostics.definitions import compiled, dataclass
from ptt.diagnostics.parsers.io.telemetry import EventLog, Facts

FRAME = compiled(r"^\s*(?:│\s*)?(?:[❱>]\s*)?File \"(?P<file>[^\"]{1,400})\", line (?P<line>\d{1,7})")
RICH_FRAME = compiled(r"│\s?(?P<file>[^\s│][^│:]{0,300}\.py):(?P<line>\d{1,7}) in ")
RAISED = compiled(
    r"(?P<name>(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Za-z_]\w{0,80})(?:\((?P<cause>\w{1,80})\))?(?P<message>:(?:\s.*)?)?"
)
EXCEPTION_NAME = compiled(r"(?:Error|Exception|Interrupt|Exit|Warning|Failure|Timeout|Abort|Signal|Expired|Cancelled)$")
CHAIN: Final = ("During handling of the above exception", "The above exception was the direct cause")
LIBRARY = compiled(r"site-packages|dist-packages|/lib/python\d|<frozen |<string>|<__array_function__|/ray/_private/")
# Raised because another process had failed: they say that, and not why.
CONSEQUENCES: Final = frozenset({"ChildFailedError", "RayTaskError", "CalledProcessError", "ProcessRaisedException",
                                 "ProcessExitedException", "WorkerCrashedError", "RayActorError"})  # fmt: skip
# The first of a chain of exceptions where a library is missing or was built for another: all that follows says less.
ROOTS: Final = frozenset({"ImportError", "ModuleNotFoundError"})
MESSAGE_CHARS: Final = 400
NONE: Final = " "  # for an exception without a message; an empty one continues on the next line
SHAPE_CHARS: Final = 36  # of an exception, used to recognise it again: a sample's text may follow
MANY_SURVIVED: Final = 5  # exceptions of one shape that training survived: the next one does not end it either
REPEATED: Final = compiled(r"\[repeated \d+x across cluster\]")  # Ray's mark on lines of its workers
DIGITS: Final = compiled(r"\d+")
MAX_TRACE_LINES: Final = 400  # in one traceback; Python itself shortens a deeper recursion

PREFIX = compiled(
    r"(?:\([\w.:<>-]{1,80} pid=\d+(?:, ip=[^)]{1,60})?\)|\[?(?:rank|default)\d{1,5}\]?:|\[rank\d{1,5}\]|\d{1,4}:(?= )"
    r"|\[?\d{4}[-/]\d\d[-/]\d\d[ T_]\d\d:\d\d(?::\d\d)?(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?"
    r"|[IWEF]\d{4} \d\d:\d\d:\d\d[.\d]* +\d+ [^\s\]]{1,120}\]"
    r"|\[?(?:DEBUG|INFO|WARNING|ERROR|CRITICAL|FATAL|SUCCESS|stderr|stdout)\]?:?(?: {1,6}(?= \|))?|-|\||"
    r"\[(?=[\d./-]*[A-Za-z_])[\w./-]{1,120}(?:\.py:\d{1,6})?\]"
    r"|[\w.]{1,80}:[\w.<>]{1,80}:\d{1,6} -)"
    r"(?: |$|(?<=\]:))"
)
MAX_PREFIXES: Final = 8
BAR = compiled(r"^.{0,400}?(?:\d{1,3}%\|[^|]{0,600}\|\s{0,8}\d+/\d+|\d+it) \[[^\[\]]{0,400}\]\s{0,200}")


def without_bar(text: str) -> str:
    """Remove a progress bar, which does not end its line: the next output follows it."""
    while ("%|" in text or "it [" in text) and (match := BAR.match(text)):
        text = text[match.end() :]
    return text


def without_prefix(text: str) -> str:
    """Take off what launchers and loggers put before a line: actors, ranks, times, levels."""
    at = 0
    for _ in range(MAX_PREFIXES):
        match = PREFIX.match(text, at)
        if match is None:
            break
        at = match.end()
    return text[at:]


# What ends a run from outside, or below Python: a part of the line in lower case, and the pattern it then must match.
SIGNALS: tuple[tuple[tuple[str, ...], re.Pattern[str]], ...] = tuple(
    (marks, compiled(pattern, re.IGNORECASE))
    for marks, pattern in (
        (
            ("killed", "terminated", "aborted", "segmentation", "bus error"),
            r"^(?:\S{1,200}: line \d+: +\d+ )?(?:killed|terminated|aborted|segmentation fault|bus error)\b"
            r"(?: \(core dumped\))?(?:\s{2,}.*)?$",
        ),
        (("cancelled", "due to"), r"cancelled at .{1,40}|due to (?:time limit|preemption|node failure|task failure)"),
        (
            ("oom", "out of memory", "memory pressure"),
            r"oom[-_ ]?kill|out of memory: kill|killed due to memory pressure",
        ),
        (
            ("signal",),
            r"(?:received|caught|got|by|with|death)\s(?:an? )?(?:termination |death )?signals?[ :.]{1,2}\S{1,12}",
        ),
        (("sig",), r"(?:received|caught|got|by)\s(?:signals\.)?sig(?:term|kill|int|hup|segv|abrt|bus|usr\d)"),
        (("signal",), r"signal \d{1,2} \(sig[a-z]{3,5}\) received"),
        (("interrup",), r"keyboard ?interrupt|interrupted by (?:the )?user|training (?:was )?interrupted"),
        (("interrup",), r"signal\b.{0,24}\binterrup\w{0,6}|\binterrupt(?:ion)? (?:signal|received|detected)"),
        (("preempted",), r"\bpreempted\b"),
        (("training",), r"\btraining (?:error|failed|crashed|aborted)\b"),
        (("watchdog",), r"watchdog caught collective operation timeout"),
        (("memory",), r"outofmemoryerror|(?:cuda|hip)(?: error:)? out of memory"),
        (
            ("cuda error", "nccl", "uncorrectable"),
            r"cuda error: [a-z].{0,80}|nccl error|ncclsystemerror|uncorrectable \w{2,8} error",
        ),
    )
)
CLOSING = compiled(
    r"\b(?:training|fine-?tuning)\s(?:was |has )?(?:run )?(?:completed?|finished|done|ended|successful)\b"
    r"|\b(?:finished|completed) (?:the )?training\b|\bfinal validation metrics\b|max_(?:epochs|steps)=\d+` reached"
    r"|'train_runtime': ",
    re.IGNORECASE,
)
FORESEEN = compiled(
    r"\b(?:after|when|once|until|before|if|while|will)\b.{0,40}(?:training|tuning)|^\s*#", re.IGNORECASE
)
LAST_WORDS: Final = 5  # lines at the very end of the output, where weaker words also show that it is complete
WORDS_OF_CLOSING = compiled(
    r"완료|종료|完成|完了|完毕|終了|结束|\bterminé|\bterminad[oa]\b|\bfinalizad[oa]\b|\bcompletad[oa]\b|\bconcluíd[oa]\b"
    r"|\babgeschlossen\b|\bbeendet\b|\bfertig\b|завершен|закончен"
    r"|\b(?:total|overall) (?:training |run )?(?:time|runtime|duration)\b|\btraining (?:time|took|duration)\b"
    r"|\b(?:run|job|experiment|pipeline|stage|distillation|pre-?training|sft|dpo|grpo|ppo|rlhf)\b.{0,30}"
    r"\b(?:completed?|finished|done)\b"
    r"|\b(?:final|trained) (?:model|adapter|policy|weights|checkpoint)s? (?:was |were |is )?(?:saved|exported)\b"
    r"|\b(?:saved|saving|exported) (?:the )?(?:final|trained) (?:model|adapter|policy|weights|checkpoint)s?\b",
    re.IGNORECASE,
)
OF_A_PART = compiled(
    r"\b(?:epoch|episode|step|iteration|round|batch|rollout|generation|eval\w*|validation|load\w*|download\w*|tokeniz\w*"
    r"|preprocess\w*|warm-?up|setup|init\w*|compil\w*|map|mapping)\b|에폭|로드|저장|加载|保存",
    re.IGNORECASE,
)
"""Names of parts of a run: that one is done says nothing about the whole."""
RUNTIME = compiled(r"'train_runtime': '?(\d{1,12}(?:\.\d{0,9})?)")
COMPLETED: Final = "training completed"
RUN_HISTORY = "Run history:"  # W&B prints it when the script ends, even by an exception
ENDING_MARKS: Final = (
    "killed", "terminated", "abort", "segmentation", "bus error", "cancelled", "due to", "oom", "memory", "signal",
    "sig", "interrup", "preempted", "watchdog", "nccl", "uncorrectable", "error", "exception", "traceback",
)  # fmt: skip
CLOSING_MARKS: Final = ("train", "tuning", "` reached", "run history", "validation metrics")
CLOSING_WORDS: Final = ("complet", "finish", "done", "ended", "success", "reached", "history", "metrics", "runtime")


def may_tell_ending(lower: str) -> bool:
    """Return whether a line, in lower case, may say anything of how the run ended."""
    for mark in ENDING_MARKS:
        if mark in lower:
            return True
    return any(mark in lower for mark in CLOSING_MARKS) and any(word in lower for word in CLOSING_WORDS)


@dataclass(kw_only=True)
class Trace:
    """A traceback while its lines are read."""

    frames: list[tuple[str, str]] = field(default_factory=list)
    lines: int = 0
    rich: bool = False


@dataclass(frozen=True, kw_only=True)
class Ending:
    """Something that a line says of how the run ended; `kind` is that of the event."""

    kind: str  # exception | exit
    text: str
    consequence: bool = False


class Endings:
    """Reads line after line and reports exceptions, signals and closing words."""

    def __init__(self) -> None:
        self._trace: Trace | None = None
        self._pending: tuple[str, str, Trace] | None = None  # name, message: what follows may still be its cause
        self._said: set[str] = set()
        self._raised: Tally[str] = Tally()  # exceptions by their shape
        self._survived: set[str] = set()
        self._chains = False

    @property
    def inside(self) -> bool:
        """Whether the next line belongs to a traceback, whatever it contains."""
        return self._trace is not None or self._pending is not None

    @property
    def raised(self) -> bool:
        """Whether the last line was that of an exception, and more of it may follow."""
        return self._pending is not None

    @property
    def said(self) -> bool:
        """Whether an exception or a signal was reported since training last logged."""
        return bool(self._said)

    def feed(self, text: str) -> list[Ending]:
        """Take a line without escape codes; return what is now certain."""
        bare = without_prefix(text) if text[:1] not in (" ", "T") else text
        if "Traceback (most recent call last)" in bare:
            done = self._flush(chained=self._pending is not None and self._chains)
            self._trace = Trace(rich="─" in bare)
            return done
        if self._trace is not None:
            return self._inside(bare)
        if self._pending is not None:
            return self._behind(bare)
        return self._alone(bare)

    def close(self) -> list[Ending]:
        """Return what was still open at the end of the file."""
        return self._flush(chained=False)

    def _inside(self, bare: str) -> list[Ending]:
        trace = self._trace
        assert trace is not None
        trace.lines += 1
        if match := (RICH_FRAME.search(bare) if "│" in bare else FRAME.match(bare)):
            trace.frames.append((match["file"], match["line"]))
        elif not bare.strip() or bare[0] in " │╭╰\t^|~+" or trace.lines > MAX_TRACE_LINES:
            if trace.lines > MAX_TRACE_LINES:
                self._trace = None
        elif match := RAISED.fullmatch(bare.rstrip()):
            self._trace, self._chains = None, False
            name = match["name"].rpartition(".")[2]
            self._pending = (
                f"{name}({match['cause']})" if match["cause"] else name,
                NONE if match["message"] is None else match["message"][1:].strip(),
                trace,
            )
        elif trace.frames and not trace.rich:  # the source line of a frame at the margin, or another process's output
            trace.lines += 20
        return []

    def _behind(self, bare: str) -> list[Ending]:
        assert self._pending is not None
        name, message, trace = self._pending
        if bare.startswith(CHAIN):
            self._chains = True
            return []
        if not bare.strip():
            return []
        if not self._chains and (match := FRAME.match(bare)):  # Ray prints the cause below its own exception
            self._trace, self._pending = Trace(frames=[(match["file"], match["line"])]), None
            return []
        if not message and bare[0] not in "=-" and not name.startswith(tuple(CONSEQUENCES)):
            self._pending = (name, bare.strip()[:MESSAGE_CHARS], trace)
            if bare[0] in " \t":
                return self._flush(chained=False)
            self._pending = (name, message, trace)
        return [*self._flush(chained=False), *self._alone(bare)]

    def _flush(self, *, chained: bool) -> list[Ending]:
        """Tell the exception that is complete; one that another followed from its handling is not the last."""
        pending, self._pending, self._chains = self._pending, None, False
        if pending is None or (chained and pending[0] not in ROOTS):
            return []
        name, message, trace = pending
        text = f"{name}: {message[:MESSAGE_CHARS]}" if message.strip() else name
        frame = _innermost(trace.frames)
        consequence = name.partition("(")[0] in CONSEQUENCES
        return self._new(f"{text} ({frame})" if frame else text, consequence=consequence)

    def _alone(self, bare: str) -> list[Ending]:
        """Read a line that is part of no traceback."""
        line = bare.strip()[: 4 * MESSAGE_CHARS]
        if CLOSING.search(line) and not FORESEEN.search(line):
            return [Ending(kind="exit", text=COMPLETED)]
        if RUN_HISTORY in line and line.startswith("wandb:"):
            return [] if self._said else [Ending(kind="exit", text=COMPLETED)]
        lower = line.lower()
        if any(
            pattern.search(line) for marks, pattern in SIGNALS if any(mark in lower for mark in marks)
        ) and not HYPOTHETICAL.search(line):
            return self._new(line[:MESSAGE_CHARS], consequence=CLOSING_SIGNAL.search(line) is not None)
        match = RAISED.fullmatch(line)
        if (
            match
            and match["message"]
            and EXCEPTION_NAME.search(match["name"])
            and not match["name"].endswith("Warning")
        ):
            return self._new(line[:MESSAGE_CHARS], consequence=False)
        return []

    def _new(self, text: str, *, consequence: bool) -> list[Ending]:
        """Report a thing once, however many ranks print it; a consequence only if nothing else was reported."""
        if text in self._said or (consequence and self._said):
            return []
        shape = _shape(text)
        self._raised[shape] += 1
        if shape in self._survived:
            return []
        self._said.add(text)
        return [Ending(kind="exception", text=text, consequence=consequence)]

    def goes_on(self) -> None:
        """Training logged again: what was raised before was survived; what was raised often ends nothing later."""
        self._survived |= {shape for shape, times in self._raised.items() if times >= MANY_SURVIVED}
        self._said.clear()


def _shape(text: str) -> str:
    return DIGITS.sub("#", REPEATED.sub("", text))[:SHAPE_CHARS].strip()


MAX_EPILOGUE_LINES: Final = 300  # behind the last exception: what a tracker and a launcher print at an end is shorter


class EndingLog:
    """Records among a console's events what its lines say about the run's end."""

    def __init__(self, events: EventLog) -> None:
        self._events, self._endings = events, Endings()
        self._behind = 0  # lines since an end was last mentioned
        self._last: deque[str] = deque(maxlen=LAST_WORDS)
        self.completed = self.raised_after = False
        self.runtime: float | None = None  # seconds

    @property
    def open(self) -> bool:
        """Whether no end was mentioned since training last logged, or output continued after it."""
        return not self.completed and (not self._endings.said or self._behind > MAX_EPILOGUE_LINES)

    @property
    def told(self) -> bool:
        """Whether any end was mentioned since training last logged."""
        return self.completed or self._endings.said

    def line(self, step: int | None, wall_time: float | None, text: str) -> None:
        """Take a line of output, without escape codes."""
        self._behind = 0 if self._endings.inside else self._behind + 1
        if text and not text.isspace():
            self._last.append(text)
        if self._endings.inside or may_tell_ending(text.lower()):
            self._add(step, wall_time, self._endings.feed(text))
            if "train_runtime" in text and (match := RUNTIME.search(text)):
                self.runtime = float(match[1])

    def complete(self, step: int | None, wall_time: float | None = None) -> None:
        """Note that training said it was complete."""
        if not self.completed:
            self._events.add(step, wall_time, "exit", COMPLETED)
        self.completed = True

    def settle(self, step: int | None) -> None:
        """Take note that a log call follows, which is no part of an exception's message, and no end of the run."""
        self._last.clear()
        if self._endings.raised:
            self._add(step, None, self._endings.close())

    def trained(self) -> None:
        """Note that training logged again: what was raised before was survived."""
        self._endings.goes_on()
        self.completed = self.raised_after = False

    def close(self, step: int | None) -> Facts:
        """Take the end of the file; return what it means for the run."""
        self._add(step, None, self._endings.close())
        if not self.completed and not self._endings.said and any(map(_closes, self._last)):
            self.complete(step)
        facts: Facts = {"exception_after_training": True} if self.raised_after else {}
        return facts | ({} if self.runtime is None else {"train_runtime": self.runtime})

    def _add(self, step: int | None, wall_time: float | None, found: list[Ending]) -> None:
        self._behind = 0 if found else self._behind
        for ending in found:
            if ending.kind == "exit":
                self.complete(step, wall_time)
            else:
                self._events.add(step, wall_time, ending.kind, ending.text)
                self.raised_after |= self.completed


HYPOTHETICAL = compiled(
    r"\b(?:to avoid OOM|prevent|in case of|if you|may cause|Registered|handler for|Press|TensorBoard caught)\b"
)
CLOSING_SIGNAL = compiled(r"Sending process \d+ closing signal|death signal, shutting down")


def _closes(line: str) -> bool:
    """Return whether one of the last lines says, in weaker words or another language, that the run is done."""
    return WORDS_OF_CLOSING.search(line) is not None and not OF_A_PART.search(line) and not FORESEEN.search(line)


def _innermost(frames: list[tuple[str, str]]) -> str:
    """Return the innermost frame of the user's own code, else the innermost of all, as `file.py:41`."""
    own = [frame for frame in frames if not LIBRARY.search(frame[0])]
    chosen = (own or frames)[-1:]
    return "".join(f"{_short(file)}:{line}" for file, line in chosen)


def _short(path: str) -> str:
    """Return a file's name; with its folder where the name says nothing."""
    parts = path.replace("\\", "/").split("/")
    return "/".join(parts[-2:]) if parts[-1].startswith("__") else parts[-1]
