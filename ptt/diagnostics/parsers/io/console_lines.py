"""Lines of console logs that hold metrics: a table of dialects, each of which reads a line or says that it is none.

Names stay as printed. A line counts where it holds a counter (`step 12`, `[12/100]`, `Epoch 3`) beside numbers by name,
or where the names are metrics that we know. Numbers with a unit (`1.2s`, `42min`, `80 GB`) are no metrics.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from ptt.diagnostics.metrics.aliases import canonical
from ptt.diagnostics.parsers.io.metric_rows import STEP_KEYS, flatten, metric_values
from ptt.diagnostics.parsers.io.tracebacks import without_prefix
from ptt.diagnostics.parsers.io.values import NON_FINITE, as_step

Values = dict[str, float | None]


@dataclass(frozen=True, kw_only=True)
class Counter:
    """Where in training a line stands, as far as it says; `total` is of what `at` counts, `unit` what that is."""

    at: int | None = None
    total: int | None = None
    epoch: int | None = None
    epochs: int | None = None
    unit: str = "step"
    nested: bool = False  # `at` certainly starts again in each epoch

    @property
    def known(self) -> bool:
        """Whether the line counts anything."""
        return self.at is not None or self.epoch is not None


@dataclass(frozen=True, kw_only=True)
class ConsoleRow:
    """One log call. `counter` says where it stands; nothing in it: the line names no step."""

    dialect: str
    values: Values
    counter: Counter = field(default=Counter())
    framework: str | None = None


# Numbers and the names before them

PLAIN = r"[+-]?(?:\d{1,400}(?:\.\d{0,400})?(?:[eE][+-]?\d{1,4})?|\.\d{1,400}|inf|nan|Infinity|NaN)"
WRAPPED = re.compile(rf"(?:(?:np|numpy)\.(?:float|int)\d+\(|tensor\()?({PLAIN})(?:\)|, [^()]{{0,80}}\))?")
PLAIN_STARTS: Final = frozenset("+-.0123456789")
WORDS: Final[dict[str, float | None]] = {"None": None, "True": 1.0, "False": 0.0}
NUMBER = (
    r"[+-]?(?:\d{1,3}(?:,\d{3}){1,6}(?:\.\d{1,40})?|\d{1,40}(?:\.\d{0,40})?(?:[eE][+-]?\d{1,4})?"
    r"|\.\d{1,40}(?:[eE][+-]?\d{1,4})?|inf|nan|NaN|Inf)"
)
NO_UNIT = r"(?:\s?(%)|(?!\w|[./:-]\w|\s?(?:s|ms|sec|min|h|hours|GB|MB|GiB|MiB|it/s|tok\w*/s|samples/s)\b))"
NAME = r"[^\W\d][\w/.@%+#-]{0,100}"
COMPACT = re.compile(rf"(?<![\w/.'\"-])({NAME}?(?:\([\w.-]{{1,12}}\))?)\s?[=:]\s{{0,12}}({NUMBER}){NO_UNIT}")
SEGMENT = re.compile(
    rf"\W{{0,8}}({NAME}(?: (?!{NUMBER}(?:\s|$))[\w/.@()%+#-]{{1,40}}){{0,5}}?)"
    r"\s{0,12}([:=]|\s(?:is|was)\s|\s)\s{0,12}"
    rf"({NUMBER}){NO_UNIT}"
    r"(?:\s{0,4}\([^()]{0,60}\))?\W{0,6}"
)
CHAIN = re.compile(rf"\W{{0,8}}(?:{NAME} {NUMBER}{NO_UNIT}\W{{0,2}}(?:\s|$)){{2,40}}")
LINK = re.compile(rf"({NAME}) ({NUMBER}){NO_UNIT}(?=\W{{0,2}}(?:\s|$))")
SPACED = re.compile(rf"(?<!\S)({NAME}) ({NUMBER}){NO_UNIT}(?=[\s,;)\]]|$)")
PROSE = re.compile(rf"((?:{NAME} )?{NAME}) (?:is|was|of) (?:now )?({NUMBER}){NO_UNIT}(?=\s*(?:[,.;)]|$|and\b))")
SEPARATORS = re.compile(r"[|;\t]|, |,$|\] \[|(?<![:= ]) {2,}(?![\d.+-])| [-–•] ")
SENTENCES = re.compile(rf"{SEPARATORS.pattern}|\. (?=[A-Z])")
ARTICLES: Final = frozenset({"the", "a", "an", "and", "with", "its"})
METRIC_WORDS: Final = frozenset(
    {
        "loss", "losses", "reward", "rewards", "kl", "entropy", "acc", "accuracy", "lr", "grad", "gradnorm", "return",
        "returns", "ppl", "perplexity", "score", "advantage", "advantages", "margin", "margins", "logps", "clipfrac",
        "mse", "mae", "f1", "bleu", "rouge", "auc", "success", "winrate", "elbo", "psnr", "fid", "miou", "recall",
        "precision", "gradient", "rew",
    }
)  # fmt: skip
METRIC_PARTS: Final = ("loss", "reward", "perplexity", "accuracy")  # of any name: `CrossEntropyLoss`
TOKENS = re.compile(r"[^\W\d_]+|f1")
SHOWN_ONLY: Final = frozenset({"v_num", "eta", "pid", "rank", "seed", "port"})  # beside metrics, and none


@lru_cache(maxsize=4096)
def is_metric_name(name: str) -> bool:
    """Return whether a name is that of a metric: one that we know, or one with a word that only metrics have."""
    plain = name.strip().lower().replace(" ", "_")
    if canonical(name) or canonical(plain) or any(part in plain for part in METRIC_PARTS):
        return True
    return not METRIC_WORDS.isdisjoint(TOKENS.findall(plain.replace("_", " ")))


def number_of(text: str) -> float:
    """Read a number as Python, NumPy or torch print it; ValueError where it is none."""
    if text[:1] in PLAIN_STARTS and "_" not in text and text.isascii():
        return float(text)
    match = WRAPPED.fullmatch(text)
    if match is None:
        raise ValueError("no number")
    known = NON_FINITE.get(match.group(1).lower())
    return float(match.group(1)) if known is None else known


def _number(text: str, percent: str | None) -> float:
    known = NON_FINITE.get(text.lower())
    value = float(text.replace(",", "")) if known is None else known
    return value / 100 if percent else value


# Counters

LEADING = r"(?:(?:global|train|training|optimizer|optim|current)[ _-]?)?"
STEP = re.compile(
    rf"(?<![\w/'])({LEADING}(?:steps?|iter|iteration|update|batch|num_updates|round|generation|cycle))\s{{0,3}}[:=#]?\s{{0,8}}[\[(]?\s{{0,8}}"
    r"(\d{1,15})(?![\d%]|[.,]\d|\w)(?:\s{0,8}(?:/|of)\s{0,8}(\d{1,15}))?\s?[\])]?",
    re.IGNORECASE,
)
EPOCH = re.compile(
    r"(?<![\w/'])epoch\s?[:=#]?\s{0,8}[\[(]?\s{0,8}(\d{1,7})(?![\d%]|[.,]\d|\w)(?:\s?(?:/|of)\s?(\d{1,7}))?\s?[\])]?",
    re.IGNORECASE,
)
EPISODE = re.compile(
    r"(?<![\w/'])(?:episode|ep|eps)\s?[:=#]?\s{0,8}[\[(]?\s{0,8}(\d{1,9})(?![\d%]|[.,]\d|\w)"
    r"(?:\s?(?:/|of)\s?(\d{1,9}))?\s?[\])]?",
    re.IGNORECASE,
)
RATIO = re.compile(
    r"[\[(]\s{0,8}(\d{1,12})\s{0,8}/\s{0,8}(\d{1,12})(?:\s?\(\s{0,3}[\d.]+%\))?\s?[\])]|[━╸╺╌]\s{0,3}(\d{1,12})/(\d{1,12})\b"
    r"|\b(\d{1,12})\s{0,3}/\s{0,3}(\d{1,12}) (?:batches|steps|iters|updates)\b"
)
AFTER_EPOCH = re.compile(r":\s+(\d{1,12})\s{0,3}/\s{0,3}(\d{1,12})\s")  # fairseq
NO_COUNT: Final = frozenset(
    {"max", "total", "num", "warmup", "of", "n", "save", "saving", "logging", "eval", "every", "per", "accumulation",
     "micro", "min", "gradient", "decay", "reasoning", "solution"}
)  # fmt: skip  # before `steps`: a setting, or the step of something else
COUNTER_CHARS: Final = 200  # where a line's counter stands


def counter_of(text: str) -> tuple[Counter, str]:
    """Return what a line counts, and the rest of the line."""
    head = text[:COUNTER_CHARS]
    found = Counter()
    spans: list[tuple[int, int]] = []
    if epoch := EPOCH.search(head):
        found = replace(found, epoch=int(epoch[1]), epochs=_whole(epoch[2]), unit="epoch")
        spans.append(epoch.span())
    episode = EPISODE.search(head)
    if step := next((match for match in STEP.finditer(head) if _counts(head, match, found, episode)), None):
        found = replace(found, at=int(step[2]), total=_whole(step[3]), unit="step")
        spans.append(step.span())
        if episode and found.epoch is None:  # the steps may start again in each episode
            found = replace(found, epoch=int(episode[1]))
            spans.append(episode.span())
    elif episode:
        found = replace(found, at=int(episode[1]), total=_whole(episode[2]), unit="episode")
        spans.append(episode.span())
    elif ratio := _ratio(head, spans):
        found = replace(found, at=int(ratio[0]), total=int(ratio[1]), unit="step", nested=found.epoch is not None)
        spans.append(ratio[2])
    rest = text
    for start, stop in sorted(spans, reverse=True):
        rest = f"{rest[:start]}\t{rest[stop:]}"
    return found, rest


def _counts(head: str, match: re.Match[str], found: Counter, episode: re.Match[str] | None) -> bool:
    before = head[: match.start()].rstrip().rpartition(" ")[2].lower().strip("([-_:")
    name = match[1].lower()
    if name.endswith("batch") and match[3] is None and found.epoch is None:
        return False  # a size, as often as a number
    if name.endswith("steps") and episode:
        return False  # how long the episode was
    return before not in NO_COUNT


def _ratio(head: str, spans: list[tuple[int, int]]) -> tuple[str, str, tuple[int, int]] | None:
    begin = spans[0][1] if spans else 0
    match = RATIO.search(head, begin) or (AFTER_EPOCH.match(head, begin) if spans else None)
    if match is None:
        return None
    at, total = (text for text in match.groups() if text is not None)
    return (at, total, match.span()) if int(at) <= int(total) else None


def _whole(text: str | None) -> int | None:
    return None if text is None else int(text)


# Pairs

PAIR_CHARS: Final = 4096  # of a line of pairs; no call prints more, and a sample's text may be of any length


def pairs_of(text: str, *, spaced: bool = True) -> tuple[Values, bool]:
    """Return the numbers by name of a line, and whether it is laid out as a log call rather than as prose.

    `spaced`: a blank alone may stand between name and number, as in `loss 4.2`.
    """
    values: Values = {}
    segments = (SENTENCES if spaced else SEPARATORS).split(text)
    compact = False
    for segment in segments:
        if match := SEGMENT.fullmatch(segment):
            name, sign, number, percent = match.groups()
            if sign.strip() in ("=", ":") or ((spaced or sign.strip()) and is_metric_name(_bare(name))):
                values.setdefault(_bare(name), _number(number, percent))
                continue
        if spaced and CHAIN.fullmatch(segment) and any(is_metric_name(name) for name, _, _ in LINK.findall(segment)):
            values |= {name: _number(number, percent) for name, number, percent in LINK.findall(segment)}
            continue
        for name, number, percent in COMPACT.findall(segment):
            values.setdefault(_bare(name), _number(number, percent))
            compact = True
        for name, number, percent in (*PROSE.findall(segment), *(SPACED.findall(segment) if spaced else ())):
            if is_metric_name(_bare(name)):
                values.setdefault(_bare(name), _number(number, percent))
    for name in SHOWN_ONLY & values.keys():
        del values[name]
    return values, compact or "|" in text


HELD_OUT = re.compile(r"[\W_]{0,12}(?:eval|evaluation|val|valid|validation|test|dev)\b\s{0,4}[-:|\]>]", re.IGNORECASE)


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


# Dialects

VERL = re.compile(r"(?:^|[\s)])step:(\d{1,18}) - (.+)")
TORCHTUNE = re.compile(r"(?:^|\s)Step (\d{1,18}) \| (.+)")
DICT_PAIR = re.compile(
    r"'([^'\\]{1,200})': (?:'([^'\\]{0,200})'|(None|True|False|[^'\"\s{}\[\],()]{1,400}"
    r"|(?:np|numpy)\.(?:float|int)\d+\([^()]{1,400}\)|tensor\([^()]{1,400}(?:\([^()]{0,80}\)[^()]{0,80})?\))"
    r"|(\([^()]{0,400}\)|\[[^\[\]]{0,4000}\]))(, |\})"
)
DICT_STEP = re.compile(r"(?:step|rollout|iteration|iter)\s?[:=]?\s?(\d{1,15})\s?[:|-]?\s?$", re.IGNORECASE)
BAR_LEFT = re.compile(r"\s{0,80}(?:\d{1,3}%\||$|\[A)")


def verl(text: str) -> ConsoleRow | None:
    """Read a line of veRL's console logger: `step:1 - actor/pg_loss:0.25 - ...`."""
    match = VERL.search(text)
    return _colon_pairs("verl", match[1], match[2].split(" - ")) if match else None


