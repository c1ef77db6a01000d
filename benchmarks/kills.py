"""What is left of a command that is killed: processes, temporary folders, half-written files, and a wrong next run.

`python -m benchmarks.kills --kills 60` stops every command that writes at seeded random moments by TERM, HUP, INT and
KILL, looks two seconds later, and runs the same command once more: its answer must be that of one nobody disturbed, and
so must the tables of its store. What ends before its signal comes does not count, and is drawn again.
Linux only: processes are found in /proc by a mark in their environment.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import polars as pl

ROOT: Final = Path(__file__).parents[1]
SAMPLES: Final = ("healthy", "collapse")
LONG: Final = "long"
REPEATED: Final = 16  # times a sample
SAMPLE_STEPS: Final = 1_000  # more than a sample has
LINES: Final = 300_000
SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL)
PROMISED_SECONDS: Final = 2.0  # from the signal until no process is left
LATEST: Final = 1.05  # of the time that an undisturbed command takes: the end of one that takes longer counts as well
TRIES: Final = 8  # at a moment that is in time: a machine that others use may have been slow at first
EARLIEST_SECONDS: Final = 0.1
LIMIT_SECONDS: Final = 300.0
MARK: Final = "PTT_KILLS_MARK"
UNFINISHED: Final = (".part", ".old")
COMMANDS: Final[Mapping[str, Sequence[str]]] = {
    "diagnose": ("diagnose", "runs/healthy", "--out", "out", "--figures", "out/figures"),
    "diagnose several": ("diagnose", "runs/healthy", "runs/collapse", "--out", "out", "--jobs", "2"),
    "diagnose archive": ("diagnose", "packed.tar.gz", "--out", "out"),
    "report": ("report", "runs/healthy", "--out", "out", "--postmortem"),
    "compare": ("compare", "runs/healthy", "runs/collapse", "--out", "out"),
    "gate": ("gate", "runs/healthy", "--out", "out"),
    "gate many": ("gate", "runs/healthy", "runs/collapse", "--out", "out", "--jobs", "2"),
    "baseline": ("baseline", "update", "out/base.toml", "runs/healthy", "--out", "out/stores"),
    "ingest": ("ingest", "runs/long", "--out", "out"),
    "pieces": ("diagnose", "runs/collapse", "--out", "out"),
    "pieces apart": ("diagnose", "runs/collapse", "--out", "out"),
}
IN_PIECES: Final[Mapping[str, str]] = {"pieces": "here", "pieces apart": "apart"}  # with many: see small_pieces.py


@dataclass(frozen=True, kw_only=True)
class Undisturbed:
    """What a command gives where nobody stops it: seconds, exit code, and its answers by file."""

    seconds: float
    code: int
    answers: Mapping[str, bytes]


@dataclass(frozen=True, kw_only=True)
class Kill:
    """One kill, and what was wrong after it; `in_time`: the command ended of it."""

    command: str
    how: str
    at: float
    in_time: bool
    code: int
    faults: tuple[str, ...]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=16)
    parser.add_argument("--only", nargs="+", choices=list(COMMANDS), default=list(COMMANDS), help="these commands")
    parser.add_argument("--signal", choices=[one.name for one in SIGNALS], help="this signal alone")
    chosen = parser.parse_args()
    signals = [one for one in SIGNALS if chosen.signal in (None, one.name)]
    draw = random.Random(chosen.seed)
    with TemporaryDirectory(prefix="kills-") as folder:
        os.chdir(folder)
        _make_runs()
        undisturbed: dict[str, Undisturbed] = {}
        kills = []
        for number in range(chosen.kills):
            name = chosen.only[number % len(chosen.only)]
            if name not in undisturbed:
                undisturbed[name] = _undisturbed(name)
            how = signals[(number // len(chosen.only) + number) % len(signals)]
            for attempt in range(TRIES):
                at = draw.uniform(EARLIEST_SECONDS, LATEST * undisturbed[name].seconds)
                kills.append(_kill(name, how, at, undisturbed[name], f"{chosen.seed}-{attempt}-{number}"))
                print(number, kills[-1], flush=True)
                if kills[-1].in_time:
                    break
    bad = [kill for kill in kills if kill.faults]
    in_time = sum(kill.in_time for kill in kills)
    print(f"seed {chosen.seed}: {in_time} kills in time, {len(kills) - in_time} too late, {len(bad)} bad")
    sys.exit(bool(bad))


def _make_runs() -> None:
    for name in SAMPLES:
        shutil.copytree(ROOT / "sample_logs" / name, Path("runs") / name)
    with tarfile.open("packed.tar.gz", "w:gz") as archive:
        archive.add("runs/healthy", "healthy")
    _make_long_run(Path("runs") / LONG)


def _make_long_run(folder: Path) -> None:
    """Repeat a sample, so that reading it takes longer than starting to."""
    shutil.copytree(Path("runs") / SAMPLES[0], folder)
    for path in sorted((folder / "tokens").iterdir()):
        rows = pl.read_parquet(path)
        for number in range(1, REPEATED):
            shifted = rows.with_columns(pl.col("step") + number * SAMPLE_STEPS)
            shifted.write_parquet(path.with_name(f"{number:02d}_{path.name}"))
    lines = (json.dumps({"step": step, "loss": 1 / step, "reward": step % 7, "kl": 0.01}) for step in range(1, LINES))
    (folder / "metrics.jsonl").write_text("\n".join(lines), encoding="ascii")


def _undisturbed(name: str) -> Undisturbed:
    shutil.rmtree("out", ignore_errors=True)
    start = time.monotonic()
    code = _started(name, "undisturbed").wait(LIMIT_SECONDS)
    return Undisturbed(seconds=time.monotonic() - start, code=code, answers=_answers())


def _kill(name: str, how: signal.Signals, at: float, undisturbed: Undisturbed, mark: str) -> Kill:
    """Stop a command that starts from nothing, or from what lies there already, and run it once more."""
    if mark.endswith(("1", "4", "7")):  # over the output of another state of the run
        for log in Path("runs").glob("*/trainer_state.json"):
            os.utime(log, (log.stat().st_atime, log.stat().st_mtime + 1))
    else:
        shutil.rmtree("out", ignore_errors=True)
    process = _started(name, mark)
    try:
        process.wait(at)
    except subprocess.TimeoutExpired:
        process.send_signal(how)
    end = time.monotonic() + PROMISED_SECONDS
    while _marked(mark) and time.monotonic() < end:
        time.sleep(0.02)
    faults = [f"still runs: {words}" for words in _marked(mark)]
    code = process.wait(LIMIT_SECONDS)
    code = code if code >= 0 else 128 - code
    if code not in (undisturbed.code, 128 + how):
        faults.append(f"exit code {code}")
    faults += [f"half written: {path}" for path in _torn()]
    if how != signal.SIGKILL:
        faults += [f"temporary: {path.name}" for path in Path("tmp").iterdir() if path.name.startswith("ptt-")]
    again = _started(name, f"{mark}-again").wait(LIMIT_SECONDS)
    if again != undisturbed.code:
        faults.append(f"the next run ends with {again}")
    answers = _answers()
    faults += [
        f"another answer: {path}" for path in undisturbed.answers if answers.get(path) != undisturbed.answers[path]
    ]
    left = (path for path in Path("out").rglob("*") if path.name.endswith(UNFINISHED))
    faults += [f"unfinished after the next run: {path}" for path in left]
    return Kill(command=name, how=how.name, at=round(at, 2), in_time=code == 128 + how, code=code, faults=tuple(faults))


def _started(name: str, mark: str) -> subprocess.Popen[bytes]:
    shutil.rmtree("tmp", ignore_errors=True)
    Path("tmp").mkdir()
    module = ("benchmarks.small_pieces", IN_PIECES[name]) if name in IN_PIECES else ("ptt",)
    environment = {**os.environ, MARK: mark, "TMPDIR": str(Path("tmp").absolute()), "PYTHONPATH": str(ROOT)}
    with Path("said.txt").open("wb") as said:
        return subprocess.Popen(
            [sys.executable, "-m", *module, *COMMANDS[name]],
            env=environment,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )


def _marked(mark: str) -> list[str]:
    """Give the command lines of processes that carry a mark and have not ended."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            if f"{MARK}={mark}".encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:80])
        except OSError:  # no process, another user's, or one that has just ended
            continue
    return found


