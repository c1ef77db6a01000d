"""This run shows a process that ran out of memory.

What: the output of a process, an alert or a postmortem says so: an out-of-memory error of a device, the kernel's OOM
killer, or a failed allocation. It is high where it ended the run, medium where training logged on after it, and a note
where it happened outside training, such as when a model was loaded before or after.
Why it matters: where it ended the run, the last steps may be missing from every log. Where it was caught, a batch was
dropped, usually one of the longest: the run then trains only on short answers.
What to do: look at the longest batch before it; cut micro-batches by tokens instead of by samples.
Source: the messages of PyTorch (`CUDA out of memory`, `OutOfMemoryError`), NCCL, Ray and the Linux kernel; Microsoft's
toolkit writes `exit_reason: oom`.
"""

import re
from dataclasses import replace
from typing import Any, Final

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.machines import Event
from ptt.diagnostics.evidence.run_end import Ending, RunEnd, progress_of
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import EVERY, Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.systems import end_of

MIN_EVENTS = 1.0
AGAIN = ("exception", "last_line")  # kinds of lines that usually occur in the output too
OOM_ERROR = re.compile(  # not worded like advice
    r"OutOfMemoryError|Tried to allocate|\bOOMKilled\b|exit reason: oom\b|^MemoryError\b|CUBLAS_STATUS_ALLOC_FAILED|"
    r"oom[-_ ]?kill|Out of memory: Kill|killed due to the node running low on memory",
    re.IGNORECASE,
)
OOM_PHRASE = re.compile(r"out of memory|Cannot allocate memory", re.IGNORECASE)
PASSED_ON = re.compile(r"RayTaskError\(")  # a caller of the process that failed prints its exception once more
LOADING = re.compile(r"init_(?:model|workers?)\(")  # of veRL's workers: no batch exists yet
ADVICE = re.compile(r"\b(?:avoid|prevent|may|might|could|can lead|in case|if you|risk)\b|\bwarn", re.IGNORECASE)


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Look through what the processes said."""
    said = _reports(evidence)
    if len(said) >= limits["events"]:
        end = end_of(evidence)
        if by_memory(evidence, end):
            found = _finding(said, limits, Severity.HIGH, f"; that ended the run{progress_of(evidence.run).at}")
            return replace(found, **LOADED) if _while_loading(evidence) else found
        in_training = [event for event in said if event.step is not None]
        if in_training:
            completed = "to its end" if end.ending is Ending.COMPLETED else "after it"
            return _finding(in_training, limits, Severity.MEDIUM, f"; the run continued {completed}")
        note = _finding(said, limits, Severity.LOW, "; nothing shows that this ended training")
        return Healthy(reason=note.claim, notes=(note,))
    if not evidence.events:
        return NotJudged(
            reason="neither the output of a process nor how it ended is recorded",
            missing=("events",),
            enable="keep the trainer's output (python train.py 2>&1 | tee RUN/train.log), or let W&B keep it",
        )
    return Healthy(reason=f"none of {len(evidence.events)} recorded lines and events reports that memory ran out")


def by_memory(evidence: Evidence, end: RunEnd) -> bool:
    """Return whether memory that ran out ended the run, and a process said so."""
    return (end.ending is Ending.OUT_OF_MEMORY or _ran_out(end.known_by)) and bool(_reports(evidence))


def _reports(evidence: Evidence) -> list[Event]:
    every = [event for event in evidence.events if _ran_out(event.text)]
    every = [event for event in every if event.kind not in AGAIN] or every
    return [event for event in every if not PASSED_ON.search(event.text)] or every


def _while_loading(evidence: Evidence) -> bool:
    """Return whether the model was being built: no step is logged, and a call that passed the error on says so."""
    passed = [event.text for event in evidence.events if PASSED_ON.search(event.text) and _ran_out(event.text)]
    return evidence.run.last_step is None and any(map(LOADING.search, passed))


def _ran_out(text: str) -> bool:
    """Return whether a line says that memory ran out, and does not only advise against it."""
    return bool(OOM_ERROR.search(text)) or (bool(OOM_PHRASE.search(text)) and not ADVICE.search(text))


def _finding(said: list[Event], limits: Limits, severity: Severity, outcome: str) -> Finding:
    first = said[0]
    steps = [event.step for event in said if event.step is not None]
    times = "once" if len(said) == 1 else f"{len(said)} times"
    return Finding(
        severity=severity,
        claim=f"A process ran out of memory, {times} by its output{outcome}",
        observed=float(len(said)),
        limit=limits["events"],
        unit="lines",
        onset_step=min(steps, default=None),
        onset_interval=(min(steps), max(steps)) if steps else None,
        evidence={"said": first.text, "source": first.source, "kind": first.kind},
        causes=("a batch of the longest answers", "memory that grew over the run", "an engine that shares the device"),
        confirm=(f"read {first.source} around that line: which process, which size, which batch?",),
        next=(
            "cap micro-batches by tokens; lower the engine's share of the device before you change the batch size",
            "compare the lengths of trained and generated samples: what was dropped?",
        ),
    )


LOADED: Final[dict[str, Any]] = {
    "causes": ("weights, gradients and optimizer states that do not fit the device", "too few devices to shard over"),
    "confirm": ("read the innermost frames of the traceback: weights, gradients or optimizer?",),
    "next": (
        "add up weights, gradients and optimizer states for each device: no batch has been trained yet",
        "shard over more devices (tensor, pipeline, expert or data parallel), offload, or start from a smaller model",
    ),
}

RULE = rule(check, "out-of-memory", Link.SYSTEMS, events=MIN_EVENTS, families=EVERY)
