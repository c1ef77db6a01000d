"""What is known of each metric, read once from metrics.toml: its label, kind, link, range and worse direction."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import field
from functools import cache
from importlib import resources
from typing import Any, Final, Literal

from ptt.diagnostics.definitions import dataclass

Kind = Literal["training", "schedule", "counter", "machine"]
Range = tuple[float, float]
ANY: Final[Range] = (-math.inf, math.inf)


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One canonical metric; the fields are explained at the head of metrics.toml."""

    label: str = ""
    aliases: Mapping[str, list[str]] = field(default_factory=dict)
    reads: list[str] = field(default_factory=list)
    reads_alone: list[str] = field(default_factory=list)
    range: Range | None = None
    counts: bool = False
    signed_estimate: bool = False
    worse: str | None = None
    why_worse: str = ""
    floor: float = 0.0
    signed: bool = False


UNKNOWN: Final = Metric()


@cache
def document() -> dict[str, Any]:
    """Return metrics.toml as it stands."""
    return tomllib.loads(resources.files(__package__).joinpath("metrics.toml").read_text("utf-8"))


@cache
def metrics() -> Mapping[str, Metric]:
    """Return every canonical metric, in the order of the file."""
    return {
        name: Metric(**{**row, "range": tuple(row["range"]) if "range" in row else None})
        for name, row in document()["metrics"].items()
    }


def known(name: str | None) -> Metric:
    """Return what is known of a metric; of a name that is none, nothing."""
    return metrics().get(name or "", UNKNOWN)


def listed(name: str) -> tuple[str, ...]:
    """Return one of the lists of metrics that belong together, in its order."""
    return tuple(document()["lists"][name])


@cache
def labels() -> Mapping[str, str]:
    """Return what prose calls each metric: those everybody names first, then by name."""
    first = listed("named_first")
    return {name: metrics()[name].label for name in (*first, *sorted(metrics().keys() - set(first)))}


def called(name: str, split: str) -> str:
    """Return what prose calls a metric of training or of an evaluation; empty where nothing is known of it."""
    label = known(name).label
    return f"evaluation {label}" if label and split == "eval" and not label.startswith("evaluation") else label


def kind_of(name: str) -> Kind:
    """Return what kind of figure a metric is; what is not known otherwise is one of training."""
    kinds = document()["kinds"]
    if name in kinds["schedule"]:
        return "schedule"
    if name in kinds["counter"]:
        return "counter"
    return "machine" if name.startswith(tuple(kinds["machine"])) else "training"


def link_name(name: str) -> str | None:
    """Return the link of the loop that a metric's name begins like, or None."""
    return next((link for beginning, link in document()["links"].items() if name.startswith(beginning)), None)
