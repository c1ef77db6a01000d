"""Measure what a token costs at each stage, and forecast 10^12 tokens from it: docs/cost.md.

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
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from multiprocessing import active_children
from pathlib import Path
from typing import Any, Final, TypeVar
from unittest.mock import patch

CONSTANTS: Final = Path(__file__).parent / "cost.json"
PAGE: Final = Path(__file__).parents[1] / "docs" / "cost.md"
COLUMNS: Final = ("step", "model_mask", "policy_logp", "ref_logp")
FAR: Final = 10**12  # tokens
STEPS: Final = 10_000  # of that run: 10^8 tokens a step
FILES: Final = 32  # of a piece
SENT: Final = 1000  # tasks
AGAIN: Final = 10  # times that adding up is measured
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
    send_ms: float  # a piece: handed out by the driver as a Ray task, and the answer waited for
    merge_ms: float  # a piece that reaches the driver by itself: unpickled and added up
    piece_mb: float  # pickled
    group: int  # pieces
    gather_ms: float  # a piece of a group, where that is added up: unpickled, added up, and its share of pickling
    group_merge_ms: float  # a group that reaches the driver
    group_mb: float  # pickled
    row_bytes: float  # a sequence: what the driver holds of every one
    judge_s: float  # a run: all that follows the pass

    @property
    def worker_ns(self) -> float:
        """CPU time of a token where it is folded."""
        return self.read_ns + self.decode_ns + self.fold_ns

    @property
    def gather_ns(self) -> float:
        """CPU time of a token where its piece is added to its group."""
        return self.gather_ms * 1e6 / self.piece_tokens

    @property
    def piece_tokens(self) -> float:
        """Tokens a piece."""
        return self.tokens / self.pieces


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """Seconds of each part of a run on a cluster."""

    supply: float  # bytes to the nodes
    fold: float  # read, decode, fold, and add up groups on all cores
    receive: float  # partial tables to the driver
    send: float  # tasks, from one core of the driver
    merge: float  # on the same core
    judge: float

    @property
    def parts(self) -> dict[str, float]:
        """What overlaps before judging, by its name."""
        return {"disk or network": self.supply, "decode and fold": self.fold, "the driver's network": self.receive,
                "the driver": self.send + self.merge}  # fmt: skip

    @property
    def total(self) -> float:
        """The slowest part decides."""
        return max(self.parts.values()) + self.judge

    @property
    def bottleneck(self) -> str:
        """Name the slowest part."""
        parts = self.parts | {"judging": self.judge}
        return max(parts, key=lambda name: parts[name])


def forecast(costs: Costs, *, tokens: float, nodes: int, cores: int, gb_s: float, in_groups: bool = True) -> Forecast:
    """Forecast the time for `tokens`; `in_groups`: whether pieces are added up on the cluster."""
    pieces = tokens / costs.piece_tokens
    arriving = pieces / costs.group if in_groups else pieces
    worker_ns = costs.worker_ns + (costs.gather_ns if in_groups else 0.0)
    return Forecast(
        supply=tokens * costs.bytes_per_token / (nodes * gb_s * 1e9),
        fold=tokens * worker_ns * 1e-9 / (nodes * cores),
        receive=arriving * (costs.group_mb if in_groups else costs.piece_mb) * 1e6 / (DRIVER_GB_S * 1e9),
        send=pieces * costs.send_ms * 1e-3,
        merge=arriving * (costs.group_merge_ms if in_groups else costs.merge_ms) * 1e-3,
        judge=costs.judge_s,
    )


def measure(folder: Path) -> Costs:
    """Measure each stage on a run's files, on the threads that this process has."""
    import polars as pl
    import pyarrow.parquet as pq

    import ptt
    from ptt.diagnostics.statistics.logprob_pairs import available_pairs
    from ptt.diagnostics.statistics.partial_tables import bits_dropped
    from ptt.diagnostics.statistics.token_pass import PassPlan, batch_rows

    files = sorted(folder.glob("step_*.parquet"))
    stretches = [stretch for path in files for stretch in column_stretches(path, pq)]
    frame = pl.scan_parquet(folder / "step_*.parquet").select(COLUMNS).with_row_index("seq")
    counts = pl.col("model_mask").list.sum().sum(), pl.col("model_mask").list.len().sum().alias("every"), pl.len()
    tokens, every, rows = map(int, frame.select(counts).collect(engine="streaming").row(0))
    plan = PassPlan(
        pairs=available_pairs(set(COLUMNS)),
        min_observation=4,
        batch_rows=batch_rows(every / rows),
        bits_dropped=bits_dropped(len(files)),  # a step a file
    )
    _, reading = timed(lambda: sum(len(read(*stretch)) for stretch in stretches))
    _, decoding = timed(lambda: decode(frame, plan.batch_rows))
    (parts, packing), folding = timed(lambda: fold_and_pickle(frame, plan, kept_of(rows)))
    folding -= packing
    tables, merging = timed(lambda: merge(parts))
    pieces = len(parts)
    parts.clear()
    _, whole = timed(lambda: ptt.diagnose(folder))
    return Costs(
        tokens=tokens,
        sequences=rows,
        bytes_per_token=sum(length for _, _, length in stretches) / tokens,
        read_ns=reading / tokens * 1e9,
        decode_ns=(decoding - reading) / tokens * 1e9,
        fold_ns=(folding - decoding) / tokens * 1e9,
        pieces=pieces,
        send_ms=sending(files, plan),
        **measure_merging(frame, plan, tokens, rows),
        row_bytes=tables.rows.estimated_size() / rows,
        judge_s=max(0.0, whole - folding - merging),
    )


