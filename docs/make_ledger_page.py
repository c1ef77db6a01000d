"""Make docs/ledger.md: what the ledger weighs by which formula, and how close it came to gradients by autograd."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from ptt.diagnostics.evidence.gradient_ledger import EXPLAINED
from ptt.reports.text.names import GUARDS

MIN_CORRELATION: Final = 0.8  # over the sequences of a step, in MIN_ARMS of the arms: below, a loss is not judged
MIN_ARMS: Final = 2
RESULTS: Final = Path(__file__).parents[1] / "benchmarks" / "ledger.json"
WAYS: Final = {
    "ledger": "as the ledger has it",
    "sum of squares, fitted": "root of the sum of squares",
    "without logged norms": "1 − p alone",
    "weights alone": "w alone",
}
ABOUT_GUARDS: Final = {
    "clip-x0.1": "a tenth of the clip range on both sides",
    "clip-x0.5": "half of it",
    "clip-x1.4": "wider on both sides, as DAPO's 0.28 for 0.2 above",
    "tis-2": "weights that contain the ratio are cut to 2",
    "tis-5": "cut to 5",
    "icepop-0.5-2": "0 outside of 0.5 to 2",
    "mis-2": "0 above 2",
    "sequence-0.5-2": "sequences whose mean ratio lies outside of 0.5 to 2 are left out",
    "veto-1e-4": "sequences with a token whose ratio is below 10⁻⁴ are left out",
    "opsm-0.005": "sequences with a negative advantage that drifted by more than 0.005 nats a token are left out",
    "drop-errored": "episodes with a failed call are left out",
    "kl-x10": "the KL in the loss counts ten times",
    "kl-x50": "fifty times",
    "one-schema": "an upper bound alone: tokens after tools get the tail of those before; nothing is replayed",
}

FORMULAS: Final = {
    "PPO, GRPO, DAPO, Dr. GRPO, REINFORCE++": "A ρ, 0 where the clip acts: A > 0 and ρ > 1 + ε, or A < 0 and "
    "ρ < 1 − ε; with a dual clip also A < 0 and ρ > c",
    "GSPO": "A s, with s the geometric mean of the sequence's ratios, clipped as a sequence",
    "CISPO": "A times the truncated ratio; no token is lost",
    "RLOO": "in TRL A times the product of the sequence's ratios, clipped as a sequence; elsewhere PPO's",
    "REINFORCE, GPG": "A",
    "truncated importance sampling": "all of these times min(old/rollout, C), where a cap is set",
    "KL in the loss, weight β": "−β (1 − e^−r) for k3, −β r for k2, −β for k1; r = log policy/ref",
}

PAGE = """# The gradient ledger

`ptt` says that tails grew. The ledger says what that does to the update: which tokens hold it, how few of them hold
half, and what a guard would have taken. It needs nothing that a run does not record already, and is made only where a
finding asks for it ({findings}). The report shows it under that finding, with one plot; the terminal says it in a line:

    Update      Half of it from 1.1% of the tokens since step 2, mostly the first 10 after tool output.

