"""Draws a run and makes its tokens: each is sampled from a distribution over a few candidates that is kept."""

from __future__ import annotations

from typing import Final

import numpy as np
from scipy.signal import lfilter

from benchmarks.midrun.run import (
    END,
    HEADER,
    OPENING,
    BoolArray,
    FloatArray,
    Generator,
    IntArray,
    Plan,
    Run,
    Single,
    log_uniform,
)

CANDIDATES: Final = 16  # tokens that a position chooses among
FAMILIES: Final = ("lognormal", "pareto", "laplace", "contaminated")
TOOLS: Final = ("search", "python", "lookup", "browse", "calc")
MOST_TOKENS: Final = 150_000
FEWEST_TOKENS: Final = 15_000
MOST_ROWS: Final = 9_000
LEVELS: Final = np.geomspace(0.002, 60.0, 28)  # scales at which the percentile of |r| is computed
TRIED: Final = 5_000  # tokens for that
VOCABULARY: Final = 150_000


def draw(seed: tuple[int, ...]) -> Plan:
    """Draw a sound run whose tails stay small and level; the same every time."""
    g = np.random.default_rng([*seed, 1])
    steps, groups, size, length = _layout(g)
    count, envs, ranks = len(steps), int(g.integers(1, 4)), int(g.choice([1, 2, 4, 8]))
    text, post = log_uniform(g, 0.1, 0.6), log_uniform(g, 0.1, 0.6)
    rise = _settling(g, count)
    return Plan(
        seed=seed,
        steps=steps,
        groups=groups,
        group_size=size,
        length=length,
        tool_share=np.clip(g.uniform(0.25, 1.0) + np.linspace(0, g.uniform(-0.15, 0.15), count), 0.05, 1.0),
        tools_by_group=bool(g.random() < 0.25),
        observations=int(g.integers(1, 6)),
        text_p99=text * rise,
        post_p99=post * rise,
        family=str(g.choice(FAMILIES)),
        sure=g.uniform(0.35, 0.8),
        step_sd=log_uniform(g, 0.02, 0.15),
        sequence_sd=g.uniform(0.1, 0.5),
        group_sd=g.uniform(0.05, 0.35),
        columns=_columns(g, ranks, envs),
        ranks=ranks,
        rank_factor=np.ones(ranks),
        envs=np.full(count, envs),
        env_factor=np.exp(0.2 * g.normal(size=6)),
        env_open=0.3 * g.normal(size=6),
        tool_names=tuple(g.permutation(TOOLS)[: int(g.integers(1, 5))].tolist()),
        temperature=np.ones(count),
        told_temperature=1.0 if g.random() < 0.5 else None,
        logp_kind="processed" if g.random() < 0.3 else None,
        observation_nats=log_uniform(g, 2.5, 10.0),
        log_form=str(g.choice(["trainer_state", "metrics"])),
        kl_logged=bool(g.random() < 0.9),
    )


def _layout(g: Generator) -> tuple[IntArray, IntArray, int, float]:
    while True:
        count, size = round(log_uniform(g, 24, 200)), int(g.choice([4, 8, 16]))
        groups = max(1, round(log_uniform(g, 8, 64) / size))
        rows, tokens = count * groups * size, log_uniform(g, FEWEST_TOKENS, MOST_TOKENS)
        if groups * size <= 64 and rows <= MOST_ROWS and 10 <= tokens / rows <= 160:
            break
    every = int(g.choice([1, 1, 2, 5, 10]))
    steps = int(g.integers(0, 2)) + every * np.arange(count)
    return steps.astype(np.int64), np.full(count, groups), size, tokens / rows


def _settling(g: Generator, count: int) -> FloatArray:
    """Give a level that stands from the start, or comes out of a reference that is the first policy."""
    if g.random() < 0.6:
        return np.ones(count)
    settled = g.uniform(0.03, 0.12) * count
    return np.asarray(np.clip(1 - np.exp(-np.arange(count) / settled), 1e-3, 1.0))


