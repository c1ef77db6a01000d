"""Rules on machines: broken, healthy and not judged, through the rules and through whole runs on disk."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from builders import Array, evidence_of, series_of
from rule_cases import finding, jump, level
from samples_calls import jsonl

import ptt
from ptt.diagnostics.config import Settings
from ptt.diagnostics.evidence.algorithm import Algorithm, Family
from ptt.diagnostics.evidence.machines import Event, Machines, gather_machines, ranks_table
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Broken, Diagnosis, Healthy, Link, NotJudged, RuleVerdict, Severity
from ptt.diagnostics.pipeline import RunLocation, judge_run
from ptt.diagnostics.rules import SYSTEMS_RULES
from ptt.diagnostics.schema import METRICS, RANKS
from ptt.diagnostics.store.wide_metrics import WideMetrics

BY_ID = {rule.id: rule for rule in SYSTEMS_RULES}
Metrics = Mapping[str, Series | Array]


def run(
    rule: str,
    metrics: Metrics | None = None,
    *,
    machines: Machines | None = None,
    other: Metrics | None = None,
    said: Sequence[tuple[str, str]] = (),
    at: int | None = None,
    **context: Any,
) -> RuleVerdict:
    evidence = evidence_of(metrics=metrics)
    rest = {name: one if isinstance(one, Series) else series_of(name, one) for name, one in (other or {}).items()}
    events = tuple(Event(step=at, kind=kind, text=text, source="train.log") for kind, text in said)
    facts = replace(evidence.run, context=context)
    evidence = replace(evidence, run=facts, machines=machines, other=rest, events=events)
    return BY_ID[rule].run(replace(evidence, algorithm=Algorithm(family=Family.ONLINE)))


def ranks_of(values: Mapping[int, Array], *, name: str = "phase/forward", **columns: Any) -> Machines | None:
    rows = [
        {"step": step, "rank": rank, "name": name, "value": value, "source": f"traces-r{rank}.jsonl", **columns}
        for rank, series in values.items()
        for step, value in enumerate(series.tolist(), start=1)
    ]
    return gather_machines(pl.DataFrame(schema=METRICS), pl.DataFrame(rows, schema=RANKS), WideMetrics(Path()))


def test_times_of_nothing_are_no_level_to_slow_down_from() -> None:
    assert isinstance(run("throughput-drop", {"time/step": np.r_[np.zeros(60), np.full(60, 2.0)]}), Healthy)


def test_times_slower_are_of_medians_on_both_sides() -> None:
    draw = np.random.default_rng(3).permutation
    early, late = draw(np.repeat([1.0, 2.0], [75, 25])), draw(np.repeat([4.0, 12.0], [75, 25]))
    found = finding(run("throughput-drop", {"time/step": np.r_[early, late]}))
    assert found.claim.startswith("Steps became 4.0x slower (1.0 s to 4.0 s)")
    assert found.observed == pytest.approx(4.0)


def test_steps_that_take_longer_are_found_where_they_begin() -> None:
    found = finding(run("throughput-drop", {"time/step": jump(0.3, 0.8)}))
    assert (found.severity, found.onset_step) == (Severity.MEDIUM, 51)
    assert "is not logged" in found.claim
    assert finding(run("throughput-drop", {"time/step": jump(300.0, 1500.0)})).severity is Severity.HIGH


def test_steps_that_share_a_generation_are_taken_together() -> None:
    slow = np.tile([1.3, 0.2], 30) * level(1.0, 60)
    fast = np.tile([0.4, 0.2], 50) * level(1.0, 100)
    found = finding(run("throughput-drop", {"time/step": np.concatenate([fast, slow])}))
    assert found.onset_step == pytest.approx(101, abs=2)
    assert found.evidence["early_s"] == pytest.approx(0.3, rel=0.1)
    assert found.evidence["late_s"] == pytest.approx(0.75, rel=0.1)


def test_what_sampling_discards_is_no_slower_machine(tmp_path: Path) -> None:
    generator = np.random.default_rng(8)
    kept = [60.0 if step < 50 else 15.0 for step in range(100)]
    rows = [
        {"step": step, "train/timing/generation": 6000.0 / share, "train/dynamic_filtering_pass_rate": share,
         "train/timing/step_total": (6000.0 / share + 50.0) * float(generator.uniform(0.97, 1.03)),
         "train/response_length": 800.0 + float(generator.normal())}
        for step, share in enumerate(kept, start=1)
    ]  # fmt: skip
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    (found,) = [one for one in ptt.diagnose(tmp_path).findings if one.id == "throughput-drop"]
    assert "more is generated for the same batch, since sampling keeps 60% of it at first and 15% at the end" in (
        found.claim
    )
    assert not any("device" in cause for cause in found.causes)


def test_longer_answers_are_no_slower_machines() -> None:
    times, lengths = jump(10.0, 30.0), jump(200.0, 600.0)
    for name in ("len/response_mean", "tokens/step"):
        verdict = run("throughput-drop", {"time/step": times, name: lengths})
        assert isinstance(verdict, Healthy)
        assert verdict.notes[0].severity is Severity.LOW
    verdict = run("throughput-drop", {"time/step": times, "tokens/seen": np.cumsum(lengths)})
    assert isinstance(verdict, Healthy)
    slower = finding(run("throughput-drop", {"time/step": times, "len/response_mean": level(200.0)}))
    assert slower.evidence["work_ratio"] == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("growth", [1.0, 1.07, 1.2])
def test_work_that_hardly_grew_explains_no_slower_steps(growth: float) -> None:
    """At 1.07 times the tokens, the noise of the time per token hid a rise of half as much again."""
    times, lengths = jump(10.0, 16.0), jump(200.0, growth * 200.0)
    found = finding(run("throughput-drop", {"time/step": times, "len/response_mean": lengths}))
    assert found.severity is Severity.MEDIUM
    assert found.evidence["work_ratio"] == pytest.approx(growth, abs=0.05)
    assert "as much" not in found.claim
    assert ("1.21x" in found.claim) is (growth == 1.2)


def test_the_part_of_the_step_that_grew_is_named() -> None:
    parts = {"timing_s/gen": jump(5.0, 25.0), "timing_s/update_actor": level(4.0), "timing_s/step": jump(10.0, 30.0)}
    other = {name: replace(series_of(name, values), raw_name=name) for name, values in parts.items()}
    found = finding(run("throughput-drop", {"time/step": jump(10.0, 30.0)}, other=other))
    assert found.evidence["grew_most"] == "timing_s/gen"
    assert "environment" in found.causes[0]


def test_throughput_stands_in_for_the_time_of_a_step() -> None:
    assert finding(run("throughput-drop", {"throughput/tokens": jump(9000.0, 4000.0)})).observed == pytest.approx(
        2.25, rel=0.05
    )
    assert isinstance(run("throughput-drop", {"throughput/tokens": level(9000.0)}), Healthy)


def test_rows_of_microsofts_callback_count_only_where_they_go_on() -> None:
    lasting = series_of("slowdown_factor", [1.6, 1.7, 1.8, 1.7], steps=[40, 60, 80, 100])
    now_and_then = series_of("slowdown_factor", [1.6, 1.7, 1.8], steps=[10, 30, 50])
    metrics = {"loss/total": level(1.0)}
    assert isinstance(run("throughput-drop", metrics, other={"slowdown_factor": lasting}), Broken)
    assert isinstance(run("throughput-drop", metrics, other={"slowdown_factor": now_and_then}), Healthy)


def test_memory_that_grows_towards_the_device_is_found() -> None:
    growing = np.linspace(40.0, 76.0, 100) * level(1.0, share=0.005)
    found = finding(run("memory-growth", {"mem/peak_gb": growing}, gpu_memory_gb=80.0))
    assert found.severity is Severity.HIGH
    assert (
        finding(run("memory-growth", {"mem/peak_gb": growing * 0.85}, gpu_memory_gb=80.0)).severity is Severity.MEDIUM
    )
    doubled = np.linspace(40.0, 130.0, 100)
    assert finding(run("memory-growth", {"mem/peak_gb": doubled})).severity is Severity.MEDIUM


@pytest.mark.parametrize(
    "memory",
    [
        level(79.0, share=0.001),  # nearly full, and steady
        np.concatenate([np.linspace(40.0, 60.0, 30), np.full(70, 60.0)]),  # a peak that settles
        np.linspace(40.0, 46.0, 100),
    ],
)
def test_memory_that_is_high_or_settles_is_healthy(memory: Array) -> None:
    assert isinstance(run("memory-growth", {"mem/peak_gb": memory}, gpu_memory_gb=80.0), Healthy)
    assert isinstance(run("memory-growth", {"mem/peak_gb": memory}), Healthy)


def test_imbalance_matters_where_a_device_is_nearly_full() -> None:
    levels = {0: level(95.0, share=0.01), 1: level(50.0, share=0.01, seed=2)}
    full = ranks_of(levels, name="gpu.0.memoryAllocated")
    found = finding(run("memory-imbalance", machines=full))
    assert found.evidence["largest"] == "rank 0 gpu" or found.evidence["largest"] == "rank 0"
    room = ranks_of({rank: 0.5 * values for rank, values in levels.items()}, name="gpu.0.memoryAllocated")
    verdict = run("memory-imbalance", machines=room)
    assert isinstance(verdict, Healthy)
    assert verdict.notes[0].severity is Severity.LOW
    even = ranks_of({0: level(95.0), 1: level(95.0, seed=2)}, name="gpu.0.memoryAllocated")
    verdict = run("memory-imbalance", machines=even)
    assert isinstance(verdict, Healthy)
    assert not verdict.notes


@pytest.mark.parametrize(
    "name",
    [
        "gpu.0.gpu",  # W&B
        "system/gpu.0.gpu",
        "gpu/0/utilization",  # trackio
        "rank1/gpu/0/utilization",
        "system/gpu_0_utilization_percentage",  # MLflow
        "system/node_0/gpu_0_utilization_percentage",
        "gpu.0.ptc",  # SwanLab, before and since it spelt it right
        "gpu.0.pct",
        "sys.gpu.0.gpu_utilization",  # Comet
        "gpu_0_utilization",  # ClearML
        "ray/node.0.gpu.0.util",  # NeMo-RL
    ],
)
def test_devices_that_stand_idle_are_told_by_what_steps_lose(name: str) -> None:
    falls = ranks_of({0: jump(90.0, 20.0), 1: jump(85.0, 22.0), 2: np.zeros(100)}, name=name)
    slower = finding(run("gpu-utilisation-fell", {"time/step": jump(10.0, 14.0)}, machines=falls))
    assert slower.severity is Severity.MEDIUM
    assert slower.onset_step == pytest.approx(51, abs=10)
    for metrics in ({}, {"time/step": level(10.0)}):
        verdict = run("gpu-utilisation-fell", metrics, machines=falls)
        assert isinstance(verdict, Healthy)
        assert verdict.notes[0].severity is Severity.LOW
    alone = ranks_of({0: jump(0.9, 0.2)}, name=name)
    assert isinstance(run("gpu-utilisation-fell", {"throughput/tokens": jump(900.0, 300.0)}, machines=alone), Broken)
    logged = {"gpu_utilization": jump(90.0, 20.0)}
    assert isinstance(run("gpu-utilisation-fell", {"time/step": jump(10.0, 14.0)}, other=logged), Broken)


def test_devices_that_are_busy_or_never_were_are_no_fall() -> None:
    for levels in ({0: level(90.0)}, {0: jump(20.0, 90.0)}, {0: jump(90.0, 60.0)}, {0: level(90.0), 1: np.zeros(100)}):
        verdict = run("gpu-utilisation-fell", machines=ranks_of(levels, name="gpu.0.gpu"))
        assert isinstance(verdict, Healthy)
        assert not verdict.notes
    for unused in ({0: np.zeros(100)}, {0: level(90.0, 20)}):
        verdict = run("gpu-utilisation-fell", machines=ranks_of(unused, name="gpu.0.gpu"))
        assert isinstance(verdict, NotJudged)


@pytest.mark.parametrize(
    "name",
    [
        "gpu.0.correctedMemoryErrors",
        "gpu.0.memory",
        "gpu.0.memoryClock",
        "gpu/0/total_memory",
        "gpu/0/memory_utilization",
        "gpu.0.memoryReadWriteActivity",
        "gpu.0.memoryOverDrive",
        "gpu.0.mem.time",
        "sys.gpu.0.memory_utilization",
        "gpu_0_mem_free_gb",
    ],
)
def test_counters_with_memory_in_their_name_are_not_what_is_held(name: str) -> None:
    machines = ranks_of({0: level(95.0), 1: level(5.0, seed=2)}, name=name)
    assert isinstance(run("memory-imbalance", machines=machines), NotJudged)
    assert isinstance(run("memory-growth", machines=machines), NotJudged)


def test_devices_that_the_run_does_not_use_are_no_imbalance() -> None:
    nearly_empty = ranks_of({0: level(95.0), 1: level(95.0, seed=2), 2: level(2.0)}, name="gpu.0.memoryAllocated")
    assert isinstance(run("memory-imbalance", machines=nearly_empty), Healthy)
    one = ranks_of({0: level(95.0), 1: level(2.0)}, name="gpu.0.memoryAllocated")
    assert isinstance(run("memory-imbalance", machines=one), NotJudged)
    held = ranks_of({0: level(95.0), 1: level(95.0, seed=2), 2: level(40.0)}, name="gpu.0.memoryAllocated")
    work = ranks_of({0: level(90.0), 1: level(90.0), 2: np.zeros(100)}, name="gpu.0.gpu")
    assert held is not None
    assert work is not None
    assert isinstance(run("memory-imbalance", machines=held), Broken)
    assert isinstance(run("memory-imbalance", machines=Machines(metrics=held.metrics + work.metrics)), Healthy)


def test_a_chronic_straggler_is_named_with_its_rank() -> None:
    times = {rank: level(1.0, 200, seed=rank) for rank in range(8)}
    times[5][80:] *= 1.6
    found = finding(run("stragglers", machines=ranks_of(times)))
    assert found.evidence["rank"] == "rank 5"
    assert found.observed == pytest.approx(1 / 1.6, rel=0.05)
    assert found.onset_step == 81
    assert found.evidence["chronic"] is True
    times[5][80:] *= 2
    assert finding(run("stragglers", machines=ranks_of(times))).severity is Severity.HIGH


def test_a_straggler_is_held_against_one_rank_and_not_the_luckiest_of_each_window() -> None:
    times = {rank: level(1.0, 200, seed=rank, share=0.5).clip(0.2) for rank in range(16)}
    times[5] = 8 * times[5]
    machines = ranks_of(times)
    found = finding(run("stragglers", machines=machines))
    table = ranks_table(machines).filter(rank="rank 5") if machines is not None else pl.DataFrame()
    assert found.observed == pytest.approx(table["relative_score"][0], rel=0.06)


def test_one_slow_window_is_a_note() -> None:
    times = {rank: level(1.0, 200, seed=rank) for rank in range(4)}
    times[2][80:100] *= 2
    verdict = run("stragglers", machines=ranks_of(times))
    assert isinstance(verdict, Healthy)
    assert [note.evidence["chronic"] for note in verdict.notes] == [False]


def test_a_rank_is_held_against_its_own_best_too() -> None:
    """Rank 0 has less to do by design; when it slows to the others' pace, only its own past tells."""
    times = {rank: level(1.0 if rank else 0.8, 200, seed=rank) for rank in range(4)}
    times[0][100:] *= 1.5
    found = finding(run("stragglers", machines=ranks_of(times)))
    assert (found.evidence["rank"], found.evidence["against"]) == ("rank 0", "its own best")
    all_slow = {rank: jump(1.0, 2.0, at=100, count=200) * level(1.0, 200, seed=rank) for rank in range(4)}
    assert isinstance(run("stragglers", machines=ranks_of(all_slow)), Healthy)


