"""The rules on tools, turns and episodes: broken, healthy, not judged, and quiet on what healthy runs do."""

from __future__ import annotations

import functools
import itertools
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from builders import Array, series_of
from episodes import Call, Episode, Make, episodes_of, evidence_from
from slow_cases import first_fast

from ptt import api
from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.algorithm import Algorithm, Family
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Broken, Finding, Healthy, Link, NotJudged, RuleVerdict, Severity
from ptt.diagnostics.rules import ENVIRONMENT_RULES, RULES

BY_ID = {rule.id: rule for rule in RULES}
OF_SAMPLES = {
    "samples-lost",
    "useless-results",
    "calls-not-made",
    "silent-timeouts",
    "data-position-lost",
}  # test_rules_sample_faults
MINE = [rule.id for rule in ENVIRONMENT_RULES if rule.id not in {"tool-use-vanished", *OF_SAMPLES}]
IDS = [*MINE, "template-collapse", "tool-diversity"]
LONG = "The same long text for whatever was asked, letter by letter."


def run(rule: str, evidence: Evidence) -> RuleVerdict:
    return BY_ID[rule].run(evidence)


def story(make: Make, **sizes: int) -> Evidence:
    return evidence_from(episodes_of(make, **sizes))


def failing(share: Callable[[float], float]) -> Make:
    def make(step: int, done: float, chance: np.random.Generator) -> Episode:
        calls = tuple(Call(ok=bool(chance.random() >= share(done))) for _ in range(2))
        return Episode(step=step, calls=calls)

    return make


def jump(early: float, late: float) -> Callable[[float], float]:
    return lambda done: early if done < 0.5 else late


def with_calls(calls: Callable[[float, np.random.Generator], tuple[Call, ...]], **changed: object) -> Make:
    return lambda step, done, chance: Episode(step=step, calls=calls(done, chance), **changed)  # type: ignore[arg-type]


def ordinary(step: int, done: float, chance: np.random.Generator) -> Episode:
    """A few failures, two tools, one to three calls, a reward that rises."""
    calls = tuple(
        Call(name=("search", "run")[int(chance.random() < 0.4)], ok=bool(chance.random() > 0.03), latency=0.2)
        for _ in range(1 + int(chance.integers(0, 3)))
    )
    reward = float(chance.random() < 0.3 + 0.5 * done)
    return Episode(step=step, calls=calls, reward=reward, at=1e9 + 100 * step + float(chance.random()))


def one_tool_fails(done: float, chance: np.random.Generator) -> tuple[Call, ...]:
    bad = chance.random() < (0.8 if done >= 0.5 else 0.02)
    return (*(Call() for _ in range(9)), Call(name="browse", ok=not bad))


def repeating(done: float, _: np.random.Generator) -> tuple[Call, ...]:
    return (Call(args={"q": 1}, result="same"),) * (3 if done >= 0.5 else 1)


def recovering(done: float, chance: np.random.Generator) -> tuple[Call, ...]:
    mended = chance.random() < (0.8 if done < 0.5 else 0.15)
    return (Call(ok=False), Call(ok=bool(mended)))


def loaded(step: int, done: float, chance: np.random.Generator) -> Episode:
    """Half of the episodes of a step begin at once, the others one after the other."""
    crowd = chance.random() < 0.5
    at = 1e9 + 10_000 * step + (0.0 if crowd else 100 + 100 * float(chance.integers(0, 90)))
    return Episode(step=step, at=at, calls=(Call(ok=bool(chance.random() >= (0.5 if crowd else 0.02)), latency=30.0),))


def without_tools(step: int, done: float, chance: np.random.Generator) -> Episode:
    calls = () if done >= 0.5 and chance.random() < 0.2 else (Call(),)
    return Episode(step=step, calls=calls, reward=float(chance.random() < 0.5))


