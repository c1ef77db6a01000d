"""Custom rules are read as data, and wrong ones are refused by file, rule and key."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import repeatable
from custom_rules import CANONICAL, DPO, GRPO, THEIRS, WHOLE, found, judged, their_file
from hypothesis import given
from hypothesis import strategies as st

import ptt
from ptt.diagnostics.custom import terms
from ptt.diagnostics.custom.files import check_rules, load_rules, toml_rules
from ptt.diagnostics.custom.microsoft_yaml import flat_yaml, heuristic_of
from ptt.diagnostics.custom.terms import (
    Between,
    Bound,
    Change,
    Comparison,
    Last,
    Outside,
    RuleError,
    Spike,
    Statement,
    TimesEarly,
    comparison_of,
)
from ptt.diagnostics.model import Broken, Healthy, NotJudged, Severity


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("> 0.3", Bound(">", 0.3)),
        (" <=-1e-6 ", Bound("<=", -1e-6)),
        (">= .5", Bound(">=", 0.5)),
        ("<+2.", Bound("<", 2.0)),
        ("between -1 and 2.5", Between(-1, 2.5)),
        ("range(0.68, 0.71)", Between(0.68, 0.71)),
        ("outside 0.5 and 2", Outside(0.5, 2)),
        ("== 1 within 0.5", Between(0.5, 1.5)),
        ("> 2 times_early", TimesEarly(">", 2)),
        ("< 0.5 times early", TimesEarly("<", 0.5)),
        ("drop 50%", Change(-0.5)),
        ("drop(50 %)", Change(-0.5)),
        ("rise 25%", Change(0.25)),
        ("spike 2.5x", Spike(2.5)),
        ("spike(2.5x)", Spike(2.5)),
    ],
)
def test_comparisons_are_read(text: str, meant: Comparison) -> None:
    assert comparison_of(text) == meant


@pytest.mark.parametrize(
    "text",
    ["", "0.3", "=> 3", "> x", "> 0.3 or 1", "> 1_000", "> nan", "> inf", "> 1e999", "drop 50", "drop(50)", "drop -5%",
     "drop 0%", "spike 1x", "== 1", "range(2, 1)", "between 1 and", "> __import__('os')", "> 2 times",
     "between 2 and 1"],
)  # fmt: skip
def test_what_is_no_comparison_is_refused(text: str) -> None:
    with pytest.raises(RuleError):
        comparison_of(text)


def test_what_only_microsofts_toolkit_writes_is_read_as_it_means_it() -> None:
    assert comparison_of("== 1", theirs=True) == Between(0.98, 1.02)
    assert comparison_of("drop(30)", theirs=True) == Change(-0.3)
    assert comparison_of("spike(3)", theirs=True) == Spike(3)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nonsense", "not valid TOML"),
        ("", "neither [[rule]] nor alerts"),
        ("rules = []\n", "'rules' is unknown; is 'rule' meant?"),
        ("rule = 3\n", "rule: is not a list"),
        ("alerts = 'x'\n", "alerts: is not a list"),
        ("alerts = ['kl > 3']\n", "alert number 1: 'kl > 3' is not an alert"),
        ("[[rule]]\nseverity = 'high'\nmetric = 'kl/ref'\nis = '> 1'\n", "rule number 1: has no `id`"),
        (WHOLE.replace('"a"', '"a b"'), "'a b' is not a valid id"),
        (WHOLE.replace("high", "hihg"), "severity is 'hihg'; it can be critical, high, medium"),
        (WHOLE.replace("severity", "sevrity"), "has the unknown key 'sevrity'; is severity meant?"),
        (WHOLE + "aggregate = 'avg'", "aggregate 'avg' is unknown"),
        (WHOLE + "aggregate = 'p100'", "aggregate 'p100' is unknown"),
        (WHOLE + "aggregate = 'p0'", "aggregate 'p0' is unknown"),
        (WHOLE + "window = 0", "window 0 is not a window"),
        (WHOLE + "window = true", "window must be a whole number or a text"),
        (WHOLE + "window = 'later'", "window 'later' is not a window"),
        (WHOLE + "window = 'last 0'", "window 'last 0' is not a window"),
        (WHOLE + "window = 1\naggregate = 'std'", "std needs two values"),
        (WHOLE + "for_steps = 5\nwindow = 'late'", "no window here moves"),
        (WHOLE + "for_steps = 0", "for_steps is 0; it must be a whole number of at least 1"),
        (WHOLE + "min_steps = 2.5", "min_steps must be a whole number"),
        (WHOLE + "link = 'rewards'", "link is 'rewards'; it can be data_validity, environment, evaluation, reward, "),
        (WHOLE + "families = ['on']", "families[0] is 'on'; it can be online"),
        (WHOLE + "algorithms = ['gpro']", "algorithms: 'gpro' is unknown; is 'gspo' or 'grpo' meant?"),
        (WHOLE + "claim = 'x'\nmessage = 'y'", "give only one"),
        (WHOLE + "claim = '{value.__class__}'", "a single '{'"),
        (WHOLE + "claim = '{os}'", "no field {os}"),
        (WHOLE + "claim = '{value:99999999f}'", "not a number format"),
        (WHOLE + "next = [1]", "next[0] must be a text"),
        (WHOLE + "enabled = 'yes'", "enabled must be true or false"),
        (WHOLE + "all = []", "give one of"),
        (WHOLE.replace("> 1", "drop 5%") + "window = 'early'", "cannot be compared with the early level"),
        (WHOLE.replace("> 1", "spike 3x") + "window = 'late'", "a spike stands out"),
        (WHOLE.replace("> 1", "spike 3x") + "aggregate = 'mean'", "a spike has none"),
        (WHOLE.replace("kl/ref", "my/metric"), "my/metric does not imply it"),
        (WHOLE.replace("kl/ref", "k l"), "contains a space"),
        (WHOLE.replace("kl/ref", "tokens:policy/ref:post_tools:p99"), "'post_tools' is unknown; is 'post_tool'"),
        (WHOLE.replace("kl/ref", "tokens:policy/ref:post_tool"), "named tokens:PAIR:SLICE:STATISTIC"),
        ("[[rule]]\nid='a'\nseverity='low'\nlink='reward'\nall=[{metric='a', is='> 1'}]\n", "at least two tables"),
        ("[[rule]]\nid='a'\nseverity='low'\nlink='reward'\nany=[{metric='a', is='> 1'}, {metric='b'}]\n",
         "any[1] has no `is`"),
        ("[[rule]]\nid='a'\nseverity='low'\nlink='reward'\nany=[{metric='a', is='> 1'}, {metric='b', id='x'}]\n",
         "any[1] has the unknown key 'id'"),
    ],
)  # fmt: skip
def test_a_wrong_rule_is_named_with_its_key(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(text)
    checked = check_rules([tmp_path])
    assert len(checked.problems) == 1, checked.problems
    assert checked.problems[0].startswith(f"{tmp_path / 'mine.toml'}: ")
    assert says in checked.problems[0]
    with pytest.raises(ptt.SettingsError, match=re.escape(says)):
        load_rules([tmp_path])


def test_nesting_ends_after_one_level() -> None:
    leaf = "{metric='a', is='> 1'}"
    deep = f"{{all=[{leaf}, {{any=[{leaf}, {{all=[{leaf}, {leaf}]}}]}}]}}"
    text = f"[[rule]]\nid='a'\nseverity='low'\nlink='reward'\nany=[{leaf}, {deep}]\n"
    assert "nested once" in toml_rules(text, file="f")[1][0]


@given(st.text(max_size=40))
@repeatable
def test_a_message_is_filled_or_refused_and_never_looks_anything_up(text: str) -> None:
    try:
        terms.check_template(text)
    except RuleError:
        return
    filled = terms.fill_template(text, {"value": 0.25, "limit": None, "early": 1.0, "onset": 7})
    assert "__" not in filled or "__" in text


def test_messages_are_filled() -> None:
    values = {"value": 0.2512, "limit": None, "onset": 1234567}
    assert terms.fill_template("{value:.1%} {limit} {onset} {{x}}", values) == "25.1% unknown 1234567 {x}"
    assert (
        terms.fill_template("{onset:.3} {onset:.1e} {onset:,} {value:,}", values) == "1.23e+06 1.2e+06 1,234,567 0.2512"
    )


YAML_VALUES = [
    ("a: b", {"a": "b"}),
    ("---\n# c\na: 3\nb: -2.5\n\nc: true\nd: ~\ne:\n", {"a": 3, "b": -2.5, "c": True, "d": None, "e": None}),
    ("a: 1e-6\nb: 'it''s # x' # c\nc: \"a\\tb\\u00e9 \\\\\"", {"a": 1e-6, "b": "it's # x", "c": "a\tb\u00e9 \\"}),
    ("a: [ppo, 'x, y', 3]\nb: []\nc:\n- p\n- q # r\nd:\n  - 1", {"a": ["ppo", "x, y", 3], "b": [], "c": ["p", "q"],
                                                                "d": [1]}),
    ("a: |\n  one: 1\n   two\n\n  # three\nb: >-\n  x\n  y\n\n  z\n",
     {"a": "one: 1\n two\n\n# three\n", "b": "x y\nz"}),
    ("\ufeffa: b#c\r\nd: kl/ref\r\n", {"a": "b#c", "d": "kl/ref"}),
    ('a: "> 0.3"\nb: < 0.3\nc: yes', {"a": "> 0.3", "b": "< 0.3", "c": "yes"}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "meant"), YAML_VALUES)
def test_flat_yaml_is_read(text: str, meant: dict[str, Any]) -> None:
    assert flat_yaml(text) == meant


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: b\n  c: d", "line 2"),
        ("a: &x b", "line 1: '&x b' is not flat YAML"),
        ("a: *x", "is not flat YAML"),
        ("a: !!python/object/apply:os.system [x]", "is not flat YAML"),
        ("a: {b: c}", "is not flat YAML"),
        ("- a: b", "is not `key: value`"),
        ("a:\n  - b: c", "lists of keys"),
        ("a:\n  b: c", "line 2"),
        ("x: 1\na: b\na: c", "line 3: 'a' occurs twice"),
        ("a: 'b", "must end on the same line"),
        ('a: "b" c', "follows the quoted text"),
        ("a: [b, c", "must end with ] on the same line"),
        ("a: b: c", "put it in quotes"),
        ("a: > 0.3", "is not flat YAML"),
        ('a: "\\q"', "not a supported escape"),
        ("a: b\n---\na: c", "is not `key: value`"),
    ],
)
def test_what_is_not_flat_is_refused_with_its_line(text: str, says: str) -> None:
    with pytest.raises(RuleError, match=re.escape(says)):
        flat_yaml(text)


TRIPS = {"< 0.5": 0.2, "< 0.1": 0.01, "< 0.01": 0.001, "range(0.68, 0.71)": 0.693}


@pytest.mark.parametrize("row", THEIRS, ids=lambda row: str(row[0]))
def test_each_of_microsofts_rules_is_read_and_fires_on_what_it_describes(
    row: tuple[str, str, str, str, int, int, str],
) -> None:
    name, trainers, metric, condition, _, _, severity = row
    read = heuristic_of(their_file(row), file="x.yaml")
    algorithm = "grpo" if "grpo" in trainers else trainers.split(", ")[0]
    values = np.full(100, TRIPS.get(condition, 0.9))
    calm = np.full(100, 0.05 if condition.startswith(">") else 5.0)
    if condition.startswith("drop"):
        values = np.linspace(1.0, 0.1, 100)
    if condition.startswith("spike"):
        values, calm = np.append(np.full(99, 0.1), 0.4), np.full(100, 0.1)
    run = replace(DPO if algorithm == "dpo" else GRPO, name=algorithm)
    canonical = CANONICAL.get(metric, metric)
    finding = found(judged(read, {canonical: values}, run))
    assert (finding.id, finding.severity.value) == (f"custom:{name}", severity)
    assert finding.claim.startswith(f"{metric} is ")
    assert isinstance(judged(read, {canonical: calm}, run), Healthy)
    assert isinstance(judged(read, {}, run), NotJudged)
    assert isinstance(judged(read, {canonical: values[:25]}, run), NotJudged)  # fewer than min_steps


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("name:", "nmae:"), "has the unknown key 'nmae'; is name meant?"),
        (("message:", "# message:"), "has no `message`"),
        (("kl\n", "k l\n"), "contains a space"),
        (("high", "severe"), "severity is 'severe'; it can be high, medium, low"),
        (("grpo]", "gpro]"), "trainers: 'gpro' is unknown; is 'grpo' meant?"),
        (("20", "0"), "window is 0; it must be a whole number of at least 1"),
        (("30", "soon"), "min_steps must be a whole number"),
        (("enabled: true", "enabled: yes"), "enabled must be true or false"),
        (("> 0.3", "exceeds 0.3"), "'exceeds 0.3' is not a comparison"),
        ((":.3f", ".real"), "a single '{'"),
    ],
)
def test_a_wrong_yaml_rule_is_an_error_with_its_file(change: tuple[str, str], says: str, tmp_path: Path) -> None:
    (tmp_path / "kl.yaml").write_text(their_file(THEIRS[1]).replace(*change))
    (problem,) = check_rules([tmp_path]).problems
    assert problem.startswith(f"{tmp_path / 'kl.yaml'}: ")
    assert says in problem


def test_every_trainer_of_the_list_is_asked_and_no_other() -> None:
    read = heuristic_of(their_file(THEIRS[11]), file="x.yaml")  # declared for ppo first
    high = {"clip/frac": np.full(60, 0.9)}
    assert isinstance(judged(read, high, GRPO), Broken)
    assert isinstance(judged(read, high, replace(GRPO, name="ppo")), Broken)
    assert isinstance(judged(read, high, replace(GRPO, name=None)), Broken)  # online, whatever its name
    other = judged(read, high, DPO)
    assert isinstance(other, NotJudged)
    assert not other.applies
    unknown = judged(read, high)
    assert isinstance(unknown, NotJudged)
    assert unknown.applies
    assert "no file says" in unknown.reason


def test_a_rule_for_all_on_the_loss_of_one_trainer_is_for_that_trainer() -> None:
    read = heuristic_of(their_file(THEIRS[6]).replace("[dpo]", "[all]"), file="x.yaml")
    assert read.algorithms == ("dpo",)


def test_two_alerts_on_one_metric_are_two_and_odd_names_and_numbers_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.alerts").write_text(
        "# ours\n\ngrpo: kl < 0.1 -> low: low\ngrpo: kl < 0.2 -> low: low\n"
        "rloo, dpo: rewards/chosen >= -1.5e-3 for 5 steps -> HIGH: at {value:.2e} -> look: now\n"
        "all: slice:math drop(20%) -> medium: fell\nall: x range(-1, 1) -> low: a\nall: x range(1, 1) -> low: a\n"
    )
    rules = load_rules([tmp_path])
    assert len({one.id for one in rules}) == len(rules) == 6
    assert rules[2].condition == Statement(metric="rewards/chosen", comparison=Bound(">=", -1.5e-3), window=Last(5))
    assert (rules[2].severity, rules[2].algorithms, rules[2].min_steps) == (Severity.HIGH, ("rloo", "dpo"), 15)
    assert rules[2].claim == "at {value:.2e} -> look: now"
    metrics = {"slice:math": np.linspace(1.0, 0.5, 60)}
    assert found(judged(rules[3], metrics)).claim == "fell"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("kl > 3 -> high: x", "is not an alert"),
        ("grpo: kl > 3 -> severe: x", "severity 'severe'"),
        ("gpro: kl > 3 -> high: x", "or 'grpo' meant?"),
        ("grpo: kl above 3 -> high: x", "not a comparison"),
        ("grpo: kl > 3 for 0 steps -> high: x", "for 0 steps"),
        ("grpo: kl > 3 -> high: {x}", "no field"),
        ("grpo: kl > 3 -> high:", "is not an alert"),
    ],
)
def test_a_wrong_alert_is_an_error_with_its_line(line: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "a.alerts").write_text(f"# one\n{line}\n")
    (problem,) = check_rules([tmp_path]).problems
    assert problem.startswith(f"{tmp_path / 'a.alerts'}: line 2: ")
    assert says in problem


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.alerts", "a: m" + " " * 1600 + "x"),
        ("a.alerts", "a: m" + " " * 900 + "x"),
        ("a.alerts", f"all: kl > 1 for {'9' * 5000} steps -> low: x"),
        ("a.alerts", f"all: kl > 1 for {'9' * 900} steps -> low: x"),
        ("a.yaml", f"name: a\nwindow: {'9' * 5000}\n"),
        ("a.yaml", f"name: a\nwindow: [{'9' * 5000}]\n"),
        ("a.toml", f"[[rule]]\nid = 'a'\nwindow = {'9' * 5000}\n"),
        ("a.toml", f"{WHOLE}\nwindow = 0x{'f' * 5000}\n"),
        ("a.toml", f"{WHOLE}\nwindow.{'a.' * 2000}a = 1\n"),
        ("a.toml", f"{WHOLE.replace('> 1', '> ' + '1' * 100_000 + 'x')}"),
        ("a.toml", "a = " + "[" * 20000),
    ],
)
def test_endless_numbers_spaces_and_brackets_are_problems_told_at_once(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    begun = time.perf_counter()
    (problem, *_) = check_rules([tmp_path]).problems
    assert time.perf_counter() - begun < 2
    assert problem.startswith(f"{tmp_path / name}: ")


def test_files_are_found_in_folders_and_what_is_twice_or_none_is_said(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "b.toml").write_text(WHOLE.replace("> 1", "> 2"))
    (tmp_path / "c.toml").write_text(WHOLE + WHOLE.replace("> 1", "> 3"))
    (tmp_path / "notes.txt").write_text("not a rule")
    (tmp_path / "a.alerts").write_text("all: x > 1 -> low: a\nall: x > 1 -> low: a\nall: x > 1 -> low: b\n")
    (tmp_path / "bad.yml").write_bytes(b"\xff\xfe")
    checked = check_rules([tmp_path, tmp_path / "c.toml", tmp_path / "nowhere", tmp_path / "notes.txt"])
    assert len(checked.files) == 5
    said = "\n".join(checked.problems)
    assert "nowhere: there is no such file" in said
    assert "notes.txt: is not a rule file" in said
    assert "bad.yml: cannot be read" in said
    assert f"deep/b.toml: rule 'a' is defined in {tmp_path / 'c.toml'} too" in said
    assert "c.toml: rule 'a' is defined twice" in said
    assert [one.id for one in checked.rules] == ["alert-all-x-above-1", "alert-all-x-above-1-2", "a"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(ptt.SettingsError, match="contains no rule file"):
        load_rules([tmp_path / "empty"])


def test_the_same_rule_in_two_files_is_one(tmp_path: Path) -> None:
    text = their_file(THEIRS[7])
    (tmp_path / "a.yaml").write_text(text)
    (tmp_path / "b.yml").write_text(text.replace("Looks at", "Looks hard at"))
    assert len(load_rules([tmp_path])) == 1


def test_a_rule_that_is_off_is_checked_and_not_asked(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(WHOLE + "enabled = false\n")
    assert load_rules([tmp_path]) == ()
    assert len(check_rules([tmp_path]).rules) == 1
