"""A policy is read strictly: what is misspelt, of the wrong kind, or could never matter is refused, and says where."""

from __future__ import annotations

import ast
import inspect
import pickle
import sys
import tomllib
from datetime import date
from pathlib import Path

import numpy as np
import pytest
from gate_samples import policy

from ptt import api
from ptt.diagnostics.errors import SettingsError
from ptt.diagnostics.gate.policy import (
    MAX_SEVERITY,
    MAX_SLOPE,
    Allowance,
    Ess,
    Extent,
    Known,
    Logged,
    Policy,
    Tail,
    Window,
)
from ptt.diagnostics.gate.read_policy import KEYS, read_policy
from ptt.diagnostics.metrics.catalogue import metrics
from ptt.diagnostics.model import Severity
from ptt.diagnostics.rules import LIMITS, RULES
from ptt.diagnostics.statistics.autocorrelated_mean import STATISTICS

ALLOW = '[[gate.allow]]\nfinding = "reward-fell"\nowner = "ann"\nreason = "new task"\nexpires = 2031-12-31\n'
BOUND = '[[gate.bound]]\nname = "kl"\nmetric = "kl/ref"\n'


def bound(rest: str, metric: str = "kl/ref") -> str:
    return f'[[gate.bound]]\nname = "b"\nmetric = "{metric}"\n{rest}\n'


