"""This run shows batches of which only a part is recorded, or other tokens than were trained on.

What: from some step on, or up to one, the mean reward, length or tool calls of the recorded samples differ from what
the log says of the same step, and are equal to it at all others; or most prompt groups are cut short; or the rows a
step fall to a third while what they hold jumps at the same step.
Why it matters: a recorder that keeps the worst samples, the longest or one rank's shows a policy that nobody trained. A
tail that begins to grow at that step is the selection's.
What it is not: another batch size or group size, which the log's means follow.
What to do: find what was changed in the recorder at that step; record all samples, or a random part all along.
Source: our own; recorders and trainers give equal means to three digits where both have the whole batch.
"""

from collections.abc import Sequence

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.passing_values import RANK, PassingValue
from ptt.diagnostics.evidence.recorded_batches import Part, PartialGroups, RecordedBatches, RowsChange, Witness
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.data_validity import BLOCKS, NONE_RECORDED, dates_of, extent, when_words
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, requires, rule
from ptt.diagnostics.rules.tail_holder import value_words
from ptt.diagnostics.statistics.fault_since import FaultSpan
from ptt.diagnostics.wording import sig

MAX_ROWS_SHARE = 1 / 3  # of the rows a step before: batch sizes are doubled or halved, seldom cut to a third
MIN_EXPLAINED = 0.8  # of the rows that are missing: what a missing rank or environment had
WORDS = {"reward": "mean reward", "length": "mean length", "calls": "tool calls a sample"}
JUMPS = {
    "reward": "mean reward", "n_model": "mean number of tokens", "length": "mean length",
    "calls": "mean number of tool calls", "n_obs": "mean number of observations", "|r|": "mean |r|",
}  # fmt: skip


def recorded(evidence: Evidence) -> RecordedBatches | NotJudged:
    """Return what is known about the recorded batches, or that none are recorded."""
    return evidence.batches or NONE_RECORDED


@requires(recorded)
def check(batches: RecordedBatches, evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the recorded means beside the logged ones, the prompt groups, and the rows a step."""
    apart = [one for one in batches.witnesses if one.part is not None]
    equal = [one for one in batches.witnesses if one.part is None]
    groups = batches.groups if batches.groups is not None and not batches.groups.regular else None
    rows = batches.rows
    few = rows if rows is not None and rows.few <= limits["rows_share"] * rows.usual and rows.jumps else None
    if groups is None and few is None and [one.name for one in apart] == ["length"] and (equal or rows is None):
        return _other_tokens(apart[0])
    if equal:  # the log describes these samples
        apart, groups, few = [], None, None
    elif len(apart) == 1 and not (groups or rows):
        apart = []  # one mean alone may be of another reward
    parts = [one.part for one in (*apart, groups, few) if one is not None and one.part is not None]
    span = parts[0].span if parts else rows.part.span if rows is not None else None
    missing = _missing_at(evidence, span) if span is not None else ()
    explained = _explain(missing, rows)
    if not parts or (explained and any(one.attribute == RANK for one in missing)):  # missing-parts says so
        return Healthy(reason=_reason(equal), notes=_notes(rows) if rows is not None and not explained else ())
    told = rows if few is not None or apart or groups else None
    return _finding(parts[0], apart, groups, told, missing if explained else ())


def _missing_at(evidence: Evidence, span: FaultSpan) -> tuple[PassingValue, ...]:
    """Return the ranks, environments, tools and other values that are missing at the same steps."""
    throughout = evidence.holders.throughout if evidence.holders is not None else None
    return tuple(
        one
        for one in (throughout.passing if throughout is not None else ())
        if one.away.since <= span.since_interval[1] and one.away.until >= span.until_interval[0]
    )


def _explain(missing: Sequence[PassingValue], rows: RowsChange | None) -> bool:
    """Return whether what is missing makes up most of the rows that are: the rest is then whole."""
    lost = 0.0 if rows is None else 1 - rows.few / rows.usual
    return bool(missing) and sum(one.rate for one in missing) >= MIN_EXPLAINED * lost


def _finding(
    part: Part,
    apart: list[Witness],
    groups: PartialGroups | None,
    rows: RowsChange | None,
    missing: Sequence[PassingValue],
) -> Finding:
    """Say what is recorded of a batch; where it is all but some `missing` values, tails are judged without them."""
    told = [f"nothing of {' and '.join(map(value_words, missing))}"] if missing else []
    told += [] if rows is None else [f"{sig(rows.few)} rows a step instead of {sig(rows.usual)}"]
    if groups is not None:
        told.append(f"prompt groups of {sig(groups.mean)} instead of {groups.usual}")
    told += [f"{WORDS[one.name]} {sig(one.recorded)} where the log says {sig(one.logged)}" for one in apart]
    if not apart and groups is None and rows is not None:
        told += [
            f"a {JUMPS[name]} of {sig(here)} instead of {sig(usual)}" for name, (usual, here) in rows.jumps.items()
        ]
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"{_when(part)} only part of each batch is recorded: {', '.join(told)}",
        observed=None if rows is None else rows.few / rows.usual,
        limit=1.0,
        unit="share of the rows",
        **dates_of(part.span),
        evidence={
            **extent(
                part.extent, "they may be a selection: tails, means and who holds them are of these samples alone"
            ),
            BLOCKS: None if missing else "all",
        },
        causes=(
            "the recorder keeps a selection: the worst samples, the longest, the failures",
            "one writer of several",
        ),
        next=(
            "find what changed in the recorder at that step",
            "record all samples or a random part, and compare only steps that are recorded alike",
        ),
    )


def _other_tokens(witness: Witness) -> Finding:
    assert witness.part is not None
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"{_when(witness.part)} recorded samples have {sig(witness.recorded)} tokens in the mean where the "
        f"log says {sig(witness.logged)}; at all other steps both agree",
        observed=witness.recorded / witness.logged if witness.logged else None,
        limit=1.0,
        unit="x",
        **dates_of(witness.part.span),
        evidence={
            **extent(witness.part.extent, "tokens that nobody sampled enter tails, or sampled ones are missing"),
            BLOCKS: "all",
        },
        causes=("padding enters the records", "the mask marks template or tool tokens as sampled", "samples are cut"),
        next=("show a sample from before that step and one from after it: ptt show RUN SAMPLE",),
    )


def _when(part: Part) -> str:
    return when_words(part.span).capitalize()


def _reason(equal: list[Witness]) -> str:
    if equal:
        names = " and ".join(WORDS[one.name] for one in equal)
        return f"{names} of the recorded samples: as the log says at every step"
    return "batches show no change of what is recorded of them"


def _notes(rows: RowsChange) -> tuple[Finding, ...]:
    """Say where a part of the run has fewer rows a step, and nothing tells that they are a part of the batch."""
    return (
        Finding(
            severity=Severity.INFO,
            claim=f"{_when(rows.part)} {sig(rows.few)} rows a step are recorded instead of {sig(rows.usual)}",
            observed=rows.few / rows.usual,
            limit=None,
            unit="share of the rows",
            **dates_of(rows.part.span),
            evidence=extent(rows.part.extent, "their steps weigh less in windows; a smaller batch scatters more"),
        ),
    )


RULE = rule(check, "incomplete-batches", Link.DATA_VALIDITY, max_severity=Severity.MEDIUM, rows_share=MAX_ROWS_SHARE)
