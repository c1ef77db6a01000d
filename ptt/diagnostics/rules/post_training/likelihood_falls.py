"""This run shows chosen answers that become less likely while the model learns to prefer them.

What: the log-probability of the chosen answers falls to at least twice its starting distance from 0, by at least half a
nat, and stays there, while that of the rejected answers falls as well.
Why it matters: the probability goes to answers in neither column, which may be the opposite of what is wanted.
What it is not: a finding above low where the chosen side loses less. Most preference runs push both sides down a little
without harm; a note says by how much.
What to do: read what the model now says instead. Add an SFT term on the chosen answers, or use pairs that differ more.
Source: likelihood displacement (arXiv 2410.08847). The doubling is our own limit, set above what healthy public runs
show.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, Verdict, requires, rule
from ptt.diagnostics.rules.post_training import PREFERENCE, Side, late_half, level_of, sides
from ptt.diagnostics.rules.single_series import negated

FALL_FACTOR = 2.0  # of the start's distance from 0: the chosen answer's likelihood is squared
HIGH_FALL_FACTOR = 4.0
NOTE_FALL_FACTOR = 1.25
MIN_FALL = 0.5  # nats: averaged per token that is much, summed over an answer nothing


@requires(sides)
def check(both: tuple[Side, Side], _: Evidence, limits: Limits) -> Verdict:
    """Judge the chosen side's log-probabilities, with the rejected ones beside them."""
    chosen, rejected = both
    path = f"log-probability of the chosen {chosen.path}, of the rejected {rejected.path}"
    bound = chosen.start - max(MIN_FALL, (limits["times"] - 1) * abs(chosen.start))
    onset = negated(chosen.series).excess(-bound)
    if rejected.last >= rejected.start or level_of(late_half(chosen.series)).high > chosen.start - MIN_FALL:
        return Healthy(reason=path)
    if onset is None or chosen.last > bound:
        lower = chosen.last < chosen.start - max(MIN_FALL, (NOTE_FALL_FACTOR - 1) * abs(chosen.start))
        notes = (_finding(chosen, rejected, Severity.LOW, bound, None),) if lower else ()
        return Healthy(reason=path, notes=notes)
    severity = Severity.HIGH if chosen.last < HIGH_FALL_FACTOR * chosen.start else Severity.MEDIUM
    return _finding(chosen, rejected, severity, bound, onset)


def _finding(chosen: Side, rejected: Side, severity: Severity, bound: float, onset: int | None) -> Finding:
    return Finding(
        severity=severity,
        claim="Chosen answers become less likely along with the rejected ones: log-probability "
        f"{chosen.path}, rejected {rejected.path}",
        observed=chosen.last,
        limit=bound,
        unit="nats",
        onset_step=onset,
        evidence={
            "metric": "dpo/logp_chosen",
            "logged_as": chosen.series.raw_name,
            "chosen_at_start": chosen.start,
            "rejected_at_start": rejected.start,
            "rejected_last": rejected.last,
        },
        causes=(
            "chosen and rejected answers so similar that pushing one down takes the other along",
            "a learning rate that is too high, or a beta too small to hold the policy near the reference",
            "chosen answers that the start model would hardly give, because no SFT on them came first",
        ),
        confirm=("sample 20 training prompts from the last checkpoint: are these answers in either column?",),
        next=(
            "if they are worse than the chosen ones, add an SFT term on the chosen answers (TRL's DPO: loss_type with "
            "sft in it)",
            "drop the pairs whose two answers overlap most, and compare",
        ),
    )


RULE = rule(check, "likelihood-falls", Link.POLICY_UPDATE, times=FALL_FACTOR, families=PREFERENCE)
