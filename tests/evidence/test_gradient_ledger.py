"""What an update rests on, in made runs whose tokens are weighed once more by loops."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl
import pytest
from builders import Story, hump, rising, sequences_of, steady, write_recorder_run
from html_structure import page_with

from ptt import Diagnosis, compare, diagnose
from ptt.diagnostics.model import Ledger
from ptt.reports.run.findings_json import findings_json

STEPS, GROUP, EPSILON = 45, 4, 0.2
STORY = Story(steps=STEPS, sequences=8, head=12, observation=5, tail=20, post=rising(0.1, 2.5), seed=4)
TOOLS = ("sql", "search")
SCALED = {"size": "share", "gone": "taken"}  # so that each step's sizes add up to 1; without any advantage, to 0
SPREAD = 3.0  # by which norms of scores are off
Row = Mapping[str, Any]


def rows_of(story: Story = STORY) -> pl.DataFrame:
    """Make a run whose post-tool tail grows: advantages, old logprobs, two tools, every fifth call failed."""
    generator = np.random.default_rng(9)
    frame = sequences_of(story)
    rewards = generator.integers(0, 2, frame.height).astype(float)
    groups = [f"{row['step']}-{number // GROUP}" for number, row in enumerate(frame.iter_rows(named=True))]
    frame = frame.with_columns(
        reward=pl.Series(rewards), group_id=pl.Series(groups), sample_id=pl.Series(map(str, range(frame.height)))
    )
    advantages = frame.select(pl.col("reward") - pl.col("reward").mean().over("group_id")).to_series()
    called = [not all(mask) for mask in frame["model_mask"].to_list()]
    old = [
        np.minimum(np.array(policy) + 0.15 * generator.normal(size=len(policy)), -1e-4)
        for policy in frame["policy_logp"].to_list()
    ]
    return frame.with_columns(
        advantage=advantages,
        old_logp=pl.Series([one.tolist() for one in old], dtype=pl.List(pl.Float32)),
        tool_names=pl.Series([[TOOLS[at % 2]] if has else [] for at, has in enumerate(called)]),
        tool_failed=pl.Series([[at % 5 == 0] if has else [] for at, has in enumerate(called)]),
    )


def write_run(folder: Path, frame: pl.DataFrame, *, after_tools: float = 1.0, without: Sequence[str] = ()) -> Path:
    """Write a run with the gradient norms that orthogonal scores give, longer by a factor after tools."""
    made = pl.DataFrame(list(weighed(frame, list(range(1, frame["step"].n_unique() + 1)))))
    longer = pl.when(pl.col("tool") == "none").then(1.0).otherwise(after_tools)
    squares = made.group_by("step").agg(((pl.col("size") * longer) ** 2).sum().alias("square")).sort("step")
    norms = squares["square"].sqrt().to_list()
    return write_recorder_run(folder, frame.drop(without), metrics={"grad_norm": norms})


@cache
def judged() -> tuple[Diagnosis, pl.DataFrame]:
    """Judge the run once for all tests."""
    frame = rows_of()
    with TemporaryDirectory() as folder:
        return diagnose(write_run(Path(folder), frame)), frame


def ledger_of(diagnosis: Diagnosis) -> Ledger:
    assert diagnosis.ledger is not None
    assert not diagnosis.ledger.reason
    return diagnosis.ledger


def weighed(frame: pl.DataFrame, steps: list[int]) -> Iterator[dict[str, Any]]:
    """Weigh every sampled token of some steps under PPO's loss, a mean over the step's tokens."""
    for step in steps:
        rows = frame.filter(step=step).to_dicts()
        count = sum(sum(row["model_mask"]) for row in rows)
        for row in rows:
            last = None
            for at, own in enumerate(row["model_mask"]):
                if not own:
                    last = at
                    continue
                rho = math.exp(row["policy_logp"][at] - row["old_logp"][at])
                advantage = row["advantage"]
                clipped = (advantage > 0 and rho > 1 + EPSILON) or (advantage < 0 and rho < 1 - EPSILON)
                size = abs(advantage) * rho / count * (1 - math.exp(row["policy_logp"][at]))
                yield {
                    "step": step, "sample": row["sample_id"], "size": 0.0 if clipped else size, "gone": clipped * size,
                    "tool": "none" if last is None else row["tool_names"][0],
                    "far": abs(row["policy_logp"][at] - row["ref_logp"][at]) > 2, "sign": math.copysign(1, advantage),
                    "failed": last is not None and row["tool_failed"][0], "rho": rho,
                    "old": row["policy_logp"][at] - row["old_logp"][at],
                    "ref": row["policy_logp"][at] - row["ref_logp"][at],
                }  # fmt: skip


@cache
def tokens() -> pl.DataFrame:
    """Give the weighed tokens of the steps that were read."""
    diagnosis, frame = judged()
    made = pl.DataFrame(list(weighed(frame, diagnosis.tables["ledger_steps"]["step"].to_list())))
    whole = pl.col("size").sum().over("step")
    return made.with_columns((pl.col(name) / whole).fill_nan(0.0).alias(to) for name, to in SCALED.items())


def total(column: pl.Series) -> float:
    return float(column.to_numpy().sum())


def test_the_update_step_by_step_is_that_of_single_tokens() -> None:
    found = judged()[0].tables["ledger_steps"]
    for row in found.iter_rows(named=True):
        own = tokens().filter(step=row["step"])
        by_sample = own.group_by("sample").agg(pl.col("size").sum())["size"].to_numpy()
        size = own["size"].to_numpy()
        assert row["tokens"] == own.height
        assert row["weight"] == pytest.approx(size.sum(), rel=1e-4)
        if not size.any():
            assert row["post_share"] is None
            continue
        assert row["second_moment"] == pytest.approx((size**2).sum(), rel=1e-4)
        assert row["effective_sequences"] == pytest.approx(by_sample.sum() ** 2 / (by_sample**2).sum(), rel=1e-4)
        assert row["post_share"] == pytest.approx(size[own["tool"] != "none"].sum() / size.sum(), rel=1e-4)
        assert row["tail_share"] == pytest.approx(size[own["far"]].sum() / size.sum(), rel=1e-4, abs=1e-9)
        assert row["tail_tokens"] == pytest.approx(own["far"].to_numpy().mean())


def test_shares_are_those_of_single_tokens_since_the_onset() -> None:
    ledger = ledger_of(judged()[0])
    own = tokens().filter(pl.col("step") >= ledger.since)
    for by, column, names in (
        ("tool name", "tool", {}), ("tool result", "failed", {True: "failed", False: "not failed"}),
    ):  # fmt: skip
        part = own if by == "tool name" else own.filter(pl.col("tool") != "none")
        for (value,), rows in part.group_by(column):
            share = next(one for one in ledger.shares if (one.by, one.value) == (by, names.get(value, value)))
            assert share.share == pytest.approx(total(rows["share"]) / total(own["share"]), rel=1e-4)
            assert share.token_share == pytest.approx(rows.height / own.height)
            signed = total(rows["share"] * rows["sign"])
            assert share.signed == pytest.approx(signed / total(own["share"]), rel=1e-3, abs=1e-6)
    assert ledger.tail_share == pytest.approx(total(own.filter("far")["share"]) / total(own["share"]), rel=1e-4)


def test_half_of_the_update_comes_from_the_fewest_tokens() -> None:
    ledger = ledger_of(judged()[0])
    sizes = sorted(tokens().filter(pl.col("step") >= ledger.since)["share"].to_list(), reverse=True)
    held, count = 0.0, 0
    while held < sum(sizes) / 2:
        held, count = held + sizes[count], count + 1
    assert ledger.half_tokens == pytest.approx(count / len(sizes), abs=2 / len(sizes))
    assert f"since step {ledger.since} half of the update comes from " in ledger.said


def test_a_clip_takes_what_lies_beyond_it() -> None:
    table = judged()[0].tables["ledger"].filter(by="tool name", value="sql", window="all")
    share, taken = (total(tokens().filter(tool="sql")[name]) for name in ("share", "taken"))
    assert table["clipped"][0] == pytest.approx(taken / (taken + share), rel=1e-4)


def rows_left_out(guard: str, late: pl.DataFrame) -> set[str]:
    """Give the samples that a guard leaves out."""
    if guard == "drop-errored":
        return set(judged()[1].filter(pl.col("tool_failed").list.any())["sample_id"])
    column = "old" if guard.startswith("opsm") else "ref"
    out = set()
    for (sample,), rows in late.group_by("sample"):
        r, sign = rows[column].to_list(), rows["sign"][0]
        mean = sum(r) / len(r)
        left_out = {
            "opsm-0.005": sign < 0 and -mean > 0.005,
            "sequence-0.5-2": not math.log(0.5) <= mean <= math.log(2),
            "veto-1e-4": min(r) < math.log(1e-4),
        }[guard]
        out |= {sample} if left_out else set()
    return out


def guarded(guard: str, late: pl.DataFrame) -> list[float]:
    """Give the sizes that a guard leaves, token by token."""
    if guard.startswith("clip"):
        reach = EPSILON * float(guard.removeprefix("clip-x"))
        return [
            0.0 if (row["sign"] > 0 and row["rho"] > 1 + reach) or (row["sign"] < 0 and row["rho"] < 1 - reach)
            else row["size"] + row["gone"]
            for row in late.iter_rows(named=True)
        ]  # fmt: skip
    if guard.startswith(("tis", "mis")):
        beyond = 0.0 if guard.startswith("mis") else 2.0
        weights = [math.exp(r) for r in late["ref"]]
        return [size * (1 if w <= 2 else beyond / w) for size, w in zip(late["size"].to_list(), weights, strict=True)]
    out = rows_left_out(guard, late)
    return [0.0 if row["sample"] in out else row["size"] for row in late.iter_rows(named=True)]


@pytest.mark.parametrize(
    "guard",
    ["clip-x0.1", "clip-x1.4", "tis-2", "mis-2", "sequence-0.5-2", "veto-1e-4", "opsm-0.005", "drop-errored"],
)
def test_guards_take_what_a_loop_says_they_take(guard: str) -> None:
    price = next(
        one for one in ledger_of(judged()[0]).guards
        if one.guard == guard and (one.pair == "policy/ref" or guard[:4] in ("clip", "opsm", "drop"))
    )  # fmt: skip
    late, early = tokens().filter(pl.col("step") > STEPS * 2 // 3), tokens().filter(pl.col("step") <= STEPS // 3)
    late = late.with_columns(left=pl.Series(guarded(guard, late)))
    for part, (low, high) in ((late.filter("far"), price.tail), (late.filter(~pl.col("far")), price.cost)):  # type: ignore[misc]
        gone = (part["size"] - part["left"]).to_numpy()
        taken, added = (size / total(part["size"]) for size in (gone.clip(min=0).sum(), -gone.clip(max=0).sum()))
        assert low - 1e-9 <= taken - added <= high + 1e-9
        assert low == pytest.approx(taken / (taken + SPREAD * (1 - taken)) - SPREAD * added, rel=1e-3, abs=1e-6)
    moments = [total(sizes**2) / steps.n_unique() for sizes, steps in
               ((late["left"], late["step"]), (early["size"], early["step"]))]  # fmt: skip
    assert price.second_moment == pytest.approx(moments[0] / moments[1], rel=1e-3)
    assert price.holds == (moments[0] / moments[1] <= 1.25)


def test_where_no_finding_asks_nothing_is_weighed(tmp_path: Path) -> None:
    quiet = diagnose(write_recorder_run(tmp_path, rows_of(Story(steps=20, sequences=8, post=steady(0.05)))))
    assert quiet.ledger is None
    assert "ledger" not in quiet.tables
    assert '"ledger"' not in findings_json(quiet, "")


def test_without_advantage_and_reward_it_says_what_to_record(tmp_path: Path) -> None:
    bare = rows_of().drop("advantage", "reward")
    found = diagnose(write_recorder_run(tmp_path, bare)).ledger
    assert found is not None
    assert found.reason == "no advantage is recorded, and no reward by prompt group to compute it from"
    assert not found.shares


def test_logged_gradient_norms_tell_how_long_scores_are(tmp_path: Path) -> None:
    frame = rows_of(replace(STORY, tool_share=hump(0.3, 0.9)))  # steps with few and with many tokens after tools
    longer = ledger_of(diagnose(write_run(tmp_path, frame, after_tools=4.0)))
    own = pl.DataFrame(list(weighed(frame, list(range(longer.since or 1, STEPS + 1)))))
    own = own.with_columns(long=pl.when(pl.col("tool") == "none").then(1.0).otherwise(4.0) * pl.col("size"))
    whole = pl.col("size").sum().over("step"), pl.col("long").sum().over("step")
    own = own.with_columns((pl.col("size") / whole[0]).fill_nan(0.0), (pl.col("long") / whole[1]).fill_nan(0.0))
    short, wanted = (total(own.filter(pl.col("tool") != "none")[name]) / total(own[name]) for name in ("size", "long"))
    share = next(one.share for one in longer.shares if (one.by, one.value) == ("slice", "post_tool"))
    assert share == pytest.approx(wanted, abs=0.05)
    assert wanted > short + 0.15


def test_without_gradient_norms_it_says_so(tmp_path: Path) -> None:
    found = diagnose(write_recorder_run(tmp_path, rows_of())).ledger
    assert found is not None
    assert "grad_norm" in found.reason


def test_advantages_follow_from_rewards_by_group(tmp_path: Path) -> None:
    found = ledger_of(diagnose(write_run(tmp_path, rows_of(), without=["advantage"])))
    steps = found.steps
    assert steps == ledger_of(judged()[0]).steps
    assert found.half_tokens == pytest.approx(ledger_of(judged()[0]).half_tokens, rel=0.2)  # GRPO's are scaled by group


def test_it_stands_under_its_finding_and_in_the_document() -> None:
    diagnosis = judged()[0]
    ledger = ledger_of(diagnosis)
    page, document = page_with(diagnosis), json.loads(findings_json(diagnosis, ""))["ledger"]
    assert "What the update rests on" in page
    assert document["half_tokens"] == pytest.approx(ledger.half_tokens, rel=1e-5)
    assert [one["guard"] for one in document["guards"]] == [one.guard for one in ledger.guards]
    assert ledger.finding in {finding.id for finding in diagnosis.findings}


@pytest.mark.slow
def test_arms_differ_in_what_their_updates_rest_on(tmp_path: Path) -> None:
    lighter = rows_of(replace(STORY, post=rising(0.1, 1.1)))
    runs = [write_run(tmp_path / name, frame) for name, frame in (("lighter", lighter), ("heavier", rows_of()))]
    said = " ".join(compare([str(run) for run in runs]).sentences)
    assert "tokens with |r| above 2 nats hold" in said
