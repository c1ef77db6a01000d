"""Large metric logs are read as columns: each value counts as it does where lines are read one by one."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from metric_pieces import assert_same, read_in_blocks, rows_and_losses
from parser_samples import pieces_of, table
from slow_cases import first_fast

from ptt.diagnostics.parsers import PARSERS, Rows, RunFile, metrics_jsonl
from ptt.diagnostics.parsers.io import metric_blocks
from ptt.diagnostics.parsers.io.interface import Wide
from ptt.diagnostics.schema import Flag

JSONL = next(parser for parser in PARSERS if parser.name == "metrics_jsonl")
NUMBERS = ("0.5", "1", "-2.25", "3e-5", "1E+20", "-0.0", "0.1234567890123456", "12345678901234567890", "1e-310")
ODD = ("null", "NaN", "Infinity", "-Infinity", '"nan"', '"2.5"', '"a: b"', '"{\\"a\\": 1}"', '"\\u003a"', "true",
       "[1, 2]", "[null]", '[{"a": 1}]', '{"a": 1}', '{"a": null}', "{}", '{"a": {"b": 2}}', "1e400", "007", "1.", "",
       '"', "[" * 40 + "]" * 40, '{"a": ' * 20 + "1" + "}" * 20, "9" * 400)  # fmt: skip
STEPS = ("1.0", "2.5", '"3/100"', '"x"', "null", "-4", "99999999999999999999", "true", "[1]", "{}")
TIMES = (
    "1700000000",
    "1700000000.25",
    '"2026-01-01T00:00:00+00:00"',
    '"2026-01-01 00:00:00"',
    "null",
    "5",
    '"yesterday"',
)
NOTES = ('"warm up"', '"a:b"', '"{x}"', '"say \\"no\\": 1"', '"null"', '""', "3", '"\\ud800"', '"nan"', "null")
LINES = ("", "   ", "oops", "[]", "3", "null", '{"step": 3, "loss": 0.5', '{"done": true}', '{"step": 3} {"step": 4}',
         '[{"step": 3, "loss": 0.25}, {"step": 4, "loss": 0.75}]', "\x00")  # fmt: skip

LONG_NAMES = (
    "loss",
    "reward",
    "grad_norm",
    "my/own",
    "eval/reward",
    "probs_ratio_max",
    "time",
    "step",
    "a: b",
    "total_steps",
    "1",
)


def drawn_log(drawn: random.Random) -> bytes:
    """Draw a log whose rows are mostly sound, and some of them odd in one way or another."""
    time = drawn.choice([None, "timestamp", "wall_time"])
    names = ["loss", "reward", "my/own", drawn.choice(["kl", "a:b", 'quo\\"te', "caf\u00e9", "^x.*$", "total_steps"])]
    note = drawn.choice([None, None, "note", "phase"])
    wrapper = drawn.choice([None, None, "data", "group"])
    late = drawn.choice([0, 0, 40])
    odd = drawn.choice([0.0, 0.0, 0.001, 0.01])
    clock, text = drawn.choice(TIMES), drawn.choice(NOTES)
    colon = drawn.choice([": ", ":", ":"])
    words, share = (
        drawn.choice([("NaN",), ("null",), ("NaN", "Infinity", "-Infinity", "null")]),
        drawn.choice([0, 0, 0.1]),
    )
    rows = []
    for step in range(1, drawn.randrange(20, 160)):
        fields = [("step", drawn.choice(STEPS) if drawn.random() < odd else str(step))]
        if time:
            fields.append((time, drawn.choice(TIMES) if drawn.random() < odd else clock))
        if note and drawn.random() < 0.9:
            fields.append((note, drawn.choice(NOTES) if drawn.random() < odd else text))
        values = [
            (name, drawn.choice(ODD) if drawn.random() < odd else drawn.choice(NUMBERS[:7]))
            for place, name in enumerate(names)
            if (place or step > late) and drawn.random() < 0.95
        ]
        values = [(name, drawn.choice(words) if drawn.random() < share else value) for name, value in values]
        if drawn.random() < odd and values:
            values.append((drawn.choice(values)[0], drawn.choice(NUMBERS)))
        space = " " if drawn.random() < odd else ""
        inner = ", ".join(f'"{name}"{space}{colon}{value}' for name, value in values)
        whole = [f'"{name}"{colon}{value}' for name, value in fields]
        whole += [f'"{wrapper}"{colon}{{{inner}}}'] if wrapper else [inner] if inner else []
        rows.append(drawn.choice(LINES) if drawn.random() < odd else "{" + ", ".join(whole) + "}")
    end = drawn.choice(["\n", "\n", "\r\n"])
    content = (end.join(rows) + (end if drawn.random() < 0.8 else "")).encode()
    return content[: -drawn.randrange(1, 30)] if drawn.random() < 0.1 else content


def drawn_long_log(drawn: random.Random) -> bytes:
    """Draw a log with one value a row, whose rows are mostly sound, and some of them odd in one way or another."""
    name_key, value_key = drawn.choice([("name", "value"), ("metric", "value"), ("metricName", "metricValue")])
    time = drawn.choice([None, None, "timestamp"])
    note = drawn.choice([None, None, "run", "split"])
    odd = drawn.choice([0.0, 0.0, 0.002, 0.02])
    names = drawn.sample(LONG_NAMES[:5], 3) + (drawn.sample(LONG_NAMES, 2) if drawn.random() < 0.3 else [])
    rows = []
    step = 0
    for _ in range(drawn.randrange(20, 120)):
        step = drawn.randrange(1, step + 2) if drawn.random() < odd else step + 1
        for name in names:
            if name == "my/own" and step % 7:
                continue
            fields = {"step": drawn.choice(STEPS) if drawn.random() < odd else str(step)}
            if time:
                fields[time] = drawn.choice(TIMES) if drawn.random() < odd else str(1_700_000_000 + step)
            if note:
                fields[note] = drawn.choice([*NOTES, '"eval"']) if drawn.random() < odd else '"train"'
            fields[name_key] = drawn.choice(ODD[:8]) if drawn.random() < odd else json.dumps(name)
            fields[value_key] = (
                drawn.choice([*ODD, "1700000000"]) if drawn.random() < odd else drawn.choice(NUMBERS[:7])
            )
            if drawn.random() < odd:
                fields[drawn.choice(["epoch", "value", "name", "key", "extra"])] = drawn.choice(["1", '"x"', "null"])
            if drawn.random() < odd:
                fields.pop(drawn.choice([*fields]))
            line = ", ".join(f'"{key}": {value}' for key, value in fields.items())
            rows.append(drawn.choice(LINES) if drawn.random() < odd / 2 else f"{{{line}}}")
    return ("\n".join(rows) + "\n").encode()


def assert_columns_are_as_lines(path: Path, *, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read a log in blocks of so many bytes, as columns and line by line: values, losses and facts are the same."""
    with monkeypatch.context() as patch:
        read_in_blocks(size, patch)
        by_column = rows_and_losses(JSONL, path)
        patch.setattr(metrics_jsonl, "fast_block", lambda *_, **__: None)
        assert_same(by_column, rows_and_losses(JSONL, path))


