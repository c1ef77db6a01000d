"""The kind of training: inferred from what is logged, said with its reason, overruled by `[run]` of ptt.toml."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from slow_cases import first_fast
from typer.testing import CliRunner
from unknown_names import HELD_OUT, TUNED

import ptt
from ptt import api
from ptt.cli.app import app
from ptt.diagnostics.errors import SettingsError
from ptt.diagnostics.model import Diagnosis, NotJudged

ROWS = 60
Course = Callable[[int], float]


def _wave(first: float, last: float, noise: float = 0.02) -> Course:
    return lambda step: first + (last - first) * step / (ROWS - 1) + noise * math.sin(1.7 * step)


def _log(folder: Path, courses: Mapping[str, Course | float], name: str = "log.jsonl") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    lines = (
        json.dumps(
            {"step": step} | {raw: course(step) if callable(course) else course for raw, course in courses.items()}
        )
        for step in range(ROWS)
    )
    (folder / name).write_text("\n".join(lines) + "\n")
    return folder


def _diagnose(run: Path, settings: str = "") -> Diagnosis:
    (run.parent / "ptt.toml").write_text(settings)
    return ptt.diagnose(run, settings=api.read_settings(run.parent / "ptt.toml"))


def _kind(run: Path) -> tuple[str | None, str]:
    told = ptt.diagnose(run).run
    assert ptt.sources(run).kind == told.kind
    return told.kind, told.kind_reason


def _of(verdicts: tuple[NotJudged, ...], rule: str) -> NotJudged:
    return next(verdict for verdict in verdicts if verdict.id == rule)


@pytest.mark.parametrize("name", first_fast(TUNED, 2))
@pytest.mark.parametrize("table", [TUNED, HELD_OUT], ids=["tuned", "held out"])
def test_names_nobody_listed_tell_the_kind(table: dict[str, tuple[str, dict]], name: str, tmp_path: Path) -> None:  # type: ignore[type-arg]
    kind, names = table[name]
    run = _log(tmp_path / "run", {raw: _wave(first, last, 0.0) for raw, (_, first, last) in names.items()})
    assert _kind(run)[0] == kind


CASES: dict[str, tuple[str, dict[str, Course | float], str | None, str]] = {
    "a loss above 0 and nothing else": ("run", {"loss": _wave(2.0, 1.2)}, "supervised", "a loss above 0 and no reward"),
    "a loss on both sides of 0": ("run", {"loss": _wave(0.01, -0.01)}, "online", "both sides of 0"),
    "a folder's word": ("my-dpo-run", {"some_figure": _wave(1, 2)}, "preference", "says dpo"),
    "two words that disagree": ("sft-then-dpo", {"some_figure": _wave(1, 2)}, None, ""),
    "a metric's word before a folder's": ("sft", {"ppo/figure": _wave(1, 2)}, "online", "a metric's name says ppo"),
    "a loss that starts at ln 2, in a folder of pairs": (
        "dpo", {"loss": _wave(0.693, 0.3, 0.0), "grad_norm": 1.0}, "preference", "near ln 2",
    ),
    "a teacher and no reward": (
        "run", {"teacher_kl": _wave(4.5, 0.1), "reward": 0.0, "entropy": _wave(2, 1)}, "distillation", "teacher",
    ),
    "a teacher of given texts": ("run", {"teacher_kl": _wave(4.5, 0.1), "loss": _wave(2, 1)}, "supervised", "teacher"),
    "a teacher beside a reward": ("run", {"teacher_kl": _wave(4.5, 0.1), "reward": _wave(0, 1)}, "online", "reward"),
    "an environment": (
        "run", {"ep_rew_mean": _wave(20, 90), "ep_len_mean": _wave(20, 90), "value_loss": _wave(9, 3)}, "classic_rl",
        "nothing of texts",
    ),
    "an environment of texts": (
        "run", {"ep_rew_mean": _wave(0, 1), "ep_len_mean": _wave(2, 9), "completion_tokens": _wave(90, 99)}, "online",
        "only sampling has",
    ),
    "pairs in a folder of reward models": (
        "reward_model", {"pair_acc": _wave(0.5, 0.8), "loss": _wave(0.7, 0.4)}, "reward_model", "reward_model",
    ),
    "what nothing tells": ("run", {"alpha": _wave(1, 2)}, None, ""),
}  # fmt: skip


@pytest.mark.parametrize("case", first_fast(CASES, 6))
def test_the_kind_is_inferred_and_its_reason_is_given(case: str, tmp_path: Path) -> None:
    folder, courses, kind, reason = CASES[case]
    found, why = _kind(_log(tmp_path / folder, courses))
    assert found == kind
    assert reason in why
    assert bool(why) == (kind is not None)


def test_an_environment_is_asked_for_no_reference_and_no_tools(tmp_path: Path) -> None:
    courses = {"ep_rew_mean": _wave(20, 90), "ep_len_mean": _wave(20, 90), "loss": _wave(9, 3), "entropy": _wave(1, 1)}
    diagnosis = _diagnose(_log(tmp_path / "run", courses))
    assert diagnosis.verdict.coverage is not None
    assert [question.question for question in diagnosis.verdict.coverage.core] == ["reward", "loss or gradient norm"]
    for rule in (
        "kl-over-target",
        "kl-zero",
        "truncated-share",
        "tool-failures",
        "engine-mismatch",
        "no-signal-groups",
    ):
        assert not _of(diagnosis.not_judged, rule).applies
    assert "tool" not in diagnosis.verdict.headline


def test_a_reward_that_a_teacher_stands_for_is_not_accused_of_being_0(tmp_path: Path) -> None:
    courses: dict[str, Callable[[int], float] | float] = {
        "teacher_kl": _wave(4.5, 0.1),
        "reward": 0.0,
        "entropy": _wave(2, 1),
        "resp_len": _wave(90, 99),
    }
    run = _log(tmp_path / "run", courses)
    diagnosis = _diagnose(run)
    assert not [finding for finding in diagnosis.findings if finding.link == "reward"]
    assert not _of(diagnosis.not_judged, "reward-stuck").applies


def test_run_says_what_files_do_not(tmp_path: Path) -> None:
    run = _log(tmp_path / "run", {"reward": _wave(0, 1), "loss": _wave(2, 1)})
    settings = '[run]\nalgorithm = "dpo"\nframework = "my loop"\ntotal_steps = 600\n'
    diagnosis = _diagnose(run, settings)
    told = diagnosis.run
    assert (told.kind, told.algorithm, told.framework) == ("preference", "dpo", "my loop")
    assert told.context["max_steps"] == 600
    assert any(finding.id == "run-cut-short" for finding in diagnosis.findings)  # at 59 of 600
    assert _diagnose(run, '[run]\nkind = "supervised"\n').run.kind == "supervised"
    assert _diagnose(run).run.kind == "online"
    assert ptt.sources(run, settings=api.read_settings(tmp_path / "ptt.toml")).kind == "online"


def test_a_kept_diagnosis_under_another_kind_is_not_reused(tmp_path: Path) -> None:
    run = _log(tmp_path / "run", {"reward": _wave(0, 1), "loss": _wave(2, 1)})
    (tmp_path / "ptt.toml").write_text('[run]\nkind = "supervised"\n')
    settings, out = api.read_settings(tmp_path / "ptt.toml"), tmp_path / "out"
    assert ptt.diagnose(run, out=out).run.kind == "online"
    assert ptt.diagnose(run, out=out, settings=settings).run.kind == "supervised"
    assert ptt.diagnose(run, out=out).run.kind == "online"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[run]\nkind = "sft"', "run.kind is 'sft'; it must be one of classic_rl, distillation, online"),
        ('[run]\nalgorithm = "frob"', "run.algorithm is 'frob', which is not known: `kind` must say"),
        ("[run]\ntotal_steps = 0", "run.total_steps"),
        ('[run]\nsteps = "x"', "steps"),
        ('[metrics]\nx = { better = "up" }', "metrics.x.better must be higher or lower"),
        ("[metrics]\nx = { worse = 1 }", "metrics.x must be a text"),
    ],
)
def test_a_mistake_in_the_settings_is_one_sentence(text: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "ptt.toml").write_text(text + "\n")
    with pytest.raises(SettingsError) as error:
        api.read_settings(tmp_path / "ptt.toml")
    assert problem in str(error.value)


def test_settings_say_which_way_an_unknown_metric_gets_better(tmp_path: Path) -> None:
    (tmp_path / "ptt.toml").write_text('[metrics]\n"my/figure" = { better = "lower" }\nr = "reward/mean"\n')
    settings = api.read_settings(tmp_path / "ptt.toml")
    assert settings.better == {"my/figure": "lower"}
    assert settings.metrics == {"r": "reward/mean"}
    run = _log(tmp_path / "run", {"my/figure": _wave(9, 2), "r": _wave(0, 1)})
    outcome = ptt.diagnose(run, settings=settings).outcome
    assert outcome is not None
    (figure,) = [series for series in outcome.series if series.logged_as == "my/figure"]
    assert (figure.direction, figure.best) == ("lower", figure.low)


def test_sources_and_the_report_say_the_kind_and_why(tmp_path: Path) -> None:
    run = _log(tmp_path / "run", {"loss": _wave(2.0, 1.2)})
    shown = CliRunner().invoke(app, ["sources", str(run)]).stdout
    assert "Kind of training: supervised fine-tuning (a loss above 0 and no reward)" in shown
    CliRunner().invoke(app, ["report", str(run), "--out", str(tmp_path / "out")])
    page = (tmp_path / "out" / "report.html").read_text()
    assert "supervised fine-tuning (a loss above 0 and no reward)" in page
    found = json.loads((tmp_path / "out" / "findings.json").read_text())["run"]
    assert (found["kind"], found["kind_reason"]) == ("supervised", "a loss above 0 and no reward")
