"""Further kinds, from other trainers' logs: what goes wrong in them, and what only looks so."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from benchmarks.midrun.kinds import (
    REFERENCE,
    Kind,
    Prepare,
    at,
    enough,
    grow,
    grown,
    higher_in_some,
    late,
    nothing,
    or_always,
    put,
    recording,
    shift,
    since,
    some_tools,
    sometimes_logged,
    sound,
    want,
)
from benchmarks.midrun.make import chosen_logp, entropy_of
from benchmarks.midrun.run import BoolArray, Generator, Plan, Run, Single, log_uniform
from benchmarks.midrun.write import whole

ENGINE: Final = ("data_validity", "data_freshness", "policy_update", "numerics", "systems")
SIGNAL: Final = ("data_validity", "data_freshness", "reward", "training_signal")
SCORES: Final = ("policy_logp", "old_logp", "rollout_logp", "ref_logp")


def change(run: Run, column: str, where: BoolArray, values: Any) -> None:
    """Write values where told."""
    run.tokens[column] = np.where(where, values, run.tokens[column]).astype(np.float32)


# Columns


def half_precision(run: Run, generator: Generator) -> dict[str, Any]:
    """The reference's logits come in bfloat16 from a step on: its logprobs lie on a grid of 1/16 or 1/8 nats."""
    place, grid = since(run, generator), float(generator.choice([0.0625, 0.125]))
    change(run, "ref_logp", late(run, place), np.minimum(0, np.round(run.tokens["ref_logp"] / grid) * grid))
    sometimes_logged(run, generator)
    return at(run, place, "ref_logp", severity="low")


def clamped(run: Run, generator: Generator) -> dict[str, Any]:
    """A clamp for stability is switched on: nothing lies below it."""
    place, low = since(run, generator), float(generator.choice([-1.0, -2.0, -3.0]))
    column = str(generator.choice(["ref_logp", "policy_logp"]))
    change(run, column, late(run, place), np.maximum(run.tokens[column], low))
    sometimes_logged(run, generator)
    return at(run, place, column)


def other_base(run: Run, generator: Generator) -> dict[str, Any]:
    """A column in bits, or in decades."""
    place, base = or_always(run, generator), float(generator.choice([2.0, 2.0, 10.0]))
    change(run, "ref_logp", late(run, place), run.tokens["ref_logp"] / np.log(base))
    return at(run, place, "ref_logp")


def by_length(run: Run, generator: Generator) -> dict[str, Any]:
    """Each logprob is divided by the length of its sequence."""
    place = since(run, generator)
    length = np.bincount(run.row)[run.row]
    change(run, "ref_logp", late(run, place), run.tokens["ref_logp"] / length)
    return at(run, place, "ref_logp")


def sign_flipped(run: Run, generator: Generator) -> dict[str, Any]:
    """A column holds the loss of each token, not its logprob."""
    place = or_always(run, generator)
    change(run, "ref_logp", late(run, place), -run.tokens["ref_logp"])
    return at(run, place, "ref_logp")


def columns_swapped(run: Run, generator: Generator) -> dict[str, Any]:
    """Two columns change places."""
    place, old = since(run, generator), run.tokens["old_logp"].copy()
    change(run, "old_logp", late(run, place), run.tokens["ref_logp"])
    change(run, "ref_logp", late(run, place), old)
    return at(run, place, "old_logp, ref_logp", nameable="old_logp" in run.plan.columns)


def zero_rows(run: Run, generator: Generator) -> dict[str, Any]:
    """Micro-batches whose reference overflowed: NaN turned into zeros."""
    place = since(run, generator)
    rows = generator.random(len(run.place)) < generator.uniform(0.06, 0.25)
    put(run, "ref_logp", 0.0, late(run, place) & rows[run.row])
    sometimes_logged(run, generator)
    return at(run, place, "ref_logp")


def boundary_zeros(run: Run, generator: Generator) -> dict[str, Any]:
    """The first token of each turn after an observation has no logprob and gets 0, in all columns or in one."""
    place = since(run, generator)
    first = np.append(False, run.sampled[1:] & ~run.sampled[:-1])
    for column in SCORES if generator.random() < 0.4 else ("ref_logp",):
        put(run, column, 0.0, late(run, place) & first)
    share = float((first & run.sampled).sum() / run.sampled.sum())
    return at(run, place, "ref_logp", nameable=share > 0.01)


