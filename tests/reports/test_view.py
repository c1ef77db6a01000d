"""The words of the report: numbers, sentences, lists, and what is said when little is known."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
from builders import finding_of, healthy_diagnosis, run_of
from html_structure import page_with

from ptt.diagnostics.model import Answer, Diagnosis, Link, NotJudged, Source
from ptt.diagnostics.store.findings_file import read_findings
from ptt.reports.run.answers import happened, replies
from ptt.reports.run.findings_json import findings_json
from ptt.reports.run.view import absent, conditions, finding_views, first_broken, lanes, source_groups
from ptt.reports.text.names import joined, runs, sentence
from ptt.reports.text.numbers import count, limit_value, number, p_value, percent, times, with_unit
from ptt.reports.text.sanitize import LONGEST, safe, shortened


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (9.0312, "9.03"),
        (0.03784, "0.0378"),
        (0.0, "0"),
        (12_345.0, "12\u202f300"),
        (999.9, "1\u202f000"),
        (-2.5, "−2.5"),
        (1.234e-7, "1.23\u202f×\u202f10⁻⁷"),
        (5e8, "5\u202f×\u202f10⁸"),
        (1_234_567, "1\u202f234\u202f567"),
        (math.inf, "∞"),
        (-math.inf, "−∞"),
        (math.nan, "no value"),
        (None, "no value"),
    ],
)
def test_number(value: float | None, text: str) -> None:
    assert number(value) == text


def test_other_numbers() -> None:
    assert times(5.288) == "×5.29"
    assert percent(0.0123) == "1.23%"
    assert with_unit(2.0, "x") == "×2"
    assert with_unit(0.5, "share") == "50%"
    assert with_unit(0.65, "nats") == "0.65\u202fnats"
    assert with_unit(1.0, "nats") == "1\u202fnat"
    assert with_unit(0.119, "of its best speed") == "11.9% of its best speed"
    assert limit_value(0.75, "of its best speed") == "75%"
    assert with_unit(0.42, "correlation") == "correlation 0.42"
    assert limit_value(0.3, "correlation") == "0.3"
    assert limit_value(2.0, "nats") == "2\u202fnats"
    assert p_value(0.0004) == "p < 0.001"
    assert p_value(0.0312) == "p = 0.031"
    assert count(-1200) == "−1\u202f200"


def test_foreign_text_is_shown_not_obeyed() -> None:
    assert safe("a\x1b[31mb\u202ec\x00d\ne") == "a\\x1b[31mb\\u202ec\\x00d e"
    assert safe("naïve → 数") == "naïve → 数"
    assert len(safe("x" * 10_000)) == LONGEST
    assert shortened("abcdefghij", 5) == "ab…ij"


def test_sentences() -> None:
    assert sentence("post-tool tails grew") == "Post-tool tails grew."
    assert sentence("p99 fell!") == "p99 fell!"
    assert sentence("loss, margin and accuracy fell") == "Loss, margin and accuracy fell."
    assert sentence("kl never falls back") == "kl never falls back."
    assert sentence("") == ""
    assert joined(["a", "b", "c"]) == "a, b and c"


def test_the_first_screen_of_the_signature(samples: dict[str, Diagnosis]) -> None:
    _, grew = happened(samples["baseline"])
    _, since_when, sure, *_ = replies(samples["baseline"])
    since, curves = since_when.sentences
    assert "1.7 → 5.9 → 9 (×5.29, 95% interval 4.1 to 6.6); text-only 0.17 → 0.11 → 0.04" in grew
    assert since == "The tail has grown since step 129 (95% interval 113 to 145), when it passed its limit."
    assert "p = 0.001; false alarms: 1% of stable runs" in sure.sentences[0]
    assert curves == (
        "Of the usual curves, mean KL alarmed first, at step 415, 286 steps (264 to 305) after the tail's own alarm "
        "at step 129."
    )
    assert [answer for _, _, answer in conditions(samples["baseline"])] == ["yes"] * 4
    assert len(replies(samples["baseline"])[-1].sentences) == 3


QUESTIONS = ["What happened", "Since when", "How sure", "What else it could be", "What to do first"]


@pytest.mark.parametrize("name", ["baseline", "healthy", "cannot_say", "collapse", "crashed", "cascade", "hostile"])
def test_every_question_of_the_first_screen_has_an_answer(name: str, samples: dict[str, Diagnosis]) -> None:
    answered = replies(samples[name])
    assert [reply.question for reply in answered] == QUESTIONS
    assert all(1 <= len(reply.sentences) <= 5 for reply in answered), answered
    assert all(sentence.strip(" .") for reply in answered for sentence in reply.sentences)


def test_what_happened_is_told_in_plain_words(samples: dict[str, Diagnosis]) -> None:
    told = replies(samples["baseline"])[0].sentences[0]
    assert told == (
        "After tool output, one token in twenty is now at least 8 100 times more or less likely under the policy "
        "than under the reference (|r| is the log of this factor; early in the run: 5.47 times; before any tool "
        "call, 1.04)."
    )


@pytest.mark.parametrize(("context", "meant"), [((), True), (("likely cause: the scorer cannot read",), False)])
def test_a_finding_that_names_its_cause_is_not_explained_by_the_policy(context: tuple[str, ...], meant: bool) -> None:
    fell = finding_of("reward-fell", link=Link.REWARD, claim="The reward fell", context=context)
    judged = healthy_diagnosis(run_of())
    judged = dataclasses.replace(
        judged, findings=(fell,), verdict=dataclasses.replace(judged.verdict, headline=f"{fell.claim}.")
    )
    assert ("The policy lost what it had learnt" in " ".join(happened(judged))) is meant


def test_rival_explanations_are_ruled_out_only_where_the_run_can(samples: dict[str, Diagnosis]) -> None:
    told = " ".join(replies(samples["baseline"])[3].sentences)
    assert "A drift of the whole policy: no" in told
    assert "Stale rollouts: cannot be ruled out" in told


def test_a_healthy_run_says_what_was_not_looked_at(samples: dict[str, Diagnosis]) -> None:
    (told,) = replies(samples["healthy"])[3].sentences
    assert told.startswith("Not judged, for lack of data")
    assert "a fault could hide there" in told


def test_a_lead_that_is_only_a_lower_bound_says_so(samples: dict[str, Diagnosis]) -> None:
    base = samples["baseline"]
    quiet = dataclasses.replace(base.signature.aggregates, alarms={})
    signature = dataclasses.replace(base.signature, aggregates=quiet, lead_steps=571, lead_is_lower_bound=True)
    signature = dataclasses.replace(signature, lead_interval=(555, None))
    said = replies(dataclasses.replace(base, signature=signature))[1].sentences[-1]
    assert said.startswith("The usual curves raised no alarm")
    assert said.endswith("by the end of the run, 571 steps (555 or more) after the tail's own alarm.")


@pytest.mark.parametrize(
    ("until", "ends", "told"),
    [
        (300, {"kl/ref": 300, "loss/total": 300}, "by step 300, where they end"),
        (300, {"kl/ref": 300}, "by step 300, where mean KL ends"),
        (250, {"kl/ref": 300, "loss/total": 300}, "by step 250, where the recorded tokens end"),
    ],
)
def test_a_lead_names_the_step_up_to_which_curves_and_tokens_go(
    samples: dict[str, Diagnosis], tmp_path: Path, until: int, ends: dict[str, int], told: str
) -> None:
    base = samples["baseline"]
    movements = {"kl/ref": "flat", "loss/total": "flat", "entropy": "cannot_say"}
    quiet = dataclasses.replace(
        base.signature.aggregates, status="quiet", metrics=movements, alarms={}, last_steps=ends
    )
    signature = dataclasses.replace(
        base.signature, aggregates=quiet, lead_steps=170, lead_interval=(138, None), lead_is_lower_bound=True,
        lead_until=until,
    )  # fmt: skip
    told = f" {told}, 170 steps (138 or more) after the tail's own alarm."
    cut = dataclasses.replace(base, signature=signature)
    assert replies(cut)[1].sentences[-1].endswith(told)
    file = tmp_path / "findings.json"
    file.write_text(findings_json(cut, "0"), encoding="utf-8")
    assert replies(read_findings(file))[1].sentences[-1].endswith(told)


def test_a_lead_that_may_be_none_says_that_both_came_together(samples: dict[str, Diagnosis]) -> None:
    base = samples["baseline"]
    signature = dataclasses.replace(base.signature, lead_steps=4, lead_interval=(-9, 17))
    said = replies(dataclasses.replace(base, signature=signature))[1].sentences[-1]
    assert said.endswith("alarmed first, at step 415, at about the time of the tail's own alarm at step 411.")


def test_not_found_names_the_condition_that_failed(samples: dict[str, Diagnosis]) -> None:
    told, _, sure, *_ = replies(samples["healthy"])
    assert "not found (not met: material)" in told.sentences[-1]
    assert "4 questions could not be judged" in sure.sentences[0]
    assert first_broken(samples["healthy"]) == "No broken link found"


def test_cannot_say_is_never_called_healthy(samples: dict[str, Diagnosis]) -> None:
    assert '<span class="word">Cannot say</span>' in page_with(samples["cannot_say"])
    assert "could not be judged" in " ".join(happened(samples["cannot_say"]))
    assert {answer for _, _, answer in conditions(samples["cannot_say"])} == {"cannot say"}
    assert "healthy" not in first_broken(samples["cannot_say"]).replace("nor the whole to be healthy", "")


def test_a_crash_is_said_first(samples: dict[str, Diagnosis]) -> None:
    assert happened(samples["crashed"])[0].startswith("A bug in ptt: reward-hacking crashed")


@pytest.mark.parametrize("name", ["baseline", "healthy", "cannot_say", "collapse", "crashed", "cascade", "hostile"])
def test_what_happened_takes_one_to_five_sentences(name: str, samples: dict[str, Diagnosis]) -> None:
    assert 1 <= len(happened(samples[name])) <= 5


def test_consequences_stand_under_their_cause(samples: dict[str, Diagnosis]) -> None:
    (root,) = finding_views(samples["collapse"])
    assert root.finding.id == "update-too-large"
    assert root.consequences[0].finding.id == "tools-vanish"
    assert root.consequences[0].consequences[0].finding.id == "zero-std-groups"


def test_causes_stand_in_order_of_time_notes_last(samples: dict[str, Diagnosis]) -> None:
    shown = finding_views(samples["cascade"])
    assert [view.finding.id for view in shown] == [
        "stale-rollouts", "eval-not-following", "throughput-drop", "run-cut-short", "versions-unknown", "tool-failures"
    ]  # fmt: skip
    assert shown[0].below == 7
    assert [view.finding.id for view in shown[0].consequences] == ["ratio-explosion", "entropy-explosion"]


def test_a_finding_keeps_its_parts_apart(samples: dict[str, Diagnosis]) -> None:
    views = finding_views(samples["cascade"])
    page = page_with(samples["cascade"])
    assert views[0].numbers["Suspected onset"] == "Step 18; 95% interval 14 to 22"
    assert "<dt>What would confirm it</dt><dd><ul><li>Rerun 20 steps" in page
    steps = "<ol><li>Bound the lag at two versions.</li><li>Only then look at the learning rate.</li></ol>"
    assert f"<dt>What to do then</dt><dd>{steps}" in page
    assert views[0].places == ["Steps 14 to 22", "Checkpoints: checkpoint-10 before it, checkpoint-20 after it"]
    assert views[-1].places[1] == "The curve kl"
    assert views[4].numbers["Suspected onset"] == "not known"


def test_a_line_that_records_the_missing_stands_once_with_all_it_answers(samples: dict[str, Diagnosis]) -> None:
    base, line = samples["cascade"], "log the widget of each step"
    asked = [
        NotJudged(id=f"check-{index}", link=Link.REWARD, reason="no widget is logged", missing=("widget",), enable=line)
        for index in range(25)
    ]
    alone = NotJudged(id="alone", link=Link.CRITIC, reason="no value is logged", enable="log the value")
    page = page_with(dataclasses.replace(base, not_judged=(alone, *asked)))
    assert page.count("Log the widget of each step.") == page.count("No widget is logged.") == 1
    assert all(f"<code>check-{index}</code>" in page for index in range(25))
    assert page.index("Log the widget") < page.index("Log the value.")


def test_a_long_name_may_break_between_its_parts_alone() -> None:
    assert runs("set `actor_rollout_ref.actor.use_kl_loss=True` at 0.25") == [
        ["set "],
        ["actor_", "rollout_", "ref.", "actor.", "use_", "kl_", "loss=", "True"],
        [" at 0.25"],
    ]


def test_what_does_not_apply_is_one_line_a_link(samples: dict[str, Diagnosis]) -> None:
    page = page_with(samples["cascade"])
    asked = [item.id for item in samples["cascade"].not_judged if item.applies]
    assert len(asked) == 4
    assert all(f"<code>{name}</code>" in page for name in asked)
    assert [(link, ids) for link, _, ids in absent(samples["cascade"])] == [
        ("Training signal", "at-chance"),
        ("Critic", "value-loss-rising, explained-variance-low"),
    ]
    critic = next(lane for lane in lanes(samples["cascade"]) if lane.link == "Critic")
    assert critic.detail == "1 not judged, 2 do not apply"


def test_the_signature_is_not_asked_of_training_that_samples_nothing(samples: dict[str, Diagnosis]) -> None:
    base = samples["cannot_say"]
    absent = dataclasses.replace(base.not_judged[0], applies=False, reason="DPO training samples nothing")
    made = dataclasses.replace(base, not_judged=(absent, *base.not_judged[1:]))
    assert "Tail growth after tool calls: <b>does not apply</b>" in page_with(made)
    assert conditions(made) == []
    assert "does not apply to this training" in " ".join(happened(made))


def test_findings_that_cause_each_other_are_not_lost(samples: dict[str, Diagnosis]) -> None:
    base = samples["collapse"]
    first, second, _ = base.findings
    ring = (
        dataclasses.replace(first, consequence_of=second.id),
        dataclasses.replace(second, consequence_of=first.id),
    )
    (shown,) = finding_views(dataclasses.replace(base, findings=ring))
    assert {shown.finding.id, shown.consequences[0].finding.id} == {first.id, second.id}


def test_a_thousand_files_become_one_row(samples: dict[str, Diagnosis]) -> None:
    made = [
        Source(
            path=f"tokens/{i}.parquet",
            kind="recorder",
            bytes=9,
            rows_ok=32,
            rows_bad=int(i == 700),
            bytes_lost=0,
            note=None,
        )
        for i in range(1000)
    ]
    (group,) = source_groups(made)
    assert [row[0] for row in group.shown] == ["1\u202f000 files"]
    assert group.shown[0][2] == "32\u202f000"
    assert group.folded[0][0] == "tokens/700.parquet"  # the one with a loss comes first
    assert group.unlisted.startswith("500 more")


def test_lanes_cover_the_loop_and_mark_the_first_break(samples: dict[str, Diagnosis]) -> None:
    shown = lanes(samples["baseline"])
    assert len(shown) == 11
    assert [lane.link for lane in shown if lane.first] == ["Policy update"]
    assert {lane.link: lane.state for lane in shown}["Training signal"] == "silent"
    assert {lane.link: lane.state for lane in shown}["Environment and tools"] == "noted"


def test_found_without_growth_table_still_speaks(samples: dict[str, Diagnosis]) -> None:
    bare = dataclasses.replace(samples["baseline"], tables={})
    assert bare.signature.status is Answer.FOUND
    assert "tails of |log-ratio| grew (×5.29" in happened(bare)[0]
