"""Commands over runs in an object store say and write what they do over the same runs in folders."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from s3_fixtures import empty_bucket, made_run, reset_server, start_server  # noqa: F401  by their names
from s3_server import Bucket, command
from trace_stories import call, end, make, say, write_episodes

pytestmark = [pytest.mark.s3, pytest.mark.usefixtures("bucket")]


def told(words: list[object], out: str) -> tuple[int, str]:
    """Run a command; give its exit code and what it prints, without the places."""
    result = command(*words)
    return result.exit_code, result.stdout.replace(out, "OUT").replace("s3://runs/", "HERE/")


@pytest.fixture
def both(bucket: Bucket, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs, in folders of the current one and under the same names in the bucket."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    other = Path(shutil.copytree(run, "other"))
    for folder, reward in ((run, 0.5), (other, 0.4)):
        lines = [{"step": step, "reward": reward, "kl": 0.01 * step, "loss": 1 / step} for step in range(1, 16)]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (other / "tokens" / "step_000003.parquet").unlink()
    for name in ("made", "other"):
        bucket.put_folder(Path(name), name)


def same(bucket: Bucket, words: list[object], files: list[str]) -> None:
    """Give the same words over folders and over the bucket, and compare what is said and written."""
    here = told([*words, "--out", "out-here"], "out-here")
    there = told([f"s3://runs/{word}" if word in ("made", "other", "agents") else word for word in words]
                 + ["--out", "s3://runs/out-there"], "s3://runs/out-there")  # fmt: skip
    assert there[0] == here[0]
    assert there[1].replace("HERE/", "") == here[1]
    for name in files:
        found = bucket.read(f"out-there/{name}").replace(b"s3://runs/", b"")
        assert found == (Path("out-here") / name).read_bytes(), name


@pytest.mark.usefixtures("both")
def test_compare(bucket: Bucket) -> None:
    same(bucket, ["compare", "made", "other"], ["compare.json", "compare.md"])


@pytest.mark.usefixtures("both")
def test_report(bucket: Bucket) -> None:
    same(bucket, ["report", "made"], ["findings.json"])


@pytest.mark.usefixtures("both")
def test_diagnose_several(bucket: Bucket) -> None:
    same(bucket, ["diagnose", "made", "other", "--jobs", "1"], ["index.json", "made/findings.json"])


@pytest.mark.usefixtures("both")
def test_traces(bucket: Bucket) -> None:
    Path("agents").mkdir()
    write_episodes(Path("agents"), make(6, lambda n: [*call("search", q=str(n)), *say("so"), *end(success=n % 2 == 0)]))
    bucket.put_folder(Path("agents"), "agents")
    same(bucket, ["traces", "agents"], ["findings.json"])


@pytest.mark.usefixtures("both")
def test_show(bucket: Bucket) -> None:
    here = command("show", "made", "--out", "kept")
    there = command("show", "s3://runs/made", "--out", "kept-too")
    assert (there.exit_code, there.stdout.replace("s3://runs/", "")) == (here.exit_code, here.stdout)
    one = [command("show", where, "2-5", "--out", f"kept{n}") for n, where in enumerate(("made", "s3://runs/made"))]
    assert one[0].exit_code == 0, one[0].output
    assert one[1].stdout == one[0].stdout


@pytest.mark.usefixtures("both")
def test_groups_and_a_baseline_of_both_kinds(bucket: Bucket) -> None:
    here = command("compare", "--group", "a=made", "--group", "b=other", "--json", "--out", "o1")
    there = command(
        "compare",
        "--group",
        "a=s3://runs/made",
        "--group",
        "b=other",
        "--json",
        "--out",
        "s3://runs/o2",
    )
    assert (there.exit_code, there.stdout.replace("s3://runs/", "")) == (here.exit_code, here.stdout)
    assert '"arm": "b"' in here.stdout
    here = command("diagnose", "made", "--baseline", "other", "--out", "o3", "--json")
    there = command("diagnose", "s3://runs/made", "--baseline", "s3://runs/other", "--out", "s3://runs/o4", "--json")
    assert (there.exit_code, there.stdout) == (here.exit_code, here.stdout)


@pytest.mark.usefixtures("both")
def test_what_was_judged_there_is_reported_from_there(bucket: Bucket) -> None:
    assert command("diagnose", "s3://runs/made", "--out", "s3://runs/judged").exit_code == 0
    wanted = json.loads(bucket.read("judged/findings.json"))
    for source in ("s3://runs/judged/store", "s3://runs/judged/findings.json", "s3://runs/judged"):
        result = command("report", source, "--json", "--out", "shared")
        assert result.exit_code == 0, (source, result.output)
        assert json.loads(result.stdout)["findings"] == wanted["findings"], source


@pytest.mark.usefixtures("both")
def test_traces_against_others(bucket: Bucket) -> None:
    for name, good in (("before", 1), ("after", 3)):
        Path(name).mkdir()
        write_episodes(Path(name), [[*call("search", q="x"), *end(success=n % 4 < good)] for n in range(8)])
        bucket.put_folder(Path(name), name)
    here = command("traces", "after", "--against", "before", "--out", "t1")
    there = command("traces", "s3://runs/after", "--against", "s3://runs/before", "--out", "t2")
    assert here.exit_code == 0, here.output
    assert (there.exit_code, there.stdout.replace("s3://runs/", "").replace("t2", "t1")) == (
        here.exit_code,
        here.stdout,
    )


@pytest.mark.usefixtures("both")
def test_what_a_run_holds() -> None:
    for more in ([], ["--json"]):
        here, there = command("sources", "made", *more), command("sources", "s3://runs/made", *more)
        assert here.exit_code == 0, here.output
        assert (there.exit_code, there.stdout.replace("s3://runs/", "")) == (here.exit_code, here.stdout)


@pytest.mark.usefixtures("both")
def test_baselines(bucket: Bucket) -> None:
    here = command("baseline", "update", "base.toml", "made")
    there = command("baseline", "update", "there/base.toml", "s3://runs/made", "--out", "s3://runs/stores")
    assert here.exit_code == 0, here.output
    assert (there.exit_code, there.stdout.replace("there/", "")) == (here.exit_code, here.stdout)
    assert Path("there/base.toml").read_text() == Path("base.toml").read_text()
    assert "stores/made/store/manifest.json" in bucket.sizes()
    bucket.put("base.toml", Path("base.toml").read_bytes())
    for words in (["show"], ["diff", "--against", "other"], ["diff", "--against", "s3://runs/other"]):
        shown = [command("baseline", words[0], where, *words[1:]) for where in ("base.toml", "s3://runs/base.toml")]
        assert shown[0].exit_code == 0, shown[0].output
        assert (shown[1].exit_code, shown[1].stdout) == (shown[0].exit_code, shown[0].stdout)
    refused = command("baseline", "update", "s3://runs/base.toml", "made")
    assert refused.exit_code == 2
    assert "the baseline s3://runs/base.toml: this takes a path of this machine" in refused.output
    refused = command("show", "s3://runs/made", "--out", "s3://runs/stores")
    assert (refused.exit_code, "--out s3://runs/stores: this takes" in refused.output) == (2, True)
