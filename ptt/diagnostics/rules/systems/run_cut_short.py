"""This run shows an unplanned end.

What: an exception ended training, or an exit code or a status says that it failed. The finding names the part whose
code raised it: the reward function, the environment, the data, the evaluation, the loss, otherwise the machines. A run
that was killed, preempted or stopped by hand, and one whose record simply ends before its last step, is a note.
Why it matters: the last steps, and what went wrong in them, are often missing from the logs; an average over the run
then leaves out its worst part. After a crash before the first metric there is nothing else to look at.
What it is not: a fault of the policy, where something else ended the run. A run that was killed, resumed and completed
counts as completed; see resumed-segments. An exception after training had completed, in a script's own last lines, is a
note.
What to do: read the output before the exception; then check what the other findings say about the last steps.
Source: exit records of W&B; header, footer, status and postmortem of Microsoft's toolkit; `global_step`, `max_steps`
and the closing row (`train_runtime`) of Hugging Face trainers; tracebacks and signals on the console.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.run_end import (
    CONSEQUENCE,
    DONE_SHARE,
    Ending,
    Progress,
    RunEnd,
    progress_of,
    raised_words,
)
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import LIKELY, JsonScalar, Link, Severity
from ptt.diagnostics.rules.interface import EVERY, Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.systems import end_of
from ptt.diagnostics.rules.systems.out_of_memory import by_memory
from ptt.diagnostics.wording import sig

MIN_DONE_SHARE = DONE_SHARE  # of the planned steps: the last one may not have been saved
MAX_LINE: Final = 120  # letters of the console's last line that a claim repeats

MACHINES: Final = re.compile(
    r"CUDA|NCCL|HIP error|cu(?:BLAS|DNN)|CUBLAS|out of memory|OutOfMemory|MemoryError|Gloo|No space left|ECC error|"
    r"Address already in use|Connection(?:Refused|Reset)|\[Errno|BrokenPipe|device-side assert",
    re.IGNORECASE,
)
WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
LINKS_OF_CODE: Final = (  # by a word in the name of the raising file or of the exception
    (Link.REWARD, {"reward", "rewards", "grader", "graders", "grading", "verifier", "verifiers", "score", "scorer",
                   "scoring", "judge", "rubric", "rubrics"}),
    (Link.EVALUATION, {"eval", "evals", "evaluate", "evaluation", "evaluator", "benchmark", "validation"}),
    (Link.ENVIRONMENT, {"env", "envs", "environment", "environments", "tool", "tools", "sandbox", "browser", "gym",
                        "simulator", "agent"}),
    (Link.DATA_VALIDITY, {"dataset", "datasets", "data", "dataloader", "collate", "collator", "tokenizer",
                          "tokenization", "template", "preprocess", "preprocessing", "jinja", "jsonl", "parquet"}),
    (Link.NUMERICS, {"loss", "losses", "nan", "grad", "gradient"}),
)  # fmt: skip
LINKS_OF_MESSAGE: Final = (
    (Link.NUMERICS, re.compile(r"\bnan\b|\binf\b|non-?finite|overflow|FloatingPointError", re.IGNORECASE)),
    (Link.DATA_VALIDITY, re.compile(r"\bdataset|\btokeniz|chat[_ ]template|collat|\bcolumns?\b", re.IGNORECASE)),
    (Link.REWARD, re.compile(r"\breward[_ ]?(?:function|fn|func|model|manager)|\bcompute_score\b", re.IGNORECASE)),
)
UNCAUSED: Final = (Ending.COMPLETED, Ending.PREEMPTED, Ending.STOPPED)  # no fault of the run brings them about
HOW: Final = {
    Ending.KILLED: "The run was killed",
    Ending.PREEMPTED: "The scheduler stopped the run",
    Ending.STOPPED: "The run was stopped by hand",
    Ending.OUT_OF_MEMORY: "The run ran out of memory",
    Ending.OPEN: "The record of the run ends",
    Ending.SHORT: "The record of the run ends",
}

DRY: Final = re.compile(r"(?i)\bnum_gen_batches\b|\bgenerated too many\b|\bmax_num_gen_batches\b")
BATCHES_DRAWN: Final = re.compile(r"(?i)(?:num|n)_?gen_?batch")
RAN_DRY: Final = (
    "the task is solved: nearly all groups are all right, and are filtered out",
    "the prompts are too hard, or the scorer fails: nearly all groups are all wrong",
)

NOTHING_LEFT: Final = re.compile(
    r"(?i)\bno (?:\w+ ){0,3}(?:left|remain\w*|available)\b|exhausted|\bdrained\b|ran out of \w+"
)
STOCK: Final = re.compile(r"(?i)\bpools?\b|remain|\bstock\b|(?:examples|prompts|problems|tasks)_?(?:left|available)")
SPREADS: Final = frozenset({"std", "min", "max"})
SOLVED: Final = 0.8  # of the evaluated tasks: of eight answers to one like them, mostly all are right
MIN_STOCK: Final = 10  # values: of fewer, no course is known
DRAINED: Final = (
    "examples leave the pool that is drawn from and never come back: a curriculum or filter that only evicts",
    "the data of the run are used up: fewer examples than its steps need",
)
RETURN: Final = "let examples come back to what is drawn from, or end the run while enough of them are left"


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge how the run ended."""
    end, progress = end_of(evidence, done_share=limits["done"]), progress_of(evidence.run)
    if by_memory(evidence, end):
        return Healthy(reason=f"memory ran out{progress.at}, which out-of-memory says")
    match end.ending:
        case Ending.COMPLETED:
            return Healthy(reason=end.known_by, notes=_after_completion(evidence, end, progress))
        case Ending.EXCEPTION | Ending.FAILED:
            return _crash(evidence, end, progress)
        case Ending.UNKNOWN if progress.share is None:
            return NotJudged(
                reason="no file says how many steps were planned or how the processes ended",
                missing=("max_steps", "events"),
                enable="keep trainer_state.json of the last checkpoint, the trainer's output, or a W&B log",
            )
        case Ending.UNKNOWN:
            return Healthy(reason=f"no row is missing up to step {progress.planned}, and nothing shows a crash")
    note = _interruption(evidence, end, progress)
    return Healthy(reason=f"{note.claim}; nothing shows that training failed", notes=(note,))


