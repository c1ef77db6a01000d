"""Several runs in a folder are several runs; what is a part of one run, or goes on from it, is not."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import repeatable
from hypothesis import given, settings
from hypothesis import strategies as st
from made_runs import (
    pack,
    rows_of,
    write_console,
    write_events,
    write_jsonl,
    write_mlflow,
    write_state,
    write_tokens,
    write_wandb,
)
from parser_samples import make_samples

from ptt.diagnostics.store.run_places import History, Relation, owners_before, relate_histories
from ptt.diagnostics.store.sibling_runs import find_runs

ROOT = Path(__file__).parents[2]
Make = Callable[[Path], object]
HEX = ("0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210")


def runs_in(folder: Path) -> list[str]:
    return [run.rel for run in find_runs(folder).runs]


def states(*names: str) -> Make:
    def make(home: Path) -> None:
        for seed, name in enumerate(names):
            write_state(home / name, rows_of(seed))

    return make


def seeds_with_tokens(home: Path) -> None:
    for seed in (1, 2, 3):
        write_tokens(home / f"seed_{seed}" / "tokens", range(1, 6), seed=seed)


def sweep(home: Path) -> None:
    for run in ("a1b2c3d4", "e5f6a7b8", "c9d0e1f2"):
        write_wandb(home, run, rows_of(ord(run[0])))


def exported_sweep(home: Path) -> None:
    sweep(home)
    for folder in list((home / "wandb").iterdir()):
        shutil.move(folder / f"run-{folder.name[-8:]}.wandb", home)
    shutil.rmtree(home / "wandb")


def event_starts(home: Path) -> None:
    for seed, name in enumerate(("Jan01_10-00-00_host", "Jan02_10-00-00_host")):
        write_events(home / "runs" / name, rows_of(seed))


def lightning_versions(home: Path) -> None:
    for seed in (0, 1):
        write_events(home / "lightning_logs" / f"version_{seed}", rows_of(seed))


def experiments(home: Path) -> None:
    for seed, run in enumerate(HEX):
        write_mlflow(home, run, rows_of(seed))


def multirun(home: Path) -> None:
    for job in (0, 1, 2):
        folder = home / "multirun" / "2026-01-01" / "10-00-00" / str(job)
        (folder / ".hydra").mkdir(parents=True)
        (folder / ".hydra" / "config.yaml").write_text(f"seed: {job}\n", encoding="utf-8")
        write_jsonl(folder / "metrics.jsonl", rows_of(job))


def console_arms(home: Path) -> None:
    for seed, arm in enumerate(("baseline", "variant")):
        write_console(home / arm / "train.log", rows_of(seed))


def archives(home: Path) -> None:
    for seed in (1, 2):
        pack(write_state(home / f"seed_{seed}", rows_of(seed)))
        shutil.rmtree(home / f"seed_{seed}")


def only_checkpoints(home: Path) -> None:
    for seed in (1, 2):
        for step in (10, 30):
            write_state(home / f"run-{seed}" / f"checkpoint-{step}", rows_of(seed, last=step))


def iterative_rounds(home: Path) -> None:
    for number in (1, 2):
        write_state(home / f"round_{number}", rows_of(number))


def two_writers(home: Path) -> None:
    write_state(home / "first_try", rows_of(1))
    write_jsonl(home / "second_try" / "metrics.jsonl", [{**row, "loss": row["loss"] + 5} for row in rows_of(2)])


def copies(home: Path) -> None:
    for name in ("mine", "theirs"):
        write_tokens(write_state(home / name, rows_of(1)) / "tokens", (1, 2, 3))


def runs_of_unlike_writers(home: Path) -> None:
    write_state(home / "first", rows_of(1))
    write_jsonl(home / "second" / "metrics.jsonl", [{"step": step, "return": step % 7} for step in range(1, 20)])
    write_tokens(home / "third" / "tokens", (1, 2, 3))
    write_console(home / "fourth" / "train.log", [])
    write_wandb(home / "fifth", "a1b2c3d4", rows_of(5, first=100, last=120))


def copies_of_a_crash(home: Path) -> None:
    """A console log on which nothing was logged before the end."""
    for name in ("mine", "theirs"):
        (home / name).mkdir()
        (home / name / "train.log").write_text("step:1 - actor/loss:0.5\n" * 2, encoding="utf-8")


def copies_with_restarts(home: Path) -> None:
    for name in ("mine", "theirs"):
        write_events(home / name / "logs", [], stamp=1_600_000_000)
        write_events(home / name / "logs", rows_of(1))
        write_state(home / name / "results" / "checkpoint-30", rows_of(1))


def one_without_a_state(home: Path) -> None:
    """A run that died before it could save still has what the other has beside its state."""
    for name in ("lived", "died"):
        write_events(home / name / "runs" / "Jan01_10-00-00_host", rows_of(len(name)))
        write_tokens(home / name / "tokens", (1, 2, 3), seed=len(name))
    write_state(home / "lived", rows_of(5))


def logs_by_seed(home: Path) -> None:
    """A summary of them all lies beside them."""
    for seed in (1, 2, 3):
        write_jsonl(home / f"grpo_seed{seed}.jsonl", rows_of(seed))
    write_jsonl(home / "all_seeds.jsonl", rows_of(9))


def event_files_in_one_folder(home: Path) -> None:
    for start in range(3):
        write_events(home / "logs", rows_of(start), stamp=1_700_000_000 + 3600 * start)


def arms_in_one_folder(home: Path) -> None:
    for beta in (1, 3, 5):
        write_jsonl(home / f"dpo_beta0.{beta}.jsonl", rows_of(beta, every=5))


def named_logs_in_one_folder(home: Path) -> None:
    for seed, name in enumerate(("baseline", "clipped", "no_std")):
        write_jsonl(home / f"{name}.jsonl", rows_of(seed))


SEVERAL: dict[str, tuple[Make, int]] = {
    "event files of three starts in one folder": (event_files_in_one_folder, 3),
    "logs of three settings in one folder": (arms_in_one_folder, 3),
    "logs by name in one folder": (named_logs_in_one_folder, 3),
    "seeds with a trainer state each": (states("seed_1", "seed_2", "seed_3"), 3),
    "seeds below an experiment": (states("experiment/seed_1", "experiment/seed_2"), 2),
    "arms with seeds": (states("a/seed_1", "a/seed_2", "b/seed_1", "b/seed_2"), 4),
    "runs below runs/": (states("runs/one", "runs/two"), 2),
    "recorders' folders": (seeds_with_tokens, 3),
    "runs of W&B": (sweep, 3),
    "logs of W&B side by side": (exported_sweep, 3),
    "starts of TensorBoard": (event_starts, 2),
    "versions of Lightning": (lightning_versions, 2),
    "runs of MLflow": (experiments, 2),
    "jobs of Hydra": (multirun, 3),
    "console logs of two arms": (console_arms, 2),
    "archives": (archives, 2),
    "runs that left checkpoints alone": (only_checkpoints, 2),
    "rounds that each train from the start": (iterative_rounds, 2),
    "runs of two writers": (two_writers, 2),
    "copies": (copies, 2),
    "logs by seed": (logs_by_seed, 3),
    "logs by seed in a folder of logs": (lambda home: logs_by_seed(home / "logs"), 3),
    "runs of unlike writers": (runs_of_unlike_writers, 5),
    "copies of a crash": (copies_of_a_crash, 2),
    "copies with restarts": (copies_with_restarts, 2),
    "one without a state": (one_without_a_state, 2),
    "stages named like parts": (states("lora/sft", "lora/reward", "lora/dpo"), 3),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_several_runs_are_several(name: str, tmp_path: Path) -> None:
    make, count = SEVERAL[name]
    make(tmp_path)
    found = find_runs(tmp_path)
    assert len(found.runs) == count, found
    assert found.several
    assert found.reason
    assert all(run.path.exists() and run.mark for run in found.runs)


def event_files_of_ranks(home: Path) -> None:
    for rank in range(3):
        write_events(home / "logs", rows_of(rank), stamp=1_700_000_000 + rank)


def event_files_of_a_resumed_run(home: Path) -> None:
    write_events(home / "logs", rows_of(1, last=20), stamp=1_700_000_000)
    write_events(home / "logs", rows_of(2, first=16, last=30), stamp=1_700_003_600)


def event_files_of_a_start_given_up(home: Path) -> None:
    write_events(home / "logs", rows_of(1, last=2), stamp=1_700_000_000)
    write_events(home / "logs", rows_of(2), stamp=1_700_003_600)


def logs_of_splits(home: Path) -> None:
    for seed, name in enumerate(("train_log", "val_log", "rank_0", "rank_1", "0.monitor", "1.monitor")):
        write_jsonl(home / f"{name}.jsonl", rows_of(seed))


def checkpoints(home: Path) -> None:
    for step in (10, 20, 30):
        write_state(home / f"checkpoint-{step}", rows_of(1, last=step))


def checkpoints_by_other_names(home: Path) -> None:
    for name, last in (("after_warmup", 10), ("midway", 20), ("end", 30)):
        write_state(home / name, rows_of(1, last=last))


def resumed_segments(home: Path) -> None:
    write_jsonl(home / "part_a" / "metrics.jsonl", rows_of(1, last=20))
    write_jsonl(home / "part_b" / "metrics.jsonl", rows_of(2, first=15, last=40))


def resumed_states(home: Path) -> None:
    """A state that was resumed from a checkpoint of the other holds the other's history up to there."""
    write_state(home / "before", rows_of(1, last=25))
    write_state(home / "after", [*rows_of(1, last=20), *rows_of(2, first=21, last=40)])


