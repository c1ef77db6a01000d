"""Run one contender in its own process: `python -m benchmarks.contenders NAME FOLDER --cores N`.

Prints one JSON line: seconds, CPU seconds, peak memory, and the error of the percentiles. Not timed: imports, the
comparison with the exact percentiles, and what a diagnosis knows before the part that is measured. The files are in the
page cache; nothing else is warm.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import polars as pl

LOGPS: Final = ("policy_logp", "old_logp", "rollout_logp", "ref_logp")
TOKENS_PER_ROW: Final = 1200
LABELS: Final = "select step, post, abs(policy_logp::double - ref_logp) as r from read_parquet('{files}')"
SLICES: Final = """
select step, place > began as post, abs(policy::double - ref) as r from (
    select step, began, unnest(model_mask) as model, unnest(range(1, len(model_mask) + 1)) as place,
        unnest(policy_logp) as policy, unnest(ref_logp) as ref
    from (select *, coalesce(nullif(strpos(array_to_string(model_mask::utinyint[], ''), '0000'), 0), 1 << 30) as began
        from read_parquet('{files}'))) where model"""
"""What ptt calls post-tool, in SQL: model tokens after the first observation of at least four tokens."""


@dataclass(frozen=True, kw_only=True)
class Spent:
    """What a piece of work took."""

    seconds: float
    cpu: float
    peak_mb: float
    error: dict[str, float] | None = None  # of the percentiles, relative: greatest by quantile
    part: dict[str, float] | None = None  # seconds and CPU seconds of the token pass within


@dataclass(frozen=True, kw_only=True)
class Part:
    """What a part of the work took."""

    seconds: float
    cpu: float


def bare(folder: Path) -> None:
    """Read every value once and sum it: the least that any tool must do."""
    import polars as pl

    frame = pl.scan_parquet(folder / "*.parquet")
    lists = ["model_mask", *(name for name in LOGPS if name in frame.collect_schema())]
    frame.select(pl.col("step").sum(), pl.col(lists).list.sum().sum()).collect(engine="streaming")


def bare_labelled(folder: Path) -> None:
    """The same over the labelled files, with one row per token."""
    import polars as pl

    files = str(folder / "labelled" / "flat_*.parquet")
    pl.scan_parquet(files).select(pl.all().sum()).collect(engine="streaming")


def bare_log(folder: Path) -> None:
    """Read a metric log and sum each metric: columns, or values by their names."""
    import polars as pl

    (path,) = folder.glob("metrics.*")
    frame = pl.scan_csv(path) if path.suffix == ".csv" else pl.scan_ndjson(path)
    if "name" in frame.collect_schema():
        frame.group_by("name").agg(pl.col("value").sum()).collect(engine="streaming")
    else:
        frame.select(pl.all().sum()).collect(engine="streaming")


def token_pass(folder: Path) -> pl.DataFrame:
    """The token pass: cells, single sequences of a share in long runs, and positions after an observation."""
    import polars as pl

    from ptt.diagnostics.engines import freed_memory
    from ptt.diagnostics.statistics.logprob_pairs import available_pairs
    from ptt.diagnostics.statistics.percentiles import percentiles
    from ptt.diagnostics.statistics.token_pass import token_pass

    freed_memory.keep()  # as a diagnosis does
    frame = pl.scan_parquet(folder / "*.parquet")
    logps = [name for name in LOGPS if name in frame.collect_schema()]
    columns = frame.select("step", "model_mask", *logps).with_row_index("seq")
    pairs = available_pairs(set(logps))
    tables = token_pass(
        columns,
        pairs=pairs,
        min_observation=4,
        tokens_per_row=TOKENS_PER_ROW,
        steps=len(list(folder.glob("step_*.parquet"))),
        kept=kept_one_by_one(folder),
    )
    found = percentiles(tables.cells_of(0), by=("step", "slice"))
    return found.with_columns((pl.col("slice") == 1).alias("post"))


@cache
def kept_one_by_one(folder: Path) -> Any:
    """Choose single sequences by the ids and steps that a diagnosis reads with the other single values, not timed."""
    import polars as pl

    from ptt.diagnostics.statistics.partial_tables import kept_sequences

    ids = pl.scan_parquet(folder / "*.parquet").select("step", "group_id").collect(engine="streaming")
    return kept_sequences(ids["step"].to_numpy(), ids["group_id"].hash(seed=0).to_numpy())


def diagnose(folder: Path) -> None:
    """The whole diagnosis from files to verdict, with resampling, without figures."""
    import ptt

    ptt.diagnose(folder)


def diagnose_kept(folder: Path) -> Part | None:
    """The same with a kept store, so that the next call reads only what is new; the token pass is clocked by itself."""
    import ptt
    from ptt.diagnostics.engines import local

    passes: list[Part] = []
    read = local.read_token_tables

    def clocked(*given: Any, **named: Any) -> local.Tokens | None:
        own, begin = _cpu(), time.perf_counter()
        tokens = read(*given, **named)
        passes.append(Part(seconds=time.perf_counter() - begin, cpu=_cpu() - own))
        return tokens

    local.read_token_tables = clocked
    ptt.diagnose(folder, out=folder.parent / f"{folder.name}-out")
    return passes[0] if passes else None  # none where the diagnosis is kept


def duckdb_approx(folder: Path) -> pl.DataFrame:
    """Approximate quantiles (t-digest) by step and slice, from the run's own files."""
    return _duckdb(SLICES, folder / "*.parquet", "approx_quantile")