def measure_merging(frame: Any, plan: Any, tokens: int, rows: int) -> dict[str, Any]:
    """Measure adding up by pieces and in groups, with as many tokens a step and as few single sequences as in FAR."""
    import numpy as np
    import polars as pl

    from ptt.diagnostics.statistics.merge_tree import GROUP
    from ptt.diagnostics.statistics.partial_tables import bits_dropped, share_kept

    sequences = FAR // tokens * rows
    far_plan = replace(plan, bits_dropped=bits_dropped(STEPS))
    step = pl.col("seq").cast(pl.Int64) // (sequences // STEPS)
    kept = np.arange(rows) % share_kept(sequences) == 0
    parts, _ = fold_and_pickle(frame.with_columns(step=step), far_plan, kept)
    size = min(GROUP, len(parts))
    whole = range(0, len(parts) - size + 1, size)
    groups, gathering = timed(lambda: [gather(parts[first : first + size]) for first in whole])
    _, in_groups = timed(lambda: [merge_groups(groups) for _ in range(AGAIN)])
    _, by_pieces = timed(lambda: [merge(parts) for _ in range(AGAIN)])
    return {
        "merge_ms": by_pieces / AGAIN / len(parts) * 1e3,
        "piece_mb": sum(map(len, parts)) / len(parts) / 1e6,
        "group": size,
        "gather_ms": gathering / len(groups) / size * 1e3,
        "group_merge_ms": in_groups / AGAIN / len(groups) * 1e3,
        "group_mb": sum(map(len, groups)) / len(groups) / 1e6,
    }


def decode(frame: Any, rows: int) -> None:
    """Decode a run in batches of so many rows."""
    for _ in frame.collect_batches(chunk_size=rows, maintain_order=True, lazy=True, engine="streaming"):
        pass


def fold_and_pickle(frame: Any, plan: Any, kept: Any) -> tuple[list[bytes], float]:
    """Fold a run; return its pieces as a worker sends them, and the CPU seconds that pickling took."""
    from ptt.diagnostics.statistics.token_pass import Single, fold

    parts, packing = [], 0.0
    for _, part in fold(frame, plan, Single(kept=kept)):
        begin = time.process_time()
        parts.append(pickle.dumps(part))
        packing += time.process_time() - begin
    return parts, packing


def kept_of(rows: int) -> Any:
    """Choose the sequences of a run that are kept one by one."""
    import numpy as np

    from ptt.diagnostics.statistics.partial_tables import SINGLE_SEQUENCES, kept_sequences

    return (
        kept_sequences(np.zeros(rows, np.int64), np.arange(rows, dtype=np.uint64)) if rows > SINGLE_SEQUENCES else None
    )


def merge(parts: Sequence[bytes]) -> Any:
    """Unpickle pieces and add them up, as the driver does."""
    from ptt.diagnostics.statistics.merge_tree import Merger

    merger = Merger()
    for number, part in enumerate(parts):
        merger.add(number, pickle.loads(part))
    return merger.tables()


def gather(parts: Sequence[bytes]) -> bytes:
    """Unpickle the pieces of a group, add them up and pickle the group, as a worker does."""
    from ptt.diagnostics.statistics.merge_tree import merge_group

    return pickle.dumps(merge_group([pickle.loads(part) for part in parts]))


