"""Home-made logs: the entry that `ptt sources` proposes reads each metric at its step, pasted as it stands."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from slow_cases import first_fast
from typer.testing import CliRunner

import ptt
from ptt import api
from ptt.cli.app import app
from ptt.diagnostics.errors import SettingsError
from ptt.diagnostics.parsers.io.interface import RunFile
from ptt.diagnostics.store.scan import read_table
from ptt.diagnostics.verdict.log_proposals import propose

STEPS = 60
EPOCH = 20
PREAMBLE = "run grpo-7b host node17 pid 4412\nloading model ... ok (13.4s)\nloaded 12000 prompts\n"
EXPECTED = {"reward/mean": "rew", "kl/ref": "kl", "entropy": "ent", "grad_norm": "gn"}
BROKEN = {"kl/ref": 31, "grad_norm": 30}  # where one style prints what is no number


def _values_at(step: int) -> dict[str, float]:
    """Return values that differ from step to step, so that none can be taken for another."""
    return {
        "rew": 0.1 + step / 128, "kl": 0.0005 + step / 8192, "ent": 2.25 - step / 64, "gn": 0.75 + (step * 7 % 16) / 32,
        "std": 0.25 + (step * 5 % 16) / 64, "acc": 0.3 + step / 100, "len": 300.0 + step, "loss": 0.7 - step / 256,
    }  # fmt: skip


def _words_at(step: int) -> dict[str, object]:
    """Return what templates hold besides: counts, words, and parts that only some lines have."""
    values = _values_at(step)
    epoch, batch = divmod(step - 1, EPOCH)
    return values | {
        "s": step, "e": epoch + 1, "e0": epoch, "b": batch + 1, "sec": step % 60, "bar": "#" * (step // 3),
        "head": f"--- epoch {epoch + 1}/3 ---\n" if not batch else "",
        "header": f"\n  upd |   rew      kl     ent      gn\n{'-' * 40}\n" if not batch else "",
        "level": "WARN" if step % 11 == 0 else "INFO", "task": ("math", "code", "chat")[step % 3],
        "best": "  ** best **" if step % 7 == 0 else "", "saved": " | saved" if step % 9 == 0 else "",
        "val": f" | val_acc {values['acc']:.3f}" if step % 5 == 0 else "", "bare": f"{values['rew']:.4f}"[1:],
        "odd_kl": "nan" if step == BROKEN["kl/ref"] else f"{values['kl']:.6f}",
        "odd_gn": "inf" if step == BROKEN["grad_norm"] else f"{values['gn']:.4f}",
        "percent": values["acc"] * 100, "milli": values["kl"] * 1000, "speed": 8 + step / 50, "at": step * 100,
        "eval": f"  EVAL t={step:04d} acc={values['acc']:.3f};len={values['len']:.0f}\n" if step % 10 == 0 else "",
        "held": f"val loss {values['loss']:.3f}\n" if step % 20 == 0 else "",
    }  # fmt: skip


def _log(template: str, head: str = PREAMBLE, between: str = "") -> str:
    return head + between.join(template.format(**_words_at(step)) for step in range(1, STEPS + 1)) + between


PAIRS = "rew {rew:.4f} kl {kl:.6f} ent {ent:.4f} gn {gn:.4f}"
CELLS = "{rew:.4f} {kl:.6f} {ent:.4f} {gn:.4f}"
LOGS = {
    "short names behind a bare number": _log("{s:>5}  R={rew:.4f}  KL={kl:.6f}  H={ent:.4f}  gn={gn:.4f}\n"),
    "a sentence": _log(
        "After update {s} the mean reward was {rew:.4f} (std {std:.2f}), the KL to the reference came to {kl:.6f}, "
        "the policy entropy was {ent:.4f} and the gradient norm {gn:.4f}.\n"
    ),
    "epochs in glued letters": _log("E{e} B {b:>2}/20 " + PAIRS + "\n"),
    "batches without a total": _log("ep{e} b{b:02d} " + PAIRS + "\n"),
    "epochs from 0 behind a logger": _log(
        "2026-03-04 09:00:{b:02d},123 - loop - INFO - epoch {e0} batch {b}/20 >> "
        "R {rew:.4f} KL {kl:.6f} ent. {ent:.4f} |g| {gn:.4f}\n"
    ),
    "headlines of epochs": _log("{head}  {b:>2}/20 " + PAIRS + "\n"),
    "a header that is repeated": _log("{header}{s:>5} | " + CELLS + "\n"),
    "columns explained once": _log(
        "{s} " + CELLS + "\n", "columns: 1 iteration, 2 mean reward, 3 kl to reference, 4 entropy, 5 grad norm\n"
    ),
    "a legend": _log(
        "#{s} r {rew:.4f} k {kl:.6f} h {ent:.4f} g {gn:.4f}\n",
        "# legend: r = mean reward, k = kl to reference, h = entropy, g = grad norm\n",
    ),
    "blocks below a rule": _log(
        "--------\nit {s}\n  rew : {rew:.4f}\n  kl  : {kl:.6f}\n  ent : {ent:.4f}\n  gn  : {gn:.4f}\n"
    ),
    "boxes": _log(
        "+---- update {s} ----+\n| rew/mean | {rew:.4f} |\n| kl       | {kl:.6f} |\n| entropy  | {ent:.4f} |\n"
        "| gnorm    | {gn:.4f} |\n+------------------+\n"
    ),
    "two lines a step": _log(
        "[09:00:{sec:02d}] round {s} of 400 finished in {sec} s\n    avg rew {rew:.4f}, gn {gn:.4f}\n"
        "    kl={kl:.6f} ent={ent:.4f}\n"
    ),
    "parts that some lines lack": _log(
        "#{s} | rew {rew:.4f} | kl {kl:.6f} | gn {gn:.4f} | ent {ent:.4f}{val}{saved}\n"
    ),
    "words that change": _log(
        "{level} [{sec:8.3f}s] ({task}) s{s:05d} rew={rew:.4f} kl={kl:.6f} ent={ent:.4f} gn={gn:.4f}{best}\n"
    ),
    "no leading zero, nan and inf": _log("t={s:04d}: rew {bare}, kl {odd_kl}, ent {ent:.4f}, gn {odd_gn}\n"),
    "a bar redrawn": _log("[{bar:<20}] {s}/60 " + PAIRS, "", "\r"),
    "several of one quantity": _log(
        "{s}: reward mean/std/max = {rew:.4f}/{std:.2f}/{acc:.4f}; kl = {kl:.6f}; entropy = {ent:.4f}; "
        "grad = {gn:.4f}\n"
    ),
    "a decimal comma": _log(
        "Durchgang {s}: Belohnung im Mittel {rew:.4f}; KL {kl:.6f}; Entropie {ent:.4f}; gn {gn:.4f}\n", ""
    ).replace(".", ","),
}


def _read(run: Path, toml: str) -> pl.DataFrame:
    settings = run.parent / "ptt.toml"
    settings.write_text(toml)
    return read_table(ptt.ingest(run, out=run.parent / "out", settings=api.read_settings(settings)), "metrics")


def _written(folder: Path, text: str, name: str = "train.log") -> Path:
    (folder / name).write_text(text)
    return folder / name


def _values(metrics: pl.DataFrame, name: str) -> dict[int, float]:
    return dict(metrics.filter(pl.col("name") == name).drop_nulls("value").select("step", "value").iter_rows())


@pytest.mark.parametrize("style", first_fast(LOGS, 8))
def test_an_entry_reads_a_home_made_log_as_it_stands(style: str, tmp_path: Path) -> None:
    run = _written(tmp_path, LOGS[style])
    (proposal, *more) = ptt.sources(run).proposals
    assert not more
    assert len(proposal.toml.splitlines()) <= 6
    metrics = _read(run, proposal.toml)
    for metric, key in EXPECTED.items():
        wanted = {step: _values_at(step)[key] for step in range(1, STEPS + 1)}
        if "nan" in style:
            wanted.pop(BROKEN.get(metric, 0), None)
        assert _values(metrics, metric) == pytest.approx(wanted, abs=6e-5), metric


def test_training_and_evaluation_get_an_entry_each(tmp_path: Path) -> None:
    run = _written(tmp_path, _log("t={s:04d} rew={rew:.4f};kl={kl:.6f}\n{eval}"))
    proposed = ptt.sources(run).proposals
    assert [proposal.matched for proposal in proposed] == [60, 6]
    metrics = _read(run, "\n".join(proposal.toml for proposal in proposed))
    assert len(_values(metrics, "reward/mean")) == STEPS
    wanted = {step: _values_at(step)["acc"] for step in range(10, STEPS + 1, 10)}
    assert _values(metrics, "eval/accuracy") == pytest.approx(wanted, abs=1e-3)
    assert not _values(metrics, "len/response_mean")  # the length is of the evaluation


def test_a_table_with_empty_cells_and_a_power_of_ten_in_its_header(tmp_path: Path) -> None:
    lines = [f"{at['s']:>4} {at['rew']:.4f} {at['kl']:.6f} {at['lr']:.3f} {at['held']}" for at in _table_rows()]
    run = _written(tmp_path, "\n".join((" iter reward kl lr(e-6) eval_rew", "-" * 40, *lines, "")))
    (proposal,) = ptt.sources(run).proposals
    metrics = _read(run, proposal.toml)
    assert len(_values(metrics, "reward/mean")) == STEPS
    assert _values(metrics, "eval/reward") == {10: 0.5, 20: 0.5, 30: 0.5, 40: 0.5, 50: 0.5, 60: 0.5}
    assert not _values(metrics, "lr")


def _table_rows() -> Iterator[dict[str, object]]:
    for step in range(1, STEPS + 1):
        yield _words_at(step) | {"lr": 3 - step / 100, "held": "0.5" if step % 10 == 0 else "--"}


def test_a_time_that_something_takes_is_called_no_score(tmp_path: Path) -> None:
    run = _written(tmp_path, _log("it {s} rew {rew:.4f} score {speed:.1f} s train {gn:.1f} s\n"))
    (proposal,) = ptt.sources(run).proposals
    assert proposal.names["rew"] == "reward/mean"
    assert [name for name, metric in proposal.names.items() if metric and metric.startswith("reward")] == ["rew"]


def test_scales_and_thousands(tmp_path: Path) -> None:
    line = "[2026-03-04T09:00:{sec:02d}.123Z][gpu{b}] Step {at:,} acc={percent:.1f}% kl={milli:.3f}mnat "
    run = _written(tmp_path, _log(line + "speed={speed:.2f}k tok/s mem=61.{b}GiB\n"))
    (proposal,) = ptt.sources(run).proposals
    metrics = _read(run, proposal.toml)
    steps = {step: _values_at(step // 100) for step in range(100, 100 * STEPS + 1, 100)}
    assert _values(metrics, "task/success") == pytest.approx({s: at["acc"] for s, at in steps.items()}, abs=1e-3)
    assert _values(metrics, "kl/ref") == pytest.approx({s: at["kl"] for s, at in steps.items()}, abs=1e-6)
    assert _values(metrics, "throughput/tokens")[6000] == pytest.approx(9200)


def test_a_console_that_is_read_in_part_is_told_and_its_other_lines_stay(tmp_path: Path) -> None:
    run = _written(tmp_path, _log("{s:>5}  R={rew:.4f}  KL={kl:.6f}\n{held}"))
    (proposal,) = ptt.sources(run).proposals
    shown = " ".join(CliRunner().invoke(app, ["sources", str(run)]).stdout.split())
    assert "leaves out the numbers on 60 lines of the first 66, and with them reward/mean, kl/ref" in shown
    metrics = _read(run, proposal.toml)
    assert len(_values(metrics, "reward/mean")) == STEPS
    wanted = {step: _values_at(step)["loss"] for step in (20, 40, 60)}
    assert _values(metrics, "eval/loss") == pytest.approx(wanted, abs=1e-3)


def test_a_console_that_is_read_whole_gets_no_entry(tmp_path: Path) -> None:
    coverage = ptt.sources(_written(tmp_path, _log("step {s}/60 | loss {loss:.4f} | reward {rew:.4f}\n")))
    assert not coverage.proposals
    assert not coverage.notes


def test_a_short_name_that_the_console_reads_is_mapped_in_the_section_to_paste(tmp_path: Path) -> None:
    run = _written(tmp_path, _log("step={s} loss={loss:.4f} gn={gn:.4f}\n"))
    coverage = ptt.sources(run)
    assert not coverage.proposals
    metrics = _read(run, coverage.metric_names.section)
    assert _values(metrics, "grad_norm")[STEPS] == pytest.approx(_values_at(STEPS)["gn"], abs=1e-4)


def test_the_section_to_paste_holds_no_metric_that_settings_refuse(tmp_path: Path) -> None:
    run = _written(tmp_path, _log("step={s} avg_rew={rew:.4f} heldout_acc={acc:.4f}\n"))
    section = ptt.sources(run).metric_names.section
    assert "avg_rew" in section
    assert len(_values(_read(run, section), "eval/accuracy")) == STEPS  # by its words all the same


NO_LOGS = {
    "README.md": "{s}. Run {s} reached reward {rew:.2f} after {at} steps\n",
    "requirements.txt": "package{s}=={s}.{b}.0\n",
    "train.py": "x{s} = step({s}, loss={loss:.3f}, reward={rew:.3f})\n",
    "config.yaml": "- step: {s}\n  reward: {rew:.3f}\n",
    "trainer.jsonl": '{{"current_steps": {s}, "total_steps": 60, "percentage": {percent:.2f}}}\n',
    "vocab.txt": "{s} token{s} {b}\n",
    "matrix.txt": "{rew:.3f} {ent:.3f} {gn:.3f}\n",
}


@pytest.mark.parametrize("name", NO_LOGS)
def test_what_is_no_log_gets_no_entry(name: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    _written(run, _log(NO_LOGS[name], ""), name)
    _written(run, '{"step": 1, "loss": 0.5}\n{"step": 2, "loss": 0.4}\n', "metrics.jsonl")
    assert not ptt.sources(run).proposals


HOSTILE = {
    "brackets": "(" * 900 + "1" + ")" * 900,
    "names": "a=" * 900 + "1",
    "slashes": "a/b/c/d " * 200 + "1/2/3/4/5",
    "thousands": "1,234" * 390,
    "bars": "[" + "=" * 1900 + " 1 2",
    "spaces": " " * 1900 + "1 2 x",
    "legend": "a = b, " * 280,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_no_text_takes_long(text: str, tmp_path: Path) -> None:
    rows = "".join(f"step {step} a {step / 7:.3f}\n" for step in range(100))
    run = _written(tmp_path, f"{text}\n" * 3000 + rows)
    start = time.process_time()
    propose(RunFile(path=run, rel=run.name, size=run.stat().st_size))
    assert time.process_time() - start < 5


def test_steps_through_epochs_and_blocks(tmp_path: Path) -> None:
    run = _written(tmp_path, "E1 B 1/3 .5\nE1 B 3/3 .4\nE2 B 1/3 .3\nE7 B 2/3 .2\n")
    entry = "[[logs]]\nfiles = '*'\nline = '^E(?P<epoch>\\d+) B (?P<step>\\d+)/3 (?P<reward>\\S+)'\nepoch_steps = 3\n"
    assert _values(_read(run, entry), "reward/mean") == {1: 0.5, 3: 0.4, 4: 0.3, 20: 0.2}
    run.write_text("reward 9\n# 0\nreward 1\nkl 2\nnoise 3\n# 1\nkl 4\n")
    entry = (
        "[[logs]]\nfiles = '*'\nline = '^# (?P<step>\\d+)|^reward (?P<reward>\\S+)|^kl (?P<kl>\\S+)'\ncarry = true\n"
    )
    metrics = _read(run, entry)
    assert _values(metrics, "reward/mean") == {0: 1.0}  # what stands above the first step belongs to none
    assert _values(metrics, "kl/ref") == {0: 2.0, 1: 4.0}


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ("line = '(?P<loss>.)'\ncarry = true", "logs[0].carry goes with a step"),
        ("line = '(?P<step>.)(?P<loss>.)'\nepoch_steps = 3", "logs[0].epoch_steps goes with `epoch`"),
        ("line = '(?P<step>.)(?P<epoch>.)'\nepoch_steps = 3", "gives no value"),
        ("line = '(?P<step>.)(?P<epoch>.)'\nepoch_steps = -3", "epoch_steps"),
    ],
)
def test_keys_that_do_not_go_together_are_named(keys: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "ptt.toml").write_text(f"[[logs]]\nfiles = 'a'\n{keys}\n")
    with pytest.raises(SettingsError) as error:
        api.read_settings(tmp_path / "ptt.toml")
    assert says in str(error.value)
