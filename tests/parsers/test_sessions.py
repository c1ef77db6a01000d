"""Calls joined to sequences by the growth of their prompts, against a plain loop over tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptt.diagnostics.parsers.io import calls
from ptt.diagnostics.parsers.io.calls import Call, Joined, Sessions, common_prefix


def call(prompt: list[int], completion: list[int], told: Any = None, *, logps: bool = True) -> Call:
    found = np.array([-0.5 * token for token in completion], np.float32) if logps else None
    return Call(prompt=np.array(prompt, np.int32), completion=np.array(completion, np.int32), logps=found, told=told)


def joined(calls: list[Call], key: str = "s") -> list[Joined]:
    found = Sessions()
    early = [one for each in calls for one in found.add(key, each)]
    return [*early, *found.close()]


def by_hand(calls: list[Call]) -> list[tuple[list[int], list[bool]]]:
    """The definition, token by token: each call extends the chain it shares most with, the latest of equals."""
    chains: list[dict[str, list[Any]]] = []
    for one in calls:
        prompt, completion = one.prompt.tolist(), one.completion.tolist()
        best, best_shared = None, -1
        for chain in reversed(chains):
            shared = 0
            while shared < min(len(chain["context"]), len(prompt)) and chain["context"][shared] == prompt[shared]:
                shared += 1
            goes_on = chain["prompt"] and len(prompt) > len(chain["prompt"]) and shared >= len(chain["prompt"])
            if goes_on and shared > best_shared:
                best, best_shared = chain, shared
        if best is None:
            best = {"tokens": [], "mask": []}
        else:
            chains = [chain for chain in chains if chain is not best]  # not one that merely equals it
            best["tokens"] += prompt[best_shared:]
            best["mask"] += [False] * len(prompt[best_shared:])
        best["tokens"] += completion
        best["mask"] += [True] * len(completion)
        best["prompt"], best["context"] = prompt, prompt + completion
        chains.append(best)
    return [(chain["tokens"], chain["mask"]) for chain in chains]


TOKENS = st.lists(st.integers(0, 2), max_size=6)


@st.composite
def conversations(draw: st.DrawFn) -> list[Call]:
    """Calls of which most go on from an earlier one, whole, shortened or spelt otherwise, and some from none."""
    made: list[Call] = []
    for _ in range(draw(st.integers(1, 7))):
        prompt = draw(TOKENS)
        alone = draw(st.integers(0, 3)) == 0
        if made and not alone:
            before = draw(st.sampled_from(made))
            context = [*before.prompt.tolist(), *before.completion.tolist()]
            kept = len(context) - draw(st.integers(0, 2))
            prompt = [*context[: max(0, kept)], *prompt]
        made.append(call(prompt, draw(st.lists(st.integers(0, 2), min_size=1, max_size=4)), len(made)))
    return made


@given(conversations())
def test_joining_follows_the_definition_token_by_token(calls: list[Call]) -> None:
    found = [(one.token_ids.tolist(), one.model_mask.tolist()) for one in joined(calls)]
    assert found == by_hand(calls)


@given(conversations())
def test_every_sampled_token_is_kept_once_with_its_own_log_probability(calls: list[Call]) -> None:
    found = joined(calls)
    assert sum(int(one.model_mask.sum()) for one in found) == sum(len(one.completion) for one in calls)
    assert sorted(told for one in found for told in one.told) == list(range(len(calls)))
    for one in found:
        assert one.rollout_logp is not None
        assert np.array_equal(one.rollout_logp[one.model_mask], np.float32(-0.5) * one.token_ids[one.model_mask])
        assert np.isnan(one.rollout_logp[~one.model_mask]).all()


@given(TOKENS, TOKENS)
def test_the_common_prefix_is_the_longest(left: list[int], right: list[int]) -> None:
    shared = common_prefix(np.array(left, np.int32), np.array(right, np.int32))
    assert left[:shared] == right[:shared]
    assert left[: shared + 1] != right[: shared + 1] or shared in (len(left), len(right))


def test_what_the_prompt_grew_by_is_the_observation() -> None:
    (one,) = joined([call([1, 2], [3, 4]), call([1, 2, 3, 4, 50, 51], [6])])
    assert one.token_ids.tolist() == [3, 4, 50, 51, 6]
    assert one.model_mask.tolist() == [True, True, False, False, True]
    assert (one.grown, one.retokenised) == ((2,), 0)


def test_samples_of_one_prompt_and_branches_stand_apart() -> None:
    calls = [call([1, 2], [3]), call([1, 2], [4]), call([1, 2, 4, 9], [5]), call([1, 2, 3, 8], [7]), call([7], [1])]
    assert sorted(one.token_ids.tolist() for one in joined(calls)) == [[1], [3, 8, 7], [4, 9, 5]]


def test_a_completion_spelt_in_other_tokens_is_counted_and_kept_as_sampled() -> None:
    (one,) = joined([call([1, 2], [3, 4, 5, 6]), call([1, 2, 3, 40, 9], [7])])
    assert one.token_ids.tolist() == [3, 4, 5, 6, 40, 9, 7]
    assert one.retokenised == 1


def test_an_end_token_that_the_template_drops_is_no_other_spelling() -> None:
    (one,) = joined([call([1, 2], [3, 4, 99]), call([1, 2, 3, 4, 8], [7])])
    assert one.retokenised == 0


def test_prompts_that_are_not_recorded_join_nothing() -> None:
    assert len(joined([call([], [1]), call([], [2]), call([3], [4])])) == 3


def test_calls_without_log_probabilities_are_gaps_not_zeros() -> None:
    (one,) = joined([call([1], [2, 3], logps=False), call([1, 2, 3, 4], [5])])
    assert one.rollout_logp is not None
    assert np.isnan(one.rollout_logp).tolist() == [True, True, True, False]
    (bare,) = joined([call([1], [2], logps=False)])
    assert bare.rollout_logp is None


def test_memory_is_bounded_by_giving_out_the_longest_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "HELD_TOKENS", 20)
    found = Sessions()
    given_out = [one for at in range(50) for one in found.add(at, call([at], [1, 2, 3]))]
    assert [one.key for one in [*given_out, *found.close()]] == list(range(50))
    assert len(given_out) > 40
