"""What was judged is kept: the same again without the run, in milliseconds, and never where something changed."""

import json
import os
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import polars as pl
import pytest
from html_structure import answers_of
from judged_runs import judged_run
from test_kept_damage import write_run

from ptt import InputError, Settings, api
from ptt.diagnostics.model import Diagnosis, JsonScalar, Severity
from ptt.diagnostics.store.diagnosis import Conditions, LoadedRun, read_kept, write_kept
from ptt.diagnostics.store.run_identity import END

SAMPLES = Path(__file__).parents[1] / "sample_logs"
NAMES = ("tool_tail_growth", "healthy", "kl_penalised", "collapse")


def opened(path: Path, out: Path, **more: object) -> LoadedRun:
    return api.open_run(path, out=out, **more)  # type: ignore[arg-type]


def ids(found: LoadedRun) -> set[str]:
    return {finding.id for finding in found.diagnosis.findings}


def archive(run: Path, place: Path) -> Path:
    with tarfile.open(place, "w:gz") as made:
        made.add(run, arcname=run.name)
    return place


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_what_is_kept_says_what_was_judged_to_the_last_byte(name: str, tmp_path: Path) -> None:
    fresh = api.diagnose(SAMPLES / name)
    first = opened(SAMPLES / name, tmp_path / "o")
    again = opened(SAMPLES / name, tmp_path / "o")
    alone = opened(shutil.copytree(tmp_path / "o", tmp_path / name), tmp_path / "x")
    assert (
        answers_of(fresh) == answers_of(first.diagnosis) == answers_of(again.diagnosis) == answers_of(alone.diagnosis)
    )
    assert first.source == again.source == alone.source
    assert [first.kind, again.kind, alone.kind] == ["run", "run", "store"]
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
def test_tables_and_profile_come_back_as_they_were(tmp_path: Path) -> None:
    fresh = api.diagnose(SAMPLES / "healthy")
    held = opened(SAMPLES / "healthy", tmp_path / "o")
    assert set(held.diagnosis.tables) == set(fresh.tables)
    for name, table in fresh.tables.items():
        assert held.diagnosis.tables[name].equals(table), name
    assert held.profile is not None
    assert held.profile.pair == "policy/ref"
    assert held.profile.slices == {0: "text_only", 1: "post_tool"}
    recorded = pl.read_parquet(sorted((SAMPLES / "healthy").glob("tokens/*.parquet")), columns=["step", "group_id"])
    assert held.profile.sequences["unit"].n_unique() == recorded["group_id"].n_unique()
    by_step = held.profile.cells.group_by("step").agg(pl.col("n").sum()).sort("step")
    assert by_step["n"].sum() == fresh.run.model_tokens


@pytest.mark.slow
def test_an_archive_that_did_not_change_is_not_opened_again(tmp_path: Path) -> None:
    packed = archive(SAMPLES / "healthy", tmp_path / "h.tar.gz")
    first = opened(packed, tmp_path / "o")
    state = packed.stat()
    content = bytearray(packed.read_bytes())
    content[END:-END] = b"\0" * (len(content) - 2 * END)  # nothing could be read there any more
    packed.write_bytes(content)
    os.utime(packed, ns=(state.st_atime_ns, state.st_mtime_ns))
    again = opened(packed, tmp_path / "o")
    assert answers_of(again.diagnosis) == answers_of(first.diagnosis)
    os.utime(packed, ns=(state.st_atime_ns, state.st_mtime_ns + 1))
    with pytest.raises(InputError):
        opened(packed, tmp_path / "o")


def test_an_archive_of_the_same_size_and_time_is_told_by_its_ends(tmp_path: Path) -> None:
    """Reproducible archives all have one time, and two runs of one length may have one size."""
    packed = tmp_path / "run.tar"
    for loss in (1, 9):
        run = tmp_path / "run"
        shutil.copytree(SAMPLES / "healthy", run, dirs_exist_ok=True)
        (run / "note.jsonl").write_text(f'{{"step": 1, "loss": {loss}}}\n')
        with tarfile.open(packed, "w") as made:
            made.add(run / "note.jsonl", arcname="run/note.jsonl")
        os.utime(packed, ns=(0, 0))
        found = api.kept_run(packed, out=tmp_path / "o")
        assert found is None
        opened(packed, tmp_path / "o")
        assert api.kept_run(packed, out=tmp_path / "o") is not None


@pytest.mark.slow
def test_a_folder_and_its_archive_are_the_same_source(tmp_path: Path) -> None:
    packed = archive(SAMPLES / "healthy", tmp_path / "h.tar.gz")
    other = opened(SAMPLES / "collapse", tmp_path / "c").source
    assert opened(packed, tmp_path / "a").source == opened(SAMPLES / "healthy", tmp_path / "b").source != other