def merge_groups(groups: Sequence[bytes]) -> Any:
    """Unpickle groups and add them up, as the driver does."""
    from ptt.diagnostics.statistics.merge_tree import Merger

    merger = Merger()
    for group in groups:
        merger.add_group(pickle.loads(group))
    return merger.tables()


def sending(files: Sequence[Path], plan: Any) -> float:
    """Return the milliseconds of CPU that handing out a piece takes the command and the process that talks to Ray.

    These work in turns; Ray's own threads run beside them. As kept where Ray is missing.
    """
    if find_spec("ray") is None:
        return kept()[0].send_ms
    from ptt.diagnostics.engines.pieces import Piece
    from ptt.diagnostics.store.deduplicate_sources import SequenceFile
    from ptt.executors import ray_cluster

    described = [
        SequenceFile(path=path, name=path.name, kind="recorder", first_row=0, start=0, rows=1, columns=COLUMNS)
        for path in files[:FILES]
    ]
    piece = Piece(files=tuple(described), first=0, end=1, columns=frozenset(COLUMNS), plan=plan)
    with patch.object(ray_cluster, "fold_or_say_why", id), ray_cluster.RayCluster() as cluster:
        assert cluster.run_pieces is not None
        for tasks in (2, SENT):  # the first start it
            begin = busy()
            for _ in cluster.run_pieces([piece] * tasks, {}):
                pass
        return (busy() - begin) / SENT * 1e3


def busy() -> float:
    """Return the seconds of CPU of this thread, and of the main threads of processes that work for it."""
    stats = [Path(f"/proc/{child.pid}/task/{child.pid}/stat").read_text() for child in active_children()]
    ticks = [int(field) for stat in stats for field in stat.rpartition(")")[2].split()[11:13]]
    return time.thread_time() + sum(ticks) / os.sysconf("SC_CLK_TCK")


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

# What a token costs, and what 10^12 would

Measured by `python -m benchmarks.cost_model --write` on {tokens:,} model tokens ({sequences:,} sequences, one pair of
logprobs, zstd Parquet in the page cache). All figures are per model token; they include reading and decoding the
observation tokens in between. {where}

| stage | runs on | bytes | CPU |
|---|---|---:|---:|
| read | worker | {bytes_per_token:.1f} per token | {read_ns:.2f} ns per token |
| decode | worker | | {decode_ns:.1f} ns per token |
| fold | worker | | {fold_ns:.1f} ns per token |
| add {group} pieces up to a group | worker | {piece_mb:.2f} MB per piece | {gather_ms:.1f} ms per piece |
| hand out | driver | 4 kB per piece | {send_ms:.2f} ms per piece |
| merge | driver | {group_mb:.2f} MB per group | {group_merge_ms:.1f} ms per group |
| judge | driver | {row_bytes:.0f} per sequence | {judge_s:.1f} s per run |

Reading, decoding and folding take {worker_ns:.1f} ns per token: {per_core:.1f} million tokens a second on one core,
for which it needs {supply_mb:.0f} MB a second from disk or network. A piece has {piece_tokens:,.0f} tokens; its tables
are {shrunk:,.0f} times smaller than its files. Pieces and groups are measured in the shape that they have in a run of
10^12 tokens: {a_step:,.0f} million tokens per step, and single sequences kept of one prompt group in {share:,}. Judging
depends on the number of steps, pairs and single sequences kept, all of which are bounded; the figure is for the
measured run.

## The model

For T tokens on N nodes, each with C cores and B GB a second from disk or network:

- supply = T x {bytes_per_token:.1f} bytes / (N x B)
- fold = T x ({worker_ns:.1f} ns + {gather_ns:.1f} ns to add up groups) / (N x C)
- receive = groups x {group_mb:.2f} MB / {driver:g} GB a second, where groups = pieces / {group}, and pieces =
  T / {piece_tokens:,.0f}
- send = pieces x {send_ms:.2f} ms and merge = groups x {group_merge_ms:.1f} ms, on one core of the driver
- total = the longest of supply, fold, receive and send + merge, which overlap, + {judge_s:.1f} s to judge

The model ignores the time to start processes and list files, the footers of very small files, nodes that wait for the
slowest one, memory bandwidth and boost clocks that cores share ([benchmarks.md](benchmarks.md) shows what a second core
brings), a disk's latency, pieces that travel between workers ({between:.1f} bytes per 1,000 tokens), and Ray's own
threads on the driver.

## 10^12 tokens

On 16 nodes of 64 cores, for example:

