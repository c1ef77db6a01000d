"""How well the turn that decides is found: groups of episodes with a planted turn, and without any.

`python -m benchmarks.parting_turns` prints exact hits and hits within one turn, beside those of chance.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from ptt.diagnostics.schema import TABLES
from ptt.diagnostics.statistics.strata import SURE
from ptt.diagnostics.traces.partings import find_partings

TOOLS = ("search", "open_page", "run_tests", "edit_file", "lookup")


@dataclass(frozen=True, kw_only=True)
class World:
    """How episodes come about."""

    groups: int = 60
    sizes: tuple[int, int] = (4, 16)
    depths: tuple[int, int] = (5, 14)  # turns
    decides: str = "arguments"  # arguments | tool | failure | result | message | nothing
    good: float = 0.95  # success where the right thing was done
    bad: float = 0.05
    noise: float = 0.1  # of turns at which an episode does something of its own
    distractors: float = 0.3  # of turns at which it does one of two things, whatever comes of it
    follows: bool = True  # the turns after a wrong one are others
    longer: float = 0.0  # of episodes that try something once more before the turn that decides
    leaks: bool = False  # the last turn tells the outcome
    shared: bool = False  # the turn that decides is the same in all groups
    wild: bool = False  # every episode calls tools of its own choice, each time with new arguments


@dataclass(frozen=True)
class Made:
    """Tables, and the turn that decides by group."""

    episodes: pl.DataFrame
    turns: pl.DataFrame
    calls: pl.DataFrame
    truth: dict[str, int]
    depth: dict[str, int]


def make(world: World, seed: int) -> Made:
    """Make the tables of a set of traces."""
    rng = np.random.default_rng(seed)
    rows: dict[str, list[dict[str, Any]]] = {"trajectories": [], "turns": [], "tool_calls": []}
    truth, depths = {}, {}
    for group in range(world.groups):
        depth = int(rng.integers(world.depths[0], world.depths[1] + 1))
        decides = int(rng.integers(0, depth - 1)) if not world.shared else min(3, depth - 2)
        truth[f"g{group}"], depths[f"g{group}"] = decides, depth
        plan = [str(rng.choice(TOOLS)) for _ in range(depth)]
        branching = rng.random(depth) < world.distractors
        size = int(rng.integers(world.sizes[0], world.sizes[1] + 1))
        for place in range(size):
            _episode(world, rng, rows, f"g{group}", place, plan, branching, decides)
    tables = {name: pl.DataFrame(found, schema=TABLES[name], orient="row") for name, found in rows.items()}
    return Made(tables["trajectories"], tables["turns"], tables["tool_calls"], truth, depths)


def _episode(
    world: World, rng: np.random.Generator, rows: dict[str, list[dict[str, Any]]], group: str, place: int,
    plan: list[str], branching: Any, decides: int,
) -> None:  # fmt: skip
    name = f"{group}-{place}"
    wrong = bool(rng.random() < 0.5)
    success = bool(rng.random() < (0.5 if world.decides == "nothing" else world.bad if wrong else world.good))
    shown = wrong and world.decides != "nothing"
    extra = int(rng.integers(0, decides + 1)) if rng.random() < world.longer else -1
    acts: list[tuple[str, str, bool]] = []
    for turn, tool in enumerate(plan):
        if turn == extra:
            acts.append((tool, f"again {rng.integers(3)}", False))
        what, failed = f"step {turn}", False
        if world.wild:
            tool, what, failed = str(rng.choice(TOOLS)), f"own {rng.integers(1 << 30)}", bool(rng.random() < 0.05)
        if turn == decides:
            if shown and world.decides == "arguments":
                what = "wrong"
            elif shown and world.decides == "tool":
                tool = "give_up"
            elif shown and world.decides in {"failure", "result"}:
                failed = True
            elif shown and world.decides == "message":
                tool = ""
        else:
            if branching[turn] and not world.wild:
                what += f" way {rng.integers(2)}"
            if rng.random() < world.noise:
                what = f"own {rng.integers(1 << 30)}"
            if turn > decides and shown and world.follows:
                what += " after it"
        if world.leaks and turn == len(plan) - 1:
            what = "done" if success else "sorry"
        acts.append((tool, what, failed))
    rows["trajectories"].append(
        {"trajectory_id": name, "group_id": group, "success": success, "split": "unknown", "n_turns": len(acts)}
    )
    for number, (tool, what, failed) in enumerate(acts):
        at = 2 * number + 1
        rows["turns"].append(
            {"trajectory_id": name, "turn_idx": at, "role": "assistant", "text_len": 5, "text_hash": hash_of(what)}
        )
        if tool:
            rows["tool_calls"].append(
                {"trajectory_id": name, "turn_idx": at, "call_idx": number, "name": tool,
                 "ok": world.decides == "result" or not failed,
                 "result_hash": hash_of("no row" if failed else f"{name} {number}"),
                 "ok_source": "flag", "args_json": f'{{"query": "{what}"}}'}
            )  # fmt: skip


def hash_of(text: str) -> int:
    """Return a hash that is the same in every process."""
    return int.from_bytes(text.encode()[-8:].rjust(8, b"\0"), "little") & ((1 << 63) - 1)


WORLDS = {
    "wrong arguments": World(),
    "wrong tool": World(decides="tool"),
    "failed call": World(decides="failure"),
    "an error that is not marked": World(decides="result"),
    "message instead of a call": World(decides="message"),
    "same path afterwards": World(follows=False),
    "noise 0.3": World(noise=0.3),
    "retries shift the turns": World(longer=0.4),
    "last turn tells": World(leaks=True),
    "weaker: 0.8 against 0.2": World(good=0.8, bad=0.2),
    "weaker, last turn tells": World(good=0.8, bad=0.2, leaks=True),
    "groups of four": World(sizes=(4, 4)),
    "groups of sixteen": World(sizes=(16, 16)),
    "deep: 20 to 30 turns": World(depths=(20, 30)),
    "200 groups": World(groups=200),
    "20 groups": World(groups=20),
    "every path its own, a call fails": World(wild=True, decides="failure", follows=False),
    "every path its own, another tool": World(wild=True, decides="tool", follows=False),
    "one turn for all groups": World(shared=True, good=0.8, bad=0.2),
    "nothing decides, every path its own": World(wild=True, decides="nothing"),
    "nothing decides": World(decides="nothing"),
}


@dataclass(frozen=True, kw_only=True)
class Hits:
    """Shares of the groups with both outcomes whose turn was found, and what guessing a turn would find."""

    groups: int
    exact: float
    within_one: float
    chance: float
    chance_within_one: float
    sure: float  # groups whose turn is told
    sure_exact: float
    sure_within_one: float
    p_values: tuple[float, ...]
    seconds: float


def measure(world: World, seeds: Iterable[int]) -> Hits:
    """Locate the turns of worlds of these seeds, and count."""
    rows: list[tuple[int, int, int, bool]] = []  # found, true, turns to guess among, told
    p_values, seconds = [], 0.0
    for seed in seeds:
        made = make(world, seed)
        mixed = made.episodes.select("trajectory_id", "success", group="group_id")
        mixed = mixed.filter(pl.col("success").n_unique().over("group") == 2)
        began = time.perf_counter()
        found = find_partings(mixed, made.turns.lazy(), made.calls.lazy())
        seconds += time.perf_counter() - began
        p_values.append(found.p_value)
        for group, turn, probability in found.turns.select("group", "turn", "probability").iter_rows():
            rows.append((turn, made.truth[group], made.depth[group] - 1, probability >= SURE))
    turn, truth, places, told = (np.array(column) for column in zip(*rows, strict=True))
    near = np.minimum(truth, 1) + 1 + (truth < places - 1)
    hit, close = turn == truth, np.abs(turn - truth) <= 1
    return Hits(
        groups=len(turn),
        exact=float(hit.mean()),
        within_one=float(close.mean()),
        chance=float((1 / places).mean()),
        chance_within_one=float((near / places).mean()),
        sure=float(told.mean()),
        sure_exact=float(hit[told].mean()) if told.any() else math.nan,
        sure_within_one=float(close[told].mean()) if told.any() else math.nan,
        p_values=tuple(p_values),
        seconds=seconds,
    )


def main() -> None:
    """Print the table."""
    print("world | groups | exact | within one | chance | of those told: share, exact, within one | p")
    for name, world in WORLDS.items():
        hits = measure(world, range(3))
        print(
            f"{name} | {hits.groups} | {hits.exact:.2f} | {hits.within_one:.2f} | {hits.chance:.2f}, "
            f"{hits.chance_within_one:.2f} | {hits.sure:.2f}, {hits.sure_exact:.2f}, {hits.sure_within_one:.2f} | "
            + ", ".join(f"{p:.2g}" for p in hits.p_values)
        )


if __name__ == "__main__":
    main()