`findings.json` has it under `ledger`, `ptt compare` says where arms differ in it beyond the spread of their seeds, and
`diagnosis.tables` hold `ledger`, `ledger_steps` and `ledger_guards` ([tables](tables.md#ledger)).

## How a token is weighed

The gradient of a policy loss is a sum over tokens of a weight w times the score, the gradient of the token's logprob.
The weights follow from recorded columns by the loss's own formula:

| loss | weight of a token, but for the reduction |
|---|---|
{formulas}

The reduction gives each token 1/N (mean over N tokens), 1/(B n) (mean over B sequences' means, n tokens each), 1/(B L)
(constant L) or 1/B. The loss is the one that the settings name, else the one that gives the logged loss
([audit](audit.md)), else the algorithm's usual one, which the report then calls assumed. Advantages are the recorded
ones, else the logged samples', else the estimator's that the audit found, from the rewards. Sources stand in
`ptt/diagnostics/statistics/token_weights.py`; a test holds every formula to the derivative of the loss by differences.

**What is approximated.** The norm of a score is not recorded. At the logits it lies between 1 − p and 1.41 (1 − p), p
the token's probability; from there to the weights it depends on the network, and may differ by a factor of ten between
places of a text. But scores of single tokens are nearly orthogonal, so the squared norm of a step's gradient is about
the sum of its squared contributions. The ledger therefore takes the norm for (1 − p) f and fits f to the gradient norms
that the run logs: one factor for each octave of tokens since the beginning and since the last tool output, by maximum
likelihood for Gamma-distributed squared norms, with a pull of 0.03 steps towards one factor. It needs 12 steps with a
logged `grad_norm`; where the norm stays at its largest value in a fifth of the steps it was logged after clipping, and
those steps are left out. With fewer it is not judged: by 1 − p alone it would be too far off, as the table below shows.

A share is one of absolute contributions; the signed sum beside it says how much pulls either way. Whole sequences are
read, of 24 steps spread over the run (up to 192, if they are short); of large steps every n-th prompt group, about
130,000 tokens in all, which takes a twentieth of the time of a diagnosis. Each step counts the same, since gradient
clipping and Adam rescale whole steps. Entropy bonuses, value losses and auxiliary losses are not in it.

Shares are given by slice, size of r, tool, result of the tool, tokens since the tool's output, observations before,
outcome of the episode (success where recorded, else a reward above the group's mean), prompt group, rank and
environment, over thirds and since the finding's onset. Beside each stand the signed sum, the KL's part, and what masks,
caps and the clip took, in this order, of what there would be without them. `half_tokens` is the least share of the
tokens that holds half; the effective number of sequences is (Σ c)² / Σ c² of their contributions.

## Guards

Each guard is applied to the weights of the late third. **Takes of the tail** is the part of the contributions of tokens
with abs r above 2 nats that is gone, **costs of the rest** that of all others; a negative part was added. Their ends
are bounds for norms of scores that are off by a factor of three, not over what training would have done: with a guard
the run would have sampled other tokens. **Held**: the sum of squared contributions of a late step stays within 1.25 of
that of an early one without the guard. The cheapest guard that holds it is named; none where it did not rise.

| guard | what it does |
|---|---|
{guards}

## Against the gradient

{truth}
"""
TRUTH = """The reproduction's model is small enough to take the gradient of each token's logprob by autograd
(`python -m examples.reproduction.gradient_truth`). At 24 steps of three arms this gives the norm of each sequence's own
gradient, and of each slice's. `python -m benchmarks.ledger_truth` sets the ledger beside it: Spearman's rank
correlation over the 32 sequences of a step, averaged over steps, and the mean error of the post-tool share (of the sum
of the sequences' norms in each slice). How scores are approximated was chosen on half of the steps; the figures are of
the other half, looked at once. A loss is judged where two of three arms reach {least:g}.

| loss | {arms} | judged |
|---|{lines}---|
{rows}

Cells hold the rank correlation (in brackets that of sequences with a gradient alone, since one without any is easy to
rank) and the error of the share. REINFORCE and RLOO were not measured; their weights follow the same formulas. The
model has 0.28 million weights: nothing says that the norms of larger ones are as regular. By way of approximating the
score, mean rank correlation of all arms on the tuning half:

| loss | {ways} |
|---|{way_lines}
{way_rows}

Of {cases} shares that guards take of tail and rest by thirds of the run, {held:.0%} lie within their bounds when true
norms of the scores are put in (99% on the tuning half, on which the factor of three was chosen).
{guarded}"""
GUARDED = """
## Guards against training

Guards were switched on in the baseline of the reproduction. Predicted: what the ledger of the run without the guard
says that it takes of the late tail's contributions. Real: by how much late post-tool p95 and p99 of abs r came out
lower than in the run of the same seed without it (below 0: higher). The two are not the same quantity: a replay says
what single updates lose, and a guard acts over all of them. It says least of a KL, which is small in each update. Four
runs without a guard differ from each other by 9% in p95 and 4% in p99 (standard deviation).

| guard | seed | predicted: takes of the tail | costs of the rest | real: p95 lower by | p99 lower by |
|---|---|---|---|---|---|
{rows}
"""
USED: Final = "ledger"


def page() -> str:
    """Return the text of docs/ledger.md."""
    guards = "\n".join(f"| `{name}` | {GUARDS[name]}: {about} |" for name, about in ABOUT_GUARDS.items())
    findings = ", ".join(f"`{name}`" for name in sorted(EXPLAINED))
    formulas = "\n".join(f"| {loss} | {weight} |" for loss, weight in FORMULAS.items())
    return PAGE.format(
        findings=findings,
        formulas=formulas,
        guards=guards,
        truth=_truth(json.loads(RESULTS.read_text(encoding="utf-8"))),
    )


def _truth(results: Mapping[str, Any]) -> str:
    losses = results["losses"]
    arms = sorted({arm for ways in losses.values() for arm in ways[USED]})
    rows = "\n".join(
        f"| {loss} | {' | '.join(_cells(losses[loss], arms))} | {_judged(losses[loss][USED])} |" for loss in losses
    )
    way_rows = "\n".join(f"| {loss} | {' | '.join(_by_way(losses[loss]))} |" for loss in losses)
    guarded = results.get("guards") or ()
    return TRUTH.format(
        least=MIN_CORRELATION, arms=" | ".join(f"`{arm}`" for arm in arms), lines="---|" * len(arms), rows=rows,
        ways=" | ".join(WAYS.values()), way_lines="---|" * len(WAYS), way_rows=way_rows,
        cases=results["bounds"]["test"]["cases"], held=results["bounds"]["test"]["share"],
        guarded=GUARDED.format(rows="\n".join(map(_guard_row, guarded))) if guarded else "",
    )  # fmt: skip


def _cells(ways: Mapping[str, Any], arms: list[str]) -> Iterator[str]:
    for arm in arms:
        held = ways[USED][arm]["test"]
        yield f"{held['rank_correlation']:.2f} ({held['with_gradient']:.2f}), {held['share_error']:.2f}"


def _by_way(ways: Mapping[str, Any]) -> Iterator[str]:
    for way in WAYS:
        found = [of["tuning"]["rank_correlation"] for of in ways[way].values()]
        yield f"{sum(found) / len(found):.2f}"


def _judged(of: Mapping[str, Any]) -> str:
    reached = sum(arm["test"]["rank_correlation"] >= MIN_CORRELATION for arm in of.values())
    return "yes" if reached >= MIN_ARMS else "no"


def _guard_row(row: Mapping[str, Any]) -> str:
    tail, cost = (f"{100 * row[name][0]:.1f}% to {100 * row[name][1]:.1f}%" for name in ("tail", "cost"))
    return f"| `{row['guard']}` | {row['seed']} | {tail} | {cost} | {100 * row['p95']:.0f}% | {100 * row['p99']:.0f}% |"