BROKEN: dict[str, dict[str, tuple[Callable[[], Evidence], Severity, int | None]]] = {
    "tool-failures": {
        "from one day on": (lambda: story(failing(jump(0.02, 0.3))), Severity.MEDIUM, 30),
        "down for good": (lambda: story(failing(jump(0.02, 0.9))), Severity.HIGH, 30),
        "all along": (lambda: story(failing(jump(0.47, 0.47))), Severity.MEDIUM, 0),
        "one tool of two": (
            lambda: story(with_calls(one_tool_fails)),
            Severity.HIGH,
            30,
        ),
        "as logged": (
            lambda: evidence_from(metrics={"tools/failure_frequency": noisy(0.02, 0.4)}),
            Severity.MEDIUM,
            51,
        ),
        "as logged by tool": (lambda: evidence_from(other=totals(0.02, 0.6)), Severity.HIGH, 51),
        "as many calls at every step": (lambda: evidence_from(other=by_step(0.02, 0.6)), Severity.HIGH, 51),
    },
    "failures-under-load": {
        "in flight": (lambda: story(loaded, steps=30, each=24), Severity.MEDIUM, None),
        "by calls a step": (lambda: evidence_from(crowded(0.4)), Severity.MEDIUM, None),
    },
    "underused-tools": {
        "with the reward": (lambda: evidence_from(shifting(0.8, 0.3)), Severity.MEDIUM, 30),
        "as logged": (
            lambda: evidence_from(
                other={
                    "env/calls_a": series_of("env/calls_a", noisy(1.0, 0.01)),
                    "env/calls_b": series_of("env/calls_b", noisy(1.0, 2.0)),
                },
                metrics={"reward/mean": noisy(0.8, 0.2)},
            ),
            Severity.MEDIUM,
            51,
        ),
    },
    "tool-latency": {
        "slow from one day on": (
            lambda: story(with_calls(lambda done, _: (Call(latency=0.5 if done < 0.5 else 8.0),))),
            Severity.MEDIUM,
            30,
        ),
        "as logged": (lambda: evidence_from(metrics={"tools/latency_mean": noisy(0.5, 9.0)}), Severity.MEDIUM, 51),
    },
    "malformed-calls": {
        "broken JSON": (
            lambda: story(
                with_calls(lambda done, chance: (Call(args="{" if chance.random() < 0.3 * (done >= 0.5) else "{}"),))
            ),
            Severity.MEDIUM,
            30,
        ),
        "without a name": (
            lambda: story(
                with_calls(
                    lambda done, chance: (Call(name=None if chance.random() < 0.5 * (done >= 0.5) else "search"),)
                )
            ),
            Severity.HIGH,
            30,
        ),
        "as logged": (
            lambda: evidence_from(metrics={"tools/malformed_frequency": noisy(0.01, 0.2)}),
            Severity.MEDIUM,
            51,
        ),
    },
    "repeated-calls": {"three times the same": (lambda: story(with_calls(repeating)), Severity.HIGH, 30)},
    "failures-unrecovered": {"gives up": (lambda: story(with_calls(recovering)), Severity.MEDIUM, 30)},
    "pseudo-success": {
        "flagged": (
            lambda: story(
                with_calls(lambda done, chance: (Call(ok=bool(chance.random() > 0.3 * (done >= 0.5))),), success=True)
            ),
            Severity.MEDIUM,
            30,
        ),
        "by its reward": (
            lambda: story(
                lambda step, done, chance: Episode(
                    step=step,
                    reward=float(chance.random() < 0.8),
                    calls=(Call(ok=bool(chance.random() > 0.6 * (done >= 0.5))),),
                )
            ),
            Severity.HIGH,
            30,
        ),
    },
    "void-turns": {
        "more and more": (
            lambda: story(
                lambda step, done, chance: Episode(step=step, void=int(chance.random() < 0.6 * (done >= 0.5)))
            ),
            Severity.MEDIUM,
            30,
        )
    },
    "runaway-episodes": {
        "very long": (
            lambda: story(
                lambda step, done, chance: Episode(
                    step=step, calls=(Call(),) * (30 if done >= 0.5 and chance.random() < 0.5 else 2)
                ),
            ),
            Severity.LOW,
            None,
        ),
        "long and paid worse": (
            lambda: story(
                lambda step, done, chance: (
                    Episode(step=step, calls=(Call(),) * 30, reward=0.0)
                    if done >= 0.5 and chance.random() < 0.4
                    else Episode(step=step)
                ),
            ),
            Severity.MEDIUM,
            30,
        ),
        "in circles": (
            lambda: story(
                lambda step, done, _: Episode(
                    step=step,
                    calls=(Call(name="a", args={"x": 1}, result="r"), Call(name="b", args={"x": 2}, result="s"))
                    * (3 if done >= 0.5 else 1),
                ),
            ),
            Severity.HIGH,
            30,
        ),
        "at the turn limit, as logged": (
            lambda: evidence_from(metrics={"turns/limit_frac": noisy(0.02, 0.3)}),
            Severity.MEDIUM,
            51,
        ),
        "as logged": (
            lambda: evidence_from(metrics={"turns/mean": noisy(4.0, 20.0), "reward/mean": noisy(0.6, 0.1)}),
            Severity.MEDIUM,
            51,
        ),
    },
    "template-collapse": {
        "one text for all": (
            lambda: story(lambda step, done, _: Episode(step=step, answer=LONG if done >= 0.5 else "")),
            Severity.HIGH,
            30,
        ),
        "every other answer": (
            lambda: story(
                lambda step, done, chance: Episode(
                    step=step, answer=LONG if chance.random() < (0.8 if done >= 0.5 else 0.1) else ""
                )
            ),
            Severity.MEDIUM,
            30,
        ),
        "from the start": (lambda: story(lambda step, *_: Episode(step=step, answer=LONG)), Severity.HIGH, 0),
        "short, and the reward falls": (
            lambda: story(
                lambda step, done, _: Episode(
                    step=step, answer="no" if done >= 0.5 else "", reward=0.8 if done < 0.5 else 0.2
                )
            ),
            Severity.HIGH,
            30,
        ),
    },
    "tool-diversity": {"one tool left": (lambda: evidence_from(shifting(0.8, 0.3)), Severity.MEDIUM, 30)},
}