def shifted_in_long(run: Run, generator: Generator) -> dict[str, Any]:
    """The trainer's own column is off by one in sequences of several observations alone."""
    place = since(run, generator)
    turns = np.zeros(len(run.place), np.int64)
    np.maximum.at(turns, run.row, run.turn)
    shift(run, "policy_logp", late(run, place) & (turns >= 2)[run.row], int(generator.choice([-1, 1])))
    sometimes_logged(run, generator)
    return at(run, place, "policy_logp")


def other_side(run: Run, generator: Generator) -> dict[str, Any]:
    """The reference's batch is padded on the other side: each sequence is moved by what it lacks of the longest."""
    place = since(run, generator)
    bounds = np.searchsorted(run.row, np.arange(len(run.place) + 1))
    length = np.diff(bounds)
    longest = np.zeros(run.count, np.int64)
    np.maximum.at(longest, run.place, length)
    lack = (longest[run.place] - length)[run.row]
    source = bounds[run.row] + (run.position - lack) % length[run.row]
    change(run, "ref_logp", late(run, place), run.tokens["ref_logp"][source])
    return at(run, place, "ref_logp")


def entropy_elsewhere(run: Run, generator: Generator) -> dict[str, Any]:
    """The entropy is computed from logits divided by another temperature."""
    place, factor = since(run, generator), float(generator.choice([0.5, 1.5, 2.0]))
    other = run.tokens["entropy"].copy()
    other[run.sampled] = entropy_of(run.logits / np.float32(factor))
    change(run, "entropy", late(run, place), other)
    run.share_log = True
    return at(run, place, "entropy", links=ENGINE, nameable="entropy" in run.plan.columns)


def other_tokenizer(run: Run, generator: Generator) -> dict[str, Any]:
    """Resumed with a tokenizer of other ids: every model scores tokens that were not sampled."""
    place, wrong = since(run, generator), generator.integers(0, run.logits.shape[1], len(run.choice))
    policy, reference = chosen_logp(run.logits, wrong), chosen_logp(run.reference, wrong)
    inner = run.token_place[run.sampled] >= place
    noise = 0.02 * generator.normal(size=len(wrong))
    for column, values in zip(SCORES, (policy, policy + noise, policy + noise, reference), strict=True):
        own = run.tokens[column][run.sampled]
        run.tokens[column][run.sampled] = np.where(inner, np.minimum(np.asarray(values, np.float64), 0), own)
    run.ids = np.where(late(run, place), (run.ids * 7919) % 50_257, run.ids)
    run.share_log = True
    return at(run, place, "all columns", nameable="entropy" in run.plan.columns)


# The mask, the rows


def prompt_marked(run: Run, generator: Generator) -> dict[str, Any]:
    """The prompt's tokens are recorded with the response, and marked as sampled."""
    place = since(run, generator)
    first = np.searchsorted(run.row, np.arange(len(run.place)))
    count = np.where(run.place >= place, generator.integers(6, 16, len(run.place)), 0)
    after = np.repeat(first, count)
    entropy = generator.gamma(2.0, 0.8, len(after))
    nats = generator.uniform(1.8, 3.0) * entropy * generator.gamma(1.5, 1 / 1.5, len(after))
    sd = {"policy_logp": 0.0, "old_logp": 0.03, "rollout_logp": 0.03, "ref_logp": 0.4}
    added: dict[str, Single] = {
        name: np.minimum(-nats + own * generator.normal(size=len(after)), -1e-6).astype(np.float32)
        for name, own in sd.items()
    }
    added["entropy"] = entropy.astype(np.float32)
    run.insert(after, added, generator.integers(0, 50_000, len(after)), marked=True)
    sometimes_logged(run, generator, 0.5)
    return at(run, place, "model_mask", nameable="entropy" in run.plan.columns)


def mask_inverted(run: Run, generator: Generator) -> dict[str, Any]:
    """True where it was false."""
    place = since(run, generator)
    run.mask = np.where(late(run, place), ~run.mask, run.mask)
    sometimes_logged(run, generator)
    return at(run, place, "model_mask", nameable=bool({"entropy", "tool_names"} & run.plan.columns))


