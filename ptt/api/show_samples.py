"""Read single samples of a run, by name or by the findings that rest on them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ptt.api.runs import Progress, kept_run, open_run
from ptt.diagnostics import pipeline
from ptt.diagnostics.config import Settings
from ptt.diagnostics.documents import closest
from ptt.diagnostics.errors import InputError, SettingsError
from ptt.diagnostics.samples.finding_samples import samples_of_findings
from ptt.diagnostics.samples.read_sample import OpenRun, measured_samples, read_sample
from ptt.diagnostics.samples.sample import FindingSamples, Sample
from ptt.diagnostics.statistics.logprob_pairs import PAIRS
from ptt.run_location import STORE, is_findings, not_there, run_exists, run_location, store_at, unpacked_run
from ptt.stopping import temporary_folder


def show(
    run: str | Path,
    sample: str,
    *,
    text: bool = False,
    pair: str | None = None,
    out: str | Path | None = None,
    settings: Settings | None = None,
    one_run: bool = False,
) -> Sample:
    """Return one sample of a run: its tokens with their logprobs, its transcript and its prompt group.

    `run`: a folder, a file, an archive, or a self-contained store. `sample`: its id, STEP:ROW (the row within its step,
    from 0) or FILE:ROW. `text`: include the scrubbed texts. `pair`: the logprobs of the log-ratio, by default the first
    pair of the sample. `out`: where `diagnose` kept a store; it is read if it is current. Nothing is written. Raises
    SettingsError if no sample or several have this name.
    """
    if pair is not None and pair not in (known := [known.name for known in PAIRS]):
        raise SettingsError(f"pair {pair}: {closest(pair, known)}.")
    with _opened(run, out, settings, one_run=one_run) as opened:
        return read_sample(opened, sample, pair=pair, texts=text)


def finding_samples(
    run: str | Path,
    *,
    out: str | Path | None = None,
    settings: Settings | None = None,
    one_run: bool = False,
    progress: Progress | None = None,
) -> tuple[FindingSamples, ...]:
    """Return the samples that each finding rests on: highest, lowest, and some at random.

    Results kept below `out` are read; a run without them is judged in a temporary folder.
    """
    run, settings = Path(run), settings or Settings()
    with temporary_folder() as scratch:
        judged = kept_run(run, out=out, settings=settings, one_run=one_run) if out is not None else None
        if judged is None:
            out = Path(scratch)
            judged = open_run(run, out=out, settings=settings, one_run=one_run, progress=progress)
        with _opened(run, out, settings, one_run=one_run) as opened:
            return samples_of_findings(judged.diagnosis, measured_samples(opened, judged.profile))


@contextmanager
def _opened(run: str | Path, out: str | Path | None, settings: Settings | None, *, one_run: bool) -> Iterator[OpenRun]:
    """Open a run to read samples of it, by its store where that is kept below `out` and current."""
    run, settings = Path(run), settings or Settings()
    if not run_exists(run):
        raise not_there(run, "give the run, or an archive of it")
    if is_findings(run):
        raise InputError(f"{run}: findings.json has no samples; give the run.")
    if (store := store_at(run)) is not None:
        name = (store.parent if store.name == STORE else store).resolve().name
        with pipeline.opened(pipeline.RunLocation(run=store, store=store, name=name), settings) as opened:
            yield opened
        return
    with temporary_folder() as scratch:
        folder = Path(scratch if out is None else out)
        with (
            unpacked_run(run_location(run, folder), one_run=one_run) as location,
            pipeline.opened(location, settings) as opened,
        ):
            yield opened
