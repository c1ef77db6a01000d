"""What the verdict follows from, since when, and what followed from that: sentences for the page and the terminal."""

from __future__ import annotations

from typing import Final

from ptt.diagnostics.model import Diagnosis, Finding, Steps
from ptt.reports.chains import roots
from ptt.reports.names import joined, sentence
from ptt.reports.numbers import count, counted

TOLD: Final = 2  # consequences in their own words: the others are named


def followed(diagnosis: Diagnosis) -> Finding | None:
    """Give the finding that the verdict follows from, if one is medium or worse."""
    return next((finding for finding in roots(diagnosis) if finding.severity.rank <= 2), None)


def leading(diagnosis: Diagnosis) -> list[str]:
    """Tell the worst finding and how many others follow from it; what the headline has told is not told again."""
    first = followed(diagnosis)
    if first is None:
        return []
    known = first.onset_step is not None
    since = f" since {onset_words(first.onset_step, first.onset_interval)}" if known else ""
    traced = len(_followers(diagnosis, first))
    after = f"; {counted(traced, 'further finding')} can be traced to it" if traced else ""
    told = sentence(first.claim)
    if diagnosis.verdict.headline.startswith(first.claim):
        return [_traced(diagnosis, first)] if traced else []
    return [f"{told[:-1]}{since}{after}." if told.endswith(".") else told]


def _traced(diagnosis: Diagnosis, first: Finding) -> str:
    """Tell what followed from the first failure: the worst two in their own words, the others by name."""
    ids = _followers(diagnosis, first)
    worst = sorted(
        (finding for finding in diagnosis.findings if finding.id in ids),
        key=lambda finding: (finding.severity.rank, finding.onset_step or 0, finding.id),
    )
    told: dict[str, str] = {}
    for finding in worst:
        since = f" (since step {finding.onset_step})" if finding.onset_step is not None else ""
        told.setdefault(finding.id, f"{finding.claim}{since}")
    shown, rest = list(told.values())[:TOLD], sorted(list(told)[TOLD:])
    more = f"; and {joined(rest)}" if rest else ""
    return f"{sentence(counted(len(told), 'further finding'))[:-1]} can be traced to it: {'; '.join(shown)}{more}."


def _followers(diagnosis: Diagnosis, root: Finding) -> set[str]:
    caused = {root.id}
    for _ in diagnosis.findings:
        caused |= {finding.id for finding in diagnosis.findings if finding.consequence_of in caused}
    return caused - {root.id}


def beside(diagnosis: Diagnosis) -> list[str]:
    """Say how many more serious findings there are."""
    others = [f for f in roots(diagnosis) if f.severity.rank <= 1][1:]
    return [f"{counted(len(others), 'more serious finding')} stand beside it."] if len(others) > 1 else []


def onset_words(step: int | None, interval: Steps | None) -> str:
    """Say since which step, and how closely that is known."""
    if step is None:
        return "onset unknown"
    return f"step {count(step)}" + (f" ({span_words(interval)})" if interval else "")


def span_words(interval: Steps) -> str:
    """Give an interval of steps."""
    return f"{count(interval[0])} to {count(interval[1])}"