REFUSED = [
    # keys and kinds
    ("gate = 3", "[gate] must be a table"),
    ("[gate]\nseverty = 'high'", "[gate] has the unknown key 'severty'; is severity meant?"),
    ("[gate]\nseverity = 'hgih'", "[gate] severity is 'hgih'; it can be never, critical"),
    ("[gate]\nseverity = 3", "[gate] severity must be a text"),
    ("[gate]\ncannot_say = 'maybe'", "it can be fail, pass"),
    ("[gate]\nmin_steps = 'ten'", "[gate] min_steps must be a whole number"),
    ("[gate]\nmin_steps = true", "must be a whole number"),
    ("[gate]\nmin_steps = 12.5", "must be a whole number"),
    ("[gate]\nlast_step = 1" + 400 * "0", "[gate] last_step must be a whole number of at most"),
    ("[gate]\nrequire = 'tool-tail-growth'", "[gate] require must be a list"),
    ("[gate]\nallow = 3", "[gate] allow must be a list"),
    ("[gate]\nbound = {}", "[gate] bound must be a list"),
    ("[gate.baseline]\nlimit = 1.5", "[gate] baseline.file is missing"),
    ("[gate.baseline]\nfile = 'b.toml'\nlimits = 1.5", "is limit meant?"),
    ("[gate.baseline]\nfile = 'b.toml'\nlimit = 1.0", "baseline.limit is 1.0; it must be a number of more than 1"),
    ("[gate.baseline]\nfile = 'b.toml'\nlimit = inf", "baseline.limit is inf; it must be a number of at most 10"),
    ("[gate.baseline]\nfile = 'b.toml'\nlimit = 10.5", "baseline.limit is 10.5; it must be a number of at most 10"),
    ("[gate.baseline]\nfile = 'b.toml'\nmetrics = 3", "baseline.metrics must be a list or a table"),
    ("[gate.baseline]\nfile = 'b.toml'\n[gate.baseline.metrics]\n'kl/ref' = 'up'",
     "baseline.metrics.kl/ref is 'up'; it can be higher, lower, both"),
    # names
    ("[gate]\nrequire = ['tool-tail-grow']", "require 'tool-tail-grow' is not a rule; is tool-tail-growth"),
    ("[gate]\nrequire = ['tail-growth-everywhere']", "require that rule"),
    ("[gate]\nrequire = ['reward-fell', 'reward-fell']", "twice"),
    (ALLOW.replace("reward-fell", "reward-fel"), "finding 'reward-fel' is not a finding; is reward-fell"),
    (ALLOW.replace("reward-fell", "custom:other"), "'custom:other' is not a finding"),
    (ALLOW + 'slices = "x"', "allow[0] has the unknown key 'slices'; is slice meant?"),
    (bound("max = 1", metric="kl/reff"), "'kl/reff' is unknown; is kl/ref meant?"),
    (bound("max = 1", metric="kll"), "'kll' is unknown; is kl meant?"),
    (bound("max = 1", metric="losss"), "'losss' is unknown; is loss meant?"),
    (bound("max = 1", metric="train/kll"), "'train/kll' is unknown; is train/kl meant?"),
    (bound("max = 1", metric="grad_nrom"), "'grad_nrom' is unknown; is grad_norm meant?"),
    (bound("max = 1", metric="logged:"), "'logged:' names nothing"),
    (bound("max = 1", metric="tail.post_tol.p95"), "is not a slice; is post_tool meant?"),
    (bound("max = 1", metric="tail.post_tool.p50"), "one of p95, p99"),
    (bound("max = 1", metric="ess.post_tool.p95"), "write ess.post_tool"),
    (bound("maximum = 1"), "bound[0] has the unknown key 'maximum'"),
    ('[[gate.bound]]\nname = "b"\nmax = 1', "bound[0] has no `metric`"),
    ('[[gate.bound]]\nmetric = "kl/ref"\nmax = 1', "bound[0] has no `name`"),
    ('[[gate.bound]]\nname = "a b"\nmetric = "kl/ref"\nmax = 1', "not a valid name"),
    (BOUND + "max = 1\n" + BOUND + "max = 2", "bound names 'kl' twice"),
    # allowances without an owner, a reason, a day
    (ALLOW.replace('owner = "ann"\n', ""), "allow[0] has no `owner`"),
    (ALLOW.replace('"ann"', '" "'), "allow[0].owner must not be blank"),
    (ALLOW.replace('reason = "new task"\n', ""), "allow[0] has no `reason`"),
    (ALLOW.replace("expires = 2031-12-31", ""), "allow[0] has no `expires`"),
    (ALLOW.replace("2031-12-31", '"2031-12-31"'), "must be a date without quotes"),
    (ALLOW.replace("2031-12-31", "2031-12-31T10:00:00"), "must be a date without quotes or time"),
    (ALLOW + ALLOW, "allow names 'reward-fell' twice"),
    (ALLOW + 'slice = "post_tol"', "slice 'post_tol' is not a slice; is post_tool meant? (of one tool: tool:NAME)."),
    # what no run could fail
    (ALLOW.replace('"reward-fell"', '"*"'), "'*' would allow everything"),
    (ALLOW.replace("reward-fell", "tail-growth-immaterial"), "never more severe than info"),
    (ALLOW.replace("reward-fell", "reward-shape"), "never more severe than medium, and the gate fails from high on"),
    ('[gate]\nseverity = "never"\nmin_steps = 30\n' + ALLOW, "the allowance does nothing"),
    ('[gate]\nseverity = "never"', "no run could ever fail"),
    ("[gate]\nmin_steps = 0", "it must be a whole number of at least 1"),
    ("[gate]\nmin_model_tokens = -5", "it must be a whole number of at least 1"),
    ("[gate]\ncannot_say = 'pass'\nrequire = ['reward-fell']", "cannot matter while cannot_say is 'pass'"),
    (bound(""), "has neither max nor min"),
    (bound("max = inf"), "max must be a finite number"),
    (bound("max = nan"), "max must be a finite number"),
    (bound("max = 1" + 400 * "0"), "max must be a finite number"),
    (bound("min = 2\nmax = 1"), "above max"),
    (bound("max = 1.0", metric="clip/frac"), "never above 1: no run could ever fail"),
    (bound("max = 1", metric="completions/clipped_ratio"), "never above 1"),
    (bound("min = 0", metric="grad_norm"), "never below 0"),
    (bound("min = 0", metric="tail.post_tool.p95"), "min is 0, and tail.post_tool.p95 is never below 0"),
    (bound("max = 1", metric="ess.post_tool"), "never above 1"),
    (bound("max = 1\nstatistic = 'change'", metric="clip/frac"), "never above 1"),
    (bound("min = 0\nstatistic = 'ratio'", metric="entropy"), "never below 0"),
    (bound("max = 0.5\nmin = 0", metric="clip/frac"), "min is 0"),
    (bound("max = -1", metric="grad_norm"), "no run could ever pass"),
    (bound("min = 2", metric="clip/frac"), "no run could ever pass"),
    ("[gate]\nseverity = 'never'\nlast_step = 1", "that every run does not reach anyway, at least 20"),
    ("[gate]\nseverity = 'never'\nmin_sequences = 1\nmin_steps = 1", "no run could ever fail"),
    ("[gate]\nseverity = 'never'\nmin_model_tokens = 19", "no run could ever fail"),
    (bound("max = 1e300"), "never near 1e+06"),
    (bound("max = 1e6", metric="tail.post_tool.p95"), "never above 256"),
    (bound("max = 1e9\nstatistic = 'ratio'", metric="tail.post_tool.p95"), "never near 1e+06"),
    (bound("min = -1e9", metric="reward/mean"), "never near 1e+06"),
    (bound("max = 1e9", metric="grad_norm"), "never near 1e+06"),
    (bound("max = 1e18", metric="env/seen"), "never near 1e+15"),
    (bound("min = -5"), "is not limited by that: k3 estimates are never negative"),
    (bound("min = 0\nstatistic = 'p05'"), "leave it out"),
    (bound("min = 0", metric="entropy"), "never below 0"),
    (bound("min = 0", metric="dpo/accuracy"), "never below 0"),
    (bound("min = -1", metric="env/accuracy"), "never below 0"),
    (bound("max = 0.2\nstatistic = 'slope'", metric="clip/frac"), "never above 0.15"),
    (bound("min = -1\nstatistic = 'change'", metric="clip/frac"), "never below -1"),
    ("[gate]\ncannot_say = 'pass'\n" + bound("max = 1", metric="logged:kl/reff"), "a typo in the name would"),
    # what a single step decides
    (bound("max = 1\nstatistic = 'max'"), "'max' lets a single step decide; use 'p95'"),
    (bound("max = 1\nstatistic = 'last'"), "use 'mean'"),
    (bound("max = 1\nstatistic = 'min'"), "use 'p05'"),
    (bound("max = 1\nstatistic = 'max'", metric="tail.post_tool.p95"), "use 'pooled'"),
    (bound("max = 1\nstatistic = 'mean'", metric="tail.post_tool.p95"), "covers all tokens of its window"),
    (bound("max = 1\nstatistic = 'meen'"), "is 'meen'; it can be mean, median"),
    (bound("max = 1\nwindow = 'last 1'"), "'last 1' lets a few steps decide; take 'last 10' or more"),
    (bound("max = 1\nwindow = 'last 9'"), "lets a few steps decide"),
    (bound("max = 1\nwindow = 'last 20'\nstatistic = 'p95'"), "depends on one of them; take 'last 40' or more"),
    (bound("max = 1\nwindow = 'final'"), "it can be early, mid, late, all"),
    (bound("max = 1\nwindow = 50"), "window must be a text"),
    (bound("max = 1\nwindow = 'last 9999999'"), "longer than any run"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "told"), REFUSED, ids=[f"{n}-{told[:30]}" for n, (_, told) in enumerate(REFUSED)])