@pytest.mark.parametrize("draw", [drawn_log, drawn_long_log])
@pytest.mark.parametrize("seed", first_fast(range(40), 5))
def test_a_log_read_as_columns_has_the_values_and_losses_of_its_lines(
    seed: int, draw: Callable[[random.Random], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = random.Random(seed)
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(draw(drawn))
    size = drawn.choice([400, 1500, 1 << 18])
    monkeypatch.setattr(metric_blocks, "WIDE_BYTES", drawn.choice([0, 1 << 20]))
    assert_columns_are_as_lines(path, size=size, monkeypatch=monkeypatch)


@pytest.mark.parametrize("space", [" ", "\t", "  \r"])
def test_the_last_of_two_values_under_one_key_counts_however_they_are_spaced(
    space: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metric_blocks, "WIDE_BYTES", 0)
    path = tmp_path / "metrics.jsonl"
    path.write_text(
        "".join(f'{{"step": {step}, "loss": {step / 7}, "loss"{space}: 5.0}}\n' for step in range(1, 50)), newline=""
    )
    assert rows_and_losses(JSONL, path)[0]["value"].unique().to_list() == [5.0]
    assert_columns_are_as_lines(path, size=1 << 18, monkeypatch=monkeypatch)


@pytest.mark.parametrize(
    ("written", "facts"),
    [
        (lambda step: f', "total_steps": {100 if step < 20 else 200}', {}),  # two totals: none is sure
        (lambda step: ', "total_steps": 100' if step < 20 else "", {"max_steps": 100, "global_step": 49}),
        (lambda step: f', "global_step/max_steps": "{step}/100"', {"max_steps": 100, "global_step": 49}),
        (lambda step: ', "train_runtime": 12.5' if step == 30 else "", {"train_runtime": 12.5}),
    ],
)
@pytest.mark.parametrize("size", [400, 1 << 18])
def test_the_length_of_a_run_is_read_of_every_row(
    written: Callable[[int], str],
    facts: dict[str, float],
    size: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(f'{{"step": {step}, "loss": 0.5{written(step)}}}\n' for step in range(1, 50)))
    merged = {key: value for found in rows_and_losses(JSONL, path)[2] for key, value in found.items()}
    assert {key: value for key, value in merged.items() if key != "framework"} == facts
    assert_columns_are_as_lines(path, size=size, monkeypatch=monkeypatch)


@pytest.mark.parametrize(("step", "length"), [(1 << 53, None), ((1 << 53) + 1, 100), (-(1 << 53) - 1, 100)])
@pytest.mark.parametrize("rows", [['"loss": 0.5, "total_steps": 100'], ['"name": "total_steps", "value": 100']])
def test_a_step_that_overflowed_in_the_last_row_does_not_hide_the_length_of_the_run(
    rows: list[str], step: int, length: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def said() -> dict[str, object]:
        return {key: value for found in rows_and_losses(JSONL, path)[2] for key, value in found.items()}

    path = tmp_path / "metrics.jsonl"
    rows = [*rows, '"name": "loss", "value": 0.5'] if "name" in rows[0] else rows
    path.write_text("".join(f'{{"step": {at}, {row}}}\n' for at in [*range(1, 50), step] for row in rows))
    by_column = said()
    assert by_column.get("max_steps") == length
    monkeypatch.setattr(metrics_jsonl, "fast_block", lambda *_, **__: None)
    assert by_column == said()


@pytest.mark.parametrize("name", ["^x.*$", "^.*$", "*", ""])
@pytest.mark.parametrize("value", ["0.5", '"warm up"', '{"loss": 0.5}'])
def test_a_name_that_is_a_pattern_stands_for_itself(
    name: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metric_blocks, "WIDE_BYTES", 0)
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(f'{{"step": {step}, "kl": {step}, "{name}": {value}}}\n' for step in range(1, 50)))
    assert rows_and_losses(JSONL, path)[3] == 1
    assert_columns_are_as_lines(path, size=1 << 18, monkeypatch=monkeypatch)


@pytest.mark.parametrize("text", ["fine", "a:b", "{x", "2026-01-01T00:00:00+00:00"])
def test_a_sound_log_is_read_as_columns_alone(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_blocks, "WIDE_BYTES", 0)
    read_in_blocks(2000, monkeypatch)
    path = tmp_path / "metrics.jsonl"
    rows = [{"step": step, "loss": step / 7, "no:te": text} for step in range(1, 200)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found, lost, facts, wide = rows_and_losses(JSONL, path)
    assert (found.height, lost, facts) == (199, [], [])
    assert wide > 3


def test_a_log_with_a_value_a_row_becomes_a_row_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_blocks, "WIDE_BYTES", 0)
    path = tmp_path / "metrics.jsonl"
    names = ["loss", "kl", "my/own", "eval/loss"]
    rows = [{"step": step, "name": name, "value": step / 7} for step in range(1, 50) for name in names]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    read = list(JSONL.read(RunFile(path=path, rel=path.name, size=path.stat().st_size)))
    (wide,) = [piece for piece in read if isinstance(piece, Wide)]
    (narrow,) = [piece for piece in read if isinstance(piece, Rows)]
    assert wide.frame.columns == ["__step", "__time", "__seq", "loss", "kl", "my/own"]
    assert wide.frame.height == narrow.frame.height == 49


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "null"])
def test_words_for_what_is_no_number_are_read_as_columns(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metric_blocks, "WIDE_BYTES", 0)
    path = tmp_path / "metrics.jsonl"
    path.write_text(
        "".join(f'{{"step": {step}, "loss": {word if step % 3 else 0.5}, "kl": 1}}\n' for step in range(1, 100))
    )
    found, lost, _, wide = rows_and_losses(JSONL, path)
    assert (lost, wide) == ([], 1)
    flag = {"NaN": Flag.NAN, "Infinity": Flag.POS_INF, "-Infinity": Flag.NEG_INF, "null": Flag.NULL_IN_SOURCE}[word]
    assert found.filter(pl.col("name_raw") == "loss")["flag"].value_counts().sort("flag").rows() == [
        (0, 33),
        (flag, 66),
    ]


@pytest.mark.parametrize(("factor", "steps"), [(256, [1, 2, 3, 4]), (1, [1, 2, 3, 4]), (None, [7, 19, 20, 41])])
def test_a_step_that_counts_a_fixed_number_of_samples_gives_way_to_that_of_updates(
    tmp_path: Path, factor: int | None, steps: list[int]
) -> None:
    counts = [at * factor for at in range(1, 5)] if factor is not None else steps
    rows = [{"global_step": count, "training_step": at, "loss": 0.5} for at, count in enumerate(counts, start=1)]
    path = tmp_path / "history.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    losses = table(pieces_of(path), "metrics").filter(pl.col("name_raw") == "loss")
    assert sorted(losses["step"].to_list()) == steps