def resumed_tokens(home: Path) -> None:
    write_tokens(home / "first" / "tokens", range(1, 20))
    write_tokens(home / "second" / "tokens", range(15, 40))


def resumed_tokens_in_two_formats(home: Path) -> None:
    for part, steps in (("first", range(1, 20)), ("second", range(15, 40))):
        for form in ("parquet", "csv"):
            write_tokens(home / part / "logprobs" / form, steps)


def resumed_wandb(home: Path) -> None:
    write_wandb(home, "a1b2c3d4", rows_of(1, last=20))
    write_wandb(home, "a1b2c3d4", rows_of(1, first=15, last=40), stamp="20260102_120000")


def restarted_wandb(home: Path) -> None:
    write_wandb(home, "a1b2c3d4", rows_of(1, last=20))
    write_wandb(home, "e5f6a7b8", rows_of(2, first=21, last=40))


def restarted_events(home: Path) -> None:
    write_events(home / "runs" / "Jan01_10-00-00_host", rows_of(1, last=20))
    write_events(home / "runs" / "Jan02_10-00-00_host", rows_of(1, first=21, last=40))


def ranks(home: Path) -> None:
    for rank in (0, 1, 2):
        write_jsonl(home / f"rank_{rank}" / "metrics.jsonl", rows_of(rank))
        write_tokens(home / f"rank_{rank}" / "tokens", (1, 2, 3), seed=rank)


