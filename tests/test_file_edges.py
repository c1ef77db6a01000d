"""One damaged file, one bad value or one figure never costs the report: the loss is counted, and a bug exits with 1."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from builders import source
from parser_samples import MICROSOFT_RUN
from slow_cases import first_fast
from typer.testing import CliRunner

import ptt
from ptt.cli.app import app
from ptt.diagnostics import parsers, pipeline
from ptt.diagnostics.engines import local
from ptt.diagnostics.evidence import gather
from ptt.diagnostics.model import Diagnosis
from ptt.diagnostics.parsers.io.interface import Lost, Parser, Piece, RunFile
from ptt.diagnostics.store import ingest, table_parts
from ptt.reports.figures import aggregates
from ptt.reports.figures.panels import Panel
from ptt.reports.run.html import render_page

HEALTHY = Path(__file__).parents[1] / "sample_logs" / "healthy"
ROWS = [{"step": step, "loss": 0.5 + 0.1 / step, "kl": 0.01 * step} for step in range(1, 41)]


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    lines(tmp_path / "run" / "metrics.jsonl", ROWS)
    return tmp_path / "run"


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    """Twelve token files of a sound run, beside its metrics."""
    (tmp_path / "tokens_run" / "tokens").mkdir(parents=True)
    for path in sorted((HEALTHY / "tokens").glob("*.parquet"))[:12]:
        shutil.copy(path, tmp_path / "tokens_run" / "tokens")
    return tmp_path / "tokens_run"


def with_parser(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """Let one parser, before all others, take the files that end with `.odd`."""

    def recognises(file: RunFile) -> bool:
        return file.name.endswith(".odd")

    def read(_: RunFile) -> Iterator[Piece]:
        yield Lost(rows=3, note="Three rows are damaged.")

    odd = Parser(
        name="odd", describes="", held_against="", priority=10, **{"recognises": recognises, "read": read, **changes}
    )
    monkeypatch.setattr(pipeline, "PARSERS", (odd, *parsers.PARSERS))


def raising(error: BaseException) -> Any:
    def read(_: RunFile) -> Iterator[Piece]:
        yield Lost(rows=3, note="Three rows are damaged.")
        raise error

    return read


DAMAGE = [
    ValueError("no number"), OverflowError("too large"), UnicodeDecodeError("utf-8", b"x", 0, 1, "no text"),
    RecursionError("too deep"), MemoryError(), EOFError(), pl.exceptions.ComputeError("damaged"),
    pa.ArrowInvalid("damaged"), pa.ArrowNotImplementedError("unknown"), pl.exceptions.PanicException("panicked"),
]  # fmt: skip


@pytest.mark.parametrize("error", DAMAGE, ids=lambda error: type(error).__name__)
def test_damage_that_a_parser_raises_costs_the_rest_of_its_file(
    run: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    (run / "a.odd").write_bytes(b"x" * 100)
    with_parser(monkeypatch, read=raising(error))
    found = ptt.diagnose(run)
    lost = source(found, "a.odd")
    assert (lost.rows_bad, lost.bytes_lost) == (3, 100)
    assert f"Three rows are damaged. a.odd: odd stopped at {type(error).__name__}" in (lost.note or "")
    assert found.crashes == ()
    assert source(found, "metrics.jsonl").rows_ok == 80


def test_a_fault_of_a_parser_is_reported_and_exits_with_1(
    run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (run / "a.odd").write_bytes(b"x" * 100)
    with_parser(monkeypatch, read=raising(KeyError("width")))
    found = ptt.diagnose(run)
    assert source(found, "a.odd").bytes_lost == 100
    (crash,) = found.crashes
    assert crash.id == "reading:odd"
    assert crash.error.startswith("KeyError: 'width' (test_file_edges.py:")
    for command in (["diagnose"], ["ingest"]):
        ended = CliRunner().invoke(app, [*command, str(run), "--out", str(tmp_path / command[0])])
        assert ended.exit_code == 1
    assert "reading:odd crashed" in (tmp_path / "diagnose" / "report.html").read_text()
    sources = CliRunner().invoke(app, ["sources", str(run)])
    assert sources.exit_code == 1
    assert "a bug in ptt, please report it: odd failed: KeyError" in sources.stderr


@pytest.mark.slow
@pytest.mark.parametrize("at", ["its beginning", "its content"])
def test_a_run_of_which_a_fault_of_ours_costs_everything_is_reported_and_exits_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "a.odd").write_bytes(b"x" * 100)
    failing = {"recognises": raise_key_error} if at == "its beginning" else {"read": raise_key_error}
    with_parser(monkeypatch, **failing)
    for path in (run, run / "a.odd"):
        ended = CliRunner().invoke(app, ["diagnose", str(path), "--out", str(tmp_path / "out" / path.name)])
        assert ended.exit_code == 1, ended.output
        assert "reading:odd crashed" in (tmp_path / "out" / path.name / "report.html").read_text()


def raise_key_error(_: RunFile) -> Iterator[Piece]:
    """Fail as only a fault of ours does."""
    raise KeyError("width")


def test_a_parser_that_fails_on_the_beginning_of_a_file_leaves_it_to_the_others(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def recognises(_: RunFile) -> bool:
        raise struct_error

    struct_error = ValueError("no header")
    with_parser(monkeypatch, recognises=recognises)
    assert source(ptt.diagnose(run), "metrics.jsonl").kind == "metrics_jsonl"
    struct_error = KeyError("header")  # type: ignore[assignment]
    found = ptt.diagnose(run)
    assert [crash.id for crash in found.crashes] == ["reading:odd"]
    assert source(found, "metrics.jsonl").rows_ok == 80


def test_rows_that_cannot_be_stored_cost_themselves(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(_: RunFile) -> Iterator[Piece]:
        yield parsers.Rows(table="metrics", frame=pl.DataFrame({"step": ["one"], "name_raw": ["loss"]}))
        yield Lost(rows=2, note="Two more.")

    (run / "a.odd").write_bytes(b"x" * 100)
    with_parser(monkeypatch, read=read)
    found = ptt.diagnose(run)
    assert source(found, "a.odd").rows_bad == 3
    assert source(found, "metrics.jsonl").rows_ok == 80


LOGGED = ("loss", "kl", "grad_norm", "entropy", "reward", "lr", "step_time")
BEYOND = (-1.7e308, 5e-324, 1.7e308, 1e101, 1e-320, -1e-200)


@pytest.mark.parametrize(
    ("metrics", "value"),
    [
        *first_fast([(LOGGED, value) for value in BEYOND], 2),
        *(pytest.param((metric,), 1.7e308, marks=pytest.mark.slow) for metric in LOGGED),
    ],
)
def test_a_value_beyond_any_arithmetic_counts_as_infinite_or_zero(
    tmp_path: Path, metrics: tuple[str, ...], value: float
) -> None:
    rows = [
        row | dict.fromkeys(metrics, value if row["step"] in (7, 30) else 0.5 + 0.01 * row["step"] % 0.1)
        for row in ROWS
    ]
    lines(tmp_path / "run" / "metrics.jsonl", rows)
    found = ptt.diagnose(tmp_path / "run")
    assert found.crashes == ()
    assert render_page(found).faults == ()
    note = source(found, "metrics.jsonl").note or ""
    assert (f"{2 * len(metrics)} values beyond ±1e+100 read as infinite." in note) == (abs(value) > 1)


def test_files_whose_columns_polars_does_not_know_are_lost(tokens: Path) -> None:
    path = sorted((tokens / "tokens").glob("*.parquet"))[3]
    table = pq.read_table(path)
    pq.write_table(table.append_column("reward", pa.array([1.0] * table.num_rows)), path)
    found = ptt.diagnose(tokens)
    lost = source(found, f"tokens/{path.name}")
    assert (lost.rows_ok, lost.rows_bad, lost.bytes_lost) == (0, table.num_rows, path.stat().st_size)
    assert "DuplicateError" in (lost.note or "")
    assert found.run.sequences > 0


def test_a_token_file_that_goes_away_before_it_is_copied_is_lost(tokens: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = sorted((tokens / "tokens").glob("*.parquet"))
    for path in paths:  # what must be masked is copied
        table = pq.read_table(path)
        pq.write_table(table.append_column("owner", pa.array(["jane.doe@example.org"] * table.num_rows)), path)
    victim, rows = paths[5], pl.read_parquet(paths[5]).height
    copied = table_parts.copy_masked

    def gone(path: Path, *rest: Any) -> None:
        victim.unlink(missing_ok=True)
        copied(path, *rest)

    monkeypatch.setattr(ingest, "copy_masked", gone)
    found = ptt.diagnose(tokens)
    lost = source(found, f"tokens/{victim.name}")
    assert (lost.rows_ok, lost.rows_bad) == (0, rows)
    assert f"{rows} rows not copied" in (lost.note or "")
    assert found.run.sequences > 0
    assert found.crashes == ()


@pytest.mark.parametrize("moment", first_fast(["before the pass", "in the pass", "after the pass"]))
def test_a_token_file_that_goes_away_meanwhile_is_left_out(
    tokens: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    victim = sorted((tokens / "tokens").glob("*.parquet"))[5]
    rows = pl.read_parquet(victim).height
    whole = ptt.diagnose(tokens).run.sequences

    def gone(module: Any, name: str) -> None:
        function = getattr(module, name)

        def after(*args: Any, **named: Any) -> Any:
            victim.unlink(missing_ok=True)
            return function(*args, **named)

        monkeypatch.setattr(module, name, after)

    at = {"before the pass": (local, "scan_readable"), "in the pass": (local, "fold_in_order")}
    gone(*at.get(moment, (gather, "gather_details")))
    found = ptt.diagnose(tokens)
    assert found.crashes == ()
    if moment == "after the pass":  # what was read of it stands
        assert found.run.sequences in (whole, whole - rows)
        return
    lost = source(found, f"tokens/{victim.name}")
    assert (lost.rows_ok, lost.rows_bad) == (0, rows)
    assert "it has disappeared since" in (lost.note or "")
    assert found.run.sequences == whole - rows


def test_a_topic_of_the_evidence_that_fails_costs_itself(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise TypeError("no list")

    monkeypatch.setattr(gather, "gather_lengths", fail)
    found = ptt.diagnose(run)
    (crash,) = found.crashes
    assert crash.id == "evidence:lengths"
    assert crash.error.startswith("TypeError: no list (test_file_edges.py:")


@pytest.mark.slow
@pytest.mark.parametrize(("error", "code"), [(ValueError("axis limits"), 0), (KeyError("colour"), 1)])
def test_a_figure_that_cannot_be_drawn_is_a_line_in_its_place(
    run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception, code: int
) -> None:
    from ptt.cli import output
    from ptt.reports.figures import drawing
    from ptt.reports.run import drawn

    def fail(_: Diagnosis) -> tuple[Panel, ...]:
        raise error

    broken = replace(aggregates.FIGURE, panels=fail)
    for module in (drawing, drawn):
        figures = tuple(broken if figure.name == broken.name else figure for figure in module.FIGURES)
        monkeypatch.setattr(module, "FIGURES", figures)
    monkeypatch.setattr(output.Artist, "page", lambda _, diagnosis, _beside: render_page(diagnosis))
    out = tmp_path / "out"
    ended = CliRunner().invoke(app, ["diagnose", str(run), "--out", str(out), "--figures", str(out / "figures")])
    assert ended.exit_code in ((0, 4) if code == 0 else (1,))
    page = (out / "report.html").read_text()
    assert f"Not drawn: {aggregates.FIGURE.title}. " in page
    assert (("please report it" in page), ("the figure aggregates failed" in ended.stderr)) == (code == 1, code == 1)
    assert not list((out / "figures").glob("aggregates*"))


def test_a_setting_of_hundreds_of_digits_is_none(run: Path) -> None:
    arguments = {"seed": 7, "max_steps": 10**400, "num_generations": "9" * 400, "beta": -(10**320)}
    document = MICROSOFT_RUN | {"config": {"training_args": arguments}, "total_steps": 10**400}
    (run / "ptt_run").mkdir()
    (run / "ptt_run" / "run_metadata_final.json").write_text(json.dumps(document))
    found = ptt.diagnose(run)
    assert found.crashes == ()
    assert found.run.context["seed"] == 7
    assert "stopped at" not in str([source.note for source in found.sources])


WIDE_HEADER = ",".join(["step", "loss", *(f"m{number}" for number in range(20_100))])
REASONS = {
    "a name": ("m.csv", f"step,loss,{'x' * 200_000}\n1,0.5,1\n2,0.25,1\n".encode(), "a name in its header"),
    "a header": ("m.csv", f"step,loss,{'x' * 5_000_000}\n1,0.5,1\n".encode(), "its header is longer than 4 MB"),
    "columns": ("m.csv", f"{WIDE_HEADER}\n1{',0.5' * 20_101}\n".encode(), "its header has 20102 columns or more"),
    "a line": ("m.log", b"x" * 200_000 + b"\n", "its first line is longer than 64 kB"),
    "UTF-16": ("m.jsonl", '{"step": 1, "loss": 0.5}\n'.encode("utf-16"), "it is text in UTF-16"),
    "UTF-32": ("m.csv", "step,loss\n1,0.5\n".encode("utf-32"), "it is text in UTF-32"),
}  # fmt: skip


@pytest.mark.parametrize("reason", REASONS)
def test_a_log_that_is_not_read_is_refused_with_the_reason(tmp_path: Path, reason: str) -> None:
    name, content, words = REASONS[reason]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).write_bytes(content)
    found = ptt.diagnose(tmp_path / "run")
    assert f"{name}: {words}" in found.verdict.headline
    assert "unknown formats" not in found.verdict.headline
    with pytest.raises(ptt.InputError, match=f"(?i){words}"):
        ptt.diagnose(tmp_path / "run" / name)


def test_a_trainer_state_with_a_mark_in_front_is_read(tmp_path: Path) -> None:
    state = {"global_step": 40, "log_history": ROWS, "max_steps": 40}
    folder = tmp_path / "run" / "checkpoint-40"
    folder.mkdir(parents=True)
    (folder / "trainer_state.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(state).encode())
    found = source(ptt.diagnose(tmp_path / "run"), "checkpoint-40/trainer_state.json")
    assert (found.kind, found.rows_ok, found.bytes_lost) == ("trl_state", 80, 0)


@pytest.mark.parametrize("step", [2**63 - 1, -(2**63) + 1, -(2**62), 2**53 + 2])
def test_rows_of_a_step_near_the_end_of_64_bits_are_lost_and_the_axis_stays(tmp_path: Path, step: int) -> None:
    rows = [*ROWS, {"step": step, "loss": 0.5, "kl": 0.1}]
    lines(tmp_path / "run" / "metrics.jsonl", rows if step > 0 else rows[::-1])
    found = ptt.diagnose(tmp_path / "run")
    assert (found.run.first_step, found.run.last_step) == (1, 40)
    lost = source(found, "metrics.jsonl")
    assert (lost.rows_ok, lost.rows_bad) == (80, 2)
    assert f"2 rows lost: a step beyond ±{2**53}." in (lost.note or "")
    assert found.crashes == ()


def test_rows_whose_steps_are_all_beyond_what_can_be_drawn_are_numbered(tmp_path: Path) -> None:
    lines(tmp_path / "run" / "metrics.jsonl", [row | {"step": row["step"] + 2**63 - 100} for row in ROWS])
    found = ptt.diagnose(tmp_path / "run")
    assert (found.run.first_step, found.run.last_step, found.run.step_unit) == (1, 40, "row")
