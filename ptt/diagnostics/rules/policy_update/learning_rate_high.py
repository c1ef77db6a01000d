"""This run shows a learning rate far above what its kind of training usually tolerates.

What: the highest logged learning rate lies above 2e-3 for supervised fine-tuning and reward models, or above 1e-3 for
preference training and RL. On its own this is a suspicion, reported as a note. It is a finding where, after the rate
passed the limit, the loss on given data rose to 1.3 times its starting value, a single evaluation loss to 1.3 times the
first, or the gradient norm to 10 times, whether or not it came back; or where the rate is ten times the limit or more,
and two failures of high severity that it brings about set in from the same steps on.
Why it matters: even if the loss comes down again after such a rise, the model has often forgotten what it could do at
the start.
What it is not: a limit for small models trained from scratch or for classical control, which tolerate more.
What to do: try a tenth of the rate on a few hundred steps and compare both curves and a held-out evaluation.
Source: TRL's defaults are 2e-5 (SFT), 1e-6 (DPO, KTO, GRPO) and 1e-4 (reward models); adapters tolerate about ten times
the rate of full fine-tuning (Thinking Machines, LoRA Without Regret, 2025), QLoRA uses 1e-4 to 2e-4. The limits are
five to ten times what adapters take.
"""

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.algorithm import SAMPLED, Family
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import EVERY, Finding, Healthy, Limits, NotJudged, Verdict, does_not_apply, rule
from ptt.diagnostics.rules.policy_update import LOG_LEARNING_RATE
from ptt.diagnostics.rules.single_series import metric_evidence, requires_metric
from ptt.diagnostics.wording import sig

GIVEN_RATE = 2e-3  # SFT and reward models: ten times the rate that adapters take (1e-4 to 2e-4)
SENSITIVE_RATE = 1e-3  # RL and preference training: a model pulled away from its start tolerates less
LOSS_FACTOR = 1.3  # of the first values: training lowers a loss on given data, and batch noise stays below this
NORM_FACTOR = 10.0  # as in gradient-spikes
FAR_FACTOR = 10.0  # times the limit: no adapter, no small model and no schedule comes near
MIN_VALUES = 5
FIRST_VALUES = 3  # logged values that tell where a curve began
CONTROL_PREFIX = "charts/"  # CleanRL's: small networks, trained from scratch
LOG_KIND = "keep the trainer's configuration beside the log: it names the algorithm"


@requires_metric("lr", what="learning rate", enable=LOG_LEARNING_RATE, minimum=MIN_VALUES)
def check(series: Series, evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the highest rate by the kind of training, and what happened under it."""
    family = evidence.algorithm.family
    if family is None:
        return NotJudged(reason="no file says what kind of training this is", missing=("algorithm",), enable=LOG_KIND)
    if series.raw_name.startswith(CONTROL_PREFIX):
        return does_not_apply("classical control")
    limit = limits["given"] if family in (Family.SUPERVISED, Family.REWARD_MODEL) else limits["sensitive"]
    steps, values = series.finite()
    highest = float(values.max())
    if highest <= limit:
        return Healthy(reason=f"the learning rate peaks at {sig(highest)}; {limit:g} would be far above what is usual")
    place = int(np.argmax(values > limit))
    onset, before = int(steps[place]), int(steps[max(0, place - 1)])
    damage = _damage(evidence, before, family)
    finding = Finding(
        severity=Severity.MEDIUM if damage else Severity.LOW,
        claim=f"The learning rate of {sig(highest)} is {sig(highest / limit)} times the most that such training "
        "usually "
        "tolerates" + (f", and {damage}" if damage else ""),
        observed=highest,
        limit=limit,
        unit="per step",
        onset_step=onset,
        onset_interval=(before, onset),
        evidence=metric_evidence(
            series,
            kind=evidence.algorithm.title,
            damage=damage or None,
            far_outside_use=highest >= FAR_FACTOR * limit,
        ),
        causes=("a rate copied from a different method, model size or optimiser", "a misplaced decimal point"),
        confirm=("run the first 50 steps again at a tenth of the rate: does the loss then fall from the start?",),
        next=("lower the rate to a tenth, keep the warm-up and change nothing else",),
    )
    return finding if damage else Healthy(reason=f"nothing shows damage at a rate of {sig(highest)}", notes=(finding,))


def _damage(evidence: Evidence, before: int, family: Family) -> str:
    """Return which curve rose after the rate passed its limit, as a clause; empty where none did."""
    watched = [("grad_norm", "gradient norm", NORM_FACTOR)]
    if family not in SAMPLED:  # the loss of a policy measures no progress
        watched.insert(0, ("loss/total", "loss", LOSS_FACTOR))
    for name, title, factor in watched:
        curve = evidence.metrics.get(name)
        if curve is None or len(curve.finite()[0]) < max(MIN_VALUES, FIRST_VALUES + 1):
            continue
        steps, values = curve.finite()
        first = float(np.median(values[:FIRST_VALUES]))
        width = 3 if len(values) < 4 * curve.width else curve.width
        after = values[steps > before]
        if first <= 0 or len(after) < width:
            continue
        highest = float(np.median(np.lib.stride_tricks.sliding_window_view(after, width), axis=1).max())
        if highest > factor * first:
            return f"the {title} rose from {sig(first)} to {sig(highest)} under it"
    evaluated = None if family in SAMPLED or evidence.eval_loss is None else evidence.eval_loss.finite()[1]
    if evaluated is not None and len(evaluated) > 1 and evaluated.max() > LOSS_FACTOR * evaluated[0] > 0:
        return f"the evaluation loss rose from {sig(evaluated[0])} to {sig(evaluated.max())} under it"
    return ""


RULE = rule(
    check,
    "learning-rate-high",
    Link.POLICY_UPDATE,
    max_severity=Severity.MEDIUM,
    given=GIVEN_RATE,
    sensitive=SENSITIVE_RATE,
    families=EVERY,
)
