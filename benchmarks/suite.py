"""Measure ptt beside what a user would write instead: `make bench`, or `make bench BENCH=full` for all of it.

Each measurement runs in its own process. Rounds alternate between everything that is compared, so that other load on
the machine falls on all of them; medians are reported. `--page` writes docs/benchmarks.md from the results.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks import many_runs
from benchmarks.contenders import CAN_PIN, peak_mb
from benchmarks.data import HOME, TOKENS, Shape, write_labelled, write_run
from benchmarks.metric_logs import LOGS, name_of, write_log
from benchmarks.page import PAGE, RESULTS, TOKEN_PASS, render
from benchmarks.traces import family

Row = dict[str, Any]

PTT: Final = ("bare", "token_pass", "diagnose")
OTHERS: Final = ("duckdb_approx", "duckdb_approx_labelled", "duckdb_exact", "duckdb_exact_labelled", "bare_labelled")
IN_MEMORY: Final = ("polars_exact", "polars_exact_labelled", "pandas_exact", "pandas_exact_labelled")
"""These hold all tokens in memory, so they are measured at 20M only."""
WORK_LIMIT: Final = 900.0  # seconds for one process: a slower one is left out, and the page says so
UNGROWN: Final = Shape(name="base", steps=50, sequences=64, distinct=10)
GROWN: Final = {
    "steps": ("steps", (50, 200, 800, 3200)),
    "sequences a step": ("sequences", (64, 256, 1024, 4096)),
    "pairs": ("pairs", (1, 2, 4)),
    "environments": ("slices", (1, 4, 16, 64)),
}
SCRATCH: Final = "{scratch}"  # in a command: a folder that is its own each time
LIBRARIES: Final = ("polars", "numpy", "pyarrow", "duckdb", "pandas")


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How much is measured."""

    tokens: tuple[str, ...]
    grown: int  # of the values of GROWN
    steps: int  # of the run that grows by one
    metric_rows: int
    archives: tuple[int, ...]
    everything: bool = False  # the other tools on every number of cores too


SCALES: Final = {
    "small": Scale(tokens=("20M",), grown=2, steps=100, metric_rows=20_000, archives=(20,)),
    "full": Scale(
        tokens=("20M", "200M"), grown=4, steps=500, metric_rows=1_000_000, archives=(100, 1000), everything=True
    ),
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One thing to measure: where it stands in the results, and the command."""

    section: str
    data: str
    cores: int
    name: str
    command: tuple[str, ...]


def main() -> None:
    """Measure, print each line as it is known, and write results and page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", choices=SCALES, default="small")
    parser.add_argument(
        "--tokens", nargs="*", choices=TOKENS, help="these runs anew, others stay as measured; 1B takes 17 GB of disk"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sections", nargs="*", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument(
        "--results", type=Path, default=HOME / "results.json", help="sections measured anew replace old"
    )
    parser.add_argument(
        "--page", action="store_true", help=f"write {PAGE.name} from the results, which are kept beside"
    )
    asked = parser.parse_args()
    scale = SCALES[asked.scale]
    if asked.tokens:
        scale = replace(scale, tokens=tuple(asked.tokens))
    path = RESULTS if asked.page else asked.results
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"rows": []}
    for name in asked.sections:
        rows = list(SECTIONS[name](scale, asked.rounds))
        anew = {row["data"] for row in rows} if asked.tokens else {row["data"] for row in kept["rows"]}
        kept["rows"] = [row for row in kept["rows"] if row["section"] != name or row["data"] not in anew] + rows
        kept.setdefault("machine", {})[name] = machine()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    if asked.page:
        PAGE.write_text(render(kept), encoding="utf-8")


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if CAN_PIN else os.cpu_count() or 1


def core_counts() -> list[int]:
    """Return 1, 2, 4, ... and all; where a process cannot be pinned, all."""
    return sorted(
        {*(1 << bit for bit in range(cores().bit_length()) if 1 << bit <= cores()), cores()} if CAN_PIN else {0}
    )


def machine() -> dict[str, str]:
    """Say what this was measured on."""
    model = ""
    if (info := Path("/proc/cpuinfo")).exists():
        model = next((line.split(":")[1].strip() for line in info.read_text().splitlines() if "model name" in line), "")
    here = {"cores": str(cores()), "cpu": model or platform.processor(), "system": platform.system()}
    if hasattr(os, "sysconf"):
        here["memory"] = f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GB"
        here["load"] = f"{os.getloadavg()[0]:.1f}"
    here["python"] = platform.python_version()
    for library in LIBRARIES:
        try:
            here[library] = version(library)
        except PackageNotFoundError:
            here[library] = "absent"
    return here


