"""The turn at which failing episodes part from succeeding ones of the same prompt: by group, and over all of them.

What: among attempts at one prompt, what was done at one turn tells those that fail from those that succeed, beyond what
chance gives to the best of all turns and differences. Where that is the same thing in many groups, such as a call of
one tool that fails, it is a finding; else the groups are shown.
Why it matters: it is where training can tell right from wrong, and where a person should read first.
What it is not: a cause for certain. An episode that was lost before may only show it there.
"""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding
from ptt.diagnostics.traces.interface import Judged, graded, not_judged
from ptt.diagnostics.traces.model import Example, Parting
from ptt.diagnostics.traces.parting import (
    ANY,
    CALLS,
    ENDS,
    FAILS,
    GETS,
    MESSAGE,
    P_LIMIT,
    SAYS,
    Partings,
    find_partings,
)
from ptt.diagnostics.traces.tables import TraceTables
from ptt.diagnostics.traces.trace_set import STEP, scan_table
from ptt.diagnostics.wording import pct, sig

MIN_DIFFERENCE: Final = 0.2  # of success within prompts: less decides little
MIN_DECIDES: Final = 3  # groups in which it is the turn that decides
MIN_REACH: Final = 0.1  # of the episodes that do it, where some do: else it is an accident
BROAD_REACH: Final = 0.1  # of all episodes: a failure that fewer meet costs the set little, and is a note
SHOWN: Final = 3  # groups that are shown side by side
NAME_CHARS: Final = 60  # of a tool's name in a sentence
LABELS_ENABLE: Final = (
    "write with each episode whether it succeeded: a `success` or `resolved` flag, a scorer's verdict"
)
GROUPS_ENABLE: Final = "sample several episodes of each prompt, eight or more, and write the name of its task or group"
SUCCEED: Final = "succeed"
PAID: Final = "earn more than the middle of their group"
"""What is said of the better episodes: where none is labelled, attempts are told apart by what they were paid."""
COLUMNS: Final = ("group", "turn", "success_id", "failure_id", "lift", "episodes", "why")


def judge_partings(tables: TraceTables) -> Judged:
    """Locate the turn that decides, group by group, and say what it has in common over the groups."""
    mixed, better = mixed_groups(tables), SUCCEED
    if mixed.is_empty() and not tables.traces.labelled:
        mixed, better = mixed_groups(tables, by_reward=True), PAID
    if mixed.is_empty():
        return _without_groups(tables)
    found = find_partings(mixed, scan_table(tables.store, "turns"), scan_table(tables.store, "tool_calls"))
    if not found.found:
        return not_judged(
            f"among {found.episodes:,} episodes of {found.groups:,} prompts of which some {better} and some do not, "
            f"no turn tells which beyond chance (p = {sig(found.p_value)})",
            missing=("more episodes of each prompt",),
            enable=GROUPS_ENABLE,
        )
    rows = found.located.filter(pl.col("success_id").is_not_null())
    shown = [dict(row, why=why_of(row, better)) for row in rows.to_dicts()]
    table = pl.DataFrame(shown, schema_overrides={"why": pl.String}) if shown else rows.with_columns(why=pl.lit(""))
    reason = f"the turn that decides is known in {found.located.height} of {found.groups} prompt groups"
    return Judged(
        verdict=graded(*_findings(found, better, mixed.height / tables.episodes.height), reason=reason),
        tables={"partings": table.select(COLUMNS)},
        partings=tuple(_parting(row, tables, better) for row in shown[:SHOWN]),
    )


def mixed_groups(tables: TraceTables, *, by_reward: bool = False) -> pl.DataFrame:
    """Return trajectory_id, group and success of the episodes of prompt groups with both outcomes.

    `by_reward`: success is a reward above the middle between the least and the greatest of the group.
    Attempts at one prompt in different steps of training are not compared: the policy is another.
    """
    name = pl.coalesce("group_id", "task", pl.format("prompt {}", pl.col("group")))
    key = ["group", "step"] if tables.traces.order == STEP else ["group"]
    label = pl.format("{} at step {}", name, "step") if tables.traces.order == STEP else name
    episodes = tables.episodes.filter(pl.col("group").is_not_null())
    if by_reward:
        reward = pl.when(pl.col("reward").is_finite()).then("reward")
        low, high = reward.min().over(key), reward.max().over(key)
        episodes = episodes.with_columns(pl.when(low < high).then(reward > (low + high) / 2).alias("success"))
    known = episodes.filter(pl.col("success").is_not_null())
    mixed = known.filter(pl.col("success").n_unique().over(key) == 2)
    names = mixed.select(pl.struct(key).alias("key"), label.alias("label"), "trajectory_id", "success")
    unique = names.select("key", "label").unique(maintain_order=True)
    unique = unique.with_columns(  # one name may stand for several prompts
        pl.when(pl.int_range(pl.len()).over("label") == 0)
        .then("label")
        .otherwise(pl.format("{} ({})", "label", pl.int_range(pl.len()).over("label") + 1))
        .alias("group")
    ).unique("key", keep="first", maintain_order=True)
    return names.join(unique.select("key", "group"), on="key", maintain_order="left").drop("key", "label")


