"""The section behind the tail: shown where there are tails, sentences with numbers, nothing unescaped."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from builders import Story, growing, sequences_of, stepped, tokens_of
from html_structure import page_with
from slow_cases import first_fast

from ptt.diagnostics.evidence.completions import Completions
from ptt.diagnostics.evidence.tail_details import gather_details
from ptt.diagnostics.model import Diagnosis
from ptt.diagnostics.store.scan import read_table
from ptt.reports.figures import BEHIND_THE_TAIL, exposure, timeline
from ptt.reports.run.answers import happened
from ptt.reports.run.html import render_html
from ptt.reports.run.tail_details import Part, details
from ptt.reports.text.why import answer, explained

HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e{{ 7*7 }}"


def tables(frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
    nothing = (read_table(Path("no store"), table) for table in ("trajectories", "tool_calls", "turns"))
    return gather_details(tokens_of(frame), Completions(*nothing), post_name="post_tool")


@pytest.fixture(scope="module")
def behind(samples: dict[str, Diagnosis]) -> Diagnosis:
    """Give a run with every part: groups, versions, files of its own."""
    frame = growing()
    frame = frame.with_columns(
        group_id=pl.format("g{}", pl.col("seq") // 4),
        policy_version=pl.col("step") - pl.col("seq").cast(pl.Int64) % 9,
        reward=pl.lit(1.0),
        env=pl.lit("shop"),
    )
    return replace(samples["baseline"], tables={**samples["baseline"].tables, **tables(frame)})


def page_behind(diagnosis: Diagnosis) -> str:
    return page_with(diagnosis, behind=BEHIND_THE_TAIL)


def section(page: str) -> str:
    found = re.search(r'<section id="behind".*?</section>', page, flags=re.DOTALL)
    return found[0] if found else ""


def test_the_section_is_folded_below_findings_and_figures(behind: Diagnosis) -> None:
    page = page_with(behind, main=(timeline.FIGURE,), behind=BEHIND_THE_TAIL)
    assert (
        page.index('id="findings"') < page.index('id="figures"') < page.index('id="more"') < page.index('id="behind"')
    )
    shown = section(page)
    assert shown.count("<svg") == 2
    for title in (
        "How heavy the tails are",
        "What guards would have done",
        "Where the late tail is",
        "Sequences to read first",
    ):
        assert title in shown
    assert "Tails and the age of rollouts" in shown
    assert not re.search(r"\b(nan|None|inf)\b", re.sub(r"<svg.*?</svg>", "", shown, flags=re.DOTALL))


@pytest.mark.parametrize("name", first_fast(["baseline", "cannot_say", "hostile"]))
def test_without_its_tables_nothing_is_shown(name: str, samples: dict[str, Diagnosis]) -> None:
    assert section(page_behind(samples[name])) == ""


def test_empty_tables_show_nothing(behind: Diagnosis) -> None:
    empty = {name: frame.clear() for name, frame in behind.tables.items()}
    bare = replace(behind, tables=empty)
    assert details(bare) == ()
    assert answer(bare) == ""
    assert section(page_behind(bare)) == ""


def test_the_sentence_names_the_larger_part_first(samples: dict[str, Diagnosis]) -> None:
    made = tables(sequences_of(Story(post=stepped(0.2, 0.8), tool_share=stepped(0.5, 0.7))))
    said = answer(replace(samples["baseline"], tables=made))
    cut = made["exposure"].filter((pl.col("weights") == "policy/ref") & pl.col("cap").is_not_null())
    share = 100 * cut["tool"][0] / cut["change"][0]
    found = re.search(r"With weights cut at 10, of the growth of E\[ρ²\] .*? ([\d.]+)% comes from", said)
    assert found is not None
    assert float(found[1]) == pytest.approx(share, rel=0.05)
    assert said.index("heavier post-tool tails") < said.index("more tool tokens")


def test_a_single_token_that_rules_is_said(behind: Diagnosis) -> None:
    ruled = behind.tables["exposure"].with_columns(
        dominated=pl.col("cap").is_null(), top_token_late=pl.lit(0.9), top_token_early=pl.lit(0.1)
    )
    said = answer(replace(behind, tables={"exposure": ruled}))
    assert said.startswith("As recorded, E[ρ²] (pair policy/ref) is dominated by a single token")
    assert "With weights cut at 10" in said
    of_sequence = ruled.with_columns(top_token_late=pl.lit(0.3))
    assert "a single sequence" in answer(replace(behind, tables={"exposure": of_sequence}))


def test_noise_and_what_works_against_the_change_are_said(behind: Diagnosis) -> None:
    frame = behind.tables["exposure"].filter((pl.col("weights") == "policy/ref") & pl.col("cap").is_null())
    noise = frame.with_columns(dominated=pl.lit(value=False), change_lo=pl.lit(-1.0), change_hi=pl.lit(1e9))
    assert "is within the noise of the run" in answer(replace(behind, tables={"exposure": noise}))
    fall = noise.with_columns(
        total_early=pl.lit(10.0), total_late=pl.lit(6.0), change=pl.lit(-4.0), change_lo=pl.lit(-5.0),
        change_hi=pl.lit(-3.0), exposure=pl.lit(1.0), text=pl.lit(0.0), tool=pl.lit(-5.0),
    )  # fmt: skip
    said = answer(replace(behind, tables={"exposure": fall}))
    assert "Of the fall of E[ρ²] (pair policy/ref, 10 early, 6 late)" in said
    assert "comes from lighter post-tool tails; the share of tool tokens took 25% back." in said
    assert "120% comes from" in said


def test_numbers_of_the_tables_are_those_of_the_diagnosis(behind: Diagnosis) -> None:
    parts = {part.key: part for part in details(behind)}
    assert len(parts["guards"].tables[0].rows) == behind.tables["counterfactual"]["guard"].n_unique()
    assert len(parts["guards"].tables[1].rows) == behind.tables["counterfactual"].height
    assert len(parts["holders"].tables[1].rows) == behind.tables["attribution"].height
    assert len(parts["worst"].tables[0].rows) == 10
    assert len(parts["staleness"].tables[0].rows) == behind.tables["staleness"].height
    assert "a guard on policy/ref instead" in parts["guards"].sentence
    assert "for each doubling of 1 + lag" in parts["staleness"].sentence


def test_a_recorded_rollout_pair_is_named_without_the_caveat(behind: Diagnosis) -> None:
    frame = behind.tables["counterfactual"].with_columns(pair=pl.lit("policy/rollout"))
    (part,) = details(replace(behind, tables={"counterfactual": frame}))
    assert "Replayed on the recorded ratios of policy/rollout" in part.sentence
    assert "Trainers guard" not in part.sentence


def part_of(diagnosis: Diagnosis, key: str) -> Part:
    return next(part for part in details(diagnosis) if part.key == key)


def test_how_heavy_the_tails_are_is_said_for_what_was_judged(behind: Diagnosis) -> None:
    part, frame = part_of(behind, "heaviness"), behind.tables["heaviness"]
    late = frame.filter((pl.col("window") == "late") & (pl.col("weights") == "policy/ref"))
    (post,) = late.filter((pl.col("slice") == "post_tool") & (pl.col("level") == "token")).to_dicts()
    assert post["k_hat"] > post["threshold"]
    assert part.sentence.startswith(
        f"Late post-tool token weights (policy/ref): k-hat {post['k_hat']:.2g}, above the {post['threshold']:.2g} "
        "beyond which means of weights cannot be trusted. Late text-only token weights (policy/ref): k-hat"
    )
    assert "not above the" in part.sentence
    assert len(part.tables[0].rows) == frame.filter(pl.col("window") == "late").height
    assert len(part.tables[-1].rows) == frame.height
    assert [len(table.rows) for table in part.tables[1:3]] == [6, 9]


def test_a_tail_that_was_not_judged_is_not_called_trusted(behind: Diagnosis) -> None:
    unjudged = behind.tables["heaviness"].with_columns(
        k_hat=pl.lit(None, pl.Float64), reason=pl.lit("too many weights are equal")
    )
    part = part_of(replace(behind, tables={"heaviness": unjudged}), "heaviness")
    assert "k-hat not judged, too many weights are equal" in part.sentence
    assert all("not judged" in row[5] for row in part.tables[0].rows)


def growth(behind: Diagnosis, **changes: float | bool | None) -> pl.DataFrame:
    """Give the split with these values, in its uncut rows alone; the cut ones rise for sure."""
    uncut = pl.col("cap").is_null()
    sure = {
        "dominated": False, "change": 4.0, "change_lo": 3.0, "change_hi": 5.0, "exposure_share": 0.04,
        "tool_share": 0.96, "tool_share_lo": 0.92, "tool_share_hi": 0.99,
    }  # fmt: skip
    frame = behind.tables["exposure"].with_columns(pl.lit(value).alias(name) for name, value in sure.items())
    return frame.with_columns(
        pl.when(uncut).then(pl.lit(value)).otherwise(pl.col(name)).alias(name) for name, value in changes.items()
    )


def test_the_verdict_says_what_the_growth_came_from(behind: Diagnosis) -> None:
    told = explained(replace(behind, tables={"exposure": growth(behind)}))
    assert told == (
        "Of the growth in E[ρ²], heavier post-tool tails explain 96% (95% interval 92 to 99), more tool tokens 4%."
    )
    assert told in happened(replace(behind, tables={"exposure": growth(behind)}))


@pytest.mark.parametrize(
    ("changes", "doubt"),
    [
        ({"dominated": True, "top_token_late": 0.9}, "a single token holds over half of the sum"),
        ({"change_lo": -1.0}, "its change is within the noise of the run"),
        ({"change_lo": None, "change_hi": None}, "the run has too few steps for an interval"),
        ({"change": -4.0, "change_lo": -5.0, "change_hi": -3.0}, "it fell"),
        ({"tool_share_lo": -0.1}, "the interval of the tails' share includes zero"),
    ],
)
def test_what_cannot_be_told_of_recorded_weights_is_told_of_cut_ones_or_not_at_all(
    behind: Diagnosis, changes: dict[str, float | bool | None], doubt: str
) -> None:
    frame = growth(behind, **changes)
    told = explained(replace(behind, tables={"exposure": frame}))
    assert told.startswith("Of the growth in E[ρ²] (weights cut at 10), heavier post-tool tails explain 96")
    assert told.endswith(f"; uncut, {doubt}.")
    alone = frame.filter(pl.col("cap").is_null())
    assert explained(replace(behind, tables={"exposure": alone})) == (
        f"Whether more tool tokens or heavier post-tool tails made E[ρ²] grow is unclear: {doubt}."
    )


def test_a_tail_too_heavy_for_squares_forbids_to_split_them(behind: Diagnosis) -> None:
    heavy = behind.tables["heaviness"]
    for k, said in ((0.36, "; uncut, the tail is too heavy to say (k-hat 0.36)."), (0.3, ""), (None, "not be judged.")):
        judged = heavy.with_columns(k_hat=pl.lit(k, pl.Float64), threshold=pl.lit(0.7))
        told = explained(replace(behind, tables={"exposure": growth(behind), "heaviness": judged}))
        assert told.endswith(said)
        assert ("uncut" in told) is bool(said)


def test_behind_the_tail_a_tail_too_heavy_for_squares_gives_no_uncut_share(behind: Diagnosis) -> None:
    for k, doubt in (
        (3.3, "the tail is too heavy to say (k-hat 3.3)"),
        (None, "the heaviness of the tail could not be"),
    ):
        judged = behind.tables["heaviness"].with_columns(k_hat=pl.lit(k, pl.Float64), threshold=pl.lit(0.7))
        heavy = replace(behind, tables={**behind.tables, "exposure": growth(behind), "heaviness": judged})
        said = answer(heavy)
        assert said.startswith("With weights cut at 10, of the growth of E[ρ²] (")
        assert said.count("comes from") == 1
        assert f"(pair policy/ref, uncut weights) is unclear: {doubt}" in said
        assert doubt in exposure.FIGURE.caption(heavy)
        alone = replace(heavy, tables={**heavy.tables, "exposure": growth(behind).filter(pl.col("cap").is_null())})
        assert answer(alone).startswith("The source of a change in E[ρ²]")
    light = behind.tables["heaviness"].with_columns(k_hat=pl.lit(0.3), threshold=pl.lit(0.7))
    trusted = replace(behind, tables={**behind.tables, "exposure": growth(behind), "heaviness": light})
    assert answer(trusted).startswith("Of the growth of E[ρ²] (pair policy/ref")
    assert "unclear" not in answer(trusted)


def test_foreign_text_is_escaped(behind: Diagnosis) -> None:
    spoilt = {}
    for name in ("exposure", "heaviness", "counterfactual", "attribution", "top_sequences", "staleness"):
        frame = behind.tables[name]
        names = ("path", "sample_id", "group_id", "value", "guard", "level", "reason", "text")
        texts = [column for column in names if frame.schema.get(column) == pl.String]
        spoilt[name] = frame.with_columns(pl.lit(HOSTILE).alias(column) for column in texts)
    shown = section(page_behind(replace(behind, tables=spoilt)))
    assert "<script" not in shown
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\x1b[31m\\u202e{{ 7*7 }}" in shown
    assert not [letter for letter in shown if letter != "\n" and not letter.isprintable() and letter != "\u202f"]
    long = behind.tables["top_sequences"].with_columns(path=pl.lit("n" * 5000))
    assert len(section(page_behind(replace(behind, tables={"top_sequences": long})))) < 5000


@pytest.mark.slow
def test_the_same_tables_give_the_same_section(behind: Diagnosis) -> None:
    again = tables(growing())
    assert all(again[name].equals(frame) for name, frame in tables(growing()).items())
    assert render_html(behind) == render_html(behind)
