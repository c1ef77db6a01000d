"""The page of traces as text: escaped, closed in itself, without script or request, and the same every time."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from html_structure import Structure
from trace_diagnoses import HOSTILE, SAMPLES, failing_traces

from ptt.diagnostics.traces.model import Message
from ptt.reports.redact.redact import redacted_traces
from ptt.reports.text.numbers import count
from ptt.reports.traces.episodes import MAX_TEXT
from ptt.reports.traces.figures import write_trace_figures
from ptt.reports.traces.html import render_traces

MAX_BYTES = 200_000


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return {name: render_traces(make()).text for name, make in SAMPLES.items()}


@pytest.mark.parametrize("name", SAMPLES)
def test_the_page_is_well_formed_and_loads_nothing(name: str, pages: dict[str, str]) -> None:
    structure = Structure(pages[name])
    assert structure.open == []
    assert not structure.tags & {"script", "iframe", "form", "object", "img"}
    assert len(structure.ids) == len(set(structure.ids))
    assert all(link == "data:," or link[1:] in structure.ids for link in structure.links)
    assert len(pages[name].encode()) < MAX_BYTES


def test_foreign_text_is_shown_and_never_run(pages: dict[str, str]) -> None:
    assert HOSTILE not in pages["hostile"]
    assert "&lt;script&gt;alert(1)" in pages["hostile"]
    assert "\x1b" not in pages["hostile"]
    assert "\u202e" not in pages["hostile"]


def test_the_same_diagnosis_gives_the_same_bytes(pages: dict[str, str]) -> None:
    assert render_traces(failing_traces()).text == pages["failing"]


def test_the_first_screen_answers(pages: dict[str, str]) -> None:
    first = pages["failing"].partition("</section>")[0].replace("<wbr>", "")
    for text in ("Unstable", "Failed calls of search_flights rose", "Since episode 352", "51% of 600 labelled"):
        assert text in first


def test_a_finding_has_the_curve_that_it_names(pages: dict[str, str]) -> None:
    article = re.search(r'<article class="finding critical".*?</article>', pages["failing"], re.DOTALL)
    assert article is not None
    assert "2% before episode 352, 47% at the end" in article[0]


def test_a_pair_stands_side_by_side_with_its_parting_turn_marked(pages: dict[str, str]) -> None:
    part = pages["failing"].partition('id="partings"')[2].partition("</article>")[0]
    assert "parted at assistant turn 2" in part
    assert part.count('class="assistant marked"') == 2
    assert part.index("Succeeds") < part.index("Fails")


def test_episodes_are_folded_and_escaped(pages: dict[str, str]) -> None:
    part = pages["failing"].partition('id="episodes"')[2].partition("</section>")[0]
    assert part.count('<details class="episode') == 2
    assert "&lt;Friday&gt;" in part
    assert "failed: Timed out after 10 s" in part


def test_the_first_screen_leads_to_the_tool_the_onset_and_the_first_sample(pages: dict[str, str]) -> None:
    part = pages["failing"].partition('id="reply-tools"')[2].partition('id="reply-happened"')[0]
    assert "search_flights" in part
    assert f"23.9% of {count(2140)} calls failed" in part
    assert 'Since episode 352, first in <a href="#episode-1-look">e-19</a>' in part
    assert "First in <code>e-3</code>" in part  # a tool of its own, whose transcript is not there
    assert part.count('class="bar"') == 12


def test_a_finding_links_to_its_episodes_and_names_the_command(pages: dict[str, str]) -> None:
    article = re.search(r'<article class="finding critical".*?</article>', pages["failing"], re.DOTALL)
    assert article is not None
    for place, name in ((1, "e-19"), (2, "e-44")):
        assert f'<a href="#episode-{place}-look">{name}</a>' in article[0]
        assert f"<code>ptt show . {name}</code>" in article[0]
    assert "message 4: parts here" in article[0]


def test_a_redacted_page_names_no_command() -> None:
    page = render_traces(redacted_traces(failing_traces(), salt="of the test")).text
    assert '<a href="#episode-1-look">sample-' in page
    assert "ptt show" not in page


def test_a_name_is_quoted_for_the_shell() -> None:
    failing = failing_traces()
    spelt = replace(failing.examples[0], name="a b$(rm x)")
    assert "ptt show . &#39;a b$(rm x)&#39;" in render_traces(replace(failing, examples=(spelt,))).text


def test_messages_that_are_left_out_are_counted() -> None:
    failing = failing_traces()
    first, *_, last = failing.examples[0].messages
    thinned = replace(failing.examples[0], length=40, messages=(first, replace(last, number=33)))
    page = render_traces(replace(failing, examples=(thinned,))).text
    assert "31 messages left out" in page
    assert "7 messages left out" in page


def test_any_number_of_long_transcripts_leaves_the_page_small() -> None:
    failing = failing_traces()
    message = Message(role="tool", text='<"&' * 1300, number=1)
    long = replace(failing.examples[0], messages=(message,) * 24)
    page = render_traces(replace(failing, examples=(long,) * 100)).text
    assert page.count('<details class="episode') < 100
    assert len(page.encode()) < 2_000_000


def test_the_curve_of_a_tool_is_of_its_own_calls(pages: dict[str, str]) -> None:
    assert "Failed tool calls of search_flights 2% before episode 352, 47% at the end" in pages["failing"]
    whole = pages["failing"].partition('id="trace_shares"')[2].partition("</figure>")[0]
    assert "ailed tool calls of search_flights" not in whole


def test_a_long_message_is_cut() -> None:
    failing = failing_traces()
    long = replace(failing.examples[0], messages=(Message(role="tool", text="word " * 50_000),))
    assert len(render_traces(replace(failing, examples=(long,))).text) < MAX_BYTES + MAX_TEXT


def test_words_of_a_message_stay_as_they_are() -> None:
    failing = failing_traces()
    said = replace(failing.examples[0], messages=(Message(role="user", text="Do step 3 first."),))
    assert "Do step 3 first." in render_traces(replace(failing, examples=(said,))).text


def test_steps_are_called_what_the_traces_count() -> None:
    failing = failing_traces()
    stepped = replace(failing, traces=replace(failing.traces, order="step"))
    assert "Since step 352" in render_traces(stepped).text
    assert "Since episode 352" in render_traces(failing).text


def test_without_tables_the_page_says_why_nothing_is_drawn(pages: dict[str, str]) -> None:
    assert "<svg" not in pages["unlabelled"]
    assert "Not drawn" in pages["unlabelled"]


def test_a_tool_without_a_name_and_a_share_without_an_interval_are_shown() -> None:
    failing = failing_traces()
    tools = failing.tables["tools"].with_columns(pl.lit(None, pl.String).alias("name"))
    page = render_traces(replace(failing, tables={**failing.tables, "tools": tools})).text
    assert "no name" in page


def test_figures_are_written_as_files(tmp_path: Path) -> None:
    faults: list[object] = []
    written = write_trace_figures(failing_traces(), tmp_path, faults)  # type: ignore[arg-type]
    assert faults == []
    assert {path.stem for path in written} == {"trace_shares", "trace_tools", "trace_turns", "trace_other_shares"}


def test_the_heading_of_few_episodes_does_not_read_noise() -> None:
    failing = failing_traces()
    assert "Failed tool calls of search_flights 2% before episode 352" in render_traces(failing).text
    unlike = replace(failing, findings=())
    assert "Success 51% of all" in render_traces(unlike).text