def _columns(g: Generator, ranks: int, envs: int) -> set[str]:
    shares = {
        "ref_logp": 1.0,
        "policy_logp": 1.0,
        "old_logp": 0.6,
        "rollout_logp": 0.35,
        "entropy": 0.75,
        "token_ids": 0.6,
        "reward": 0.7,
        "rewards": 0.4,
        "advantage": 0.6,
        "rank": 0.6 if ranks > 1 else 0.0,
        "env": 0.6 if envs > 1 else 0.0,
        "tool_names": 0.8,
        "tool_failed": 0.5,
        "group_id": 0.9,
        "policy_version": 0.4,
    }
    return {name for name, share in shares.items() if g.random() < share}


def log_softmax(logits: Single) -> Single:
    """Give the logarithms of the probabilities of all candidates."""
    top = logits - logits.max(axis=1, keepdims=True)
    return np.asarray(top - np.log(np.exp(top).sum(axis=1, keepdims=True)))


def chosen_logp(logits: Single, choice: IntArray) -> Single:
    """Give the log-probability of the chosen candidate."""
    top = logits - logits.max(axis=1, keepdims=True)
    own = np.take_along_axis(top, choice[:, None], 1)[:, 0]
    return np.asarray(own - np.log(np.exp(top).sum(axis=1)))


def entropy_of(logits: Single) -> Single:
    """Give the entropy of each position."""
    logp = log_softmax(logits)
    return np.asarray(-(np.exp(logp) * logp).sum(axis=1))


def make(plan: Plan) -> Run:
    """Make the sequences of a plan and what its trainer logs, the same every time."""
    g = np.random.default_rng([*plan.seed, 2])
    place = np.repeat(np.arange(len(plan.steps)), plan.groups * plan.group_size)
    group = np.arange(len(place)) // plan.group_size
    env = (g.random(int(group[-1]) + 1) * plan.envs[place[:: plan.group_size]]).astype(np.int64)[group]
    first = np.searchsorted(place, place)
    rank = (np.arange(len(place)) - first) * plan.ranks // (plan.groups * plan.group_size)[place]
    parts = _parts(g, plan, place, group)
    rows, segments = parts.shape
    counts = parts.ravel()
    row = np.repeat(np.repeat(np.arange(rows), segments), counts)
    segment = np.repeat(np.tile(np.arange(segments), rows), counts)
    sampled, turn = segment % 2 == 0, (segment + 1) // 2
    tools, failed = _calls(g, plan, parts)
    inner, held = np.flatnonzero(sampled), _held(plan, row, turn, tools, failed)
    scale = _scales(g, plan, place[row], row, group[row], rank[row], env[row])[inner]
    logits = _logits(g, plan, row[inner], env[row[inner]], len(row), inner)
    choice = _choose(g, plan, logits, place[row[inner]])
    push = _push(g, plan, len(inner))
    levels = _levels(g, plan, logits, choice, push, scale, np.where(held, place[row], 0)[inner], turn[inner] > 0)
    if plan.scored_at is not None:
        logits = (logits / plan.scored_at[place[row[inner]]][:, None]).astype(np.float32)
    reference = logits - (levels * scale)[:, None].astype(np.float32) * push
    run = Run(
        plan=plan,
        place=place,
        row=row,
        mask=sampled.copy(),
        sampled=sampled,
        turn=turn,
        tokens={},
        ids=_ids(g, row, segment, choice, sampled),
        rows={},
        rank=rank,
        env=env,
        reward=_rewards(g, plan, place, group, env),
        logits=logits,
        reference=reference,
        choice=choice,
    )
    _score(g, run)
    _describe(run, group, tools, failed)
    return run