def tools_of_others(run: Run, generator: Generator) -> dict[str, Any]:
    """The names of the called tools are those of another sequence."""
    place = since(run, generator)
    own = np.flatnonzero(run.place >= place)
    other = generator.permutation(own)
    for column in ("tool_names", "tool_failed"):
        values = run.rows[column]
        moved = [values[number] for number in other]
        for number, value in zip(own, moved, strict=True):
            values[number] = value
    able = "tool_names" in run.plan.columns
    return at(run, place, "tool_names", links=("data_validity", "environment"), severity="low", nameable=able)


def cut_short(run: Run, generator: Generator) -> dict[str, Any]:
    """The recorder keeps the first tokens alone, from a step on: about the length of the median sequence."""
    place = since(run, generator)
    limit = int(np.quantile(np.bincount(run.row), generator.uniform(0.3, 0.6)))
    kept = (run.position < limit) | (run.token_place < place)
    inner = kept[run.sampled]
    run.logits, run.reference, run.choice = run.logits[inner], run.reference[inner], run.choice[inner]
    for name in ("row", "mask", "sampled", "turn", "ids"):
        setattr(run, name, getattr(run, name)[kept])
    run.tokens = {name: values[kept] for name, values in run.tokens.items()}
    return at(run, place, "rows", links=("data_validity", "data_freshness", "systems"), severity="low")


def same_batch(run: Run, generator: Generator) -> dict[str, Any]:
    """A queue that no longer empties: every later step records the same batch."""
    place = since(run, generator)
    rows = [np.flatnonzero(run.place == step) for step in range(run.count)]
    source = np.concatenate([rows[min(step, place - 1)] for step in range(run.count)])
    bounds = np.searchsorted(run.row, np.arange(len(run.place) + 1))
    length = np.diff(bounds)[source]
    within = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
    token = np.repeat(bounds[:-1][source], length) + within
    inner = np.cumsum(run.sampled) - 1
    model = inner[token[run.sampled[token]]]
    run.logits, run.reference, run.choice = run.logits[model], run.reference[model], run.choice[model]
    run.place = np.concatenate([np.full(len(rows[min(step, place - 1)]), step) for step in range(run.count)])
    for name in ("mask", "sampled", "turn", "ids"):
        setattr(run, name, getattr(run, name)[token])
    run.row = np.repeat(np.arange(len(source)), length)
    run.tokens = {name: values[token] for name, values in run.tokens.items()}
    names = run.rows["sample_id"]
    run.rows = {name: [values[number] for number in source] for name, values in run.rows.items()}
    if len(names) == len(source):
        run.rows["sample_id"] = names
    for name in ("rank", "env", "reward"):
        setattr(run, name, getattr(run, name)[source])
    return at(run, place, "rows")


def rewards_of_others(run: Run, generator: Generator) -> dict[str, Any]:
    """Rewards are written beside another sequence of the step: advantages do not follow from them."""
    place = since(run, generator)
    for step in range(place, run.count):
        own = np.flatnonzero(run.place == step)
        for column in ("reward", "rewards"):
            moved = [run.rows[column][number] for number in np.roll(own, 1)]
            for number, value in zip(own, moved, strict=True):
                run.rows[column][number] = value
    return at(run, place, "reward", links=SIGNAL, nameable={"reward", "advantage"} <= run.plan.columns)


def groups_mixed(run: Run, generator: Generator) -> dict[str, Any]:
    """Group ids are dealt out anew within each step: advantages no longer sum to nothing in a group."""
    place = since(run, generator)
    for step in range(place, run.count):
        own = np.flatnonzero(run.place == step)
        moved = [run.rows["group_id"][number] for number in generator.permutation(own)]
        for number, value in zip(own, moved, strict=True):
            run.rows["group_id"][number] = value
    able = {"group_id", "advantage", "reward"} <= run.plan.columns and run.plan.groups[0] > 1
    return at(run, place, "group_id", links=SIGNAL, nameable=bool(able))


# Models