def torchtune(text: str) -> ConsoleRow | None:
    """Read a line of torchtune's loggers: `Step 1 | loss:0.5 lr:0.001`."""
    match = TORCHTUNE.search(text)
    return _colon_pairs("torchtune", match[1], match[2].split(" ")) if match else None


def _colon_pairs(framework: str, step: str, pairs: list[str]) -> ConsoleRow | None:
    values: Values = {}
    for pair in pairs:
        name, colon, text = pair.strip().rpartition(":")
        if not (name and colon):
            continue
        try:
            values[name] = WORDS[text] if text in WORDS else number_of(text)
        except ValueError:  # a text
            continue
    counter = Counter(at=int(step))
    return ConsoleRow(dialect=framework, framework=framework, counter=counter, values=values) if values else None


def printed_dict(text: str) -> ConsoleRow | None:
    """Read the dict that Hugging Face trainers print, LLaMA-Factory and Axolotl too; slime's after `step 3: `."""
    start = text.find("{'")
    flat: Values = {}
    step: int | None = None
    at = start + 1
    while not (at > start + 1 and text[at - 1] == "}"):
        match = DICT_PAIR.match(text, at)
        if match is None:  # a nested object, prose: no log call
            return None
        at = match.end()
        name, quoted, bare, several, _ = match.groups()
        if several is not None:
            continue
        value = quoted if quoted is not None else bare
        if name in STEP_KEYS and step is None and (named := as_step(value)) is not None:
            step = named
            continue
        try:  # newer trainers print their rounded numbers as texts
            flat[name] = WORDS[value] if quoted is None and value in WORDS else number_of(value)
        except ValueError:
            continue
    if not BAR_LEFT.match(text, at) or not flat.keys() - {"epoch"}:
        return None
    if step is None and (before := DICT_STEP.search(text[:start][-40:])):
        step = int(before[1])
    if "epoch" not in flat and step is None and {canonical(name) for name in flat} <= SETTINGS:
        return None
    return ConsoleRow(dialect="dict", values=flat, counter=Counter(at=step))


