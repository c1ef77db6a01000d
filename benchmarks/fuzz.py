"""Read and judge damaged files of every format: `python -m benchmarks.fuzz --seed 1 --cases 20000 --judged 2000`.

Each case is a sound file of tests/ with seeded damage (`benchmarks.mutations`), read as a run of its own or beside the
metrics of a sound one. It fails where anything but a PttError leaves ptt, where a fault of ptt is reported (exit 1),
where it takes more than 10 s of CPU time or 700 MB of memory, and where rows of the sound file are gone and neither bad
rows nor lost bytes nor a note say so. Printed are the seed, the failures by kind, and the smallest file of each; a case
is made again from its seed and number: `--seed 1 --first 123 --cases 1 --keep DIR`.
"""

from __future__ import annotations

import argparse
import faulthandler
import gzip
import io
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import polars as pl
import pyarrow as pa
from parser_samples import make_samples

import ptt
from benchmarks.mutations import Mutant, mutate
from ptt.diagnostics.errors import PttError
from ptt.diagnostics.parsers import PARSERS, run_files
from ptt.diagnostics.store.ingest import UNRECOGNISED, ingest
from ptt.reports.run.findings_json import findings_json
from ptt.reports.run.html import render_page

ROOT: Final = Path(__file__).parents[1]
CPU_SECONDS: Final = 10.0  # of a case: files here are below a megabyte
WALL_SECONDS: Final = 120.0  # until a case that hangs outside Python is ended with its traceback
MEMORY_MB: Final = 700  # that a case may add at its peak
ADDRESS_BYTES: Final = 12 << 30  # of a worker: beyond it a case ends the worker, not the machine
MAX_FILE: Final = 200_000  # bytes of a sound file
CASES_A_WORKER: Final = 250  # a fresh process then, so that no case inherits much
DRAWN_EVERY: Final = 8  # of judged cases: one in so many is drawn as a page as well
HOST: Final = ROOT / "sample_logs" / "healthy" / "trainer_state.json"
ARCHIVES: Final = "archives/"
ARCHIVED: Final = ("sample_logs/healthy/trainer_state.json", "flat.jsonl.gz", "completions/completions_00003.parquet")
TEARS: Final = ("cut", "torn")  # what leaves a file that is visibly damaged, whatever it was
TESTED_AT_EVERY_BYTE: Final = ("tensorboard", "console_log", "engine_log", "metrics_csv", "mlflow_files")
"""A cut of these may fall between two records, or behind a digit, and leave nothing torn;
tests/parsers/test_damaged_samples.py knows."""


@dataclass(frozen=True)
class Failure:
    """What a case did, and what had been done to it."""

    case: int
    kind: str
    what: str
    rel: str
    done: str
    size: int


@dataclass(frozen=True)
class Outcome:
    """What reading a file gave."""

    kind: str
    rows: int
    told: bool
    faults: str
    cells: Mapping[str, int] = field(default_factory=dict)  # by `table.column`, how many values are not null

    def lost(self, sound: Outcome) -> str:
        """Say what a sound file has more of; empty where that is nothing."""
        less = [f"{sound.rows} -> {self.rows} rows"] if self.rows < sound.rows else []
        less += [
            f"{name} {count} -> {self.cells.get(name, 0)}"
            for name, count in sound.cells.items()
            if self.cells.get(name, 0) < count
        ]
        return ", ".join(less[:4])


class Hang(BaseException):
    """Leaves a case that is out of CPU time; no edge that catches exceptions keeps it."""


