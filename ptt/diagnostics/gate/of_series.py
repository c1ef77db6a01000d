"""Sum up a logged metric over a window; where NaN stands, or the metric fell silent, there is nothing to sum up."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from ptt.diagnostics.evidence.departures import step_noise
from ptt.diagnostics.evidence.series import DEAD_VALUES, LOST_SHARE, Series
from ptt.diagnostics.gate.measures import Measured, Unmeasured, silent_at, window_of, window_words
from ptt.diagnostics.gate.policy import Bound
from ptt.diagnostics.gate.seen import Absent, Seen
from ptt.diagnostics.gate.subjects import Logged
from ptt.diagnostics.schema import Flag
from ptt.diagnostics.statistics.summaries import LEAST_VALUES, summary

IntArray = npt.NDArray[np.int64]

NO_NUMBER: Final = (Flag.NAN, Flag.POS_INF, Flag.NEG_INF, Flag.DROPPED_BY_WRITER)


def measured_metric(bound: Bound, subject: Logged, seen: Seen) -> Measured | Unmeasured:
    """Take a bound's statistic from the curve of a metric."""
    series = seen.series(subject.name, exact=subject.exact)
    if isinstance(series, Absent):
        return Unmeasured(reason=series.reason, enable=series.enable)
    return _of_series(bound, series, seen)


def _of_series(bound: Bound, series: Series, seen: Seen) -> Measured | Unmeasured:
    known = series.flags != Flag.NULL_IN_SOURCE  # a null may be a row that does not log the metric
    steps, values, flags = series.steps[known], series.values[known], series.flags[known]
    if not len(steps):
        return Unmeasured(reason=f"{series.raw_name} holds no value", enable="log a number every step")
    cut = window_of(len(steps), bound.window)
    data = f"{series.raw_name}, {window_words(bound.window)}: steps {steps[cut][0]} to {steps[cut][-1]}"
    silent = silent_at(steps, bound.window, seen.opened.diagnosis.run)
    if silent:
        return Unmeasured(
            reason=f"{series.raw_name} is logged {silent}", enable="find out why it is not logged there", data=data
        )
    bad = np.isin(flags[cut], NO_NUMBER)
    finite = np.isfinite(values[cut])
    data += f", {int(finite.sum())} finite values of {len(finite)}"
    if bad[-DEAD_VALUES:].all() or bad.sum() > LOST_SHARE * len(bad):
        return Unmeasured(
            reason=f"{series.raw_name} is NaN or infinite at {int(bad.sum())} of {len(bad)} steps there",
            enable="find out why these are no numbers first: see metrics-lost and nan-precursors",
            data=data,
            no_number=True,
        )
    _, every = series.finite()
    spread, likeness = step_noise(every) if len(every) > LEAST_VALUES else (float(np.std(every)), 0.0)
    found = summary(
        steps[cut][finite].astype(np.float64), values[cut][finite], bound.statistic, spread=spread, likeness=likeness
    )
    if isinstance(found, str):
        return Unmeasured(reason=f"{series.raw_name}: {found}", enable="log it every step, or run longer", data=data)
    if not math.isfinite(found.value):
        return Unmeasured(reason=f"{series.raw_name}: its values are too large to sum up", enable="", data=data)
    return Measured(value=found.value, low=found.low, high=found.high, data=data, file=seen.file_of(series))