def test_what_means_nothing_is_refused_with_file_and_key(text: str, told: str) -> None:
    with pytest.raises(SettingsError) as raised:
        policy(text)
    assert told in str(raised.value)
    assert str(raised.value).startswith("ptt.toml: ")
    assert len(str(raised.value)) < 700


@pytest.mark.parametrize(
    "text",
    [
        "[gate]\nseverity = 'never'\nmin_steps = 20",
        bound("max = 1e12", metric="tokens/seen"),
        bound("max = 5e8", metric="perf/total_num_tokens"),
        bound("min = -0.001\nmax = 0.001\nstatistic = 'slope'"),
        bound("min = -0.1\nstatistic = 'change'"),
        bound("min = -0.05", metric="kl/old"),
        bound("max = 0.01\nstatistic = 'slope'", metric="clip/frac"),
        bound("min = 0.4\nmax = 0.9", metric="env/accuracy"),
        bound("max = 255", metric="tail.post_tool.p95"),
        "[gate]\ncannot_say = 'pass'\n" + bound("max = 1", metric="logged:actor/ppo_kl"),
    ],
)
def test_what_a_run_could_fail_is_taken(text: str) -> None:
    policy(text)


def test_no_line_through_shares_is_steeper_than_what_is_taken_for_impossible() -> None:
    steps = np.arange(10.0)
    steepest = max(np.polyfit(steps, np.array([n >> place & 1 for place in range(10)]), 1)[0] for n in range(1024))
    assert steepest == pytest.approx(MAX_SLOPE)


