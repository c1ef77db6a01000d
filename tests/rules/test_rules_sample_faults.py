"""Faults that single saved samples show, lines of the console about samples, and what a run cost since then."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rule_cases import findings_of
from slow_cases import first_fast

import ptt
from ptt.diagnostics.evidence.excursions import ENGINES
from ptt.diagnostics.model import Finding
from ptt.diagnostics.parsers.io.answer_texts import is_right
from ptt.diagnostics.parsers.io.console_incidents import QUEUES, SampleLines
from ptt.diagnostics.parsers.io.result_outcomes import result_columns

STEPS = 60
Row = Mapping[str, Any]


def diagnosed(folder: Path, files: Mapping[str, Iterable[Row] | str], more: Callable[[int], Row] | None = None) -> Any:
    """Judge a run of STEPS logged steps, a minute each, with these files beside its log."""
    generator = np.random.default_rng(5)
    rows = [
        {"step": step, "time": 1.7e9 + 60.0 * step, "reward": 0.5 + 0.02 * float(generator.normal()), "grad_norm": 0.3}
        | dict(more(step) if more else {})
        for step in range(1, STEPS + 1)
    ]
    for name, held in {"metrics.jsonl": rows, **files}.items():
        path = folder / "run" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(held if isinstance(held, str) else "".join(json.dumps(row) + "\n" for row in held), "utf-8")
    return ptt.diagnose(folder / "run")


def episodes(*, limit: float, says: str) -> list[Row]:
    """Return episodes whose lengths grow towards a limit of time, which ends them as `says`."""
    generator = np.random.default_rng(2)
    rows: list[Row] = []
    for step in range(10, STEPS + 1, 10):
        for place in range(40):
            took = float(generator.gamma(4.0, 5.0 * step))
            cut = took >= limit
            rows.append(
                {"id": f"{step}:{place}", "task_id": str(place), "step": step, "reward": 0.0 if cut else 1.0,
                 "duration_s": min(took, limit + generator.uniform(0, 2)),
                 "termination_reason": says if cut else "done"}
            )  # fmt: skip
    return rows


def test_a_limit_of_time_that_says_done_is_found_and_one_that_says_so_is_not(tmp_path: Path) -> None:
    silent = diagnosed(tmp_path / "a", {"episodes.jsonl": episodes(limit=1200, says="done")})
    (found,) = findings_of(silent, "silent-timeouts")
    assert "1,200 s" in found.claim
    assert 'and say "done"' in found.claim
    assert not findings_of(
        diagnosed(tmp_path / "b", {"episodes.jsonl": episodes(limit=1200, says="timeout")}), "silent-timeouts"
    )
    assert not findings_of(
        diagnosed(tmp_path / "c", {"episodes.jsonl": episodes(limit=9e9, says="done")}), "silent-timeouts"
    )


@pytest.mark.parametrize(
    ("took", "says"),
    [
        (
            lambda _step, place: 1200.0 if place < 12 else 10.0 * place,
            lambda _step, place: "timeout" if 4 <= place < 12 else "done",
        ),
        (lambda _step, place: 600 + place % 3 - 1, lambda _step, _place: "done"),  # episodes of a fixed length
        (lambda step, _place: 600.0 if step > 10 else 300.0, lambda _step, _place: "done"),  # the batch's duration
    ],
)
def test_durations_that_pile_up_by_design_or_say_so_are_no_silent_timeouts(
    tmp_path: Path, took: Callable[[int, int], float], says: Callable[[int, int], str]
) -> None:
    rows = [
        {"id": f"{step}:{place}", "task_id": str(place), "step": step, "reward": place % 2,
         "duration_s": took(step, place), "termination_reason": says(step, place)}
        for step in range(10, STEPS + 1, 10) for place in range(40)
    ]  # fmt: skip
    assert not findings_of(diagnosed(tmp_path, {"episodes.jsonl": rows}), "silent-timeouts")


@pytest.mark.parametrize(("paid", "told"), [(-1.0, False), (-2.0, True)])
def test_episodes_of_one_step_that_end_at_one_duration_earn_far_less_of_rewards_below_0_too(
    paid: float, told: bool, tmp_path: Path
) -> None:
    rows = [
        {"id": str(place), "task_id": str(place), "step": 10, "reward": paid if place < 40 else -1.0,
         "duration_s": 1200.0 + place / 40 if place < 40 else 5.0 * place, "termination_reason": "done"}
        for place in range(120)
    ]  # fmt: skip
    assert bool(findings_of(diagnosed(tmp_path, {"episodes.jsonl": rows}), "silent-timeouts")) == told


def answers(paid: Callable[[int, int], bool]) -> dict[str, list[Row]]:
    """Return veRL's dumps of a policy that is right half of the time; `paid` by step and place."""
    dumps: dict[str, list[Row]] = {}
    for step in (10, 20, 30, 40, 50):
        dumps[f"rollouts/{step}.jsonl"] = [
            {"input": f"task {place}", "output": f"so it is \\boxed{{{place if place % 2 else -1}}}", "gts": str(place),
             "score": float(place % 2 == 1 and paid(step, place)), "step": step}
            for place in range(40)
        ]  # fmt: skip
    return dumps