def subjects(folder: Path) -> dict[str, bytes]:
    """Return the sound files by their path in a run: samples of every format, and fixtures by real writers."""
    files = {rel: path.read_bytes() for rel, path in make_samples(folder).items()}
    fixtures = ROOT / "tests" / "fixtures"
    for room in ("calls", "carriers", "dumps", "replays"):
        for path in sorted((fixtures / room).rglob("*")):
            if not path.is_file() or path.suffix == ".md" or path.name == "read_back.json.gz":
                continue
            data, rel = path.read_bytes(), f"{room}/{path.relative_to(fixtures / room)}"
            if rel.endswith((".wandb.gz", ".db.gz", ".zip.gz")):
                data, rel = gzip.decompress(data), rel.removesuffix(".gz")
            elif rel.endswith(".db.zst"):
                data, rel = _unzstd(data), rel.removesuffix(".zst")
            files[rel] = data
    for path in sorted((ROOT / "sample_logs").glob("*/*.json*")):
        files[f"sample_logs/{path.parent.name}/{path.name}"] = path.read_bytes()
    files |= archives({rel: files[rel] for rel in ARCHIVED})
    return {rel: data for rel, data in files.items() if 0 < len(data) <= MAX_FILE}


def archives(files: dict[str, bytes]) -> dict[str, bytes]:
    """Return archives of a run, which are judged as they are."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for rel, data in files.items():
            member = tarfile.TarInfo(rel)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    plain = stream.getvalue()
    packed = {"tar": plain, "tar.gz": gzip.compress(plain, mtime=0)}
    packed["tar.zst"] = pa.compress(plain, codec="zstd", asbytes=True)
    for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as archive:
            for rel, data in files.items():
                archive.writestr(zipfile.ZipInfo(rel, date_time=(2020, 1, 1, 0, 0, 0)), data, method)
        packed[f"{method}.zip"] = stream.getvalue()
    return {f"{ARCHIVES}run.{ending}": data for ending, data in packed.items()}


def _unzstd(data: bytes) -> bytes:
    unpacked: bytes = pa.CompressedInputStream(pa.BufferReader(data), "zstd").read()
    return unpacked


class Fuzzer:
    """Makes and runs cases of one seed in one folder."""

    def __init__(self, seed: int, folder: Path, judged: float) -> None:
        self.seed, self.folder, self.judged = seed, folder, judged
        self.files = subjects(folder / "sound")
        self.names = sorted(self.files)
        self.sound: dict[str, Outcome] = {}

    def case(self, number: int) -> tuple[str, Mutant, random.Random]:
        """Return the file of a case, damaged, and the dice that go on."""
        dice = random.Random(f"{self.seed}:{number}")
        rel = dice.choice(self.names)
        return rel, mutate(rel, self.files[rel], dice), dice

    def run(self, number: int) -> Failure | None:
        """Run one case."""
        rel, mutant, dice = self.case(number)
        judged = dice.random() < self.judged or rel.startswith(ARCHIVES)
        run = self._run_dir(rel, mutant.data, beside=judged and dice.random() < 0.3)
        sound = self._sound(rel)
        _reset_peak()
        before, started = _resident_mb(), time.process_time()
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        faulthandler.dump_traceback_later(WALL_SECONDS, exit=True)
        try:
            given = run / rel if rel.startswith(ARCHIVES) else run
            why = self._judge(given, drawn=dice.randrange(DRAWN_EVERY) == 0) if judged else None
            read = self._read(run, rel)
        except PttError:
            read, why = None, None
        except Hang:
            return self._failure(number, "hang", "over 10 s of CPU time", rel, mutant)
        except BaseException as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{type(error).__name__} in {Path(last.filename).name}:{last.lineno}"
            return self._failure(number, "exception", place, rel, mutant)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            faulthandler.cancel_dump_traceback_later()
        if why:
            return self._failure(number, "fault in judging", why, rel, mutant)
        if read is not None and read.faults:
            return self._failure(number, "fault in reading", read.faults, rel, mutant)
        if (grown := _peak_mb() - before) > MEMORY_MB:
            return self._failure(number, "memory", f"{grown} MB in {time.process_time() - started:.1f} s", rel, mutant)
        if read is not None and is_silent(sound, read, mutant):
            return self._failure(number, "silent loss", f"{sound.kind}: {read.lost(sound)}", rel, mutant)
        return None

    @staticmethod
    def _failure(number: int, kind: str, what: str, rel: str, mutant: Mutant) -> Failure:
        return Failure(number, kind, what, rel, mutant.done, len(mutant.data))

    def _run_dir(self, rel: str, data: bytes, *, beside: bool = False) -> Path:
        run = self.folder / "run"
        shutil.rmtree(run, ignore_errors=True)
        path = run / rel
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
        if beside:
            shutil.copy(HOST, run / "host.jsonl")
        return run

    def _sound(self, rel: str) -> Outcome:
        if rel not in self.sound:
            folder = self.folder / "whole"
            shutil.rmtree(folder, ignore_errors=True)
            (folder / rel).parent.mkdir(parents=True)
            (folder / rel).write_bytes(self.files[rel])
            self.sound[rel] = self._read(folder, rel)
        return self.sound[rel]

    def _read(self, run: Path, rel: str) -> Outcome:
        files, notes = run_files(run)
        store = self.folder / "store"
        shutil.rmtree(store, ignore_errors=True)
        manifest = ingest(files, notes=notes, parsers=PARSERS, folder=store, ptt_version="fuzz")
        rows = pl.read_parquet(store / "sources.parquet").filter(pl.col("path") == rel)
        faults = " ".join(f"{name}: {error}" for name, error in manifest.faults.items())
        if rows.is_empty():  # its name is masked
            return Outcome(UNRECOGNISED, 0, told=True, faults=faults)
        cells: Counter[str] = Counter()
        for part in store.glob("*/*.parquet"):
            table = pl.read_parquet(part, glob=False)
            cells.update({f"{part.parent.name}.{column.name}": len(column) - column.null_count() for column in table})
        row = rows.row(0, named=True)
        told = bool(row["rows_bad"] or row["bytes_lost"] or row["note"])
        return Outcome(row["kind"], row["rows_ok"], told, faults, cells)

    @staticmethod
    def _judge(run: Path, *, drawn: bool) -> str:
        """Judge a run as ptt diagnose does, and return the faults of ptt that it reports."""
        diagnosis = ptt.diagnose(run)
        json.loads(findings_json(diagnosis, "fuzz"))
        faults = [f"{crash.id}: {crash.error}" for crash in diagnosis.crashes]
        if drawn:
            faults += [str(fault) for fault in render_page(diagnosis).faults]
        return " ".join(faults)


def is_silent(sound: Outcome, read: Outcome, mutant: Mutant) -> bool:
    """Return whether rows or values of a sound file are gone and nothing says so; another format's are others."""
    if not mutant.held or read.kind not in (sound.kind, UNRECOGNISED) or read.told or not read.lost(sound):
        return False
    if read.kind == UNRECOGNISED and not any(word in mutant.done for word in TEARS):  # sound, and of another format
        return False
    return not ("cut" in mutant.done and sound.kind in TESTED_AT_EVERY_BYTE)