def token_section(scale: Scale, rounds: int) -> Iterator[Row]:
    """The pass and the diagnosis beside the bare scan and the other tools, on 1, 2, ... all cores."""
    for data in scale.tokens:
        folder = write_run(TOKENS[data])
        others = {"20M": (*OTHERS, *IN_MEMORY), "200M": OTHERS}.get(data, ())
        if others:
            write_labelled(TOKENS[data])
        counts = core_counts() if data != "1B" else core_counts()[-1:]  # one core takes minutes
        cases = [contender("tokens", data, count, name, folder) for count in counts for name in PTT]
        for count in counts if data == "20M" and scale.everything else counts[-1:]:
            cases += [contender("tokens", data, count, name, folder) for name in others]
        yield from in_turn(cases, rounds)


def grown_section(scale: Scale, rounds: int) -> Iterator[Row]:
    """Steps, sequences, pairs and slices, each grown alone."""
    for what, (field, values) in GROWN.items():
        for value in values[: scale.grown]:
            shape = replace(UNGROWN, name=f"grown-{field}-{value}", **{field: value})
            folder = write_run(shape)
            yield from in_turn([contender("grown", f"{what}: {value}", 0, name, folder) for name in PTT], rounds)
            shutil.rmtree(folder)


def step_section(scale: Scale, rounds: int) -> Iterator[Row]:
    """A run that grew by one step since it was last looked at."""
    shape = Shape(name=f"growing-{scale.steps}", steps=scale.steps + 1, sequences=128, distinct=20)
    whole = sorted(write_run(shape).glob("step_*.parquet"))
    found: dict[str, list[Row | None]] = {"first": [], "unchanged": [], "one step more": []}
    for _ in range(rounds):
        with TemporaryDirectory(dir=HOME) as scratch:
            run = Path(scratch) / "run"
            run.mkdir()
            for path in whole[:-1]:
                (run / path.name).hardlink_to(path)
            for name, each in found.items():
                if name == "one step more":
                    (run / whole[-1].name).hardlink_to(whole[-1])
                each.append(measured(contender("step", "", 0, "diagnose_kept", run)))
    case = Case(section="step", data=f"{scale.steps} steps", cores=cores(), name="", command=())
    for name, each in found.items():
        yield median_row(replace(case, name=name), each)
        if passes := [one | one["part"] for one in each if one is not None and one["part"] is not None]:
            yield median_row(replace(case, name=name + TOKEN_PASS), passes)
    shutil.rmtree(whole[0].parent)


def metrics_section(scale: Scale, rounds: int) -> Iterator[Row]:
    """Metric logs of several shapes, each beside Polars reading and summing it; the first by the whole command too."""
    for key, log in LOGS.items():
        folder, data = write_log(key, scale.metric_rows), name_of(log, scale.metric_rows)
        cases = [contender("metrics", data, 0, name, folder) for name in ("bare_log", "diagnose")]
        if key == next(iter(LOGS)):
            command = (sys.executable, "-m", "ptt", "diagnose", str(folder), "--out", f"{SCRATCH}/run")
            cases.append(Case(section="metrics", data=data, cores=cores(), name="command", command=command))
        yield from in_turn(cases, rounds)
        shutil.rmtree(folder)  # gigabytes


def start_section(_: Scale, rounds: int) -> Iterator[Row]:
    """What a command costs before it does anything."""
    commands = {
        "python -c pass": ("-c", "pass"),
        "python -c 'import ptt'": ("-c", "import ptt"),
        "ptt --version": ("-m", "ptt", "--version"),
        "ptt diagnose --help": ("-m", "ptt", "diagnose", "--help"),
    }
    cases = [
        Case(section="start", data="", cores=cores(), name=name, command=(sys.executable, *words))
        for name, words in commands.items()
    ]
    yield from in_turn(cases, 3 * rounds)


def archive_section(scale: Scale, _: int) -> Iterator[Row]:
    """Gating many archived runs: a first pass, and the same once more."""
    for count in scale.archives:
        with TemporaryDirectory() as scratch:
            many_runs.make(Path(scratch) / "runs", count)
            for name in ("first pass", "second pass"):
                took = many_runs.gate(Path(scratch) / "runs", Path(scratch) / "out", cores(), [])
                case = Case(section="archives", data=f"{count} archives", cores=cores(), name=name, command=())
                yield median_row(case, [{"seconds": took.seconds, "cpu": took.cpu, "peak_mb": took.peak}])