def duckdb_exact(folder: Path) -> pl.DataFrame:
    """Exact quantiles by step and slice, from the run's own files."""
    return _duckdb(SLICES, folder / "*.parquet", "quantile_cont")


def duckdb_approx_labelled(folder: Path) -> pl.DataFrame:
    """Approximate quantiles from the labelled files."""
    return _duckdb(LABELS, folder / "labelled" / "flat_*.parquet", "approx_quantile")


def duckdb_exact_labelled(folder: Path) -> pl.DataFrame:
    """Exact quantiles from the labelled files."""
    return _duckdb(LABELS, folder / "labelled" / "flat_*.parquet", "quantile_cont")


def _duckdb(tokens: str, files: Path, function: str) -> pl.DataFrame:
    import duckdb
    import polars as pl

    from benchmarks.data import QUANTILES

    connection = duckdb.connect()
    connection.execute(f"set threads = {len(os.sched_getaffinity(0)) if CAN_PIN else os.cpu_count()}")
    quantiles = f"{function}(r, [{', '.join(map(str, QUANTILES.values()))}])"
    query = f"select step, post, {quantiles} from ({tokens.format(files=files)}) group by step, post"
    rows = [(step, post, *values) for step, post, values in connection.execute(query).fetchall()]
    return pl.DataFrame(rows, schema=["step", "post", *QUANTILES], orient="row")


def polars_exact(folder: Path) -> pl.DataFrame:
    """Exact quantiles by step and slice in Polars' streaming engine, from the run's own files."""
    import polars as pl

    spelt = pl.col("model_mask").cast(pl.List(pl.UInt8)).cast(pl.List(pl.String)).list.join("")
    frame = pl.scan_parquet(folder / "*.parquet").select(
        "step",
        "model_mask",
        "policy_logp",
        "ref_logp",
        spelt.str.find("0000", literal=True).fill_null(1 << 31).alias("began"),
        pl.int_ranges(pl.col("model_mask").list.len(), dtype=pl.UInt32).alias("place"),
    )
    tokens = frame.explode("model_mask", "policy_logp", "ref_logp", "place").filter("model_mask")
    return _polars(tokens.with_columns((pl.col("place") > pl.col("began")).alias("post")))


def polars_exact_labelled(folder: Path) -> pl.DataFrame:
    """The same from the labelled files."""
    import polars as pl

    return _polars(pl.scan_parquet(str(folder / "labelled" / "flat_*.parquet")))


def _polars(tokens: pl.LazyFrame) -> pl.DataFrame:
    import polars as pl

    from benchmarks.data import QUANTILES

    size = (pl.col("policy_logp").cast(pl.Float64) - pl.col("ref_logp")).abs()
    quantiles = [size.quantile(q, interpolation="linear").alias(name) for name, q in QUANTILES.items()]
    return tokens.group_by("step", "post").agg(quantiles).collect(engine="streaming")


def pandas_exact(folder: Path) -> pl.DataFrame:
    """Exact quantiles by step and slice in pandas, from the run's own files, a file at a time."""
    import pandas as pd

    def read(path: Path) -> pd.DataFrame:
        lists = ["model_mask", "policy_logp", "ref_logp"]
        rows = pd.read_parquet(path, columns=["step", *lists])
        rows["began"] = rows["model_mask"].map(lambda mask: mask.tobytes().find(bytes(4))) % (1 << 31)  # -1: never
        tokens = rows.explode(lists)
        tokens["post"] = tokens.groupby(level=0).cumcount() > tokens["began"]
        return tokens.loc[tokens["model_mask"].astype(bool), ["step", "post", "policy_logp", "ref_logp"]]

    return _pandas([read(path) for path in sorted(folder.glob("step_*.parquet"))])


