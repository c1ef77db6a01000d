"""Search the hand-written binary readers for faults by coverage: `make fuzz-coverage`, which installs atheris.

Each reader gets bytes that libFuzzer grows from our own samples towards code not yet reached. Some readers get their
input twice: as a file, and as the parts of one, which are framed with right checksums before they are read, since no
mutation guesses a checksum. A reader fails where it raises what is no damage, yields rows that fit no table, takes more
than 10 s, or more than 1.5 GB of memory. `--reader NAME --replay FILE` reads one kept input again.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

SECONDS: Final = 120  # of each reader
LIMITS: Final = ("-timeout=10", "-rss_limit_mb=1536", "-max_len=40000", "-detect_leaks=0")
MAX_SEED: Final = 40_000  # bytes; mutations of longer files reach less in the same time
INSTRUMENTED: Final = ("ptt.diagnostics.parsers", "ptt.diagnostics.store.archives", "zipfile", "tarfile", "pickle")
CORPORA: Final = ROOT / "benchmarks" / "data" / "fuzz_coverage"
NOT_INSTALLED: Final = "atheris is not installed: `make fuzz-coverage` installs it, on Linux with x86-64."
PART: Final = struct.Struct("<H")  # before each part of a seed: its length

Test = Callable[[bytes], None]


@dataclass(frozen=True)
class Reader:
    """What is searched: inputs to begin with, and what is done with each."""

    seeds: Callable[[dict[str, bytes]], Iterable[bytes]]
    test: Callable[[Path], Test]


def parts_of(data: bytes) -> list[bytes]:
    """Cut an input into parts, each behind its length; the last is what is left."""
    parts, at = [], 0
    while at + PART.size <= len(data):
        size = PART.unpack_from(data, at)[0]
        parts.append(data[at + PART.size : at + PART.size + size])
        at += PART.size + size
    return parts


def joined(parts: Iterable[bytes]) -> bytes:
    """Undo `parts_of`."""
    return b"".join(PART.pack(len(part)) + part for part in parts if len(part) < 1 << 16)


def _ending(*endings: str) -> Callable[[dict[str, bytes]], Iterable[bytes]]:
    return lambda files: [data for rel, data in files.items() if rel.endswith(endings)]


def _parser(name: str, rel: str, frame: Callable[[list[bytes]], bytes] | None = None) -> Callable[[Path], Test]:
    """Read by a parser, as the ingest does; `frame` makes a file of parts."""

    def prepare(folder: Path) -> Test:
        from parser_samples import checked, parser_named, run_file

        from ptt.diagnostics.errors import is_damage
        from ptt.diagnostics.parsers.io.interface import pieces_of

        parser, path = parser_named(name), folder / rel
        path.parent.mkdir(parents=True, exist_ok=True)

        def test(data: bytes) -> None:
            path.write_bytes(data if frame is None else frame(parts_of(data)))
            file = run_file(path, rel)
            faults: list[str] = []
            try:
                parser.recognises(file)
                checked(list(pieces_of(file, parser, lambda _, error: faults.append(error))))
            except Exception as error:
                if not is_damage(error) or isinstance(error, AssertionError):
                    raise
            if faults:
                raise AssertionError(faults[0])

        return test

    return prepare


def _wandb_parts(files: dict[str, bytes]) -> Iterator[bytes]:
    from parser_samples import run_file

    from ptt.diagnostics.parsers.wandb import records

    with tempfile.TemporaryDirectory() as folder:
        for data in _ending(".wandb")(files):
            path = Path(folder) / "run.wandb"
            path.write_bytes(data)
            with path.open("rb") as handle:
                found = [record for record in records(handle, run_file(path)) if isinstance(record, bytes)]
            for start in range(0, len(found), 20):
                yield joined(found[start : start + 20])


def _wandb_file(parts: list[bytes]) -> bytes:
    from samples_carriers import wandb_file

    return wandb_file(parts)


def _event_parts(files: dict[str, bytes]) -> Iterator[bytes]:
    from parser_samples import tf_record_ends

    for data in [data for rel, data in files.items() if "tfevents" in rel]:
        ends = tf_record_ends(data)
        yield joined(data[start + 12 : end - 4] for start, end in zip([0, *ends], ends, strict=False))


def _event_file(parts: list[bytes]) -> bytes:
    return b"".join(
        length + _masked(length) + part + _masked(part) for part in parts for length in [struct.pack("<Q", len(part))]
    )


def _masked(data: bytes) -> bytes:
    import numpy as np

    from ptt.diagnostics.parsers.tensorboard import masked_crcs

    places = np.array([0]), np.array([len(data)])
    return masked_crcs(np.frombuffer(data, np.uint8), *places).astype("<u4").tobytes()


def _plain(frame: Callable[[list[bytes]], bytes] | None = None) -> Callable[[Path], Test]:
    """Read a pickle, npz or safetensors file as the reading process does, and hand the answer over."""

    def prepare(_: Path) -> Test:
        from ptt.diagnostics.parsers.unpickle import process
        from ptt.diagnostics.parsers.unpickle.child import plain_of
        from ptt.diagnostics.parsers.unpickle.values import Budget, RefusedError

        def test(data: bytes) -> None:
            data = data if frame is None else frame(parts_of(data))
            budget = Budget(arrays=64 << 20, nodes=100_000, text=4 << 20)
            with suppress(RefusedError, RecursionError, MemoryError, OSError):
                tree, arrays = process.encode(plain_of(memoryview(data), budget, guarded=False))
                _, text, *bodies = process.pack({"tree": tree}, arrays)
                message, found = process.unpack(bytes(text), memoryview(b"".join(bodies)))
                process.decode(message["tree"], found)

        return test

    return prepare


def _torch_parts(files: dict[str, bytes]) -> Iterator[bytes]:
    import io

    for data in _ending(".pt")(files):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = [name for name in archive.namelist() if "/data/" in name]
            pickled = next(name for name in archive.namelist() if name.endswith("data.pkl"))
            yield joined(map(archive.read, [pickled, *sorted(names, key=lambda name: int(name.rpartition("/")[2]))]))
    yield from (joined([data]) for data in _ending(".pkl")(files))


def _torch_file(parts: list[bytes]) -> bytes:
    from samples_traces import zip_file

    pickled, *storages = parts or [b""]
    held = {"a/data.pkl": pickled} | {f"a/data/{key}": content for key, content in enumerate(storages)}
    return zip_file(held, method=0)


def _eval_parts(_: dict[str, bytes]) -> Iterator[bytes]:
    from samples_traces import INSPECT_RESULTS, INSPECT_SAMPLE, INSPECT_START, document

    yield joined(map(document, (INSPECT_START | INSPECT_RESULTS, INSPECT_START, INSPECT_SAMPLE, INSPECT_SAMPLE)))


def _eval_file(parts: list[bytes]) -> bytes:
    from samples_traces import zip_file

    names = ["header.json", "_journal/start.json", *(f"samples/{at}_epoch_1.json" for at in range(len(parts)))]
    return zip_file(dict(zip(names, parts, strict=False)), method=0)


def _members(folder: Path) -> Test:
    """List a zip file, and unpack every member."""
    from parser_samples import run_file

    from ptt.diagnostics.parsers.io.zip_members import content, listing

    path = folder / "log.eval"

    def test(data: bytes) -> None:
        path.write_bytes(data)
        file = run_file(path)
        for member in listing(file).members[:100]:
            with suppress(ValueError):
                content(file, member)

    return test


def _footer(folder: Path) -> Test:
    """Read the headers of a Parquet file: of its schema by the footer, of pages from any place."""
    from ptt.diagnostics.parsers.io.parquet_pages import pages, schema_depth, schema_size

    path = folder / "a.parquet"

    def test(data: bytes) -> None:
        path.write_bytes(data)
        length = int.from_bytes(data[-8:-4], "little")
        footer = data[max(0, len(data) - 8 - length) :]
        with suppress(ValueError, IndexError):
            if schema_size(footer) < 10_000:
                schema_depth(footer)
        with suppress(ValueError, IndexError), path.open("rb") as handle:
            for page in zip(range(1000), pages(handle, 4, 100_000), strict=False):
                assert page[1].values >= 0

    return test


def _archive_seeds(files: dict[str, bytes]) -> Iterator[bytes]:
    import gzip
    import io
    import tarfile

    from samples_traces import zip_file

    small = {rel: data for rel, data in files.items() if len(data) < 400}
    held = dict(list(small.items())[:4]) | {"a" * 120: b"x"}
    yield b"z" + zip_file(held, method=0)
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            for name, data in held.items():
                archive.writestr(zipfile.ZipInfo(name), data, method)
        yield b"z" + packed.getvalue()
    for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w", format=form) as tar:
            for name, data in held.items():
                member = tarfile.TarInfo(name)
                member.size, member.mtime = len(data), 1.5 if form == tarfile.PAX_FORMAT else 1
                tar.addfile(member, io.BytesIO(data))
        yield b"t" + stream.getvalue()
        yield b"t" + gzip.compress(stream.getvalue(), mtime=0)


def _archive(folder: Path) -> Test:
    """Unpack an archive of a run: its first byte says which kind its name claims."""
    from ptt.diagnostics.errors import PttError
    from ptt.diagnostics.store.archives import unpacked

    def test(data: bytes) -> None:
        path = folder / ("run.zip" if data[:1] == b"z" else "run.tar.gz")
        path.write_bytes(data[1:])
        with suppress(PttError), unpacked(path) as found:
            assert found.folder.is_dir()

    return test


READERS: Final[dict[str, Reader]] = {
    "wandb": Reader(_ending(".wandb"), _parser("wandb", "run-1.wandb")),
    "wandb_records": Reader(_wandb_parts, _parser("wandb", "run-1.wandb", _wandb_file)),
    "tensorboard": Reader(
        lambda files: [data for rel, data in files.items() if "tfevents" in rel],
        _parser("tensorboard", "events.out.tfevents.1"),
    ),
    "tensorboard_events": Reader(_event_parts, _parser("tensorboard", "events.out.tfevents.1", _event_file)),
    "pickle": Reader(_ending(".pkl", ".dp", ".npz", ".safetensors", ".pt"), _plain()),
    "torch_members": Reader(_torch_parts, _plain(_torch_file)),
    "zip_members": Reader(_ending(".eval", ".pt", ".npz"), _members),
    "inspect_members": Reader(_eval_parts, _parser("inspect_log", "a.eval", _eval_file)),
    "parquet_headers": Reader(_ending(".parquet"), _footer),
    "archives": Reader(_archive_seeds, _archive),
    "packed_lines": Reader(_ending(".jsonl.gz", ".jsonl.zst"), _parser("metrics_jsonl", "flat.jsonl.gz")),
    "torn_state": Reader(_ending("trainer_state.json"), _parser("trl_state", "trainer_state.json")),
}


def prepare(name: str, corpus: Path) -> None:
    """Write the inputs to begin with."""
    from benchmarks.fuzz import subjects

    corpus.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for number, data in enumerate(READERS[name].seeds(subjects(Path(folder)))):
            if 0 < len(data) <= MAX_SEED:
                (corpus / f"sample-{number}").write_bytes(data)


def search(name: str, corpus: Path, options: list[str]) -> None:
    """Search one reader in this process, which ends with it."""
    import atheris

    with tempfile.TemporaryDirectory(prefix="ptt-fuzz-") as folder:
        with atheris.instrument_imports(include=list(INSTRUMENTED)):
            test = READERS[name].test(Path(folder))
        atheris.Setup([name, *options, str(corpus)], test)
        atheris.Fuzz()


def run(name: str, seed: int, seconds: int) -> bool:
    """Search one reader in a process of its own; print what was run, and return whether nothing was found."""
    corpus, kept = CORPORA / name, CORPORA / "found"
    prepare(name, corpus)
    kept.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "benchmarks.fuzz_coverage", "--worker", name, f"-seed={seed}"]
    command += [f"-max_total_time={seconds}", f"-artifact_prefix={kept}/{name}-", "-print_final_stats=1", *LIMITS]
    env = {**os.environ, "POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT, env=env, check=False)
    said = done.stdout.decode("utf-8", "replace")
    reached = [int(found) for found in re.findall(r"\bft: (\d+)", said)]
    count = re.search(r"number_of_executed_units: +(\d+)", said)
    grown = f"{reached[0]} -> {reached[-1]} features" if reached else "no coverage"
    ended = "nothing found" if done.returncode == 0 else f"FOUND (code {done.returncode})"
    print(f"{name}: {count[1] if count else '?'} inputs, {grown}, {ended}", flush=True)
    if done.returncode:
        print("\n".join(said.splitlines()[-40:]))
    return done.returncode == 0


def main() -> int:
    """Search the readers that the command line names, or all."""
    if sys.argv[1:2] == ["--worker"]:
        search(sys.argv[2], CORPORA / sys.argv[2], sys.argv[3:])
        return 0
    asked: Any = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--reader", action="append", choices=sorted(READERS), help="may be given several times")
    asked.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 1 << 31))
    asked.add_argument("--seconds", type=int, default=SECONDS, help="of each reader")
    asked.add_argument("--replay", type=Path, help="read this one input by the reader, without atheris")
    given = asked.parse_args()
    names = given.reader or list(READERS)
    if given.replay:
        with tempfile.TemporaryDirectory(prefix="ptt-fuzz-") as folder:
            READERS[names[0]].test(Path(folder))(given.replay.read_bytes())
        return 0
    try:
        import atheris  # noqa: F401
    except ImportError:
        print(NOT_INSTALLED, file=sys.stderr)
        return 2
    print(f"seed {given.seed}", flush=True)
    found = [name for name in names if not run(name, given.seed, given.seconds)]
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