SECTIONS: Final = {
    "tokens": token_section,
    "grown": grown_section,
    "step": step_section,
    "metrics": metrics_section,
    "start": start_section,
    "archives": archive_section,
}


def contender(section: str, data: str, count: int, name: str, folder: Path) -> Case:
    """Return the case of one of benchmarks/contenders.py."""
    command = (sys.executable, "-m", "benchmarks.contenders", name, str(folder), "--cores", str(count))
    return Case(section=section, data=data, cores=count or cores(), name=name, command=command)


def in_turn(cases: Sequence[Case], rounds: int) -> Iterator[Row]:
    """Measure all cases once, then once more; yield each one's medians. What takes too long once is not tried again."""
    found: dict[Case, list[Row]] = {case: [] for case in cases}
    failed: set[Case] = set()
    for number in range(rounds):
        for case in cases:
            if case in failed:
                continue
            one = measured(case)
            if one is None:
                failed.add(case)
                continue
            found[case].append(one)
            print(f"round {number + 1} of {rounds}: {case.data} {case.cores} cores {case.name} {one['seconds']:.3f} s, "
                  f"{one['cpu']:.3f} CPU s, {one['peak_mb']:.0f} MB", file=sys.stderr, flush=True)  # fmt: skip
    for case, each in found.items():
        yield median_row(case, each)


def measured(case: Case) -> Row | None:
    """Run a command; None where it took too long or could not do it."""
    begin = time.perf_counter()
    with TemporaryDirectory() as scratch:
        printed, errors = Path(scratch) / "printed", Path(scratch) / "errors"
        with printed.open("wb") as out, errors.open("wb") as err:
            command = [part.replace(SCRATCH, scratch) for part in case.command]
            running = subprocess.Popen(command, stdout=out, stderr=err)
            used, together = watch(running, begin + WORK_LIMIT)
        seconds = time.perf_counter() - begin
        text, why = (path.read_text(encoding="utf-8", errors="replace") for path in (printed, errors))
    if running.returncode:
        last = why.strip().rpartition("\n")[2]
        print(f"{case.name} on {case.data} ended with code {running.returncode}: {last}", file=sys.stderr)
        return None
    if "benchmarks.contenders" in case.command:
        inner: Row = json.loads(text)
        return inner | {"peak_mb": max(together, inner["peak_mb"])}
    return {"seconds": seconds, "cpu": used.ru_utime + used.ru_stime, "peak_mb": together}


def watch(running: subprocess.Popen[bytes], until: float) -> tuple[resource.struct_rusage, float]:
    """Wait for a process; return what it used, and the peak memory in MB of it and of all that it started, together."""
    peak = 0.0
    page = os.sysconf("SC_PAGE_SIZE")
    while True:
        done, status, used = os.wait4(running.pid, os.WNOHANG)
        if done:
            running.returncode = os.waitstatus_to_exitcode(status)
            return used, peak
        if time.perf_counter() > until:
            running.kill()
        together = page * sum(map(resident, family(running.pid))) / 2**20
        peak = max(peak, together, peak_mb(str(running.pid)))
        time.sleep(0.01)


def resident(process: int) -> int:
    """Return the pages a process holds; 0 where it has ended or the system does not tell."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except OSError:
        return 0


def median_row(case: Case, each: Iterable[Row | None]) -> Row:
    """Print and return the medians of a case."""
    done = [one for one in each if one is not None]
    row: Row = {"section": case.section, "data": case.data, "cores": case.cores, "name": case.name, "rounds": len(done)}
    if done:
        row |= {key: round(statistics.median(one[key] for one in done), 4) for key in ("seconds", "cpu")}
        row["least"] = round(min(one["seconds"] for one in done), 4)
        row["peak_mb"] = round(max(one["peak_mb"] for one in done))
        if (error := done[0].get("error")) is not None:
            row["error"] = {name: round(value, 6) for name, value in error.items()}
        print(f"{case.data:24} {case.cores:3} cores {case.name:26} {row['seconds']:9.3f} s {row['cpu']:9.3f} CPU s "
              f"{row['peak_mb']:7.0f} MB", flush=True)  # fmt: skip
    return row


if __name__ == "__main__":
    main()
