"""Why trainer and engine disagree: signs that speak for and against each cause, and the answer that they rank.

A sign is one look at the logs: of a logged metric or of recorded tokens. It carries, for each cause that it bears on,
the logarithm of how much more often it is seen under that cause than under the others: above 0 it speaks for the
cause, below 0 against it. Independent looks add up (naive Bayes); the causes and their words are in
mismatch_causes.toml.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib import resources
from typing import Any, Final

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.model import JsonScalar

MISMATCH: Final = "mismatch_causes.toml"
Table = dict[str, dict[str, Any]]
CAUSES: Final = (
    "weights-not-synced", "weights-partly-synced", "stale-weights", "base-weights", "adapter-missing", "adapter-twice",
    "trainer-weights", "cache-not-cleared", "temperature", "top-p", "raw-vs-processed", "shift", "copied-column",
    "precision", "kernel", "rope", "template-or-retokenisation", "packing", "padding", "prompt-bound-fault",
    "one-rank", "expert-routing", "trainer-dropout",
)  # fmt: skip
TOLD_APART: Final = 1.0
"""Nats between the first two causes: from a factor of e in likelihood on, the first is named alone."""
MOST_NAMED: Final = 2
MAX_SWITCHES: Final = 3
MAX_CAUSES: Final = 4  # in an answer: lower-ranked ones fit too badly to be worth a try


@dataclass(frozen=True, kw_only=True)
class Sign:
    """What one look saw, in words that end "for"/"against" lists, and the weight for each cause, in nats."""

    text: str
    weights: Mapping[str, float]
    switch: str = ""  # how the run would be without the setting that the sign tells of


@dataclass(frozen=True, kw_only=True)
class MismatchCause:
    """One cause, how much the signs favour it (nats; 0: they say nothing), and which speak for and against it."""

    name: str
    score: float
    for_: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    title: str = ""  # the cause in words


@dataclass(frozen=True, kw_only=True)
class MismatchAnswer:
    """The causes, likeliest first, with the experiment that tells the first two apart and the setting to change."""

    causes: tuple[MismatchCause, ...]
    indistinguishable: tuple[str, str] | None
    experiment: str
    setting: str
    record: str  # what to log, so that metrics tell the first two apart; empty where they do

    @property
    def first(self) -> MismatchCause:
        """The likeliest cause."""
        return self.causes[0]

    @property
    def undecided(self) -> bool:
        """Whether more than two causes fit as well as the first: then none of them is named as the one."""
        return sum(self.first.score - cause.score < TOLD_APART / 2 for cause in self.causes) > MOST_NAMED

    @property
    def evidence(self) -> dict[str, JsonScalar]:
        """The answer as the typed evidence of a finding."""
        ranked: dict[str, JsonScalar] = {}
        for place, cause in enumerate(self.causes, start=1):
            ranked[f"cause_{place}"] = cause.name
            ranked[f"cause_{place}_score"] = cause.score
            ranked[f"cause_{place}_for"] = "; ".join(cause.for_)
            ranked[f"cause_{place}_against"] = "; ".join(cause.against)
        pair = " or ".join(self.indistinguishable) if self.indistinguishable else None
        named = {"experiment": self.experiment, "setting": self.setting, "record": self.record}
        return {"cannot_tell_apart": pair, **named, **ranked}


def rank_causes(
    signs: Iterable[Sign], *, framework: str | None, table: str = MISMATCH, names: Sequence[str] = CAUSES
) -> MismatchAnswer | None:
    """Return the causes that the signs favour, of those of a table that are named, or None where they favour none."""
    signs = tuple(signs)
    words = table_of(table)
    scores = {
        name: float(words[name].get("prior", 0.0)) + sum(one.weights.get(name, 0.0) for one in signs) for name in names
    }
    ranked = sorted((name for name in names if scores[name] > 0), key=lambda name: -scores[name])
    if not ranked:
        return None
    causes = tuple(
        MismatchCause(
            name=name,
            score=scores[name],
            for_=tuple(one.text for one in signs if one.weights.get(name, 0.0) > 0),
            against=tuple(one.text for one in signs if one.weights.get(name, 0.0) < 0),
            title=str(words[name]["title"]),
        )
        for name in ranked[:MAX_CAUSES]
    )
    close = len(causes) > 1 and causes[0].score - causes[1].score < TOLD_APART
    pair = (causes[0].name, causes[1].name) if close else None
    return MismatchAnswer(
        causes=causes,
        indistinguishable=pair,
        experiment=_experiment(words, causes[0].name, pair) + _switches(signs, pair or (causes[0].name,)),
        setting=_setting(words, causes[0].name, framework),
        record="; or ".join(filter(None, (words[name].get("record", "") for name in pair or ()))),
    )


def _experiment(words: Table, first: str, pair: tuple[str, str] | None) -> str:
    """Return the A/B of the pair where the table has one, else that of the first cause."""
    apart: Mapping[str, str] = words[first].get("apart", {}) if pair else {}
    other: Mapping[str, str] = words[pair[1]].get("apart", {}) if pair else {}
    named = (apart.get(pair[1]) or other.get(first)) if pair else None
    return named or str(words[first]["experiment"])


def _switches(signs: Sequence[Sign], causes: Sequence[str]) -> str:
    """Return the settings of this run that the experiment can turn, one after the other."""
    weighed = [one for one in signs if one.switch and any(one.weights.get(name, -1.0) >= 0 for name in causes)]
    found = dict.fromkeys(one.switch for one in weighed)
    return f"; of this run's settings, try one by one: {', '.join([*found][:MAX_SWITCHES])}" if found else ""


def _setting(words: Table, name: str, framework: str | None) -> str:
    settings: Mapping[str, str] = words[name]["setting"]
    return settings.get(framework or "", settings["any"])


@lru_cache(maxsize=2)
def table_of(name: str) -> Table:
    """Read a table of causes: each by its name, and under `signs` what speaks for and against them."""
    return tomllib.loads(resources.files(__package__).joinpath(name).read_text("utf-8"))


def sign(name: str, /, *, table: str = MISMATCH, **numbers: str) -> Sign:
    """Return a sign of a table by its name, with the numbers that its text names."""
    entry = table_of(table)["signs"][name]
    return Sign(text=str(entry["text"]).format_map(numbers), weights=entry["weights"], switch=entry.get("switch", ""))


@lru_cache(maxsize=1)
def setting_signs() -> dict[str, dict[str, Any]]:
    """Return the signs that a setting gives, by name, with the settings and what is asked of them."""
    return {name: entry for name, entry in table_of(MISMATCH)["signs"].items() if "settings" in entry}
