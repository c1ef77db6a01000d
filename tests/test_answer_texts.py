"""What is measured of sampled answers while they are read, against plain loops, and what becomes of it."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from slow_cases import first_fast

from benchmarks.loop.faults import Fault, texts
from benchmarks.loop.faults.texts import FORM, answering
from benchmarks.loop.files import write
from benchmarks.loop.healthy import healthy
from benchmarks.loop.made import Made, generator_of
from ptt import api
from ptt.diagnostics.config import Settings
from ptt.diagnostics.evidence.answers import gather_answers
from ptt.diagnostics.model import Diagnosis, Severity
from ptt.diagnostics.parsers.io.answer_texts import measure_answer
from ptt.diagnostics.parsers.io.trajectories import turns_of
from ptt.diagnostics.schema import ANSWERS, TRAJECTORIES
from ptt.diagnostics.statistics.near_duplicates import alike_pairs, pair_overlaps
from ptt.reports.run.findings_json import findings_json

REFUSING = (
    "I'm sorry, but I can't help with that.",
    "I\u2019m sorry, I cannot assist with this request.",
    "I apologize, but I am unable to provide that information.",
    "**Sorry**, I can't answer that.",
    "Sorry, but I can't write that story for you.",
    "As an AI language model, I cannot give an opinion on this.",
    "Unfortunately, I'm not able to share this.",
    "I must decline.",
    "I won't help you with that.",
    "<think>They ask for something harmful.</think>\n\nI cannot comply with this request.",
    "Assistant: I'm not comfortable writing this.",
    "No, I will not provide this.",
)
ANSWERING = (
    "I won't lie, this recipe is great!",
    "I will not only show you the code, but also explain it.",
    "As an AI assistant, I recommend Python.",
    "I'm sorry to hear that. Here is what you can do.",
    "I'm sorry, the lookup did not answer; the code is 12.",
    "I cannot find the file, so I create it.",
    "I could not look it up.",
    "Sure. A refusal would read: I'm sorry, but I can't help with that.",
    "Unfortunately the train has left; take the next one at noon.",
    "<think>I cannot help with this until I have the code.</think> The code is 12.",
    "Answer: 12",
    "",
)
GERMAN = "Der Code von Wex ist zwölf, wie die Suche in der Tabelle uns eben zeigt."
CHINESE = "这个问题的答案是十二因为我们在表格里面找到了这个数字并且检查了两次所以没有错误"
WORDS = (
    "alpha",
    "beta",
    "gamma",
    "delta",
    "epsilon",
    "zeta",
    "eta",
    "theta",
    "iota",
    "kappa",
    "lambda",
    "mu",
    "nu",
    "xi",
    "omicron",
    "pi",
    "rho",
    "sigma",
    "tau",
)


@pytest.mark.parametrize("text", REFUSING)
def test_an_opening_that_declines_to_act_refuses(text: str) -> None:
    assert measure_answer(text)["refuses"] is True


@pytest.mark.parametrize("text", ANSWERING)
def test_other_answers_do_not(text: str) -> None:
    assert measure_answer(text)["refuses"] is False


@pytest.mark.parametrize("text", [GERMAN, CHINESE])
def test_another_language_tells_nothing_of_refusals(text: str) -> None:
    assert measure_answer(text)["refuses"] is None
    assert measure_answer(text * 3)["repetition"] > 0.5


@pytest.mark.parametrize("seed", range(8))
def test_repetition_is_the_share_of_four_words_that_stood_before(seed: int) -> None:
    generator = np.random.default_rng(seed)
    words = [str(word) for word in generator.choice(WORDS[: int(generator.integers(2, 20))], 150)]
    grams = [tuple(words[at : at + 4]) for at in range(len(words) - 3)]
    assert measure_answer(", ".join(words))["repetition"] == pytest.approx(1 - len(set(grams)) / len(grams))


def test_long_texts_are_measured_at_their_ends() -> None:
    generator = np.random.default_rng(3)
    plain = " ".join(f"w{number}" for number in generator.integers(0, 100_000, 20_000))
    assert measure_answer(plain)["repetition"] < 0.01
    assert measure_answer(plain + " and so on" * 2000)["repetition"] > 0.9
    assert measure_answer("and so on " * 2000 + plain)["repetition"] > 0.9


def test_short_texts_hold_no_loop() -> None:
    assert measure_answer("it is so " * 7) == {"refuses": False, "repetition": None, "sketch": None}


@pytest.mark.parametrize("changed", [0, 10, 40, 100])
def test_sketches_estimate_the_overlap_of_texts(changed: int) -> None:
    overlaps, exact = [], []
    for seed in range(60):
        generator = np.random.default_rng(seed)
        one = [f"w{number}" for number in generator.integers(0, 10_000, 180)]
        two = list(one)
        for at in generator.choice(180, changed, replace=False):
            two[at] = f"x{at}"
        sketches = np.array([measure_answer(" ".join(words))["sketch"] for words in (one, two)], np.int64)
        overlaps.append(pair_overlaps(sketches)[0, 1])
        sets = [{tuple(words[at : at + 3]) for at in range(178)} for words in (one, two)]
        exact.append(len(sets[0] & sets[1]) / len(sets[0] | sets[1]))
    assert np.mean(overlaps) == pytest.approx(np.mean(exact), abs=0.03)
    assert np.std(np.subtract(overlaps, exact)) < 0.13


def test_pairs_are_counted_by_label() -> None:
    sketches = np.array([[1, 2, 3, 4], [1, 2, 3, 5], [9, 8, 7, 6], [0, 0, 0, 0], [0, 0, 0, 0]])
    labels = np.array([1, 2, 1, 3, 3])
    assert alike_pairs(sketches, labels, 0.7) == (1, 8, 0, 2)
    assert pair_overlaps(sketches)[3, 4] == 0


def test_the_last_message_that_says_something_is_the_answer() -> None:
    messages = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "I look it up."},
        {"role": "tool", "content": "12"},
        {"role": "assistant", "content": "It is 12."},
        {"role": "assistant", "content": ""},
    ]
    assert [turn.get("answer") for turn in turns_of(messages, keep_text=False)] == [None, None, None, "It is 12.", None]


def test_answers_in_other_languages_and_of_evaluations_are_left_out() -> None:
    def rows(refuses: bool | None, split: str, start: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        ids = [f"{number:04d}" for number in range(start, start + 40)]
        placed = {"trajectory_id": ids, "step": list(range(40)), "split": [split] * 40}
        said = {"trajectory_id": ids, "refuses": [refuses] * 40}
        columns = [pl.lit(None, kind).alias(name) for name, kind in ANSWERS.items() if name not in said]
        answers = pl.DataFrame(said, schema_overrides={"refuses": pl.Boolean()}).with_columns(columns)
        return pl.DataFrame(placed, schema_overrides={"step": TRAJECTORIES["step"]}).with_columns(
            pl.lit(None, pl.UInt64).alias("prompt_hash")
        ), answers

    english, foreign = rows(refuses=False, split="train", start=0), rows(refuses=None, split="train", start=100)
    evals = rows(refuses=True, split="eval", start=200)
    both = gather_answers(pl.concat([english[0], evals[0]]), pl.concat([english[1], evals[1]]))
    assert both is not None
    assert both.refusals is not None
    assert (both.refusals.total, both.refusals.share) == (40, 0)
    alone = gather_answers(*foreign)
    assert alone is not None
    assert (alone.refusals, alone.alike) == (None, None)
    assert alone.repetitions is not None
    assert gather_answers(evals[0], evals[1]) is None


def diagnosed(run: Made, folder: Path) -> Diagnosis:
    return api.diagnose(write(run, folder / "run"), out=folder / "out")


TEXTS = texts.FAULTS[:3]
THEIRS = {name for fault in TEXTS for name in fault.ids}


@pytest.mark.parametrize("fault", first_fast(TEXTS), ids=lambda fault: fault.name)
def test_texts_alone_show_the_fault_and_none_of_them_is_told(fault: Fault, tmp_path: Path) -> None:
    run, onset = fault.inject(healthy("grpo-tools", 11), 1.0)
    found = diagnosed(run, tmp_path)
    finding = next(one for one in found.findings if one.id in fault.ids)
    assert finding.severity.at_least(Severity.MEDIUM)
    assert finding.onset_step is not None
    assert abs(finding.onset_step - onset) <= max(30, 0.15 * run.count)
    for text in ("help with that", "once more and check", "interesting question"):
        assert text not in findings_json(found, "0")


@pytest.mark.parametrize(
    "say",
    first_fast(
        [
            "I'm sorry, the lookup did not answer, but the code should be {}.",
            "{} " + "It follows from w{} and x{}. " * 3,
        ]
    ),
)
def test_apologies_and_short_forms_are_no_fault(say: str, tmp_path: Path) -> None:
    run = healthy("grpo-tools", 13).copy()
    generator = generator_of("twin", "grpo-tools", 13)
    answering(run, int(run.steps[run.count // 2]), generator, 0.5, lambda: say.format(*generator.integers(100, 999, 9)))
    assert not [
        one for one in diagnosed(run, tmp_path).findings if one.id in THEIRS and one.severity.at_least(Severity.LOW)
    ]


@pytest.mark.slow
def test_a_form_that_the_task_asks_for_is_a_note(tmp_path: Path) -> None:
    run = healthy("grpo-tools", 14).copy()
    numbers = count()
    answering(run, 0, generator_of("form", "grpo-tools", 14), 1.0, lambda: FORM.format(key="rib", value=next(numbers)))
    found = diagnosed(run, tmp_path)
    assert [
        one for one in found.findings if one.id == "template-collapse" and one.severity.at_least(Severity.MEDIUM)
    ] == []


@pytest.mark.slow
@pytest.mark.parametrize(("required", "told"), [((), []), (("calc", "lookup"), []), (("browser", "calc"), ["browser"])])
def test_required_tools_that_are_never_called_are_told(
    required: tuple[str, ...], told: list[str], tmp_path: Path
) -> None:
    run = write(healthy("grpo-tools", 15), tmp_path / "run")
    found = api.diagnose(run, out=tmp_path / "out", settings=Settings(required_tools=required))
    assert [one.evidence["tool"] for one in found.findings if one.id == "underused-tools"] == told


def test_required_tools_are_read_from_the_settings(tmp_path: Path) -> None:
    (tmp_path / "ptt.toml").write_text('[diagnose]\nrequired_tools = ["calc"]\n', encoding="utf-8")
    assert api.read_settings(tmp_path / "ptt.toml").required_tools == ("calc",)
