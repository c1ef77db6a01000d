"""Who holds the tail: named where one value of a recorded attribute does, and not where it only has most tokens."""

from __future__ import annotations

import json
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from builders import Scale, Story, aggregates, evidence_of, rising, sequences_of, steady, write_recorder_run
from rich.console import Console
from slow_cases import first_fast

import ptt
from ptt.diagnostics.model import Answer, Broken, Finding, Link, Severity
from ptt.diagnostics.rules.tail_holder import kind_of, place
from ptt.diagnostics.rules.tool_tail_growth import ID, Judgement, judge
from ptt.reports.redact.redact import redacted
from ptt.reports.run.findings_json import findings_json
from ptt.reports.run.terminal import print_diagnosis

GROWS, STAYS = rising(0.05, 1.5), steady(0.05)


def run_of_values(stories: Mapping[Any, Story], column: str) -> pl.DataFrame:
    """Give a run whose sequences carry a value each; those of `tool_names` are the tool of every observation."""
    parts = []
    for seed, (value, story) in enumerate(stories.items()):
        part = sequences_of(Story(**{**vars(story), "seed": seed}))
        if column == "tool_names":
            gap = pl.col("model_mask").list.any() & ~pl.col("model_mask").list.all()
            named = pl.when(gap).then(pl.lit([value])).otherwise(pl.lit([], pl.List(pl.String)))
            parts.append(part.with_columns(named.alias(column)))
        else:
            parts.append(part.with_columns(pl.lit(value).alias(column)))
    frame = pl.concat(parts).sort("step", maintain_order=True).drop("seq")
    return frame.with_row_index("seq").with_columns(pl.col("seq").cast(pl.UInt32))


def judged(column: str, stories: Mapping[Any, Story]) -> Judgement:
    return judge(evidence_of(run_of_values(stories, column)), aggregates())


def only_finding(judgement: Judgement) -> Finding:
    assert isinstance(judgement.verdict, Broken), judgement.signature.reason
    (finding,) = judgement.verdict.findings
    return finding


def story(post: Scale, *, text: Scale = STAYS, sequences: int = 6, **more: Any) -> Story:
    return Story(post=post, text=text, sequences=sequences, **more)


CONFINED: dict[str, tuple[str, Any, tuple[Any, ...], str, Link]] = {
    "tool": ("tool_names", "sql", ("calc", "search"), "after `sql` calls", Link.POLICY_UPDATE),
    "environment": ("env", "webshop", ("alfworld", "maze"), "in environment `webshop`", Link.ENVIRONMENT),
    "rank": ("rank", 3, (0, 1, 2), "on rank 3", Link.SYSTEMS),
    "policy version": ("policy_version", 0, (7, 9), "in samples of policy version 0", Link.DATA_FRESHNESS),
    "prompt_source": ("attribute:prompt_source", "gsm", ("web", "code"), "where `prompt_source` is `gsm`",
                      Link.POLICY_UPDATE),
}  # fmt: skip


@pytest.mark.parametrize("attribute", first_fast(CONFINED, 2))
def test_a_tail_confined_to_one_value_is_a_finding_about_it(attribute: str) -> None:
    column, value, others, where, link = CONFINED[attribute]
    judgement = judged(column, {value: story(GROWS), **{other: story(STAYS) for other in others}})
    assert judgement.signature.status is Answer.FOUND
    finding = only_finding(judgement)
    assert finding.id == ID
    assert where in finding.claim
    assert finding.link is link
    evidence = finding.evidence
    assert (evidence["holder_attribute"], evidence["holder_value"]) == (attribute, str(value))
    assert evidence["holder_share"] > 0.8  # type: ignore[operator]
    assert evidence["holder_share_low"] < evidence["holder_share"] <= evidence["holder_share_high"]  # type: ignore[operator]
    share = 1 / (1 + len(others))
    assert evidence["holder_token_share"] == pytest.approx(share, rel=0.05)
    assert evidence["holder_lift"] == pytest.approx(evidence["holder_share"] / evidence["holder_token_share"])  # type: ignore[operator]
    assert any(where in line or f"`{value}`" in line for line in (*finding.causes, *finding.confirm, *finding.next))
    assert any("checkpoint" in line for line in finding.next)