- supply: 10^12 x {bytes_per_token:.1f} / (16 x 3 x 10^9) = {example_supply:,.0f} s
- fold: 10^12 x {all_ns:.1f} x 10^-9 / 1024 = {example_fold:,.0f} s
- send: {pieces:,.0f} pieces x {send_ms:.2f} ms = {example_send:,.0f} s
- merge: {groups:,.0f} groups x {group_merge_ms:.1f} ms = {example_merge:,.0f} s

{in_groups}
The bottleneck on 16 nodes is {bottleneck_16}. One driver hands out all pieces and adds up all groups, so more than
{worth:.1f} nodes of 64 cores bring nothing. If every piece reached the driver by itself ({piece_mb:.2f} MB and
{merge_ms:.1f} ms each), {worth_by_pieces:.1f} nodes would be the limit, and the same clusters would take:

{by_pieces}
The driver's memory is the other limit: it holds {row_bytes:.0f} bytes per sequence (step, length, tokens,
observations), {row_gb:.0f} GB for {far_sequences:,.0f} sequences, before their ids and rewards. Everything else is
bounded.
"""


def render(costs: Costs, where: str) -> str:
    """Return the page."""
    from ptt.diagnostics.statistics.partial_tables import share_kept

    pieces = FAR / costs.piece_tokens
    example = forecast(costs, tokens=FAR, nodes=16, cores=64, gb_s=3.0)
    sequences = FAR / costs.tokens * costs.sequences
    return PAGE_TEXT.format(
        **asdict(costs) | {"pieces": pieces},
        where=where,
        piece_tokens=costs.piece_tokens,
        worker_ns=costs.worker_ns,
        gather_ns=costs.gather_ns,
        all_ns=costs.worker_ns + costs.gather_ns,
        per_core=1e3 / costs.worker_ns,
        supply_mb=1e3 / costs.worker_ns * costs.bytes_per_token,
        shrunk=costs.piece_tokens * costs.bytes_per_token / (costs.piece_mb * 1e6),
        between=costs.piece_mb * 1e9 / costs.piece_tokens,
        driver=DRIVER_GB_S,
        a_step=FAR / STEPS / 1e6,
        share=share_kept(int(sequences)),
        groups=pieces / costs.group,
        example_supply=example.supply,
        example_fold=example.fold,
        example_send=example.send,
        example_merge=example.merge,
        bottleneck_16=example.bottleneck,
        worth=worth(costs, in_groups=True),
        worth_by_pieces=worth(costs, in_groups=False),
        in_groups=table(costs, in_groups=True),
        by_pieces=table(costs, in_groups=False),
        row_gb=sequences * costs.row_bytes / 1e9,
        far_sequences=sequences,
    )


def worth(costs: Costs, *, in_groups: bool) -> float:
    """Return the number of nodes (64 cores, 3 GB a second) beyond which the driver is the bottleneck."""
    one = forecast(costs, tokens=FAR, nodes=1, cores=64, gb_s=3.0, in_groups=in_groups)
    return max(one.supply, one.fold) / max(one.receive, one.send + one.merge)


def table(costs: Costs, *, in_groups: bool) -> str:
    """Return the forecasts for all clusters as a table."""
    parts_of_it = "supply s | fold s | receive s | send s | merge s | judge s"
    lines = [f"| nodes x cores | GB/s each | {parts_of_it} | total | bottleneck |", "|---|" + "---:|" * 8 + "---|"]
    for nodes, cores, gb_s in CLUSTERS:
        one = forecast(costs, tokens=FAR, nodes=nodes, cores=cores, gb_s=gb_s, in_groups=in_groups)
        parts = (one.supply, one.fold, one.receive, one.send, one.merge, one.judge)
        lines.append(f"| {nodes} x {cores} | {gb_s:g} | {' | '.join(f'{part:,.0f}' for part in parts)} | "
                     f"{one.total / 60:,.1f} min | {one.bottleneck} |")  # fmt: skip
    return "\n".join(lines) + "\n"


def kept() -> tuple[Costs, str]:
    """Return the constants that are kept, and on what they were measured."""
    stored = json.loads(CONSTANTS.read_text(encoding="utf-8"))
    return Costs(**stored["costs"]), stored["where"]


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
        stored = {"costs": asdict(costs), "where": where}
        CONSTANTS.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
        PAGE.write_text(render(costs, where), encoding="utf-8")
    print(render(costs, where))


if __name__ == "__main__":
    main(sys.argv[1:])
