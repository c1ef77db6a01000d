"""What last messages say: refusals, loops, one form for all prompts, and success that is only claimed."""

import random
from pathlib import Path

import numpy as np
import pytest
from trace_stories import Step, ask, call, end, found, judge, make, not_judged, say

from ptt.diagnostics.model import Severity, Status
from ptt.diagnostics.parsers.io.answer_texts import measure_answer
from ptt.diagnostics.statistics.near_duplicates import near_duplicates, pair_overlaps

NOUNS = ("river", "table", "ledger", "engine", "garden", "ticket", "valley", "copper", "window", "signal", "market")
VERBS = ("opens", "turns", "breaks", "carries", "follows", "reads", "moves", "holds", "counts", "joins", "meets")


def prose(draw: random.Random, words: int = 40) -> str:
    """Return sentences that no two answers share."""
    return " ".join(f"the {draw.choice(NOUNS)} {draw.choice(VERBS)} {draw.randrange(900)}" for _ in range(words // 4))


def episode(number: int, text: str, *, success: bool | None = True, prompt: int | None = None) -> list[Step]:
    asked = ask(f"Task {number if prompt is None else prompt}: what is it?")
    return [*asked, *call("search", f"row {number}", key=number), *say(text), *end(success=success)]


def severities(folder: Path, episodes: list[list[Step]], check: str) -> list[Severity]:
    return [finding.severity for finding in found(judge(folder, episodes), check)]


def test_plain_answers_are_silent(tmp_path: Path) -> None:
    draw = random.Random(1)
    diagnosis = judge(tmp_path, make(200, lambda at: episode(at, prose(draw), success=draw.random() < 0.5)))
    ids = {"refusals", "repetition", "template-collapse", "pseudo-success"}
    assert not [finding for finding in diagnosis.findings if finding.id in ids]
    assert not not_judged(diagnosis) & ids
    for name in ("refusal_rate", "repetition_rate", "duplicate_rate", "pseudo_success_rate"):
        share = diagnosis.measured[name]
        assert share.value == 0
        assert share.interval is not None


def test_refusals_that_begin_are_found_with_their_place(tmp_path: Path) -> None:
    draw = random.Random(2)

    def one(at: int) -> list[Step]:
        refuses = at >= 400 and draw.random() < 0.6
        return episode(at, "I'm sorry, but I can't help with that." if refuses else prose(draw))

    (finding,) = found(judge(tmp_path, make(700, one)), "refusals")
    assert finding.severity is Severity.HIGH
    assert finding.onset_step is not None
    assert abs(finding.onset_step - 401) <= 40


def test_loops_in_answers_are_found(tmp_path: Path) -> None:
    draw = random.Random(3)
    texts = [prose(draw, 8) + " and it goes on" * 30 if at % 3 == 0 else prose(draw) for at in range(300)]
    assert severities(tmp_path, make(300, lambda at: episode(at, texts[at])), "repetition")[0].at_least(Severity.MEDIUM)


FORM = (
    "This is a very good question and I am happy that you asked it. Let me think about it step by step, as careful "
    "people do. After long thought I have found that what you look for is clearly {}, and I hope that this helps you."
)


def test_one_form_that_takes_over_is_found(tmp_path: Path) -> None:
    draw = random.Random(4)
    texts = [FORM.format(draw.randrange(9999)) if at >= 250 else prose(draw) for at in range(500)]
    (finding,) = found(judge(tmp_path, make(500, lambda at: episode(at, texts[at]))), "template-collapse")
    assert finding.severity.at_least(Severity.MEDIUM)
    assert finding.evidence["largest_form"]
    assert finding.onset_step is not None
    assert abs(finding.onset_step - 251) <= 40


def test_a_form_that_was_there_from_the_start_is_a_note(tmp_path: Path) -> None:
    draw = random.Random(5)
    texts = [FORM.format(draw.randrange(9999)) for _ in range(200)]
    assert severities(tmp_path, make(200, lambda at: episode(at, texts[at])), "template-collapse") == [Severity.LOW]


def test_attempts_at_one_prompt_may_be_alike(tmp_path: Path) -> None:
    texts = {prompt: prose(random.Random(prompt)) for prompt in range(25)}
    episodes = make(200, lambda at: episode(at, texts[at // 8], prompt=at // 8))
    diagnosis = judge(tmp_path, episodes)
    assert not found(diagnosis, "template-collapse")
    assert diagnosis.measured["duplicate_rate"].hits == 0


DONE = "I have successfully booked the flight and the confirmation is {}."


def test_success_that_is_only_claimed_is_found_beside_how_often_it_is_true(tmp_path: Path) -> None:
    draw = random.Random(6)
    said = [DONE.format(at) if at % 9 else "I was unable to book the flight." for at in range(200)]
    episodes = make(200, lambda at: episode(at, said[at], success=at % 9 != 0 and draw.random() < 0.3))
    (finding,) = found(judge(tmp_path, episodes), "pseudo-success")
    assert finding.severity is Severity.MEDIUM
    assert "that fail and" in finding.claim
    assert finding.observed is not None
    assert 0.5 <= finding.observed <= 0.8


def test_a_claim_that_is_always_made_is_a_note_and_never_the_headline(tmp_path: Path) -> None:
    draw = random.Random(6)
    episodes = make(200, lambda at: episode(at, DONE.format(at), success=draw.random() < 0.4))
    diagnosis = judge(tmp_path, episodes)
    (finding,) = found(diagnosis, "pseudo-success")
    assert finding.severity is Severity.INFO
    assert "however an episode ends" in finding.claim
    assert "claim" not in diagnosis.verdict.headline
    assert diagnosis.verdict.status is Status.HEALTHY


def test_failures_that_are_admitted_are_no_pseudo_success(tmp_path: Path) -> None:
    outcomes = [random.Random(at).random() < 0.3 for at in range(200)]
    said = [DONE.format(at) if done else "I was unable to book the flight." for at, done in enumerate(outcomes)]
    episodes = make(200, lambda at: episode(at, said[at], success=outcomes[at]))
    assert not found(judge(tmp_path, episodes), "pseudo-success")


def test_claims_without_labels_are_not_judged(tmp_path: Path) -> None:
    episodes = make(50, lambda at: episode(at, DONE.format(at), success=None))
    assert "pseudo-success" in not_judged(judge(tmp_path, episodes))


@pytest.mark.parametrize("seed", range(5))
def test_families_equal_those_of_all_pairs(seed: int) -> None:
    draw = random.Random(seed)
    texts = []
    for _ in range(40):
        words = prose(draw, 80).split()
        for _ in range(draw.randrange(1, 5)):
            changed = [w if draw.random() > 0.02 else "other" for w in words]
            texts.append(" ".join(changed))
    sketches = np.array([measure_answer(text)["sketch"] for text in texts], np.int64)
    close = pair_overlaps(sketches) >= 0.7
    family = near_duplicates(sketches, 0.7)
    together = family[:, None] == family[None, :]
    assert (together & close).sum() >= 0.97 * close.sum()
    assert (together & ~close).sum() <= 0.1 * together.sum()  # tied by way of others


def test_no_texts_have_no_families() -> None:
    assert near_duplicates(np.empty((0, 32), np.int64), 0.7).tolist() == []
    assert near_duplicates(np.arange(64).reshape(2, 32), 0.7).tolist() == [0, 1]
