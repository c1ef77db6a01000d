"""What metrics are called: `[metrics]` of the settings first, then aliases, then words, as the note tells."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import polars as pl
import pytest
from slow_cases import first_fast
from typer.testing import CliRunner

import ptt
from ptt import api
from ptt.cli.app import app
from ptt.diagnostics.errors import InputError, SettingsError
from ptt.diagnostics.metrics.aliases import canonical
from ptt.diagnostics.store.scan import read_table

ROWS = 60


def _log(path: Path, columns: Mapping[str, float], rows: int = ROWS) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ({"step": step} | {raw: value + 0.001 * step for raw, value in columns.items()} for step in range(rows))
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path.parent


def _settings(folder: Path, text: str) -> api.Settings:
    (folder / "names.toml").write_text(text)
    return api.read_settings(folder / "names.toml")


def _names(run: Path, settings: api.Settings | None = None) -> dict[str, tuple[str | None, str]]:
    """Return what each raw name of a run stands for, and its split."""
    store = ptt.ingest(run, out=run.parent / "out", settings=settings)
    rows = read_table(store, "metrics").select("name_raw", "name", "split").unique().rows()
    assert len({raw for raw, _, _ in rows}) == len(rows)
    return {raw: (name, split) for raw, name, split in rows}


def _note(run: Path) -> str:
    (source,) = ptt.diagnose(run).sources
    return source.note or ""


def test_a_name_is_read_by_its_words_and_that_is_told(tmp_path: Path) -> None:
    run = _log(tmp_path / "run" / "log.jsonl", {"avg_rew": 1.0, "Loss/test": 2.0, "format_reward": 0.0})
    assert _names(run) == {
        "avg_rew": ("reward/mean", "train"),
        "Loss/test": ("eval/loss", "eval"),
        "format_reward": (None, "train"),
    }
    assert "`avg_rew` as reward/mean" in _note(run)
    assert "format_reward" not in _note(run)


def test_nothing_is_guessed_of_a_metric_that_a_known_name_holds(tmp_path: Path) -> None:
    run = _log(tmp_path / "run" / "log.jsonl", {"loss": 1.0, "total_loss": 2.0})
    _log(run / "other.jsonl", {"avg_loss": 3.0})
    names = _names(run)
    assert names["loss"][0] == "loss/total"
    assert names["total_loss"][0] is None
    assert names["avg_loss"][0] is None


def test_of_two_readings_the_plainer_name_counts(tmp_path: Path) -> None:
    run = _log(tmp_path / "run" / "log.jsonl", {"avg_ep_reward": 1.0, "avg_reward": 2.0})
    assert _names(run) == {"avg_ep_reward": (None, "train"), "avg_reward": ("reward/mean", "train")}


def test_the_mean_over_a_run_and_the_rewards_of_pairs_are_not_guessed(tmp_path: Path) -> None:
    run = _log(tmp_path / "a" / "log.jsonl", {"train_loss": 1.0, "train_runtime": 60.0})
    assert _names(run)["train_loss"][0] is None
    run = _log(tmp_path / "b" / "log.jsonl", {"mean_reward": 1.0, "margin": 2.0})
    assert _names(run)["mean_reward"][0] is None


def test_a_reading_that_the_values_contradict_does_not_count(tmp_path: Path) -> None:
    run = _log(tmp_path / "run" / "log.jsonl", {"mean_entropy": -2.0, "clip_frac": 12.5, "reward_stdev": 0.5})
    names = _names(run)
    assert (names["mean_entropy"][0], names["clip_frac"][0]) == (None, None)  # an entropy loss; a percentage
    assert names["reward_stdev"][0] == "reward/std"


def test_a_lone_value_is_no_series(tmp_path: Path) -> None:
    assert _names(_log(tmp_path / "run" / "log.jsonl", {"avg_rew": 1.0}, rows=1))["avg_rew"][0] is None


def test_settings_name_a_metric_that_no_word_tells(tmp_path: Path) -> None:
    run = _log(tmp_path / "run" / "log.jsonl", {"my/r": 1.0, "reward": 5.0, "q/loss": 2.0})
    settings = _settings(tmp_path, '[metrics]\n"my/r" = "reward/mean"\n"q/loss" = "eval/loss"\n')
    assert _names(run, settings) == {
        "my/r": ("reward/mean", "train"),
        "reward": (None, "train"),  # the one that was chosen is the reward of this file
        "q/loss": ("eval/loss", "eval"),
    }
    assert _names(run)["reward"][0] == "reward/mean"  # the store is made anew: other settings, other names
    assert ptt.diagnose(run, settings=settings).tables["series"]["name_raw"].unique().to_list() == ["my/r"]


def _rows() -> list[dict[str, float]]:
    return [{"my_figure": 0.5 + 0.001 * step, "avg_rew": 1.0 + 0.01 * step, "loss": 2.0} for step in range(ROWS)]


WRITTEN = {
    "log.csv": "step,my_figure,avg_rew,loss\n"
    + "".join(f"{step},{row['my_figure']},{row['avg_rew']},2.0\n" for step, row in enumerate(_rows())),
    "train.log": "".join(f"{row}\n" for row in _rows()),  # printed dicts, which name no step
    "out.txt": "".join(f"step {step} | my_figure: {row['my_figure']} | avg_rew: {row['avg_rew']} | loss: 2.0\n"
                       for step, row in enumerate(_rows())),
    "trainer_state.json": json.dumps(
        {"global_step": 60, "max_steps": 60, "log_history": [{"step": step, **row} for step, row in enumerate(_rows())]}
    ),
    "logs.json": json.dumps([{"step": step, **row} for step, row in enumerate(_rows())]),
}  # fmt: skip


@pytest.mark.parametrize("name", first_fast(WRITTEN, 2))
def test_names_are_chosen_whatever_the_format(tmp_path: Path, name: str) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / name).write_text(WRITTEN[name])
    settings = _settings(tmp_path, '[metrics]\nmy_figure = "entropy"\n')
    series = ptt.diagnose(run, settings=settings).tables["series"]
    assert set(series["name"]) == {"entropy", "reward/mean", "loss/total"}
    assert set(ptt.diagnose(run).tables["series"]["name"]) == {"reward/mean", "loss/total"}


@pytest.mark.parametrize("nothing", ["", "ignore"])
def test_settings_drop_a_guess_and_an_alias(tmp_path: Path, nothing: str) -> None:
    run = _log(tmp_path / "run" / "log.jsonl", {"avg_rew": 1.0, "loss": 5.0})
    settings = _settings(tmp_path, f'[metrics]\navg_rew = "{nothing}"\nloss = "{nothing}"\n')
    assert _names(run, settings) == {"avg_rew": (None, "train"), "loss": (None, "train")}


def test_a_kept_diagnosis_of_other_names_is_not_reused(tmp_path: Path) -> None:
    run = _log(tmp_path / "run" / "log.jsonl", {"my/r": 1.0})
    settings = _settings(tmp_path, '[metrics]\n"my/r" = "reward/mean"\n')
    out = tmp_path / "out"
    assert ptt.diagnose(run, out=out).tables["series"].is_empty()
    assert ptt.diagnose(run, out=out, settings=settings).tables["series"]["name"].unique().to_list() == ["reward/mean"]
    assert ptt.diagnose(run, out=out).tables["series"].is_empty()


def test_a_store_that_stands_alone_keeps_the_names_it_was_made_with(tmp_path: Path) -> None:
    run = _log(tmp_path / "run" / "log.jsonl", {"my/r": 1.0})
    settings = _settings(tmp_path, '[metrics]\n"my/r" = "reward/mean"\n')
    named = ptt.ingest(run, out=tmp_path / "named", settings=settings)
    assert "reward/mean" in api.open_run(named, out=tmp_path / "o").diagnosis.tables["series"]["name"]
    plain = ptt.ingest(run, out=tmp_path / "plain")
    with pytest.raises(InputError, match=r"different names under \[metrics\]"):
        api.open_run(plain, out=tmp_path / "o", settings=settings)


def test_names_of_large_logs_are_read_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ptt.diagnostics.parsers.io.metric_blocks.WIDE_BYTES", 1)
    run = _log(tmp_path / "run" / "log.jsonl", {"avg_rew": 1.0, "my/l": 2.0, "q": 3.0, "loss/dev": 4.0})
    settings = _settings(tmp_path, '[metrics]\n"my/l" = "loss/total"\nq = "eval/reward"\n')
    tables = ptt.diagnose(run, settings=settings).tables
    assert dict(tables["series"].select("name", "name_raw").unique().rows()) == {
        "reward/mean": "avg_rew",
        "loss/total": "my/l",
    }
    evaluated = tables["metrics"].filter(pl.col("split") == "eval")
    assert dict(evaluated.select("name_raw", "name").unique().rows()) == {"q": "eval/reward", "loss/dev": "eval/loss"}
    assert evaluated["value"].len() == 2 * ROWS


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('a = "reward"', "metrics maps 'a' to 'reward', which is not a metric; is reward/mean meant?"),
        ('a = "mean grad norm x"', "is grad_norm meant?"),
        ('a = "kl/reff"', "is kl/ref meant?"),
        ('a = "frobnicate"', "which is not a metric; none is similar."),
        ("a = 3", "metrics.a must be a text."),
        ('my.a = "reward/mean"', "metrics.my must be a text."),
    ],
)
def test_a_wrong_name_in_settings_is_one_sentence(tmp_path: Path, line: str, problem: str) -> None:
    with pytest.raises(SettingsError) as error:
        _settings(tmp_path, f"[metrics]\n{line}\n")
    assert problem in str(error.value)


@pytest.mark.slow
def test_commands_take_names_from_the_settings_file(tmp_path: Path) -> None:
    run = _log(tmp_path / "run" / "log.jsonl", {"my/r": 1.0})
    settings = tmp_path / "s.toml"
    settings.write_text('[metrics]\n"my/r" = "reward/mean"\n')
    for command in ("ingest", "diagnose"):
        arguments = [command, str(run), "--settings", str(settings), "--out", str(tmp_path / command)]
        assert CliRunner().invoke(app, arguments).exit_code in (0, 4)
        assert read_table(tmp_path / command / "store", "metrics")["name"].unique().to_list() == ["reward/mean"]
    answer = CliRunner().invoke(app, ["sources", str(run), "--settings", str(settings), "--json"]).stdout
    assert "reward/mean" in answer
    assert canonical("my/r") is None  # nothing of it stays in the process


def _section(run: Path) -> str:
    return ptt.sources(run).metric_names.section


def test_sources_print_a_section_that_can_be_pasted(tmp_path: Path) -> None:
    columns = {"avg_rew": 1.0, "kl/to/coach": 0.1, "score": 0.5, "step_time_s": 3.0, 'a"b': 1.0, "gpu_util": 0.9}
    run = _log(tmp_path / "run" / "log.jsonl", columns)
    shown = CliRunner().invoke(app, ["sources", str(run)]).stdout
    lines = shown[shown.rindex("[metrics]") :].splitlines()
    assert lines == [
        "[metrics]",
        '"avg_rew" = "reward/mean"  # read by its words',
        '# "kl/to/coach" = "kl/ref"',
        '# "a\\"b" = ""  # write the metric that it is',
        '# "score" = ""  # write the metric that it is',
    ]
    everything = "\n".join(line.removeprefix("# ") for line in lines)
    settings = _settings(tmp_path, everything)
    assert settings.metrics == {"avg_rew": "reward/mean", "kl/to/coach": "kl/ref", 'a"b': "", "score": ""}
    names = json.loads(CliRunner().invoke(app, ["sources", str(run), "--json"]).stdout)["metric_names"]
    assert names["guessed"] == {"avg_rew": "reward/mean"}
    assert names["unnamed"][0] == {"raw": "kl/to/coach", "near": ["kl/ref"]}
    assert names["section"] == "\n".join(lines)


def test_a_run_whose_names_are_known_needs_no_section(tmp_path: Path) -> None:
    columns = {"loss": 1.0, "reward": 0.5, "kl": 0.1, "my_figure": 3.0, "format_reward": 1.0}
    assert not _section(_log(tmp_path / "run" / "log.jsonl", columns))


def test_constants_and_counters_are_no_metrics_to_name(tmp_path: Path) -> None:
    rows = ({"step": step, "seen": 8 * step, "alpha": 0.5, "quality": 0.1 * (step % 3)} for step in range(ROWS))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert _section(tmp_path / "run") == '[metrics]\n# "quality" = ""  # write the metric that it is'


def test_a_long_list_of_names_is_cut_and_counted(tmp_path: Path) -> None:
    run = _log(tmp_path / "run" / "log.jsonl", {f"figure_{2 * chr(97 + number)}": 1.0 for number in range(25)})
    found = ptt.sources(run).metric_names
    assert (len(found.unnamed), found.left_out) == (20, 5)
    assert "# and 5 names more" in CliRunner().invoke(app, ["sources", str(run)]).stdout