def other_reference_on_a_rank(run: Run, generator: Generator) -> dict[str, Any]:
    """One worker has loaded another checkpoint as its reference, since it was restarted."""
    place, rank = since(run, generator), int(generator.integers(run.plan.ranks))
    push = generator.standard_normal(run.reference.shape, dtype=np.float32)
    other = run.reference - np.float32(generator.uniform(1.2, 3.0)) * push
    own = (late(run, place) & (run.rank == rank)[run.row])[run.sampled]
    run.reference = np.where(own[:, None], other, run.reference)
    run.tokens["ref_logp"][run.sampled] = np.minimum(chosen_logp(run.reference, run.choice), 0)
    run.share_log = True
    return at(run, place, f"rank {rank}", links=(*REFERENCE, "systems"), nameable="rank" in run.plan.columns)


def stale_rank(run: Run, generator: Generator) -> dict[str, Any]:
    """One worker's engine no longer gets the weights: what it sampled is ever further from the policy."""
    place, rank = since(run, generator), int(generator.integers(run.plan.ranks))
    own = late(run, place) & (run.rank == rank)[run.row] & run.sampled
    age = np.sqrt((run.token_place[run.sampled] - place + 1.0).clip(0) / run.count)
    push = generator.standard_normal(run.logits.shape, dtype=np.float32)
    push *= (generator.uniform(1.0, 2.5) * age).astype(np.float32)[:, None]
    stale = np.full(len(run.row), np.nan, np.float32)
    stale[run.sampled] = np.minimum(chosen_logp(run.logits - push, run.choice), 0)
    change(run, "rollout_logp", own, stale)
    return at(run, place, f"rank {rank}", links=ENGINE, nameable={"rank", "rollout_logp"} <= run.plan.columns)


def chunks(run: Run, generator: Generator) -> dict[str, Any]:
    """The engine scores the first token of each chunk without the tokens before it."""
    place, chunk = since(run, generator), int(generator.choice([8, 16]))
    own = late(run, place) & (run.position % chunk == chunk - 1) & run.sampled
    change(run, "rollout_logp", own, -generator.gamma(2.0, 1.5, len(run.row)))
    share = float(own[late(run, place) & run.sampled].mean())
    return at(run, place, "rollout_logp", links=ENGINE, nameable="rollout_logp" in run.plan.columns and share > 0.02)


def dropout(run: Run, generator: Generator) -> dict[str, Any]:
    """The training forward runs with dropout: the policy's column is noisy against all others."""
    place = since(run, generator)
    inner = run.token_place[run.sampled] >= place
    noise = generator.standard_normal(run.logits.shape, dtype=np.float32) * np.float32(generator.uniform(0.8, 1.6))
    noisy = np.where(inner[:, None], run.logits + noise, run.logits)
    run.tokens["policy_logp"][run.sampled] = np.minimum(chosen_logp(noisy, run.choice), 0)
    run.tokens["entropy"][run.sampled] = entropy_of(noisy)
    run.share_log = True
    return at(run, place, "policy_logp", links=ENGINE, nameable=bool({"old_logp", "entropy"} & run.plan.columns))


# Sound, though it looks like a fault


def on_policy(run: Run, generator: Generator) -> dict[str, Any]:
    """One update a batch: the old policy is the policy, to the last bit, on all steps or from one on."""
    place = or_always(run, generator)
    change(run, "old_logp", late(run, place), run.tokens["policy_logp"])
    return sound(run, generator)


def sharper(plan: Plan, generator: Generator) -> None:
    """The policy grows certain: its logits are multiplied by more and more, and its samples with them."""
    plan.scored_at = plan.temperature = np.linspace(1.2, generator.uniform(0.4, 0.7), len(plan.steps))
    plan.told_temperature, plan.logp_kind = 1.0, None


def annealed(plan: Plan, generator: Generator) -> None:
    """The temperature is lowered in stages, is recorded, and the logprobs are those of the sampler."""
    stages = np.floor(np.linspace(0, 2.999, len(plan.steps)))
    plan.scored_at = plan.temperature = 1.0 - generator.uniform(0.1, 0.2) * stages
    plan.told_temperature, plan.logp_kind = 1.0, "processed"


def annealed_told(run: Run, generator: Generator) -> dict[str, Any]:
    """Write the temperature of each step."""
    run.rows["temperature"] = run.plan.temperature[run.place].tolist()
    return sound(run, generator)