def test_right_answers_that_earn_nothing_are_the_scorers_fault_since_they_do(tmp_path: Path) -> None:
    broken = diagnosed(tmp_path / "a", answers(lambda step, place: step < 30 or place % 4 == 1))
    (found,) = findings_of(broken, "right-answers-unpaid")
    assert (found.onset_step, found.observed) == (30, 0.5)
    for name, paid in {"b": lambda _step, _place: True, "healed": lambda step, _place: step >= 40}.items():
        assert not findings_of(diagnosed(tmp_path / name, answers(paid)), "right-answers-unpaid")


def evaluated(paid: Callable[[int], bool]) -> dict[str, list[Row]]:
    """Return SkyRL's dumped evaluations of two sources, both answered right half of the time; `paid` by place."""
    return {
        f"dumped_evals/global_step_{step}_evals/all.jsonl": [
            {"input_prompt": f"task {place}", "output_response": f"so it is \\boxed{{{place if place % 2 else -1}}}",
             "score": float(place % 2 == 1 and paid(place)), "data_source": ("gsm8k", "math")[place // 20],
             "env_extras": {"reward_spec": {"ground_truth": str(place)}}}
            for place in range(40)
        ]
        for step in (0, 10, 20)
    }  # fmt: skip


def test_right_answers_of_evaluations_tell_of_the_scorer_where_training_saves_none(tmp_path: Path) -> None:
    (found,) = findings_of(diagnosed(tmp_path / "a", evaluated(lambda place: place >= 20)), "right-answers-unpaid")
    assert "100% of evaluated answers that equal the expected one (gsm8k) earn the least" in found.claim
    assert "cannot read valid answers" in found.context[0]
    assert not findings_of(diagnosed(tmp_path / "b", evaluated(lambda _place: True)), "right-answers-unpaid")


@pytest.mark.parametrize("everywhere", [False, True])
def test_a_part_without_a_score_is_named_where_no_gradient_is_left(everywhere: bool, tmp_path: Path) -> None:
    rows = [
        {"step": step, "prompt": f"task {place}", "completion": f"{place} at {step}", "Accuracy": place % 2,
         "ToolCall": None if place == 3 and (everywhere or step > 30) else 1.0, "advantages": 0.5}
        for step in (10, 20, 40, 50) for place in range(8)
    ]  # fmt: skip
    lost = {"completions.jsonl": rows}
    found = diagnosed(tmp_path, lost, lambda step: {"grad_norm": float("nan")} if step > 30 else {})
    (gone,) = [one for one in findings_of(found, "metrics-lost") if one.evidence["metric"] == "grad_norm"]
    assert ("2 of 16 samples have no ToolCall, and at the other 2 none" in " ".join(gone.context)) is not everywhere
    assert (gone.likely_cause != "") is not everywhere


def prompts_of(shown: Callable[[int], int]) -> list[Row]:
    """Return four prompts a step, those that the step `shown` gives had in a run without a restart."""
    return [
        {"step": step, "prompt": f"task {4 * shown(step) + at}", "completion": "so it is 4", "accuracy": float(at % 2)}
        for step in range(1, STEPS + 1)
        for at in range(4)
    ]


RESUMED = "".join(
    ("Resuming from checkpoint out/checkpoint-30\n" if step == 31 else "") + f"step:{step} - loss:0.5\n"
    for step in range(1, STEPS + 1)
)


def test_prompts_that_come_again_after_a_restart_are_a_position_that_was_lost(tmp_path: Path) -> None:
    def position(name: str, shown: Callable[[int], int]) -> list[Finding]:
        files: dict[str, Any] = {"completions.jsonl": prompts_of(shown), "train.log": RESUMED}
        return findings_of(diagnosed(tmp_path / name, files), "data-position-lost")

    (found,) = position("again", lambda step: step if step <= 30 else step - 20)
    assert found.onset_step == 31
    assert found.evidence["repeats_from_step"] == 11
    assert not position("on", lambda step: step)
    assert not position("epochs", lambda step: step % 10)  # they come again before the restart as well


def test_prompts_saved_as_tokens_tell_the_position_as_texts_do(tmp_path: Path) -> None:
    rows = [
        {"step": row["step"], "sample_idx": at, "prompt_idx": at % 4, "prompt_tokens": [9, *row["prompt"].encode()],
         "response_tokens": [4, 5], "reward": row["accuracy"], "finish_reason": "stop"}
        for at, row in enumerate(prompts_of(lambda step: step if step <= 30 else step - 30))
    ]  # fmt: skip
    found = diagnosed(tmp_path, {"rollouts/run_rollouts_000000.jsonl": rows, "train.log": RESUMED})
    assert [one.evidence["repeats_from_step"] for one in findings_of(found, "data-position-lost")] == [1]


def test_a_pass_through_the_data_that_ends_early_skips_prompts(tmp_path: Path) -> None:
    def console(prompts: int) -> str:
        return f"Training dataloader loaded with {prompts} samples\n{RESUMED}dataloader exhausted (1 epoch)\n"

    settings = "num_prompts_per_step: 4\nnum_generations_per_prompt: 8\nmax_num_steps: 900\nval_period: 10\n"
    for prompts, told in ((300, True), (4 * STEPS + 5, False)):
        files = {"train.log": console(prompts), "config.yaml": settings}
        found = findings_of(diagnosed(tmp_path / str(prompts), files), "data-position-lost")
        assert [one.evidence["trained_prompts"] for one in found] == ([4 * STEPS] if told else [])


@pytest.mark.parametrize(("prompts", "told"), [(300, True), (4 * STEPS, False)])
def test_a_bar_of_prompts_tells_how_many_the_data_hold(prompts: int, told: bool, tmp_path: Path) -> None:
    bars = "".join(f"Episode [1/1]: {at:3d}%|##   | {at * prompts // 100}/{prompts}\n" for at in (25, 50, 100))
    launch = "python -m openrlhf.cli.train_ppo_ray --rollout.batch_size 4 --train.num_episodes 1\n"
    files = {"train.log": f"{bars}{RESUMED}Prompt dataloader is exhausted.\n", "launch.sh": launch}
    found = findings_of(diagnosed(tmp_path, files), "data-position-lost")
    assert [one.evidence["prompts"] for one in found] == ([prompts] if told else [])


@pytest.mark.parametrize(("over_turns", "told"), [(True, True), (False, False)])
def test_a_mean_reward_over_turns_is_told_from_one_over_episodes(over_turns: bool, told: bool, tmp_path: Path) -> None:
    def turns(at: int) -> int:
        return 4 if at % 2 else 20

    rows = [
        {"step": step, "task_id": str(at), "id": f"{step}:{at}", "reward": float(at % 2), "num_turns": turns(at),
         "termination_reason": "done"}
        for step in (20, 40) for at in range(40)
    ]  # fmt: skip
    mean = 4 / 24 if over_turns else 0.5
    found = findings_of(
        diagnosed(tmp_path, {"episodes.jsonl": rows}, lambda step: {"reward": mean + 1e-3 * (step % 3)}),
        "mean-over-turns",
    )
    assert [round(float(one.limit or 0), 2) for one in found] == ([0.5] if told else [])


@pytest.mark.parametrize(
    ("text", "expected", "right"),
    [
        ("it is \\boxed{\\frac{3}{4}}", "\\frac{3}{4}", True), ("#### 1,200", "1200", True), ("\\boxed{7.0}", 7, True),
        ("<answer> Paris </answer>", "paris", True), ("\\boxed{6}", "7", False), ("it is 7", "7", None),
        ("\\boxed{7}", None, None), ("\\boxed{1,2}", "12", False), ("\\boxed{1,234,567}", 1234567, True),
    ],
)  # fmt: skip
def test_a_marked_answer_is_compared_as_it_stands_or_as_a_number(text: str, expected: Any, right: bool | None) -> None:
    assert is_right(text, expected) is right


@pytest.mark.parametrize(
    ("result", "empty"),
    [
        ("", True), ("[]", True), ("No results found.", True), ("{'docs': [1]}", False),
        ("[Document 1] Rome\ncity", False),
        ("[Document 1] (Score: 0.84)\n\n\n[Document 2] (Score: 0.83)\n", True), ("Title: A\nTitle: B\n", False),
    ],
)  # fmt: skip
def test_a_result_is_empty_where_it_holds_headers_alone(result: str, empty: bool) -> None:
    assert result_columns(result, "search", "{}")["result_empty"] is empty


def test_samples_of_an_engine_that_got_no_weights_are_found_at_their_steps(tmp_path: Path) -> None:
    rows = [
        {"rollout_id": step, "index": place, "status": "completed", "reward": 0.5, "response_length": 90,
         "weight_versions": ["default" if step == 40 and place < 16 else str(step)]}
        for step in (39, 40, 41) for place in range(64)
    ]  # fmt: skip
    (found,) = findings_of(diagnosed(tmp_path, {"rollouts.jsonl": rows}), "old-weights-in-batch")
    assert (found.onset_step, found.observed) == (40, 0.25)


@pytest.mark.parametrize(
    "version",
    [
        lambda step, place: 16 * (step - (place < 4)),  # sixteen updates a step, and a few samples of the step before
        lambda step, place: step - 9 - place if place < 16 else step,  # a replay buffer
    ],
)
def test_versions_of_each_update_and_replayed_samples_are_no_engine_without_weights(
    tmp_path: Path, version: Callable[[int, int], int]
) -> None:
    rows = [
        {"rollout_id": step, "index": place, "status": "completed", "reward": 0.5, "response_length": 90,
         "weight_versions": [str(version(step, place))]}
        for step in range(39, 46) for place in range(64)
    ]  # fmt: skip
    assert not findings_of(diagnosed(tmp_path, {"rollouts.jsonl": rows}), "old-weights-in-batch")


def call(tool: str) -> Row:
    asked = json.dumps({"name": tool, "arguments": {"q": "x"}})
    return {"role": "assistant", "content": f"<tool_call>\n{asked}\n</tool_call>"}


def result(text: str) -> Row:
    return {"role": "tool", "content": text}


FOUND = [call("search"), result("[Document 1] Rome is a city of Italy")]
DONE = [{"role": "assistant", "content": "it is Rome"}]


def talks(messages: Callable[[int, int], list[Row]]) -> dict[str, list[Row]]:
    """Return 40 episodes at each of six steps; `messages` by step and place."""
    return {
        "episodes.jsonl": [
            {"id": f"{step}:{place}", "task_id": str(place), "step": step, "reward": float(place % 2),
             "messages": [{"role": "user", "content": "where?"}, *messages(step, place)]}
            for step in range(10, 61, 10) for place in range(40)
        ]
    }  # fmt: skip


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        (lambda _step, place: [call("search")] if place < 16 else FOUND + DONE, True),  # lost at the first turn
        (lambda _step, place: FOUND + ([call("submit")] if place < 16 else DONE), False),  # it ends the episode
        (lambda _step, place: FOUND * 3 + [call("search")] if place < 16 else FOUND + DONE, False),  # no turn is left
    ],
)
def test_a_call_without_a_result_is_lost_where_its_tool_answers_and_turns_are_left(
    tmp_path: Path, messages: Callable[[int, int], list[Row]], told: bool
) -> None:
    assert bool(findings_of(diagnosed(tmp_path, talks(messages)), "calls-not-made")) is told