def test_whole_steps_by_rank_cannot_tell() -> None:
    even = {rank: level(1.0, 100, seed=9) for rank in range(4)}
    verdict = run("stragglers", machines=ranks_of(even, name="phase/train_step"))
    assert isinstance(verdict, NotJudged)
    assert "summed" in verdict.reason


def test_one_process_has_no_ranks_to_compare() -> None:
    for rule in ("stragglers", "memory-imbalance"):
        verdict = run(rule, {"time/step": level(1.0)}, world_size=1)
        assert isinstance(verdict, NotJudged)
        assert not verdict.applies


def test_a_rank_that_falls_silent_is_found() -> None:
    times = {rank: level(1.0, 200, seed=rank) for rank in range(4)}
    times[3] = times[3][:120]
    found = finding(run("stragglers", machines=ranks_of(times)))
    assert found.onset_step == 121
    assert found.evidence["rank"] == "rank 3"


def test_healthy_ranks_give_nothing() -> None:
    for seed in range(50):
        generator = np.random.default_rng(seed)
        shared = np.exp(0.4 * generator.normal(size=120))
        times = {rank: shared * np.exp(0.2 * generator.normal(size=120)) for rank in range(8)}
        assert isinstance(run("stragglers", machines=ranks_of(times)), Healthy), seed


