"""`ptt rules` and `--rules` as a user runs them."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from slow_cases import first_fast
from typer.testing import CliRunner, Result

from ptt import api
from ptt.api import read_settings
from ptt.cli.app import app
from ptt.diagnostics.model import Link
from ptt.diagnostics.rules import LIMITS, RULES, tool_tail_growth

SAMPLES = Path(__file__).parents[1] / "sample_logs"
IDS = [*(rule.id for rule in RULES), tool_tail_growth.ID]
GOOD = '[[rule]]\nid = "tail"\nseverity = "high"\nmetric = "kl/ref"\nis = "> 0.05"\nfor_steps = 5\n'


def ptt(*args: str | Path) -> Result:
    return CliRunner().invoke(app, list(map(str, args)), env={"COLUMNS": "100"})


def test_the_catalogue_lists_every_rule_under_its_link() -> None:
    done = ptt("rules")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    heads = [line for line in lines if line.endswith(")") and not line.startswith(" ")]
    listed = [line.split()[0] for line in lines if line.startswith("  ") and not line.startswith("   ")]
    assert sorted(listed) == sorted(IDS)
    links = [Link(head.rsplit("(", 1)[1].rstrip(")")) for head in heads]
    assert links == sorted(links, key=list(Link).index)
    assert max(map(len, lines)) <= 100
    assert "online only" in done.stdout


@pytest.mark.parametrize("name", first_fast(IDS, 12))
def test_a_page_has_its_parts_and_limits_that_settings_take(name: str, tmp_path: Path) -> None:
    done = ptt("rules", name)
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"{name} · ")
    assert lines[1].startswith("This run shows ")
    places = [lines.index(heading) for heading in ("What", "Why it matters", "What to do", "Source", "Asked of")]
    assert places == sorted(places)
    begin = next(place for place, line in enumerate(lines) if line.startswith("Limits"))
    toml = "\n".join(line.strip() for line in lines[begin + 1 :])
    assert tomllib.loads(toml) == {"limits": {name: dict(LIMITS[name])}}
    (tmp_path / "ptt.toml").write_text(toml)
    assert read_settings(tmp_path / "ptt.toml").limits == {name: dict(LIMITS[name])}


def test_the_catalogue_and_a_page_as_json() -> None:
    every = json.loads(ptt("rules", "--json").stdout)
    assert sorted(page["id"] for page in every["rules"]) == sorted(IDS)
    (page,) = json.loads(ptt("rules", "kl-over-target", "--json").stdout)["rules"]
    assert page["link"] == "policy_update"
    assert page["limits"] == {"limit": 0.3}
    assert list(page["sections"]) == ["What", "Why it matters", "What it is not", "What to do", "Source"]
    assert "learning rate" in page["sections"]["What to do"]


def test_no_part_of_a_page_is_lost() -> None:
    for page in api.rule_pages():
        assert page.shows
        assert set(page.sections) >= {"What", "Why it matters", "What to do", "Source"}
        assert all(page.sections.values())


def test_an_unknown_rule_ends_with_two_and_the_closest_name() -> None:
    done = ptt("rules", "kl-over-targets")
    assert done.exit_code == 2
    assert "kl-over-target" in done.stderr
    assert ptt("rules", "zzz").exit_code == 2


def test_a_check_says_what_was_understood(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(GOOD + 'algorithms = ["grpo"]\n')
    done = ptt("rules", "--check", tmp_path)
    assert done.exit_code == 0, done.output
    said = " ".join(done.stdout.split())
    assert "custom:tail · high · policy update · a.toml" in said
    assert "mean of kl/ref over 20 values is above 0.05, for 5 steps" in said
    assert "asked of grpo" in said
    assert "1 rule in 1 file, 0 problems" in said
    found = json.loads(ptt("rules", "--check", tmp_path, "--json").stdout)
    assert found["problems"] == []
    assert found["rules"][0]["metrics"] == ["kl/ref"]


def test_a_check_lists_every_problem_and_ends_with_two(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(GOOD)
    (tmp_path / "b.alerts").write_text("nonsense\nall: kl > x -> high: y\n")
    (tmp_path / "c.yaml").write_text("name: x\n")
    done = ptt("rules", "--check", tmp_path)
    assert done.exit_code == 2
    assert "custom:tail" in done.stdout
    assert done.stdout.count("✕") == 3
    assert "1 rule in 3 files, 3 problems" in done.stdout
    assert ptt("rules", "kl-over-target", "--check", tmp_path).exit_code == 2


def test_foreign_text_does_not_steer_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "a.alerts").write_text("all: kl\x1b[31m > 1 -> high: x\n")
    assert "\x1b" not in ptt("rules", "--check", tmp_path).stdout


@pytest.mark.slow
def test_diagnose_takes_rules_and_fails_on_them(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(GOOD.replace("kl/ref", "reward/mean").replace("0.05", "-100"))
    (tmp_path / "b.alerts").write_text("all: entropy < -100 -> critical: none\n")
    given = ("--rules", tmp_path / "a.toml", "--rules", tmp_path / "b.alerts", "--out", tmp_path / "out", "--json")
    done = ptt("diagnose", SAMPLES / "healthy", *given, "--fail-on", "high")
    assert done.exit_code == 3, done.output
    assert "custom:tail" in {finding["id"] for finding in json.loads(done.stdout)["findings"]}
    assert "custom:tail" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    done = ptt("diagnose", SAMPLES / "healthy", "--rules", tmp_path / "nowhere", "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert "there is no such file" in done.stderr