def test_without_a_table_the_default_policy_counts() -> None:
    assert policy("") == Policy() == Policy(severity=Severity.HIGH, extent=Extent(min_steps=20))


def test_a_whole_policy_is_read() -> None:
    text = """
[gate]
severity = "medium"
cannot_say = "fail"
require = ["tool-tail-growth", "custom:mine"]
min_steps = 300
last_step = 500
min_sequences = 100
min_model_tokens = 50_000

[[gate.allow]]
finding = "kl-over-target"
slice = "post_tool"
owner = "ann"
reason = "beta is lowered on purpose"
expires = 2031-12-31

[[gate.bound]]
name = "kl"
metric = "kl/ref"
max = 0.3

[[gate.bound]]
name = "tail"
metric = "tail.post_tool.p95"
window = "last 50"
max = 2
unit = "nats"

[[gate.bound]]
name = "sure"
metric = "logged:kl/reff"
statistic = "p95"
window = "all"
min = -1
max = 1

[[gate.bound]]
name = "ess"
metric = "ess.text_only"
min = 0.2

[gate.baseline]
file = "baselines/main.toml"
limit = 1.5
metrics = ["kl/ref"]
"""
    found = policy(text)
    assert found.severity is Severity.MEDIUM
    assert found.require == ("tool-tail-growth", "custom:mine")
    assert found.extent == Extent(min_steps=300, last_step=500, min_sequences=100, min_model_tokens=50_000)
    assert found.allow == (
        Allowance(
            finding="kl-over-target",
            slice="post_tool",
            owner="ann",
            reason="beta is lowered on purpose",
            expires=date(2031, 12, 31),
        ),
    )
    assert [one.subject for one in found.bounds] == [
        Logged(name="kl/ref"),
        Tail(slice="post_tool", quantile="p95"),
        Logged(name="kl/reff", exact=True),
        Ess(slice="text_only"),
    ]
    assert [one.statistic for one in found.bounds] == ["mean", "pooled", "p95", "pooled"]
    assert [one.window for one in found.bounds] == [
        Window(name="late"), Window(name="last", count=50), Window(name="all"), Window(name="late"),
    ]  # fmt: skip
    assert found.baseline is not None
    assert found.baseline.file == Path("baselines/main.toml")
    assert found.baseline.metrics == {"kl/ref": None}
    assert pickle.loads(pickle.dumps(found)) == found  # workers get it
    flat = found.flat()
    assert flat["severity"] == "medium"
    assert flat["bound.tail.max"] == 2
    assert flat["bound.tail"] == "pooled of tail.post_tool.p95 over last 50"
    assert flat["allow.kl-over-target/post_tool"] == "ann, until 2031-12-31: beta is lowered on purpose"


def test_the_record_of_the_policy_names_the_unit_of_a_bound_that_has_one() -> None:
    with_unit = policy(bound("max = 1\nunit = 'nats'")).flat()
    without = policy(bound("max = 1")).flat()
    assert {key: with_unit[key] for key in with_unit.keys() - without.keys()} == {"bound.b.unit": "nats"}


@pytest.mark.parametrize("name", ["env/my_score", "llr", "kl2", "rl", "klx", "vf_los", "moe/aux_loss"])
def test_a_metric_that_nobody_knows_is_taken_as_it_is_logged(name: str) -> None:
    assert policy(bound("max = 1", metric=name)).bounds[0].subject == Logged(name=name)


