"""What a finding says of the run just where it sets in: a new start, lines of the console, an engine that parted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from slow_cases import first_fast

import ptt
from ptt.diagnostics.model import Diagnosis, Severity
from ptt.diagnostics.parsers.io.console_incidents import words_alike
from ptt.reports.redact.redact import redacted

STEPS, BREAKS = 80, 50
REFUSED = "(EnvServer pid=7) aiohttp.ClientConnectorError: Cannot connect to host tools:8001 [refused]"
Metrics = Callable[[int, np.random.Generator], Mapping[str, float]]


def collapse(step: int, generator: np.random.Generator) -> dict[str, float]:
    """Return a reward that falls for good."""
    return {"critic/score/mean": (0.6 if step < BREAKS else 0.1) + 0.02 * float(generator.normal())}


def judged(folder: Path, lines: Mapping[int, Sequence[str]], metrics: Metrics = collapse) -> ptt.Diagnosis:
    """Judge a console of veRL's; `lines`: what it says before the row of a step."""
    generator, said = np.random.default_rng(3), list[str]()
    for step in range(1, STEPS + 1):
        said += lines.get(step, ())
        row = {"actor/grad_norm": 0.3 + 0.01 * float(generator.normal()), **metrics(step, generator)}
        said.append(f"step:{step} - " + " - ".join(f"{name}:{value:.5f}" for name, value in row.items()))
    run = folder / "run"
    run.mkdir()
    (run / "train.log").write_text("\n".join(said) + "\n", "utf-8")
    return ptt.diagnose(run)


def fall_of(found: Diagnosis) -> str:
    (fall,) = [one for one in found.findings if one.id == "reward-fell"]
    return "; ".join((fall.claim, *fall.context))


def test_a_line_that_begins_where_the_reward_breaks_is_quoted_with_its_number(tmp_path: Path) -> None:
    claim = fall_of(judged(tmp_path, {step: [REFUSED] * 2 for step in range(BREAKS, BREAKS + 10)}))
    assert f'the console says 20 times there, and never before: "{REFUSED}"' in claim


def test_a_line_with_quotes_in_it_is_one_quote_that_is_masked_whole(tmp_path: Path) -> None:
    line = 'ERROR: tool "falcon" failed for user “alice wonder” in project zebra; customer `acme" timed out'
    found = judged(tmp_path, {step: [line] * 2 for step in range(BREAKS, BREAKS + 10)})
    assert "tool 'falcon' failed for user 'alice wonder' in project zebra; customer 'acme' timed out" in fall_of(found)
    masked = fall_of(redacted(found, salt="salt"))
    assert not [name for name in ("falcon", "alice", "wonder", "zebra", "acme", "customer") if name in masked]


@pytest.mark.parametrize(
    "lines",
    first_fast(
        [
            {step: [REFUSED] for step in range(1, STEPS + 1)},  # which came all along
            {BREAKS - 15: [REFUSED]},  # long before
            {BREAKS + 10: [REFUSED]},  # later
            {BREAKS: ["Saved samples to the store"]},  # no trouble
            {BREAKS: ["args: Namespace(max_retries=3, on_error='retry')"]},  # settings
        ],
        2,
    ),
)
def test_other_lines_are_not(tmp_path: Path, lines: Mapping[int, Sequence[str]]) -> None:
    assert "console" not in fall_of(judged(tmp_path, lines))


@pytest.mark.parametrize(
    ("line", "told"),
    first_fast(
        [
            ("Loading checkpoint from: results/step_49", True),
            ("Restored checkpoint state from disk, resuming from training step 50", True),
            ("Loading checkpoint shards: 100%", False),
            ("Loading checkpoint of the reference model", False),
            ("loading the reference checkpoint", False),
            ("Loading judge checkpoint from /models/judge", False),
            ("Resuming generation of partial rollouts from the buffer", False),
            ("Resume training disabled; will save every step: 50", False),
        ],
        2,
    ),
)
def test_a_start_from_a_checkpoint_is_told_where_the_reward_breaks(tmp_path: Path, line: str, told: bool) -> None:
    assert ("the run was started again at step 49" in fall_of(judged(tmp_path, {BREAKS: [line]}))) is told


def test_a_mismatch_that_grew_before_the_policy_broke_is_told_as_what_came_first(tmp_path: Path) -> None:
    def parted(step: int, generator: np.random.Generator) -> dict[str, float]:
        kl = 0.001 * (1 + 0.3 * max(0, step - 35)) * float(generator.uniform(0.9, 1.1))
        return {**collapse(step, generator), "rollout_corr/kl": kl}

    assert "engine and trainer parted first" in fall_of(judged(tmp_path, {}, parted))


def test_a_quiet_run_stays_quiet_whatever_its_console_says(tmp_path: Path) -> None:
    def level(_: int, generator: np.random.Generator) -> dict[str, float]:
        return {"critic/score/mean": 0.5 + 0.02 * float(generator.normal())}

    found = judged(tmp_path, {step: [REFUSED] for step in range(BREAKS, BREAKS + 3)}, level)
    assert not [one for one in found.findings if one.severity.at_least(Severity.MEDIUM)]


def test_a_line_is_known_by_its_words_though_names_in_it_are_masked() -> None:
    assert words_alike("[host-1] NCCL INFO NET/OFI Failed to initialize: no resources", "NCCL INFO NET OFI Failed to")
    assert not words_alike("NCCL INFO Channel 0 connected", "NCCL INFO NET OFI Failed to")


def test_a_start_some_steps_before_a_fall_is_told_with_its_distance(tmp_path: Path) -> None:
    claim = fall_of(judged(tmp_path, {BREAKS - 5: ["Restored checkpoint state, resuming from training step 45"]}))
    assert "it begins 6 steps after the run was started again at step 44" in claim
    assert "adapter" in claim


@pytest.mark.parametrize("failing", [True, False])
def test_failures_of_an_evaluation_at_the_onset_are_told(tmp_path: Path, failing: bool) -> None:
    def evaluated(step: int, generator: np.random.Generator) -> dict[str, float]:
        timeouts = {"val-aux/nq/search_timeout_count/mean@1": 0.75 * (failing and step >= BREAKS)}
        return collapse(step, generator) | (timeouts if step % 10 == 0 else {})

    told = f"in the evaluation of step {BREAKS} val-aux/nq/search_timeout_count/mean@1 went from 0 to 0.75"
    assert (told in fall_of(judged(tmp_path, {}, evaluated))) is failing
