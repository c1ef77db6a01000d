"""Custom rules through the door, and every example of their page."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from builders import Array, Story, evidence_of, growing, sequences_of, series_of, write_recorder_run
from custom_rules import DPO, GRPO, STEP, THEIRS, WHOLE, judged, their_file
from html_structure import page_with

import ptt
from ptt.diagnostics.custom.files import alert_of, toml_rules
from ptt.diagnostics.custom.judge import Lookup, judge
from ptt.diagnostics.custom.microsoft_yaml import heuristic_of
from ptt.diagnostics.custom.terms import Comparison, CustomRule, comparison_of
from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.model import Broken, Healthy, Link, NotJudged, RuleVerdict

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "custom-rules.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def page_rules() -> list[CustomRule]:
    rules = []
    for text in blocks("toml"):
        read, problems = toml_rules(text, file="page.toml")
        assert problems == []
        rules += read
    rules += [heuristic_of(text, file="page.yaml") for text in blocks("yaml")]
    lines = [line for text in blocks("alerts") for line in text.splitlines() if not line.startswith("#")]
    return rules + [alert_of(line, file="page.alerts") for line in lines]


def test_every_example_of_the_page_is_read() -> None:
    assert [len(blocks(language)) for language in ("toml", "yaml", "alerts")] == [2, 1, 1]
    assert len(page_rules()) == 9


@pytest.mark.parametrize("form", re.findall(r"`([^`]+)`", PAGE.split("**Conditions**")[1].split("**Windows**")[0]))
def test_every_form_of_the_page_is_a_comparison(form: str) -> None:
    if form not in {"is"}:
        assert isinstance(comparison_of(form), Comparison)


def test_the_page_names_every_key_aggregate_and_statistic() -> None:
    from ptt.diagnostics.custom.files import RuleTable
    from ptt.diagnostics.custom.terms import PLAIN_AGGREGATES, STATISTICS

    for word in (*RuleTable.__struct_encode_fields__, *PLAIN_AGGREGATES, *STATISTICS):
        assert f"`{word}`" in PAGE, word


def healthy_series(seed: int) -> dict[str, Array]:
    """Give metrics of a healthy run: AR(1) up to 0.8, drift, log noise, 40 to 600 steps."""
    generator = np.random.default_rng(seed)
    count, likeness = int(generator.integers(40, 600)), float(generator.uniform(0, 0.8))
    done = np.linspace(0, 1, count)

    def noise() -> Array:
        held = np.zeros(count)
        for at in range(1, count):
            held[at] = likeness * held[at - 1] + generator.normal()
        return held * math.sqrt(1 - likeness**2)

    return {
        "kl/ref": (0.005 + 0.05 * done) * np.exp(0.2 * noise()),
        "reward/mean": 0.3 + 0.4 * done + 0.05 * noise(),
        "eval/reward": 0.3 + 0.35 * done + 0.02 * noise(),
        "loss/total": 0.02 * noise(),
        "slice:math": 0.5 + 0.2 * done + 0.03 * noise(),
        "dpo/margin": 0.5 + done + 0.1 * noise(),
        "dpo/reward_chosen": -0.5 * done + 0.1 * noise(),
    }


@pytest.mark.slow
def test_the_rules_of_the_page_are_silent_on_healthy_runs() -> None:
    rules = page_rules()
    for seed in range(100):
        metrics = healthy_series(seed)
        for algorithm in (GRPO, DPO):
            for one in rules:
                verdict = judged(one, metrics, algorithm)
                assert not isinstance(verdict, Broken), (seed, one.id, verdict)


def files(folder: Path, text: str, name: str = "mine.toml") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return folder


def run_dir(folder: Path) -> Path:
    generator = np.random.default_rng(0)
    kl = np.concatenate([np.full(60, 0.01), np.full(40, 0.2)]) * np.exp(0.1 * generator.normal(size=100))
    metrics = {"kl": kl, "reward": 0.5 + 0.01 * generator.normal(size=100), "my/odd:name": np.linspace(1, 0, 100),
               "entropy": np.full(100, 1.0), "grad_norm": np.full(100, 1.0), "frac_reward_zero_std": np.zeros(100),
               "eval_reward": np.full(100, 0.25)}  # fmt: skip
    folder.mkdir()
    rows = [
        {"step": step + 1, **{name: float(values[step]) for name, values in metrics.items()}} for step in range(100)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


MINE = """
alerts = ["grpo: kl > 0.1 -> medium: KL at {value:.2f}", "grpo: kl > 0.15 for 10 steps -> low: KL again"]
[[rule]]
id = "odd"
severity = "low"
link = "reward"
metric = "my/odd:name"
is = "< 0.2"
window = 5
[[rule]]
id = "evaluation"
severity = "info"
metric = "eval/reward"
is = "< 0.5"
window = "late"
[[rule]]
id = "lost"
severity = "high"
link = "reward"
metric = "my/old:name"
is = "> 1"
"""


def test_custom_findings_stand_beside_the_others_and_out_of_the_signature(tmp_path: Path) -> None:
    run, mine = run_dir(tmp_path / "run"), files(tmp_path / "rules", MINE)
    plain, own = ptt.diagnose(run), ptt.diagnose(run, rules=[mine])
    assert own.signature == plain.signature
    assert own.signature.aggregates == plain.signature.aggregates
    customs = {finding.id: finding for finding in own.findings if finding.id.startswith("custom:")}
    assert sorted(customs) == [
        "custom:alert-grpo-kl-above-0.1", "custom:alert-grpo-kl-above-0.15-10", "custom:evaluation", "custom:odd",
    ]  # fmt: skip
    assert customs["custom:odd"].evidence["metric"] == "my/odd:name"
    assert customs["custom:alert-grpo-kl-above-0.1"].evidence["metric"] == "kl/ref"
    assert [one for one in own.findings if one.id not in customs] == list(plain.findings)
    assert own.verdict.headline.startswith("KL at 0.")
    lost = next(one for one in own.not_judged if one.id == "custom:lost")
    assert "closest here: my/odd:name" in lost.reason
    assert own.crashes == ()
    assert "custom:odd" in page_with(own)
    written = json.loads(own.to_json())
    assert "custom:odd" in {one["id"] for one in written["findings"]}
    assert str(tmp_path) not in own.to_json()
    assert ptt.diagnose(run, rules=str(mine)).findings == own.findings  # one place need not be a list


def test_a_rule_that_found_nothing_makes_no_blind_run_healthy(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "metrics.jsonl").write_text("".join(json.dumps({"step": step, "mine": 0.5}) + "\n" for step in range(1, 60)))
    calm = files(tmp_path / "rules", MINE.replace("my/odd:name", "mine").replace("< 0.2", "< 0.1"))
    own = ptt.diagnose(run, rules=[calm])
    assert "custom:odd" in {one.id for one in own.healthy}
    assert own.verdict.status is ptt.diagnose(run).verdict.status
    assert own.verdict.status == "cannot_say"


def test_statistics_of_tokens_are_judged_by_slice(tmp_path: Path) -> None:
    tail = """