def test_a_baseline_given_aside_takes_the_place_of_the_file() -> None:
    text = tomllib.loads("[gate.baseline]\nfile = 'old.toml'\nlimit = 2\n")
    place = Path("conf/ptt.toml")
    read = read_policy(text, place, known=Known())
    assert read.baseline is not None
    assert read.baseline.file == Path("conf/old.toml")
    given = read_policy(text, place, known=Known(), baseline=Path("new.toml"))
    assert given.baseline is not None
    assert (given.baseline.file, given.baseline.limit) == (Path("new.toml"), 2.0)
    alone = read_policy({"gate": {"severity": "never"}}, place, known=Known(), baseline=Path("new.toml"))
    assert alone.baseline is not None  # something is demanded


def test_a_baseline_that_is_not_there_is_told_before_any_run_is_opened(tmp_path: Path) -> None:
    settings = tmp_path / "ptt.toml"
    settings.write_text("[gate.baseline]\nfile = 'old.toml'\n")
    with pytest.raises(SettingsError, match=r"old\.toml"):
        api.gate_policy(settings)


def test_other_commands_take_a_settings_file_with_a_gate(tmp_path: Path) -> None:
    settings = tmp_path / "ptt.toml"
    settings.write_text("[gate]\nseverity = 'low'\n")
    assert api.read_settings(settings) == api.Settings()


def test_a_custom_rule_of_the_settings_can_be_required_and_allowed(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        '[[rule]]\nid = "slow"\nmetric = "time/step"\nis = "> 60"\nseverity = "high"\nlink = "systems"\n'
    )
    settings = tmp_path / "ptt.toml"
    text = '[diagnose]\nrules = ["mine.toml"]\n[gate]\nrequire = ["custom:slow"]\n'
    settings.write_text(text)
    assert api.gate_policy(settings).require == ("custom:slow",)
    settings.write_text(text.replace("custom:slow", "custom:fast"))
    with pytest.raises(SettingsError, match="'custom:fast' is not a rule"):
        api.gate_policy(settings)


def test_a_settings_file_that_is_no_page_of_text_is_refused(tmp_path: Path) -> None:
    settings = tmp_path / "ptt.toml"
    settings.write_text("#" * (5 << 20))
    with pytest.raises(SettingsError, match="larger than 4 MiB"):
        api.gate_policy(settings)
    settings.write_text("[gate]\nrequire = [" + "[" * 100_000)
    with pytest.raises(SettingsError, match="cannot be read as TOML"):
        api.gate_policy(settings)


def makes_findings(tree: ast.AST) -> bool:
    return any(isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Finding" for node in ast.walk(tree))


def test_the_table_of_harmless_findings_is_what_the_rules_say() -> None:
    """A rule stands there with the worst severity that its module names, and no rule is left out."""
    named = {}
    for rule in RULES:
        module = inspect.getmodule(rule.check)
        assert module is not None
        own = ast.parse(inspect.getsource(module))
        tree = own if makes_findings(own) else ast.parse(inspect.getsource(sys.modules[module.__package__ or ""]))
        found = {
            Severity[node.attr]
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Severity"
        }
        if found and makes_findings(tree):  # else its findings are made elsewhere
            named[rule.id] = min(found, key=lambda one: one.rank)
    for name, worst in named.items():
        if not worst.at_least(Severity.HIGH):
            assert MAX_SEVERITY.get(name) in (worst, None), name
    for name, worst in MAX_SEVERITY.items():
        if name != "tail-growth-immaterial":
            assert named[name] is worst, name
    assert MAX_SEVERITY.keys() <= Known().findings
    assert set(LIMITS) == Known().rules


def test_every_range_has_two_ends() -> None:
    ranges = [metric.range for metric in metrics().values() if metric.range is not None]
    assert len(ranges) > 40
    assert all(low < high for low, high in ranges)


def test_the_policy_of_the_page_is_one() -> None:
    page = (Path(__file__).parents[2] / "docs" / "gate.md").read_text(encoding="utf-8")
    text = page.split("```toml\n")[1].split("```")[0]
    read = policy(text)
    assert [one.name for one in read.bounds] == ["kl", "tails"]
    assert read.baseline is not None
    for key in (*KEYS, *STATISTICS, "finding", "slice", "owner", "reason", "expires", "metric", "unit"):
        assert f"`{key}`" in page or f"[gate.{key}]" in page, key
