"""Write a baseline as text that people review: one figure a line, nothing of the machine or the day."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final

from ptt.diagnostics.baseline.values import Baseline, Figures, LateEss, MetricFigures
from ptt.diagnostics.statistics.curves import Curve

LONGEST: Final = 200  # letters of a name
WIDTH: Final = 110  # of a line of numbers
MOST_DOTS: Final = 50  # of a text as it is; the reader refuses lines of more than twice as many
HEADER: Final = """\
# A baseline for `ptt gate`: what passing runs measured. Review changes of it as you review code.
# Made by `ptt baseline update FILE RUN...`; the same command renews it and says what moved. Not to be edited by hand:
# a limit is loosened in ptt.toml, where the next reader looks for it.
#
# steps: what all runs share; early, mid and late are its thirds, and the late one is judged.
# metrics: mean, its standard error (of values that follow one another) and the error's degrees of freedom, n finite
#   values, and the scatter of a single value, in each of the three windows.
# tails: percentiles of |r| in nats over spans of steps, and their relative noise (redrawn prompt groups or sequences).
# ess_late: effective sample size of all late tokens at once, a share of them, as a bound on ess.* takes it, and the
#   standard error of its logarithm.
"""


def text_of(baseline: Baseline) -> str:
    """Give the file's text; the same baseline gives the same bytes."""
    lines = [
        HEADER,
        f"schema_version = {baseline.schema_version}",
        f"ptt_version = {string(baseline.ptt_version)}",
        f"name = {string(baseline.name)}",
        f"steps = [{baseline.steps.first}, {baseline.steps.last}]",
    ]
    for run in baseline.runs:
        lines += ["", "[[run]]", *_facts(run)]
        for one in run.metrics:
            lines += ["", f"[run.metrics.{string(one.name)}]", *_metric(one)]
        for name in dict.fromkeys(curve.slice for curve in run.tails):
            held = {curve.quantile: curve for curve in run.tails if curve.slice == name}
            lines += ["", f"[run.tails.{string(name)}]", *_tails(held["p95"], held["p99"])]
        for ess in run.ess_late:
            lines += ["", f"[run.ess_late.{string(ess.slice)}]", *_ess_late(ess)]
    return "\n".join(lines) + "\n"


def _facts(run: Figures) -> list[str]:
    lines = [f"name = {string(run.name)}", f"source = {string('sha256:' + run.source)}"]
    for key, value in (("framework", run.framework), ("algorithm", run.algorithm), ("pair", run.pair)):
        if value is not None:
            lines.append(f"{key} = {string(value)}")
    lines += [
        f"slices = [{', '.join(map(string, run.slices))}]",
        f"steps = [{', '.join(map(str, run.steps))}]  # first, last, how many",
        f"sequences = {run.sequences}",
        f"model_tokens = {run.model_tokens}",
        f"status = {string(run.status)}",
    ]
    if run.accepted:
        lines.append(f"accepted = [{', '.join(map(string, run.accepted))}]  # a baseline all the same, by decision")
    if run.why_no_tails:
        lines.append(f"why_no_tails = {string(run.why_no_tails)}")
    if run.ess:
        held = ", ".join(f"{string(name)} = {_number(value)}" for name, value in sorted(run.ess.items()))
        lines.append(f"ess = {{ {held} }}  # late, mean over sliding windows of each window's share")
    return lines


def _metric(one: MetricFigures) -> list[str]:
    columns: dict[str, Sequence[float]] = {
        "mean": [window.mean for window in one.windows],
        "error": [window.error for window in one.windows],
        "freedom": [window.freedom for window in one.windows],
        "n": [window.n for window in one.windows],
        "scatter": [window.scatter for window in one.windows],
    }
    return [
        f"logged_as = {string(one.logged_as)}",
        *(line for key, values in columns.items() for line in _array(key, values)),
    ]


def _ess_late(one: LateEss) -> list[str]:
    return [f"share = {_number(one.share)}", f"noise = {_number(one.noise)}", f"tokens = {one.tokens}"]


def _tails(p95: Curve, p99: Curve) -> list[str]:
    return [
        *_array("first", (span.first for span in p95.spans)),
        *_array("last", (span.last for span in p95.spans)),
        *_array("tokens", map(int, p95.tokens)),
        *_array("units", map(int, p95.units)),
        *_array("p95", _nats(p95)),
        *_array("p95_noise", _noise(p95)),
        *_array("p99", _nats(p99)),
        *_array("p99_noise", _noise(p99)),
    ]


def _nats(curve: Curve) -> list[float]:
    return [float(f"{math.exp(value):.5g}") for value in curve.log_value]


def _noise(curve: Curve) -> list[float]:
    return [float(f"{math.sqrt(value):.4g}") for value in curve.own]


def _array(key: str, values: Iterable[float]) -> list[str]:
    """Give an array on one line, or on lines of an even width."""
    numbers: Sequence[str] = [_number(value) for value in values]
    line = f"{key} = [{', '.join(numbers)}]"
    if len(line) <= WIDTH:
        return [line]
    lines, row = [f"{key} = ["], ""
    for number in numbers:
        if len(row) + len(number) + 6 > WIDTH:
            lines.append(f"  {row.rstrip()}")
            row = ""
        row += f"{number}, "
    return [*lines, f"  {row.rstrip()}", "]"]


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    text = repr(value)
    return text if any(letter in text for letter in ".en") else f"{text}.0"


def string(text: str) -> str:
    """Give a TOML string; what steers a terminal or reorders a line in a review is written by its number."""
    cut = text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
    text = "".join(map(_letter, cut))
    return '"' + (text.replace(".", "\\u002E") if text.count(".") > MOST_DOTS else text) + '"'


def _letter(letter: str) -> str:
    if letter in '"\\':
        return "\\" + letter
    kind = unicodedata.category(letter)
    if kind == "Cs":  # no text can hold half a surrogate pair
        return "\\uFFFD"
    if kind in {"Cc", "Cf", "Zl", "Zp", "Co", "Cn"}:
        return f"\\u{ord(letter):04X}" if ord(letter) < 0x10000 else f"\\U{ord(letter):08X}"
    return letter