def with_observations(frame: pl.DataFrame, count: int, *, tail: int) -> pl.DataFrame:
    """Cut what follows the observation of each sequence by more observations into `count` parts of as many tokens."""
    masks = []
    for mask in frame["model_mask"].to_list():
        if not all(mask):
            first = len(mask) - tail
            for place in range(1, count):
                start = first + place * tail // count
                mask[start : start + 4] = [False] * 4
        masks.append(mask)
    return frame.with_columns(pl.Series("model_mask", masks))


def test_a_tail_after_the_third_tool_result_is_a_finding_about_it() -> None:
    heavy = with_observations(sequences_of(story(STAYS, sequences=16, tail=60, tool_share=steady(1.0))), 3, tail=60)
    generator = np.random.default_rng(0)
    rows = []
    for step, policy in zip(heavy["step"].to_list(), heavy["policy_logp"].to_list(), strict=True):
        scale = GROWS((step - 1) / 59)
        rows.append(policy[:-20] + [value - scale * abs(generator.normal()) for value in policy[-20:]])
    finding = only_finding(judge(evidence_of(heavy.with_columns(policy_logp=pl.Series(rows))), aggregates()))
    assert "after the third tool result" in finding.claim
    assert (finding.evidence["holder_attribute"], finding.evidence["holder_value"]) == ("observation number", "3")
    assert any("third tool result" in line for line in finding.causes)


def test_tails_that_grow_alike_after_every_tool_result_name_none() -> None:
    frame = with_observations(sequences_of(story(GROWS, sequences=16, tail=60, tool_share=steady(1.0))), 3, tail=60)
    assert "holder_value" not in only_finding(judge(evidence_of(frame), aggregates())).evidence


@pytest.mark.parametrize(("value", "said"), [("1", "first tool result"), ("8+", "eighth tool result and later ones")])
def test_an_observation_is_told_by_its_number(value: str, said: str) -> None:
    assert place("observation number", value) == f"after the {said}"


def test_the_advice_for_a_rank_is_about_its_machine() -> None:
    finding = only_finding(judged("rank", {3: story(GROWS), 0: story(STAYS), 1: story(STAYS)}))
    advice = " ".join((*finding.causes, *finding.confirm, *finding.next))
    assert "another machine" in advice
    assert "ten times the KL coefficient" not in advice


def test_growth_in_both_slices_of_one_rank_is_about_that_rank() -> None:
    bad = story(GROWS, text=GROWS)
    finding = only_finding(judged("rank", {3: bad, **{rank: story(STAYS) for rank in range(3)}}))
    assert finding.id == "tail-growth-everywhere"
    assert "on rank 3" in finding.claim
    assert finding.link is Link.SYSTEMS


@pytest.mark.parametrize("column", first_fast(["tool_names", "env", "attribute:prompt_source"]))
def test_values_that_differ_in_level_and_do_not_grow_are_no_finding(column: str) -> None:
    levels = {"high": story(steady(0.5)), "low": story(steady(0.1)), "lower": story(steady(0.05))}
    judgement = judged(column, levels)
    assert judgement.signature.status is Answer.NOT_FOUND
    assert not isinstance(judgement.verdict, Broken)


@pytest.mark.parametrize("column", first_fast(["tool_names", "env", "rank"]))
def test_a_value_that_merely_holds_most_tokens_is_not_named(column: str) -> None:
    few, many = (1, 0) if column == "rank" else ("few", "many")
    judgement = judged(column, {many: story(GROWS, sequences=16), few: story(GROWS, sequences=4)})
    finding = only_finding(judgement)
    assert "holder_value" not in finding.evidence
    assert "most of all" not in finding.claim


def test_values_that_grow_alike_are_not_named() -> None:
    finding = only_finding(judged("env", {name: story(GROWS) for name in ("a", "b", "c")}))
    assert "holder_value" not in finding.evidence


