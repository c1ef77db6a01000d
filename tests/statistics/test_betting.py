"""A bet that may be looked at after every step: fair against a coin, rich where steps lie beyond a limit."""

import math

import numpy as np
import pytest

from ptt.diagnostics.statistics.betting import STAKES, Bet


def capital_by_definition(beyond: list[bool]) -> float:
    """Add up, over stakes and over the places where two steps in a row had just lain beyond, what each bet became."""
    total = 0.0
    begins = [
        at for at in range(2, len(beyond)) if beyond[at - 2 : at] == [True, True] and not any(beyond[at - 3 : at - 2])
    ]
    for stake in STAKES:
        for number, begin in enumerate(begins, start=1):
            weight = 1 / number - 1 / (number + 1)
            total += weight * math.prod(1 + stake / 2 if one else 1 - stake / 2 for one in beyond[begin:])
    return total / len(STAKES)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_the_capital_is_that_of_all_bets_by_themselves(share: float) -> None:
    beyond = (np.random.default_rng(3).random(40) < share).tolist()
    bet = Bet()
    for step, one in enumerate(beyond):
        bet.take(step, beyond=one)
    assert bet.capital == pytest.approx(capital_by_definition(beyond), rel=1e-9)


def test_nobody_gets_rich_on_a_fair_coin_however_often_one_looks() -> None:
    generator = np.random.default_rng(7)
    rich = 0
    for _ in range(400):
        bet = Bet()
        best = 0.0
        for step, one in enumerate((generator.random(500) < 0.5).tolist()):
            bet.take(step, beyond=one)
            best = max(best, bet.capital)
        rich += best >= 20
    assert rich <= 0.05 * 400


def test_a_healthy_past_does_not_ruin_the_bet() -> None:
    bet = Bet()
    for step in range(2000):
        bet.take(step, beyond=step % 10 == 0)
    poor = bet.capital
    for step in range(2000, 2016):
        bet.take(step, beyond=True)
    assert poor < 1 < 1000 < bet.capital
    assert bet.since == 2000