def pandas_exact_labelled(folder: Path) -> pl.DataFrame:
    """The same from the labelled files."""
    import pandas as pd

    return _pandas([pd.read_parquet(path) for path in sorted((folder / "labelled").glob("flat_*.parquet"))])


def _pandas(parts: list[Any]) -> pl.DataFrame:
    import pandas as pd
    import polars as pl

    from benchmarks.data import QUANTILES

    tokens = pd.concat(parts, ignore_index=True)
    tokens["r"] = (tokens["policy_logp"].astype("float64") - tokens["ref_logp"].astype("float64")).abs()
    found = tokens.groupby(["step", "post"])["r"].quantile(list(QUANTILES.values())).unstack()
    found.columns = list(QUANTILES)
    return pl.DataFrame({name: values.to_numpy() for name, values in found.reset_index().items()})


Work = Callable[[Path], "pl.DataFrame | Part | None"]
WORK: Final[dict[str, Work]] = {
    "bare": bare,
    "bare_labelled": bare_labelled,
    "bare_log": bare_log,
    "token_pass": token_pass,
    "diagnose": diagnose,
    "diagnose_kept": diagnose_kept,
    "duckdb_approx": duckdb_approx,
    "duckdb_exact": duckdb_exact,
    "polars_exact": polars_exact,
    "pandas_exact": pandas_exact,
    "duckdb_approx_labelled": duckdb_approx_labelled,
    "duckdb_exact_labelled": duckdb_exact_labelled,
    "polars_exact_labelled": polars_exact_labelled,
    "pandas_exact_labelled": pandas_exact_labelled,
}
IMPORTS: Final = {"duckdb": "duckdb", "pandas": "pandas", "diagnose": "ptt.api",
                  "token": "ptt.diagnostics.statistics.token_pass"}  # fmt: skip
"""What is imported before the clock starts, by the first word of a name."""
KNOWN: Final[dict[str, Callable[[Path], object]]] = {"token": kept_one_by_one}
"""What is known before it starts."""
CAN_PIN: Final = hasattr(os, "sched_setaffinity")  # not on macOS and Windows


def spent(work: Work, folder: Path) -> Spent:
    """Do the work once, and say what it took."""
    own, begin = _cpu(), time.perf_counter()
    found = work(folder)
    seconds, cpu = time.perf_counter() - begin, _cpu() - own
    whole = Spent(seconds=seconds, cpu=cpu, peak_mb=peak_mb())
    if found is None:
        return whole
    return (
        replace(whole, part=asdict(found)) if isinstance(found, Part) else replace(whole, error=error_of(found, folder))
    )


def peak_mb(process: str = "self") -> float:
    """Return the peak memory of a process: by Linux' own count, as getrusage also counts the caller's before exec."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss if process == "self" else 0
        return most / (1 << (20 if sys.platform == "darwin" else 10))


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def error_of(found: pl.DataFrame, folder: Path) -> dict[str, float] | None:
    """Return how far percentiles are from the exact ones, relative: the greatest of all steps and slices."""
    import polars as pl

    from benchmarks.data import LABELLED, QUANTILES, TRUTH

    path = folder / LABELLED / TRUTH
    if not path.exists():
        return None
    exact = pl.read_parquet(path)
    both = exact.join(found.with_columns(pl.col("step").cast(pl.Int64)), on=["step", "post"], suffix="_found")
    if both.height != exact.height:
        raise SystemExit(f"{both.height} of {exact.height} steps and slices were found")
    missing = [name for name in QUANTILES if not both[f"{name}_found"].is_finite().fill_null(False).all()]
    if missing:
        raise SystemExit(f"{', '.join(missing)} of some steps and slices are no numbers")
    if "n_found" in both.columns and (both["n"].cast(pl.Int64) != both["n_found"].cast(pl.Int64)).any():
        raise SystemExit("tokens were put into other slices than the labels say")
    off = both.select(((pl.col(f"{name}_found") / pl.col(name)) - 1).abs().max().alias(name) for name in QUANTILES)
    return {name: float(value) for name, value in off.row(0, named=True).items()}


def main() -> None:
    """Pin this process, do the work and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=WORK)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cores", type=int, default=0, help="run on so many cores (0: all)")
    asked = parser.parse_args()
    if asked.cores:
        os.environ["POLARS_MAX_THREADS"] = str(asked.cores)
        if CAN_PIN:
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: asked.cores])
    importlib.import_module("polars")
    kind = asked.name.split("_")[0]
    importlib.import_module(IMPORTS.get(kind, "json"))
    if kind in KNOWN:
        KNOWN[kind](asked.folder)
    print(json.dumps(asdict(spent(WORK[asked.name], asked.folder))))


if __name__ == "__main__":
    main()
