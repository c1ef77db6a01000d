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
    send_ms=0.5,
    merge_ms=20.0,
    piece_mb=6.0,
    group=10,
    gather_ms=10.0,
    group_merge_ms=30.0,
    group_mb=9.0,
    row_bytes=25.0,
    judge_s=3.0,
)


def test_the_page_is_made_from_the_constants_that_are_kept() -> None:
    assert cost_model.PAGE.read_text(encoding="utf-8") == cost_model.render(*cost_model.kept())


def test_the_model_of_round_numbers_is_what_one_works_out_by_hand() -> None:
    one = forecast(ROUND, tokens=1e12, nodes=10, cores=100, gb_s=2.0)
    assert one.supply == pytest.approx(500)  # 10^13 bytes at 20 GB a second
    assert one.fold == pytest.approx(110)  # 10^5 CPU seconds, and 10 ms for each of a million pieces, on 1,000 cores
    assert one.send == pytest.approx(500)  # a million pieces
    assert one.merge == pytest.approx(3_000)  # 10^5 groups
    assert one.receive == pytest.approx(300)  # 9 * 10^11 bytes at 3 GB a second
    assert one.total == pytest.approx(3_503)
    assert one.bottleneck == "the driver"


def test_fewer_tables_that_reach_the_driver_move_the_bottleneck() -> None:
    by_pieces = forecast(ROUND, tokens=1e12, nodes=1, cores=100, gb_s=2.0, in_groups=False)
    assert by_pieces.merge == pytest.approx(20_000)  # a million pieces
    assert by_pieces.receive == pytest.approx(2_000)  # 6 * 10^12 bytes at 3 GB a second
    assert by_pieces.fold == pytest.approx(1_000)
    assert by_pieces.bottleneck == "the driver"
    assert forecast(ROUND, tokens=1e12, nodes=1, cores=100, gb_s=2.0).bottleneck == "disk or network"
    assert forecast(ROUND, tokens=1e12, nodes=1, cores=4, gb_s=2.0).bottleneck == "decode and fold"


def test_every_figure_of_the_tables_follows_from_the_constants_of_the_page() -> None:
    costs, _ = cost_model.kept()
    rows = re.findall(r"^\| (\d+) x (\d+) \| ([\d.]+) \| (.*) \| ([\d.,]+) min \| (.*) \|$",
                      cost_model.PAGE.read_text(encoding="utf-8"), re.MULTILINE)  # fmt: skip
    assert len(rows) == 2 * len(cost_model.CLUSTERS)
    pieces = 1e12 / (costs.tokens / costs.pieces)
    for place, (nodes, cores, gb_s, parts, minutes, bottleneck) in enumerate(rows):
        in_groups = place < len(cost_model.CLUSTERS)
        folding = 1e12 * (costs.read_ns + costs.decode_ns + costs.fold_ns) / 1e9
        expected = [
            1e12 * costs.bytes_per_token / (int(nodes) * float(gb_s) * 1e9),
            (folding + in_groups * pieces * costs.gather_ms / 1e3) / (int(nodes) * int(cores)),
            (pieces / costs.group * costs.group_mb if in_groups else pieces * costs.piece_mb)
            / (1e3 * cost_model.DRIVER_GB_S),
            pieces * costs.send_ms / 1e3,
            (pieces / costs.group * costs.group_merge_ms if in_groups else pieces * costs.merge_ms) / 1e3,
            costs.judge_s,
        ]
        assert [float(part.replace(",", "")) for part in parts.split(" | ")] == pytest.approx(expected, abs=0.51)
        overlapping = [*expected[:3], expected[3] + expected[4]]
        assert float(minutes.replace(",", "")) == pytest.approx((max(overlapping) + costs.judge_s) / 60, abs=0.051)
        names = ["disk or network", "decode and fold", "the driver's network", "the driver", "judging"]
        ranked = [*overlapping, costs.judge_s]
        assert bottleneck == names[ranked.index(max(ranked))]


def test_what_other_pages_repeat_of_the_model_follows_from_the_constants() -> None:
    costs, _ = cost_model.kept()
    docs = cost_model.PAGE.parent
    decision, ray = (
        " ".join((docs / name).read_text(encoding="utf-8").split()) for name in ("decisions/021-ray.md", "ray.md")
    )
    far, by_pieces = (
        forecast(costs, tokens=cost_model.FAR, nodes=16, cores=64, gb_s=3.0, in_groups=grouped)
        for grouped in (True, False)
    )
    assert f"spends {far.merge:.0f} s on adding up instead of {by_pieces.merge:.0f}" in decision
    assert f"the {far.send:.0f} s that handing out pieces takes" in decision
    alone, grouped = costs.send_ms + costs.merge_ms, costs.send_ms + costs.group_merge_ms / costs.group
    assert f"it is {alone:.1f} and {grouped:.1f} ms; sending takes {costs.send_ms:.1f} of these" in ray
    seconds = costs.tokens / costs.pieces * costs.worker_ns * 1e-9
    assert f"takes a worker {seconds:.2f} s of CPU" in ray
    cores = (round(1e3 * seconds / cost, -1) for cost in (grouped, alone))
    assert "keeps up with {:.0f} cores instead of {:.0f}.".format(*cores) in ray