def _parts(g: Generator, plan: Plan, place: IntArray, group: IntArray) -> IntArray:
    """Give the token counts of text, observation, text, observation, ... by sequence."""
    rows, most = len(place), plan.observations
    chance = g.random(int(group[-1]) + 1)[group] if plan.tools_by_group else g.random(rows)
    used = chance < plan.tool_share[place]
    calls = np.where(used, np.minimum(g.geometric(0.5, rows), most), 0)
    parts = np.zeros((rows, 1 + 2 * most), np.int64)
    length = np.maximum(6, plan.length * np.exp(0.35 * g.normal(size=rows)))
    shares = g.gamma(3.0, size=(rows, most + 1)) * (np.arange(most + 1) <= calls[:, None])
    parts[:, ::2] = np.ceil(length[:, None] * shares / shares.sum(axis=1, keepdims=True))
    parts[:, 1::2] = g.integers(7, 19, (rows, most)) * (np.arange(most) < calls[:, None])
    return parts


def _calls(g: Generator, plan: Plan, parts: IntArray) -> tuple[IntArray, IntArray]:
    """Give the tool of each observation and whether it failed, by sequence and turn; -1 where there is none."""
    there = parts[:, 1::2] > 0
    weights = np.random.default_rng([*plan.seed, 3]).dirichlet(np.full(len(plan.tool_names), 3.0))
    tool = g.choice(len(plan.tool_names), there.shape, p=weights)
    failed = g.random(there.shape) < 0.06
    return np.where(there, tool, -1), np.where(there, failed, -1)


def _ar(g: Generator, size: int, rho: float) -> FloatArray:
    return np.asarray(lfilter([np.sqrt(1 - rho**2)], [1.0, -rho], g.normal(size=size + 50))[50:])


def _scales(
    g: Generator,
    plan: Plan,
    place: IntArray,
    row: IntArray,
    group: IntArray,
    rank: IntArray,
    env: IntArray,
) -> FloatArray:
    """Give each token's factor on the drift: effects of step, group, sequence, rank and environment, and its tail."""
    log_scale = plan.step_sd * _ar(g, len(plan.steps), g.uniform(0, 0.7))[place]
    log_scale += plan.group_sd * g.normal(size=int(group[-1]) + 1)[group]
    log_scale += plan.sequence_sd * g.normal(size=int(row[-1]) + 1)[row]
    log_scale += 0.4 * _ar(g, len(row), g.uniform(0, 0.8))
    log_scale += np.log(plan.rank_factor)[rank] + np.log(plan.env_factor)[env]
    return np.asarray(np.exp(log_scale) * _heavy(g, plan.family, len(row)))


def _heavy(g: Generator, family: str, size: int) -> FloatArray:
    """Draw the factor that gives a tail its family."""
    if family == "lognormal":
        return np.asarray(np.exp(0.9 * g.normal(size=size)))
    if family == "pareto":
        return np.asarray((g.random(size) ** -0.3 - 1) / 0.3)
    if family == "laplace":
        return np.asarray(np.where(g.random(size) < 0.1, 4.0, 1.0) * g.exponential(size=size))
    return np.where(g.random(size) < 0.03, 7.0, 1.0)


def _held(plan: Plan, row: IntArray, turn: IntArray, tools: IntArray, failed: IntArray) -> BoolArray:
    """Mark the tokens whose level may move: all, or those after one tool, a failed call or the third observation."""
    last, post = np.maximum(turn - 1, 0), turn > 0
    if plan.moved == "third":
        return np.asarray((turn >= 3) | ~post)
    if plan.moved == "failed":
        return np.asarray((failed[row, last] == 1) | ~post)
    if plan.moved != "all":
        return np.asarray((tools[row, last] == plan.tool_names.index(plan.moved)) | ~post)
    return np.ones(len(row), np.bool_)


