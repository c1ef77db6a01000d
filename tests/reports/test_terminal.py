"""What the terminal shows, to the letter, and that foreign text cannot steer it."""

from __future__ import annotations

import io
import os
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from builders import finding_of
from rich.console import Console

from ptt.diagnostics.model import Diagnosis, Link
from ptt.reports.run.terminal import print_diagnosis
from ptt.reports.text.numbers import number

WIDTH = 100
NAMES = ("baseline", "healthy", "cannot_say", "collapse", "crashed", "cascade", "hostile")


def printed(diagnosis: Diagnosis, *, colour: bool = False) -> str:
    out = io.StringIO()
    console = Console(file=out, width=WIDTH, force_terminal=colour, color_system="standard" if colour else None)
    print_diagnosis(diagnosis, console, f"ptt-report/{diagnosis.run.name[:8]}/report.html")
    return out.getvalue()


@pytest.mark.parametrize("name", NAMES)
def test_output_is_the_recorded_one(name: str, samples: dict[str, Diagnosis], golden_dir: Path) -> None:
    actual, recorded = printed(samples[name]), golden_dir / f"terminal_{name}.txt"
    if os.environ.get("PTT_RECORD_GOLDEN"):
        recorded.write_text(actual, encoding="utf-8")
    assert actual == recorded.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_piped_output_has_no_control_characters_nor_trailing_blanks(name: str, samples: dict[str, Diagnosis]) -> None:
    text = printed(samples[name])
    assert not [c for c in text if c != "\n" and not c.isprintable() and c != "\u202f"]
    assert not [line for line in text.splitlines() if line != line.rstrip() or len(line) > WIDTH]


@pytest.mark.parametrize("lost", [0.8, 0.4])
def test_a_lost_reward_is_told_whatever_else_is_found(lost: float, samples: dict[str, Diagnosis]) -> None:
    base = samples["baseline"]
    fell = finding_of("reward-fell", link=Link.REWARD, onset_step=61, observed=lost, consequence_of=base.findings[0].id)
    text = printed(replace(base, findings=(*base.findings, fell)))
    assert ("High reward, since step 61: " in text) is (lost > 0.5)


def test_first_word_is_the_verdict(samples: dict[str, Diagnosis]) -> None:
    assert printed(samples["baseline"]).split()[:3] == ["Verdict", "■", "Unstable"]


def test_an_ordinary_run_fits_a_small_screen(samples: dict[str, Diagnosis]) -> None:
    assert len(printed(samples["healthy"]).splitlines()) <= 10
    assert len(printed(samples["baseline"]).splitlines()) <= 20


def test_rich_markup_in_foreign_text_is_shown_as_written(samples: dict[str, Diagnosis]) -> None:
    assert "[bold red]x[/bold" in printed(samples["hostile"], colour=True)


def test_colour_only_where_a_terminal_asks_for_it(samples: dict[str, Diagnosis]) -> None:
    assert "\x1b[" in printed(samples["baseline"], colour=True)
    assert "\x1b" not in printed(samples["baseline"])


def test_a_very_narrow_terminal_still_works(samples: dict[str, Diagnosis]) -> None:
    out = io.StringIO()
    print_diagnosis(samples["baseline"], Console(file=out, width=10), "r.html")
    assert "Unstable" in out.getvalue()


@pytest.mark.parametrize("percentile", ["p95", "p99"])
def test_why_shows_the_percentile_that_decided(percentile: str, samples: dict[str, Diagnosis]) -> None:
    baseline = samples["baseline"]
    decided = replace(
        baseline, findings=tuple(replace(f, evidence={"percentile": percentile}) for f in baseline.findings)
    )
    growth = decided.tables["growth"].filter(pl.col("parts") == 3, pl.col("slice") == "post_tool").sort("part")
    levels = " → ".join(number(value) for value in growth[percentile])
    assert f"{percentile} of |r| by thirds: post-tool {levels} nats" in " ".join(printed(decided).split())
