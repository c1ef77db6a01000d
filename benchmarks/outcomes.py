"""One made run, judged as `ptt diagnose` would judge it and set against its truth."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import naive
from benchmarks.designs import Design
from benchmarks.synthetic import Made, make
from ptt.diagnostics.engines.local import SAMPLED_TOKENS, Tokens
from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.gather import describe_run
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.evidence.tails import gather_tails, tool_use_by_step
from ptt.diagnostics.evidence.validity import gather_validity
from ptt.diagnostics.model import Broken
from ptt.diagnostics.rules import RULES
from ptt.diagnostics.rules.tool_tail_growth import Judgement, cannot_say, judge
from ptt.diagnostics.statistics.logprob_pairs import available_pairs
from ptt.diagnostics.statistics.slices import MIN_OBSERVATION
from ptt.diagnostics.statistics.token_pass import token_pass
from ptt.diagnostics.store.deduplicate_sources import SequenceFile
from ptt.diagnostics.store.scan import SequenceScan
from ptt.diagnostics.verdict.headline import contaminated
from ptt.diagnostics.verdict.run_rules import aggregates_of


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What was said of one run, beside what is true of it."""

    kind: str
    answer: str
    aggregates: str
    alarms_truly: bool
    onset_error: float | None  # share of the run's steps
    covered: bool | None  # whether the onset's interval holds the true onset
    lead: int | None  # where an aggregate did alarm
    naive: tuple[bool, ...]


def outcome(task: tuple[str, int]) -> Outcome:
    """Make a run, judge it as `ptt diagnose` would, and set it against its truth."""
    made = make(*task)
    evidence = evidence_of(made)
    judged = judgement(evidence)
    signature, design = judged.signature, made.design
    error, covered = _onset(judged, design)
    step, r, post = naive.tokens_of(made.frame)
    return Outcome(
        kind=design.kind,
        answer=signature.status,
        aggregates=signature.aggregates.status,
        alarms_truly=design.kind == "entropy collapse" or made.kl_crosses is not None,
        onset_error=error,
        covered=covered,
        lead=None if signature.lead_is_lower_bound else signature.lead_steps,
        naive=(
            naive.p95_ratio(step, r, design.steps),
            naive.mean_kl(evidence.metrics["kl/ref"]),
            naive.ks_on_tokens(step[post], r[post], design.steps),
        ),
    )


def evidence_of(made: Made) -> Evidence:
    """Take a run through the public stages in memory: no files, no store."""
    pairs = available_pairs({"policy_logp", "ref_logp"})
    frame = made.frame.lazy()
    tables = token_pass(
        frame.select("seq", "step", "model_mask", "policy_logp", "ref_logp"),
        pairs=pairs,
        min_observation=MIN_OBSERVATION,
        sample_every=max(1, int(made.frame["model_mask"].list.len().sum()) // SAMPLED_TOKENS),
    )
    columns = tuple(made.frame.columns)
    whole = SequenceFile(
        path=Path("made"), name="made", kind="recorder", first_row=0, start=0, rows=made.frame.height, columns=columns
    )
    scan = SequenceScan(frame=frame, files=(whole,), columns=frozenset(columns), tokens_per_row=1.0)
    tokens = Tokens(tables=tables, pairs=pairs, scan=scan, damaged={})
    found = gather_tails(tokens, post_name="post_tool")
    steps = np.arange(1, made.design.steps + 1)
    metrics = {
        name: Series(name=name, raw_name=name, steps=steps, values=values, flags=np.zeros(len(steps), np.uint8))
        for name, values in made.metrics.items()
    }
    return Evidence(
        run=describe_run("made", {}, metrics, tokens),
        metrics=metrics,
        tails=found[0] if found else None,
        tool_use=tool_use_by_step(tokens),
        validity=gather_validity(tokens),
    )


def judgement(evidence: Evidence) -> Judgement:
    """Judge as the pipeline does: with the other rules' alarms, and not where they distrust the logprobs."""
    verdicts = [rule.run(evidence) for rule in RULES]
    aggregates = aggregates_of(evidence, verdicts)
    pair = evidence.tails.pair if evidence.tails is not None else None
    distrust = contaminated(verdicts, pair)
    return judge(evidence, aggregates) if distrust is None else cannot_say(distrust, pair, aggregates)


def _onset(judged: Judgement, design: Design) -> tuple[float | None, bool | None]:
    """Set the onset against the first step whose true percentile passes the limit the finding names."""
    if not isinstance(judged.verdict, Broken) or judged.signature.onset_interval is None:
        return None, None
    finding = judged.verdict.findings[0]
    assert finding.limit is not None
    assert finding.onset_step is not None
    q = {"p95": 0.95, "p99": 0.99}[str(finding.evidence["percentile"])]
    places = np.linspace(0, 1, min(design.steps, 60))
    above = np.array([design.level(q, float(u)) > finding.limit for u in places])
    if not above.any():
        return None, None
    true = 1 + round(float(places[np.argmax(above)]) * (design.steps - 1))
    low, high = judged.signature.onset_interval
    return abs(finding.onset_step - true) / design.steps, low <= true <= high
