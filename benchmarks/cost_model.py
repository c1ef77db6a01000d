"""What a token costs at each stage, measured, and what a model makes of it at 10^12 tokens: docs/cost.md.

`python -m benchmarks.cost_model --tokens 200M --write` measures on one thread, keeps the constants in
benchmarks/cost.json and writes the page from them.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

CONSTANTS: Final = Path(__file__).parent / "cost.json"
PAGE: Final = Path(__file__).parents[1] / "docs" / "cost.md"
COLUMNS: Final = ("step", "model_mask", "policy_logp", "ref_logp")
FAR: Final = 10**12  # tokens
STEPS: Final = 10_000  # of that run: 10^8 tokens a step
DRIVER_GB_S: Final = 3.0  # what reaches the driver: 25 Gbit/s
CLUSTERS: Final = ((1, 16, 2.0), (4, 32, 2.0), (16, 64, 3.0), (64, 64, 3.0), (256, 64, 3.0))
"""Nodes, cores of each, GB a second from disk or network to each."""

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What was measured: CPU time on one core, and bytes. A token is a model token."""

    tokens: int  # of the run measured
    sequences: int
    bytes_per_token: float  # compressed, of the columns used
    read_ns: float  # a token: the bytes from the page cache
    decode_ns: float  # a token: decompressed and decoded by Polars
    fold_ns: float  # a token
    pieces: int
    merge_ms: float  # a piece: unpickled and added up
    piece_mb: float  # pickled
    row_bytes: float  # a sequence: what the driver holds of every one
    judge_s: float  # a run: all that follows the pass

    @property
    def worker_ns(self) -> float:
        """CPU time of a token where it is folded."""
        return self.read_ns + self.decode_ns + self.fold_ns

    @property
    def piece_tokens(self) -> float:
        """Tokens a piece."""
        return self.tokens / self.pieces


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """Seconds of each part of a run on a cluster."""

    supply: float  # bytes to the nodes
    fold: float  # read, decode and fold on all cores
    receive: float  # partial tables to the driver
    merge: float  # on the driver, one core
    judge: float

    @property
    def total(self) -> float:
        """The parts before judging overlap: the slowest decides."""
        return max(self.supply, self.fold, self.receive, self.merge) + self.judge

    @property
    def bottleneck(self) -> str:
        """Name the slowest part."""
        parts = {"disk or network": self.supply, "decode and fold": self.fold, "driver's network": self.receive,
                 "driver's merge": self.merge, "judging": self.judge}  # fmt: skip
        return max(parts, key=lambda name: parts[name])


def forecast(
    costs: Costs, *, tokens: float, nodes: int, cores: int, gb_s: float, arriving: float | None = None
) -> Forecast:
    """Say how long `tokens` take; `arriving`: partial tables that reach the driver (every piece's own, by default)."""
    parts = tokens / costs.piece_tokens if arriving is None else arriving
    return Forecast(
        supply=tokens * costs.bytes_per_token / (nodes * gb_s * 1e9),
        fold=tokens * costs.worker_ns * 1e-9 / (nodes * cores),
        receive=parts * costs.piece_mb * 1e6 / (DRIVER_GB_S * 1e9),
        merge=parts * costs.merge_ms * 1e-3,
        judge=costs.judge_s,
    )