def _answers() -> dict[str, bytes]:
    """Give what a command answers: JSON, Markdown and baseline, and the tables of its stores, without their times."""
    found = {}
    for path in sorted(Path("out").rglob("*")):
        of_store = bool({"store", "stores"} & set(path.parts))
        if path.is_file() and path.suffix in ({".parquet"} if of_store else {".json", ".md", ".toml"}):
            found[path.as_posix()] = path.read_bytes()
        elif of_store and path.name == "manifest.json":
            found[path.as_posix()] = json.dumps({**json.loads(path.read_bytes()), "fingerprint": ""}).encode()
    return found


def _torn() -> Iterator[Path]:
    """Yield files under their own names that hold less than they should."""
    for path in Path("out").rglob("*"):
        if not path.is_file() or any(part.endswith(UNFINISHED) for part in path.parts) or "tokens" in path.parts:
            continue  # `tokens` counts from when its key is written, the last of it
        try:
            match path.suffix:
                case ".json":
                    json.loads(path.read_bytes())
                case ".parquet":
                    pl.read_parquet_schema(path)
                case ".html" if not path.read_bytes().rstrip().endswith(b"</html>"):
                    yield path
        except (ValueError, OSError, pl.exceptions.PolarsError):
            yield path


if __name__ == "__main__":
    main()
