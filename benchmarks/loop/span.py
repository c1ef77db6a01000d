"""Spreads a made run over what real logs span: spacing of its rows, precision of its values, when a fault begins."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from benchmarks.loop.made import Made, generator_of
from benchmarks.loop.noise import FloatArray, Generator, IntArray, log_uniform

EARLIEST, LATEST = 0.1, 0.9  # of the rows: between these a fault may begin
SMALLEST, LARGEST = 0.5, 1.6  # of a fault's usual size
SHARPEST, FLATTEST = 0.3, 2.5  # of the usual width over which a fault sets in
SPACINGS: Final = (1, 2, 5, 10, 25)  # steps a logged row
PRECISIONS: Final = ("float64", "bfloat16", "4 digits", "3 digits")
EXACT: Final = ("num_tokens",)  # counts


def spread(run: Made) -> Made:
    """Give the healthy run with rows spaced, and values rounded, at random; a fault in it may begin anywhere."""
    generator = generator_of("span", run.algorithm, run.seed)
    spaced = _respaced(run, generator)
    precision = str(generator.choice(PRECISIONS))
    return replace(
        spaced,
        train={name: values if name in EXACT else rounded(values, precision) for name, values in spaced.train.items()},
        begins=(EARLIEST, LATEST),
        stretch=log_uniform(generator, SHARPEST, FLATTEST),
    )


def size_of(run: Made, fault: str) -> float:
    """Draw how large a fault is, as a share of its usual size."""
    return log_uniform(generator_of("span size", fault, run.algorithm, run.seed), SMALLEST, LARGEST)


def _respaced(run: Made, generator: Generator) -> Made:
    """Log every so many steps, in a third of the runs another number from some row on."""
    if np.isnan(run.train.get("reward", np.zeros(1))).any():
        return run  # a row for each optimiser step, and the reward at every second one
    gaps = np.full(run.count, int(generator.choice(SPACINGS)))
    if generator.random() < 1 / 3:
        gaps[int(generator.uniform(0.2, 0.8) * run.count) :] = int(generator.choice(SPACINGS))
    steps = np.cumsum(gaps)

    def moved(old: IntArray) -> IntArray:
        return np.asarray(steps[np.minimum(np.searchsorted(run.steps, old), run.count - 1)])

    restart = None if run.restart is None else tuple(int(step) for step in moved(np.array(run.restart)))
    return replace(
        run,
        steps=steps,
        evals=replace(run.evals, steps=moved(run.evals.steps)),
        samples=[replace(sample, step=int(moved(np.array([sample.step]))[0])) for sample in run.samples],
        planned=int(steps[-1]),
        restart=restart,  # type: ignore[arg-type]
    )


def rounded(values: FloatArray, precision: str) -> FloatArray:
    """Round as a logger of this precision does."""
    if precision == "float64":
        return values
    known = np.isfinite(values) & (values != 0)
    kept = np.where(known, values, 1.0)
    if precision == "bfloat16":
        mantissa, exponent = np.frexp(kept)
        return np.where(known, np.ldexp(np.round(mantissa * 256) / 256, exponent), values)
    unit = 10.0 ** (np.floor(np.log10(np.abs(kept))) + 1 - int(precision[0]))
    return np.where(known, np.round(kept / unit) * unit, values)