def noisy(early: float, late: float, *, at: int = 50, count: int = 100) -> Array:
    levels = np.where(np.arange(count) < at, early, late)
    return levels * (1 + 0.1 * np.random.default_rng(3).normal(size=count))


def totals(early: float, late: float) -> dict[str, Series]:
    calls = np.full(100, 50.0)
    return {
        "tools/run/call_total": named("tools/run/call_total", calls.cumsum()),
        "tools/run/failure_total": named("tools/run/failure_total", (50 * np.abs(noisy(early, late))).cumsum()),
    }


def by_step(early: float, late: float) -> dict[str, Series]:
    """Give totals of as many calls at every step, which no counter over the run could be."""
    failures = (64 * np.abs(noisy(early, late))).round()
    return {
        "tools/run/call_total": named("tools/run/call_total", np.full(100, 64.0)),
        "tools/run/failure_total": named("tools/run/failure_total", failures),
    }


def named(name: str, values: Array) -> Series:
    return replace(series_of(name, values), raw_name=name)


def crowded(share: float) -> list[Episode]:
    """Steps of four episodes or of twelve, in turn; those of twelve fail."""
    chance = np.random.default_rng(5)
    return [
        Episode(step=step, calls=(Call(ok=bool(chance.random() >= (share if many else 0.02))),) * 1)
        for step in range(200)
        for many in [step % 2 == 1]
        for _ in range(12 if many else 4)
    ]


def shifting(early_reward: float, late_reward: float) -> list[Episode]:
    """Two tools at first, one of them later."""

    def make(step: int, done: float, chance: np.random.Generator) -> Episode:
        calls = tuple(
            Call(name="run" if chance.random() < (0.5 if done < 0.5 else 0.005) else "search") for _ in range(3)
        )
        return Episode(step=step, calls=calls, reward=early_reward if done < 0.5 else late_reward)

    return episodes_of(make)


