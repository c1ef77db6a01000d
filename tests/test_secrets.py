"""No secret of a run reaches any output: store, report, findings, terminal, gate, comparison, baseline, figures."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
import pytest
from planted_secrets import Secret, plant, secrets
from typer.testing import CliRunner

from ptt.cli.app import app

RUNNER = CliRunner()
PLAIN = ("pl4in-v4lue-x", "kimsuk", "/home/kim")  # planted beside the list, under names of settings and in tracebacks


@pytest.fixture(scope="module")
def planted() -> list[Secret]:
    return secrets()


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory, planted: list[Secret]) -> Path:
    """Judge, gate, compare and report a run full of secrets; return the folder with everything that was written."""
    base = tmp_path_factory.mktemp("secrets")
    plant(base / "run", planted)
    shutil.copytree(base / "run", base / "other")
    out = base / "out"
    out.mkdir()
    (out / "ptt.toml").write_text("[gate]\nfail_on = 'high'\n", "utf-8")
    run, other = str(base / "run"), str(base / "other")
    for name, arguments in {
        "diagnose": [run, "--keep-text", "--one-run", "--figures", str(out / "figures")],
        "sources": [run, "--one-run"],
        "ingest": [run, "--one-run"],
        "gate": [run, "--explain", "--one-run", "--junit", str(out / "junit.xml"), "--sarif", str(out / "s.sarif"),
                 "--markdown", str(out / "gate.md"), "--github", "--reports", "all"],
        "compare": [run, other, "--figures", str(out / "compared")],
    }.items():  # fmt: skip
        to = [] if name == "sources" else ["--out", str(out / name)]
        _run(out / f"{name}.txt", [name, *arguments, *to])
    _run(out / "diagnosed.txt", ["diagnose", run, "--one-run", "--json", "--out", str(out / "diagnose")])
    _run(out / "sources.json", ["sources", run, "--one-run", "--json"])
    _run(out / "shapes.txt", ["sources", run, "--one-run", "--sample", str(out / "sample.txt")])
    baseline = ["update", str(out / "baseline.toml"), run, "--yes-even-failed", "--out", str(out / "baseline")]
    _run(out / "baseline.txt", ["baseline", *baseline])
    report = [str(out / "diagnose"), "--postmortem"]
    _run(out / "report.txt", ["report", *report, "--out", str(out / "report")])
    _run(out / "redacted.txt", ["report", *report, "--redact", "--salt", "s", "--out", str(out / "redacted")])
    return out


def _run(target: Path, arguments: list[str]) -> None:
    result = RUNNER.invoke(app, arguments)
    assert result.exit_code in (0, 3, 4), result.output
    target.write_text(result.output, "utf-8")


def _texts(folder: Path) -> dict[str, str]:
    """Return what each file says; of Parquet the texts of its columns."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            name = path.relative_to(folder).as_posix()
            found[name] = name + "\n" + (_columns(path) if path.suffix == ".parquet" else _text(path))
    return found


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace")


def _columns(path: Path) -> str:
    frame = pl.read_parquet(path, glob=False)
    texts = [*frame.columns]
    for column in frame.get_columns():
        if column.dtype == pl.List(pl.String):
            column = column.explode()
        if column.dtype == pl.String:
            texts += column.drop_nulls().unique().to_list()
    return "\n".join(texts)


def _leaks(texts: dict[str, str], planted: list[Secret]) -> list[tuple[str, str, str]]:
    hidden = [(secret.kind, part) for secret in planted for part in secret.hidden]
    hidden += [("plain", part) for part in PLAIN]
    return [(kind, part, name) for name, text in texts.items() for kind, part in hidden if part in text]


def test_sixty_secrets_of_more_than_twenty_kinds_are_planted(planted: list[Secret]) -> None:
    assert len(planted) >= 60
    assert len({secret.kind for secret in planted}) >= 20


@pytest.mark.slow
def test_no_output_holds_a_secret(outputs: Path, planted: list[Secret]) -> None:
    texts = _texts(outputs)
    assert {"diagnose/report.html", "diagnose/findings.json", "gate.txt", "compare.txt", "baseline.toml"} <= set(texts)
    assert _leaks(texts, planted) == []


@pytest.mark.slow
def test_what_was_masked_says_what_it_was(outputs: Path) -> None:
    assert "[github-pat-1]" in _texts(outputs)["diagnose/findings.json"]