def _without_groups(tables: TraceTables) -> Judged:
    if not tables.traces.labelled:
        return not_judged(
            "no episode is labelled as success or failure, nor does any prompt pay its attempts differently",
            missing=("success",),
            enable=LABELS_ENABLE,
        )
    return not_judged(
        "no prompt has both an episode that succeeds and one that fails",
        missing=("several episodes of a prompt",),
        enable=GROUPS_ENABLE,
    )


def why_of(row: dict[str, Any], better: str = SUCCEED) -> str:
    """Say what tells the turn."""
    rest, others = row["episodes"] - row["side"], row["successes"] - row["side_successes"]
    did = did_what(row["kind"], row["names"], row["turn"])
    return f"{row['side_successes']} of the {row['side']} episodes {did} {better}, {others} of the {rest} others"


def did_what(kind: str, names: str, turn: int | None) -> str:
    """Say what some episodes did, as a clause behind "episodes"; turns are numbered from 1."""
    at = "" if turn is None else f" at turn {turn + 1}"
    name = names if len(names) <= NAME_CHARS else names[: NAME_CHARS - 1] + "…"
    if kind == FAILS:
        return f"in which a call{'' if names == ANY else ' of ' + name} fails{at}"
    if kind == GETS:
        return f"in which {name} returns one and the same{at}"
    if kind == ENDS:
        return f"that have ended before turn {(turn or 0) + 1}"
    if names == MESSAGE:
        return f"that write {'the same message' if kind == SAYS else 'a message and call nothing'}{at}"
    return f"that call {name}{'' if kind == CALLS else ' with the same arguments'}{at}"


def _findings(found: Partings, better: str, share: float) -> list[Finding]:
    """Return what decides in many groups: first a call that fails, then what the agent does.

    `share`: of all episodes, those in groups with both outcomes.
    """
    told = found.habits.filter(
        (pl.col("p_value") <= P_LIMIT)
        & (pl.col("difference").abs() >= MIN_DIFFERENCE)
        & (pl.col("decides") >= MIN_DECIDES)
        & (pl.col("side") >= MIN_REACH * pl.col("episodes"))
    )
    failing = told.filter((pl.col("kind") == FAILS) & (pl.col("difference") < 0)).head(1)
    choices = told.filter(pl.col("kind") != FAILS).head(1)
    return [
        _finding(row, found, better, share * row["side"] / found.episodes)
        for row in (*failing.to_dicts(), *choices.to_dicts())
    ]


def _finding(row: dict[str, Any], found: Partings, better: str, reach: float) -> Finding:
    fails = row["kind"] == FAILS
    severity = Severity.MEDIUM if better == SUCCEED and reach >= BROAD_REACH else Severity.LOW
    severity = severity if fails else Severity.INFO
    did = did_what(row["kind"], row["names"], row["turn"])
    less = "less" if row["difference"] < 0 else "more"
    same = found.located.filter((pl.col("kind") == row["kind"]) & (pl.col("names") == row["names"]))
    shown = same["failure_id"].drop_nulls().head(SHOWN).to_list()
    tool = row["names"] if row["names"] not in {ANY, MESSAGE} else None
    return Finding(
        severity=severity,
        link=Link.ENVIRONMENT if fails else None,
        claim=f"Episodes {did} {better} {less} often than others of the same prompt: "
        f"{pct(row['with_rate'])} against {pct(row['without_rate'])} in {row['groups']} prompt groups",
        observed=row["difference"],
        limit=-MIN_DIFFERENCE if row["difference"] < 0 else MIN_DIFFERENCE,
        unit="difference of success" if better == SUCCEED else "difference of shares",
        slice=f"tool:{tool}" if tool is not None else None,
        evidence={
            "with": row["with_rate"], "without": row["without_rate"], "with_it": row["side"], "reach": reach,
            "episodes": ", ".join(shown),
            "groups": row["groups"], "p_value": row["p_value"], "decides_in_groups": row["decides"],
            "located_groups": found.located.height, "turn": None if row["turn"] is None else row["turn"] + 1,
        },
        causes=(
            ("the agent cannot go on without the result", "the agent goes on as if the call had not failed")
            if fails
            else ("what is done there settles the outcome", "an episode that is lost already shows it there")
        ),
        confirm=("read the pairs of episodes side by side from that turn on",),
        next=(
            ("mend the tool, or show the agent how to recover: step-level pairs from these turns",)
            if fails
            else ("train on pairs that share all turns before this one: ptt traces exports them",)
        ),
    )  # fmt: skip


def _parting(row: dict[str, Any], tables: TraceTables, better: str) -> Parting:
    titles = ("succeeds", "fails") if better == SUCCEED else ("earns more", "earns less")
    return Parting(
        group=row["group"],
        turn=row["turn"],
        success=example_of(tables, row["success_id"], title=titles[0]),
        failure=example_of(tables, row["failure_id"], title=titles[1]),
        why=row["why"],
    )


def example_of(tables: TraceTables, trajectory_id: str, *, finding: str = "", title: str = "") -> Example:
    """Return an episode as an example whose messages are yet to be read."""
    (row,) = tables.episodes.filter(pl.col("trajectory_id") == trajectory_id).head(1).to_dicts()
    outcome = {True: "success", False: "failure", None: "unknown"}[row["success"]]
    return Example(
        trajectory_id=trajectory_id,
        finding=finding,
        title=title,
        source=row["source"],
        outcome=outcome,
        reward=row["reward"],
        messages=(),
    )