def _crash(evidence: Evidence, end: RunEnd, progress: Progress) -> Finding:
    """Return the finding on an exception, or on an exit code or status that only says that the run failed."""
    raised = end.ending is Ending.EXCEPTION
    link = link_of(end.known_by, end.place) if raised else Link.SYSTEMS
    head = f"{end.known_by} ended training" if raised else f"The run ended by a failure ({end.known_by})"
    again = (
        "start again: nothing was trained"
        if progress.step is None
        else "resume from the last checkpoint whose metrics are finite"
    )
    where = progress.at or (" before any metric was logged" if raised else "")
    dry = _ran_dry(evidence, end.known_by or "")
    drained = "" if dry else _drained(evidence, end.known_by or "")
    return replace(
        _finding(evidence, end, progress, severity=Severity.HIGH, claim=head + where + dry + drained),
        link=Link.TRAINING_SIGNAL if dry or drained else link,
        causes=RAN_DRY
        if dry
        else DRAINED
        if drained
        else ("an uncaught exception", "a rank that timed out in a collective"),
        context=_solved_or_failing(evidence) if dry else (),
        confirm=(f"read {end.source} around it, and find the earliest error of every rank",),
        next=(RETURN if drained else f"fix what {end.place or 'the earliest error'} raised", again),
    )


def _ran_dry(evidence: Evidence, raised: str) -> str:
    """Say that dynamic sampling found too few prompts that teach, as the end of a claim; empty for any other end."""
    if not DRY.search(raised):
        return ""
    known = (*evidence.metrics.values(), *evidence.other.values())
    drawn = next((one for one in known if BATCHES_DRAWN.search(one.raw_name) and len(one.finite()[0])), None)
    told = ""
    if drawn is not None:
        values = drawn.finite()[1]
        told = f": {drawn.raw_name} rose from {sig(float(values[: drawn.width].mean()))} to {sig(float(values[-1]))}"
    return f"; dynamic sampling no longer found enough groups whose rewards differ, and drew ever more batches{told}"


def _solved_or_failing(evidence: Evidence) -> tuple[str, ...]:
    """Say by the last evaluation which groups are left out: those that are all right, or all wrong."""
    for figure in evidence.evaluation.figures if evidence.evaluation is not None else ():
        values = figure.series.finite()[1]
        if not figure.outcome or not len(values) or values.min() < 0 or values.max() > 1:
            continue
        last = float(values[-1])
        cause = RAN_DRY[0] if last >= SOLVED else RAN_DRY[1] if last <= 1 - SOLVED else ""
        return (f"{figure.series.raw_name} ends at {sig(last)}", f"{LIKELY}{cause}") if cause else ()
    return ()