def longer(plan: Plan, generator: Generator) -> None:
    """A third of the prompts, from a step on."""
    plan.groups = np.maximum(2, plan.groups)
    later = np.arange(len(plan.steps)) >= generator.uniform(0.35, 0.65) * len(plan.steps)
    plan.groups = np.where(later, plan.groups, 3 * plan.groups)
    plan.length = max(8.0, plan.length / 2)
    higher_in_some(plan, generator)


def new_tool(run: Run, generator: Generator) -> dict[str, Any]:
    """A further tool is offered from a step on, and takes a share of the calls."""
    place, share = since(run, generator), generator.uniform(0.2, 0.7)
    for number in np.flatnonzero(run.place >= place):
        names = run.rows["tool_names"][number]
        run.rows["tool_names"][number] = ["shell" if generator.random() < share else name for name in names]
    return sound(run, generator)


def rounded(run: Run, generator: Generator) -> dict[str, Any]:
    """All columns are kept in bfloat16 from the first step on."""
    for column in (*SCORES, "entropy"):
        bits = run.tokens[column].view(np.uint32)
        kept = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
        run.tokens[column] = np.where(np.isfinite(run.tokens[column]), kept, np.nan).astype(np.float32)
    return sound(run, generator)


def more_ranks(run: Run, generator: Generator) -> dict[str, Any]:
    """The job is resumed on twice as many workers; each has its part of each step."""
    place = since(run, generator)
    within = np.arange(len(run.place)) - np.searchsorted(run.place, run.place)
    run.rank = np.where(run.place < place, within % 2, within % 4)
    run.rows["rank"] = run.rank.tolist()
    return sound(run, generator)


def sparser(plan: Plan, generator: Generator) -> None:
    """Every step is recorded at first, then every fifth."""
    gaps = np.where(np.arange(len(plan.steps)) < generator.uniform(0.3, 0.7) * len(plan.steps), 1, 5)
    plan.steps = np.cumsum(gaps).astype(np.int64)
    higher_in_some(plan, generator)


def flaky_tool(run: Run, generator: Generator) -> dict[str, Any]:
    """Calls fail twice or three times as often from a step on; nothing else changes."""
    place = since(run, generator)
    for number in np.flatnonzero(run.place >= place):
        own = run.rows["tool_failed"][number]
        run.rows["tool_failed"][number] = [failed or bool(generator.random() < 0.08) for failed in own]
    run.logged = whole(run)
    told = sound(run, generator)
    return told | {"allowed": (*told["allowed"], "tool-failures")}


