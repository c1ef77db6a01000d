"""Metrics that two segments of a resumed run logged: named, and not where files merely stand side by side."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.machines import Event
from ptt.diagnostics.evidence.segments import gather_segments
from ptt.diagnostics.model import Broken, Healthy, Link, Run, Severity
from ptt.diagnostics.rules.data_validity.resumed_segments import RULE
from ptt.diagnostics.schema import METRICS
from ptt.diagnostics.verdict.at_onset import with_context

SCHEMA: dict[str, Any] = {**METRICS, "priority": pl.Int32()}


def logged(source: str, steps: range | list[int], *, began: float | None = None, **more: Any) -> pl.DataFrame:
    """Loss at each of the steps, a second a step."""
    rows = [
        {
            "step": step, "split": "train", "name_raw": "loss", "name": "loss/total", "value": 1.0, "flag": 0,
            "rank": None, "wall_time": None if began is None else began + place, "seq": place, "source": source,
            "priority": 40,
        } | more
        for place, step in enumerate(steps)
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=SCHEMA)


def verdict(*frames: pl.DataFrame) -> Any:
    run = Run(
        name="a", framework=None, algorithm=None, first_step=1, last_step=2, step_count=2, sequences=0, model_tokens=0
    )
    return RULE.run(Evidence(run=run, segments=gather_segments(pl.concat(frames), None)))


RESUMED = {
    "two files, times known": [logged("a", range(1, 86), began=0.0), logged("b", range(51, 201), began=900.0)],
    "two files without times": [logged("a", range(1, 86)), logged("b", range(51, 201))],
    "one file that goes back": [logged("a", [*range(1, 86), *range(51, 201)])],
    "one file that goes back, beside others": [
        logged("other", range(1, 201), priority=60),
        pl.concat([logged("a", range(1, 201), name_raw=name, rank=rank) for name in ("kl", "lr") for rank in (0, 3)]),
        logged("a", [*range(1, 86), *range(51, 201)]),
        logged("b", range(1, 201), name_raw="zeros", priority=30),
    ],
    "killed again before it caught up": [
        logged("a", range(1, 101), began=0.0),
        logged("b", range(51, 86), began=500.0),
    ],
}
SOUND = {
    "one file": [logged("a", range(1, 200))],
    "one after the other": [logged("a", range(1, 101), began=0.0), logged("b", range(101, 201), began=900.0)],
    "the saved step again": [logged("a", range(1, 101), began=0.0), logged("b", range(100, 201), began=900.0)],
    "checkpoints with one history": [logged("a", range(1, 101)), logged("b", range(1, 201))],
    "ranks side by side": [logged("a", range(1, 201), began=0.0), logged("b", range(1, 201), began=0.5)],
    "ranks in one file": [logged("a", range(1, 201), rank=0), logged("a", range(1, 201), rank=1)],
    "other formats": [logged("a", range(1, 101)), logged("b", range(51, 201), priority=60)],
    "other metrics": [logged("a", range(1, 101)), logged("b", range(51, 201), name_raw="lr")],
    "a summary at the end": [logged("a", [*range(1, 201), 200])],
    "writers that share a file": [logged("a", [at for step in range(2, 100) for at in (step, step - 1)])],
    "two logs, one counts from 0": [logged("a", range(200)), logged("b", range(1, 201))],
    "late rows": [logged("a", [1, 3, 2, 4, 6, 5, 7])],
}


@pytest.mark.parametrize("how", RESUMED)
def test_steps_of_two_segments_are_named(how: str) -> None:
    found = verdict(*RESUMED[how])
    assert isinstance(found, Broken)
    (finding,) = found.findings
    assert (finding.link, finding.severity) == (Link.DATA_VALIDITY, Severity.LOW)
    assert (finding.evidence["first_step"], finding.evidence["last_step"]) == (51, 85)
    assert finding.observed == 35
    assert finding.evidence["between_files"] == ("a" if "one file" in how else "a and b")
    assert "one value a step" in str(finding.evidence["effect"])


@pytest.mark.parametrize("how", SOUND)
def test_files_that_stand_side_by_side_are_no_resume(how: str) -> None:
    assert isinstance(verdict(*SOUND[how]), Healthy)


def test_without_any_step_it_is_not_judged() -> None:
    assert gather_segments(pl.DataFrame(schema=SCHEMA), None) is None


@pytest.mark.parametrize("resumes", [1, 2, 5])
def test_a_run_that_is_ended_again_and_again_tells_what_it_threw_away_and_by_what(resumes: int) -> None:
    segments = [
        logged(str(at), range(20 * at + 1, 20 * at + (38 if at < resumes else 21)), began=1000.0 * at)
        for at in range(resumes + 1)
    ]
    run = Run(
        name="a", framework=None, algorithm=None, first_step=1, last_step=20 * resumes + 20,
        step_count=20 * resumes + 20, sequences=0, model_tokens=0,
    )  # fmt: skip
    said = [
        Event(step=None, kind="exception", text=text, source="train.log")
        for text in ("RayTaskError: x", "ReadError (env.py:118)", "ConnectTimeout (env.py:118)")
    ]
    evidence = Evidence(run=run, segments=gather_segments(pl.concat(segments), None), events=tuple(said))
    found = RULE.run(evidence)
    assert isinstance(found, Broken)
    (finding,) = found.findings
    assert (finding.severity is Severity.MEDIUM) == (resumes == 5)
    if resumes == 5:
        assert f"{17 * 5} of the {17 * 5 + 120} steps" in finding.claim
        assert finding.evidence["thrown_away"] == 17 * 5
        assert finding.context[0].endswith('"ReadError (env.py:118)"; "ConnectTimeout (env.py:118)"')
        assert finding.context[0].startswith("the console, without steps, shows")
        assert "one request" in finding.likely_cause
        (told,) = with_context((finding,), evidence)
        assert told.evidence["restart_step"] == finding.onset_step
        assert "started again" not in " ".join(told.context)  # the claim says so
        dated = [
            Event(step=30, kind="exception", text='ValueError: no "server"', source="train.log"),
            Event(step=119, kind="exception", text="ConnectTimeout (env.py:118)", source="train.log"),
        ]
        found = RULE.run(replace(evidence, events=tuple(dated)))
        assert isinstance(found, Broken)
        (finding,) = found.findings
        assert finding.context == ("between them the console shows \"ValueError: no 'server'\"",)