SETTINGS: Final = frozenset({None, "lr"})  # what a dict of settings may hold too
OVERWRITTEN = re.compile(r"\d{1,3}%\|")


def overwritten(text: str) -> bool:
    """Return whether a printed dict of metrics is cut by a progress bar."""
    start = text.find("{'")
    match = DICT_PAIR.match(text, start + 1) if start >= 0 else None
    return bool(match and canonical(match[1]) and OVERWRITTEN.search(text, match.end()))


def json_object(text: str) -> ConsoleRow | None:
    """Read a JSON object after a logger's prefix: `2024-01-01 INFO {"step": 3, "loss": 0.5}`."""
    start = text.find('{"')
    try:
        found, end = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or text[end:].strip():
        return None
    flat = flatten(found)
    key = next((key for key in STEP_KEYS if as_step(flat.get(key)) is not None), None)
    step = None if key is None else as_step(flat.pop(key))
    values = metric_values(flat)
    known = step is not None or "epoch" in values
    if not values.keys() - {"epoch"} or not any(map(is_metric_name, values)) or not known:
        return None
    return ConsoleRow(dialect="json", values=values, counter=Counter(at=step))


BAR = re.compile(
    r"(?P<label>[^|%]{0,120}?):?\s*(?:(?P<percent>\d{1,3})%\|[^|]{0,400}\|\s{0,4}(?P<at>\d{1,12})/(?P<total>\d{1,12})"
    r"|(?<![\w.])(?P<count>\d{1,12})(?:it|ba|ex)) \[(?P<times>[^\[\]{]{0,80}?)"
    r", (?P<values>\{[^{}]{0,2000}\}|[^\[\]]{0,2000}[=:][^\[\]]{0,2000})\](?P<rest>.{0,400})"
)
RATE = re.compile(r"\s*(?:\?|[\d.]+)\s?(?:s/\w+|\w+/s)\s*$")
NOT_TRAINING = re.compile(r"eval|valid|test|predict|generat|sampl|load|download|map|filter|token", re.IGNORECASE)