@pytest.mark.parametrize("begins", ["and so it is 42", "Output: 42\nit is 42", "TOOL: 42\nit is 42"])
def test_what_a_result_begins_with_is_not_the_policy_that_went_on(tmp_path: Path, begins: str) -> None:
    said = call("search")["content"]
    dumps = {
        f"rollouts/{step}.jsonl": [
            {"input": f"task {place}", "output": f"{said}\n{begins}", "score": float(place % 2), "step": step}
            for place in range(40)
        ]
        for step in (10, 20, 30)
    }
    assert bool(findings_of(diagnosed(tmp_path, dumps), "calls-not-made")) is begins.startswith("and so")


@pytest.mark.parametrize(
    ("tool", "text", "by", "begins"),
    first_fast([
        ("search", "No results found.", 1, 0), ("search", "No results found.", 2, 40),
        ("search", "No results found.", 3, None), ("bash", "\n", 3, None),
        ("python", "Error: UnknownError", 2, 0), ("python", "Error: Execution timed out after 10 seconds", 2, None),
    ], 3),
)  # fmt: skip
def test_results_are_useless_where_a_tool_fails_and_not_where_nothing_is_the_answer(
    tmp_path: Path, tool: str, text: str, by: int, begins: int | None
) -> None:
    def messages(step: int, place: int) -> list[Row]:
        useless = step >= (begins or 0) and place % by == 0
        return [call(tool), result(text if useless else f"[Document 1] Rome, of {place} and {step}"), *DONE]

    found = findings_of(diagnosed(tmp_path, talks(messages)), "useless-results")
    assert [finding.onset_step for finding in found] == ([] if begins is None else [max(10, begins)])
    assert all(finding.claim.startswith("From step 40 on (0% before), 50%") for finding in found if begins)
    assert all(("before step 40" in finding.next[1]) is bool(begins) for finding in found)


