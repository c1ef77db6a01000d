"""Parse lines of console logs with a table of dialects; each returns the metrics of a line, or None.

A line counts where it holds a counter (`step 12`, `[12/100]`, `Epoch 3`) beside numbers by name, or where the names are
metrics that we know; `io/console_pairs.py` reads both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import field
from typing import Final

from ptt.diagnostics.definitions import compiled, dataclass
from ptt.diagnostics.metrics.aliases import canonical
from ptt.diagnostics.parsers.io.console_pairs import (
    CODE_FILES,
    COMPACT,
    COUNTER_CHARS,
    NUMBER,
    PAIR_CHARS,
    WORDS,
    Counter,
    Values,
    counter_of,
    is_metric_name,
    number_of,
    of_split,
    pairs_of,
    printed_number,
)
from ptt.diagnostics.parsers.io.counters import COUNTERS, count_name
from ptt.diagnostics.parsers.io.metric_logs import measured_values
from ptt.diagnostics.parsers.io.metric_rows import STEP_KEYS, flatten
from ptt.diagnostics.parsers.io.printed_dicts import dicts_on, joined_names
from ptt.diagnostics.parsers.io.tracebacks import without_prefix
from ptt.diagnostics.parsers.io.values import as_step


@dataclass(frozen=True, kw_only=True)
class ConsoleRow:
    """One log call. `counter` says where it belongs; if it is empty, the line names no step."""

    dialect: str
    values: Values
    counter: Counter = field(default=Counter())
    framework: str | None = None


# Dialects

VERL = compiled(r"(?:^|[\s)])step:(\d{1,18}) - (.+)")
TORCHTUNE = compiled(r"(?:^|\s)Step (\d{1,18}) \| (.+)")
DICT_PAIR = compiled(
    r"'([^'\\]{1,200})': (?:'([^'\\]{0,200})'|(None|True|False|[^'\"\s{}\[\],()]{1,400}"
    r"|(?:np|numpy)\.(?:float|int)\d+\([^()]{1,400}\)|tensor\([^()]{1,400}(?:\([^()]{0,80}\)[^()]{0,80})?\))"
    r"|(\([^()]{0,400}\)|\[[^\[\]]{0,4000}\]))(, |\})"
)
DICT_STEP = compiled(r"(?:step|rollout|iteration|iter|perf|eval)\s?[:=]?\s?(\d{1,15})\s?[:|-]?\s?$", re.IGNORECASE)
BAR_LEFT = compiled(r"\s{0,80}(?:\d{1,3}%\||$|\[A)")


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
    if start > 0 and _holds_pairs(text[:start]):
        return None
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
    counter = Counter(at=step) if step is not None else _counter_before(text[:start])
    if "epoch" not in flat and not counter.known and {canonical(name) for name in flat} <= SETTINGS:
        return None
    if step is None and counter.known and not any(map(is_metric_name, flat)):
        return None
    return ConsoleRow(dialect="dict", values=flat, counter=counter)


def _holds_pairs(head: str) -> bool:
    """Return whether metrics come before a dict on the line, so that the dict is only part of the call."""
    if "%|" in head or not COMPACT.search(head):
        return False
    return any(map(is_metric_name, pairs_of(counter_of(without_prefix(head))[1])[0]))


def _counter_before(head: str) -> Counter:
    """Return what the text before a dict counts; a progress bar tells no step for sure."""
    if before := DICT_STEP.search(head[-40:]):
        return Counter(at=int(before[1]))
    return counter_of(without_prefix(head))[0] if head and "%|" not in head else Counter()


def labelled_dicts(text: str) -> ConsoleRow | None:
    """Read a line that contains dicts, nested or after other numbers.

    `step 3: {'loss': 0.5, 'reward': {'mean': 0.25}}`, `rl_loss: 0.5, reward_data: {'total': 144.0}`.
    """
    found = dicts_on(text)
    if found is None:
        return None
    dicts, rest = found
    counter, outside = counter_of(without_prefix(rest))
    beside = pairs_of(outside)[0]
    inside = joined_names(dicts, alone=not beside)
    key = next((key for key in STEP_KEYS if not counter.known and as_step(inside.get(key)) is not None), None)
    if key is not None:
        counter = Counter(at=as_step(inside.pop(key)))
    values = beside | inside
    if not any(map(is_metric_name, values)):
        return None
    return ConsoleRow(dialect="labelled", values=values, counter=counter)


SETTINGS: Final = frozenset({None, "lr"})  # what a dict of settings may contain too
OVERWRITTEN = compiled(r"\d{1,3}%\|")


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
    counts = [name for name in flat if _counter_unit(name) in ("step", "episode") and as_step(flat[name]) is not None]
    key = min(counts, key=lambda name: COUNTERS[count_name(name)], default=None)
    at = None if key is None else as_step(flat.pop(key))
    values = measured_values(flat)
    known = at is not None or "epoch" in values
    if not values.keys() - {"epoch"} or not any(map(is_metric_name, values)) or not known:
        return None
    return ConsoleRow(dialect="json", values=values, counter=Counter(at=at, unit=_counter_unit(key) if key else "step"))


def _counter_unit(name: str) -> str:
    return COUNTERS.get(count_name(name), (0, "row"))[1]


BAR = compiled(
    r"(?P<label>[^|%]{0,120}?):?\s*(?:(?P<percent>\d{1,3})%\|[^|]{0,400}\|\s{0,4}(?P<at>\d{1,12})/(?P<total>\d{1,12})"
    r"|(?<![\w.])(?P<count>\d{1,12})(?:it|ba|ex)) \[(?P<times>[^\[\]{]{0,80}?)"
    r", (?P<values>\{[^{}]{0,2000}\}|[^\[\]]{0,2000}(?:[=:]|[a-z)] {1,3}[+-]?\d)[^\[\]]{0,2000})\](?P<rest>.{0,400})"
)
NOT_TRAINING = compiled(r"eval|valid|test|predict|generat|sampl|load|download|map|filter|token", re.IGNORECASE)

TRAINING = compiled(r"\btrain(?:ing)?\b", re.IGNORECASE)  # beside the label of such a bar values need no known name


PICTURE = compiled(
    r"(?<!\d)\d{1,3}%\|[^|]{0,400}\|\s{0,4}(?P<at>\d{1,12})/(?P<total>\d{1,12}) \[[^\[\]]{0,120}(?:\]|$)"
)


def described_bar(text: str) -> ConsoleRow | None:
    """Read the numbers beside a tqdm bar: `Epoch 2 loss 0.5:  40%|... | 4/10 [...]`, `... | 4/10 [...]loss: 0.5`."""
    match = PICTURE.search(text)
    if match is None:
        return None
    label, rest = counter_of(text[: match.start()].rstrip().removesuffix(":") + " ")
    beside = pairs_of(rest)[0] or pairs_of(without_prefix(text[match.end() :]))[0]
    values = {name: value for name, value in beside.items() if is_metric_name(name)}
    if not values or NOT_TRAINING.search(rest):
        return None
    return ConsoleRow(dialect="bar", values=values, counter=_of_bar(label, int(match["at"]), int(match["total"])))


def _of_bar(label: Counter, at: int, total: int) -> Counter:
    """Return what a bar counts: steps of the epoch that its label names, or the work within one step."""
    if label.named:
        return label
    epoch = label.epoch if label.epoch is not None else label.at
    epochs = label.epochs if label.epoch is not None else label.total
    return Counter(at=at, total=total, epoch=epoch, epochs=epochs, nested=epoch is not None)


def progress_bar(text: str) -> ConsoleRow | None:
    """Read the numbers behind a tqdm bar: Lightning's, OpenRLHF's, of home-made loops with `set_postfix`.

    Lightning's bar of batches without a total says its step only in what follows: `Epoch 0, global step 8: ...`.
    """
    match = BAR.match(text)
    if match is None or NOT_TRAINING.search(match["label"]):
        return None
    values, _ = pairs_of(match["values"].strip("{}").replace("'", "").replace('"', ""))
    if not values or not (TRAINING.search(match["label"]) or any(map(is_metric_name, values))):
        return None
    label = counter_of(match["label"] + " ")[0]
    after = counter_of(match["rest"])[0]
    epoch = label.epoch if label.epoch is not None else label.at
    epochs = label.epochs if label.epoch is not None else label.total
    named = next((name for name, value in values.items() if _counter_unit(name) == "step" and _is_whole(value)), None)
    if after.at is not None and after.unit == "step":
        counter = Counter(at=after.at)
    elif named is not None:  # Tianshou's `env_step=2000`, where each epoch has a bar of its own
        counter = Counter(at=as_step(values.pop(named)))
    elif match["at"] is not None:
        counter = _of_bar(label, int(match["at"]), int(match["total"]))
    elif epoch is not None and match["count"] == "0":
        counter = Counter(epoch=epoch, epochs=epochs, unit="epoch")
    else:
        counter = Counter(at=int(match["count"]), epoch=epoch, epochs=epochs)
    return ConsoleRow(dialect="bar", values=values, counter=counter)


def _is_whole(value: float | None) -> bool:
    return as_step(value) is not None


KERAS = compiled(
    r"\s{0,8}(\d{1,12})/(\d{1,12})\s{0,4}(?:\[[=>.\s]{0,80}\]|[━ ]{2,80}|-(?= \d{1,6}m?s\b)) ?-?(.{0,2000})"
)


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
    """Read names and numbers on a line with a counter, however they are separated.

    minimind's `Epoch:[1/2](100/4166) loss:0.693`, Megatron's and nanochat's `step 12/100 | loss: 9.7 |`, nanoGPT's
    `iter 0: loss 4.2, time 1ms`, fairseq's `| epoch 001 | loss 3.2`, PRIME-RL's `Step 0 | Loss: 0.01`, PyTorch
    examples' `Epoch [1/5], Step [20/600], Loss: 0.3`, `[12/100] loss=0.5`, prose such as `Step 12: loss is 0.34`.
    """
    plain = without_prefix(text)
    counter, rest = counter_of(plain)
    if not counter.known:
        return None
    values, laid_out = pairs_of(rest)
    if counter.epoch is not None and (split := OF_EVALUATION.search(plain[:COUNTER_CHARS])):
        counter = Counter(epoch=counter.epoch, epochs=counter.epochs, unit="epoch")
        rest = f"{split[1] or split[2]}: {rest}"
    values = {name: value for name, value in of_split(rest, values).items() if not name.endswith(CODE_FILES)}
    known = any(map(is_metric_name, values))
    if not known and not (laid_out and len(values) > 1):
        return None
    return ConsoleRow(dialect="counted", values=values, counter=counter)


OF_EVALUATION = compiled(
    r"\bepoch\((val|test)\)|^\W{0,4}(validation|val|eval|evaluation|test) (?:results?|metrics|set)\b", re.IGNORECASE
)
SHORT = compiled(rf"s:(\d{{1,12}}) ((?:\w{{1,20}}:{NUMBER}(?: |$)){{1,20}})")
THREE_WORDS = compiled(rf"(\d{{1,12}}) (train|val|valid|test|eval|hella|loss) ({NUMBER})")


def terse(text: str) -> ConsoleRow | None:
    """Read the logs of llm.c, `s:12 trl:3.25 lr:0.0006 norm:0.25`, and of build-nanogpt, `12 train 3.25`."""
    if match := SHORT.fullmatch(text):
        values: Values = {
            name: printed_number(number, None) for name, _, number in (pair.partition(":") for pair in match[2].split())
        }
        return ConsoleRow(dialect="terse", values=values, counter=Counter(at=int(match[1])))
    if match := THREE_WORDS.fullmatch(text):
        return ConsoleRow(
            dialect="terse", values={match[2]: printed_number(match[3], None)}, counter=Counter(at=int(match[1]))
        )
    return None


TERSE = compiled(rb"s:\d|\d+ [a-z]+ [\d.naif+-]+\s*$")


DICT_CHARS: Final = 16_384  # in a line whose dicts are read token by token


def may_name_metric(lower: bytes) -> bool:
    """Return whether a line may hold the name of a metric that nearly all loops print."""
    return b"loss" in lower or b"reward" in lower or b"return" in lower or b"score" in lower or b"acc" in lower


def may_name_counter(lower: bytes) -> bool:
    """Return whether a line may hold the name of a counter."""
    return (
        b"step" in lower or b"iter" in lower or b"epoch" in lower or b"episode" in lower or b"update" in lower
        or b"ep " in lower or b"ep:" in lower or b"batch" in lower or b"round" in lower or b"generation" in lower
        or b"cycle" in lower
    )  # fmt: skip


COUNTS = compiled(
    rb"(?:step|iter|iteration|epoch|episode|ep|eps|updates?|batch|round|generation|cycle)s?\s{0,3}[:=#]?\s{0,8}[\[(]{0,2}\s{0,8}\d"
)
RATIOS = compiled(rb"[\[(]\s{0,8}\d{1,12}\s{0,8}/\s{0,8}\d|\xe2\x94\x81 {0,3}\d")


LEAD_CHARS: Final = frozenset({b"", *(b"%c" % char for char in b" 0123456789")})
LEADS = compiled(rb"\s{0,4}\d{1,12} ?[|:] ")


def may_count(lower: bytes) -> bool:
    """Return whether a line may count something: a name and its number, or one number out of another."""
    return (
        (may_name_counter(lower) and COUNTS.search(lower) is not None)
        or (b"/" in lower and RATIOS.search(lower) is not None)
        or (lower[:1] in LEAD_CHARS and LEADS.match(lower) is not None)
    )


SLOW = compiled(rb"\ds/[a-z]{1,20}, ")  # tqdm's speed below one a second, with any unit: `6.4s/it, `


def _may_be_bar(lower: bytes) -> bool:
    return (b"%|" in lower or b"it [" in lower) and (b"/s, " in lower or SLOW.search(lower) is not None)


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
    Dialect(may_be=lambda lower: b"{'" in lower or b'{"' in lower, read=labelled_dicts, longest=DICT_CHARS),
    Dialect(may_be=lambda lower: b"%|" in lower and may_name_metric(lower), read=described_bar, longest=PAIR_CHARS),
    Dialect(may_be=lambda lower: b"loss: " in lower and b"/" in lower, read=keras, longest=PAIR_CHARS),
    Dialect(may_be=may_count, read=counted, longest=PAIR_CHARS),
    Dialect(may_be=lambda lower: TERSE.match(lower) is not None, read=terse, longest=PAIR_CHARS),
)
