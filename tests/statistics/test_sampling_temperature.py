"""The temperature that tokens were drawn at, from logprobs and entropies at temperature 1."""

from __future__ import annotations

import numpy as np
import pytest
from slow_cases import first_fast

from ptt.diagnostics.statistics.arrays import FloatArray, IntArray
from ptt.diagnostics.statistics.surprisal_excess import sampling_temperature


def drawn(temperature: float, seed: int, tokens: int = 12_000) -> tuple[FloatArray, FloatArray, IntArray]:
    """Draw tokens from random distributions over 30, and give their surprisals and entropies at 1."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(size=(tokens, 30)) * generator.uniform(0.5, 6.0, (tokens, 1))
    logp = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    chosen = (logits / temperature + generator.gumbel(size=logits.shape)).argmax(axis=1)
    surprisal = -np.take_along_axis(logp, chosen[:, None], 1)[:, 0]
    return surprisal, -(np.exp(logp) * logp).sum(axis=1), np.arange(tokens) // 60


@pytest.mark.parametrize("temperature", first_fast([0.7, 0.85, 1.0, 1.2, 1.5, 2.0], 2))
def test_the_temperature_is_estimated_within_its_error(temperature: float) -> None:
    found = [sampling_temperature(*drawn(temperature, seed)) for seed in range(12)]
    assert all(one is not None and (one.consistent or temperature < 0.85) for one in found)
    off = [(one.value - temperature) / one.error for one in found if one is not None]
    assert abs(float(np.mean(off))) < 1.0
    assert float(np.std(off)) == pytest.approx(1.0, abs=0.6)
    assert max(abs(one.value - temperature) for one in found if one is not None) < 0.06 * temperature


def test_tokens_that_nobody_sampled_have_no_temperature_of_their_own() -> None:
    surprisal, entropy, unit = drawn(1.0, 1)
    foreign = unit % 2 == 0
    found = sampling_temperature(np.where(foreign, 9.0, surprisal), np.where(foreign, entropy.max(), entropy), unit)
    assert found is None or not found.consistent


def test_no_temperature_explains_tokens_that_are_never_surprising() -> None:
    assert sampling_temperature(np.full(500, 0.1), np.full(500, 2.0), np.arange(500)) is None
    assert sampling_temperature(np.empty(0), np.empty(0), np.empty(0, np.int64)) is None