@pytest.mark.parametrize(
    ("share", "told"),
    first_fast([(lambda _step: 1, True), (lambda step: step > 12, True), (lambda step: step / 24, False)]),
)
def test_junk_is_the_engines_where_it_came_at_once(tmp_path: Path, share: Callable[[int], float], told: bool) -> None:
    dumps = {
        f"rollouts/{step}.jsonl": [
            {"input": f"task {place}", "score": 0.5, "step": step,
             "output": "!" * 90 if place < 20 * share(step) else " ".join(f"w{place}x{word}" for word in range(30))}
            for place in range(20)
        ]
        for step in range(1, 25)
    }  # fmt: skip
    assert bool(findings_of(diagnosed(tmp_path, dumps), "junk-samples")) is told


def test_rows_of_one_token_stand_for_episodes_that_never_ran(tmp_path: Path) -> None:
    rows = [
        {"step": step, "id": f"{step}-{place}", "status": "pending", "reward": 0.0 if place < 12 else 0.5,
         "response_length": 1 if step > 30 and place < 12 else 400}
        for step in range(10, 61, 10) for place in range(40)
    ]  # fmt: skip
    (found,) = findings_of(diagnosed(tmp_path / "a", {"rollouts.jsonl": rows}), "trained-on-failures")
    assert (found.onset_step, found.observed) == (40, 0.3)
    assert "no token but the end was generated" in found.claim
    ended = [row | {"status": "completed"} for row in rows]  # by the policy, at its first token
    assert not findings_of(diagnosed(tmp_path / "b", {"rollouts.jsonl": ended}), "trained-on-failures")