def _logits(g: Generator, plan: Plan, row: IntArray, env: IntArray, tokens: int, inner: IntArray) -> Single:
    """Give the candidates' logits: as good as certain, in some doubt, or open, in runs of like tokens."""
    doubt = _ar(g, tokens, g.uniform(0.2, 0.8))[inner] + 0.3 * g.normal(size=int(row[-1]) + 1)[row]
    doubt = doubt + plan.env_open[env]
    order = np.quantile(doubt, [plan.sure, plan.sure + (1 - plan.sure) * 0.5])
    others = g.normal(size=(len(inner), CANDIDATES)).astype(np.float32)
    others *= g.uniform(0.5, 2.2, len(inner)).astype(np.float32)[:, None]
    margin = np.where(doubt < order[0], g.uniform(4, 15, len(inner)), g.uniform(0.5, 4, len(inner)))
    margin = np.where(doubt > order[1], g.uniform(-2.5, 1.5, len(inner)), margin)
    rest = others[:, 1:].max(axis=1)
    rest += np.log(np.exp(others[:, 1:] - rest[:, None]).sum(axis=1))
    others[:, 0] = rest + margin
    return others


def _choose(g: Generator, plan: Plan, logits: Single, place: IntArray) -> IntArray:
    """Sample a candidate for each position, as the sampler is set."""
    own = np.asarray(logits / plan.temperature[place][:, None], np.float32)
    if plan.top_p < 1:
        order = np.argsort(-own, axis=1)
        mass = np.cumsum(np.take_along_axis(np.exp(log_softmax(own)), order, 1), axis=1)
        out = np.zeros_like(own, dtype=bool)
        np.put_along_axis(out, order, np.roll(mass, 1, axis=1) >= plan.top_p, 1)
        np.put_along_axis(out, order[:, :1], np.zeros((len(own), 1), bool), 1)
        own[out] = -1e4
    return np.asarray((own + g.gumbel(size=own.shape)).argmax(axis=1))


def _push(g: Generator, plan: Plan, count: int) -> Single:
    """Give the direction in which the policy left its reference, by candidate."""
    size = (count, CANDIDATES)
    return (g.laplace(size=size) if plan.family == "laplace" else g.normal(size=size)).astype(np.float32)


def _levels(
    g: Generator,
    plan: Plan,
    logits: Single,
    choice: IntArray,
    push: Single,
    scale: FloatArray,
    place: IntArray,
    post: BoolArray,
) -> FloatArray:
    """Give the level of the drift that makes the wanted percentiles of |r|, by token."""
    levels = np.zeros(len(place))
    for wanted, own in ((plan.text_p99, ~post), (plan.post_p99, post)):
        some = np.flatnonzero(own)
        if not len(some):
            continue
        some = some[g.permutation(len(some))[:TRIED]]
        base = chosen_logp(logits[some], choice[some])
        pull = scale[some][:, None].astype(np.float32) * push[some]
        moved = [chosen_logp(logits[some] - np.float32(level) * pull, choice[some]) for level in LEVELS]
        curve = [float(np.quantile(np.abs(base - one), 0.99)) for one in moved]
        rising = np.maximum.accumulate(curve) + 1e-9 * np.arange(len(curve))
        by_step = np.exp(np.interp(np.log(wanted), np.log(rising), np.log(LEVELS)))
        by_step *= np.minimum(1.0, wanted / rising[0])
        levels[own] = by_step[place[own]]
    return levels


