"""Put the rules' verdicts together: what broke first, what followed from it, what to do."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.algorithm import Family
from ptt.diagnostics.evidence.gather import NO_SEQUENCES
from ptt.diagnostics.model import (
    CUSTOM,
    STEP,
    Answer,
    Broken,
    Diagnosis,
    Finding,
    Healthy,
    Link,
    NotJudged,
    Outcome,
    RuleCrash,
    RuleVerdict,
    Run,
    RunVerdict,
    Severity,
    Signature,
    Source,
    Status,
    in_unit,
    since_words,
)
from ptt.diagnostics.parsers import PARSERS, git_lfs_pointer, run_settings
from ptt.diagnostics.store.ingest import UNREADABLE, UNRECOGNISED
from ptt.diagnostics.store.wide_metrics import WideMetrics
from ptt.diagnostics.verdict.causes import Explains, first_failure, link_causes, raise_settings
from ptt.diagnostics.verdict.coverage import Seen, healthy_headline, partly_headline

if TYPE_CHECKING:
    import polars as pl


SIGNATURE: Final = "tool-tail-growth"
ENDING: Final = "run-cut-short"
KINDS: Final = {"tokens": "tokens_file", "samples": "samples_file"}
WINDOW: Final = 20  # logged steps that most rules take a mean over
MAX_NEXT: Final = 6  # one look to confirm, and the five steps of the longest list of repairs
UNHARMED: Final = "Nothing of medium severity or above was found."
KEEP_RECORDING: Final = "keep recording, and compare the next run with this one"
BY_ITS_ANSWERS: Final = (
    "compare the last checkpoint's answers on held-out prompts with the start model's: training that samples "
    "nothing logs no curve of what the model says"
)
BY_ITS_EPISODES: Final = (
    "watch episodes of the last checkpoint beside those of an earlier one: no curve shows what the policy does"
)

LFS_POINTER: Final = git_lfs_pointer.PARSER.name
MLFLOW: Final = ("mlflow_files", "mlflow_sqlite")
EVALUATIONS: Final = {"inspect_log": "Inspect", "verifiers_results": "verifiers", "verifiers_metadata": "verifiers"}
"""Formats that hold evaluations and nothing else, by what their tool is called."""
ASIDE: Final = frozenset(parser.name for parser in PARSERS if not parser.of_training)
SEE_SOURCES: Final = "`ptt sources RUN` lists what was read and what was not; docs/formats.md lists the formats"


def verdict_of(
    *,
    run: Run,
    signature: Signature,
    verdicts: Sequence[RuleVerdict],
    crashes: Sequence[RuleCrash],
    sources: Sequence[Source],
    tables: Mapping[str, pl.DataFrame],
    explains: Explains | None = None,
    seen: Seen | None = None,
    nothing: NothingJudged | None = None,
    outcome: Outcome | None = None,
    context: Callable[[Sequence[Finding]], Sequence[Finding]] = tuple,
) -> Diagnosis:
    """Assemble the diagnosis; `explains` names which failure brings which others about.

    `context` adds to findings, once they are linked, what happened where they set in.

    `seen`: how much was judged, without which a run counts as covered; `nothing`: why nothing could be, if nothing was;
    `outcome`: what the run did, which begins the headline of a run that nothing is wrong with.
    """
    verdicts = raise_settings(verdicts, explains or {}, window=_window(run))
    verdicts = [_in_unit(verdict, run.step_unit) for verdict in verdicts]
    unsorted = [finding for verdict in verdicts if isinstance(verdict, Broken) for finding in verdict.findings]
    unsorted += [note for verdict in verdicts if isinstance(verdict, Healthy) for note in verdict.notes]
    linked = link_causes(sorted(unsorted, key=_order), explains or {}, window=_window(run))
    findings = tuple(with_files(context(linked), tables.get("files")))
    not_judged = tuple(verdict for verdict in verdicts if isinstance(verdict, NotJudged))
    return Diagnosis(
        run=run,
        verdict=replace(
            _answer(run, findings, signature, verdicts, seen, nothing, outcome.did if outcome else ""),
            coverage=seen.coverage if seen else None,
        ),
        signature=signature,
        findings=findings,
        healthy=tuple(verdict for verdict in verdicts if isinstance(verdict, Healthy)),
        not_judged=not_judged,
        crashes=tuple(crashes),
        sources=tuple(sources),
        outcome=outcome,
        tables=tables,
    )


def contaminated(verdicts: Sequence[RuleVerdict], pair: str | None) -> str | None:
    """Return why the tails of `pair` must not be judged, or None; findings name what they contaminate as evidence."""
    for verdict in verdicts:
        for finding in verdict.findings if isinstance(verdict, Broken) else ():
            target = finding.evidence.get("contaminates")
            sides = {f"{side}_logp" for side in (pair or "").split("/")}
            if target == "all" or (target is not None and (target == pair or target in sides)):
                return finding.claim
    return None


def _order(finding: Finding) -> tuple[int, int, int, str]:
    seen = finding.seen_step if finding.seen_step is not None else 1 << 60
    return finding.severity.rank, seen, list(Link).index(finding.link), finding.id


def _clean(verdicts: Sequence[RuleVerdict]) -> str:
    """Return that the rest was looked at, where it was."""
    clean = sum(isinstance(verdict, Healthy) for verdict in verdicts)
    return f"; {clean} other checks found nothing of medium severity or above" if clean > 1 else ""


def _window(run: Run) -> int:
    """Return the steps that most means are taken over, by which an onset without an interval may be dated late."""
    if run.first_step is None or run.last_step is None or run.step_count < 2:
        return 0
    spacing = (run.last_step - run.first_step) / (run.step_count - 1)
    return round(min(WINDOW, run.step_count / 6) * spacing)


def _answer(
    run: Run,
    findings: Sequence[Finding],
    signature: Signature,
    verdicts: Sequence[RuleVerdict],
    seen: Seen | None,
    nothing: NothingJudged | None,
    did: str,
) -> RunVerdict:
    serious = [finding for finding in findings if finding.severity.at_least(Severity.MEDIUM)]
    roots = [finding for finding in serious if finding.consequence_of is None]
    if serious:
        worst = min(serious, key=lambda finding: finding.severity.rank).severity
        first = first_failure(serious) or serious[0]
        told = re.search(rf"\b(?:step|{run.step_unit}) {first.seen_step}\b", first.claim)
        since = "" if told else in_unit(since_words(first), run.step_unit)
        likely = f" {first.likely_cause[:1].upper()}{first.likely_cause[1:]}." if first.likely_cause else ""
        return RunVerdict(
            status=Status.UNSTABLE if worst is Severity.CRITICAL else Status.SUSPECT,
            headline=f"{first.claim}, {since}.{likely}" if since else f"{first.claim}.{likely}",
            first_broken_link=first.link,
            next=_next([first, *(root for root in roots if root is not first)]),
        )
    # a rule of the user's own that found nothing says nothing of the rest of the run
    clean = sum(isinstance(verdict, Healthy) and not verdict.id.startswith(CUSTOM) for verdict in verdicts)
    tokens = [verdict.enable for verdict in verdicts if isinstance(verdict, NotJudged) and verdict.id == SIGNATURE]
    if nothing is not None and not (seen.coverage.core if seen else clean or findings):
        return RunVerdict(
            status=Status.CANNOT_SAY,
            headline=_of_nothing(nothing, did) + _end_of_run(findings, verdicts),
            first_broken_link=None,
            next=(*(tokens if nothing.tokens else ()), *nothing.next),
        )
    if seen is None or seen.tails == "undecided":
        return _with_course(_by_signature(signature, verdicts, answered=bool(clean)), did)
    return _with_course(_by_coverage(signature, seen, clean, tokens), did)


def _by_coverage(signature: Signature, seen: Seen, clean: int, tokens: Sequence[str]) -> RunVerdict:
    """Answer by what the core questions covered: healthy where all were judged, else what is open."""
    by_hand = BY_ITS_EPISODES if seen.family is Family.CLASSIC_RL else BY_ITS_ANSWERS
    if seen.coverage.complete:
        judged = seen.tails == "judged"
        return RunVerdict(
            status=Status.HEALTHY,
            headline=UNHARMED if judged else healthy_headline(seen, clean, signature.reason),
            first_broken_link=None,
            next=(by_hand if seen.tails == "not asked" else KEEP_RECORDING,),
        )
    answers = (by_hand,) if seen.tails == "not asked" else ()
    return RunVerdict(
        status=Status.CANNOT_SAY,
        headline=partly_headline(seen, clean),
        first_broken_link=None,
        next=tuple(dict.fromkeys(line for line in (*seen.enable, *tokens, *answers) if line))[:MAX_NEXT],
    )


def _with_course(verdict: RunVerdict, did: str) -> RunVerdict:
    """Begin a headline with what the run did, where nothing is wrong with it."""
    return replace(verdict, headline=f"{did} {verdict.headline}") if did else verdict


def _of_nothing(nothing: NothingJudged, did: str) -> str:
    """Return why nothing was judged; behind what the curves did, where any were read."""
    if not did:
        return nothing.headline
    why = nothing.headline.removeprefix("Cannot say: ")
    return f"{did} {why[:1].upper()}{why[1:]}"


def _end_of_run(findings: Sequence[Finding], verdicts: Sequence[RuleVerdict]) -> str:
    """Return how the run ended, where that is all that is known of it."""
    claims = [finding.claim for finding in findings if finding.id == ENDING]
    claims += [verdict.reason for verdict in verdicts if isinstance(verdict, Healthy) and verdict.id == ENDING]
    return f" {claims[0][:1].upper()}{claims[0][1:]}." if claims else ""


def _by_signature(signature: Signature, verdicts: Sequence[RuleVerdict], *, answered: bool) -> RunVerdict:
    """Answer by the signature alone: where it is in doubt, and where nobody measured what else was judged."""
    not_judged = [verdict for verdict in verdicts if isinstance(verdict, NotJudged)]
    asked = [verdict for verdict in not_judged if verdict.applies]
    of_signature = next((item for item in not_judged if item.id == SIGNATURE), None)
    if signature.status is Answer.CANNOT_SAY and (not answered or of_signature is None or of_signature.applies):
        return RunVerdict(
            status=Status.CANNOT_SAY,
            headline=f"Cannot say: {signature.reason}{_clean(verdicts)}.",
            first_broken_link=None,
            next=tuple(dict.fromkeys(item.enable for item in asked if item.enable))[:MAX_NEXT],
        )
    offline = of_signature is not None and not of_signature.applies
    return RunVerdict(
        status=Status.HEALTHY,
        headline=UNHARMED,
        first_broken_link=None,
        next=(BY_ITS_ANSWERS if offline else KEEP_RECORDING,),
    )


def _in_unit(verdict: RuleVerdict, unit: str) -> RuleVerdict:
    """Write a verdict's steps as what the rows of the log are; how to record is told of the trainer's own steps."""
    if unit == STEP:
        return verdict
    match verdict:
        case Broken(findings=findings):
            return replace(verdict, findings=tuple(_finding_in_unit(finding, unit) for finding in findings))
        case Healthy(reason=reason, notes=notes):
            notes = tuple(_finding_in_unit(note, unit) for note in notes)
            return replace(verdict, reason=in_unit(reason, unit, counts=True), notes=notes)
        case NotJudged(reason=reason):
            return replace(verdict, reason=in_unit(reason, unit, counts=True))


def _finding_in_unit(finding: Finding, unit: str) -> Finding:
    texts = {name: tuple(in_unit(text, unit) for text in getattr(finding, name)) for name in ("confirm", "next")}
    claim, of = in_unit(finding.claim, unit, counts=True), f"{unit}s" if finding.unit == "steps" else finding.unit
    return replace(finding, claim=claim, unit=of, confirm=texts["confirm"], next=texts["next"])


def _next(roots: Sequence[Finding]) -> tuple[str, ...]:
    steps = [step for root in roots for step in (*root.confirm, *root.next)]
    return tuple(dict.fromkeys(steps))[:MAX_NEXT]


def with_files(findings: Sequence[Finding], files: pl.DataFrame | None) -> list[Finding]:
    """Add the file of the first recorded step at or after each was seen (else the last before it) to the evidence.

    `files`: kind, step and path, as gathering gives them. A rule that names a file itself is left alone.
    """
    if files is None or files.is_empty():
        return list(findings)
    rows_of = {key: rows for kind, key in KINDS.items() if (rows := files.filter(files["kind"] == kind)).height}

    def named(finding: Finding) -> Finding:
        if finding.seen_step is None:
            return finding
        first = {key: rows["step"].search_sorted(finding.seen_step) for key, rows in rows_of.items()}
        paths = {key: str(rows["path"][min(first[key], rows.height - 1)]) for key, rows in rows_of.items()}
        return replace(finding, evidence={**paths, **finding.evidence})

    return [named(finding) for finding in findings]


@dataclass(frozen=True, kw_only=True)
class NothingJudged:
    """A headline for a run of which nothing was judged, and what to do."""

    headline: str
    next: tuple[str, ...]
    tokens: bool = False  # whether recorded tokens are what could not be judged: then it helps to record more of them


def why_nothing_was_judged(
    sources: pl.DataFrame, metrics: pl.DataFrame, wide: WideMetrics, evidence: Evidence
) -> NothingJudged:
    """Say what the files of a run are, where no rule could judge anything; `sources`: path, kind and rows of each."""
    kinds = Counter(sources["kind"].to_list())
    foreign, closed, pointers = (kinds.pop(kind, 0) for kind in (UNRECOGNISED, UNREADABLE, LFS_POINTER))
    settings = kinds.pop(run_settings.PARSER.name, 0)
    paths = sources.filter(pl.col("kind") == LFS_POINTER)["path"].to_list()
    logs = [path for path in paths if git_lfs_pointer.holds_log(path)]  # weights are pointers in many a run
    if pointers and (logs or not kinds):
        return NothingJudged(
            headline=f"{_files(pointers)} {'is a Git LFS pointer' if pointers == 1 else 'are Git LFS pointers'}: "
            "run `git lfs pull`.",
            next=(f"run `{git_lfs_pointer.command(logs or paths)}` in their repository, then judge the run again",),
        )
    if not kinds:
        told = sources.filter((pl.col("kind") == UNRECOGNISED) & pl.col("note").is_not_null())
        return _no_log(foreign, closed, settings, told)
    if metrics.height or wide.parts:
        names = metrics["name_raw"].n_unique() + len(set(wide.spellings()["name_raw"]))
        return NothingJudged(headline=_too_little(names, evidence), next=(SEE_SOURCES,))
    if set(kinds) <= set(MLFLOW):
        return NothingJudged(
            headline="MLflow store with parameters only: no metric was logged.",
            next=("log the metrics at every step: mlflow.log_metrics(metrics, step=step), or report_to='mlflow'",),
        )
    if evidence.tails_reason and not evidence.tails_reason.startswith(NO_SEQUENCES):
        headline = f"Cannot say: {evidence.tails_reason}; no metric was logged."
        return NothingJudged(headline=headline, next=(SEE_SOURCES,), tokens=True)
    return NothingJudged(headline=_without_metrics(kinds), next=(SEE_SOURCES,))


def _no_log(foreign: int, closed: int, settings: int, told: pl.DataFrame) -> NothingJudged:
    """Say that nothing is a log; `told`: files in no format of which it is known why they are not read."""
    if not foreign and not closed and not settings:
        return NothingJudged(headline="The run contains no files.", next=(SEE_SOURCES,))
    unread = []
    if told.height:
        first = told.row(0, named=True)
        more = f" and {_files(told.height - 1)} more" if told.height > 1 else ""
        note = str(first["note"]).removeprefix(f"{first['path']}: ").rstrip(".")
        unread.append(f"{first['path']}{more}: {note[:1].lower()}{note[1:]}")
    if foreign > told.height:
        unread.append(f"{_files(foreign - told.height)} in unknown formats")
    unread += [f"{_files(closed)} that cannot be read"] if closed else []
    unread += [f"{_files(settings)} of settings"] if settings else []
    return NothingJudged(headline=f"No training log was found: {'; '.join(unread)}.", next=(SEE_SOURCES,))


def _too_little(names: int, evidence: Evidence) -> str:
    held = f"{names} metrics were" if names != 1 else "1 metric was"
    run, known = evidence.run, len(evidence.metrics)
    if not known:
        return f"Cannot say: {held} logged, but no rule knows the name{'s' if names != 1 else ''}."
    if run.first_step is None:
        return f"Cannot say: {held} logged without a step."
    rows = f"{run.step_count} {run.step_unit}{'s' if run.step_count != 1 else ''}"
    return f"Cannot say: {held} logged at only {rows}, too little for any rule to judge."


def _without_metrics(kinds: Counter[str]) -> str:
    if set(kinds) <= set(EVALUATIONS):
        tools = " and ".join(sorted({EVALUATIONS[kind] for kind in kinds}))
        return f"Evaluation logs only ({tools}): no training metrics."
    if set(kinds) <= ASIDE:
        return f"Samples, traces or evaluations only ({', '.join(sorted(kinds))}): no training metrics."
    return f"Cannot say: no metric was logged in what was read ({', '.join(sorted(kinds))})."


def _files(count: int) -> str:
    return f"{count} file" if count == 1 else f"{count} files"
