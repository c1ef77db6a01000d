"""Hand-made diagnoses of agent traces: what reports, gates and comparisons must show, without reading a file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl

from ptt.diagnostics.model import Finding, Healthy, Link, NotJudged, RunVerdict, Severity, Source, Status
from ptt.diagnostics.traces.call_outcomes import KNOWN_BY
from ptt.diagnostics.traces.model import Call, Example, Message, Parting, Share, TraceDiagnosis, TraceSet

BLOCKS = 12
EPISODES = 600


def share(hits: int, trials: int, spread: float = 0.04, clusters: int = 60) -> Share:
    """Return a share with an interval so wide on either side."""
    value = hits / trials
    return Share(
        hits=hits, trials=trials, interval=(max(value - spread, 0.0), min(value + spread, 1.0)), clusters=clusters
    )


def _over_order(*, failing: bool) -> pl.DataFrame:
    rows = []
    for block in range(BLOCKS):
        late = block >= 7
        failures = 0.02 + (0.09 * (block - 6) if failing and late else 0.0)
        rows.append(
            {
                "block": block, "first": 50 * block + 1, "last": 50 * (block + 1), "episodes": 50,
                "success": 0.62 - (0.08 * (block - 6) if failing and late else 0.01 * (block % 3)),
                "tool_failures": failures, "malformed": 0.004, "loops": 0.02 + failures / 3, "truncated": 0.01,
                "void": 0.0, "reward": 0.6 - failures, "turns": 6.0 + 5 * failures, "calls": 5.0 + 6 * failures,
            }
        )  # fmt: skip
    return pl.DataFrame(rows)


def _tools(prefix: str = "") -> pl.DataFrame:
    keys = (
        "name", "calls", "episodes", "failures", "known", "failed", "low", "high", "first_failed", "last_failed",
        "latency_p50", "latency_p95", "repeated", "malformed", "cost_usd", "success_with", "success_without",
    )  # fmt: skip
    rows: list[tuple[Any, ...]] = [
        ("search_flights", 2140, 588, 512, 2140, 0.239, 0.19, 0.292, 0.021, 0.47, 1.2, 9.7, 0.11, 0.0, 4.2, 0.51, 0.66),
        ("get_user", 600, 600, 6, 600, 0.01, 0.004, 0.02, 0.01, 0.01, 0.2, 0.4, 0.0, 0.01, None, 0.56, None),
        ("book_flight", 388, 371, 31, 388, 0.08, 0.05, 0.12, 0.07, 0.09, 0.8, 1.9, 0.02, 0.03, 0.4, 0.7, 0.32),
        ("calculate", 210, 96, 0, 0, None, None, None, None, None, 0.01, 0.02, 0.3, 0.0, None, 0.6, 0.55),
        ("send_certificate", 12, 12, 1, 12, 0.083, None, None, None, None, None, None, 0.0, 0.0, None, 0.5, 0.56),
    ]
    named = [(prefix + row[0], *row[1:]) for row in rows]
    table = pl.DataFrame(named, schema=list(keys), orient="row", infer_schema_length=None)
    return table.with_columns(pl.col("known").alias("marked"), *(pl.lit(0).alias(by) for by in KNOWN_BY[1:]))


def _by() -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    for kind, names in {
        "task": [f"booking-{n:02d}" for n in range(14)], "env": ["airline", "retail"], "model": ["agent-a", "agent-b"],
    }.items():  # fmt: skip
        for number, name in enumerate(names):
            episodes = EPISODES // len(names)
            successes = int(episodes * (0.9 - 0.6 * number / max(len(names) - 1, 1)))
            value = successes / episodes
            rows.append(
                {
                    "kind": kind, "name": name, "episodes": episodes, "labelled": episodes, "successes": successes,
                    "success": value, "low": max(0.0, value - 0.12), "high": min(1.0, value + 0.12), "reward": value,
                }
            )  # fmt: skip
    return pl.DataFrame(rows)


def _tables(*, failing: bool = True, prefix: str = "") -> dict[str, pl.DataFrame]:
    errors = [
        (f"{prefix}search_flights", "timeout", 430, 0.84, "Timed out after 10 s"),
        (f"{prefix}search_flights", "http 5xx", 82, 0.16, "502 Bad Gateway <html>"),
        (f"{prefix}book_flight", "missing argument", 31, 1.0, "payment_id is required"),
    ]
    turns = [("1-2", 40, 0.8), ("3-4", 160, 0.74), ("5-8", 240, 0.6), ("9-16", 120, 0.38), ("17+", 40, 0.1)]
    return {
        "over_order": _over_order(failing=failing),
        "tools": _tools(prefix),
        "by": _by(),
        "error_classes": pl.DataFrame(
            errors, schema=["tool", "error_class", "calls", "share", "example"], orient="row"
        ),
        "turn_counts": pl.DataFrame(
            [
                (bucket, episodes, int(episodes * value), max(0.0, value - 0.1), min(1.0, value + 0.1))
                for bucket, episodes, value in turns
            ],
            schema=["bucket", "episodes", "success", "low", "high"], orient="row",
        ).with_columns(pl.Series("success", [value for _, _, value in turns])),
        "groups": pl.DataFrame(
            [("booking-03", 12, 7, 0.4), ("booking-09", 12, 4, 0.5)],
            schema=["group", "episodes", "successes", "reward_spread"], orient="row",
        ),
        "failing_tools": pl.DataFrame(
            [(f"{prefix}search_flights", 2140, 512, "e-19", 352), (f"{prefix}book_flight", 388, 31, "e-3", 4)],
            schema=["tool", "known", "failures", "first_episode", "first_place"], orient="row",
        ),
        "failures_over_order": pl.DataFrame(
            [
                (f"{prefix}search_flights", block, 178, 4 if block < 7 else 84, 50 * block + 1, 50 * (block + 1))
                for block in range(BLOCKS)
            ],
            schema=["tool", "block", "known", "failures", "first", "last"], orient="row",
        ),
        "partings": pl.DataFrame(
            [("booking-09", 2, "e-14", "e-19", 0.62, 12, "the failing ones retry the same search")],
            schema=["group", "turn", "success_id", "failure_id", "lift", "episodes", "why"], orient="row",
        ),
    }  # fmt: skip


def _searched(arguments: str, *, failed: bool) -> Call:
    error = "Timed out after 10 s" if failed else ""
    return Call(name="search_flights", arguments=arguments, failed=failed, error=error)


def _messages(last: str, *, failed: bool) -> tuple[Message, ...]:
    return (
        Message(role="user", text="Book the cheapest flight from Oslo to Bergen on <Friday>."),
        Message(role="assistant", text="I look for flights.", calls=(_searched('{"from": "OSL"}', failed=failed),)),
        Message(role="tool", text="Timed out after 10 s" if failed else '[{"id": "F1", "eur": 61}]', failed=failed),
        Message(role="assistant", text=last, calls=(_searched("{}", failed=failed),), mark="parts here"),
        Message(role="tool", text="Timed out after 10 s" if failed else "ok", failed=failed),
    )


def example(name: str, outcome: str, findings: tuple[int, ...] = (), last: str = "Again.") -> Example:
    """Return an episode of a few messages."""
    return Example(
        name=name,
        findings=findings,
        source="logs/agents.jsonl",
        outcome=outcome,
        reward=1.0 if outcome == "success" else 0.0,
        length=5,
        messages=tuple(
            replace(message, number=at)
            for at, message in enumerate(_messages(last, failed=outcome != "success"), start=1)
        ),
    )


TOOL_FAILURE = Finding(
    id="tool-failures",
    severity=Severity.CRITICAL,
    link=Link.ENVIRONMENT,
    claim="failed calls of search_flights rose from 2% to 47%",
    observed=0.47,
    limit=0.1,
    unit="of calls",
    slice="tool:search_flights",
    onset_step=352,
    onset_interval=(330, 380),
    evidence={"tool": "search_flights", "early": 0.02, "late": 0.47, "calls": 2140},
    causes=("the service behind the tool fails", "its time limit is too short"),
    confirm=("call the tool by hand with the arguments of a failed call",),
    next=("check the service of search_flights from episode 330 on", "leave failed episodes out of training"),
)
SUCCESS_FALL = Finding(
    id="success",
    severity=Severity.HIGH,
    link=Link.EVALUATION,
    claim="success fell from 62% to 22%",
    observed=0.22,
    limit=0.5,
    unit="of episodes",
    onset_step=360,
    onset_interval=(340, 400),
    evidence={"metric": "trajectories.success"},
    consequence_of="tool-failures",
)
NOTE = Finding(
    id="tool-unused",
    severity=Severity.LOW,
    link=Link.EXPLORATION,
    claim="the tool cancel_booking is offered and never called",
    observed=0.0,
    limit=None,
    unit="calls",
)
SOURCE = Source(
    path="logs/agents.jsonl", kind="trl_completions", bytes=91_000, rows_ok=600, rows_bad=1, bytes_lost=14, note=None
)


def failing_traces() -> TraceDiagnosis:
    """Return a set whose one tool breaks late, with all that a report can show."""
    return TraceDiagnosis(
        traces=TraceSet(
            name="agents", kinds={"trl_completions": EPISODES}, episodes=EPISODES, labelled=EPISODES,
            assistant_turns=3900, tool_calls=3350, tool_errors=550, reward_mean=0.48, rewarded=EPISODES,
            distinct_tools=5, success=share(306, EPISODES), first=1, last=EPISODES, tasks=14,
        ),
        verdict=RunVerdict(
            status=Status.UNSTABLE,
            headline=TOOL_FAILURE.claim,
            first_broken_link=Link.ENVIRONMENT,
            next=TOOL_FAILURE.next,
        ),
        findings=(TOOL_FAILURE, SUCCESS_FALL, NOTE),
        healthy=(
            Healthy(id="malformed-calls", link=Link.ENVIRONMENT, reason="0.4% of calls cannot be parsed"),
            Healthy(id="truncation", link=Link.SYSTEMS, reason="1% of episodes end at a limit"),
        ),
        not_judged=(
            NotJudged(
                id="judge-bias", link=Link.REWARD, reason="no judge's score is recorded", missing=("reward",),
                enable="record the judge's score of each episode",
            ),
        ),
        crashes=(),
        sources=(SOURCE,),
        tables=_tables(),
        examples=(
            example("e-19", "failure", (0,)),
            example("e-44", "unknown", (0, 1), "One more time."),
        ),
        partings=(
            Parting(
                group="booking-09", turn=1, success=example("e-14", "success", last="Book F1."),
                failure=example("e-19", "failure", last="Search again."),
                why="episodes that search again here succeed in 8%, those that book in 70%",
            ),
        ),
        measured={
            "success_rate": share(306, EPISODES),
            "tool_failure_rate": share(550, 3140, 0.03),
            "malformed_rate": share(13, 3350, 0.002),
            "loop_rate": share(28, EPISODES, 0.02),
        },
    )  # fmt: skip


def healthy_traces(name: str = "before", prefix: str = "") -> TraceDiagnosis:
    """Return a set without a finding."""
    failing = failing_traces()
    return replace(
        failing,
        traces=replace(failing.traces, name=name, tool_errors=40, success=share(380, EPISODES)),
        verdict=RunVerdict(
            status=Status.HEALTHY, headline="no fault was found in 600 episodes", first_broken_link=None, next=()
        ),
        findings=(),
        tables=_tables(failing=False, prefix=prefix),
        examples=(),
        partings=(),
        measured={"success_rate": share(380, EPISODES), "tool_failure_rate": share(40, 3140, 0.01)},
    )


def unlabelled_traces() -> TraceDiagnosis:
    """Return a set of which the files tell next to nothing."""
    failing = failing_traces()
    return replace(
        failing,
        traces=TraceSet(
            name="chats", kinds={"trl_completions": 3}, episodes=3, labelled=0, assistant_turns=9, tool_calls=None,
            tool_errors=None, reward_mean=None, rewarded=0, distinct_tools=None, first=1, last=3,
        ),
        verdict=RunVerdict(
            status=Status.CANNOT_SAY, headline="3 episodes were read; none is labelled, and none calls a tool",
            first_broken_link=None, next=("record the success of each episode",),
        ),
        findings=(),
        healthy=(),
        tables={},
        examples=(),
        partings=(),
        measured={},
    )  # fmt: skip


HOSTILE = '<script>alert(1)</script>\x1b[31m"&\u202e'


def hostile_traces() -> TraceDiagnosis:
    """Return a set whose names and texts try to steer the page and the terminal."""
    failing = failing_traces()
    pair = failing.partings[0]
    message = Message(
        role=HOSTILE,
        text=HOSTILE * 3,
        calls=(Call(name=HOSTILE, arguments=HOSTILE, failed=True, error=HOSTILE),),
        failed=True,
        mark=HOSTILE,
    )
    episode = replace(pair.failure, name=HOSTILE, source=HOSTILE, messages=(message,))
    return replace(
        failing,
        traces=replace(failing.traces, name=HOSTILE),
        verdict=replace(failing.verdict, headline=HOSTILE),
        findings=tuple(replace(finding, claim=HOSTILE + finding.claim) for finding in failing.findings),
        tables={
            name: frame.with_columns(pl.lit(HOSTILE).alias(column))
            for name, frame, column in (
                (name, frame, next((c for c, kind in frame.schema.items() if kind == pl.String), frame.columns[0]))
                for name, frame in failing.tables.items()
                if name not in ("over_order", "turn_counts")
            )
        },
        examples=(episode,),
        partings=(replace(pair, group=HOSTILE, success=episode, failure=episode, why=HOSTILE),),
    )


SAMPLES = {
    "failing": failing_traces,
    "healthy": healthy_traces,
    "unlabelled": unlabelled_traces,
    "hostile": hostile_traces,
}