def nodes(home: Path) -> None:
    for node in ("gpu-node-17", "gpu-node-18"):
        write_console(home / node / "train.log", rows_of(int(node[-2:])))


def trainer_output(home: Path) -> None:
    write_state(home, rows_of(1))
    checkpoints(home)
    write_events(home / "runs" / "Jan01_10-00-00_host", rows_of(2, last=5))
    write_events(home / "runs" / "Jan02_10-00-00_host", rows_of(1))
    write_wandb(home, "a1b2c3d4", rows_of(1))
    write_wandb(home, "e5f6a7b8", rows_of(2, last=4))
    write_jsonl(home / "ptt_run" / "metrics.jsonl", rows_of(1))


def train_and_eval(home: Path) -> None:
    write_events(home / "train", rows_of(1))
    write_events(home / "eval", rows_of(2))


def added_scalars(home: Path) -> None:
    write_events(home, rows_of(1))
    for seed, name in enumerate(("loss_chosen", "loss_rejected")):
        write_events(home / name, rows_of(seed))


def a_writer_a_metric(home: Path) -> None:
    for name in ("loss", "reward", "grad_norm"):
        write_events(home / f"of_{name}", [{"step": row["step"], name: row[name]} for row in rows_of(1)])


def dumps_by_step(home: Path) -> None:
    for step in (1, 2, 3):
        write_tokens(home / "token_exports" / f"step_{step}", (step,))


def dumps_in_two_formats(home: Path) -> None:
    write_tokens(home / "logprobs" / "parquet", (1, 2, 3))
    write_tokens(home / "logprobs" / "npz", (1, 2, 3))


def two_dumps(home: Path) -> None:
    write_tokens(home / "rollout_dump", (1, 2, 3))
    write_tokens(home / "training_dump", (1, 2, 3), seed=1)


def log_beside_tracker(home: Path) -> None:
    """A script that was started twice, and whose metrics file is of the second start."""
    write_jsonl(home / "metrics.jsonl", rows_of(1))
    write_wandb(home, "a1b2c3d4", rows_of(2, last=9))
    write_wandb(home, "e5f6a7b8", rows_of(1))


def tries_without_a_metric(home: Path) -> None:
    write_wandb(home, "a1b2c3d4", [])
    write_wandb(home, "e5f6a7b8", rows_of(1))


def settings_of_runs(home: Path) -> None:
    for run in HEX:
        folder = home / "mlruns" / "0" / run / "params"
        folder.mkdir(parents=True)
        (folder / "learning_rate").write_text("1e-5", encoding="utf-8")