@pytest.mark.slow
def test_healthy_times_and_memory_give_nothing() -> None:
    for seed in range(96):  # six of each length and likeness
        generator = np.random.default_rng(seed)
        count = (40, 100, 300, 700)[seed % 4]
        likeness = (0.0, 0.3, 0.6, 0.8)[seed // 4 % 4]
        noisy = np.zeros((3, count))
        for place in range(1, count):
            shock = math.sqrt(1 - likeness**2) * generator.normal(size=3)
            noisy[:, place] = likeness * noisy[:, place - 1] + shock
        metrics = {
            "time/step": np.exp(0.25 * noisy[0] + np.linspace(0, 0.2, count)),
            "mem/peak_gb": np.maximum.accumulate(60.0 * np.exp(0.03 * noisy[1])),
            "time/wait_rollout": 0.3 * np.exp(0.25 * noisy[2]),
        }
        for rule in ("throughput-drop", "memory-growth", "idle-rollout"):
            assert not isinstance(run(rule, metrics), Broken), (rule, seed)


def test_a_side_that_waits_is_found_and_generation_in_turns_is_not() -> None:
    found = finding(run("idle-rollout", {"time/step": level(10.0), "time/wait_rollout": jump(2.0, 7.0)}))
    assert found.onset_step == pytest.approx(60, abs=5)
    assert (found.severity, found.evidence["who_waits"]) == (Severity.MEDIUM, "the trainer")
    other_side = finding(run("idle-rollout", {"idle/rollout": level(0.7)}))
    assert (other_side.severity, other_side.evidence["who_waits"]) == (Severity.LOW, "the sampler")  # from the start
    assert isinstance(run("idle-rollout", {"time/step": level(10.0), "time/wait_rollout": level(2.0)}), Healthy)
    turns = run("idle-rollout", {"time/step": level(10.0), "time/generation": level(9.5)})
    assert isinstance(turns, NotJudged)


def test_scoring_that_takes_most_of_a_step_is_found() -> None:
    found = finding(run("idle-rollout", {"time/step": level(10.0), "time/reward": jump(1.0, 7.0)}))
    assert found.severity is Severity.LOW
    assert found.evidence["who_waits"] == "both"
    assert isinstance(run("idle-rollout", {"time/step": level(10.0), "time/reward": level(2.0)}), NotJudged)


@pytest.mark.parametrize(
    "text",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "exit reason: oom",
        "CUDA out of memory. Tried to allocate 1 GiB. Try expandable_segments:True to avoid fragmentation",
        "RuntimeError: CUDA error: out of memory",
        "slurmstepd: error: Detected 1 oom_kill event",
    ],
)
def test_memory_that_ran_out_is_found(text: str) -> None:
    found = finding(run("out-of-memory", said=[("stderr", text)]))
    assert found.severity is Severity.HIGH
    assert found.evidence["said"] == text
    went_on = finding(run("out-of-memory", said=[("stderr", text)], at=7, status="completed"))
    assert went_on.severity is Severity.MEDIUM
    logged_on = run("out-of-memory", {"loss/total": level(1.0)}, said=[("stderr", text)], at=7)
    assert finding(logged_on).severity is Severity.MEDIUM


