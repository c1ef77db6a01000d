"""Says once, at the top of a report, what it was made from where that limits what it can show."""

from __future__ import annotations

from ptt.diagnostics.model import Diagnosis

PARTIAL = (
    "Made from findings.json alone. It holds the verdict, the findings, what was not judged and the list of files. It "
    "does not hold the curves, the numbers behind the tail, the checks that found nothing amiss, the four conditions "
    "of tail growth, the checkpoints and the logged settings: none of these is shown here, whatever the run recorded. "
    "The store that ptt diagnose wrote beside it has them: ptt report on that folder draws the whole report."
)
REDACTED = (
    "Redacted. Texts of the run are left out; names and ids of runs, files, samples, tools, environments, metrics "
    "of its own and the like are replaced by short hashes, equal where the name was equal. Numbers, steps and the "
    "words of ptt are unchanged."
)
GUESSABLE = (
    "Made from findings.json alone and without --salt, a name that can be guessed can be confirmed from its hash: make "
    "it again with --salt and a secret of your own before it is shown outside."
)


def notices(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Give the sentences to show above everything else; none for a whole diagnosis as it was judged."""
    told = []
    if diagnosis.redacted:
        told.append(f"{REDACTED} {GUESSABLE}" if diagnosis.guessable else REDACTED)
    if diagnosis.from_findings:
        told.append(PARTIAL)
    if diagnosis.judged_with:
        told.append(diagnosis.judged_with)
    return tuple(told)