@pytest.mark.slow
@pytest.mark.parametrize("post", [steady(0.6), steady(0.8)])
def test_growth_on_one_rank_of_four_that_the_run_hides_is_found_there(post: Scale) -> None:
    ranks = {3: story(rising(0.1, 0.9)), **{rank: story(post, text=steady(0.3)) for rank in range(3)}}
    judgement = judged("rank", ranks)
    alone = judge(evidence_of(run_of_values(ranks, "rank").drop("rank")), aggregates())
    assert alone.signature.status is not Answer.FOUND  # the run as a whole shows no growth
    finding = only_finding(judgement)
    assert "on rank 3" in finding.claim
    assert finding.severity.at_least(Severity.MEDIUM)


@pytest.mark.slow
def test_growth_that_all_values_share_is_none_of_theirs_alone() -> None:
    weak = {rank: story(rising(0.3, 0.45), sequences=4, step_noise=0.3, seed=rank) for rank in range(4)}
    judgement = judged("rank", weak)
    assert "alone" not in judgement.signature.reason


def test_a_run_of_equal_ranks_shows_nothing_on_any_of_them() -> None:
    judgement = judged("rank", {rank: story(steady(0.5), sequences=4) for rank in range(6)})
    assert judgement.signature.status is Answer.NOT_FOUND


def test_a_few_sequences_of_one_tool_in_the_last_steps_are_no_sure_rise() -> None:
    rare = story(lambda done: 0.6 if done >= 0.97 else 0.05, sequences=3, steps=120)
    judgement = judged("tool_names", {"sql": rare, "calc": story(STAYS, sequences=12, steps=120)})
    assert judgement.signature.status is Answer.CANNOT_SAY  # all other blocks of the tool lie below the floor
    assert not isinstance(judgement.verdict, Broken)


def test_a_tool_that_rises_from_below_the_floor_is_not_said_to_grow_as_text_does() -> None:
    tools = {
        "sql": story(rising(0.05, 0.35), text=rising(0.15, 0.25)),
        "calc": story(STAYS, text=rising(0.15, 0.25), sequences=30),
    }
    judgement = judged(
        "tool_names", tools
    )  # sevenfold, and text by two thirds: but below 0.5 nats no token is kept by its tool
    assert judgement.signature.status is Answer.CANNOT_SAY
    assert not isinstance(judgement.verdict, Broken)


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("gpu_host", "rank"),
        ("dp_rank", "rank"),
        ("engineVersion", "policy version"),
        ("prompt-source", "source of prompts"),
        ("Dataset", "source of prompts"),
        ("sandbox", "environment"),
        ("flavour", ""),
    ],
)
def test_a_column_of_the_runs_own_is_known_by_the_words_of_its_name(column: str, kind: str) -> None:
    assert kind_of(column) == kind


def test_a_name_cannot_break_out_of_its_quotes() -> None:
    assert place("environment", "a`b\nc") == "in environment `a'b c`"
    assert len(place("tool", "x" * 500)) < 100


