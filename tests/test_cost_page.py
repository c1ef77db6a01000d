"""docs/cost.md follows from the constants that were measured, and its tables from the model."""

from __future__ import annotations

import re

import pytest

from benchmarks import cost_model
from benchmarks.cost_model import Costs, forecast

ROUND = Costs(
    tokens=10_000_000,
    sequences=10_000,
    bytes_per_token=10.0,
    read_ns=5.0,
    decode_ns=45.0,
    fold_ns=50.0,
    pieces=10,
    merge_ms=20.0,
    piece_mb=6.0,
    row_bytes=25.0,
    judge_s=3.0,
)


def test_the_page_is_made_from_the_constants_that_are_kept() -> None:
    assert cost_model.PAGE.read_text(encoding="utf-8") == cost_model.render(*cost_model.kept())


def test_the_model_of_round_numbers_is_what_one_works_out_by_hand() -> None:
    one = forecast(ROUND, tokens=1e12, nodes=10, cores=100, gb_s=2.0)
    assert one.supply == pytest.approx(500)  # 10^13 bytes at 20 GB a second
    assert one.fold == pytest.approx(100)  # 10^5 CPU seconds on 1,000 cores
    assert one.merge == pytest.approx(20_000)  # a million pieces
    assert one.receive == pytest.approx(2_000)  # 6 * 10^12 bytes at 3 GB a second
    assert one.total == pytest.approx(20_003)
    assert one.bottleneck == "the driver's merge"


def test_fewer_tables_that_reach_the_driver_move_the_bottleneck() -> None:
    one = forecast(ROUND, tokens=1e12, nodes=10, cores=100, gb_s=2.0, arriving=10_000)
    assert one.merge == pytest.approx(200)
    assert one.bottleneck == "disk or network"
    assert forecast(ROUND, tokens=1e12, nodes=1, cores=4, gb_s=2.0, arriving=1).bottleneck == "decode and fold"


def test_every_figure_of_the_tables_follows_from_the_constants_of_the_page() -> None:
    costs, _ = cost_model.kept()
    rows = re.findall(r"^\| (\d+) x (\d+) \| ([\d.]+) \| (.*) \| ([\d.,]+) min \| (.*) \|$",
                      cost_model.PAGE.read_text(encoding="utf-8"), re.MULTILINE)  # fmt: skip
    assert len(rows) == 2 * len(cost_model.CLUSTERS)
    pieces = 1e12 / (costs.tokens / costs.pieces)
    for place, (nodes, cores, gb_s, parts, minutes, bottleneck) in enumerate(rows):
        arriving = pieces if place < len(cost_model.CLUSTERS) else cost_model.STEPS
        expected = [
            1e12 * costs.bytes_per_token / (int(nodes) * float(gb_s) * 1e9),
            1e12 * (costs.read_ns + costs.decode_ns + costs.fold_ns) / 1e9 / (int(nodes) * int(cores)),
            arriving * costs.piece_mb / 1e3 / cost_model.DRIVER_GB_S,
            arriving * costs.merge_ms / 1e3,
            costs.judge_s,
        ]
        assert [float(part.replace(",", "")) for part in parts.split(" | ")] == pytest.approx(expected, abs=0.51)
        assert float(minutes.replace(",", "")) == pytest.approx((max(expected[:4]) + costs.judge_s) / 60, abs=0.051)
        names = ["disk or network", "decode and fold", "the driver's network", "the driver's merge", "judging"]
        assert bottleneck == names[expected.index(max(expected))]