HEALTHY: dict[str, dict[str, Callable[[], Evidence]]] = {
    "tool-failures": {
        "falling while it is learnt": lambda: story(failing(lambda done: 0.6 - 0.5 * done)),
        "hardly any call as logged": lambda: evidence_from(metrics={"tools/failure_frequency": noisy(0.02, 0.03)}),
        "one bad day": lambda: story(failing(lambda done: 0.9 if 0.5 <= done < 0.6 else 0.02)),
    },
    "failures-under-load": {
        "more calls over the run, and more failures": lambda: evidence_from(
            [
                Episode(step=step, calls=(Call(ok=bool(number % 10 >= step // 50)),))
                for step in range(200)
                for number in range(int((4 + step / 10) * (1 + 3 * (step % 2))))
            ]
        ),
        "busy, and fine": lambda: evidence_from(crowded(0.02)),
    },
    "underused-tools": {"not needed after all": lambda: evidence_from(shifting(0.4, 0.8))},
    "tool-latency": {
        "fast throughout": lambda: story(with_calls(lambda done, _: (Call(latency=0.01 if done < 0.5 else 0.1),)))
    },
    "malformed-calls": {
        "a tool that takes plain text": lambda: story(
            with_calls(lambda done, _: (Call(), Call(name="python", args="print(1)")) if done >= 0.5 else (Call(),))
        ),
    },
    "repeated-calls": {
        "asking again for what changes": lambda: story(
            with_calls(lambda done, _: tuple(Call(args={"job": 1}) for _ in range(1 if done < 0.5 else 4)))
        ),
        "trying again what failed": lambda: story(
            with_calls(lambda *_: (Call(args={"q": 1}, result="e", ok=False), Call(args={"q": 1}, result="r")))
        ),
    },
    "failures-unrecovered": {"recovers": lambda: story(with_calls(lambda *_: (Call(ok=False), Call())))},
    "pseudo-success": {
        "prompts that need no tool": lambda: story(without_tools),
    },
    "void-turns": {"none": lambda: story(lambda step, *_: Episode(step=step))},
    "runaway-episodes": {
        "longer, and it pays": lambda: story(
            lambda step, done, chance: (
                Episode(step=step, calls=(Call(),) * 30, reward=1.0)
                if done >= 0.5 and chance.random() < 0.5
                else Episode(step=step)
            )
        ),
        "one tool, other arguments": lambda: story(
            lambda step, *_: Episode(step=step, calls=tuple(Call(name="scroll") for _ in range(20)))
        ),
    },
    "template-collapse": {
        "alike within a prompt": lambda: story(
            lambda step, done, chance: Episode(
                step=step, prompt=(prompt := f"p{step}-{chance.integers(0, 4)}"), answer=f"{LONG} {prompt}"
            )
        ),
        "yes or no": lambda: story(
            lambda step, done, chance: Episode(step=step, answer=("yes", "no")[int(chance.random() < 0.5)])
        ),
    },
    "tool-diversity": {"the right one": lambda: evidence_from(shifting(0.4, 0.8))},
}


def findings_of(verdict: RuleVerdict) -> tuple[Finding, ...]:
    match verdict:
        case Broken(findings=found) | Healthy(notes=found):
            return found
        case NotJudged():
            return ()


def test_every_rule_has_its_cases() -> None:
    assert set(BROKEN) == set(HEALTHY) == set(IDS)


@pytest.mark.parametrize(("rule", "case"), [(rule, case) for rule, cases in BROKEN.items() for case in cases], ids=str)
def test_a_rule_finds_its_failure(rule: str, case: str) -> None:
    make, severity, onset = BROKEN[rule][case]
    verdict = run(rule, make())
    (finding, *_) = findings_of(verdict)
    assert finding.severity is severity
    assert isinstance(verdict, Broken) is severity.at_least(Severity.MEDIUM)
    assert finding.link is BY_ID[rule].link
    assert finding.observed is not None
    assert math.isfinite(finding.observed)
    assert finding.limit is not None
    assert finding.evidence["metric"]
    assert all((finding.claim, finding.unit, finding.causes, finding.confirm, finding.next))
    assert not finding.claim.endswith(".")
    if onset is not None:
        assert finding.onset_step is not None
        assert onset <= finding.onset_step <= onset + 20  # a mean over 20 values has to pass its bound


@pytest.mark.parametrize(("rule", "case"), [(rule, case) for rule, cases in HEALTHY.items() for case in cases], ids=str)
def test_a_rule_lets_pass_what_is_no_failure(rule: str, case: str) -> None:
    verdict = run(rule, HEALTHY[rule][case]())
    assert isinstance(verdict, Healthy), verdict
    assert verdict.reason
    assert all(note.severity.rank >= Severity.LOW.rank for note in verdict.notes)


@pytest.mark.parametrize("rule", IDS)
def test_three_steps_are_not_judged(rule: str) -> None:
    verdict = run(rule, story(ordinary, steps=3))
    assert isinstance(verdict, NotJudged), verdict
    assert verdict.reason
    assert verdict.enable


@pytest.mark.parametrize("rule", first_fast(IDS, 4))
def test_an_ordinary_run_has_no_finding(rule: str) -> None:
    assert not isinstance(run(rule, story(ordinary, each=24)), Broken)


@pytest.mark.parametrize("rule", first_fast(IDS, 4))
def test_other_kinds_of_training_are_not_asked(rule: str) -> None:
    evidence = replace(story(ordinary), algorithm=Algorithm(name="dpo", family=Family.PREFERENCE))
    verdict = run(rule, evidence)
    assert isinstance(verdict, NotJudged)
    assert not verdict.applies


def test_a_share_of_failures_where_nothing_was_called_is_not_judged() -> None:
    """TRL logs a failure frequency of 0 at steps without a call."""
    metrics = {"tools/failure_frequency": np.zeros(100), "tools/call_frequency": np.zeros(100)}
    assert isinstance(run("tool-failures", evidence_from(metrics=metrics)), NotJudged)
    called = {"tools/failure_frequency": np.zeros(100), "tools/call_frequency": np.ones(100)}
    assert isinstance(run("tool-failures", evidence_from(metrics=called)), Healthy)


def test_only_training_counts() -> None:
    held = [Episode(step=step, calls=(Call(ok=False),) * 4, split="eval") for step in range(60)]
    evidence = evidence_from([*episodes_of(ordinary), *held])
    assert evidence.environment is not None
    assert evidence.environment.trajectories == 60 * 16
    assert isinstance(run("tool-failures", evidence), Healthy)
    assert evidence_from(held).environment is None


def test_tool_use_is_told_from_episodes_where_nothing_else_is_recorded() -> None:
    def make(step: int, done: float, chance: np.random.Generator) -> Episode:
        return Episode(step=step, calls=(Call(),) if done < 0.5 else ())

    (finding,) = findings_of(run("tool-use-vanished", story(make)))
    assert finding.onset_step == pytest.approx(30, abs=6)
    assert isinstance(run("tool-use-vanished", story(ordinary)), Healthy)


def test_the_worst_tool_is_named_where_all_together_fail() -> None:
    def both(done: float, chance: np.random.Generator) -> tuple[Call, ...]:
        return Call(ok=done < 0.5 or bool(chance.random() < 0.5)), Call(name="browse", ok=done < 0.5)

    (finding,) = findings_of(run("tool-failures", story(with_calls(both))))
    assert (finding.slice, finding.evidence["worst_tool"]) == (None, "browse")


def test_a_tool_that_nearly_all_failures_are_of_is_what_is_told() -> None:
    evidence = story(with_calls(lambda done, _: (Call(), Call(name="browse", ok=done < 0.5))))
    (finding,) = findings_of(run("tool-failures", evidence))
    assert (finding.slice, finding.observed, finding.onset_step) == ("tool:browse", 1.0, 30)


def test_a_slow_rise_is_dated_where_the_share_passes_its_limit_not_where_a_mean_does() -> None:
    evidence = story(failing(lambda done: 0.02 + 0.6 * max(0.0, done - 0.4)), steps=150)
    (finding,) = findings_of(run("tool-failures", evidence))
    assert finding.onset_step is not None
    assert finding.limit is not None
    passed = 150 * (0.4 + (finding.limit - 0.02) / 0.6)
    assert finding.onset_step == pytest.approx(passed, abs=8)
    low, high = finding.onset_interval or (0, 0)
    assert low <= passed <= high < passed + 30


def slow_steps(seconds: float, *, by_tool: float, each: int = 4, late: int = 60) -> Evidence:
    """Calls of a tool, `each` of them at every third step, that take so long after step `late`, and times of steps."""
    called = np.arange(100) % 3 == 0
    slow = np.arange(100) >= late
    made = tuple(
        Episode(step=step + 1, calls=(Call(name="browse", latency=by_tool if slow[step] else 0.001),) * each)
        if called[step]
        else Episode(step=step + 1, calls=(Call(name="search", latency=0.001),))
        for step in range(100)
    )
    return evidence_from(made, metrics={"time/step": noisy(1.0, 1.0) + seconds * (slow & called)})


def test_a_slow_tool_is_as_severe_as_the_slowdown_that_its_calls_account_for() -> None:
    (finding,) = findings_of(run("tool-latency", slow_steps(9.0, by_tool=2.25)))
    assert (finding.severity, finding.slice) == (Severity.HIGH, "tool:browse")
    assert (finding.onset_step, finding.onset_interval) == (61, (59, 61))
    assert 0.9 < float(finding.evidence["spent_s"] or 0) / float(finding.evidence["lost_s"] or 1) < 1.1
    (finding,) = findings_of(run("tool-latency", slow_steps(2.4, by_tool=1.5, each=1)))
    assert finding.severity is Severity.MEDIUM


@pytest.mark.parametrize(
    ("seconds", "by_tool"),
    [
        (40.0, 1.5),  # most of what was lost is something else's
        (0.0, 1.5),  # nothing was lost
        (6.0, 0.3),  # no slow tool
    ],
)
def test_a_slow_tool_that_explains_no_slowdown_is_a_note(seconds: float, by_tool: float) -> None:
    verdict = run("tool-latency", slow_steps(seconds, by_tool=by_tool))
    assert isinstance(verdict, Healthy)
    assert all(note.severity is Severity.LOW for note in verdict.notes)


@pytest.mark.parametrize(("failing", "severity"), [(0.8, Severity.MEDIUM), (0.1, Severity.LOW)])
def test_a_tool_that_failed_before_it_was_given_up_is_a_fault_though_the_reward_stays(
    failing: float, severity: Severity
) -> None:
    def make(step: int, done: float, chance: np.random.Generator) -> Episode:
        browse = Call(name="browse", ok=bool(chance.random() >= (failing if done >= 0.4 else 0.02)))
        return Episode(step=step, calls=(Call(), browse) if done < 0.5 else (Call(),), reward=1.0)

    verdict = run("underused-tools", story(make))
    (finding,) = verdict.notes if isinstance(verdict, Healthy) else findings_of(verdict)
    assert (finding.severity, finding.slice) == (severity, "tool:browse")
    assert ("last calls had failed" in finding.claim) is (severity is Severity.MEDIUM)


HEALTHY_METRICS = {
    "tools/failure_frequency": 0.05,
    "tools/malformed_frequency": 0.01,
    "tools/latency_mean": 0.4,
    "turns/mean": 4.0,
    "turns/limit_frac": 0.04,
    "tools/call_frequency": 1.5,
}


def following(fresh: Array, likeness: float) -> Array:
    """Give noise that follows itself."""
    return np.array(list(itertools.accumulate(fresh.tolist(), lambda last, new: likeness * last + new)))


@functools.cache
def healthy_runs() -> tuple[Evidence, ...]:
    """Noise that follows itself (AR 1 up to 0.8) on the log scale, a drift by half, short runs and long ones."""
    runs = []
    for seed in range(200):
        generator = np.random.default_rng(seed)
        count, likeness = int(generator.integers(30, 400)), float(generator.choice([0.0, 0.5, 0.8]))
        metrics: dict[str, Series] = {}
        other: dict[str, Series] = {}
        for name, level in {**HEALTHY_METRICS, "env/calls_a": 0.7, "env/calls_b": 0.5, "reward/mean": 0.5}.items():
            fresh = math.sqrt(1 - likeness**2) * generator.normal(size=count)
            noise = following(fresh, likeness)
            drift = np.linspace(0, float(generator.choice([0.0, 0.4, -0.4])), count)
            series = named(name, level * np.exp(0.3 * noise + drift))
            (other if name.startswith("env/") else metrics)[name] = series
        runs.append(evidence_from(metrics=metrics, other=other))
    return tuple(runs)


@pytest.mark.parametrize("rule", first_fast(IDS))
def test_two_hundred_healthy_series_raise_no_alarm(rule: str) -> None:
    assert [at for at, evidence in enumerate(healthy_runs()) if isinstance(run(rule, evidence), Broken)] == []


@pytest.mark.parametrize(
    "size", [(40, 8), *(pytest.param(size, marks=pytest.mark.slow) for size in ((60, 32), (200, 6)))]
)
def test_healthy_episodes_raise_no_alarm(size: tuple[int, int]) -> None:
    """Failures and calls that vary from step to step more than chance has it."""
    steps, each = size
    wrong = []
    for seed in range(5):
        chance = np.random.default_rng(seed)
        level = np.zeros(steps)
        for at in range(steps):
            level[at] = 0.8 * level[at - 1] + 0.6 * chance.normal()

        def make(step: int, done: float, chance: np.random.Generator, level: Array = level) -> Episode:
            share = 0.05 * math.exp(0.5 * level[step])
            calls = tuple(
                Call(
                    name=("a", "b", "c")[int(chance.choice(3, p=[0.6, 0.3, 0.1]))],
                    ok=bool(chance.random() > share),
                    latency=float(np.exp(chance.normal())),
                )
                for _ in range(1 + int(chance.integers(0, 4)))
            )
            paid = float(chance.random() < 0.3 + 0.4 * done)
            return Episode(step=step, calls=calls, reward=paid, at=1e9 + 60 * step + float(chance.random()))

        evidence = evidence_from(episodes_of(make, steps=steps, each=each, seed=seed))
        wrong += [(seed, rule) for rule in IDS if isinstance(run(rule, evidence), Broken)]
    assert wrong == []


def test_links_of_the_two_rooms() -> None:
    assert {BY_ID[rule].link for rule in MINE} == {Link.ENVIRONMENT}


def of_few_prompts(step: int, done: float, chance: np.random.Generator) -> Episode:
    """Some steps ask for sums and others do not; the tool for them is given up after two fifths."""
    asked = step % 5 in (0, 2) and chance.random() < (0.9 if done < 0.4 else 0.04)
    return Episode(step=10 * step, calls=(Call(), *((Call(name="calc"),) if asked else ())))


def test_a_tool_that_few_prompts_need_is_missed_when_it_is_given_up_and_the_reward_falls_back() -> None:
    steps = np.arange(450)
    reward = np.where(steps < 180, 0.3 + steps / 360, 0.6) + 0.02 * np.random.default_rng(1).normal(size=450)
    episodes = episodes_of(of_few_prompts, steps=45, each=16)
    verdict = run("underused-tools", evidence_from(episodes, metrics={"reward/mean": named("reward/mean", reward)}))
    assert isinstance(verdict, Broken)
    found = verdict.findings[0]
    assert found.severity is Severity.MEDIUM
    assert found.onset_step == pytest.approx(180, abs=30)
    kept = named("reward/mean", np.maximum.accumulate(reward))
    assert isinstance(run("underused-tools", evidence_from(episodes, metrics={"reward/mean": kept})), Healthy)


@pytest.mark.parametrize(("rule", "steps", "at"), [("repeated-calls", 38, 0.4), ("malformed-calls", 40, 0.45)])
def test_a_share_that_leaves_its_level_early_in_a_short_run_is_dated_there(rule: str, steps: int, at: float) -> None:
    same, cut = (Call(args={"q": 1}, result="same"),) * 4, (Call(args="{"), Call(), Call())

    def make(done: float, chance: np.random.Generator) -> tuple[Call, ...]:
        spoilt = done >= at and chance.random() < 0.5
        return (same if rule == "repeated-calls" else cut) if spoilt else (Call(args={"q": 1}), Call(), Call())

    verdict = BY_ID[rule].run(story(with_calls(make), steps=steps, each=16))
    assert isinstance(verdict, Broken)
    found = verdict.findings[0]
    assert found.onset_step == pytest.approx(at * steps, abs=2)
    assert found.onset_interval is not None
    assert found.onset_interval[0] <= (found.onset_step or 0) <= found.onset_interval[1]


@pytest.mark.parametrize("answer", ["error: execution timed out", "1. Erebus - a volcano"])
def test_a_call_that_timed_out_and_is_tried_again_failed_and_repeats_nothing(tmp_path: Path, answer: str) -> None:
    folder = tmp_path / "rollout"
    folder.mkdir()
    for step in range(1, 41):
        rows = []
        for number in range(8):
            call = json.dumps({"name": "search", "arguments": {"query": f"peak {number}"}})
            told = f"<tool_call>\n{call}\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>{call}\n%s\n"
            told += "</tool_response><|im_end|>\n<|im_start|>assistant\n"
            first = told % answer if step > 20 and number < 4 else ""
            output = first + told % f"1. peak {number} - stone" + "<answer>yes</answer>"
            rows.append({"input": "user\nWhich?", "output": output, "score": float(number % 2), "step": step})
        (folder / f"{step}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = {one.id: one for one in api.diagnose(tmp_path).findings}
    assert "repeated-calls" not in found
    assert ("tool-failures" in found) is answer.startswith("error")
