"""What the curves of real training are made of: progress with plateaus, noise that remembers, heavy tails."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Generator = np.random.Generator

LIKENESS: Final = (0.0, 0.0, 0.3, 0.5, 0.8)  # AR(1) that a run's noise is drawn from: real runs show 0 to 0.5, few more
SHAPES: Final = ("saturating", "sigmoid", "plateau", "late")
SHAPE_ODDS: Final = (0.45, 0.3, 0.2, 0.05)


def ar(generator: Generator, count: int, *, likeness: float, sd: float) -> FloatArray:
    """Draw an AR(1) of this standard deviation in the long run."""
    drawn = generator.normal(size=count)
    noise = np.empty(count)
    last = drawn[0]
    for place in range(count):
        last = last if place == 0 else likeness * last + math.sqrt(1 - likeness**2) * drawn[place]
        noise[place] = last
    return sd * noise


def some_ar(generator: Generator, count: int, sd: float) -> FloatArray:
    """Draw an AR(1) whose likeness is one that real runs have."""
    return ar(generator, count, likeness=float(generator.choice(LIKENESS)), sd=sd)


def heavy(generator: Generator, count: int, sd: float) -> FloatArray:
    """Draw factors with heavy tails: exp of Student t (4 degrees), cut at three scales above and four below."""
    return np.exp(sd * np.clip(generator.standard_t(4, count) / math.sqrt(2), -4, 3))


def progress(generator: Generator, count: int) -> FloatArray:
    """Draw a learning curve from 0 to 1: at first fast, s-shaped, with a plateau in its middle, or late and sudden."""
    u = np.linspace(0, 1, count)
    shape = str(generator.choice(SHAPES, p=SHAPE_ODDS))
    if shape == "saturating":
        rate = generator.uniform(2, 8)
        return (1 - np.exp(-rate * u)) / (1 - math.exp(-rate))
    if shape == "sigmoid":
        return sigmoid(u, generator.uniform(0.15, 0.5), generator.uniform(0.04, 0.15))
    if shape == "plateau":
        first = sigmoid(u, generator.uniform(0.05, 0.2), 0.04)
        share = generator.uniform(0.3, 0.6)
        return share * first + (1 - share) * sigmoid(u, generator.uniform(0.55, 0.8), 0.05)
    return sigmoid(u, generator.uniform(0.5, 0.75), 0.02)


def sigmoid(u: FloatArray, middle: float, width: float) -> FloatArray:
    """Give an s that is 0 at the start and 1 at the end."""
    values: FloatArray = 1 / (1 + np.exp(-(u - middle) / width))
    scaled: FloatArray = (values - values[0]) / (values[-1] - values[0])
    return scaled


def log_uniform(generator: Generator, low: float, high: float) -> float:
    """Draw a number between both, each factor as likely."""
    return math.exp(generator.uniform(math.log(low), math.log(high)))


def schedule(generator: Generator, count: int, *, constant: float = 0.4) -> FloatArray:
    """Give a learning rate over its peak: warm-up, then constant, cosine or linear."""
    warm = max(1, int(generator.uniform(0.01, 0.08) * count))
    rise = np.minimum(1.0, np.arange(count) / warm)
    rest = np.clip((np.arange(count) - warm) / max(1, count - warm), 0, 1)
    form = generator.random()
    if form < constant:
        return rise
    fall = 0.5 * (1 + np.cos(math.pi * rest)) if form < (1 + constant) / 2 else 1 - rest
    return rise * np.maximum(fall, 1e-6)