@pytest.mark.parametrize(
    ("lines", "counted"),
    [
        (["dropped 12 samples", "dropped 3 samples"], {"dropped/dropped samples": 15}),
        (["2026-01-02 03:04:05 WARNING rollout failed (task 7)"] * 3, {"failed/rollout failed task": 3}),
        (["Dropping group 1448: no tokens", "Dropping group 9: no tokens"], {"dropped/Dropping group no tokens": 2}),
        (["Session reset failed", "0 failed rollouts", "failed rollouts: 0", "timed out requests = 0",
          "failed to import flash_attn"],
         {"failed/Session reset failed": 1, "trouble/failed to import flash attn": 1}),
        (["Timeout waiting for rollout", "request 12: retrying (3/5)"],
         {"timed_out/Timeout waiting for rollout": 1, "retried/request retrying": 1}),
        (["HTTP 500 error for request"], {"failed/HTTP error for request": 1}),
        (["failed after 3 attempts for prompt 9"], {"failed/failed after attempts for prompt": 1}),
        (["sandbox timed out after 60 seconds for task"], {"timed_out/sandbox timed out after seconds for task": 1}),
        (["Creating sandbox with timeout=120", "reward request timeout set to 600 s", "requestTimeout: 30 of tasks",
          "Timeout of 60 s exceeded by rollout", "httpx.ReadTimeout: reward"],
         {"timed_out/Timeout of exceeded by rollout": 1, "timed_out/httpx ReadTimeout reward": 1}),
        (["Reward is None for rollout ro-12ab, will be auto-set to 0.0", "args: Namespace(handler='retry')"],
         {"unscored/Reward is None for rollout will be": 1}),
        (["django__django-10372 aborted: exception:SandboxException"] * 2,
         {"failed/aborted exception SandboxException": 2}),
        (["tool_choice is None for this request, using auto", "rollout: prompt_template is None, using default",
          "Reward model is None, using rule-based reward", "reward shift set to 0", "Setting num_envs to 0",
          "max rollout length set to 0 (unlimited)", "env set to 0.5", "setting reward weight to 0",
          "reward set to 0.05", "sample scored as 0.5"], {}),
        (["verifier returned None", "reward for rollout 12 was None", "setting its reward to zero", "score set to 0."],
         {"unscored/verifier returned None": 1, "unscored/reward for rollout was None": 1,
          "unscored/setting its reward to zero": 1, "unscored/score set to": 1}),
        (["reward request returned HTTP 200 in 0.31s", "HTTP status 204 from reward server"], {}),
        (["HTTP 400 from judge_model: too long", "HTTP 200 OK from judge_model"],
         {"failed/HTTP from judge model too long": 1}),
        (["NCCL INFO NET/OFI Failed to initialize sendrecv protocol: no resources", "max_retries=3 for the server"],
         {"trouble/NCCL INFO NET OFI Failed to initialize": 1}),
        (["3 rollout timeouts"], {"timed_out/rollout timeouts": 3}),
        (["detect the trajectory not accumulative at position 46. Setting response_masks to all 0s.",
          "setting the attention mask to 1 for rollouts", "rollout: masks to be set"],
         {"failed/Setting response masks to all": 1}),
        (["rollouts skipped: 0, failed: 37", "0 errors, 0 skipped samples"], {"failed/rollouts skipped failed": 1}),
        (["Failed to parse gold solution:  316", "Failed to parse the model's answer"],
         {"unscored/Failed to parse gold solution": 1, "trouble/Failed to parse the model answer": 1}),
    ],
)  # fmt: skip
def test_lines_about_lost_samples_are_counted_by_what_they_say(lines: list[str], counted: dict[str, int]) -> None:
    seen = SampleLines()
    for line in lines:
        seen.see(line.encode())
    assert {name.removeprefix("console_lines/"): count for name, count in seen.take()} == counted
    assert not list(seen.take())


