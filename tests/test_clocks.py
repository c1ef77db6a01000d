"""Times mean the same wherever the reader is: samples of machines find their steps by whatever clock a log has."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from slow_cases import first_fast
from typer.testing import CliRunner

import ptt
from ptt.cli.app import app
from ptt.reports.run.findings_json import findings_json

READERS = ("UTC", "Asia/Tokyo", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe")
STEPS, FALL, SECONDS = 100, 60, 20
SUMMER_ENDS = datetime(2026, 10, 25, 0, 45, tzinfo=UTC)  # in Berlin at 01:00, at its step 46
SUMMER_BEGINS = datetime(2026, 3, 29, 0, 45, tzinfo=UTC)
MIDSUMMER = datetime(2026, 7, 1, 9, 0, tzinfo=UTC)
Spell = Callable[[datetime], str]
USED = pytest.mark.skipif(not hasattr(time, "tzset"), reason="the zone of a process is fixed here")


def in_zone(name: str) -> Spell:
    """Spell times as a local clock shows them, without an offset."""
    return lambda at: at.astimezone(ZoneInfo(name)).replace(tzinfo=None).isoformat()


def at_offset(hours: float) -> Spell:
    zone = timezone(timedelta(hours=hours))
    return lambda at: at.astimezone(zone).isoformat()


def write_run(run: Path, spell: Spell, *, start: datetime, monitor_hours: float = 0.0, **zone: object) -> Path:
    """Write a log of training that names times so, beside MLflow's samples of a device that falls idle at step 60."""
    run.mkdir(parents=True)
    rows = [
        {
            "step": step,
            "timestamp": spell(start + timedelta(seconds=SECONDS * step)),
            "loss": 0.5 + 0.001 * (step % 7),
            "timing_s/step": SECONDS * (1.0 if step < FALL else 1.5) + 0.1 * (step % 5),
        }
        for step in range(1, STEPS + 1)
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    folder = run / "mlruns" / "0" / ("a" * 32) / "metrics" / "system"
    folder.mkdir(parents=True)
    first, last = -int(360 * monitor_hours) - 12, int(360 * monitor_hours) + STEPS * SECONDS // 10 + 3
    samples = [
        f"{round((start.timestamp() + 10 * at) * 1000)} {(88 if 10 * at < SECONDS * FALL else 21) + at % 4} {at}"
        for at in range(first, last)
    ]
    (folder / "gpu_0_utilization_percentage").write_text("\n".join(samples) + "\n")
    return run


def judged(run: Path) -> tuple[int | None, str]:
    """Return where utilisation is found to fall, None for nowhere, and the note on the log."""
    found = ptt.diagnose(run, out=run.parent / f"{run.name}-out")
    onsets = [one.onset_step for one in found.findings if one.id == "gpu-utilisation-fell"]
    note = next(source.note for source in found.sources if source.path == "metrics.jsonl") or ""
    return (onsets[0] if onsets else None), note


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    def stand(zone: str) -> None:
        monkeypatch.setenv("TZ", zone)
        time.tzset()

    yield stand
    monkeypatch.undo()
    time.tzset()


@USED
@pytest.mark.parametrize(
    ("spell", "start"),
    first_fast(
        [
            (in_zone("Europe/Berlin"), SUMMER_ENDS),  # the log's own clock is set back, as that of a reader in Berlin
            (in_zone("UTC"), datetime(2026, 3, 8, 6, 45, tzinfo=UTC)),  # times that there are not in New York
        ]
    ),
    ids=["summer-time-ends", "utc"],
)
def test_five_readers_read_one_headline(
    spell: Spell, start: datetime, tmp_path: Path, reader: Callable[[str], None]
) -> None:
    run = write_run(tmp_path / "run", spell, start=start)
    found = []
    for zone in READERS:
        reader(zone)
        assert datetime(2026, 7, 1).astimezone().utcoffset() == datetime(2026, 7, 1, tzinfo=ZoneInfo(zone)).utcoffset()
        found.append(findings_json(ptt.diagnose(run, out=tmp_path / zone), "0.1.0"))
    assert "utilisation fell" in found[0]
    assert found == found[:1] * len(READERS)


@USED
@pytest.mark.slow
def test_five_readers_are_given_the_same_bytes(tmp_path: Path, reader: Callable[[str], None]) -> None:
    run = write_run(tmp_path / "run", in_zone("Europe/Berlin"), start=SUMMER_ENDS)
    written = []
    for zone in READERS:
        reader(zone)
        out = tmp_path / "out"
        result = CliRunner().invoke(app, ["diagnose", str(run), "--out", str(out)])
        written.append((result.output, *((out / name).read_bytes() for name in ("findings.json", "report.html"))))
        shutil.rmtree(out)
    assert "utilisation fell" in written[0][0]
    assert written == written[:1] * len(READERS)


@pytest.mark.parametrize(
    ("spell", "start", "said"),
    first_fast(
        [
            (in_zone("UTC"), MIDSUMMER, ""),
            (at_offset(9), MIDSUMMER, ""),
            (
                in_zone("Asia/Tokyo"),
                MIDSUMMER,
                "They are read as UTC+09:00, where they fit the samples of the machines.",
            ),
            (in_zone("Asia/Kathmandu"), MIDSUMMER, "They are read as UTC+05:45, where"),
            (in_zone("America/St_Johns"), MIDSUMMER, "They are read as UTC-02:30, where"),
            (in_zone("Europe/Berlin"), SUMMER_ENDS, "Its clock was set back by 60 minutes after step 44"),
            (in_zone("Europe/Berlin"), SUMMER_BEGINS, "The clock was set forward by 60 minutes"),
            (in_zone("Australia/Lord_Howe"), datetime(2026, 4, 4, 14, 45, tzinfo=UTC), "set back by 30 minutes"),
        ],
        3,
    ),
)
def test_samples_find_their_steps_by_the_clock_of_the_log(
    spell: Spell, start: datetime, said: str, tmp_path: Path
) -> None:
    onset, note = judged(write_run(tmp_path / "run", spell, start=start))
    assert onset == pytest.approx(FALL, abs=2)
    assert said in note
    assert bool(said) == bool(note)


@pytest.mark.parametrize(
    ("spell", "hours", "said"),
    [
        (lambda at: in_zone("UTC")(at - timedelta(days=40)), 0.0, "fit the samples of the machines at no offset"),
        (in_zone("Asia/Tokyo"), 3.0, "fit the samples of the machines at several offsets (UTC+06:00, UTC+06:30, "),
    ],
)
def test_a_clock_that_fits_nowhere_or_at_several_offsets_is_not_joined(
    spell: Spell, hours: float, said: str, tmp_path: Path
) -> None:
    onset, note = judged(write_run(tmp_path / "run", spell, start=MIDSUMMER, monitor_hours=hours))
    assert onset is None
    assert said in note


def test_what_the_run_says_of_its_zone_decides_where_several_fit(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", in_zone("Asia/Tokyo"), start=MIDSUMMER, monitor_hours=3.0)
    rows = [{"step": step, "time": at_offset(9)(MIDSUMMER), "reward": 0.5} for step in range(1, 4)]
    (run / "rewards.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    # three stamps of one second time no step of the samples, but say how far the run's clock is from UTC
    onset, note = judged(run)
    assert onset == pytest.approx(FALL, abs=2)
    assert "They are read as UTC+09:00" in note


def test_a_reading_in_utc_that_others_would_fit_too_is_said(tmp_path: Path) -> None:
    onset, note = judged(write_run(tmp_path / "run", in_zone("UTC"), start=MIDSUMMER, monitor_hours=1.5))
    assert onset == pytest.approx(FALL, abs=2)
    assert "read as UTC; UTC-01:00, UTC+01:00 would fit" in note


@USED
def test_an_allowance_expires_on_one_day_for_all(tmp_path: Path, reader: Callable[[str], None]) -> None:
    run = write_run(tmp_path / "run", in_zone("UTC"), start=MIDSUMMER)
    yesterday = (datetime.now(UTC) - timedelta(days=1)).date()
    policy = tmp_path / "ptt.toml"
    allow = f'finding = "gpu-utilisation-fell"\nowner = "ann"\nreason = "known"\nexpires = {yesterday}\n'
    policy.write_text(f'[gate]\nseverity = "low"\n\n[[gate.allow]]\n{allow}')
    reader("AAA+24")  # a day behind UTC
    (gated,) = ptt.gate(run, policy=policy).runs
    (check,) = [one for one in gated.checks if one.id == "severity:gpu-utilisation-fell"]
    assert "expired" in check.claim
