"""A run may be an archive: read as its folder would be, and never a byte written outside a folder that goes away."""

from __future__ import annotations

import gzip
import io
import json
import random
import tarfile
import tempfile
import zipfile
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from judged_runs import judged_run
from slow_cases import first_fast

import ptt
from ptt.diagnostics.store import archives
from ptt.diagnostics.store.archives import DAMAGED, unpacked

SAMPLE = Path(__file__).parents[1] / "sample_logs" / "healthy"


def _zip(target: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return target


def _tar(target: Path, members: list[tarfile.TarInfo], content: bytes = b'{"step": 1, "loss": 0.5}\n') -> Path:
    with tarfile.open(target, "w:gz") as archive:
        for member in members:
            member.size = len(content) if member.isreg() else 0
            archive.addfile(member, io.BytesIO(content))
    return target


def _packed(kind: str, folder: Path) -> Path:
    if kind == "zip":
        target = folder / "healthy.zip"
        with zipfile.ZipFile(target, "w") as archive:
            for path in sorted(SAMPLE.rglob("*")):
                archive.write(path, Path("healthy") / path.relative_to(SAMPLE))
        return target
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        archive.add(SAMPLE, "healthy")
    target = folder / f"healthy.{kind}"
    codec = {"tar": None, "tar.gz": "gzip", "tar.zst": "zstd"}[kind]
    if codec is None:
        target.write_bytes(plain.getvalue())
    else:
        with pa.CompressedOutputStream(str(target), codec) as out:
            out.write(plain.getvalue())
    return target


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz", "tar.zst"])
def test_an_archive_is_judged_as_its_folder_is(kind: str, tmp_path: Path) -> None:
    assert ptt.diagnose(_packed(kind, tmp_path)).to_json() == judged_run("healthy").to_json()


def test_the_store_of_an_unchanged_archive_is_used_again(tmp_path: Path) -> None:
    archive, out = _packed("tar.gz", tmp_path), tmp_path / "out"
    first = ptt.diagnose(archive, out=out)
    made = (out / "store" / "manifest.json").stat().st_mtime_ns
    assert ptt.diagnose(archive, out=out).to_json() == first.to_json()
    assert (out / "store" / "manifest.json").stat().st_mtime_ns == made


def test_a_torn_archive_loses_its_torn_part_and_says_so(tmp_path: Path) -> None:
    whole = _packed("tar.gz", tmp_path).read_bytes()
    torn = tmp_path / "torn.tar.gz"
    torn.write_bytes(whole[: len(whole) * 2 // 3])
    found = ptt.diagnose(torn)
    assert 0 < found.run.sequences < judged_run("healthy").run.sequences
    assert any("The archive is damaged" in (source.note or "") for source in found.sources), found.sources


def test_members_that_point_out_of_the_archive_are_left_packed(tmp_path: Path) -> None:
    log = b'{"step": 1, "loss": 0.5}\n{"step": 2, "loss": 0.25}\n'
    names = {"../evil.jsonl": log, "/etc/evil.jsonl": log, "a/../../evil.jsonl": log, "c:\\evil.jsonl": log}
    found = ptt.diagnose(_zip(tmp_path / "run.zip", {**names, "logs/metrics.jsonl": log}))
    notes = " ".join(source.note or "" for source in found.sources)
    assert "4 names that point out of the archive" in notes
    assert not list(tmp_path.rglob("evil*"))
    assert not (tmp_path.parent / "evil.jsonl").exists()
    assert not Path("/etc/evil.jsonl").exists()


def test_links_and_devices_in_a_tar_are_left_packed(tmp_path: Path) -> None:
    link, hard, fifo = (tarfile.TarInfo(name) for name in ("logs/link.jsonl", "logs/hard.jsonl", "logs/fifo"))
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    hard.type, hard.linkname = tarfile.LNKTYPE, "/etc/passwd"
    fifo.type = tarfile.FIFOTYPE
    through = tarfile.TarInfo("logs/link.jsonl/through.jsonl")
    found = ptt.diagnose(_tar(tmp_path / "run.tar.gz", [link, hard, fifo, through, tarfile.TarInfo("logs/m.jsonl")]))
    notes = " ".join(source.note or "" for source in found.sources)
    assert "3 links or special files" in notes
    assert "root:" not in found.to_json()


@pytest.mark.parametrize("name", ["bomb.zip", "bomb.tar.gz"])
def test_a_bomb_is_refused_before_it_fills_the_disk(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ptt.diagnostics.store.archives.BOMB_BYTES", 8 << 20)
    zeros = bytes(64 << 20)
    path = tmp_path / name
    _zip(path, {"zeros.jsonl": zeros}) if name.endswith("zip") else _tar(path, [tarfile.TarInfo("zeros.jsonl")], zeros)
    with pytest.raises(ptt.InputError, match="unpacks to more than"):
        ptt.diagnose(path)


def test_what_is_no_archive_is_refused_with_its_name(tmp_path: Path) -> None:
    for name in ("run.zip", "run.tar", "run.tar.gz", "run.tar.zst"):
        (tmp_path / name).write_bytes(b"not an archive at all" * 100)
        with pytest.raises(ptt.InputError, match=name):
            ptt.diagnose(tmp_path / name)


@pytest.mark.slow
def test_nothing_stays_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    ptt.diagnose(_packed("zip", tmp_path))
    assert list(scratch.iterdir()) == []


@pytest.mark.slow
def test_every_cut_of_a_small_archive_is_read_or_refused(tmp_path: Path) -> None:
    whole = _tar(tmp_path / "run.tar.gz", [tarfile.TarInfo("a.jsonl"), tarfile.TarInfo("b.jsonl")]).read_bytes()
    for length in range(0, len(whole), 3):
        (tmp_path / "cut.tar.gz").write_bytes(whole[:length])
        with suppress(ptt.InputError):
            assert ptt.diagnose(tmp_path / "cut.tar.gz").sources


def test_a_name_that_no_file_can_have_costs_that_member_alone(tmp_path: Path) -> None:
    names = ["run/" + "n" * 300 + ".jsonl", "run/metrics.jsonl"]
    archives = (
        _tar(tmp_path / "run.tar.gz", [tarfile.TarInfo(name) for name in names]),
        _zip(tmp_path / "run.zip", dict.fromkeys(names, b'{"step": 1, "loss": 0.5}\n')),
    )
    for archive in archives:
        with unpacked(archive) as content:
            assert [path.name for path in content.folder.rglob("*.jsonl")] == ["metrics.jsonl"]
            (note,) = content.notes
            assert note.startswith("The archive contains 1 member with a name that no file can have on this system")


def test_a_damaged_header_is_no_end_of_the_archive(tmp_path: Path) -> None:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as archive:
        for name in ("a.jsonl", "b.jsonl", "c.jsonl"):
            member = tarfile.TarInfo(name)
            member.size = 512
            archive.addfile(member, io.BytesIO(b" " * 512))
    data = bytearray(whole.getvalue())
    data[1024 + 100] ^= 0xFF
    (tmp_path / "run.tar").write_bytes(data)
    with unpacked(tmp_path / "run.tar") as content:
        (note,) = content.notes
        assert note.startswith(f"{DAMAGED}: a damaged header")


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_header_that_says_gigabytes_is_not_read(tmp_path: Path, kind: bytes) -> None:
    header = tarfile.TarInfo("headers")
    header.type, header.size = kind, 5 << 30
    sound = tarfile.TarInfo("metrics.jsonl")
    sound.size = 512
    with gzip.open(tmp_path / "run.tar.gz", "wb", compresslevel=1) as out:
        out.write(sound.tobuf(tarfile.GNU_FORMAT) + b" " * 512 + header.tobuf(tarfile.GNU_FORMAT))
        for _ in range(16):
            out.write(b"\0" * (1 << 20))
    with unpacked(tmp_path / "run.tar.gz") as content:
        (note,) = content.notes
        assert note.startswith(f"{DAMAGED}: a header of more than 4 MB")


def test_an_archive_of_more_files_than_its_size_explains_is_read_in_part(tmp_path: Path) -> None:
    content = b'{"step": 1, "loss": 0.5}\n'
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for number in range(50):
            member = tarfile.TarInfo(f"run/{number}.jsonl")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    path = tmp_path / "run.tar.zst"
    with pa.CompressedOutputStream(str(path), "zstd") as out:
        out.write(plain.getvalue())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archives, "ALWAYS_MEMBERS", 5)
        with archives.unpacked(path) as found:
            most = 5 + path.stat().st_size // archives.PACKED_MEMBER
            assert len(list(found.folder.iterdir())) == most < 50
            assert found.notes[0].startswith(
                f"{archives.STOPPED}: more than {most} files are too many for logs of its size"
            )
    with archives.unpacked(path) as found:
        assert len(list(found.folder.iterdir())) == 50
        assert found.notes == ()


def test_short_rollouts_of_a_file_each_are_all_unpacked_whatever_their_number(tmp_path: Path) -> None:
    words, draw = ["the", "tool", "answer", "search", "result", "error", "value", "token", "step"], random.Random(7)
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for number in range(400):
            text = " ".join(draw.choices(words, k=120))
            content = json.dumps({"step": number // 16, "reward": draw.random(), "messages": text}).encode()
            member = tarfile.TarInfo(f"run/step_{number // 16:05d}_{number % 16:02d}.json")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    path = tmp_path / "run.tar.zst"
    with pa.CompressedOutputStream(str(path), "zstd") as out:
        out.write(plain.getvalue())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archives, "ALWAYS_MEMBERS", 0)
        with archives.unpacked(path) as found:
            assert len(list(found.folder.iterdir())) == 400
            assert found.notes == ()


ROWS = "".join(f'{{"step": {step}, "loss": 0.{step}}}\n' for step in range(300)).encode()
METHODS = {
    "stored": zipfile.ZIP_STORED,
    "deflated": zipfile.ZIP_DEFLATED,
    "bzip2": zipfile.ZIP_BZIP2,
    "LZMA": zipfile.ZIP_LZMA,
}


def _three(target: Path, method: int) -> bytes:
    with zipfile.ZipFile(target, "w", method) as archive:
        for number in range(3):
            archive.writestr(zipfile.ZipInfo(f"m{number}.jsonl"), ROWS, method)
    return target.read_bytes()


@pytest.mark.parametrize("method", METHODS)
def test_a_damaged_member_of_a_zip_costs_itself_alone(tmp_path: Path, method: str) -> None:
    target = tmp_path / "run.zip"
    data = bytearray(_three(target, METHODS[method]))
    middle = data.index(b"m1.jsonl") + 40
    data[middle : middle + 20] = bytes(20)
    target.write_bytes(bytes(data))
    with unpacked(target) as found:
        whole = [path.name for path in sorted(found.folder.iterdir()) if path.read_bytes() == ROWS]
        assert whole == ["m0.jsonl", "m2.jsonl"]
        assert [note.startswith(f"{DAMAGED}: m1.jsonl") for note in found.notes] == [True]


@pytest.mark.parametrize("field", [28, 30, 32])  # lengths of name, further fields and comment of the first entry
def test_entries_that_a_damaged_one_swallows_are_told(tmp_path: Path, field: int) -> None:
    target = tmp_path / "run.zip"
    data = bytearray(_three(target, zipfile.ZIP_STORED))
    entry = data.index(b"PK\x01\x02")
    data[entry + field] = 200
    target.write_bytes(bytes(data))
    with suppress(ptt.InputError), unpacked(target) as found:
        assert any(note.startswith(DAMAGED) for note in found.notes)


@pytest.mark.parametrize("method", first_fast(METHODS))
def test_flipped_bytes_of_a_zip_never_raise_and_lose_no_member_without_a_word(tmp_path: Path, method: str) -> None:
    target = tmp_path / "run.zip"
    sound = _three(target, METHODS[method])
    for number in range(150):
        dice, data = random.Random(number), bytearray(sound)
        for _ in range(dice.choice((1, 3))):
            at = dice.choice((dice.randrange(len(data)), len(data) - 1 - dice.randrange(200), dice.randrange(60)))
            data[at] = dice.choice((0, 255, dice.randrange(256)))
        target.write_bytes(bytes(data))
        with suppress(ptt.InputError), unpacked(target) as found:
            assert found.notes or len(list(found.folder.iterdir())) == 3