DESCRIBED = re.compile(
    r"(?P<label>[^|%]{3,200}?):?\s*(?P<percent>\d{1,3})%\|[^|]{0,400}\|\s{0,4}(?P<at>\d{1,12})/(?P<total>\d{1,12}) \["
)


def described_bar(text: str) -> ConsoleRow | None:
    """Read the numbers that a loop writes before its tqdm bar: `Epoch 2 loss 0.5:  40%|... | 4/10 [...]`."""
    match = DESCRIBED.match(text)
    if match is None or NOT_TRAINING.search(match["label"]):
        return None
    label, rest = counter_of(match["label"] + " ")
    values = {name: value for name, value in pairs_of(rest)[0].items() if is_metric_name(name)}
    if not values:
        return None
    counter = Counter(
        at=int(match["at"]),
        total=int(match["total"]),
        epoch=label.epoch if label.epoch is not None else label.at,
        epochs=label.epochs if label.epoch is not None else label.total,
        nested=label.known,
    )
    return ConsoleRow(dialect="bar", values=values, counter=counter)


def progress_bar(text: str) -> ConsoleRow | None:
    """Read the numbers behind a tqdm bar: Lightning's, OpenRLHF's, of home-made loops with `set_postfix`.

    Lightning's bar of batches without a total says its step only in what follows: `Epoch 0, global step 8: ...`.
    """
    match = BAR.match(text)
    if match is None or NOT_TRAINING.search(match["label"]):
        return None
    values, _ = pairs_of(match["values"].strip("{}").replace("'", "").replace('"', ""))
    if not any(map(is_metric_name, values)):
        return None
    label = counter_of(match["label"] + " ")[0]
    after = counter_of(match["rest"])[0]
    epoch = label.epoch if label.epoch is not None else label.at
    epochs = label.epochs if label.epoch is not None else label.total
    if after.at is not None and after.unit == "step":
        counter = Counter(at=after.at)
    elif match["at"] is not None:
        counter = Counter(
            at=int(match["at"]), total=int(match["total"]), epoch=epoch, epochs=epochs, nested=epoch is not None
        )
    elif epoch is not None and match["count"] == "0":
        counter = Counter(epoch=epoch, epochs=epochs, unit="epoch")
    else:
        counter = Counter(at=int(match["count"]), epoch=epoch, epochs=epochs)
    return ConsoleRow(dialect="bar", values=values, counter=counter)


