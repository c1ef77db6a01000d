"""What every rule must do, whatever it looks for."""

from __future__ import annotations

import importlib
import math
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from builders import aggregates, evidence_of, run_of

from ptt.diagnostics import rules
from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.algorithm import Algorithm, Family
from ptt.diagnostics.model import Answer, NotJudged
from ptt.diagnostics.rules import LIMITS, RULES, tool_tail_growth
from ptt.diagnostics.rules.interface import Rule

SHARED = {
    "within_limits",
    "__init__",
    "comes_and_goes",
    "faulty_samples",
    "interface",
    "reward_outcome",
    "single_series",
    "tail_conditions",
    "tail_holder",
    "tail_reason",
}  # no rules, but what rules are made with
HOME = Path(str(rules.__file__)).parent
FILES = sorted(path.stem for path in HOME.rglob("*.py"))
MODULES = {
    path.stem.replace("_", "-"): importlib.import_module(
        ".".join([rules.__name__, *path.relative_to(HOME).with_suffix("").parts])
    )
    for path in sorted(HOME.rglob("*.py"))
    if path.stem not in SHARED
}
NOTHING = Evidence(run=run_of())


def test_every_file_of_the_folder_is_a_rule_in_the_table_of_contents() -> None:
    assert set(FILES) >= SHARED
    assert sorted(MODULES) == sorted([*(rule.id for rule in RULES), tool_tail_growth.ID])
    assert len({rule.id for rule in RULES}) == len(RULES)


def test_a_rule_stands_in_the_file_of_its_name() -> None:
    assert [rule.id for rule in RULES if MODULES[rule.id].RULE is not rule] == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_without_evidence_a_rule_says_so_and_what_to_record(rule: Rule) -> None:
    verdict = rule.run(NOTHING)
    assert isinstance(verdict, NotJudged)
    assert (verdict.id, verdict.link) == (rule.id, rule.link)
    assert verdict.reason
    assert verdict.enable
    assert verdict.missing


def test_without_evidence_the_signature_cannot_be_judged_and_says_what_to_record() -> None:
    judgement = tool_tail_growth.judge(NOTHING, aggregates("cannot_say"))
    assert judgement.signature.status is Answer.CANNOT_SAY
    assert isinstance(judgement.verdict, NotJudged)
    assert judgement.verdict.id == tool_tail_growth.ID
    assert judgement.signature.reason
    assert judgement.verdict.enable


@pytest.mark.parametrize("module", MODULES.values(), ids=MODULES)
def test_a_rule_documents_what_why_and_what_to_do(module: ModuleType) -> None:
    page = str(module.__doc__)
    assert page.startswith("This run shows ")
    assert page.splitlines()[0].endswith(".")
    places = [page.index(f"\n{heading}: ") for heading in ("What", "Why it matters", "What to do", "Source")]
    assert places == sorted(places)


@pytest.mark.parametrize("module", MODULES.values(), ids=MODULES)
def test_every_limit_is_a_finite_number_with_a_name_in_the_module(module: ModuleType) -> None:
    limits = module.LIMITS if module is tool_tail_growth else module.RULE.limits
    places = (module, sys.modules[module.__package__ or ""])  # its own, and what the rules of its folder share
    known = [each for place in places for each in vars(place).items()]
    named = {value for name, value in known if name.isupper() and isinstance(value, int | float)}
    assert limits
    assert set(limits.values()) <= named
    assert all(math.isfinite(limit) for limit in limits.values())


def test_every_rule_has_its_limits_in_the_settings() -> None:
    assert set(LIMITS) == set(MODULES)
    assert {rule.id: rule.limits for rule in RULES} | {tool_tail_growth.ID: tool_tail_growth.LIMITS} == LIMITS


NOT_OF_GIVEN_DATA = re.compile(r"GRPO|rollout|\btools?\b|recorder|\bKL\b|advantage|entropy|engine", re.IGNORECASE)


@pytest.mark.parametrize("family", [Family.SUPERVISED, Family.PREFERENCE, Family.REWARD_MODEL])
def test_training_on_given_data_is_told_to_record_nothing_of_rl(family: Family) -> None:
    few = {name: np.full(5, 0.5) for name in ("loss/total", "grad_norm", "dpo/accuracy", "dpo/margin")}
    algorithm = Algorithm(family=family, critic=False, groups=False)
    for metrics in ({}, few):
        evidence = replace(evidence_of(metrics=metrics), algorithm=algorithm)
        for rule in RULES:
            verdict = rule.run(evidence)
            if isinstance(verdict, NotJudged) and verdict.applies:
                assert not NOT_OF_GIVEN_DATA.search(f"{verdict.reason} {verdict.enable}"), rule.id