@pytest.mark.slow
def test_other_settings_and_other_rules_are_judged_anew(tmp_path: Path) -> None:
    rules = tmp_path / "mine.toml"
    text = '[[rule]]\nid = "mine"\nmetric = "reward/mean"\nis = "> {limit}"\nseverity = "high"\nclaim = "so it is"\n'
    plain_run = opened(SAMPLES / "kl_penalised", tmp_path / "o")
    strict = Settings(limits={"kl-over-target": {"limit": 0.01}})
    assert "kl-over-target" in ids(opened(SAMPLES / "kl_penalised", tmp_path / "o", settings=strict)) - ids(plain_run)
    rules.write_text(text.format(limit=100), encoding="utf-8")
    before = opened(SAMPLES / "kl_penalised", tmp_path / "o", rules=rules)
    rules.write_text(text.format(limit=-100), encoding="utf-8")
    after = opened(SAMPLES / "kl_penalised", tmp_path / "o", rules=rules)
    assert ids(after) - ids(before) == {"custom:mine"}


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["torn", "gone table", "other version", "wrong type", "path"])
def test_a_damaged_record_is_made_anew(damage: str, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    first = opened(run, tmp_path / "o")
    place = tmp_path / "o" / "store" / "kept" / "diagnosis.json"
    document = json.loads(place.read_text(encoding="ascii"))
    if damage == "torn":
        place.write_text(place.read_text(encoding="ascii")[:-100], encoding="ascii")
    elif damage == "gone table":
        (place.parent / "ecdf.parquet").unlink()
    else:
        changed = {
            "other version": {"version": 99},
            "wrong type": {"diagnosis": document["diagnosis"] | {"findings": 3}},
            "path": {"tables": [*document["tables"], "../../../secret"]},
        }[damage]
        place.write_text(json.dumps(document | changed), encoding="ascii")
    assert answers_of(opened(run, tmp_path / "o").diagnosis) == answers_of(first.diagnosis)


@pytest.mark.slow
def test_a_store_made_by_ingest_is_judged_without_the_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(SAMPLES / "tool_tail_growth", run)
    api.ingest(run, out=tmp_path / "kept")
    shutil.rmtree(run)
    found = opened(tmp_path / "kept", tmp_path / "x")
    whole = judged_run("tool_tail_growth")
    assert found.diagnosis.signature == whole.signature
    assert found.profile is not None
    assert [finding.id for finding in found.diagnosis.findings] == [finding.id for finding in whole.findings]


def test_a_store_whose_tokens_lie_in_the_run_says_so(tmp_path: Path) -> None:
    opened(SAMPLES / "healthy", tmp_path / "o")
    shutil.rmtree(tmp_path / "o" / "store" / "kept")
    with pytest.raises(InputError, match="ptt ingest"):
        opened(tmp_path / "o", tmp_path / "x")


@pytest.mark.slow
def test_a_damaged_run_is_kept_with_what_was_left_of_it(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(SAMPLES / "healthy", run)
    file = sorted(run.rglob("tokens/*.parquet"))[3]
    content = bytearray(file.read_bytes())
    content[200:2000] = b"\xff" * 1800
    file.write_bytes(content)
    first, again = (opened(run, tmp_path / "o") for _ in range(2))
    assert first.profile is not None
    assert again.profile is not None
    assert answers_of(first.diagnosis) == answers_of(again.diagnosis)
    assert any(source.bytes_lost for source in again.diagnosis.sources)


def test_values_come_back_with_their_types(tmp_path: Path) -> None:
    diagnosis: Diagnosis = judged_run("tool_tail_growth")
    odd: dict[str, JsonScalar] = {
        "nan": float("nan"),
        "inf": float("-inf"),
        "numpy": np.float64(0.1),
        "n": 3,
        "path": "\udcff",
        "none": None,
    }
    first = replace(diagnosis.findings[0], evidence=MappingProxyType(odd), observed=float("inf"))
    diagnosis = replace(diagnosis, findings=(first, *diagnosis.findings[1:]), tables={})
    write_kept(tmp_path, "mark", "source", Conditions(settings="s", version="v"), diagnosis)
    kept = read_kept(tmp_path, "mark")
    assert kept is not None
    assert (kept.source, kept.conditions.settings, kept.of_run) == ("source", "s", True)
    back = kept.diagnosis
    assert back.findings[1:] == diagnosis.findings[1:]
    assert back.signature == diagnosis.signature
    assert back.run == diagnosis.run
    assert back.findings[0].severity is Severity.CRITICAL
    assert back.findings[0].observed == float("inf")
    assert repr(back.findings[0].evidence) == repr({**odd, "numpy": 0.1})
    assert read_kept(tmp_path, "another mark") is None


@pytest.mark.slow
def test_a_folder_of_stores_is_no_run(tmp_path: Path) -> None:
    for name in ("healthy", "collapse"):
        opened(SAMPLES / name, tmp_path / "c" / "runs" / name)
    for place in (tmp_path / "c", tmp_path / "c" / "runs"):
        with pytest.raises(InputError, match="wrote about 2 runs"):
            opened(place, tmp_path / "x")
        with pytest.raises(InputError, match="collapse, healthy"):
            api.diagnose(place)