def test_an_error_that_callers_pass_on_is_one_and_tells_that_the_model_was_loading() -> None:
    own = ("stderr", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 113.74 GiB.")
    passed = [
        ("stderr", f"ray.exceptions.RayTaskError(OutOfMemoryError): ray::{call}() (pid=3)")
        for call in ("TaskRunner.run", "WorkerDict.actor_rollout_init_model")
    ]
    loading = finding(run("out-of-memory", said=[*passed, own]))
    assert "ran out of memory, once" in loading.claim
    assert "no batch has been trained yet" in loading.next[0]
    for later in (
        finding(run("out-of-memory", said=[passed[0], own])),
        finding(run("out-of-memory", {"loss/total": level(1.0)}, said=[*passed, own])),
    ):
        assert "ran out of memory, once" in later.claim
        assert "micro-batches" in later.next[0]


def test_memory_that_ran_out_is_told_by_the_limit_in_force() -> None:
    said = tuple(Event(step=3, kind="stderr", text="OutOfMemoryError", source="train.log") for _ in range(3))
    evidence = replace(evidence_of(limits={"out-of-memory": {"events": 2.0}}), events=said)
    assert finding(BY_ID["out-of-memory"].run(evidence)).limit == 2.0


def test_memory_that_ran_out_beside_the_training_is_a_note() -> None:
    said = [("stdout", "Error loading model: CUDA out of memory. Tried to allocate 1008.00 MiB")]
    for context in ({"exit_record": False}, {"status": "completed"}):
        verdict = run("out-of-memory", {"loss/total": level(1.0)}, said=said, **context)
        assert isinstance(verdict, Healthy)
        assert [note.severity for note in verdict.notes] == [Severity.LOW]


def test_a_warning_about_memory_is_no_out_of_memory() -> None:
    said = [("stdout", "WARNING: lower gpu_memory_utilization to avoid out of memory errors"), ("exit", "exit code 0")]
    assert isinstance(run("out-of-memory", said=said), Healthy)


def test_an_end_that_was_not_planned_is_found() -> None:
    metrics = {"loss/total": level(1.0)}
    crashed = run("run-cut-short", metrics, said=[("stderr", "Traceback (most recent call last):")], max_steps=500)
    assert finding(crashed).severity is Severity.HIGH
    assert finding(run("run-cut-short", metrics, said=[("exit", "exit code 1 after 9 s")])).severity is Severity.HIGH


@pytest.mark.parametrize(("left", "told"), [(0.0, True), (0.4, False)], ids=["drained", "half full"])
def test_an_end_without_examples_names_the_pool_that_drained(left: float, told: bool) -> None:
    pool = {"pool/normal": np.linspace(0.99, left, 60), "pool/easy": np.linspace(0.01, 1 - left, 60)}
    said = [("exception", "ValueError: No environments left with examples.")]
    found = finding(run("run-cut-short", {"loss/total": level(1.0)}, other=pool, said=said, max_steps=500))
    assert ("pool/normal drained" in found.claim) is told
    assert ("pool/easy rose" in found.claim) is told
    assert (found.link is Link.TRAINING_SIGNAL) is told


def test_an_early_last_checkpoint_alone_is_a_note_and_a_finished_run_is_healthy() -> None:
    metrics = {"loss/total": level(1.0)}
    for context in ({"max_steps": 500}, {"status": "running"}, {"status": "running", "max_steps": 500}):
        verdict = run("run-cut-short", metrics, **context)
        assert isinstance(verdict, Healthy)
        assert verdict.notes[0].severity is Severity.LOW
    killed_once = [("exit", "exit code 137")]
    assert isinstance(run("run-cut-short", metrics, said=killed_once, max_steps=100), Healthy)
    assert isinstance(run("run-cut-short", metrics, status="completed"), Healthy)
    assert isinstance(run("run-cut-short", metrics), NotJudged)


@pytest.mark.parametrize("rule", sorted(BY_ID))
def test_without_a_record_nothing_is_judged(rule: str) -> None:
    assert isinstance(run(rule, {"time/step": level(1.0, 9), "mem/peak_gb": level(1.0, 9)}), NotJudged)


def test_the_table_of_ranks_holds_mean_spread_and_score() -> None:
    machines = ranks_of({0: np.full(40, 1.0), 1: np.full(40, 2.0)})
    rows = ranks_table(machines).rows()
    assert rows == [("rank 0", "phase/forward", 1.0, 0.0, 1.0), ("rank 1", "phase/forward", 2.0, 0.0, 0.5)]
    assert ranks_table(None).is_empty()


def judged(tmp_path: Path, write: Mapping[str, str]) -> Diagnosis:
    folder = tmp_path / "run"
    for name, text in write.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return judge_run(RunLocation(run=folder, store=tmp_path / "store", name="run"), Settings()).diagnosis


def test_metrics_by_rank_are_told_by_the_names_of_their_files(tmp_path: Path) -> None:
    slow = {0: 1.0, 1: 1.0, 2: 1.9}
    files = {
        f"metrics_rank{rank}.jsonl": jsonl(
            [
                {"step": step, "timing_s/forward": float(value), "loss": 1.0 / step}
                for step, value in enumerate(level(seconds, 60, seed=rank), start=1)
            ]
        ).decode()
        for rank, seconds in slow.items()
    }
    diagnosis = judged(tmp_path, files)
    found = [one for one in diagnosis.findings if one.id == "stragglers"]
    assert [one.evidence["rank"] for one in found] == ["rank 2"]
    assert set(diagnosis.tables["ranks"]["rank"]) == {"rank 0", "rank 1", "rank 2"}


def test_a_run_of_microsofts_callback_that_was_killed_is_open(tmp_path: Path) -> None:
    header = {"type": "header", "schema_version": "1.0", "run_id": "r", "trainer_type": "grpo", "timestamp": "x"}
    rows = [{"step": step, "timestamp": "x", "metrics": {"grpo_loss": 0.1 / step}} for step in range(1, 41)]
    mortem = {"exit_reason": "oom", "last_step": 40, "traceback": "x\nCUDA out of memory.", "recent_events": []}
    diagnosis = judged(
        tmp_path,
        {"ptt_run/metrics.jsonl": jsonl([header, *rows]).decode(), "ptt_run/postmortem.json": json.dumps(mortem)},
    )
    found = {one.id: one for one in diagnosis.findings}
    assert "run-cut-short" not in found
    assert found["out-of-memory"].onset_step == 40
