"""Canonical names for what each framework calls its metrics; the table itself is data in metrics.toml."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, lru_cache

from ptt.diagnostics.metrics.catalogue import document, metrics

CACHED_NAMES = 65536  # a run has hundreds; a file with more makes them up as it goes
OWN = "ptt/"  # what the metrics of a watch begin with, behind a reporter's prefix
REWRITTEN_SPLITS = ("eval", "test")  # `rewrite_logs` of huggingface/transformers, for TensorBoard, W&B and others
MIN_LETTERS = 4  # from which letters are looked at anywhere: `llr` is a figure of its own, and no slip of `lr`


@dataclass(frozen=True)
class _Table:
    exact: dict[str, str]
    patterns: tuple[tuple[re.Pattern[str], str], ...]
    reporters: tuple[str, ...]
    eval_prefixes: tuple[str, ...]
    marks: tuple[tuple[re.Pattern[str], str], ...]  # names only one framework logs


@cache
def _table() -> _Table:
    data = document()
    exact: dict[str, str] = {}
    patterns: list[tuple[re.Pattern[str], str]] = []
    for name, metric in metrics().items():
        for raws in metric.aliases.values():
            for raw in raws:
                if "*" in raw:
                    patterns.append((spelling_pattern(raw), name))
                elif exact.setdefault(raw, name) != name:
                    raise ValueError(f"metrics.toml: `{raw}` stands under both {exact[raw]} and {name}")
    folders = frozenset(data["flattened"]["folders"])
    flattened = {raw.replace("/", "_"): name for raw, name in exact.items() if raw.partition("/")[0] in folders}
    return _Table(
        exact=flattened | exact,
        patterns=tuple(patterns),
        reporters=tuple(data["reporters"]["prefixes"]),
        eval_prefixes=tuple(data["splits"]["eval"]),
        marks=tuple((spelling_pattern(raw), name) for name, raws in data["frameworks"].items() for raw in raws),
    )


def spelling_pattern(raw: str) -> re.Pattern[str]:
    """Return the pattern of a spelling in which `*` stands for one path segment, each a group."""
    return re.compile(re.escape(raw).replace(r"\*", "([^/]+)"))


def framework_of(raws: Iterable[str]) -> str | None:
    """Return the framework by names that only it logs; None without such a name, or with those of two frameworks."""
    table = _table()
    frameworks: set[str] = set()
    for raw in raws:
        spellings = [raw, *(raw.removeprefix(prefix) for prefix in table.reporters if raw.startswith(prefix))]
        frameworks.update(name for pattern, name in table.marks if any(map(pattern.fullmatch, spellings)))
    frameworks -= {other for name in frameworks for other in document()["also_logs"].get(name, ())}
    return frameworks.pop() if len(frameworks) == 1 else None


@lru_cache(maxsize=CACHED_NAMES)
def bare_name(raw: str) -> str:
    """Return a name as the trainer gave it: without a reporter's prefix, and `eval_` as reporters write it, `eval/`."""
    for split in REWRITTEN_SPLITS:
        if raw.startswith(f"{split}_"):
            return f"{split}/{raw.removeprefix(f'{split}_')}"
    return next((raw.removeprefix(prefix) for prefix in _table().reporters if raw.startswith(prefix)), raw)


def is_own(raw: str) -> bool:
    """Return whether a metric is what a watch of ours told the trackers: no series of the run."""
    return bare_name(raw).startswith(OWN)


@lru_cache(maxsize=CACHED_NAMES)
def canonical(raw: str) -> str | None:
    """Return the canonical name of a metric as a framework spelt it, or None if no framework we know does."""
    table = _table()
    spellings = [raw, *(raw.removeprefix(prefix) for prefix in table.reporters if raw.startswith(prefix))]
    for spelling in spellings:
        if name := table.exact.get(spelling):
            return name
    for spelling in spellings:
        for pattern, name in table.patterns:
            if pattern.fullmatch(spelling):
                return name
    return None


def writers_of(raw: str) -> list[str]:
    """Return the frameworks that spell a metric so."""
    spelt = [raw, *(raw.removeprefix(prefix) for prefix in _table().reporters if raw.startswith(prefix))]
    of = metrics().get(canonical(raw) or "")
    known = of.aliases.items() if of else ()
    return [
        writer
        for writer, raws in known
        if any(
            spelling == alias or ("*" in alias and spelling_pattern(alias).fullmatch(spelling))
            for alias in raws
            for spelling in spelt
        )
    ]


@cache
def canonical_names() -> frozenset[str]:
    """Return every canonical name."""
    table = _table()
    return frozenset({*table.exact.values(), *(name for _, name in table.patterns)})


def spellings(name: str, cutoff: float) -> list[str]:
    """Return up to two names, canonical or as some framework spells them, that are at least so like this one.

    A letter typed twice, or two that changed places, are a slip however short the name is. Another letter is not:
    `rpo_loss` and `ppo_loss` both are logged.
    """
    known = {*canonical_names(), *_table().exact}
    prefix = next((reporter for reporter in _table().reporters if name.startswith(reporter)), "")
    slips = [prefix + near for near in _undo_typos(name.removeprefix(prefix)) if near in known]
    near = get_close_matches(name, sorted(known), n=2, cutoff=cutoff)
    return list(dict.fromkeys([*slips, *near]))[:2]


def _undo_typos(name: str) -> Iterator[str]:
    """Yield what may have been meant: a doubled letter once, neighbouring letters the other way round."""
    for at in range(1, len(name)):
        before, here = name[at - 1], name[at]
        if not (before + here).isalpha():
            continue
        if before == here and (len(name) > MIN_LETTERS or at == len(name) - 1):
            yield name[:at] + name[at + 1 :]
        elif before != here and len(name) >= MIN_LETTERS:
            yield name[: at - 1] + here + before + name[at + 1 :]


def split_of(raw: str) -> str:
    """Return by its spelling whether a metric was measured in training or in evaluation."""
    return "eval" if raw.startswith(_table().eval_prefixes) else "train"
