"""What trackers' own libraries read back, beside what the parsers read from the same files."""

from __future__ import annotations

import gzip
import json
import zipfile
from pathlib import Path

from parser_samples import parser_named, run_file, table, takers

from ptt.diagnostics.parsers import Piece, run_files
from ptt.diagnostics.schema import Flag

LARGEST = 1.7976931348623157e308
TOLD = {Flag.NAN: "nan", Flag.POS_INF: "inf", Flag.NEG_INF: "-inf"}
WRITERS = ("wandb", "mlflow_sqlite", "mlflow_files", "trackio", "trackio_parquet")

Scalars = list[tuple[int, str, str]]


def unpacked(folder: Path, target: Path) -> dict[str, Path]:
    """Lay the carriers' files out as their writers leave them; return run file or run dir by writer."""
    places = {
        "wandb": target / "wandb/offline-run-1/run-1.wandb",
        "mlflow_sqlite": target / "mlflow.db",
        "trackio": target / "trackio/p.db",
        "trackio_parquet": target / "export/p.parquet",
        "mlflow_files": target / "mlruns",
    }
    for place in places.values():
        place.parent.mkdir(parents=True, exist_ok=True)
    for name, writer in (("run.wandb", "wandb"), ("mlflow.db", "mlflow_sqlite"), ("trackio.db", "trackio")):
        places[writer].write_bytes(gzip.decompress((folder / f"{name}.gz").read_bytes()))
    places["trackio_parquet"].write_bytes((folder / "p.parquet").read_bytes())
    (target / "mlruns.zip").write_bytes(gzip.decompress((folder / "mlruns.zip.gz").read_bytes()))
    with zipfile.ZipFile(target / "mlruns.zip") as archive:
        archive.extractall(places["mlflow_files"])
    return places


def pieces_below(place: Path) -> list[Piece]:
    """Read one file, or every file of a folder that a parser takes."""
    files, _ = run_files(place)
    return [piece for file in files for name in takers(file)[:1] for piece in parser_named(name).read(file)]


def scalars_of(pieces: list[Piece]) -> Scalars:
    """Give the metrics that were read, as texts that tell NaN and the infinities."""
    metrics = table(pieces, "metrics").select("step", "name_raw", "value", "flag")
    return sorted((step, name, TOLD.get(Flag(flag), repr(value))) for step, name, value, flag in metrics.iter_rows())


def read_back(folder: Path, writer: str) -> Scalars:
    """Give what the writer's own library read; MLflow's leaves the infinities of its database as they lie there."""
    held = json.loads(gzip.decompress((folder / "read_back.json.gz").read_bytes()))
    rows = held["trackio" if writer == "trackio_parquet" else writer]
    infinite = {repr(LARGEST): "inf", repr(-LARGEST): "-inf"} if writer == "mlflow_sqlite" else {}
    return sorted((step, name, infinite.get(value, value)) for step, name, value in rows)


def read_here(place: Path, writer: str) -> Scalars:
    """Give what the parsers read, without what only W&B's summary holds and, of MLflow's files, the smaller run."""
    if writer == "mlflow_files":
        runs = [path for path in place.glob("*/*") if path.is_dir()]
        place = max(runs, key=lambda run: len(list(run.rglob("*"))))
    found = scalars_of(pieces_below(place))
    return [row for row in found if row[1] != "best/reward"]


__all__ = ["WRITERS", "pieces_below", "read_back", "read_here", "run_file", "scalars_of", "unpacked"]
