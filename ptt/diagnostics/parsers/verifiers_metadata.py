"""verifiers' `metadata.json` (up to 0.3) beside results.jsonl: what an evaluation measured, of which model.

Fields as in verifiers' `GenerateMetadata` (PrimeIntellect-ai/verifiers, verifiers/types.py before 0.4).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import polars as pl

from ptt.diagnostics.parsers.io.interface import Context, Lost, Parser, Piece, Rows, RunFile
from ptt.diagnostics.parsers.io.lines import WHITE
from ptt.diagnostics.parsers.io.message_graphs import step_of_folder
from ptt.diagnostics.parsers.io.values import as_name, as_plain_number, as_step
from ptt.diagnostics.schema import EVALS

NAME: Final = "metadata.json"
KEYS: Final = (b'"env_id"', b'"num_examples"', b'"rollouts_per_example"')
LARGEST: Final = 64 << 20  # it holds settings and means


def recognises(file: RunFile) -> bool:
    """Say yes by name and keys."""
    if file.name != NAME or not 0 < file.size <= LARGEST:
        return False
    try:
        head = file.head
    except OSError:
        return False
    return head.lstrip(WHITE).startswith(b"{") and all(key in head for key in KEYS)


def read(file: RunFile) -> Iterator[Piece]:
    """Yield one evaluation row a measure: the mean reward, the mean of each metric, pass@k."""
    found = _object(file)
    if found is None:
        yield Lost(bytes=file.size, note=f"{file.rel} is no whole JSON object; what it measured is lost.")
        return
    values: dict[str, Any] = {"reward": found.get("avg_reward"), "error": found.get("avg_error")}
    for group in ("avg_metrics", "pass_at_k"):
        held = found.get(group)
        prefix = "pass@" if group == "pass_at_k" else ""
        values |= {f"{prefix}{name}": value for name, value in held.items()} if isinstance(held, dict) else {}
    examples, each = as_step(found.get("num_examples")), as_step(found.get("rollouts_per_example"))
    given = found.get("sampling_args")
    sampling = given if isinstance(given, dict) else {}
    shared = {
        "suite": as_name(found.get("env_id")),
        "step": step_of_folder(file),
        "model": as_name(found.get("model")),
        "n": examples * each if examples is not None and each is not None and examples * each < 1 << 62 else None,
        "temperature": as_plain_number(sampling.get("temperature")),
        "max_tokens": as_step(sampling.get("max_tokens")),
        "source": file.rel,
    }
    rows = [{**shared, "metric": name, "value": as_plain_number(value)} for name, value in values.items()]
    rows = [row for row in rows if row["value"] is not None]
    if rows:
        yield Rows(table="evals", frame=pl.DataFrame(rows, schema=EVALS, orient="row"))
    yield Context(facts={"framework": "verifiers"})


def _object(file: RunFile) -> dict[str, Any] | None:
    try:
        with file.path.open("rb") as handle:
            found = json.loads(handle.read(LARGEST).decode("utf-8", "replace"))
    except (OSError, ValueError, RecursionError):  # gone, cut, or nested deeper than any settings
        return None
    return found if isinstance(found, dict) else None


PARSER = Parser(
    name="verifiers_metadata",
    describes="verifiers' metadata.json (up to 0.3): mean reward and metrics of an evaluation, model, sampling.",
    priority=12,
    recognises=recognises,
    read=read,
)
