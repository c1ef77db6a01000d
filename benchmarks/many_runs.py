"""What gating many archived runs costs: a first pass, and a second one over the same archives.

`python -m benchmarks.many_runs --runs 100` packs the sample runs and the tests' real runs again and again, each cut at
another step, as .tar.zst and .zip by turns; one archive is torn, one is empty and one unpacks to more than a log can.
Each pass is one `ptt gate` in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tarfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Final

import pyarrow as pa

ROOT: Final = Path(__file__).parents[1]
SAMPLES: Final = ("collapse", "healthy", "kl_penalised", "tool_tail_growth")
STEPPED: Final = re.compile(r"(?:step|completions)_(\d+)\.parquet$")
BAD: Final = 3  # torn, empty, bomb
BOMB: Final = 1_200 << 20  # bytes of zeros: above what is allowed whatever the size of the archive
TIME: Final = 1_760_000_000  # of every member

Files = dict[str, bytes]


def bases() -> Iterator[tuple[str, Files]]:
    """Give every run there is, by name, as files."""
    for name in SAMPLES:
        folder = ROOT / "sample_logs" / name
        yield name, {path.relative_to(folder).as_posix(): path.read_bytes() for path in files_below(folder)}
    for path in sorted((ROOT / "tests" / "fixtures" / "runs").glob("*.tar.zst")):
        content = pa.CompressedInputStream(pa.OSFile(str(path)), "zstd").read()
        with tarfile.open(fileobj=BytesIO(content)) as archive:
            held = {member.name: archive.extractfile(member) for member in archive if member.isreg()}
            yield path.name.removesuffix(".tar.zst"), {name: file.read() for name, file in held.items() if file}


def files_below(folder: Path) -> list[Path]:
    """Give the files of a run in a fixed order."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "expected.json")


def cut(files: Files, share: float) -> Files:
    """Leave out what was logged after a share of the run's steps."""
    steps = [int(found[1]) for name in files if (found := STEPPED.search(name))]
    last = share * max(steps, default=0)
    return {
        name: _cut_log(name, content, share)
        for name, content in files.items()
        if not ((found := STEPPED.search(name)) and int(found[1]) > last)
    }


def _cut_log(name: str, content: bytes, share: float) -> bytes:
    if name.endswith(".jsonl"):
        lines = content.splitlines(keepends=True)
        return b"".join(lines[: max(1, round(share * len(lines)))])
    if name.endswith("trainer_state.json"):
        state = json.loads(content)
        history = state["log_history"]
        return json.dumps({**state, "log_history": history[: max(1, round(share * len(history)))]}).encode()
    return content


def pack(path: Path, files: Files) -> None:
    """Write an archive of the kind that its name says."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files.items():
                archive.writestr(zipfile.ZipInfo(name, (2025, 10, 9, 0, 0, 0)), content, zipfile.ZIP_DEFLATED)
        return
    with pa.CompressedOutputStream(str(path), "zstd") as packed, tarfile.open(fileobj=packed, mode="w|") as tar:
        for name, content in files.items():
            add(tar, name, len(content), BytesIO(content))


def add(tar: tarfile.TarFile, name: str, size: int, content: IO[bytes]) -> None:
    """Add one member, which depends on nothing but its content."""
    member = tarfile.TarInfo(name)
    member.size, member.mtime = size, TIME
    tar.addfile(member, content)


class Zeros:
    """A file of zeros."""

    def read(self, size: int) -> bytes:
        """Give so many."""
        return bytes(size)


def make(folder: Path, count: int) -> None:
    """Write `count` archives, three of them bad."""
    folder.mkdir(parents=True)
    runs = list(bases())
    for number in range(count - BAD):
        name, files = runs[number % len(runs)]
        rounds = number // len(runs)
        share = 1.0 - 0.04 * rounds
        pack(folder / f"{name}-{rounds:02d}{('.tar.zst', '.zip')[number % 2]}", cut(files, share))
    whole = next(iter(sorted(folder.glob("healthy-*"))))
    (folder / f"torn{''.join(whole.suffixes)}").write_bytes(b"\0" * 100 + whole.read_bytes()[100:2000])
    pack(folder / "empty.zip", {})
    bomb = str(folder / "bomb.tar.zst")
    with pa.CompressedOutputStream(bomb, "zstd") as packed, tarfile.open(fileobj=packed, mode="w|") as tar:
        add(tar, "tokens/step_000001.jsonl", BOMB, Zeros())  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class Pass:
    """What one pass cost."""

    seconds: float
    cpu: float  # seconds, of all its processes: what others on the machine do changes it little
    code: int
    peak: float  # MB, of the largest of its processes


def gate(folder: Path, out: Path, jobs: int, options: Sequence[str]) -> Pass:
    """Gate all once."""
    arguments = [sys.executable, "-m", "ptt", "gate", str(folder / "*"), "--out", str(out), "--jobs", str(jobs)]
    begin = time.perf_counter()
    with (out.parent / "told.txt").open("wb") as told:
        streams = [(os.POSIX_SPAWN_DUP2, told.fileno(), 1), (os.POSIX_SPAWN_DUP2, told.fileno(), 2)]
        command = [*arguments, "--quiet", *options]
        process = os.posix_spawn(sys.executable, command, os.environ, file_actions=streams)
        _, status, used = os.wait4(process, 0)
    return Pass(
        seconds=time.perf_counter() - begin,
        cpu=used.ru_utime + used.ru_stime,
        code=os.waitstatus_to_exitcode(status),
        peak=used.ru_maxrss / 1024,
    )


def main(words: Sequence[str] | None = None) -> None:
    """Make, gate twice, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where to make it, and leave it")
    parser.add_argument("options", nargs="*", help="further options of ptt gate, after --")
    asked = parser.parse_args(words)
    with TemporaryDirectory() as scratch:
        place = asked.folder or Path(scratch)
        if not (place / "runs").exists():
            make(place / "runs", asked.runs)
        first = None
        for name in ("first", "second", "third"):
            took = gate(place / "runs", place / "out", asked.jobs, asked.options)
            first = first or took
            quicker, less = first.seconds / took.seconds, first.cpu / took.cpu
            print(
                f"{name} pass over {asked.runs} archives: {took.seconds:.1f} s ({quicker:.1f} times quicker), "
                f"{took.cpu:.1f} s of CPU ({less:.1f} times less), exit code {took.code}, peak {took.peak:.0f} MB",
                flush=True,
            )


if __name__ == "__main__":
    main()
