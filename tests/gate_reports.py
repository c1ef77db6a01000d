"""Gate reports with every outcome and with names that no output may trip over."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import strategies as st

from ptt.diagnostics.gate.results import CheckKind, CheckResult, GatedRun, GateReport, Outcome, Waiver, worst
from ptt.diagnostics.model import JsonScalar, Link, Severity, Status

HOSTILE = (
    "<b>x</b>&amp; ]]> -->\n::error::x\r\x00\x1b[31m\u202eevil\u200b \ud800 \uffff "
    "| `code` ```\n# head\n- @octocat team/@org #123 GH-1 org/repo#7 !4 $x$ %250A {0} [a](http://b.c) www.d.e "
    "🙂 'q' \"r\""
)
POLICY: dict[str, JsonScalar] = {
    "severity": "high",
    "cannot_say": "fail",
    "min_steps": 20,
    "bound.kl.max": 0.2,
    "baseline.limit": 1.25,
}
WAIVER = Waiver(
    finding="tool-tail-growth",
    slice="post_tool",
    owner="Ada",
    reason="the tool's schema changes on 1 December",
    expires="2026-12-15",
)

TAILS = CheckResult(
    id="severity:tool-tail-growth",
    kind=CheckKind.SEVERITY,
    outcome=Outcome.FAILED,
    title="no finding at high or above",
    claim="post-tool tails grew 2.7-fold",
    data="policy/ref, post_tool, 300 steps, 1 234 567 model tokens",
    fails_if="a finding at high or critical that nobody answers for",
    observed=2.71828,
    limit=1.5,
    unit="x",
    low=2.1,
    high=3.2,
    severity=Severity.CRITICAL,
    link=Link.POLICY_UPDATE,
    rule="tool-tail-growth",
    step=141,
    since="since step 141",
    file="tokens/step_000141.parquet",
    next=("check that the logprobs are right", "raise the KL coefficient"),
)
SEVERITY_PASSED = CheckResult(
    id="severity",
    kind=CheckKind.SEVERITY,
    outcome=Outcome.PASSED,
    title="no finding at high or above",
    claim="the worst finding is low",
    data="51 rules judged, 12 not judged",
    fails_if="a finding at high or critical that nobody answers for",
)
EXTENT = CheckResult(
    id="extent:steps",
    kind=CheckKind.EXTENT,
    outcome=Outcome.PASSED,
    title="at least 20 logged steps",
    claim="the run has 300",
    data="300 logged steps",
    fails_if="fewer than 20 logged steps",
    observed=300.0,
    limit=20.0,
    unit="steps",
)
BOUND = CheckResult(
    id="bound:kl",
    kind=CheckKind.BOUND,
    outcome=Outcome.FAILED,
    title="median of mean KL over the last 50 steps at most 0.2",
    claim="it is 0.31",
    data="kl/ref, last 50 steps, 50 finite values",
    fails_if="a median above 0.2",
    observed=0.31,
    limit=0.2,
    unit="nats",
    low=0.28,
    high=0.34,
)
BLIND = CheckResult(
    id="required:stale-tokens",
    kind=CheckKind.REQUIRED,
    outcome=Outcome.BLIND,
    title="stale-tokens was judged",
    claim="it was not: no policy version is recorded",
    data="no column policy_version",
    fails_if="stale-tokens not judged",
    rule="stale-tokens",
    link=Link.DATA_FRESHNESS,
    next=("record policy_version with each sequence",),
)
BOUND_BLIND = replace(
    BOUND,
    outcome=Outcome.BLIND,
    claim="no mean KL is logged",
    data="nothing",
    observed=None,
    low=None,
    high=None,
    next=("log the mean KL each step",),
)
BASELINE = CheckResult(
    id="baseline:tail.post_tool.p99",
    kind=CheckKind.BASELINE,
    outcome=Outcome.PASSED,
    title="post-tool p99 at most 1.25 times the baseline's, beyond noise",
    claim="it is 1.02 times",
    data="3 baseline seeds, 12 matched spans",
    fails_if="a factor whose interval lies above 1.25",
    observed=1.02,
    limit=1.25,
    unit="x",
    low=math.nan,
    high=math.inf,
)
CRASH = CheckResult(
    id="crash:entropy-collapse",
    kind=CheckKind.CRASH,
    outcome=Outcome.CRASHED,
    title="every rule ran to its end",
    claim="entropy-collapse raised ZeroDivisionError",
    data="one rule of 63",
    fails_if="a rule that raises",
    rule="entropy-collapse",
)
WAIVED = replace(TAILS, outcome=Outcome.PASSED, waiver=WAIVER)
EXPIRED = replace(
    TAILS,
    id="waiver:tool-tail-growth",
    kind=CheckKind.WAIVER,
    title="no finding stands on an expired allowance",
    claim="its allowance expired",
    waiver=replace(WAIVER, expires="2026-11-01"),
)
UNNEEDED = CheckResult(
    id="waiver:entropy-collapse",
    kind=CheckKind.WAIVER,
    outcome=Outcome.PASSED,
    title="every allowance is needed",
    claim="the run shows no entropy-collapse: the allowance can go",
    data="51 rules judged",
    fails_if="nothing: this is a note",
    waiver=replace(WAIVER, finding="entropy-collapse", slice=None),
)


def run(name: str, *checks: CheckResult, outcome: Outcome | None = None, error: str = "") -> GatedRun:
    """Give a run with the outcome of its checks."""
    given = outcome or worst([check.outcome for check in checks])
    judged = not error
    return GatedRun(
        name=name,
        outcome=given,
        checks=checks,
        status=(Status.UNSTABLE if given is Outcome.FAILED else Status.HEALTHY) if judged else None,
        headline=("Post-tool tails grew." if given is Outcome.FAILED else "Nothing is wrong.") if judged else "",
        error=error,
        first_broken_link=Link.POLICY_UPDATE if given is Outcome.FAILED and judged else None,
        framework="trl" if judged else None,
        steps=300 if judged else 0,
        model_tokens=1_234_567 if judged else 0,
        report=f"{name}/report.html" if judged else None,
        path=f"runs/{name}",
    )


def report(*runs: GatedRun, **more: object) -> GateReport:
    """Give a report with the outcome of its runs."""
    whole = GateReport(outcome=worst([one.outcome for one in runs]), runs=runs, policy=POLICY)
    return replace(whole, **more)  # type: ignore[arg-type]


def hostile_check(check: CheckResult) -> CheckResult:
    """Put hostile text wherever a check holds text."""
    return replace(
        check,
        id=HOSTILE,
        title=HOSTILE,
        claim=HOSTILE,
        data=HOSTILE,
        fails_if=HOSTILE,
        unit="\x00<u>",
        rule=HOSTILE,
        file="../../etc/passwd",
        next=(HOSTILE,),
        waiver=None
        if check.waiver is None
        else Waiver(finding=HOSTILE, owner=HOSTILE, reason=HOSTILE, expires=HOSTILE),
    )


def hostile() -> GateReport:
    """Give a report in which every text is hostile."""
    checks = [hostile_check(check) for check in (TAILS, BLIND, WAIVED, EXTENT)]
    bad = replace(
        run("x", *checks),
        name=HOSTILE,
        headline=HOSTILE,
        framework=HOSTILE,
        report=HOSTILE,
        path="/abs/olute",
        notes=(HOSTILE,),
    )
    policy: dict[str, JsonScalar] = {HOSTILE: HOSTILE, "nan": math.nan, "flag": True, "no": None}
    return report(bad, replace(bad, error=HOSTILE), policy=policy, baseline=HOSTILE, notes=(HOSTILE,))


SAMPLES = {
    "passed": report(run("seed-1", SEVERITY_PASSED, EXTENT, BASELINE), run("seed-2", SEVERITY_PASSED, EXTENT)),
    "failed": report(
        run("healthy", SEVERITY_PASSED, EXTENT),
        run("tails", TAILS, EXTENT, BOUND, BLIND),
        run("waived", WAIVED, EXTENT, UNNEEDED),
        run("expired", EXPIRED, EXTENT),
        run(
            "torn.tar.zst", outcome=Outcome.UNREADABLE, error="torn.tar.zst: the archive ends in the middle of a file."
        ),
        baseline="baseline.toml",
        notes=("one run was given twice and counted once",),
    ),
    "blind": report(run("short", SEVERITY_PASSED, BLIND)),
    "excused": report(
        run("quiet", SEVERITY_PASSED, replace(BOUND_BLIND, excused=True), outcome=Outcome.PASSED),
        run("loud", TAILS, replace(BOUND_BLIND, excused=True)),
        policy={**POLICY, "cannot_say": "pass"},
    ),
    "unreadable": report(run("bomb.zip", outcome=Outcome.UNREADABLE, error="bomb.zip: unpacks to more than 1 TiB.")),
    "crashed": report(
        run("ours", CRASH, TAILS), run("killed", outcome=Outcome.CRASHED, error="the worker that judged it was killed")
    ),
    "hostile": hostile(),
    "nothing": report(),
}

texts = st.one_of(st.text(max_size=60), st.text(alphabet="@#!$%&~|`*_<>[](){}\\-+=.:/wGH1a\n \x00\u202e", max_size=40))
numbers = st.one_of(st.none(), st.floats())


@st.composite
def checks(draw: st.DrawFn) -> CheckResult:
    """Draw a check with any text and any numbers."""
    waiver = st.builds(Waiver, finding=texts, owner=texts, reason=texts, expires=texts, slice=st.none() | texts)
    return CheckResult(
        id=draw(texts),
        kind=draw(st.sampled_from(CheckKind)),
        outcome=draw(st.sampled_from([Outcome.PASSED, Outcome.FAILED, Outcome.BLIND, Outcome.CRASHED])),
        title=draw(texts),
        claim=draw(texts),
        data=draw(texts),
        fails_if=draw(texts),
        observed=draw(numbers),
        limit=draw(numbers),
        unit=draw(st.sampled_from(["", "x", "share", "nats"]) | texts),
        low=draw(numbers),
        high=draw(numbers),
        severity=draw(st.none() | st.sampled_from(Severity)),
        link=draw(st.none() | st.sampled_from(Link)),
        rule=draw(st.none() | texts),
        step=draw(st.none() | st.integers(0, 10**6)),
        file=draw(st.none() | texts),
        waiver=draw(st.none() | waiver),
        excused=draw(st.booleans()),
        next=tuple(draw(st.lists(texts, max_size=2))),
    )


@st.composite
def reports(draw: st.DrawFn) -> GateReport:
    """Draw a report over up to three runs."""
    runs = []
    for _ in range(draw(st.integers(0, 3))):
        drawn = tuple(draw(st.lists(checks(), max_size=3)))
        error = "" if drawn else draw(texts)
        outcome = worst([check.outcome for check in drawn]) if drawn else Outcome.UNREADABLE
        one = GatedRun(
            name=draw(texts),
            outcome=outcome,
            checks=drawn,
            status=draw(st.none() | st.sampled_from(Status)),
            headline=draw(texts),
            first_broken_link=draw(st.none() | st.sampled_from(Link)),
            error=error,
            framework=draw(st.none() | texts),
            report=draw(st.none() | texts),
            path=draw(st.none() | texts),
            notes=tuple(draw(st.lists(texts, max_size=1))),
        )
        runs.append(one)
    return report(*runs, notes=tuple(draw(st.lists(texts, max_size=1))), baseline=draw(st.none() | texts))
