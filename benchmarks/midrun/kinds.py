"""The kinds of runs: how each is drawn, what is planted in it, and what is then true. None looks at what ptt says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from benchmarks.midrun.make import chosen_logp
from benchmarks.midrun.run import (
    HEADER,
    LN2,
    PAD,
    BoolArray,
    FloatArray,
    Generator,
    IntArray,
    Plan,
    Run,
    Single,
    Sort,
    Truth,
    log_uniform,
)

Prepare = Callable[[Plan, Generator], None]
Plant = Callable[[Run, Generator], dict[str, Any]]

REFERENCE: Final = ("data_validity", "data_freshness", "policy_update")  # links of a reference that was replaced
EARLIEST: Final = 0.35
LATEST: Final = 0.65


@dataclass(frozen=True)
class Kind:
    """One kind: `prepare` changes the plan before the tokens are made, `plant` the tokens; it returns the truth."""

    name: str
    sort: Sort
    prepare: Prepare
    plant: Plant

    def truth(self, run: Run, generator: Generator) -> Truth:
        """Plant what the kind is about, and say what is then true."""
        told: dict[str, Any] = {"found_allowed": False} | self.plant(run, generator)
        return Truth(kind=self.name, sort=self.sort, **told)


def want(plan: Plan, generator: Generator, *columns: str, share: float = 0.9) -> None:
    """Record these columns in most runs, all or none of them as a rule."""
    if generator.random() < share:
        plan.columns |= set(columns)
    else:
        plan.columns -= set(columns[:1])


def some_tools(plan: Plan) -> None:
    """Let at least half of the sequences call tools."""
    plan.tool_share = np.maximum(plan.tool_share, 0.5)
    plan.tools_by_group = False


def since(run: Run, generator: Generator, low: float = EARLIEST, high: float = LATEST) -> int:
    """Draw the number of the recorded step at which it begins."""
    return int(generator.uniform(low, high) * run.count)


def or_always(run: Run, generator: Generator) -> int:
    """Draw the beginning: in a third of the runs the first step."""
    return 0 if generator.random() < 1 / 3 else since(run, generator)


def at(run: Run, place: int, concerns: str, **more: Any) -> dict[str, Any]:
    """Say since when; what holds from the first step on has no step."""
    return {"step": int(run.plan.steps[place]) if place else None, "concerns": concerns} | more


def late(run: Run, place: int) -> BoolArray:
    """Mark the tokens from a recorded step on."""
    return np.asarray(run.token_place >= place)


def nothing(plan: Plan, generator: Generator) -> None:
    """Change nothing of the plan."""


def sometimes_logged(run: Run, generator: Generator, share: float = 0.35) -> None:
    """Let the trainer share the fault in some of the runs: its own KL is then no witness."""
    run.share_log = bool(generator.random() < share)


# Columns


def shift(run: Run, column: str, where: BoolArray, lag: int) -> None:
    """Give each of these tokens the value of a neighbour in its sequence: off by one in a gather."""
    values = run.tokens[column]
    moved = np.roll(values, lag)
    moved_row = np.roll(run.row, lag)
    run.tokens[column] = np.where(where & (moved_row == run.row), moved, values).astype(np.float32)


def shifted_everywhere(run: Run, generator: Generator) -> dict[str, Any]:
    place = since(run, generator)
    shift(run, "ref_logp", late(run, place), int(generator.choice([-1, 1])))
    sometimes_logged(run, generator)
    return at(run, place, "ref_logp")


def shifted_after_observation(run: Run, generator: Generator) -> dict[str, Any]:
    place = since(run, generator)
    shift(run, "ref_logp", late(run, place) & (run.turn > 0), int(generator.choice([-1, 1])))
    sometimes_logged(run, generator)
    return at(run, place, "ref_logp")


def shifted_always(run: Run, generator: Generator) -> dict[str, Any]:
    shift(run, "ref_logp", late(run, 0), int(generator.choice([-1, 1])))
    sometimes_logged(run, generator)
    return at(run, 0, "ref_logp")


def copied(run: Run, where: BoolArray, source: str, target: str) -> None:
    run.tokens[target] = np.where(where, run.tokens[source], run.tokens[target]).astype(np.float32)


def copied_early(run: Run, generator: Generator) -> dict[str, Any]:
    place = since(run, generator, 0.28, 0.38)
    copied(run, ~late(run, place), "policy_logp", "ref_logp")
    sometimes_logged(run, generator)
    grows = bool(run.plan.post_p99[-1] > 2 * run.plan.post_p99[run.count // 2])
    return at(run, place, "ref_logp", held=True, found_allowed=grows)


def grows_in_some(plan: Plan, generator: Generator) -> None:
    """Let tails grow after the copy has ended, in a third of the runs."""
    if generator.random() < 1 / 3:
        grow(plan, generator, log_uniform(generator, 3, 6), (0.6, 0.7))


def copied_late(run: Run, generator: Generator) -> dict[str, Any]:
    place = since(run, generator)
    copied(run, late(run, place), "policy_logp", "ref_logp")
    sometimes_logged(run, generator)
    return at(run, place, "ref_logp")


def old_is_reference(run: Run, generator: Generator) -> dict[str, Any]:
    place = or_always(run, generator)
    copied(run, late(run, place), "ref_logp", "old_logp")
    return at(run, place, "old_logp", nameable="old_logp" in run.plan.columns)


def reference_at(run: Run, factors: FloatArray) -> None:
    """Score the reference at other temperatures, by recorded step."""
    inner = run.token_place[run.sampled]
    scored = chosen_logp(np.asarray(run.reference / factors[inner][:, None], np.float32), run.choice)
    run.tokens["ref_logp"][run.sampled] = np.minimum(scored, 0)


def reference_temperature(run: Run, generator: Generator) -> dict[str, Any]:
    place, factor = since(run, generator), float(generator.choice([0.5, 0.6, 0.7, 1.4, 1.6, 2.0]))
    reference_at(run, np.where(np.arange(run.count) >= place, factor, 1.0))
    sometimes_logged(run, generator)
    return at(run, place, "ref_logp")


def swap_rows(run: Run, column: str, place: int, generator: Generator) -> None:
    """Give each sequence another one's values, of the same step."""
    bounds = np.searchsorted(run.row, np.arange(len(run.place) + 1))
    lengths, other = np.diff(bounds), np.arange(len(run.place))
    for step in range(place, run.count):
        own = np.flatnonzero(run.place == step)
        turned = generator.permutation(len(own))
        other[own[turned]] = own[np.roll(turned, 1)]
    source = bounds[other][run.row] + run.position % np.maximum(1, lengths[other])[run.row]
    run.tokens[column] = run.tokens[column][source]


