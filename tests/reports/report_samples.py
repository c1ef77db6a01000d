"""Diagnosis values with realistic synthetic tables, for looking at and for testing what reports say."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import polars as pl

from ptt.diagnostics.model import (
    Aggregates,
    Answer,
    Diagnosis,
    Finding,
    Healthy,
    Link,
    NotJudged,
    RuleCrash,
    Run,
    RunVerdict,
    Severity,
    Signature,
    Source,
    Status,
    TailGrowth,
)

STEPS = 700
WINDOWS = (("early", 1, 233), ("mid", 234, 466), ("late", 467, 700))
Curve = tuple[float, float, float]  # a value at the middle of each third

HOSTILE = "<script>alert(1)</script>\x1b[31m[bold red]x[/bold red]\u202egnp.exe\u200f $x_1$ {{ 7*7 }}\x00"


def _at(curve: Curve, step: float, last: int) -> float:
    x = np.array([last / 6, last / 2, 5 * last / 6])
    return float(np.exp(np.interp(step, x, np.log(curve))))


def tables(
    *,
    post: Curve,
    text: Curve,
    last: int = STEPS,
    after: str = "post_tool",
    seed: int = 0,
    kl: tuple[float, float] = (0.05, 0.61),
) -> dict[str, pl.DataFrame]:
    """Make every table that a figure reads, from the p95 of two slices by thirds of the run."""
    rng = np.random.default_rng(seed)
    curves = {"text_only": text, after: post}
    tail: list[dict[str, object]] = []
    ess: list[dict[str, object]] = []
    for first in range(1, last, 28):
        end = min(first + 27, last)
        mid = (first + end) / 2
        for name, curve in curves.items():
            n = int(rng.integers(3000, 5000))
            for q, factor in ((0.95, 1.0), (0.99, 2.1)):
                value = _at(curve, mid, last) * factor * math.exp(rng.normal(0, 0.05))
                spread = math.exp(0.06 * factor)
                tail.append(
                    _row(
                        name,
                        first,
                        end,
                        q=q,
                        step_mid=mid,
                        value=value,
                        lo=value / spread,
                        hi=value * spread,
                        n_tokens=n,
                        n_sequences=n // 40,
                    )
                )
            scale = _at(curve, mid, last)
            for level, size, share in (("token", n, 0.2), ("sequence", n // 40, 0.35)):
                for weights, sign in (("policy/ref", 1.0), ("ref/policy", 0.45)):
                    fraction = 1 / (1 + share * sign * scale**2 * math.exp(rng.normal(0, 0.15)))
                    ess.append(
                        _row(
                            name,
                            first,
                            end,
                            level=level,
                            weights=weights,
                            step_mid=mid,
                            ess_fraction=fraction,
                            n=size,
                            top_share=min(1.0, 0.02 + 0.1 * (1 - fraction)),
                        )
                    )
    return {
        "tail_emergence": pl.DataFrame(tail),
        "ess": pl.DataFrame(ess),
        "ecdf": pl.DataFrame(_ecdf(curves, last)),
        "growth": pl.DataFrame(_growth(curves, last)),
        "aggregates": pl.DataFrame(_aggregates(last, rng, kl)),
    }


def _row(name: str, first: int, end: int, **columns: object) -> dict[str, object]:
    return {"slice": name, "step_first": first, "step_last": end, **columns}


def _thirds(last: int) -> list[tuple[str, int, int]]:
    cuts = [0, last // 3, 2 * last // 3, last]
    return [(name, a + 1, b) for name, a, b in zip(("early", "mid", "late"), cuts, cuts[1:], strict=False)]


def _ecdf(curves: dict[str, Curve], last: int) -> list[dict[str, object]]:
    edges = np.exp(np.arange(math.log(1e-6), math.log(40), 0.008))
    rows: list[dict[str, object]] = []
    for name, curve in curves.items():
        for index, (window, first, end) in enumerate(_thirds(last)):
            # a log-normal body whose 95th percentile is the wanted one, with half the tokens near nothing
            centre = math.log(curve[index]) - 2.6
            z = (np.log(edges) - centre) / 1.58
            cdf = 0.5 * (1 + np.vectorize(math.erf)(z / math.sqrt(2)))
            n = 120_000
            cdf = np.round(cdf * n) / n
            rows += [
                _row(name, first, end, window=window, x=float(x), cdf=float(c), n_tokens=n)
                for x, c in zip(edges, cdf, strict=True)
            ]
    return rows


def _growth(curves: dict[str, Curve], last: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for name, curve in curves.items():
        for part, (_, first, end) in enumerate(_thirds(last)):
            p95 = curve[part]
            rows.append(
                _row(
                    name,
                    first,
                    end,
                    parts=3,
                    part=part,
                    p50=p95 / 40,
                    p95=p95,
                    p99=1.9 * p95,
                    p999=3.1 * p95,
                    n_tokens=120_000,
                    n_sequences=3000,
                )
            )
    return rows


def _aggregates(last: int, rng: np.random.Generator, kl: tuple[float, float]) -> list[dict[str, object]]:
    steps = np.arange(1, last + 1)
    along = steps / last
    shapes: dict[str, tuple[np.ndarray, float, float | None]] = {
        "kl/ref": (kl[0] + kl[1] * along**1.7, 0.5 * kl[0], 0.3),
        "reward/mean": (0.34 + 0.12 * np.minimum(1, 2 * along), 0.09, None),
        "entropy": (0.15 - 0.05 * along, 0.012, 0.02),
        "grad_norm": (0.35 + 0.0 * along, 0.07, 5.0),
        "loss/total": (0.01 + 0.0 * along, 0.02, None),
    }
    rows: list[dict[str, object]] = []
    for name, (shape, noise, limit) in shapes.items():
        values = shape + rng.normal(0, noise, len(steps))
        for i, step in enumerate(steps):
            mean = float(values[max(0, i - 19) : i + 1].mean())
            rows.append({"name": name, "step": int(step), "value": float(values[i]), "mean": mean, "limit": limit})
    return rows


def _sources(last: int) -> tuple[Source, ...]:
    tokens = tuple(
        Source(
            path=f"tokens/step_{s:06d}.parquet",
            kind="recorder",
            bytes=40_000,
            rows_ok=32,
            rows_bad=0,
            bytes_lost=0,
            note=None,
        )
        for s in range(1, last, 8)
    )
    return (
        Source(
            path="trainer_state.json",
            kind="transformers_state",
            bytes=300_000,
            rows_ok=last,
            rows_bad=0,
            bytes_lost=0,
            note=None,
        ),
        Source(
            path="metrics.jsonl",
            kind="jsonl_metrics",
            bytes=90_000,
            rows_ok=last - 1,
            rows_bad=1,
            bytes_lost=212,
            note="the last line is torn",
        ),
        *tokens,
        Source(
            path="notes.txt",
            kind="unrecognised",
            bytes=120,
            rows_ok=0,
            rows_bad=0,
            bytes_lost=0,
            note="no parser knows this file",
        ),
    )


HEALTHY = (
    Healthy(id="entropy-collapse", link=Link.EXPLORATION, reason="entropy ends at 0.10, above its floor of 0.02"),
    Healthy(id="gradient-spikes", link=Link.NUMERICS, reason="gradient norm stays below 0.6; the limit is 5"),
    Healthy(id="non-finite-values", link=Link.NUMERICS, reason="no NaN or infinity in 3500 metric values"),
    Healthy(
        id="degenerate-pair",
        link=Link.DATA_VALIDITY,
        reason="policy and reference differ on 96% of the model tokens",
    ),
    Healthy(id="stale-rollouts", link=Link.DATA_FRESHNESS, reason="no token is older than 2 versions"),
    Healthy(
        id="reward-side-metrics",
        link=Link.REWARD,
        reason="length and tool calls a sample moved less than 10%",
    ),
)
NOT_JUDGED = (
    NotJudged(
        id="train-inference-mismatch",
        link=Link.NUMERICS,
        reason="the run holds no log-probabilities of the engine that sampled",
        missing=("rollout_logp",),
        enable="set vllm_importance_sampling_correction=True, which makes TRL return them",
    ),
    NotJudged(
        id="value-fit",
        link=Link.CRITIC,
        reason="this algorithm has no value head",
        missing=("value",),
        enable="",
    ),
    NotJudged(
        id="stragglers",
        link=Link.SYSTEMS,
        reason="no step time by rank was logged",
        missing=("step_time", "rank"),
        enable="log the step time of every rank",
    ),
    NotJudged(
        id="evaluation-gap",
        link=Link.EVALUATION,
        reason="no evaluation was logged",
        missing=("eval_reward",),
        enable="pass eval_dataset and eval_strategy='steps'",
    ),
)


def baseline() -> Diagnosis:
    """Make the run with the signature: tails grow after tool calls, the curves stay quiet."""
    growth = Finding(
        id="tool-tail-growth",
        severity=Severity.CRITICAL,
        link=Link.POLICY_UPDATE,
        slice="post_tool",
        claim="post-tool importance weights grew a heavy tail that text-only tokens do not have",
        observed=5.29,
        limit=1.5,
        unit="x",
        onset_step=129,
        onset_interval=(113, 145),
        limit_passed_step=129,
        limit_passed_interval=(113, 145),
        evidence={
            "p95_early": 1.7,
            "p95_late": 9.0,
            "p99_late": 14.9,
            "share_of_second_moment_in_top_1_percent": 0.993,
            "worst_step": 688,
            "worst_tool": "lookup",
            "exposure_part": 0.08,
            "intensity_part": 0.92,
        },
        causes=(
            "states after a tool call lie where the reference gives little probability",
            "the KL weight of 0.001 is too small to hold them",
        ),
        next=(
            "raise the KL weight on post-tool tokens first",
            "narrow the tool output to a schema and compare",
        ),
    )
    return Diagnosis(
        run=Run(
            name="baseline",
            framework="trl",
            algorithm="grpo",
            first_step=1,
            last_step=700,
            step_count=700,
            sequences=22_400,
            model_tokens=1_234_567,
            context={
                "beta": 0.001,
                "learning_rate": 2e-4,
                "seed": 7,
                "code_version": None,
                "gradient_clipping": True,
                "model": "qwen2-0.3M",
            },
        ),
        verdict=RunVerdict(
            status=Status.UNSTABLE,
            headline="importance weights grow heavy tails after tool calls while the usual curves stay quiet",
            first_broken_link=Link.POLICY_UPDATE,
            next=(
                "Go back to the checkpoint before step 113 if you need a good one now",
                "Raise the KL weight from 0.001 to 0.05, rerun 200 steps: post-tool p95 should stay under 2",
                "Constrain the tool output to a schema; look at the `lookup` results of step 688 first",
            ),
        ),
        signature=Signature(
            status=Answer.FOUND,
            reason="all four conditions hold",
            pair="policy/ref",
            onset_step=129,
            onset_interval=(113, 145),
            limit_passed_step=129,
            limit_passed_interval=(113, 145),
            lead_steps=286,
            lead_interval=(264, 305),
            p_value=0.001,
            false_alarm_rate=0.01,
            aggregates=Aggregates(
                status="quiet",
                metrics={
                    "kl/ref": "rose",
                    "reward/mean": "rose",
                    "entropy": "fell",
                    "grad_norm": "flat",
                    "loss/total": "flat",
                },
                alarms={"kl/ref": 415},
            ),
            growth={
                "post_tool": TailGrowth(p95=5.29, p99=1.94, interval_p95=(4.1, 6.6), interval_p99=(1.6, 2.4)),
                "text_only": TailGrowth(p95=0.235, p99=0.3, interval_p95=(0.2, 0.29), interval_p99=(0.22, 0.41)),
            },
            conditions={"growth": True, "localised": True, "lasting": True, "material": True},
        ),
        findings=(
            growth,
            Finding(
                id="kl-over-target",
                severity=Severity.MEDIUM,
                link=Link.POLICY_UPDATE,
                claim="the 20-step mean of KL passed its limit",
                observed=0.65,
                limit=0.3,
                unit="nats",
                onset_step=415,
                onset_interval=(401, 432),
                evidence={"kl_early": 0.09, "kl_late": 0.65},
                consequence_of="tool-tail-growth",
            ),
            Finding(
                id="single-token-weights",
                severity=Severity.LOW,
                link=Link.POLICY_UPDATE,
                slice="post_tool",
                claim="one token holds 31% of all weight in the late window",
                observed=0.31,
                limit=0.05,
                unit="share",
                onset_step=160,
                evidence={"token": 4711},
                consequence_of="tool-tail-growth",
            ),
            Finding(
                id="tool-errors",
                severity=Severity.LOW,
                link=Link.ENVIRONMENT,
                claim="2% of the tool calls fail, evenly over the run",
                observed=0.02,
                limit=0.2,
                unit="share",
                evidence={"calls": 21_990, "failed": 440},
                next=("none needed; read the errors of `calc` once",),
            ),
        ),
        healthy=HEALTHY,
        not_judged=NOT_JUDGED,
        crashes=(),
        sources=_sources(700),
        tables=tables(post=(1.7, 5.9, 9.0), text=(0.17, 0.11, 0.04)),
    )


def healthy() -> Diagnosis:
    """Make a run whose tails grow from nothing to little: normal learning."""
    made = tables(post=(0.03, 0.07, 0.16), text=(0.14, 0.017, 0.033), last=500, seed=1, kl=(0.01, 0.02))
    return dataclasses.replace(
        baseline(),
        run=dataclasses.replace(
            baseline().run,
            name="healthy",
            last_step=500,
            step_count=500,
            sequences=16_000,
            model_tokens=820_114,
        ),
        verdict=RunVerdict(
            status=Status.HEALTHY,
            headline="nothing above low was found",
            first_broken_link=None,
            next=("Keep recording; look again after the next 500 steps",),
        ),
        signature=Signature(
            status=Answer.NOT_FOUND,
            reason="post-tool tails grew fivefold but end at p99 0.27, far below ln 2: normal learning",
            pair="policy/ref",
            aggregates=Aggregates(
                status="quiet",
                metrics={
                    "kl/ref": "flat",
                    "reward/mean": "rose",
                    "entropy": "fell",
                    "grad_norm": "flat",
                    "loss/total": "flat",
                },
                alarms={},
            ),
            growth={
                "post_tool": TailGrowth(p95=5.3, p99=1.9, interval_p95=(3.9, 7.0), interval_p99=(1.2, 2.8)),
                "text_only": TailGrowth(p95=0.24, p99=0.4, interval_p95=None, interval_p99=None),
            },
            p_value=0.004,
            false_alarm_rate=0.01,
            conditions={"growth": True, "localised": True, "lasting": True, "material": False},
        ),
        findings=(
            Finding(
                id="small-tail-growth",
                severity=Severity.INFO,
                link=Link.POLICY_UPDATE,
                slice="post_tool",
                claim="post-tool p95 grew fivefold, from 0.03 to 0.16",
                observed=5.3,
                limit=None,
                unit="x",
                evidence={"p99_late": 0.27},
            ),
        ),
        sources=_sources(500),
        tables=made,
    )


def cannot_say() -> Diagnosis:
    """Make a run without a single tool observation, judged from its curves alone."""
    only = {"aggregates": tables(post=(1, 1, 1), text=(1, 1, 1), last=120, kl=(0.01, 0.02))["aggregates"]}
    reason = "no sequence holds an observation between model tokens"
    return dataclasses.replace(
        baseline(),
        run=Run(
            name="text-run",
            framework=None,
            algorithm=None,
            first_step=1,
            last_step=120,
            step_count=120,
            sequences=0,
            model_tokens=0,
        ),
        verdict=RunVerdict(
            status=Status.CANNOT_SAY,
            headline="the run does not hold what the main questions need",
            first_broken_link=None,
            next=("Record model_mask and two log-probabilities per token; `ptt sources` names the switch",),
        ),
        signature=Signature(
            status=Answer.CANNOT_SAY,
            reason=reason,
            pair=None,
            aggregates=Aggregates(status="quiet", metrics={"kl/ref": "flat", "loss/total": "flat"}, alarms={}),
        ),
        findings=(),
        healthy=HEALTHY[:2],
        sources=_sources(9),
        tables=only,
        not_judged=(
            NotJudged(
                id="tool-tail-growth",
                link=Link.POLICY_UPDATE,
                reason=reason,
                missing=("model_mask", "ref_logp"),
                enable="set log_token_logprobs=True",
            ),
            *NOT_JUDGED,
        ),
    )


def collapse() -> Diagnosis:
    """Make a run that fell apart early; the post-tool slice empties, so the signature cannot be judged."""
    made = tables(post=(6.2, 6.0, 6.0), text=(11.2, 10.0, 9.2), last=400, seed=2, kl=(3.4, -1.8))
    early = {
        name: frame.filter((pl.col("slice") == "text_only") | (pl.col("step_last") <= 60))
        for name, frame in made.items()
        if "slice" in frame.columns
    }
    base = baseline()
    root = Finding(
        id="update-too-large",
        severity=Severity.CRITICAL,
        link=Link.POLICY_UPDATE,
        claim="the policy moves too far in one step",
        observed=0.81,
        limit=0.5,
        unit="",
        onset_step=10,
        onset_interval=(8, 12),
        evidence={"learning_rate": 0.004, "p99_update": 0.81},
        causes=("learning rate 0.004 without gradient clipping",),
        next=("lower the learning rate tenfold",),
    )
    return dataclasses.replace(
        base,
        run=dataclasses.replace(
            base.run, name="collapse", last_step=400, step_count=400, sequences=12_800, model_tokens=1_900_000
        ),
        verdict=RunVerdict(
            status=Status.UNSTABLE,
            headline="the policy collapsed within 25 steps",
            first_broken_link=Link.POLICY_UPDATE,
            next=(
                "Lower the learning rate tenfold and switch gradient clipping on",
                "Restart from the SFT checkpoint: nothing after step 8 is worth keeping",
            ),
        ),
        signature=Signature(
            status=Answer.CANNOT_SAY,
            reason="tool use vanishes at step 23, so there is no late post-tool window",
            pair="policy/ref",
            aggregates=Aggregates(
                status="alarming",
                metrics={"kl/ref": "rose", "reward/mean": "fell", "entropy": "cannot_say"},
                alarms={"kl/ref": 14, "reward/mean": 31},
            ),
            conditions={"growth": None, "localised": None, "lasting": None, "material": True},
        ),
        findings=(
            root,
            Finding(
                id="tools-vanish",
                severity=Severity.HIGH,
                link=Link.ENVIRONMENT,
                claim="tool use falls from 42% to nothing",
                observed=0.0,
                limit=0.1,
                unit="share",
                onset_step=23,
                onset_interval=(20, 27),
                consequence_of="update-too-large",
            ),
            Finding(
                id="zero-std-groups",
                severity=Severity.HIGH,
                link=Link.TRAINING_SIGNAL,
                claim="every group has one reward only",
                observed=1.0,
                limit=0.5,
                unit="share",
                onset_step=31,
                consequence_of="tools-vanish",
            ),
        ),
        sources=_sources(400),
        tables={**made, **early},
    )


def crashed() -> Diagnosis:
    """Make a healthy run in which one rule of ours raised."""
    return dataclasses.replace(
        healthy(), crashes=(RuleCrash(id="reward-hacking", error="ZeroDivisionError: division by zero"),)
    )


def hostile() -> Diagnosis:
    """Make a run whose every foreign string is an attack or very long."""
    base, long = baseline(), HOSTILE + "n" * 3000 + "\udcff"
    finding = dataclasses.replace(
        base.findings[0],
        id=HOSTILE,
        claim=long,
        unit=HOSTILE,
        slice=HOSTILE,
        evidence={HOSTILE: long, "nan": math.nan, "inf": math.inf},
        causes=(long,),
        next=(long,),
        observed=math.nan,
    )
    return dataclasses.replace(
        base,
        run=dataclasses.replace(
            base.run, name=long, framework=HOSTILE, algorithm=long, context={HOSTILE: long, "rate": math.inf}
        ),
        verdict=dataclasses.replace(base.verdict, headline=long, next=(long, HOSTILE)),
        signature=dataclasses.replace(
            base.signature, status=Answer.NOT_FOUND, reason=long, pair=HOSTILE, p_value=math.nan
        ),
        findings=(finding, dataclasses.replace(finding, consequence_of=HOSTILE)),
        not_judged=(NotJudged(id=HOSTILE, link=Link.REWARD, reason=long, missing=(long,), enable=long),),
        healthy=(Healthy(id=HOSTILE, link=Link.SYSTEMS, reason=long),),
        crashes=(RuleCrash(id=HOSTILE, error=long),),
        sources=(Source(path=long, kind=HOSTILE, bytes=1, rows_ok=1, rows_bad=1, bytes_lost=1, note=HOSTILE),),
        tables={name: _renamed(frame) for name, frame in base.tables.items()},
    )


def _renamed(frame: pl.DataFrame) -> pl.DataFrame:
    column = "name" if "name" in frame.columns else "slice"
    return frame.with_columns(
        pl.when(pl.col(column).is_in(["kl/ref", "post_tool"]))
        .then(pl.lit(HOSTILE))
        .otherwise(pl.col(column))
        .alias(column)
    )


CASCADE = (
    # id, severity, link, onset, interval, follows from
    ("stale-rollouts", "critical", "data_freshness", 18, (14, 22), None),
    ("ratio-explosion", "critical", "policy_update", 23, (20, 25), "stale-rollouts"),
    ("kl-over-target", "high", "policy_update", 27, (24, 33), "ratio-explosion"),
    ("gradient-spikes", "medium", "numerics", 24, (21, 29), "ratio-explosion"),
    ("reward-fell", "high", "reward", 79, (61, 96), "kl-over-target"),
    ("tool-use-vanished", "high", "environment", 102, (99, 105), "kl-over-target"),
    ("no-signal-groups", "high", "training_signal", 120, (112, 141), "reward-fell"),
    ("entropy-explosion", "medium", "exploration", 88, (80, 101), "stale-rollouts"),
    ("eval-not-following", "medium", "evaluation", 300, (200, 400), None),
    ("throughput-drop", "medium", "systems", 355, (350, 361), None),
    ("run-cut-short", "high", "systems", 698, None, None),
    ("versions-unknown", "medium", "data_freshness", None, None, None),
    ("tool-failures", "low", "environment", 40, (30, 52), None),
)
CONFIRM = ("rerun 20 steps from the last healthy checkpoint with synchronous rollouts: the lag is then zero",)
FOLLOWING = ("bound the lag at two versions", "only then look at the learning rate")


def cascade() -> Diagnosis:
    """Make a run in which one failure brings about most others: thirteen findings in eight links."""
    base = baseline()
    findings = tuple(
        Finding(
            id=name,
            severity=Severity(severity),
            link=Link(link),
            claim=f"what the check named {name} looks for was found",
            observed=1.5,
            limit=1.0,
            unit="x",
            onset_step=onset,
            onset_interval=interval,
            evidence={"metric": "kl/ref", "logged_as": "kl", "ended_step": 420} if name == "tool-failures" else {},
            causes=("rollouts come from an old copy of the policy",),
            confirm=CONFIRM,
            next=FOLLOWING,
            consequence_of=cause,
        )
        for name, severity, link, onset, interval, cause in CASCADE
    )
    signature = dataclasses.replace(
        base.signature,
        status=Answer.NOT_FOUND,
        reason="growth everywhere",
        onset_step=None,
        onset_interval=None,
        lead_steps=None,
        lead_interval=None,
    )
    verdict = RunVerdict(
        status=Status.UNSTABLE,
        headline=f"{findings[0].claim}, since step 18.",
        first_broken_link=Link.DATA_FRESHNESS,
        next=(*CONFIRM, *FOLLOWING),
    )
    absent = tuple(
        NotJudged(id=name, link=link, reason="does not apply to GRPO training", applies=False)
        for name, link in (
            ("value-loss-rising", Link.CRITIC),
            ("explained-variance-low", Link.CRITIC),
            ("at-chance", Link.TRAINING_SIGNAL),
        )
    )
    return dataclasses.replace(
        base,
        run=dataclasses.replace(base.run, name="cascade"),
        verdict=verdict,
        signature=signature,
        findings=findings,
        not_judged=(*NOT_JUDGED, *absent),
        tables={**base.tables, **deliverables()},
    )


def deliverables() -> dict[str, pl.DataFrame]:
    """Make the tables of what a run hands over: checkpoints, context and checklists."""
    checkpoints = [
        ("last_healthy", 10, "checkpoint-10", True, 1_200_000, "the last before step 14, from which it may date"),
        ("best", 50, None, None, None, "eval/accuracy 0.41 at step 50, of 7 evaluations, n = 200"),
        ("first_broken", 20, "checkpoint-20", False, 9_000, "the first from step 14 on"),
        ("last", 700, "checkpoint-700", True, 1_200_000, "the end of the run"),
        *(("", step, f"checkpoint-{step}", step != 20, 1_200_000, "") for step in (10, 20, 700)),
    ]
    context = [
        ("settings", True, "31 settings", "config.yaml", ""),
        ("seed", True, "7", "the logged settings", ""),
        ("code", False, "", "", "write the output of git rev-parse HEAD into the run folder at the start"),
        ("resumed", None, "steps 51 to 85 are recorded twice (35 steps)", "runs/a, runs/b", ""),
    ]
    lists = [
        ("before", "The run fits into memory", "cannot tell", "no process output is recorded"),
        ("before", "The first rewards have a usable spread", "yes", "rewards 0 to 1.1, of 64 samples up to step 2"),
        ("during", "KL stays within its target", "no", "Mean KL stays above 0.3 nats a token, since step 27"),
        ("during", "The critic fits its targets", "does not apply", "GRPO training has no critic"),
        ("after", "The last checkpoint is kept", "yes", "checkpoint-700: the end of the run"),
    ]
    names = ("role", "step", "path", "weights", "bytes", "note")
    return {
        "checkpoints": pl.DataFrame(checkpoints, schema=list(names), orient="row"),
        "context": pl.DataFrame(context, schema=["item", "present", "value", "source", "enable"], orient="row"),
        "checklists": pl.DataFrame(lists, schema=["phase", "item", "answer", "evidence"], orient="row"),
    }


SAMPLES = {
    "cascade": cascade,
    "baseline": baseline,
    "healthy": healthy,
    "cannot_say": cannot_say,
    "collapse": collapse,
    "crashed": crashed,
    "hostile": hostile,
}