KERAS = re.compile(r"\s{0,8}(\d{1,12})/(\d{1,12})\s{0,4}(?:\[[=>.\s]{0,80}\]|[━ ]{2,80}) ?-?(.{0,2000})")


def keras(text: str) -> ConsoleRow | None:
    """Read Keras' bar, of whose states only the last is whole: `12/100 [====>] - 3s - loss: 0.1 - accuracy: 0.9`."""
    match = KERAS.fullmatch(text)
    if match is None:
        return None
    values, _ = pairs_of(match[3])
    if not any(map(is_metric_name, values)):
        return None
    return ConsoleRow(
        dialect="keras", values=values, counter=Counter(at=int(match[1]), total=int(match[2]), nested=True)
    )


def counted(text: str) -> ConsoleRow | None:
    """Read names and numbers beside a counter, however they are separated.

    minimind's `Epoch:[1/2](100/4166) loss:0.693`, Megatron's and nanochat's `step 12/100 | loss: 9.7 |`, nanoGPT's
    `iter 0: loss 4.2, time 1ms`, fairseq's `| epoch 001 | loss 3.2`, PRIME-RL's `Step 0 | Loss: 0.01`, PyTorch
    examples' `Epoch [1/5], Step [20/600], Loss: 0.3`, `[12/100] loss=0.5`, prose such as `Step 12: loss is 0.34`.
    """
    counter, rest = counter_of(without_prefix(text))
    if not counter.known:
        return None
    values, laid_out = pairs_of(rest)
    values = of_split(rest, values)
    known = any(map(is_metric_name, values))
    if not known and not (laid_out and len(values) > 1):
        return None
    return ConsoleRow(dialect="counted", values=values, counter=counter)