def _drained(evidence: Evidence, raised: str) -> str:
    """Say which stock of examples fell to 0 at the crash, and what rose meanwhile, as the end of a claim."""
    if not NOTHING_LEFT.search(raised):
        return ""
    known = [one for one in (*evidence.metrics.values(), *evidence.other.values()) if len(one.finite()[0]) >= MIN_STOCK]
    for stock in known:
        folder, _, name = stock.raw_name.rpartition("/")
        values = stock.finite()[1]
        if not STOCK.search(stock.raw_name) or name in SPREADS or values[-1] != 0 or values[0] <= 0:
            continue
        if values[: len(values) // 2].min() <= 0:
            continue  # it is at 0 now and then
        beside = [one for one in known if folder and one.raw_name.rpartition("/")[0] == folder and one is not stock]
        risen = [one for one in beside if one.finite()[1][-1] > one.finite()[1][0]]
        told = " and ".join(f"{one.raw_name} rose {_from_to(one)}" for one in risen[:2])
        return f"; {stock.raw_name} drained {_from_to(stock)}" + (f", while {told}" if told else "")
    return ""


def _from_to(series: Series) -> str:
    values = series.finite()[1]
    return f"{sig(float(values[0]))} → {sig(float(values[-1]))}"


def _interruption(evidence: Evidence, end: RunEnd, progress: Progress) -> Finding:
    """Return the note on a run that somebody ended, or whose record simply stops."""
    told = end.ending not in (Ending.OPEN, Ending.SHORT)
    line = "" if end.last_line is None or told else f'; the last line of its console: "{end.last_line[:MAX_LINE]}"'
    why = f": {end.known_by}" if end.known_by else ""
    short = ", where trainer_state.json was saved" if end.saved else ", and nothing shows why"
    silent = {Ending.OPEN: ", and its log was never closed", Ending.SHORT: short}.get(end.ending, "")
    claim = f"{HOW[end.ending]}{progress.at}{why}{silent}{line}"
    return replace(
        _finding(evidence, end, progress, severity=Severity.INFO if told else Severity.LOW, claim=claim),
        causes=(
            "a scheduler or a user ended it",
            "the machine ran out of memory",
            "it was copied while it was still running",
        ),
        confirm=("read the last lines of every rank's output, and what the scheduler says about the job",),
        next=("resume from the last checkpoint, or judge the run as it is",),
    )


def _after_completion(evidence: Evidence, end: RunEnd, progress: Progress) -> tuple[Finding, ...]:
    """Return the note on what a script raised when training had ended, or on an end before the last step."""
    claim = ""
    if end.raised_after is not None:
        claim = f"After training had completed{progress.at} the script {raised_words(end.raised_after)}"
    elif progress.share is not None and progress.planned and progress.planned - (progress.step or 0) > progress.spacing:
        claim = f"The run says that it completed{progress.at}"
    if not claim:
        return ()
    note = replace(
        _finding(evidence, end, progress, severity=Severity.INFO, claim=claim),
        causes=("a step of the script after the training loop",) if end.raised_after else ("early stopping ended it",),
        confirm=("check whether the last checkpoint was saved before it",),
        next=("take the last checkpoint; training itself was not cut short",),
    )
    return (note,)


def _finding(evidence: Evidence, end: RunEnd, progress: Progress, *, severity: Severity, claim: str) -> Finding:
    """Return a finding with what is known about the end; causes and next steps depend on its kind."""
    context, last = evidence.run.context, progress.step
    onset = None if end.ending in UNCAUSED else last
    told: dict[str, JsonScalar] = {
        "ending": end.ending.value,
        "known_by": end.known_by or None,
        "source": end.source,
        "place": end.place,
        "last_line": end.last_line,
        "status": context.get("status"),
        "exit_reason": context.get("exit_reason"),
        "done_share": progress.share,
    }
    return Finding(
        severity=severity,
        claim=claim,
        observed=None if last is None else float(last),
        limit=None if progress.planned is None else float(progress.planned),
        unit="steps",
        onset_step=onset,
        onset_interval=None if onset is None else (onset, onset),
        evidence={key: value for key, value in told.items() if value is not None},
    )


def link_of(text: str, place: str | None) -> Link:
    """Return the link of the training loop whose code raised: by its file, else by words of the exception."""
    if MACHINES.search(text) or CONSEQUENCE.search(text):
        return Link.SYSTEMS
    name = text.partition(":")[0].rpartition(".")[2]
    words = {word.lower() for word in WORDS.findall(f"{place or ''} {name}")}
    for link, wanted in LINKS_OF_CODE:
        if words & wanted:
            return link
    return next((link for link, pattern in LINKS_OF_MESSAGE if pattern.search(text)), Link.SYSTEMS)


RULE = rule(check, "run-cut-short", Link.SYSTEMS, done=MIN_DONE_SHARE, families=EVERY)