def measure(folder: Path) -> Costs:
    """Measure each stage on a run's files, on the threads that this process has."""
    import numpy as np
    import polars as pl
    import pyarrow.parquet as pq

    import ptt
    from ptt.diagnostics.statistics.logprob_pairs import available_pairs
    from ptt.diagnostics.statistics.partial_tables import SINGLE_SEQUENCES, Merger, kept_sequences
    from ptt.diagnostics.statistics.token_pass import PassPlan, batch_rows, fold

    files = sorted(folder.glob("step_*.parquet"))
    stretches = [stretch for path in files for stretch in column_stretches(path, pq)]
    frame = pl.scan_parquet(folder / "step_*.parquet").select(COLUMNS).with_row_index("seq")
    rows = frame.select(pl.len()).collect().item()
    count = pl.scan_parquet(folder / "step_*.parquet").select(pl.col("model_mask").list.sum().sum())
    tokens = int(count.collect(engine="streaming").item())
    plan = PassPlan(pairs=available_pairs(set(COLUMNS)), min_observation=4, batch_rows=batch_rows(tokens / rows))

    def decode() -> None:
        stream = frame.collect_batches(chunk_size=plan.batch_rows, maintain_order=True, lazy=True, engine="streaming")
        for _ in stream:
            pass

    parts: list[bytes] = []
    _, reading = timed(lambda: sum(len(read(*stretch)) for stretch in stretches))
    _, decoding = timed(decode)
    packing = 0.0

    def folding() -> None:
        nonlocal packing
        for _, part in fold(frame, plan):
            begin = time.process_time()
            parts.append(pickle.dumps(part))
            packing += time.process_time() - begin

    _, folded = timed(folding)
    kept = (
        kept_sequences(np.zeros(rows, np.int64), np.arange(rows, dtype=np.uint64)) if rows > SINGLE_SEQUENCES else None
    )

    def merging() -> Any:
        merger = Merger(kept)
        for part in parts:
            merger.add(pickle.loads(part))
        return merger.tables()

    tables, merged = timed(merging)
    row_bytes = tables.rows.estimated_size() / rows
    size = sum(map(len, parts))
    pieces = len(parts)
    parts.clear()
    _, whole = timed(lambda: ptt.diagnose(folder))
    return Costs(
        tokens=tokens,
        sequences=rows,
        bytes_per_token=sum(length for _, _, length in stretches) / tokens,
        read_ns=reading / tokens * 1e9,
        decode_ns=(decoding - reading) / tokens * 1e9,
        fold_ns=(folded - packing - decoding) / tokens * 1e9,
        pieces=pieces,
        merge_ms=merged / pieces * 1e3,
        piece_mb=size / pieces / 1e6,
        row_bytes=row_bytes,
        judge_s=max(0.0, whole - (folded - packing) - merged),
    )


def column_stretches(path: Path, parquet: Any) -> list[tuple[Path, int, int]]:
    """Return where the columns used lie in a file."""
    described = parquet.ParquetFile(path).metadata
    found = []
    for number in range(described.num_row_groups):
        group = described.row_group(number)
        for place in range(group.num_columns):
            column = group.column(place)
            if column.path_in_schema.split(".")[0] in COLUMNS:
                begin = column.dictionary_page_offset or column.data_page_offset
                found.append((path, min(begin, column.data_page_offset), column.total_compressed_size))
    return found


def read(path: Path, begin: int, length: int) -> bytes:
    """Read a stretch of a file."""
    with path.open("rb") as file:
        file.seek(begin)
        return file.read(length)


def timed(work: Callable[[], Result]) -> tuple[Result, float]:
    """Return what work gives and the CPU seconds of this process that it took."""
    begin = resource.getrusage(resource.RUSAGE_SELF)
    result = work()
    end = resource.getrusage(resource.RUSAGE_SELF)
    return result, end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime


PAGE_TEXT: Final = """<!-- made from benchmarks/cost.json by benchmarks/cost_model.py -->

# What a token costs, and 10^12 of them

Measured on one core over {tokens:,} model tokens ({sequences:,} sequences, one pair, zstd Parquet in the page cache) by
`python -m benchmarks.cost_model --write`. A token is a token that the model wrote; those of observations are read too,
and counted with them. {where}

| stage | where | bytes | CPU |
|---|---|---:|---:|
| read | worker | {bytes_per_token:.1f} a token | {read_ns:.2f} ns a token |
| decode | worker | | {decode_ns:.1f} ns a token |
| fold | worker | | {fold_ns:.1f} ns a token |
| merge | driver | {piece_mb:.2f} MB a piece of {piece_tokens:,.0f} tokens | {merge_ms:.1f} ms a piece |
| judge | driver | {row_bytes:.0f} a sequence kept | {judge_s:.1f} s a run |

Read, decode and fold together: {worker_ns:.1f} ns a token, {per_core:.1f} million tokens a second and core, which
take {supply_mb:.0f} MB a second from disk or network. A partial table is {shrunk:,.0f} times smaller than the files it
is of. Judging follows the number of steps, pairs and single sequences that are kept, which is bounded: the figure is
that of the run measured.

## The model

For T tokens on N nodes of C cores that get B GB a second each:

- supply = T x {bytes_per_token:.1f} bytes / (N x B)
- fold = T x {worker_ns:.1f} ns / (N x C)
- receive = pieces x {piece_mb:.2f} MB / {driver:g} GB a second, pieces = T / {piece_tokens:,.0f}
- merge = pieces x {merge_ms:.1f} ms, on one core of the driver
- total = the greatest of these, which overlap, + {judge_s:.1f} s to judge

What the model leaves out: starting processes, listing files, files so small that their footers count, nodes that wait
for the last one, cores that share memory bandwidth or a boost clock (see [benchmarks.md](benchmarks.md) for what a
second core brings), and a disk that is slower than the page cache in more than bandwidth.

## 10^12 tokens

On 16 nodes, for instance:

- supply: 10^12 x {bytes_per_token:.1f} / (16 x 3 x 10^9) = {example_supply:,.0f} s
- fold, 64 cores each: 10^12 x {worker_ns:.1f} x 10^-9 / 1024 = {example_fold:,.0f} s
- merge: {pieces:,.0f} pieces x {merge_ms:.1f} ms = {example_merge:,.0f} s

{every_piece}
On 16 nodes the bottleneck is: {bottleneck_16}. The driver adds up every piece by itself, so beyond {worth:.1f} nodes of
64 cores it decides, and more bring nothing. With {steps:,} steps a step has {pieces_a_step:.0f} pieces, whose cells are
of the same bins, and of whose sequences few are kept one by one. Merged where they are folded, {steps:,} tables would
reach the driver instead of {pieces:,.0f}, and the same clusters would take (modelled, not built):

{by_step}
Memory of the driver is the other end: of every sequence it holds {row_bytes:.0f} bytes (step, length, tokens,
observations), {row_gb:.0f} GB of {far_sequences:,.0f} sequences, before their ids and rewards. All else is bounded.
"""


