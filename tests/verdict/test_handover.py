"""What a run hands over: checkpoints by their names and roles, its context, the checklists, and their wording."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from builders import evidence_of, finding_of, run_of, series_of
from html_structure import page_with
from hypothesis import given
from hypothesis import strategies as st

import ptt
from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.algorithm import Algorithm, Family
from ptt.diagnostics.model import (
    Aggregates,
    Answer,
    Diagnosis,
    Finding,
    Healthy,
    Link,
    NotJudged,
    RunVerdict,
    Severity,
    Signature,
    Status,
)
from ptt.diagnostics.parsers.io.interface import RunFile
from ptt.diagnostics.parsers.io.run_files import run_files
from ptt.diagnostics.schema import EVALS
from ptt.diagnostics.verdict.checkpoints import best_score, find_checkpoints
from ptt.diagnostics.verdict.handover import with_handover

NO_EVALS = pl.DataFrame(schema=EVALS)


def files_of(*rels: str, size: int = 100) -> list[RunFile]:
    return [RunFile(path=Path("/nowhere") / rel, rel=rel, size=size) for rel in rels]


def dated_finding(name: str, **changes: Any) -> Finding:
    usual: dict[str, Any] = {"onset_step": 120, "onset_interval": (105, 133)}
    usual["next"] = ("roll back to the last healthy checkpoint",)
    return finding_of(name, **{**usual, **changes})


def diagnosis_of(*findings: Finding, healthy: bool = True, last_step: int = 300) -> Diagnosis:
    return Diagnosis(
        run=run_of(last_step=last_step),
        verdict=RunVerdict(
            status=Status.SUSPECT,
            headline="something broke",
            first_broken_link=None,
            next=("compare with the last healthy checkpoint", "take the checkpoint before step 105 as a base"),
        ),
        signature=Signature(
            status=Answer.CANNOT_SAY, reason="", pair=None, aggregates=Aggregates(status="quiet", metrics={}, alarms={})
        ),
        findings=findings,
        healthy=(Healthy(id="kl-over-target", link=Link.POLICY_UPDATE, reason="KL is small"),) if healthy else (),
        not_judged=(NotJudged(id="clip-fraction-high", link=Link.POLICY_UPDATE, reason="no clip fraction is logged"),),
        crashes=(),
        sources=(),
        tables={},
    )


def handed(
    diagnosis: Diagnosis,
    *rels: str,
    evaluated: dict[str, list[float]] | None = None,
    evals: pl.DataFrame = NO_EVALS,
    evidence: Evidence | None = None,
) -> Diagnosis:
    series = {name: series_of(name, values) for name, values in (evaluated or {}).items()}
    evidence = evidence or Evidence(run=diagnosis.run)
    return with_handover(diagnosis, evidence, files=files_of(*rels), evaluated=series, evals=evals)


def roles_of(diagnosis: Diagnosis) -> dict[str, dict[str, object]]:
    return {row["role"]: row for row in diagnosis.tables["checkpoints"].iter_rows(named=True) if row["role"]}


def answers_of(diagnosis: Diagnosis) -> dict[str, str]:
    frame = diagnosis.tables["checklists"]
    return dict(zip(frame["item"].to_list(), frame["answer"].to_list(), strict=True))


SAVED = tuple(f"checkpoint-{step}/model.safetensors" for step in (50, 100, 150, 300))


@pytest.mark.parametrize(
    ("rel", "found"),
    [
        ("checkpoint-300/trainer_state.json", ("checkpoint-300", 300, False)),
        ("out/checkpoint-300/model-00001-of-00002.safetensors", ("out/checkpoint-300", 300, True)),
        ("ckpts/global_step_100/actor/model_world_size_8_rank_0.pt", ("ckpts/global_step_100", 100, True)),
        ("ckpt/_actor/global_step40/mp_rank_00_model_states.pt", ("ckpt/_actor/global_step40", 40, True)),
        ("save/iter_0000200/mp_rank_00/model_optim_rng.pt", ("save/iter_0000200", 200, True)),
        ("save/iter_0000200/__0_0.distcp", ("save/iter_0000200", 200, True)),
        ("results/step_50/policy/weights/model.safetensors", ("results/step_50", 50, True)),
        ("weights/step_20/STABLE_x", ("weights/step_20", 20, False)),
        ("checkpoints/epoch0epochstep9globalstep9/config.json", ("checkpoints/epoch0epochstep9globalstep9", 9, False)),
        (".art/checkpoints/0003/adapter_model.safetensors", (".art/checkpoints/0003", 3, True)),
        ("checkpoints/epoch=1-step=400.ckpt", ("checkpoints/epoch=1-step=400.ckpt", 400, True)),
        ("model_120.pt", ("model_120.pt", 120, True)),
        # dumps that are named alike
        ("token_exports/step_20/rank_0.jsonl", None),
        ("rollouts/step_20/train/all/traces.jsonl", None),
        ("dumped_data/global_step_7_training_input.pkl", None),
        ("dumped_evals/global_step_40_evals/math.jsonl", None),
        ("tokens/step_000120.pt", None),
        ("train_data/100_0.pt", None),
        ("logs/2026/000123/events.jsonl", None),
    ],
)
def test_checkpoints_are_known_by_name_and_dumps_are_not_taken_for_them(
    rel: str, found: tuple[str, int, bool] | None
) -> None:
    seen = [(one.path, one.step, one.weights) for one in find_checkpoints(files_of(rel))]
    assert seen == ([] if found is None else [found])


def test_an_empty_file_is_no_weights_and_an_optimizer_alone_neither() -> None:
    (empty,) = find_checkpoints(files_of("checkpoint-5/model.safetensors", size=0))
    (state,) = find_checkpoints(files_of("checkpoint-5/optimizer.pt", "checkpoint-5/scheduler.pt"))
    assert not empty.weights
    assert not state.weights


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere" / "checkpoint-9").mkdir(parents=True)
    (tmp_path / "elsewhere" / "checkpoint-9" / "model.safetensors").write_bytes(b"x")
    run = tmp_path / "run"
    run.mkdir()
    (run / "checkpoint-9").symlink_to(tmp_path / "elsewhere" / "checkpoint-9")
    assert find_checkpoints(run_files(run)[0]) == ()


def test_the_roles_of_a_broken_run() -> None:
    found = roles_of(handed(diagnosis_of(dated_finding("kl-over-target")), *SAVED))
    assert found["last_healthy"]["path"] == "checkpoint-100"
    assert "before step 105, where kl-over-target may have begun" in str(found["last_healthy"]["note"])
    assert found["first_broken"]["path"] == "checkpoint-150"
    assert found["last"]["path"] == "checkpoint-300"
    assert found["best"]["path"] is None
    assert str(found["best"]["note"]).startswith("cannot say")


def test_without_checkpoints_the_steps_to_look_for_are_named() -> None:
    found = roles_of(handed(diagnosis_of(dated_finding("kl-over-target"))))
    assert [found[role]["step"] for role in ("last_healthy", "first_broken", "last")] == [104, 105, 300]
    assert all(row["path"] is None for row in found.values())


def test_what_dates_the_damage() -> None:
    early = {"onset_step": 60, "onset_interval": None}
    slow = dated_finding("throughput-drop", link=Link.SYSTEMS, **early)
    low = dated_finding("tool-failures", severity=Severity.LOW, **early)
    follower = dated_finding("reward-fell", consequence_of="kl-over-target", onset_step=110, onset_interval=(70, 150))
    caused = dated_finding("stale-rollouts", consequence_of="throughput-drop", **early)
    first = dated_finding("kl-over-target")

    def healthy(*findings: Finding) -> object:
        return roles_of(handed(diagnosis_of(*findings), *SAVED))["last_healthy"]["path"]

    assert healthy(first) == "checkpoint-100"
    assert healthy(first, slow) == "checkpoint-100"  # a slow machine leaves the weights as they were
    assert healthy(first, low) == "checkpoint-100"
    assert healthy(first, follower) == "checkpoint-100"
    assert healthy(first, slow, caused) == "checkpoint-50"  # but what it brings about does not


def test_a_finding_without_onset_leaves_doubt() -> None:
    undated = dated_finding("versions-unknown", onset_step=None, onset_interval=None)
    alone = roles_of(handed(diagnosis_of(undated), *SAVED))["last_healthy"]
    assert alone["path"] is None
    assert alone["note"] == "cannot say: versions-unknown has no known onset"
    beside = roles_of(handed(diagnosis_of(undated, dated_finding("kl-over-target")), *SAVED))["last_healthy"]
    assert beside["path"] == "checkpoint-100"
    assert str(beside["note"]).endswith("versions-unknown has no known onset and may be older")


def test_a_failure_from_the_first_step_on_leaves_no_healthy_checkpoint() -> None:
    found = roles_of(handed(diagnosis_of(dated_finding("reward-sign", onset_step=3, onset_interval=(1, 9))), *SAVED))
    assert found["last_healthy"]["path"] is None
    assert "the model the run started from" in str(found["last_healthy"]["note"])


def test_a_run_that_nobody_could_judge_has_no_healthy_checkpoint() -> None:
    assert roles_of(handed(diagnosis_of(healthy=False), *SAVED))["last_healthy"]["path"] is None
    judged = roles_of(handed(diagnosis_of(), *SAVED))
    assert judged["last_healthy"]["path"] == "checkpoint-300"
    assert judged["first_broken"]["step"] is None


def test_advice_to_go_back_names_the_checkpoint_once() -> None:
    made = handed(diagnosis_of(dated_finding("kl-over-target")), *SAVED)
    assert made.verdict.next == (
        "compare with the last healthy checkpoint (checkpoint-100, step 100)",
        "take the checkpoint before step 105 (checkpoint-100) as a base",
    )
    assert made.findings[0].next == ("roll back to the last healthy checkpoint (checkpoint-100, step 100)",)
    again = with_handover(made, Evidence(run=made.run), files=files_of(*SAVED), evaluated={}, evals=NO_EVALS)
    assert again.verdict.next == made.verdict.next
    bare = handed(diagnosis_of(dated_finding("kl-over-target")))
    assert bare.verdict.next[0] == "compare with the last healthy checkpoint (step 104 or earlier)"
    undated = dated_finding("a", onset_step=None, onset_interval=None)
    assert handed(diagnosis_of(undated)).verdict.next[0] == "compare with the last healthy checkpoint"


def test_before_the_first_step_there_is_no_checkpoint_to_go_back_to() -> None:
    first = diagnosis_of().run.first_step
    for said in ("roll back to the last checkpoint", "restart from a checkpoint", "take the checkpoint"):
        told = dated_finding("kl-over-target", next=(f"{said} before step {first}",))
        (line,) = handed(diagnosis_of(told)).findings[0].next
        assert "checkpoint" not in line
        assert line.endswith("the model that the run started from")


def test_the_best_step_is_by_the_figure_closest_to_the_task() -> None:
    logged = {
        "eval/reward": series_of("eval/reward", [0.1, 0.5, 0.9]),
        "eval/env/accuracy": series_of("eval/env/accuracy", [0.3, 0.2, 0.1]),
        "eval/rewards/format/std": series_of("eval/rewards/format/std", [9.0, 9.0, 9.0]),
        "eval/loss": series_of("eval/loss", [0.0, -1.0, -2.0]),
    }
    found = best_score(logged, NO_EVALS, Family.ONLINE)
    assert found is not None
    assert (found.metric, found.step, found.noise, found.ties) == ("eval/env/accuracy", 1, None, ())
    assert best_score({"eval/loss": logged["eval/loss"]}, NO_EVALS, Family.ONLINE) is None
    lowest = best_score({"eval_loss": series_of("eval_loss", [0.9, 0.4, 0.6])}, NO_EVALS, Family.SUPERVISED)
    assert lowest is not None
    assert (lowest.step, lowest.higher) == (2, False)
    assert best_score({"eval/reward": series_of("x", [1.0])}, NO_EVALS, None) is None


def test_ties_and_noise_are_said() -> None:
    rows = [
        {"suite": "math", "metric": "accuracy", "step": s, "value": v, "n": 200}
        for s, v in ((50, 0.5), (100, 0.56), (150, 0.3))
    ]
    evals = pl.DataFrame(rows, schema_overrides=EVALS).select(
        *(pl.col(name) if name in rows[0] else pl.lit(None, kind).alias(name) for name, kind in EVALS.items())
    )
    found = best_score({}, evals, None)
    assert found is not None
    assert found.noise == pytest.approx(1.96 * math.sqrt(2 * 0.56 * 0.44 / 200))
    assert (found.step, found.ties, found.samples) == (100, (50,), 200)
    role = roles_of(handed(diagnosis_of(), "checkpoint-50/model.safetensors", evals=evals))["best"]
    assert role["path"] == "checkpoint-50"
    assert "n = 200; within the noise of ±0.0973: step 50" in str(role["note"])


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=40), st.booleans())
def test_no_other_step_is_better_than_the_best(values: list[float], supervised: bool) -> None:
    name, family = ("eval_loss", Family.SUPERVISED) if supervised else ("eval/score", Family.ONLINE)
    found = best_score({name: series_of(name, values)}, NO_EVALS, family)
    assert found is not None
    assert found.value == (min(values) if supervised else max(values))
    assert found.step not in found.ties
    if found.noise is None:
        assert [values[step - 1] for step in found.ties] == pytest.approx([found.value] * len(found.ties), abs=1e-12)


def test_steady_noise_ties_most_steps_with_the_best() -> None:
    generator = np.random.default_rng(20_261_121)
    shares = []
    for _ in range(50):
        values = 0.5 + 0.02 * generator.standard_normal(30)
        found = best_score({"eval/score": series_of("eval/score", values)}, NO_EVALS, None)
        assert found is not None
        shares.append(len(found.ties) / 29)
    assert np.mean(shares) > 0.6  # the greatest of thirty lies two deviations above their mean


def test_the_context_is_read_from_papers_and_hides_paths(tmp_path: Path) -> None:
    (tmp_path / "wandb").mkdir()
    meta = {
        "git": {"commit": "0123abcd" * 5, "remote": "git@host:secret.git"},
        "host": "node7",
        "program": "/home/u/t.py",
    }
    (tmp_path / "wandb" / "wandb-metadata.json").write_text(json.dumps(meta))
    (tmp_path / "requirements.txt").write_text("torch==2.9.0\nsecret-package==1.0\ntrl==1.2.0\n")
    (tmp_path / "run_metadata.json").write_text(
        json.dumps({"model_name": "/data/models/Qwen3-4B", "dataset_name": "org/math", "git_sha": "not a commit"})
    )
    (tmp_path / "config.yaml").write_text("lr: 1e-6\n")
    files = run_files(tmp_path)[0]
    made = with_handover(diagnosis_of(), Evidence(run=run_of()), files=files, evaluated={}, evals=NO_EVALS)
    found = {row["item"]: row for row in made.tables["context"].iter_rows(named=True)}
    assert found["code"]["value"] == "commit " + "0123abcd" * 5
    assert found["packages"]["value"] == "torch 2.9.0, trl 1.2.0"
    assert (found["model"]["value"], found["dataset"]["value"]) == ("Qwen3-4B", "org/math")
    assert found["settings"]["source"] == "config.yaml"
    assert found["seed"]["present"] is False
    assert found["seed"]["enable"]
    assert not [
        word for word in ("node7", "secret", "/home", "/data") if word in str(made.tables["context"].to_dicts())
    ]


@pytest.mark.parametrize("text", ["", "[1", "[]", '{"git": 3}', '{"git": {"commit": 7}}', "\x00\xff", '{"a":' * 5000])
def test_a_damaged_paper_tells_nothing(text: str, tmp_path: Path) -> None:
    for name in ("wandb-metadata.json", "run_metadata.json", "config.json", "requirements.txt", "README.md"):
        (tmp_path / name).write_text(text)
    files = run_files(tmp_path)[0]
    made = with_handover(diagnosis_of(), Evidence(run=run_of()), files=files, evaluated={}, evals=NO_EVALS)
    found = {row["item"]: row["present"] for row in made.tables["context"].iter_rows(named=True)}
    assert not any(found[item] for item in ("code", "packages", "model", "dataset"))


def test_the_checklists_have_three_answers_and_say_what_does_not_apply() -> None:
    found = answers_of(handed(diagnosis_of(dated_finding("entropy-collapse", link=Link.EXPLORATION)), *SAVED))
    assert found["KL stays within its target"] == "yes"
    assert found["Entropy stays above its floor"] == "no"
    assert found["Few updates are clipped"] == "cannot tell"
    assert found["The last checkpoint is kept"] == "yes"
    offline = Evidence(run=run_of(), algorithm=Algorithm(name="dpo", family=Family.PREFERENCE, critic=False))
    absent = answers_of(handed(diagnosis_of(), evidence=offline))
    assert absent["Few updates are clipped"] == "does not apply"
    assert absent["The critic fits its targets"] == "does not apply"
    assert absent["The last checkpoint is kept"] == "cannot tell"  # they may lie elsewhere
    assert set(found.values()) | set(absent.values()) <= {"yes", "no", "cannot tell", "does not apply"}


def test_a_note_below_medium_is_no_failure() -> None:
    note = dated_finding("entropy-collapse", severity=Severity.LOW)
    assert answers_of(handed(diagnosis_of(note)))["Entropy stays above its floor"] == "yes"


@pytest.mark.parametrize(
    ("rewards", "answer"),
    [
        ([0.0] * 80, "no"),
        ([1.0] * 79 + [0.0], "no"),
        ([0.0, 1.0] * 40, "yes"),
        ([0.1] * 60 + [1.1] * 20, "yes"),
        ([0.1, 0.2, 0.3, 0.4] * 24 + [50.0] * 3, "no"),
        ([0.5, 0.4] * 10, "cannot tell"),
        ([math.nan] * 100, "cannot tell"),
    ],
)
def test_the_first_rewards(rewards: list[float], answer: str) -> None:
    frame = pl.DataFrame({"step": [1] * len(rewards), "split": [None] * len(rewards), "reward": rewards})
    made = handed(dataclasses.replace(diagnosis_of(), tables={"trajectories": frame}))
    assert answers_of(made)["The first rewards have a usable spread"] == answer


def test_the_first_rewards_are_counted_in_bins() -> None:
    rewards = [0.0] * 60 + [0.5] * 10 + [1.0] * 30
    frame = pl.DataFrame({"step": [1] * 100, "split": [None] * 100, "reward": rewards})
    made = handed(dataclasses.replace(diagnosis_of(), tables={"trajectories": frame})).tables["checklists"]
    (told,) = made.filter(pl.col("item") == "The first rewards have a usable spread")["evidence"]
    assert told == "rewards 0 to 1.0 with median 0, of 100 samples up to step 1; counts in 3 equal bins: 60, 10, 30"


@pytest.mark.parametrize(
    ("changed", "left_out", "answer", "evidence"),
    [
        (512, 0, "yes", "max_tokens, temperature, top_p: the same at all points of each suite"),
        (1024, 0, "no", "max_tokens differs between the points of eval"),
        (512, 2, "no", "temperature of eval is missing at 2 of 6 evaluated steps"),
    ],
)
def test_settings_logged_beside_an_evaluation_are_read(
    tmp_path: Path, changed: int, left_out: int, answer: str, evidence: str
) -> None:
    rows = [{"step": step, "kl": 0.02, "loss": 0.1, "reward": 0.5} for step in range(1, 121)]
    for number, row in enumerate(rows[19::20]):
        row |= {"eval/accuracy": 0.3 + 0.01 * number, "eval/top_p": 0.95, "eval/max_tokens": 512 if number else changed}
        row |= {} if number < left_out else {"eval/temperature": 0.6}
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    tables = ptt.diagnose(tmp_path).tables
    asked = tables["checklists"].filter(pl.col("item") == "The evaluation's settings are fixed and saved")
    assert asked.select("answer", "evidence").row(0) == (answer, evidence)
    told = tables["context"].filter(pl.col("item") == "evaluation").row(0, named=True)
    assert told["present"]
    assert told["value"].startswith("temperature 0.6, max_tokens ")
    assert told["value"].endswith("top_p 0.95")


def test_a_run_dir_from_end_to_end(tmp_path: Path) -> None:
    rows = [json.dumps({"step": step, "kl": 0.02 if step < 60 else 2.0, "loss": 0.1}) for step in range(1, 201)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(rows) + "\n")
    for step in (25, 50, 100):
        (tmp_path / f"global_step_{step}").mkdir()
        (tmp_path / f"global_step_{step}" / "model.safetensors").write_bytes(b"0" * 64)
    found = ptt.diagnose(tmp_path)
    assert [one.id for one in found.findings if one.severity is not Severity.LOW] == ["kl-over-target"]
    assert roles_of(found)["last_healthy"]["path"] == "global_step_50"
    assert ptt.diagnose(tmp_path).tables["checklists"].equals(found.tables["checklists"])
    assert any("global_step_50" in step for step in found.verdict.next)
    assert "global_step_50 (step 50)" in page_with(found).replace("<wbr>", "")


def test_evidence_alone_makes_all_tables() -> None:
    made = handed(diagnosis_of(), evidence=evidence_of(metrics={"kl/ref": [0.1] * 40}))
    assert {"checkpoints", "context", "checklists"} <= set(made.tables)
    assert made.tables["checklists"]["phase"].unique(maintain_order=True).to_list() == ["before", "during", "after"]