def spike(plan: Plan, generator: Generator) -> None:
    """A few bad batches: both slices' tails are three times as large for a moment."""
    count = len(plan.steps)
    start = int(generator.uniform(0.3, 0.8) * count)
    size = np.ones(count)
    size[start : start + max(1, count // 25)] = 3.0
    plan.text_p99, plan.post_p99 = plan.text_p99 * size, plan.post_p99 * size


def filtered(run: Run, generator: Generator) -> dict[str, Any]:
    """Groups without signal are dropped before the update, more and more of them, in the log as in the records."""
    size = run.plan.group_size
    group = np.arange(len(run.place)) // size
    u = run.place[::size] / run.count
    kept = generator.random(int(group[-1]) + 1) > generator.uniform(0.3, 0.6) * u
    kept[np.searchsorted(run.place, np.arange(run.count)) // size] = True
    run.keep_rows(kept[group])
    run.logged = whole(run)
    return sound(run, generator)


def two_groups(plan: Plan, generator: Generator) -> None:
    """Let each step have at least three groups."""
    plan.groups = np.maximum(plan.groups, 3)
    plan.length = max(8.0, plan.length / 2)
    higher_in_some(plan, generator)


def with_columns(*columns: str, ranks: int = 0) -> Prepare:
    """Record these columns always."""

    def prepare(plan: Plan, generator: Generator) -> None:
        plan.columns |= set(columns)
        if ranks:
            plan.ranks, plan.rank_factor = ranks, np.ones(ranks)
        higher_in_some(plan, generator)

    return prepare


def several_groups(plan: Plan, generator: Generator) -> None:
    """Let each step have three groups or more, and write who belongs to which."""
    two_groups(plan, generator)
    want(plan, generator, "group_id", "advantage", "reward")


def many_ranks(plan: Plan, generator: Generator) -> None:
    """Let two or four workers write their numbers."""
    plan.ranks = int(generator.choice([2, 4]))
    plan.rank_factor = np.ones(plan.ranks)
    want(plan, generator, "rank", "rollout_logp")


def several_turns(plan: Plan, _: Generator) -> None:
    """Let most sequences call tools, several times."""
    some_tools(plan)
    plan.tool_share, plan.observations = np.maximum(plan.tool_share, 0.7), max(3, plan.observations)


def growth_beside_tools(plan: Plan, generator: Generator) -> None:
    """Tails grow threefold and more while the agent learns to call tools."""
    grow(plan, generator, log_uniform(generator, 3.0, 6.0), (0.36, 0.55))
    enough(plan, 40_000)
    plan.tool_share = np.linspace(generator.uniform(0.15, 0.35), generator.uniform(0.7, 0.95), len(plan.steps))


def growth_beside_fewer(plan: Plan, generator: Generator) -> None:
    """Tails grow threefold and more while the agent gives up half of its calls."""
    growth_beside_tools(plan, generator)
    plan.tool_share = plan.tool_share[::-1].copy()


def slow_growth(plan: Plan, generator: Generator) -> None:
    """Tails grow over the whole run, never at once."""
    grow(plan, generator, log_uniform(generator, 4.0, 8.0), (0.36, 0.55))
    top, low = plan.post_p99[-1], plan.post_p99[0]
    plan.post_p99 = low * (top / low) ** np.linspace(0, 1, len(plan.steps))
    enough(plan, 30_000)


KINDS: Final = (
    Kind("reference in half precision since", "faulty", nothing, half_precision),
    Kind("clamped since", "faulty", nothing, clamped),
    Kind("other base", "faulty", nothing, other_base),
    Kind("divided by length since", "faulty", nothing, by_length),
    Kind("sign flipped", "faulty", nothing, sign_flipped),
    Kind("columns swapped since", "faulty", recording("old_logp"), columns_swapped),
    Kind("rows of zeros since", "faulty", nothing, zero_rows),
    Kind("zeros at turns since", "faulty", several_turns, boundary_zeros),
    Kind("shifted in long sequences since", "faulty", several_turns, shifted_in_long),
    Kind("padded on the other side since", "faulty", nothing, other_side),
    Kind("entropy at another temperature since", "faulty", recording("entropy"), entropy_elsewhere),
    Kind("other tokenizer since", "faulty", recording("entropy", "token_ids"), other_tokenizer),
    Kind("prompt marked since", "faulty", recording("entropy", "token_ids"), prompt_marked),
    Kind("mask inverted since", "faulty", recording("entropy", "tool_names"), mask_inverted),
    Kind("tool names of others since", "faulty", recording("tool_names"), tools_of_others),
    Kind("cut short since", "faulty", recording("token_ids"), cut_short),
    Kind("same batch since", "faulty", nothing, same_batch),
    Kind("rewards of others since", "faulty", recording("reward", "advantage"), rewards_of_others),
    Kind("groups mixed since", "faulty", several_groups, groups_mixed),
    Kind("other reference on a rank since", "faulty", many_ranks, other_reference_on_a_rank),
    Kind("stale engine on a rank since", "faulty", many_ranks, stale_rank),
    Kind("chunks scored alone since", "faulty", recording("rollout_logp"), chunks),
    Kind("dropout since", "faulty", recording("old_logp", "entropy"), dropout),
    Kind("old is policy", "sound", with_columns("old_logp"), on_policy),
    Kind("grows certain", "sound", sharper, sound),
    Kind("temperature annealed", "sound", annealed, annealed_told),
    Kind("fewer prompts late", "sound", longer, sound),
    Kind("new tool", "sound", with_columns("tool_names"), new_tool),
    Kind("bfloat16 always", "sound", with_columns("entropy"), rounded),
    Kind("more ranks", "sound", with_columns("rank", ranks=4), more_ranks),
    Kind("recorded less often", "sound", sparser, sound),
    Kind("tool fails more often", "sound", with_columns("tool_names", "tool_failed"), flaky_tool),
    Kind("spike", "sound", spike, sound),
    Kind("groups filtered", "sound", two_groups, filtered),
    Kind("growth beside more tools", "growth", growth_beside_tools, grown),
    Kind("growth all along", "growth", slow_growth, grown),
    Kind("growth beside fewer tools", "growth", growth_beside_fewer, grown),
)
