"""Metrics of one name that two runs compute differently: shown side by side, and never judged against each other."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from builders import healthy_diagnosis, run_of
from rich.console import Console

from ptt.diagnostics.compare import compare
from ptt.diagnostics.compare.comparison import Arm, Comparison, Member
from ptt.diagnostics.model import Agreement, AuditRow
from ptt.diagnostics.schema import METRICS
from ptt.reports.compare.html import render_compare_page
from ptt.reports.compare.markdown import compare_markdown
from ptt.reports.compare.terminal import print_comparison
from ptt.reports.compare.texts import compare_json

STEPS = 240
K1 = AuditRow(
    quantity="kl/ref", agreement=Agreement.AGREES, said="k1, mean over all tokens", formula="k1",
    reduction="token_mean/all", steps=48, agreeing=48,
)  # fmt: skip
K3 = replace(K1, said="k3, mean over the sampled tokens", formula="k3", reduction="token_mean/model_mask")
GRPO = AuditRow(quantity="advantage", agreement=Agreement.AGREES, said="GRPO", formula="grpo", steps=48, agreeing=48)


def arm(name: str, seed: int, *audit: AuditRow, kl: float = 0.05) -> Arm:
    generator = np.random.default_rng(seed)
    values = {
        "kl/ref": kl * np.exp(0.1 * generator.normal(size=STEPS)),
        "entropy": 0.4 + 0.02 * generator.normal(size=STEPS),
        "reward/mean": 0.5 + 0.05 * generator.normal(size=STEPS),
    }
    series = pl.concat(
        pl.DataFrame({"step": range(1, STEPS + 1), "name": metric, "name_raw": metric, "value": value}).with_columns(
            flag=pl.lit(0, METRICS["flag"])
        )
        for metric, value in values.items()
    )
    diagnosis = replace(healthy_diagnosis(run_of(last_step=STEPS)), audit=audit, tables={"series": series})
    return Arm(name=name, members=(Member(name=name, diagnosis=diagnosis, profile=None),))


def late(found: Comparison) -> dict[str, str]:
    table = found.tables["aggregate_differences"].filter(window="late")
    return dict(table.select("metric", "words").iter_rows())


def printed(found: Comparison) -> str:
    out = io.StringIO()
    print_comparison(found, Console(file=out, width=200), "compare.html")
    return out.getvalue()


@pytest.mark.parametrize(
    ("audit", "word"),
    [
        ((K1,), "other_quantity"),
        ((replace(K3, reduction="sequence_mean/model_mask"),), "other_quantity"),
        ((K3,), "higher"),
        ((), "higher"),  # nothing is known of it: one name means one quantity
        ((replace(K1, agreement=Agreement.DIFFERS),), "higher"),  # the nearest is not what it is
        ((replace(K1, agreement=Agreement.NOT_CHECKABLE, formula=None, reduction=None),), "higher"),
    ],
)
def test_only_what_is_known_to_be_another_quantity_is_not_judged(audit: tuple[AuditRow, ...], word: str) -> None:
    found = compare([arm("base", 1, K3), arm("variant", 2, *audit, kl=0.5)])
    assert late(found) == {"kl/ref": word, "entropy": "alike", "reward/mean": "alike"}
    assert ("kl/ref" in found.tables["divergence"]["what"].to_list()) is (word == "higher")


def test_every_output_says_how_the_two_are_computed() -> None:
    found = compare([arm("base", 1, K3), arm("variant", 2, K1, kl=0.5)])
    why = "not the same quantity: k1, mean over all tokens (variant); k3, mean over the sampled tokens (base)"
    assert f"variant: mean KL is not compared, as it is {why}." in found.sentences
    assert f"≠ mean KL: {why}" in printed(found)
    assert "of 3 metrics, 0 differ, 2 are the same, 0 are unclear, 1 is not the same quantity" in printed(found).lower()
    assert why in compare_markdown(found)
    page = render_compare_page(found).text
    assert why in page
    assert "Mean KL: not the same quantity" in page
    rows = json.loads(compare_json(found, "1"))["aggregate_differences"]
    assert {row["reason"] for row in rows if row["metric"] == "kl/ref"} == {why}
    assert {row["difference"] for row in rows if row["metric"] == "kl/ref"} == {None}
    assert {row["reason"] for row in rows if row["metric"] != "kl/ref"} == {None}


def test_one_seed_that_computes_it_otherwise_makes_the_arm_another_quantity() -> None:
    first, second = arm("a", 2, K3), arm("b", 3, K1)
    both = Arm(name="variant", members=(*first.members, *second.members))
    assert late(compare([arm("base", 1, K3), both]))["kl/ref"] == "other_quantity"


def test_another_estimator_of_advantages_is_a_caution() -> None:
    other = replace(GRPO, said="Dr. GRPO", formula="dr_grpo")
    found = compare([arm("base", 1, GRPO), arm("variant", 2, other)])
    assert found.cautions == ("variant: advantages are not the same quantity: Dr. GRPO (variant); GRPO (base).",)
    assert compare([arm("base", 1, GRPO), arm("variant", 2, GRPO)]).cautions == ()


def test_nothing_is_compared_where_the_only_metric_is_another_quantity() -> None:
    base, variant = (
        Arm(name=one.name, members=tuple(only_kl(member) for member in one.members))
        for one in (arm("base", 1, K3), arm("variant", 2, K1))
    )
    assert compare([base, variant]).headline.startswith("Nothing could be compared")


def only_kl(member: Member) -> Member:
    series = member.diagnosis.tables["series"].filter(name="kl/ref")
    return replace(member, diagnosis=replace(member.diagnosis, tables={"series": series}))