[[rule]]
id = "{0}"
severity = "high"
metric = "tokens:policy/ref:{0}:p99"
is = "> 0.7"
window = "last 5"
"""
    mine = files(
        tmp_path / "rules", tail.format("post_observation") + tail.format("text_only") + tail.format("post_tool")
    )
    broken = ptt.diagnose(write_recorder_run(tmp_path / "run", growing(steps=40)), rules=[mine])
    finding = next(one for one in broken.findings if one.id == "custom:post_observation")
    assert (finding.slice, finding.unit, finding.link) == ("post_observation", "nats", Link.POLICY_UPDATE)
    assert finding.onset_step is not None
    assert 10 < finding.onset_step <= 40
    assert "custom:text_only" in {one.id for one in broken.healthy}
    absent = next(one for one in broken.not_judged if one.id == "custom:post_tool")  # nothing proves that tools ran
    assert "tokens:policy/ref:post_observation:p99" in absent.reason
    calm = ptt.diagnose(write_recorder_run(tmp_path / "calm", sequences_of(Story(steps=40))), rules=[mine])
    assert "custom:post_observation" in {one.id for one in calm.healthy}


def test_settings_name_rules_as_seen_from_their_file(tmp_path: Path) -> None:
    run = run_dir(tmp_path / "run")
    files(tmp_path / "rules", MINE)
    (tmp_path / "ptt.toml").write_text('[diagnose]\nrules = ["rules"]\n')
    settings = ptt.read_settings(tmp_path / "ptt.toml")
    assert settings.rules == (tmp_path / "rules",)
    assert "custom:odd" in {one.id for one in ptt.diagnose(run, settings=settings).findings}
    (tmp_path / "ptt.toml").write_text('[diagnose]\nrules = "rules"\n')
    with pytest.raises(ptt.SettingsError, match="must be a list"):
        ptt.read_settings(tmp_path / "ptt.toml")


def test_a_wrong_rule_ends_it_before_the_run_is_read(tmp_path: Path) -> None:
    run = run_dir(tmp_path / "run")
    mine = files(tmp_path / "rules", WHOLE.replace("> 1", "~ 1") + WHOLE.replace('"a"', '"b"').replace("> 1", "? 1"))
    with pytest.raises(ptt.SettingsError, match=r"mine\.toml: rule 'a': is: .*and 1 more"):
        ptt.diagnose(run, out=tmp_path / "out", rules=[mine])
    assert not (tmp_path / "out").exists()


def test_a_rule_that_crashes_is_shown_and_costs_the_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(*_: object) -> RuleVerdict:
        raise ZeroDivisionError("made")

    monkeypatch.setattr("ptt.diagnostics.verdict.run_rules.judge_custom", fault)
    own = ptt.diagnose(run_dir(tmp_path / "run"), rules=[files(tmp_path / "rules", WHOLE)])
    assert [crash.id for crash in own.crashes] == ["custom:a"]


def test_microsofts_misleading_names_are_not_judged() -> None:
    evidence = evidence_of(metrics={})
    theirs = replace(
        evidence,
        algorithm=DPO,
        other={"reward_std": series_of("reward_std", STEP)},
    )
    read = heuristic_of(their_file(THEIRS[4]), file="x.yaml")
    verdict = judge(read, theirs, Lookup(theirs, {}).series)
    assert isinstance(verdict, NotJudged)
    assert "margin" in verdict.reason
    grouped = replace(theirs, algorithm=GRPO)
    assert isinstance(judge(read, grouped, Lookup(grouped, {}).series), Healthy)


def test_evidence_without_anything_is_not_judged() -> None:
    nothing = Evidence(run=evidence_of(metrics={}).run, algorithm=GRPO)
    for one in page_rules():
        assert isinstance(judge(one, nothing, Lookup(nothing, {}).series), NotJudged)


def test_metrics_that_are_kept_as_columns_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, mine = run_dir(tmp_path / "run"), files(tmp_path / "rules", MINE)
    plain = ptt.diagnose(run, rules=[mine])
    monkeypatch.setattr("ptt.diagnostics.parsers.io.metric_blocks.WIDE_BYTES", 0)
    wide = ptt.diagnose(run, rules=[mine], out=tmp_path / "out")
    assert (tmp_path / "out" / "store" / "wide").exists()
    for kind in ("findings", "healthy", "not_judged"):
        own = [one for one in getattr(wide, kind) if one.id.startswith("custom:")]
        assert own == [one for one in getattr(plain, kind) if one.id.startswith("custom:")]