def test_a_line_that_names_its_step_counts_there() -> None:
    seen = SampleLines()
    for step in (3, 3, 4):
        seen.see(f"train:9 [INFO] [loop] Step {step}: Samples are too stale, requeuing".encode())
    seen.see(b"Step 5: waiting for 16 rollouts")
    assert [(step, count) for step, _, count in seen.headed()] == [(3, 2), (4, 1), (5, 16)]
    assert [name.split("/")[1] for name in seen.waited] == ["waiting"]


@pytest.mark.parametrize("pattern", [QUEUES, ENGINES])
def test_long_lines_are_searched_in_linear_time(pattern: re.Pattern[str]) -> None:
    began = time.process_time()
    assert not pattern.search("server, no progress " + "x y " * 20_000)
    assert time.process_time() - began < 1.0  # from every place anew: a minute


def test_what_moved_with_a_fall_is_told_and_the_cost_since_then_is_counted(tmp_path: Path) -> None:
    def more(step: int) -> Row:
        late = step > 30
        noise = 0.004 * (step % 5)
        return {"reward": (0.2 if late else 0.6) + noise, "env/stop_condition/no_tools": (0.8 if late else 0.1) + noise}

    found = diagnosed(tmp_path, {}, more)
    (fell,) = findings_of(found, "reward-fell")
    assert fell.onset_step == 31
    assert "with it went env/stop_condition/no_tools" in fell.claim
    cost = json.loads(found.to_json())["cost"]
    assert (cost["rule"], cost["steps"], cost["hours"]) == ("reward-fell", 30, 0.5)
    assert diagnosed(tmp_path / "sound", {}).cost is None