def rows_swapped(run: Run, generator: Generator) -> dict[str, Any]:
    place = since(run, generator)
    swap_rows(run, "ref_logp", place, generator)
    sometimes_logged(run, generator, 0.15)
    return at(run, place, "ref_logp")


def scaled(run: Run, generator: Generator) -> dict[str, Any]:
    place, column = since(run, generator), str(generator.choice(["ref_logp", "ref_logp", "policy_logp"]))
    run.tokens[column] = np.where(late(run, place), 1.5 * run.tokens[column], run.tokens[column]).astype(np.float32)
    sometimes_logged(run, generator, 0.15)
    return at(run, place, column)


def put(run: Run, column: str, value: float, where: BoolArray) -> None:
    run.tokens[column] = np.where(where, np.float32(value), run.tokens[column])


def floors(run: Run, generator: Generator) -> dict[str, Any]:
    place, column = since(run, generator), str(generator.choice(["ref_logp", "policy_logp"]))
    part = generator.random(len(run.row)) < generator.uniform(0.02, 0.15)
    if generator.random() < 0.5:
        part &= run.turn > 0
    put(run, column, -20.0, late(run, place) & part)
    sometimes_logged(run, generator)
    return at(run, place, column)


def filled(run: Run, generator: Generator) -> dict[str, Any]:
    place, recorded = since(run, generator), sorted(run.plan.columns & {"ref_logp", "policy_logp", "old_logp"})
    column = str(generator.choice(recorded))
    value = float(generator.choice([-7.25, -3.3333, -11.0, -0.5, -1.2345, -5.5]))
    part = generator.random(len(run.row)) < generator.uniform(0.02, 0.15)
    put(run, column, value, late(run, place) & part)
    sometimes_logged(run, generator)
    return at(run, place, column)