def render(costs: Costs, where: str) -> str:
    """Return the page."""
    pieces = FAR / costs.piece_tokens
    example = forecast(costs, tokens=FAR, nodes=16, cores=64, gb_s=3.0)
    sequences = FAR / costs.tokens * costs.sequences
    return PAGE_TEXT.format(
        **asdict(costs) | {"pieces": pieces},
        where=where,
        piece_tokens=costs.piece_tokens,
        worker_ns=costs.worker_ns,
        per_core=1e3 / costs.worker_ns,
        supply_mb=1e3 / costs.worker_ns * costs.bytes_per_token,
        shrunk=costs.piece_tokens * costs.bytes_per_token / (costs.piece_mb * 1e6),
        driver=DRIVER_GB_S,
        example_supply=example.supply,
        example_fold=example.fold,
        example_merge=example.merge,
        bottleneck_16=example.bottleneck,
        worth=worth(costs),
        steps=STEPS,
        pieces_a_step=pieces / STEPS,
        every_piece=table(costs, None),
        by_step=table(costs, float(STEPS)),
        row_gb=sequences * costs.row_bytes / 1e9,
        far_sequences=sequences,
    )


def worth(costs: Costs) -> float:
    """Return from how many nodes of 64 cores and 3 GB a second on the driver is the slowest."""
    one = forecast(costs, tokens=FAR, nodes=1, cores=64, gb_s=3.0)
    return max(one.supply, one.fold) / max(one.receive, one.merge)


def table(costs: Costs, arriving: float | None) -> str:
    """Return the forecasts for all clusters as a table."""
    head = "| nodes x cores | GB/s each | supply s | fold s | receive s | merge s | judge s | total | bottleneck |"
    lines = [head, "|---|" + "---:|" * 7 + "---|"]
    for nodes, cores, gb_s in CLUSTERS:
        one = forecast(costs, tokens=FAR, nodes=nodes, cores=cores, gb_s=gb_s, arriving=arriving)
        parts = (one.supply, one.fold, one.receive, one.merge, one.judge)
        lines.append(f"| {nodes} x {cores} | {gb_s:g} | {' | '.join(f'{part:,.0f}' for part in parts)} | "
                     f"{one.total / 60:,.1f} min | {one.bottleneck} |")  # fmt: skip
    return "\n".join(lines) + "\n"


def kept() -> tuple[Costs, str]:
    """Return the constants that are kept, and on what they were measured."""
    told = json.loads(CONSTANTS.read_text(encoding="utf-8"))
    return Costs(**told["costs"]), told["where"]


def main(words: Sequence[str] | None = None) -> None:
    """Measure, print, keep and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", default="20M", choices=("20M", "200M"))
    parser.add_argument("--write", action="store_true", help=f"keep the constants and write {PAGE.name}")
    parser.add_argument("--page", action="store_true", help="write the page from the constants that are kept")
    asked = parser.parse_args(words)
    if asked.page:
        PAGE.write_text(render(*kept()), encoding="utf-8")
        return
    os.environ["POLARS_MAX_THREADS"] = "1"
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    from benchmarks.data import TOKENS, write_run
    from benchmarks.suite import machine

    costs = measure(write_run(TOKENS[asked.tokens]))
    here = machine()
    where = f"One core of {here['cpu']}, Polars {here['polars']}, NumPy {here['numpy']}."
    if asked.write:
        told = {"costs": asdict(costs), "where": where}
        CONSTANTS.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
        PAGE.write_text(render(costs, where), encoding="utf-8")
    print(render(costs, where))


if __name__ == "__main__":
    main(sys.argv[1:])