def test_a_selection_shows_where_training_gets_shorter_and_the_evaluation_does_not(tmp_path: Path) -> None:
    def more(step: int) -> Row:
        done, noise = step / STEPS, 0.01 * (step % 4)
        row = {"reward": 0.4 + 0.4 * done + noise, "env/turns_per_episode": 10 - 6 * done + noise, "console": 1.0}
        held = {"test/env/correct": 0.45 + noise, "test/env/turns_per_episode": 9.5 + noise} if step % 10 == 0 else {}
        return row | held | {"off_policy/dropped": 4.0}

    (found,) = findings_of(diagnosed(tmp_path, {}, more), "survivors-only")
    assert "as test/env/correct measures them" in found.claim
    assert "env/turns_per_episode" in found.claim


@pytest.mark.parametrize(("reward", "told"), [(0.0, True), (0.25, False)])
def test_a_scorer_that_never_reads_an_answer_is_told_where_nothing_is_earned(
    tmp_path: Path, reward: float, told: bool
) -> None:
    read = "answer_parsed: [], gold_parsed: [], reward: 0.0\n" * 4
    names = ("rewards/accuracy_reward/mean:{reward}", "rewards/format_reward/mean:0.{at}", "response_length/mean:5{at}")
    row = " - ".join(("step:{at}", *names)) + "\n"
    run = tmp_path / "run"
    run.mkdir()
    (run / "out.log").write_text("".join(read + row.format(at=at, reward=reward) for at in range(1, 10)))
    found = findings_of(ptt.diagnose(run), "samples-lost")
    assert [("32 times" in one.claim or "36 times" in one.claim) for one in found] == [True] * told
