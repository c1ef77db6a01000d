"""The reproduction's arms, gallery, world and driver; its training runs need torch and are `make reproduce-small`."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from examples.reproduction import page, run
from examples.reproduction.arms import ARMS, BASELINE, HEALTHY, PROBES, Setting
from examples.reproduction.gallery import GALLERY, SEEDS, STEPS, Case
from examples.reproduction.page import BEGIN, END, Judged, gallery_page, gallery_row, miss_line, replaced, results_page
from examples.reproduction.panels import figures
from examples.reproduction.rewards import activity, is_right, rewards_of, well_formed
from examples.reproduction.run import Job
from examples.reproduction.world import (
    CODES,
    FORMS,
    ITEMS,
    World,
    demonstration,
    draw_task,
    rendered,
    tools_of,
    world_of,
)
from ptt.diagnostics.model import Link
from ptt.diagnostics.rules import RULES

START = Path(run.__file__).with_name("start")
ROOT = Path(run.__file__).parents[2]


def _differs(setting: Setting, base: Setting) -> set[str]:
    return {one.name for one in fields(Setting) if getattr(setting, one.name) != getattr(base, one.name)}


def test_each_arm_differs_from_the_baseline_in_one_thing() -> None:
    arms = {name: setting for name, setting in ARMS.items() if name not in ("baseline", "healthy")}
    assert {name: len(_differs(setting, BASELINE)) for name, setting in arms.items()} == dict.fromkeys(arms, 1)


def test_a_guard_is_one_switch_and_errors_alone_are_the_schema_constrained_arm_with_more_of_them() -> None:
    guards = {name: setting for name, setting in PROBES.items() if name != "errors-only"}
    assert {name: len(_differs(setting, BASELINE)) for name, setting in guards.items()} == dict.fromkeys(guards, 1)
    assert _differs(PROBES["errors-only"], ARMS["schema-constrained"]) == {"failure_rate"}


@pytest.mark.parametrize("name", GALLERY)
def test_a_case_names_a_link_and_findings_that_exist(name: str) -> None:
    case = GALLERY[name]
    assert set(case.findings) <= {rule.id for rule in RULES}
    assert case.link is None or (case.link in set(Link) and case.findings)
    assert case.link is not None or not case.findings
    assert (case.since(STEPS) or 1) in range(1, STEPS + 1)


@pytest.mark.parametrize("name", GALLERY)
def test_a_case_throws_a_switch_that_no_arm_throws(name: str) -> None:
    thrown = {name for setting in ARMS.values() for name in _differs(setting, BASELINE)} - {"learning_rate"}
    assert _differs(GALLERY[name].setting, HEALTHY) - thrown - {"since"}


def test_the_world_answers_in_one_form_or_in_many_and_always_with_the_value() -> None:
    item = ITEMS[0]
    for diverse in (False, True):
        lookup = tools_of(World(diverse=diverse, seed=3))[0]
        answers = {lookup(item) for _ in range(200)}
        assert all(str(CODES[item]) in answer for answer in answers)
        assert (len(answers) > len(FORMS)) if diverse else (answers == {f'{{"value": {CODES[item]}}}'})


def test_two_worlds_of_one_seed_answer_the_same() -> None:
    one, other = (tools_of(World(diverse=True, seed=5))[1] for _ in range(2))
    assert [one(item) for item in ITEMS[:50]] == [other(item) for item in ITEMS[:50]]


@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_not_the_value_twice(form: str) -> None:
    assert form.count("{v}") == 1
    assert "417" in rendered(form, "bab", 417, random.Random(1))


def test_failures_rise_after_the_switch_and_only_for_the_tool_it_names() -> None:
    setting = replace(HEALTHY, late_failure_rate=1.0, failing_tool="stock", since=0.5)
    world = world_of(setting, seed=1, steps=100)
    lookup, stock, _ = tools_of(world)
    world.step = 49
    assert lookup(ITEMS[0])
    assert stock(ITEMS[0])
    world.step = 99
    assert lookup(ITEMS[0])
    with pytest.raises(TimeoutError):
        stock(ITEMS[0])


def test_tools_lie_after_the_switch_in_the_usual_form() -> None:
    world = world_of(replace(HEALTHY, lying_tools=True, since=0.5), seed=1, steps=10)
    told = {}
    for world.step in (4, 5):
        lookup, stock, add = tools_of(world)
        told[world.step] = [lookup(item) == f'{{"value": {CODES[item]}}}' for item in ITEMS[:50]]
        assert add(2, 3) == '{"value": 5}'
        assert 10 <= json.loads(stock(ITEMS[0]))["value"] <= 99
        with pytest.raises(KeyError):
            lookup("nothing")
    assert all(told[4])
    assert sum(told[5]) < 5


def test_half_the_items_have_no_value_from_the_start() -> None:
    case = GALLERY["half-unanswerable"]
    lookup = tools_of(world_of(case.setting, seed=1, steps=10))[0]
    unknown = [item for item in ITEMS if lookup(item) == '{"value": null}']
    assert len(unknown) == len(ITEMS) / 2
    assert case.since(10) is None


def test_demonstrations_with_tools_end_with_the_right_number() -> None:
    rng = random.Random(1)
    for _ in range(300):
        messages = demonstration(rng)
        if any(message["role"] == "tool" for message in messages):
            assert messages[-2]["content"].count(messages[-1]["content"].rstrip(".").split()[-1]) >= 1
        assert well_formed([messages[1:]]) == [0.1]


def test_the_reward_pays_for_the_last_number_alone() -> None:
    asked = draw_task(random.Random(2))
    assert is_right([{"role": "assistant", "content": f"12, no: it is {asked.answer}."}], asked.answer)
    assert not is_right([{"role": "assistant", "content": f"{asked.answer} or 12"}], asked.answer)
    assert not is_right([{"role": "tool", "content": str(asked.answer)}], asked.answer)


def test_the_reward_of_the_gallery_changes_at_its_step() -> None:
    setting = replace(HEALTHY, reward_factor=100.0, since=0.5)
    world = world_of(setting, seed=1, steps=10)
    correct = rewards_of(setting, world, first_step=6)[0][0]
    right = [[{"role": "assistant", "content": "It is 12."}]]
    paid = {}
    for world.step in (4, 5):
        paid[world.step + 1] = correct(completions=right, answer=[12])
    assert paid == {5: [1.0], 6: [100.0]}
    assert rewards_of(replace(HEALTHY, reward="activity"), world, 1)[1] == [1.0, 0.0, 0.0]
    assert activity(right) == [pytest.approx(0.15)]


def test_the_weights_are_small() -> None:
    assert sum(path.stat().st_size for path in START.iterdir()) < 1_000_000


class Launcher:
    """Stands for the processes: writes what a finished run leaves, and dies where it should."""

    def __init__(self, codes: Sequence[int] = ()) -> None:
        self.codes = list(codes)
        self.commands: list[list[str]] = []

    def __call__(self, command: Sequence[str], log: Path) -> int:
        self.commands.append(list(command))
        code = self.codes.pop(0) if self.codes else 0
        if "diagnose" in command:
            report = Path(command[command.index("--out") + 1])
            report.mkdir(parents=True)
            (report / "findings.json").write_text(json.dumps(_findings()))
        else:
            Path(next(part for part in command if part.startswith("--out="))[6:]).mkdir(exist_ok=True)
            with log.open("a") as lines:
                lines.write('{"steps": 3, "seconds": 1.0}\n' if code == 0 else "Traceback\n")
        return code


STAND_IN = """
import sys
from examples.reproduction import run
run.train_command = lambda *_, **__: [sys.executable, "-c", "import os, time; print(os.getpid()); time.sleep(60)"]
sys.exit(run.command(sys.argv[1:]))
"""


def _pids(out: Path) -> list[int]:
    return [int(text) for path in sorted(out.glob("logs/*.log")) if (text := path.read_text().strip())]


@pytest.mark.parametrize("kind", ["--small", "--gallery"])
def test_one_interrupt_ends_the_command_and_all_that_it_started(tmp_path: Path, kind: str) -> None:
    command = [sys.executable, "-c", STAND_IN, kind, "--out", str(tmp_path)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True)
    until = time.monotonic() + 60
    while len(_pids(tmp_path)) < run.AT_ONCE and time.monotonic() < until:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    said = process.communicate(timeout=30)[1]
    assert process.returncode == 130, said
    assert said == "\nStopped. The same command resumes: finished runs are kept.\n"
    assert len(_pids(tmp_path)) == run.AT_ONCE  # no further run has begun
    assert not any((tmp_path / "finished").iterdir())  # nor does a planted fault's run pass for one that died of it
    for pid in _pids(tmp_path):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_process_that_will_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "GRACE", 0.2)
    launch, log = run.Launcher(), tmp_path / "log"
    deaf = "trap '' TERM; echo up; while :; do sleep 0.05; done"
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(launch, ["sh", "-c", deaf], log)
        while not (log.exists() and log.read_text()):
            time.sleep(0.01)
        launch.stop()
        with pytest.raises(SystemExit):
            result.result(timeout=10)
    with pytest.raises(SystemExit):
        launch(["true"], log)


def _findings(link: str | None = None, severity: str = "high") -> dict[str, Any]:
    found = [] if link is None else [{"id": "a-rule", "severity": severity, "link": link, "onset_step": 7}]
    signature = {"status": "not_found", "reason": "p95 < 1", "onset_step": None, "lead_steps": None}
    return {"findings": found, "verdict": {"first_broken_link": link, "headline": "-"}, "signature": signature}


JOB = Job(name="baseline", seed=1, steps=3)


def test_a_finished_run_is_not_trained_again(tmp_path: Path) -> None:
    start = Launcher()
    run.train(JOB, tmp_path, start)
    run.train(JOB, tmp_path, start)
    assert len(start.commands) == 1
    assert json.loads((tmp_path / "finished" / "baseline-s1.json").read_text())["training"]["seconds"] == 1.0
    run.train(replace(JOB, steps=4), tmp_path, start)
    assert len(start.commands) == 2


def test_a_run_that_was_stopped_starts_again_from_nothing(tmp_path: Path) -> None:
    left = tmp_path / "runs" / JOB.label / "tokens"
    left.mkdir(parents=True)
    run.train(JOB, tmp_path, Launcher())
    assert not left.exists()


def test_a_run_of_an_arm_that_dies_stops_the_experiment(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="baseline-s1 failed with code 1"):
        run.train(JOB, tmp_path, Launcher([1]))
    assert not list((tmp_path / "finished").iterdir())


def test_a_case_may_die_of_its_fault(tmp_path: Path) -> None:
    run.train(Job(name="nan", seed=1, steps=3), tmp_path, Launcher([1]))
    assert json.loads((tmp_path / "finished" / "nan-s1.json").read_text())["code"] == 1


def test_a_killed_run_is_resumed_once(tmp_path: Path) -> None:
    start = Launcher([-9, 0])
    run.train(Job(name="killed-and-resumed", seed=1, steps=3), tmp_path, start)
    assert ["--resume" in command for command in start.commands] == [False, True]
    with pytest.raises(SystemExit):
        run.train(Job(name="killed-and-resumed", seed=2, steps=3), tmp_path, Launcher([-9, 1]))


def test_a_case_of_two_ranks_runs_under_the_launcher_of_torch() -> None:
    command = run.train_command(Job(name="bad-rank", seed=1, steps=3), Path("out"))
    assert command[2:5] == ["torch.distributed.run", "--standalone", "--nproc_per_node=2"]


def test_all_arms_and_seeds_are_judged_and_compared_by_groups(tmp_path: Path) -> None:
    jobs = run.arm_jobs(3)
    judged = run.train_and_judge(jobs, tmp_path, Launcher())
    assert {(one.name, one.seed) for one in judged} == {(name, seed) for name in ARMS for seed in (1, 2, 3)}
    command = run.compare_command(jobs, tmp_path)
    groups = [command[place + 1] for place, part in enumerate(command) if part == "--group"]
    assert [group.split("=")[0] for group in groups] == list(ARMS)
    assert all(len(group.split(",")) == 3 for group in groups)


def _comparison(**other: object) -> dict[str, object]:
    tail = {"arm": "baseline", "axis": "steps", "slice": "post_tool", "window": "late", "q": "p95"}
    return {
        "headline": "a < b",
        "sentences": ["one & two"],
        "arms": [{"name": "baseline", "runs": [{"steps": {"first": 1, "last": 3}}]}],
        "windows": [tail | {"value": 4.9, "lo": 3.04, "hi": 7.9}],
        "differences": [tail | {"arm": "kl-penalty", "ratio": 1.56, "lo": 1.26, "hi": 1.93}],
        "aggregates": [
            {"arm": "baseline", "metric": "reward/mean", "window": "late", "mean": 0.33, "lo": 0.3, "hi": 0.36}
        ],
        **other,
    }  # fmt: skip


def _tables() -> dict[str, pl.DataFrame]:
    steps = {"step_mid": [1.0, 2.0, 3.0], "step_last": [1, 2, 3]}
    tail = {**steps, "q": [0.95] * 3, "value": [0.5, 1.0, 5.5], "lo": [0.4, 0.9, 5.0], "hi": [0.6, 1.1, float("nan")]}
    cdf = {"x": [0.1, 1.0, 5.0], "cdf": [0.5, 0.75, 1.0], "window": ["late"] * 3}
    ess = {**steps, "ess_fraction": [0.9, 0.1, None], "level": ["token"] * 3, "weights": ["policy/ref"] * 3}
    tables = {"tail_emergence": tail, "ecdf": cdf, "ess": ess}
    return {name: pl.DataFrame(columns | {"slice": ["post_tool"] * 3}) for name, columns in tables.items()}


def test_the_page_draws_every_figure_of_every_run_and_escapes_what_it_is_told() -> None:
    judged = [Judged(name=name, seed=seed, findings=_findings(), tables=_tables()) for name in ARMS for seed in (1, 2)]
    text = results_page(judged, _comparison())
    assert text.count('role="img"') == 3 * len(judged)
    assert text.count("Report of ") == len(judged)
    assert "a &lt; b" in text
    assert "one &amp; two" in text
    assert "<script" not in text


def test_the_page_says_in_words_what_a_panel_shows() -> None:
    text = results_page([Judged(name="baseline", seed=1, findings=_findings(), tables=_tables())], _comparison())
    assert "after tools p95 from 0.5 to 5.5 nats" in text
    assert "after tools late: 25% above 1 nat" in text
    assert "after tools from 90% to 10%" in text
    assert "nan" not in text


def test_a_run_without_tables_is_on_the_page_without_curves() -> None:
    judged = [Judged(name="baseline", seed=1, findings=_findings())]
    text = results_page(judged, _comparison(windows=[], differences=[], aggregates=[]))
    assert text.count("no data") == 6  # each panel says so, to the eye and to the ear
    assert "NaN" not in text


def test_a_run_with_one_window_is_drawn_as_a_dot() -> None:
    tables = {name: table.head(1) for name, table in _tables().items()}
    text = results_page([Judged(name="baseline", seed=1, findings=_findings(), tables=tables)], _comparison())
    assert text.count("<circle") == 3


def test_panels_of_a_figure_share_their_axes() -> None:
    low, high = _tables(), _tables()
    high["tail_emergence"] = high["tail_emergence"].with_columns(pl.col("value") * 2)
    tails = figures([(low, None), (high, 2)], steps=3)[0]
    assert (tails.y.low, tails.y.high) == (0, 12)
    assert [panel.upright for panel in tails.panels] == [None, 2]
    assert [len(panel.curves) for panel in tails.panels] == [1, 1]


@pytest.mark.parametrize(
    ("name", "said", "severity", "right"),
    [
        ("nan", "numerics", "high", True),
        ("nan", "reward", "high", False),
        ("nan", None, "high", False),
        ("bf16-sampler", None, "high", True),
        ("bf16-sampler", "data_freshness", "medium", False),
        ("bf16-sampler", "data_freshness", "low", True),
    ],
)
def test_a_verdict_is_right_where_it_names_the_planted_link_and_accuses_nothing_benign(
    name: str, said: str | None, severity: str, right: bool
) -> None:
    text = gallery_page([Judged(name=name, seed=1, findings=_findings(said, severity))], STEPS)
    assert f"{int(right)} of 1 verdicts" in text
    assert ("Missed:" in text) is not right


def test_a_row_says_how_far_the_date_is_from_what_was_planted() -> None:
    judged = Judged(name="nan", seed=11, findings=_findings("numerics"))
    assert (
        gallery_row(judged, STEPS) == "| `nan` | 11 | numerics, step 61 | numerics: a-rule | yes | step 7, 54 early |"
    )


def test_a_miss_says_where_the_right_finding_stands() -> None:
    findings = _findings("policy_update")
    findings["findings"] += [{"id": "tool-failures", "severity": "low", "link": "environment", "onset_step": 85}]
    line = miss_line(Judged(name="bad-tool", seed=11, findings=findings))
    assert line == (
        "- `bad-tool` (11): said `a-rule`; `tool-failures` is found at low severity, since step 85. "
        "Planted: one tool of three fails nine times in ten."
    )


def test_the_command_writes_the_page_and_the_table_of_the_docs_from_reports(tmp_path: Path) -> None:
    report = tmp_path / "reports" / "nan-s11"
    report.mkdir(parents=True)
    (report / "findings.json").write_text(json.dumps(_findings("numerics")))
    docs = tmp_path / "page.md"
    docs.write_text(f"before\n\n{BEGIN}\nold\n{END}\nafter\n")
    for _ in range(2):
        page.main([str(tmp_path), "--docs", str(docs)])
        text = docs.read_text()
        assert text.startswith(f"before\n\n{BEGIN}\n\n1 of 1 verdicts")
        assert text.endswith(f"{END}\nafter\n")
        assert "old" not in text
        assert "Missed:" not in text  # the docs explain each miss
    assert (tmp_path / "index.md").read_text().startswith("# The failure gallery")
    docs.write_text("no place")
    with pytest.raises(SystemExit, match="no place for the table"):
        page.main([str(tmp_path), "--docs", str(docs)])


def test_the_docs_have_a_place_for_the_table() -> None:
    assert replaced((ROOT / "docs" / "reproduction.md").read_text(), "x").count(BEGIN) == 1


def test_the_gallery_writes_its_truth_for_others_to_score() -> None:
    truths = json.loads(json.dumps(run.truths(STEPS)))
    assert set(truths) == set(GALLERY)
    assert truths["nan"]["since"] == STEPS // 2 + 1
    assert truths["killed-and-resumed"]["since"] is None
    assert len(run.gallery_jobs()) == len(GALLERY) * len(SEEDS)
    assert all(isinstance(case, Case) for case in GALLERY.values())