def parts_of_a_framework(home: Path) -> None:
    for seed, name in enumerate(("trainer", "orchestrator", "inference")):
        write_console(home / "outputs" / name / "stdout.log", rows_of(seed))


def tracker_beside_output(home: Path) -> None:
    write_state(home / "my_model", rows_of(1))
    write_wandb(home, "a1b2c3d4", rows_of(1))


def best_and_last(home: Path) -> None:
    write_state(home / "best", rows_of(1, last=20))
    write_state(home / "last", rows_of(1))


def logs_beside_results(home: Path) -> None:
    """The log folder also holds events of a start that failed."""
    write_events(home / "logs", rows_of(2, last=3))
    write_events(home / "logs", rows_of(1))
    write_state(home / "results" / "checkpoint-30", rows_of(1))


def logs_of_parts(home: Path) -> None:
    for seed, name in enumerate(("rollout", "actor", "rank_0", "rank_1")):
        write_jsonl(home / f"{name}.jsonl", rows_of(seed))


def logs_of_a_resumed_run(home: Path) -> None:
    write_jsonl(home / "run_1.jsonl", rows_of(1, last=20))
    write_jsonl(home / "run_2.jsonl", rows_of(2, first=15, last=40))


def one_archive(home: Path) -> None:
    pack(write_state(home / "seed_1", rows_of(1)))
    shutil.rmtree(home / "seed_1")


ONE: dict[str, Make] = {
    make.__name__: make
    for make in (
        checkpoints,
        checkpoints_by_other_names,
        resumed_segments,
        resumed_states,
        resumed_tokens,
        resumed_tokens_in_two_formats,
        resumed_wandb,
        restarted_wandb,
        restarted_events,
        ranks,
        nodes,
        trainer_output,
        train_and_eval,
        added_scalars,
        a_writer_a_metric,
        dumps_by_step,
        dumps_in_two_formats,
        two_dumps,
        log_beside_tracker,
        tries_without_a_metric,
        settings_of_runs,
        parts_of_a_framework,
        tracker_beside_output,
        best_and_last,
        logs_beside_results,
        logs_of_parts,
        logs_of_a_resumed_run,
        event_files_of_ranks,
        event_files_of_a_resumed_run,
        event_files_of_a_start_given_up,
        logs_of_splits,
        one_archive,
    )
}


@pytest.mark.parametrize("name", ONE)
def test_what_is_one_run_stays_one(name: str, tmp_path: Path) -> None:
    ONE[name](tmp_path)
    assert runs_in(tmp_path) == []


@pytest.mark.parametrize("name", sorted(set(ONE) - {"one_archive", "settings_of_runs"}))
def test_each_shape_of_one_run_is_one_of_several(name: str, tmp_path: Path) -> None:
    ONE[name](tmp_path / "exp" / "this")
    states("exp/that", "exp/other")(tmp_path)
    found = runs_in(tmp_path)
    assert {"exp/that", "exp/other"} < set(found), found
    assert [run for run in found if run.startswith("exp/this")] == ["exp/this"]


SAMPLES = sorted(path for path in (ROOT / "sample_logs").iterdir() if path.is_dir())
FIXTURES = sorted(path for path in (ROOT / "tests" / "fixtures").glob("*/*") if path.is_dir())


@pytest.mark.parametrize("run", [*SAMPLES, *FIXTURES], ids=lambda run: run.name)
def test_every_sample_is_one_run(run: Path) -> None:
    assert runs_in(run) == []


def test_every_sample_of_a_parser_is_one_run(tmp_path: Path) -> None:
    for number, (rel, path) in enumerate(make_samples(tmp_path / "made").items()):
        target = tmp_path / "runs" / str(number) / rel
        target.parent.mkdir(parents=True)
        shutil.copy2(path, target)
        assert runs_in(tmp_path / "runs" / str(number)) == [], rel


def test_samples_side_by_side_are_as_many_runs() -> None:
    assert runs_in(ROOT / "sample_logs") == [path.name for path in SAMPLES]


def test_a_sweep_whose_trackers_logged_the_outputs_is_not_judged_twice(tmp_path: Path) -> None:
    states("seed_0", "seed_1")(tmp_path)
    for seed, run in enumerate(("a1b2c3d4", "e5f6a7b8")):
        write_wandb(tmp_path, run, rows_of(seed))
    write_wandb(tmp_path, "c9d0e1f2", rows_of(7))
    found = find_runs(tmp_path)
    assert [run.rel for run in found.runs] == ["seed_0", "seed_1", "wandb/run-20260101_120000-c9d0e1f2"]
    assert sum("same run" in note for note in found.notes) == 2


