"""Numbers by name and counters on a line of a console, however the writer separates them.

Names stay as printed. Numbers with a unit (`1.2s`, `42min`, `80 GB`) are no metrics; a percentage is a share.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import lru_cache
from typing import Final

from ptt.diagnostics.definitions import compiled, dataclass
from ptt.diagnostics.metrics.aliases import canonical
from ptt.diagnostics.metrics.name_words import is_outcome
from ptt.diagnostics.parsers.io.values import NON_FINITE

Values = dict[str, float | None]


@dataclass(frozen=True, kw_only=True)
class Counter:
    """Where in training a line belongs, as far as it says; `unit` is what `at` counts, `total` how many there are."""

    at: int | None = None
    total: int | None = None
    epoch: int | None = None
    epochs: int | None = None
    unit: str = "step"
    nested: bool = False  # `at` surely restarts each epoch
    named: bool = False  # the line calls `at` a step or an iteration, and no epoch

    @property
    def known(self) -> bool:
        """Whether the line counts anything."""
        return self.at is not None or self.epoch is not None


# Numbers and the names before them

PLAIN = r"[+-]?(?:\d{1,400}(?:\.\d{0,400})?(?:[eE][+-]?\d{1,4})?|\.\d{1,400}|inf|nan|Infinity|NaN)"
WRAPPED = compiled(rf"(?:(?:np|numpy)\.(?:float|int)\d+\(|tensor\()?({PLAIN})(?:\)|, [^()]{{0,80}}\))?")
PLAIN_STARTS: Final = frozenset("+-.0123456789")
WORDS: Final[dict[str, float | None]] = {"None": None, "True": 1.0, "False": 0.0}
NUMBER = (
    r"[+-]?(?:[1-9]\d{0,2}(?:,\d{3}){1,6}(?:\.\d{1,40})?|\d{1,40}(?:\.\d{0,40})?(?:[eE][+-]?\d{1,4})?"
    r"|\.\d{1,40}(?:[eE][+-]?\d{1,4})?|inf|nan|NaN|Inf)"
)
NO_UNIT = r"(?:\s?(%)|(?!\w|[./:-]\w|,\d|\s?(?:s|ms|sec|min|h|hours|GB|MB|GiB|MiB|it/s|tok\w*/s|samples/s)\b))"
NAME = r"[^\W\d][\w/.@%+#-]{0,100}"
COMPACT = compiled(
    rf"(?<![\w/.'\"-])({NAME}?(?:\([\w.-]{{1,12}}\))?)\s?[=:]\s{{0,12}}(?:\[(?={NUMBER}\]))?({NUMBER}){NO_UNIT}"
)
SEGMENT = compiled(
    rf"\W{{0,8}}({NAME}(?: (?!{NUMBER}(?:\s|$))[\w/.@()%+#-]{{1,40}}){{0,5}}?)"
    r"\s{0,12}([:=]|\s(?:is|was)\s|\s)\s{0,12}"
    rf"({NUMBER}){NO_UNIT}"
    r"(?:\s{0,4}\([^()]{0,60}\))?\W{0,6}"
)
CHAIN = compiled(rf"\W{{0,8}}(?:{NAME}[:=]? {{1,4}}{NUMBER}{NO_UNIT}\W{{0,2}}(?:\s{{1,4}}|$)){{2,40}}")
LINK = compiled(rf"({NAME})[:=]? {{1,4}}({NUMBER}){NO_UNIT}(?=\W{{0,2}}(?:\s|$))")
SPACED = compiled(rf"(?<!\S)({NAME}) ({NUMBER}){NO_UNIT}(?=[\s,;)\]]|$)")
PROSE = compiled(rf"((?:{NAME} )?{NAME}) (?:is|was|of) (?:now )?({NUMBER}){NO_UNIT}(?=\s*(?:[,.;)]|$|and\b))")
SEPARATORS = compiled(r"[|;\t]|, |,$|\] \[|(?<![:= ]) {2,}+(?![\d.+-])| [-–•] ")
SENTENCES = compiled(rf"{SEPARATORS.pattern}|\. (?=[A-Z])")
TABBED = compiled(rf"({NAME}(?: [\w/.@%+#-]{{1,40}}){{0,3}})\t\s{{0,12}}({NUMBER}%?)(?=\s{{0,8}}(?:\t|$))")
ARROWS = compiled(rf"(?:\[({NAME})\]|({NAME}) (?:->|=>|→)) {{0,4}}({NUMBER}%?)(?=\s|[,;|)]|$)")
LISTED = compiled(rf"(?<![\w/])({NAME}s)[=:] ?\[((?:['\"]?{NUMBER}['\"]?,\s?){{1,256}}['\"]?{NUMBER}['\"]?,?)\]")
COUNTED_OF = compiled(rf"(?<![\w/])({NAME})([=:] ?)(\d{{1,9}})/(\d{{1,9}})(?![\w./%])")
ARTICLES: Final = frozenset({"the", "a", "an", "and", "with", "its"})
METRIC_WORDS: Final = frozenset(
    {
        "loss", "losses", "reward", "rewards", "kl", "entropy", "acc", "accuracy", "lr", "grad", "gradnorm", "return",
        "returns", "ppl", "perplexity", "score", "advantage", "advantages", "margin", "margins", "logps", "clipfrac",
        "mse", "mae", "f1", "bleu", "rouge", "auc", "success", "winrate", "elbo", "psnr", "fid", "miou", "recall",
        "precision", "gradient", "rew",
    }
)  # fmt: skip
METRIC_PARTS: Final = ("loss", "reward", "perplexity", "accuracy")  # anywhere in a name: `CrossEntropyLoss`
TOKENS = compiled(r"[^\W\d_]+|f1")
SHOWN_ONLY: Final = frozenset({"v_num", "eta", "pid", "rank", "seed", "port"})  # printed with metrics, but not metrics


@lru_cache(maxsize=4096)
def is_metric_name(name: str) -> bool:
    """Return whether a name is that of a metric: one that we know, or one with a word that only metrics have."""
    plain = name.strip().lower().replace(" ", "_")
    if canonical(name) or canonical(plain) or any(part in plain for part in METRIC_PARTS):
        return True
    return not METRIC_WORDS.isdisjoint(TOKENS.findall(plain.replace("_", " ")))


def number_of(text: str) -> float:
    """Read a number as Python, NumPy or torch print it; ValueError for anything else."""
    if text[:1] in PLAIN_STARTS and "_" not in text and text.isascii():
        return float(text)
    match = WRAPPED.fullmatch(text)
    if match is None:
        raise ValueError("no number")
    known = NON_FINITE.get(match.group(1).lower())
    return float(match.group(1)) if known is None else known


def printed_number(text: str, percent: str | None) -> float:
    """Read a number as people print it, with separators of thousands or as a percentage."""
    known = NON_FINITE.get(text.lower())
    value = float(text.replace(",", "")) if known is None else known
    return value / 100 if percent else value


# Counters

LEADING = r"(?:(?:global|train|training|optimizer|optim|current)[ _-]?)?"
STEP = compiled(
    rf"(?<![\w/'])({LEADING}(?:steps?|iter|iteration|update|batch|num_updates|round|generation|cycle))\s{{0,3}}[:=#]?\s{{0,8}}[\[(]?\s{{0,8}}"
    r"(\d{1,3}(?:,\d{3}){1,4}|\d{1,15})(?![\d%]|[.,]\d|\w)"
    r"(?:\s{0,8}(?:/|of)\s{0,8}(\d{1,3}(?:,\d{3}){1,4}|\d{1,15}))?\s?[\])]?",
    re.IGNORECASE,
)
EPOCH = compiled(
    r"(?<![\w/'])epoch(?:\(\w{1,10}\))?\s?[:=#]?\s{0,8}[\[(]?\s{0,8}(\d{1,7})(?![\d%]|[.,]\d|\w)(?:\s?(?:/|of)\s?(\d{1,7}))?\s?[\])]?",
    re.IGNORECASE,
)
EPISODE = compiled(
    r"(?<![\w/'])(?:episode|ep|eps)\s?[:=#]?\s{0,8}[\[(]?\s{0,8}(\d{1,9})(?![\d%]|[.,]\d|\w)"
    r"(?:\s?(?:/|of)\s?(\d{1,9}))?\s?[\])]?",
    re.IGNORECASE,
)
RATIO = compiled(
    r"[\[(]\s{0,8}(\d{1,12})\s{0,8}/\s{0,8}(\d{1,12})(?:\s?\(\s{0,3}[\d.]+%\))?\s?[\])]|[━╸╺╌]\s{0,3}(\d{1,12})/(\d{1,12})\b"
    r"|\b(\d{1,12})\s{0,3}/\s{0,3}(\d{1,12}) (?:batches|steps|iters|updates)\b"
)
LEAD = compiled(r"\s{0,4}(\d{1,12}) ?[|:] (?=[^\W\d])")  # llama2.c's `120 | loss 4.2`
AFTER_EPOCH = compiled(r":\s+(\d{1,12})\s{0,3}/\s{0,3}(\d{1,12})\s")  # fairseq
SCORE: Final = compiled(
    r" {0,2}(?:valid|correct|passed|solved|successful|succeeded|accepted|failed|right)\b(?! {0,2}[=:])", re.IGNORECASE
)
"""After `generation: 3/4`: how many of them, not which."""
NO_COUNT: Final = frozenset(
    {"max", "total", "num", "warmup", "of", "n", "save", "saving", "logging", "eval", "every", "per", "accumulation",
     "micro", "min", "gradient", "decay", "reasoning", "solution"}
)  # fmt: skip  # before `steps`: a setting, or the step of something else
COUNTER_CHARS: Final = 200  # within which a line's counter is found


def counter_of(text: str, *, loose: bool = False) -> tuple[Counter, str]:
    """Return what a line counts, and the rest of the line; `loose`: a batch by its number may be one, or its size."""
    head = text[:COUNTER_CHARS]
    found = Counter()
    spans: list[tuple[int, int]] = []
    if epoch := EPOCH.search(head):
        found = replace(found, epoch=int(epoch[1]), epochs=_whole(epoch[2]), unit="epoch")
        spans.append(epoch.span())
    episode = EPISODE.search(head)
    steps = [match for match in STEP.finditer(head) if _counts(head, match, found, episode, loose=loose)]
    if step := next((match for match in steps if OF_RUN.match(match[1])), steps[0] if steps else None):
        named = found.epoch is None and episode is None
        found = replace(found, at=_whole(step[2]), total=_whole(step[3]), unit="step", named=named)
        spans += [match.span() for match in steps]
        if episode and found.epoch is None:  # the steps may start again in each episode
            found = replace(found, epoch=int(episode[1]))
            spans.append(episode.span())
    elif episode:
        found = replace(found, at=int(episode[1]), total=_whole(episode[2]), unit="episode")
        spans.append(episode.span())
    elif ratio := _ratio(head, spans):
        found = replace(found, at=int(ratio[0]), total=int(ratio[1]), unit="step", nested=found.epoch is not None)
        spans.append(ratio[2])
    elif not found.known and (lead := LEAD.match(head)):
        found = replace(found, at=int(lead[1]), unit="step")
        spans.append(lead.span())
    rest = text
    for start, stop in sorted(spans, reverse=True):
        rest = f"{rest[:start]}\t{rest[stop:]}"
    return found, rest


OF_RUN = compiled(r"(?:global|train|training)[ _-]", re.IGNORECASE)  # counts on where another step starts again


def _counts(head: str, match: re.Match[str], found: Counter, episode: re.Match[str] | None, *, loose: bool) -> bool:
    before = head[: match.start()].rstrip().rpartition(" ")[2].lower().strip("([-_:")
    name = match[1].lower()
    if name.endswith("batch") and match[3] is None and found.epoch is None and not loose:
        return False  # a size, as often as a number
    if name.endswith("steps") and episode:
        return False  # how long the episode was
    if match[3] is not None and SCORE.match(head, match.end()):
        return False
    return before not in NO_COUNT


def _ratio(head: str, spans: list[tuple[int, int]]) -> tuple[str, str, tuple[int, int]] | None:
    begin = spans[0][1] if spans else 0
    match = RATIO.search(head, begin) or (AFTER_EPOCH.match(head, begin) if spans else None)
    if match is None:
        return None
    at, total = (text for text in match.groups() if text is not None)
    return (at, total, match.span()) if int(at) <= int(total) else None


def _whole(text: str | None) -> int | None:
    return None if text is None else int(text.replace(",", ""))


# Pairs

PAIR_CHARS: Final = 4096  # in a line of pairs; no call prints more, and a sample's text may have any length


def pairs_of(text: str, *, spaced: bool = True) -> tuple[Values, bool]:
    """Return a line's numbers by name, and whether its layout is that of a log call rather than prose.

    `spaced`: a space alone may separate name and number, as in `loss 4.2`.
    """
    values: Values = {}
    if ARROWS.search(text):
        text = ARROWS.sub(_arrow, text)
    if "/" in text:
        text = COUNTED_OF.sub(_share_of, text)
    if "[" in text:
        text = LISTED.sub(_mean_of, text)
    if "\t" in text:
        text = TABBED.sub(r"\1: \2", text)
    segments = (SENTENCES if spaced else SEPARATORS).split(text)
    compact, piped = False, spaced and "|" in text
    for segment in segments:
        if match := SEGMENT.fullmatch(segment):
            name, sign, number, percent = match.groups()
            named = (piped and not name.startswith(UNITS)) or ((spaced or sign.strip()) and is_metric_name(_bare(name)))
            if sign.strip() in ("=", ":") or named:
                values.setdefault(_bare(name), printed_number(number, percent))
                continue
        if spaced and CHAIN.fullmatch(segment) and any(is_metric_name(name) for name, _, _ in LINK.findall(segment)):
            values |= {name: printed_number(number, percent) for name, number, percent in LINK.findall(segment)}
            continue
        for name, number, percent in COMPACT.findall(segment):
            values.setdefault(_bare(name), printed_number(number, percent))
            compact = True
        for name, number, percent in (*PROSE.findall(segment), *(SPACED.findall(segment) if spaced else ())):
            if is_metric_name(_bare(name)):
                values.setdefault(_bare(name), printed_number(number, percent))
    for name in SHOWN_ONLY & values.keys():
        del values[name]
    return values, compact or "|" in text


def _share_of(match: re.Match[str]) -> str:
    """Write `correct=3/4` as the share that it is; any other fraction may be a place, a date or a size."""
    name, sign, part, whole = match.groups()
    if not is_outcome(name) or not 0 <= int(part) <= int(whole) or not int(whole):
        return match[0]
    return f"{name}{sign}{int(part) / int(whole):.9f}"


def _mean_of(match: re.Match[str]) -> str:
    """Write `rewards=['0.5', '1.0']`, a metric of each sample, as its mean."""
    if not is_metric_name(match[1]):
        return match[0]
    values = [printed_number(one.strip(" '\""), None) for one in match[2].split(",") if one.strip()]
    mean = sum(values) / len(values)
    return f"{match[1]}={mean:.9f}" if math.isfinite(mean) else f"{match[1]}=nan"


def _arrow(match: re.Match[str]) -> str:
    return f"{match[1] or match[2]}: {match[3]}, "


def lone_pair(text: str) -> Values:
    """Return the number on a line that holds a single metric: `=> loss 1.2 (avg 1.3)`."""
    match = SEGMENT.fullmatch(text)
    if match is None or "." not in match[3] or not is_metric_name(_bare(match[1])):  # `loss 12` may be a vocabulary's
        return {}
    return {_bare(match[1]): printed_number(match[3], match[4])}


CODE_FILES: Final = (".py", ".cc", ".cpp", ".cu", ".rs", ".go")  # `grpo_fast.py:1512` is a place in the code
UNITS: Final = ("ms/", "s/")  # what `ms/batch 20.1` begins with
HELD_OUT = compiled(
    r"[\W_]{0,12}(?:eval|evaluation|val|valid|validation|test|dev)\b(?: (?:results?|metrics|set))?\s{0,4}[-:|\]>]",
    re.IGNORECASE,
)


def of_split(text: str, values: Values) -> Values:
    """Say of the numbers behind `Val - ` that they are no training's, as their names alone do not."""
    if not HELD_OUT.match(text):
        return values
    return {name if HELD_OUT.match(f"{name}:") else f"eval_{name}": value for name, value in values.items()}


def _bare(name: str) -> str:
    words = name.split(" ")
    while len(words) > 1 and words[0].lower() in ARTICLES:
        words = words[1:]
    return " ".join(words).strip(" .-")
