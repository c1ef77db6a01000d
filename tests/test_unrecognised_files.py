"""Files in no known format: which look like metric logs, and the sample of their shapes, which holds no content."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parser_samples import run_file
from typer.testing import CliRunner

import ptt
from ptt import api
from ptt.cli.app import app
from ptt.diagnostics.metrics.guessed_names import CAMEL
from ptt.diagnostics.parsers.io import unrecognised
from ptt.diagnostics.parsers.io.unrecognised import known_words, logged_names, sample, shape

SECRETS = {
    "OpenAI key": "sk-proj-Zq8Lw0pXn4TbVc2",
    "Hugging Face token": "hf_QwErTyUiOpAsDfGhJkLz",
    "AWS key": "AKIAIOSFODNN7EXAMPLE",
    "AWS secret": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "GitHub token": "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "JWT": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJqb2UifQ.c2lnbmF0dXJl",
    "password": "correcthorsebatterystaple",
    "private key": "MIIEowIBAAKCAQEAu1SU1LfVLPHCozMxH2Mo",
    "user": "annabelle",
    "name": "Zoë Müller-Lüdenscheidt",
    "host": "gpu17.internal.acme.corp",
    "path": "/home/annabelle/secretproject/ckpt.pt",
    "Windows path": "C:\\Users\\annabelle\\Desktop",
    "address": "annabelle@acme.example",
    "url": "https://acme.example/run?token=hunter2swordfish",
    "IP": "10.13.37.42",
    "MAC": "de:ad:be:ef:13:37",
    "card": "4929 1267 3345 8812",
    "phone": "+49 171 5558812",
    "UUID": "3f2b8c1e-9d4a-4f6b-8a77-1c2d3e4f5a6b",
    "hash": "9f86d081884c7d659a2feaa0c55ad015",
    "Chinese": "王小明的密码",
    "project": "moonshot_zebra",
    "text": "Dear Annabelle, wire the bribe tomorrow",
}

PLACES = (
    '{{"step": 1, "loss": 0.5, "user": "{0}"}}',
    '{{"{0}": 0.25, "step": 1}}',
    "{{'reward': 0.5, '{0}': '{0}'}}",
    "step 5 | {0}: 0.5 | loss: 1.0",
    "{0}",
    "loss={0} lr=1e-5",
    "step,{0},loss\n1,{0},0.5",
    '"{0}',
    "it's {0} isn't it 5",
    "export TOKEN={0};\x1b[31m{0}\x1b[0m",
    "loss: 0.5{0}0.5",
)


def _shape_of(text: str) -> str:
    return "\n".join(map(shape, text.split("\n")))


def _pieces(secret: str) -> list[str]:
    """Return what of a secret must not come out: each run of letters or digits that is no common word."""
    runs = re.findall(r"[^\W\d_]{2,}|\d{2,}", secret)
    return [run for run in runs if run.lower() not in known_words() and set(run) != {"9"}]


@pytest.mark.parametrize("place", PLACES)
def test_no_secret_comes_out_of_a_shape(place: str) -> None:
    for name, secret in SECRETS.items():
        shown = _shape_of(place.format(secret))
        assert secret not in shown, name
        out = [piece for piece in _pieces(secret) if re.search(rf"(?<![^\W_]){re.escape(piece)}(?![^\W_])", shown)]
        assert not out, name


@given(st.text(max_size=200))
def test_a_shape_holds_no_digit_but_nine_and_no_word_that_is_not_of_the_list(text: str) -> None:
    shown = _shape_of(text)
    assert set(re.findall(r"\d", shown)) <= {"9"}
    kinds = {"x", "path", "text", "word", "nan", "e"}  # the last of an exponent
    for word in re.findall(r"[^\W\d_]+", shown):
        assert all(part.lower() in known_words() | kinds for part in CAMEL.sub(" ", word).split())
    assert shown.isascii()


@given(st.from_regex(r"[A-Za-z0-9+/=_-]{12,40}", fullmatch=True), st.sampled_from(PLACES))
def test_no_key_of_random_letters_and_digits_comes_out(key: str, place: str) -> None:
    runs = [run for run in re.findall(r"[^\W_]+", key) if len(run) > 3]
    shown = _shape_of(place.format(key))
    changed = [run for run in runs if unrecognised.shape(run) != run]
    assert not [run for run in changed if re.search(rf"(?<![^\W_]){run}(?![^\W_])", shown)]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ('{"step": 12, "train/loss": 0.53, "model": "a b", "time": "2024-05-06T07:08:09Z", "p": "/x/y"}',
         '{"step": 99, "train/loss": 9.99, "model": "<text>", "time": "9999-99-99T99:99:99Z", "p": "<path>"}'),
        ('{"value": "1.5e-3", "zed": "NaN", "alice_reward": 2, "kind": "abc"}',
         '{"value": "9.9e-9", "x": "nan", "x_reward": 9, "x": "<word>"}'),
        ("Epoch:[1/3](20/400), loss: 0.66, lr: 1e-05", "Epoch:[9/9](99/999), loss: 9.99, lr: 9e-99"),
        ("gradNorm=2.5 acmeNorm=3 step12 12.5s/it", "gradNorm=9.9 x=9 step99 99.9s/it"),
        ("[INFO] alice bob carol: reward 1", "[INFO] x x: reward 9"),
        ("奖励: 0.5 — ok", "x: 9.9 ? ok"),
        ("", ""),
    ],
)  # fmt: skip
def test_what_a_parser_would_go_by_stays(line: str, shown: str) -> None:
    assert shape(line) == shown


def _foreign(folder: Path) -> Path:
    folder.mkdir()
    (folder / "alice.config").write_text("\n".join(f"owner_{number} = alice" for number in range(5)))
    line = "@{0}@ as far as anybody could tell by then, reward is {1:.3f};; alice\n"
    (folder / "my.weird").write_text("".join(line.format(step, step / 7) for step in range(60)))
    (folder / "weights.bin").write_bytes(b"\x80\x02\0\1")
    return folder


def test_the_command_writes_a_sample_and_says_to_look_through_it(tmp_path: Path) -> None:
    run, target = _foreign(tmp_path / "alices_run"), tmp_path / "shapes.txt"
    result = CliRunner().invoke(app, ["sources", str(run), "--sample", str(target), "--json"])
    assert result.exit_code == 0
    assert json.loads(result.stdout)["name"] == "alices_run"
    assert "read it before you attach it" in result.stderr
    text = target.read_text()
    assert "alice" not in text
    assert ".weird" not in text
    assert text.index("reward is 9.999") < text.index("x_9 = x")  # what looks like a log comes first
    assert "(and 49 more of this shape)" in text
    assert "binary, pickle" in text
    assert ".bin, 4 bytes" in text


def test_a_sample_is_never_written_into_the_run(tmp_path: Path) -> None:
    run = _foreign(tmp_path / "run")
    before = sorted(path.name for path in run.iterdir())
    for target in (run / "shapes.txt", run / "my.weird"):
        assert CliRunner().invoke(app, ["sources", str(run), "--sample", str(target)]).exit_code == 2
    alone = run / "my.weird"
    assert CliRunner().invoke(app, ["sources", str(alone), "--sample", str(alone)]).exit_code == 2
    assert CliRunner().invoke(app, ["sources", str(run), "--sample", str(tmp_path)]).exit_code == 2
    assert sorted(path.name for path in run.iterdir()) == before
    assert alone.read_text().startswith("@0@")


def test_a_run_that_is_read_whole_has_nothing_to_sample(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "log.jsonl").write_text('{"step": 1, "loss": 0.5}\n')
    result = CliRunner().invoke(app, ["sources", str(tmp_path / "run"), "--sample", str(tmp_path / "s.txt")])
    assert "nothing to sample" in result.stderr
    assert not (tmp_path / "s.txt").exists()


@pytest.mark.slow
def test_a_sample_is_small_whatever_the_run_holds(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for number in range(60):
        lines = (f"{'=' * (row % 90)} {'loss: 0.5, ' * 200}\n" for row in range(100))
        (run / f"{number}.weird").write_text("".join(lines))
    text = api.sample(run)
    assert len(text.encode()) <= 64 << 10
    assert "left out" in text


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("".join(f"@{step}@ reward is {step / 7:.3f}; \n" for step in range(9)), ["reward"]),
        ("".join(f"{step} ~ avg_loss={step / 3:.2f} (KL: {step / 50})\n" for step in range(9)), ["KL", "avg_loss"]),
        ("when;loss;who\n" + "".join(f"now;{step / 7:.3f};me\n" for step in range(9)), ["loss"]),
        ("loss: 0.5\nloss: 0.5\nloss: 0.5\n", []),  # a setting
        ("".join(f'{{"id": {number}, "content": "a"}}\n' for number in range(50)), []),  # a vocabulary
        ("name,age\nAda,36\nBob,41\nCy,5\n", []),
        ("".join(f"numpy=={number}.1\n" for number in range(9)), []),
        ("the loss of her dog was 3 times 4 as hard\n" * 5, []),
        ("", []),
    ],
)
def test_a_file_that_holds_changing_numbers_under_names_of_metrics_looks_like_a_log(
    tmp_path: Path, text: str, names: list[str]
) -> None:
    path = tmp_path / "file.weird"
    path.write_text(text)
    assert logged_names(run_file(path)) == names


def test_sources_hint_at_a_log_that_is_not_read(tmp_path: Path) -> None:
    run = _foreign(tmp_path / "run")
    (hint,) = ptt.sources(run).hints
    assert (hint.path, hint.names) == ("my.weird", ("reward",))
    shown = CliRunner().invoke(app, ["sources", str(run)]).stdout
    assert "my.weird looks like a metric log (`reward`); an entry of [[logs]] that reads it is below" in " ".join(
        shown.split()
    )


def test_shapes_of_no_files_are_a_heading(tmp_path: Path) -> None:
    assert sample([]).startswith("Shapes of 0 files")
    assert tmp_path.exists()
