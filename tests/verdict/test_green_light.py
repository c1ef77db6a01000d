"""No run is called healthy beside a recorded series that got much worse, unless a reason excuses it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ptt.diagnostics.evidence.algorithm import Family
from ptt.diagnostics.model import SeriesOutcome
from ptt.diagnostics.verdict.green_light import BY_HEART, LEARNT, WORSE, blocked_by, excuses, memorised, not_learnt
from ptt.diagnostics.wording import sig

RECALL = SeriesOutcome(
    name="val_recall", logged_as="val_recall", direction="higher", count=40, early=0.81, late=0.05, low=0.04, high=0.83,
    movement="fell", changed_at=300, noise=0.02, spread_left=0.8,
)  # fmt: skip
SOLVED = SeriesOutcome(
    name="reward/mean", logged_as="reward", direction="higher", count=40, early=0.3, late=0.98, low=0.1, high=1.0,
    movement="rose", noise=0.05,
)  # fmt: skip


def test_a_fall_by_a_factor_of_ten_blocks_the_green_light_and_is_named() -> None:
    question = blocked_by([RECALL], set())
    assert question is not None
    assert (question.question, question.judged) == (WORSE, False)
    assert question.why == "`val_recall` fell from 0.81 to 0.050 since step 300"


@pytest.mark.parametrize(
    "harmless",
    [
        replace(RECALL, late=0.4),  # by half
        replace(RECALL, direction=None),  # nobody knows whether that is bad
        replace(RECALL, direction="lower"),  # that is good
        replace(RECALL, count=4),
        replace(RECALL, noise=0.0),  # a schedule
        replace(RECALL, name="kl/ref", direction="lower", early=0.001, late=0.08, movement="rose"),  # starts at 0
    ],
)
def test_what_is_small_good_unknown_or_excused_does_not(harmless: SeriesOutcome) -> None:
    assert blocked_by([harmless], set()) is None


def test_an_unknown_series_blocks_where_it_sticks_to_a_bound_or_no_longer_varies() -> None:
    unknown = replace(RECALL, name="foo", logged_as="foo", direction=None)
    stuck = replace(unknown, bound=0.0, at_bound=0.4, late=0.0)
    dead = replace(unknown, name="adv_std", spread_left=0.01)
    assert blocked_by([stuck], set()) is not None
    assert blocked_by([dead], set()) is not None


@pytest.mark.parametrize("name", ["best_unsafe_approval_rate", "tool_errors", "ToxicityMean"])
def test_a_fault_that_ends_at_zero_is_wanted(name: str) -> None:
    ended = replace(RECALL, name=name, logged_as=name, direction=None, bound=0.0, at_bound=0.5, late=0.0)
    assert blocked_by([ended], set()) is None
    assert blocked_by([replace(ended, name="safe_rate", logged_as="safe_rate")], set()) is not None


def test_spread_that_goes_with_a_solved_task_is_excused() -> None:
    spread = replace(RECALL, name="reward/std", logged_as="reward_std", direction=None, spread_left=0.01)
    assert blocked_by([spread], set()) is not None
    assert blocked_by([spread, SOLVED], set()) is None


def test_what_a_finding_speaks_of_is_not_told_twice() -> None:
    assert blocked_by([RECALL], {"val_recall"}) is None


def test_a_goal_that_never_moved_leaves_open_whether_anything_was_learnt() -> None:
    flat = replace(SOLVED, early=0.31, late=0.32, high=0.4, movement="flat", detectable=0.08)
    question = not_learnt([flat], None)
    assert question is not None
    assert (question.question, question.why) == (LEARNT, "`reward` did not improve")
    few = not_learnt([replace(flat, movement="cannot_say", early=0.4, late=0.8, detectable=0.9, high=0.8)], None)
    assert few is not None
    assert few.why == "too few or too noisy values to tell whether `reward` improved"
    assert not_learnt([SOLVED], None) is None
    assert not_learnt([replace(flat, early=0.97, late=0.98, high=1.0)], None) is None  # nothing was left to learn


def test_every_excuse_gives_its_reason() -> None:
    assert all(len(excuse.reason.split()) > 3 for excuse in excuses())


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.50"),
        (0.2937, "0.294"),
        (3, "3.0"),
        (12.04, "12"),
        (1234.5, "1,230"),
        (4.5e-7, "4.5e−7"),
        (-7.0, "−7.0"),
    ],
)
def test_a_number_in_prose_has_two_to_three_significant_digits(value: float, text: str) -> None:
    assert sig(value) == text


def test_a_loss_near_zero_without_an_evaluation_may_be_known_by_heart() -> None:
    loss = replace(
        SOLVED, name="loss/total", logged_as="loss", direction="lower", early=2.8, late=0.02, movement="fell"
    )
    question = memorised([loss], Family.SUPERVISED)
    assert question is not None
    assert question.question == BY_HEART
    assert question.why == "the loss ends at 0.020, and no evaluation is logged"
    assert memorised([loss, replace(loss, name="eval/loss", split="eval")], Family.SUPERVISED) is None
    assert memorised([replace(loss, late=0.5)], Family.SUPERVISED) is None
    assert memorised([loss], Family.ONLINE) is None