def test_which_logs_repeat_another_does_not_depend_on_how_many_there_are(tmp_path: Path) -> None:
    """Rounded, cut off or with other steps between, a log is told as another's; with other values it is not."""
    for seed in range(40):
        write_jsonl(tmp_path / f"seed_{seed}.jsonl", rows_of(seed, last=60))
    rounded = [{name: round(value, 6) for name, value in row.items()} for row in rows_of(17, last=60)]
    write_jsonl(tmp_path / "seed_100.jsonl", rounded)
    write_jsonl(tmp_path / "seed_101.jsonl", rounded[20:45])
    write_jsonl(tmp_path / "seed_102.jsonl", [*rounded[:50:7], *rows_of(99, first=200, last=230)])
    write_jsonl(tmp_path / "seed_103.jsonl", [*rounded[:30], *rows_of(99, first=31, last=60)])
    found = find_runs(tmp_path)
    assert [run.rel for run in found.runs] == [*(f"seed_{seed}.jsonl" for seed in range(40)), "seed_103.jsonl"]
    assert [note for note in found.notes if "same run" in note] == [
        f"Not judged again, because seed_17.jsonl is the same run: seed_{number}.jsonl." for number in (100, 101, 102)
    ]


@given(st.data())
@settings(repeatable, max_examples=100)
def test_no_history_that_agrees_is_left_out(data: st.DataObject) -> None:
    values = st.sampled_from([0.0, 1e-7, 1.0, 1.005, 1.0101, 2.0, -1.0, math.nan, math.inf])
    series = st.dictionaries(st.integers(-3, 12), values, max_size=12)
    drawn = st.builds(History, values=st.dictionaries(st.sampled_from("abc"), series, max_size=3))
    histories = data.draw(st.lists(drawn, min_size=2, max_size=6))
    whole = [History.joined([history]) for history in histories]
    before = owners_before([*enumerate(whole)])
    for number, history in enumerate(whole):
        related = {
            other for other in range(number)
            if relate_histories(history, whole[other], strong=False, exact=False) is not Relation.UNRELATED
        }  # fmt: skip
        assert related <= before[number]
        assert all(other < number for other in before[number])


def test_what_belongs_to_no_run_is_reported(tmp_path: Path) -> None:
    states("seed_1", "seed_2")(tmp_path)
    (tmp_path / "README.md").write_text("two seeds", encoding="utf-8")
    (tmp_path / "summary.csv").write_text("seed,reward\n1,0.5\n2,0.6\n", encoding="utf-8")
    (tmp_path / "sketches").mkdir()
    found = find_runs(tmp_path)
    assert [run.rel for run in found.runs] == ["seed_1", "seed_2"]
    assert found.notes == ("Not part of any run: README.md, sketches/, summary.csv.",)


def test_a_resumed_run_among_others_is_said_to_be_one(tmp_path: Path) -> None:
    resumed_wandb(tmp_path / "a")
    write_wandb(tmp_path / "a", "e5f6a7b8", rows_of(4))
    found = find_runs(tmp_path)
    assert len(found.runs) == 3
    assert found.notes == (
        "W&B run a1b2c3d4 was resumed; each part is judged separately: "
        "a/wandb/run-20260101_120000-a1b2c3d4, a/wandb/run-20260102_120000-a1b2c3d4.",
        *found.notes[1:],
    )


def test_what_was_written_of_runs_is_no_run(tmp_path: Path) -> None:
    states("seed_1", "seed_2")(tmp_path)
    for name in ("ptt-report/seed_1", "mine/seed_2"):
        write_state(tmp_path / name / "store", rows_of(3))
        for file in ("findings.json", "report.html"):
            (tmp_path / name / file).write_text("{}", encoding="utf-8")
    assert runs_in(tmp_path) == ["seed_1", "seed_2"]


def test_the_reason_names_two_runs_and_what_tells_them_apart(tmp_path: Path) -> None:
    states("b", "a")(tmp_path)
    assert find_runs(tmp_path).reason == "a and b each have trainer_state.json from the start on, with different values"


def test_links_and_closed_folders_are_no_runs(tmp_path: Path) -> None:
    states("a", "b")(tmp_path / "real")
    (tmp_path / "view").mkdir()
    (tmp_path / "view" / "a").symlink_to(tmp_path / "real" / "a")
    (tmp_path / "view" / "b").symlink_to(tmp_path / "real" / "b")
    assert runs_in(tmp_path / "view") == []
    assert runs_in(tmp_path / "absent") == []
    assert runs_in(tmp_path / "real" / "a" / "trainer_state.json") == []