@pytest.mark.slow
def test_a_hostile_name_reaches_no_page_as_markup(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>\x1b[31m`x`"
    frame = run_of_values({hostile: story(GROWS, sequences=4), "plain": story(STAYS, sequences=8)}, "data_source")
    run = write_recorder_run(tmp_path / "run", frame)
    found = ptt.diagnose(run)
    finding = next(one for one in found.findings if one.id == ID)
    assert finding.evidence["holder_value"] == hostile
    assert "where `data_source` is" in found.verdict.headline
    page = found.to_html()
    assert "<script>alert(1)" not in page
    terminal = StringIO()
    print_diagnosis(found, Console(file=terminal, force_terminal=False, width=200), "report.html")
    assert "\x1b" not in terminal.getvalue()
    (written,) = (one for one in json.loads(found.to_json())["findings"] if one["id"] == ID)
    holder = written["holder"]
    assert (holder["attribute"], holder["value"]) == ("data_source", hostile)
    assert holder["lift_interval"][0] > 1.5
    assert holder["share"] == pytest.approx(holder["lift"] * holder["token_share"], rel=1e-4)
    hidden = findings_json(redacted(found, salt="s"), "1")
    assert "alert" not in hidden
    assert "data_source" not in hidden


def passing(column: str, heavy: Any, others: tuple[Any, ...], *, there: pl.Expr, post: Scale) -> pl.DataFrame:
    """Give a run with one heavy value that is recorded at some steps only."""
    stories = {heavy: story(steady(1.5)), **{other: story(post) for other in others}}
    frame = run_of_values(stories, column)
    has = pl.col(column).list.contains(heavy) if column == "tool_names" else pl.col(column) == heavy
    frame = frame.filter(~has | there).drop("seq").with_row_index("seq")
    return frame.with_columns(pl.col("seq").cast(pl.UInt32))


PARTS: dict[str, tuple[Any, tuple[Any, ...], str]] = {
    "rank": (3, (0, 1, 2), "rank 3"),
    "env": ("maze", ("shop", "web"), "environment `maze`"),
    "tool_names": ("sql", ("calc", "search"), "tool `sql`"),
    "attribute:prompt_source": ("code", ("math", "web"), "`prompt_source` `code`"),
}


@pytest.mark.parametrize("column", first_fast(PARTS))
def test_a_heavy_value_that_is_not_recorded_early_is_no_growth(column: str) -> None:
    heavy, others, words = PARTS[column]
    judgement = judge(evidence_of(passing(column, heavy, others, there=pl.col("step") > 30, post=STAYS)), aggregates())
    assert judgement.signature.status is Answer.NOT_FOUND
    assert f"judged without {words} (from step 31 on)" in judgement.signature.reason


@pytest.mark.parametrize("column", first_fast(PARTS))
def test_growth_of_the_values_that_are_there_all_along_is_found(column: str) -> None:
    """A heavy value that vanishes hides it."""
    heavy, others, words = PARTS[column]
    judgement = judge(evidence_of(passing(column, heavy, others, there=pl.col("step") <= 30, post=GROWS)), aggregates())
    assert judgement.signature.status is Answer.FOUND
    assert only_finding(judgement).evidence["left_out"] == f"{words} (up to step 30)"


def test_values_of_which_none_is_there_all_along_leave_nothing_to_compare() -> None:
    frame = run_of_values({"old": story(STAYS), "new": story(steady(1.5))}, "env")
    frame = frame.filter((pl.col("env") == "new") == (pl.col("step") > 30)).drop("seq").with_row_index("seq")
    judgement = judge(evidence_of(frame.with_columns(pl.col("seq").cast(pl.UInt32))), aggregates())
    assert judgement.signature.status is Answer.CANNOT_SAY
    assert "environment `new` (from step 31 on)" in judgement.signature.reason


def test_a_column_that_numbers_the_times_of_a_run_is_none_of_its_parts() -> None:
    frame = sequences_of(story(GROWS)).with_columns((pl.col("step") // 20).cast(pl.String).alias("attribute:epoch"))
    assert judge(evidence_of(frame), aggregates()).signature.status is Answer.FOUND


@pytest.mark.parametrize("column", first_fast(["env", "attribute:prompt_source"]))
def test_a_value_that_comes_late_and_grows_since_is_found_as_its_own(column: str) -> None:
    stories = {"new": story(rising(0.02, 2.5)), "old": story(STAYS), "older": story(STAYS)}
    frame = run_of_values(stories, column).filter((pl.col(column) != "new") | (pl.col("step") > 15)).drop("seq")
    made = frame.with_row_index("seq").with_columns(pl.col("seq").cast(pl.UInt32))
    judgement = judge(evidence_of(made), aggregates())
    assert judgement.signature.status is Answer.FOUND
    evidence = only_finding(judgement).evidence
    assert evidence["holder_value"] == "new"
    assert "left_out" not in evidence