def _ids(g: Generator, row: IntArray, segment: IntArray, choice: IntArray, sampled: BoolArray) -> IntArray:
    """Give token ids: some frequent, most rare; an observation has its opening and ends in the template's header."""
    ids = (VOCABULARY * g.random(len(row)) ** 4).astype(np.int64)
    ids[sampled] = (ids[sampled] // CANDIDATES) * CANDIDATES + choice
    change = np.append((np.diff(row) != 0) | (np.diff(segment) != 0), True)
    last = np.flatnonzero(change)
    first = np.append(0, last[:-1] + 1)
    seen = segment[last] % 2 == 1
    ids[first[seen]] = OPENING
    for back, token in enumerate(reversed(HEADER)):
        ids[last[seen] - back] = token
    rows_end = np.flatnonzero(np.append(np.diff(row) != 0, True))
    ids[rows_end] = END
    return ids


def _rewards(g: Generator, plan: Plan, place: IntArray, group: IntArray, env: IntArray) -> FloatArray:
    u = place / max(1, len(plan.steps) - 1)
    hard = 0.5 * g.normal(size=int(group[-1]) + 1)[group] - 0.6 * plan.env_open[env]
    logit = g.uniform(-0.8, 0.2) + g.uniform(1.4, 2.4) * u + hard
    right = g.random(len(place)) < 1 / (1 + np.exp(-logit))
    return np.asarray(np.round(right + 0.2 * g.beta(2, 2, len(place)), 4))


def _score(g: Generator, run: Run) -> None:
    """Score all tokens by policy, old policy, engine and reference."""
    plan, inner, total = run.plan, run.sampled, len(run.row)
    logits, choice = run.logits, run.choice
    outer = np.flatnonzero(~inner)
    seen = -plan.observation_nats * g.gamma(1.5, 1 / 1.5, len(outer))

    def column(values: Single, noise: float) -> Single:
        full = np.full(total, np.nan, np.float32)
        full[inner] = np.minimum(values, 0.0)
        full[outer] = np.minimum(seen + noise * g.normal(size=len(outer)), -1e-6)
        return full

    run.tokens["policy_logp"] = column(chosen_logp(logits, choice), 0.0)
    run.tokens["ref_logp"] = column(chosen_logp(run.reference, choice), 0.4)
    update = log_uniform(g, 0.01, 0.05)
    again = (run.token_place[inner] % 2 == 1) | (g.random() < 0.5)  # the second pass over a batch, in half of the runs
    old = logits - np.where(again, update, 0.0).astype(np.float32)[:, None] * _noise(g, logits)
    run.tokens["old_logp"] = column(chosen_logp(old, choice), 0.02)
    rollout = chosen_logp(old + np.float32(log_uniform(g, 0.003, 0.02)) * _noise(g, logits), choice)
    run.tokens["rollout_logp"] = column(rollout, 0.0)
    run.tokens["rollout_logp"][outer] = np.nan
    entropy = np.full(total, np.nan, np.float32)
    entropy[inner], entropy[outer] = entropy_of(logits), g.gamma(2.0, 0.7, len(outer))
    run.tokens["entropy"] = entropy


def _noise(g: Generator, like: Single) -> Single:
    return g.standard_normal(like.shape, dtype=np.float32)


def _describe(run: Run, group: IntArray, tools: IntArray, failed: IntArray) -> None:
    """Give what is recorded of each sequence."""
    plan = run.plan
    names = np.array([*plan.tool_names, ""], object)
    mean = np.bincount(group, run.reward) / plan.group_size
    advantage = run.reward - mean[group]
    spread = np.sqrt(np.bincount(group, advantage**2) / plan.group_size)
    step = plan.steps[run.place]
    within = np.arange(len(step)) - np.searchsorted(run.place, run.place)
    run.rows = {
        "sample_id": [f"{a}-{b}" for a, b in zip(step, within, strict=True)],
        "group_id": [f"g{number}" for number in group],
        "reward": run.reward.tolist(),
        "rewards": [{"correct": float(value >= 1), "form": float(value - (value >= 1))} for value in run.reward],
        "advantage": (advantage / (spread[group] + 1e-4)).tolist(),
        "rank": run.rank.tolist(),
        "env": [f"env_{number}" for number in run.env],
        "tool_names": [[names[tool] for tool in own if tool >= 0] for own in tools],
        "tool_failed": [[bool(value) for value in own if value >= 0] for own in failed],
        "policy_version": np.maximum(step - 1, 0).tolist(),
    }
    rows = len(step)
    if plan.told_temperature is not None:
        run.rows["temperature"] = [plan.told_temperature] * rows
    if plan.top_p < 1:
        run.rows["top_p"] = [plan.top_p] * rows
    if plan.logp_kind is not None:
        run.rows["logp_kind"] = [plan.logp_kind] * rows