def _reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


@cache
def _page() -> int:
    return os.sysconf("SC_PAGE_SIZE")


def _resident_mb() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _page() >> 20


def _peak_mb() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) >> 10


def _hang(_: int, __: FrameType | None) -> None:
    raise Hang


def work(seed: int, first: int, last: int, judged: float) -> None:
    """Run cases in this process, and print a line before and after each."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_BYTES, ADDRESS_BYTES))
    signal.signal(signal.SIGPROF, _hang)
    with tempfile.TemporaryDirectory(prefix="ptt-fuzz-") as folder:
        fuzzer = Fuzzer(seed, Path(folder), judged)
        for number in range(first, last):
            print(json.dumps({"begun": number}), flush=True)
            failure = fuzzer.run(number)
            if failure is not None:
                print(json.dumps(asdict(failure)), flush=True)
        print(json.dumps({"begun": last}), flush=True)


def failures(seed: int, first: int, cases: int, judged: float) -> Iterator[Failure | int]:
    """Run cases in one worker after the other; yield failures, and after each worker how many cases are done."""
    at, last = first, first + cases
    while at < last:
        end = min(last, at + CASES_A_WORKER)
        command = [sys.executable, "-m", "benchmarks.fuzz", "--seed", str(seed), "--judged-share", str(judged)]
        command += ["--first", str(at), "--cases", str(end - at), "--worker"]
        env = {**os.environ, "POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=env
        ) as worker:
            assert worker.stdout is not None
            assert worker.stderr is not None
            for line in worker.stdout:
                found = json.loads(line)
                if "begun" in found:
                    at = found["begun"]
                else:
                    yield Failure(**found)
            stderr = worker.stderr.read()
        if worker.returncode or at < end:
            last_words = (stderr.strip().splitlines() or [""])[-1]
            yield Failure(at, "worker ended", f"code {worker.returncode}: {last_words[:200]}", "", "", 0)
            at += 1
        yield at - first


def keep(failed: list[Failure], seed: int, folder: Path) -> None:
    """Write the smallest file of each kind of failure."""
    with tempfile.TemporaryDirectory(prefix="ptt-fuzz-") as scratch:
        fuzzer = Fuzzer(seed, Path(scratch), 0.0)
        for failure in _smallest(failed):
            rel, mutant, _ = fuzzer.case(failure.case)
            path = folder / f"{seed}-{failure.case}" / rel
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(mutant.data)


def _smallest(failed: list[Failure]) -> list[Failure]:
    """Return the smallest file of each kind of failure."""
    by_kind: dict[tuple[str, str], Failure] = {}
    for failure in sorted(failed, key=lambda failure: (failure.size, failure.case)):
        key = (failure.kind, failure.what if failure.kind != "memory" else failure.rel)
        by_kind.setdefault(key, failure)
    return list(by_kind.values())


def fuzz(
    *, seed: int, first: int, cases: int, judged: float, seconds: float = float("inf")
) -> tuple[int, list[Failure]]:
    """Run cases until they or the time are through; return how many were run, and those that failed."""
    started, done, failed = time.monotonic(), 0, list[Failure]()
    for found in failures(seed, first, cases, judged):
        if isinstance(found, Failure):
            failed.append(found)
            print(f"  {found}", file=sys.stderr, flush=True)
            continue
        done = found
        print(f"  {done} of {cases}, {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
        if time.monotonic() - started > seconds:
            break
    return done, failed


def main() -> int:
    """Run the cases that the command line asks for."""
    asked: Any = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    asked.add_argument("--cases", type=int, default=20_000)
    asked.add_argument("--judged", type=int, default=None, help="of the cases; a tenth where it is not given")
    asked.add_argument("--judged-share", type=float, default=0.1, help=argparse.SUPPRESS)
    asked.add_argument("--first", type=int, default=0)
    asked.add_argument("--seconds", type=float, default=float("inf"), help="no worker begins after these")
    asked.add_argument("--keep", type=Path, help="folder for the smallest file of each kind of failure")
    asked.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = asked.parse_args()
    share = given.judged_share if given.judged is None else given.judged / max(1, given.cases)
    if given.worker:
        work(given.seed, given.first, given.first + given.cases, share)
        return 0
    print(f"seed {given.seed}", flush=True)
    done, failed = fuzz(seed=given.seed, first=given.first, cases=given.cases, judged=share, seconds=given.seconds)
    kinds = Counter(failure.kind for failure in failed)
    print(f"seed {given.seed}: {done} cases, {share:.0%} judged, {len(failed)} failed {dict(kinds) or ''}")
    for failure in _smallest(failed):
        print(f"  {failure}")
    if given.keep and failed:
        keep(failed, given.seed, given.keep)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