# The mask


def garbage(generator: Generator, count: int, nats: float) -> dict[str, Single]:
    """Score tokens that nobody sampled: far from likely, and by two models differently."""
    base = -nats * generator.gamma(2.0, 0.5, count)
    noise = {"policy_logp": 0.0, "old_logp": 0.05, "rollout_logp": 0.05, "ref_logp": 0.25 * nats}
    added = {name: np.minimum(base + sd * generator.normal(size=count), -1e-6) for name, sd in noise.items()}
    added["entropy"] = generator.gamma(2.0, 0.6, count)
    return {name: values.astype(np.float32) for name, values in added.items()}


def padding_marked(run: Run, generator: Generator) -> dict[str, Any]:
    place = since(run, generator)
    last = np.flatnonzero(np.append(np.diff(run.row) != 0, True))
    length = np.bincount(run.row)
    longest = np.zeros(run.count, np.int64)
    np.maximum.at(longest, run.place, length)
    short = np.minimum(longest[run.place] - length, (generator.uniform(0.1, 0.5) * length).astype(np.int64) + 1)
    short[run.place < place] = 0
    after = np.repeat(last, short)
    added = garbage(generator, len(after), generator.uniform(4, 12))
    if generator.random() < 0.25:
        added = {name: np.zeros_like(values) for name, values in added.items()}
    run.insert(after, added, np.full(len(after), PAD), marked=True)
    sometimes_logged(run, generator, 0.5)
    return at(run, place, "model_mask")


def tools_unmasked(run: Run, generator: Generator) -> dict[str, Any]:
    place = since(run, generator)
    run.mask = run.mask | late(run, place)
    sometimes_logged(run, generator, 0.5)
    return at(run, place, "model_mask", nameable=bool({"entropy", "tool_names"} & run.plan.columns))


def ends_of_observations(run: Run, back: int) -> IntArray:
    """Give the last tokens of each observation."""
    outer = ~run.sampled
    same = np.append((np.diff(run.row) == 0) & outer[1:], False)
    last = np.flatnonzero(outer & ~same)
    return np.asarray((last[:, None] - np.arange(back)).ravel())


def template_marked(run: Run, generator: Generator) -> dict[str, Any]:
    place = or_always(run, generator)
    own = ends_of_observations(run, len(HEADER))
    own = own[late(run, place)[own]]
    run.mask[own] = True
    sometimes_logged(run, generator, 0.5)
    return at(run, place, "model_mask", nameable=bool({"entropy", "token_ids"} & run.plan.columns))


def shift_mask(run: Run, where: BoolArray, lag: int) -> None:
    same = np.roll(run.row, lag) == run.row
    run.mask = np.where(where & same, np.roll(run.mask, lag), run.mask)


def mask_off_by_one(run: Run, generator: Generator) -> dict[str, Any]:
    place = or_always(run, generator)
    shift_mask(run, late(run, place), int(generator.choice([-1, 1])))
    sometimes_logged(run, generator, 0.5)
    return at(run, place, "model_mask", nameable="entropy" in run.plan.columns)


# Who is in the records