SHORT = re.compile(rf"s:(\d{{1,12}}) ((?:\w{{1,20}}:{NUMBER}(?: |$)){{1,20}})")
THREE_WORDS = re.compile(rf"(\d{{1,12}}) (train|val|valid|test|eval|hella|loss) ({NUMBER})")


def terse(text: str) -> ConsoleRow | None:
    """Read the logs of llm.c, `s:12 trl:3.25 lr:0.0006 norm:0.25`, and of build-nanogpt, `12 train 3.25`."""
    if match := SHORT.fullmatch(text):
        values: Values = {
            name: _number(number, None) for name, _, number in (pair.partition(":") for pair in match[2].split())
        }
        return ConsoleRow(dialect="terse", values=values, counter=Counter(at=int(match[1])))
    if match := THREE_WORDS.fullmatch(text):
        return ConsoleRow(
            dialect="terse", values={match[2]: _number(match[3], None)}, counter=Counter(at=int(match[1]))
        )
    return None


TERSE = re.compile(rb"s:\d|\d+ [a-z]+ [\d.naif+-]+\s*$")


def may_name_counter(lower: bytes) -> bool:
    """Return whether a line may hold the name of a counter."""
    return (
        b"step" in lower or b"iter" in lower or b"epoch" in lower or b"episode" in lower or b"update" in lower
        or b"ep " in lower or b"ep:" in lower or b"batch" in lower or b"round" in lower or b"generation" in lower
        or b"cycle" in lower
    )  # fmt: skip


COUNTS = re.compile(
    rb"(?:step|iter|iteration|epoch|episode|ep|eps|updates?|batch|round|generation|cycle)s?\s{0,3}[:=#]?\s{0,8}[\[(]{0,2}\s{0,8}\d"
)
RATIOS = re.compile(rb"[\[(]\s{0,8}\d{1,12}\s{0,8}/\s{0,8}\d|\xe2\x94\x81 {0,3}\d")


def _may_count(lower: bytes) -> bool:
    return (may_name_counter(lower) and COUNTS.search(lower) is not None) or (
        b"/" in lower and RATIOS.search(lower) is not None
    )


def _may_be_bar(lower: bytes) -> bool:
    return (b"/s, " in lower or b"/it, " in lower) and (b"%|" in lower or b"it [" in lower)


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """A way to print a log call: what reads it, and a cheap test of the line in lower case before."""

    may_be: Callable[[bytes], bool]
    read: Callable[[str], ConsoleRow | None]
    longest: int = 1 << 18  # characters of a line; no log call prints more


DIALECTS: tuple[Dialect, ...] = (
    Dialect(may_be=lambda lower: b"step:" in lower, read=verl),
    Dialect(may_be=lambda lower: b"step " in lower and b" | " in lower, read=torchtune),
    Dialect(may_be=lambda lower: b"{'" in lower, read=printed_dict),
    Dialect(may_be=lambda lower: b'{"' in lower, read=json_object),
    Dialect(may_be=_may_be_bar, read=progress_bar, longest=PAIR_CHARS),
    Dialect(may_be=lambda lower: b"%|" in lower and b"loss" in lower, read=described_bar, longest=PAIR_CHARS),
    Dialect(may_be=lambda lower: b"loss: " in lower and b"/" in lower, read=keras, longest=PAIR_CHARS),
    Dialect(may_be=_may_count, read=counted, longest=PAIR_CHARS),
    Dialect(may_be=lambda lower: TERSE.match(lower) is not None, read=terse, longest=PAIR_CHARS),
)