def heavy_rank(plan: Plan, generator: Generator) -> None:
    """Let one rank's tails be some times the others', all along."""
    plan.ranks = int(generator.choice([2, 4]))
    if plan.groups[0] < plan.ranks:
        plan.length = max(10.0, plan.length * plan.groups[0] / plan.ranks)
        plan.groups = np.full(len(plan.steps), plan.ranks)
    plan.rank_factor = np.ones(plan.ranks)
    plan.rank_factor[generator.integers(plan.ranks)] = generator.uniform(3, 6)
    plan.post_p99 = np.full(len(plan.steps), generator.uniform(1.0, 4.0))
    some_tools(plan)
    plan.step_sd = min(plan.step_sd, 0.1)
    want(plan, generator, "rank")


def rank_missing_early(run: Run, generator: Generator) -> dict[str, Any]:
    place, heavy = since(run, generator), int(run.plan.rank_factor.argmax())
    run.keep_rows((run.place >= place) | (run.rank != heavy))
    return at(run, place, f"rank {heavy}", held=True, nameable="rank" in run.plan.columns)


def worst_fifth(run: Run, generator: Generator) -> dict[str, Any]:
    place = since(run, generator, 0.5, 0.65)
    r = np.abs(run.tokens["policy_logp"] - run.tokens["ref_logp"])
    badness = np.bincount(run.row[run.sampled], r[run.sampled]) / np.bincount(run.row[run.sampled])
    if generator.random() < 0.3:
        badness = -run.reward + 0.1 * badness
    kept = run.place < place
    for step in range(place, run.count):
        own = np.flatnonzero(run.place == step)
        kept[own[np.argsort(badness[own])[-max(2, len(own) // 5) :]]] = True
    run.keep_rows(kept)
    return at(run, place, "rows", nameable=run.plan.kl_logged)


# The sampler, the reference


def hidden_temperature(plan: Plan, generator: Generator) -> None:
    """Sample at a temperature that nothing tells: what is recorded is scored at 1."""
    start = 0 if generator.random() < 0.4 else int(generator.uniform(EARLIEST, LATEST) * len(plan.steps))
    plan.temperature = np.where(np.arange(len(plan.steps)) >= start, generator.choice([0.6, 0.7, 1.4, 1.5]), 1.0)
    plan.told_temperature, plan.logp_kind = (1.0 if generator.random() < 0.6 else None), None
    want(plan, generator, "entropy")


def sampler_temperature(run: Run, _: Generator) -> dict[str, Any]:
    place = int(np.argmax(run.plan.temperature != 1))
    return at(run, place, "policy_logp", nameable="entropy" in run.plan.columns)


def reference_swapped(run: Run, generator: Generator) -> dict[str, Any]:
    place = since(run, generator)
    inner = run.token_place[run.sampled] >= place
    before = _p99(run, run.sampled & late(run, place))
    push = generator.standard_normal(run.reference.shape, dtype=np.float32)
    push *= np.exp(0.7 * generator.normal(size=len(push))).astype(np.float32)[:, None]
    for level in np.geomspace(0.1, 6, 18):
        swapped = np.where(inner[:, None], run.reference - np.float32(level) * push, run.reference)
        run.tokens["ref_logp"][run.sampled] = np.minimum(chosen_logp(swapped, run.choice), 0)
        if _p99(run, run.sampled & late(run, place)) > max(3 * before, 1.2):
            break
    run.reference, run.share_log = swapped, True
    return at(run, place, "ref_logp", links=REFERENCE)


def _p99(run: Run, where: BoolArray) -> float:
    r = run.tokens["policy_logp"][where] - run.tokens["ref_logp"][where]
    return float(np.quantile(np.abs(r), 0.99))


def reanchored(plan: Plan, generator: Generator) -> None:
    """Let the drift begin anew where the reference became the policy of that step."""
    count = len(plan.steps)
    turn = int(generator.uniform(EARLIEST, LATEST) * count)
    course = np.sqrt((np.arange(count) + 1.0) / count)
    course[turn:] = np.maximum(np.sqrt((np.arange(count - turn) + 0.0) / count), 0.003)
    size = log_uniform(generator, 0.5, 3.0) / course.max()
    plan.text_p99, plan.post_p99 = course * size, course * size * generator.uniform(0.7, 1.4)


def reference_reanchored(run: Run, _: Generator) -> dict[str, Any]:
    place = int(np.argmin(np.diff(run.plan.post_p99))) + 1
    return at(run, place, "ref_logp", links=REFERENCE, severity="low")


# Sound


def sound(run: Run, _: Generator) -> dict[str, Any]:
    """Nothing is planted; a tail that is high all along may be called high."""
    high = max(_p99(run, run.sampled & (run.turn > 0)), _p99(run, run.sampled & (run.turn == 0))) > 0.6
    return {"allowed": ("tails-high",) if high else ()}


def fewer_tools(run: Run, generator: Generator) -> dict[str, Any]:
    """An agent that gives its tools up may be told so; its tails are what they were."""
    told = sound(run, generator)
    return told | {"allowed": (*told["allowed"], "tool-use-vanished")}


def higher_in_some(plan: Plan, generator: Generator) -> None:
    """Let a third of sound runs have large tails, level all along, so that a growth seen would be material."""
    if generator.random() < 1 / 3:
        count = len(plan.steps)  # level from the first step on: a tail that comes out of nothing does grow
        plan.text_p99 = np.full(count, plan.text_p99[-1] * generator.uniform(2, 6))
        plan.post_p99 = np.full(count, plan.post_p99[-1] * generator.uniform(2, 6))


def tool_use(low: float, high: float, *, by_group: bool) -> Prepare:
    def prepare(plan: Plan, generator: Generator) -> None:
        count, width = len(plan.steps), generator.uniform(0.05, 0.3)
        u = np.linspace(0, 1, count)
        a, b = (float(np.clip(end * np.exp(generator.normal(0, 0.7)), 0.01, 0.99)) for end in (low, high))
        curve = u if generator.random() < 0.5 else 1 / (1 + np.exp(-(u - generator.uniform(0.3, 0.7)) / width))
        curve = (curve - curve[0]) / (curve[-1] - curve[0])
        plan.tool_share, plan.tools_by_group = a + (b - a) * curve, by_group
        level = generator.uniform(0.7, 2.5) if generator.random() < 0.6 else 0.3
        plan.post_p99 = np.full(count, level)
        plan.text_p99 = np.full(count, level * generator.uniform(0.3, 1.1))

    return prepare


def new_environment(plan: Plan, generator: Generator) -> None:
    count = len(plan.steps)
    start = int(generator.uniform(EARLIEST, LATEST) * count)
    old = int(generator.integers(1, 3))
    plan.envs = np.where(np.arange(count) >= start, old + 1, old)
    plan.env_factor[old], plan.env_open[old] = generator.uniform(1.5, 2.5), generator.uniform(0.4, 0.9)
    plan.columns |= {"env"}
    higher_in_some(plan, generator)


def batch_change(plan: Plan, generator: Generator) -> None:
    start = int(generator.uniform(EARLIEST, LATEST) * len(plan.steps))
    later = np.arange(len(plan.steps)) >= start
    plan.groups = plan.groups * np.where(later == (generator.random() < 0.5), 2, 1)
    plan.length = max(8.0, plan.length * 2 / 3)
    higher_in_some(plan, generator)


def rate_restarts(plan: Plan, generator: Generator) -> None:
    """Restart a cosine of the learning rate some times: tails climb or jump with it and come back."""
    count, cycles = len(plan.steps), int(generator.integers(2, 6))
    phase = (np.arange(count) * cycles / count) % 1.0
    plan.rate = float(generator.choice([1e-5, 5e-5])) * (0.05 + 0.95 * 0.5 * (1 + np.cos(np.pi * phase)))
    wave = phase if generator.random() < 0.5 else 1 - phase
    size = generator.uniform(1.3, 2.2) ** (wave - 0.5)
    plan.text_p99, plan.post_p99 = plan.text_p99[-1] * size, plan.post_p99[-1] * size
    if generator.random() < 0.5:
        plan.text_p99, plan.post_p99 = 3 * plan.text_p99, 3 * plan.post_p99


def told_sampling(temperature: float, top_p: float = 1.0) -> Prepare:
    def prepare(plan: Plan, generator: Generator) -> None:
        plan.temperature = np.full(len(plan.steps), temperature)
        plan.told_temperature, plan.top_p = temperature, top_p
        plan.logp_kind = None
        if temperature != 1 and generator.random() < 0.6:
            plan.scored_at = plan.temperature
            plan.logp_kind = "processed" if generator.random() < 0.5 else None
        elif generator.random() < 0.5:
            plan.logp_kind = "raw"
        plan.columns |= {"entropy"}

    return prepare


def learning_drift(plan: Plan, generator: Generator) -> None:
    """Let both tails rise together from near nothing to a level that is of no consequence."""
    u = (np.arange(len(plan.steps)) + 1.0) / len(plan.steps)
    course = u ** generator.uniform(0.3, 1.0)
    plan.text_p99, plan.post_p99 = (generator.uniform(0.25, 0.6) * course for _ in range(2))


# Growth


def grow(plan: Plan, generator: Generator, ratio: float, start: tuple[float, float] = (0.25, 0.55)) -> None:
    """Let post-tool tails grow by a factor to a level that matters, at once or over a part of the run."""
    u, begin = np.linspace(0, 1, len(plan.steps)), generator.uniform(*start)
    width = 0.0 if generator.random() < 0.4 else generator.uniform(0.03, 0.15)
    course = (u >= begin).astype(float) if width == 0 else np.clip((u - begin) / width, 0, 1)
    top = log_uniform(generator, 1.4, 6.0)
    plan.post_p99 = top / ratio * ratio**course
    plan.text_p99 = np.full(len(u), log_uniform(generator, 0.1, min(1.0, top / 2)))


def enough(plan: Plan, tokens: float) -> None:
    """Make the run long enough for the growth to be told: at least so many tokens, many of them after tools."""
    some_tools(plan)
    plan.length = min(200.0, max(plan.length, tokens / float(plan.groups.sum() * plan.group_size)))


def growth(low: float, high: float, *, tokens: float = 25_000, moved: str = "all", noise: float = 1.0) -> Prepare:
    def prepare(plan: Plan, generator: Generator) -> None:
        grow(plan, generator, log_uniform(generator, low, high), (0.36, 0.55))
        plan.step_sd = min(plan.step_sd, noise)
        enough(plan, tokens)
        plan.moved = str(generator.choice(plan.tool_names)) if moved == "tool" else moved
        if moved == "tool":
            plan.columns |= {"tool_names"}
        if moved == "third":
            plan.observations, plan.tool_share = 5, np.maximum(plan.tool_share, 0.8)
            plan.length = max(plan.length, 30.0)

    return prepare


def _begins(run: Run) -> int:
    return int(np.argmax(np.diff(run.plan.post_p99) > 1e-9)) + 1


def ratios(run: Run) -> tuple[float, float]:
    """Give how many times its early third the 99th percentile of the late third is: text, and after tools."""
    r = np.abs(run.tokens["policy_logp"] - run.tokens["ref_logp"])
    third, out = run.count / 3, []
    for own in (run.sampled & (run.turn == 0), run.sampled & (run.turn > 0)):
        early, end = own & (run.token_place < third), own & (run.token_place >= 2 * third)
        out.append(float(np.quantile(r[end], 0.99) / np.quantile(r[early], 0.99)))
    return out[0], out[1]


def grown(run: Run, _: Generator) -> dict[str, Any]:
    """The signature is wanted where what was made shows it: drawn growth may be hidden by a rare tool or by noise."""
    text, post = ratios(run)
    level = _p99(run, run.sampled & (run.turn > 0) & (run.token_place >= 2 * run.count / 3))
    wanted = post > 1.5 and post > 1.3 * text and level > LN2
    return at(run, _begins(run), "post_tool", found_allowed=True, found_wanted=wanted, ratio=(text, post))


def both_grow(plan: Plan, generator: Generator) -> None:
    """Let both tails grow by the same factor, each from its own level."""
    grow(plan, generator, log_uniform(generator, 1.8, 5.0))
    plan.text_p99 = plan.post_p99 * log_uniform(generator, 0.2, 1.5)
    enough(plan, 25_000)


def grown_alike(run: Run, _: Generator) -> dict[str, Any]:
    text, post = ratios(run)
    return at(run, _begins(run), "both slices", found_allowed=False, ratio=(text, post), links=("policy_update",))


def recording(*columns: str) -> Prepare:
    """Record these columns in most runs, and let most sequences call tools."""

    def prepare(plan: Plan, generator: Generator) -> None:
        some_tools(plan)
        if columns:
            want(plan, generator, *columns)

    return prepare


KINDS: Final = (
    Kind("shifted since", "faulty", nothing, shifted_everywhere),
    Kind("shifted after observation since", "faulty", recording(), shifted_after_observation),
    Kind("shifted always", "faulty", nothing, shifted_always),
    Kind("padding marked since", "faulty", recording("entropy", "token_ids"), padding_marked),
    Kind("reference copied until", "faulty", grows_in_some, copied_early),
    Kind("reference copied since", "faulty", nothing, copied_late),
    Kind("heavy rank missing until", "faulty", heavy_rank, rank_missing_early),
    Kind("worst fifth dumped since", "faulty", nothing, worst_fifth),
    Kind("reference temperature since", "faulty", nothing, reference_temperature),
    Kind("floors since", "faulty", recording(), floors),
    Kind("tools unmasked since", "faulty", recording("tool_names", "entropy"), tools_unmasked),
    Kind("template marked", "faulty", recording("entropy", "token_ids"), template_marked),
    Kind("mask off by one", "faulty", recording("entropy"), mask_off_by_one),
    Kind("rows swapped since", "faulty", nothing, rows_swapped),
    Kind("scaled since", "faulty", nothing, scaled),
    Kind("old is reference", "faulty", recording("old_logp"), old_is_reference),
    Kind("filled since", "faulty", nothing, filled),
    Kind("sampler temperature hidden", "faulty", hidden_temperature, sampler_temperature),
    Kind("reference swapped since", "faulty", nothing, reference_swapped),
    Kind("reference re-anchored", "faulty", reanchored, reference_reanchored),
    Kind("sound", "sound", higher_in_some, sound),
    Kind("tools rise", "sound", tool_use(0.05, 0.95, by_group=False), sound),
    Kind("tools fall", "sound", tool_use(0.95, 0.05, by_group=False), fewer_tools),
    Kind("tools rise by group", "sound", tool_use(0.05, 0.95, by_group=True), sound),
    Kind("tools fall by group", "sound", tool_use(0.95, 0.05, by_group=True), fewer_tools),
    Kind("harder environment", "sound", new_environment, sound),
    Kind("batch size", "sound", batch_change, sound),
    Kind("rate restarts", "sound", rate_restarts, sound),
    Kind("temperature 0.7", "sound", told_sampling(0.7), sound),
    Kind("temperature 1.2", "sound", told_sampling(1.2), sound),
    Kind("top_p 0.9", "sound", told_sampling(1.0, 0.9), sound),
    Kind("learning drift", "sound", learning_drift, sound),
    Kind("growth 2.5 to 6", "growth", growth(2.7, 6.0), grown),
    Kind("growth 1.6", "growth", growth(1.6, 1.8, tokens=60_000, noise=0.06), grown),
    Kind("growth after one tool", "growth", growth(4.0, 8.0, moved="tool"), grown),
    Kind("growth after third observation", "growth", growth(4.0, 8.0, moved="third", tokens=50_000), grown),
    Kind("both grow alike", "growth", both_grow, grown_alike),
)
