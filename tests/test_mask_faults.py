"""Masks that mark what the policy did not sample, in made runs whose tokens are drawn from known distributions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from slow_cases import first_fast

import ptt
from ptt.diagnostics.model import Finding

STEPS, SINCE, ROWS = 40, 21, 16
END, OPENING, HEADER = 2, 901, (902, 903)
MINE = {"unmasked-tools", "misplaced-mask", "surprisal-off-entropy"}


@dataclass(frozen=True)
class Row:
    """One sequence, token by token."""

    ids: np.ndarray
    mask: np.ndarray
    logp: np.ndarray
    entropy: np.ndarray
    tools: int


def sampled(generator: np.random.Generator, count: int, temperature: float = 1.0) -> tuple[np.ndarray, ...]:
    """Draw tokens at a temperature, scored at 1: most are sure, some open."""
    spread = np.where(generator.random((count, 1)) < 0.6, 9.0, 2.0)
    logits = generator.normal(size=(count, 20)) * spread
    logp = logits - np.log(np.exp(logits - logits.max(axis=1, keepdims=True)).sum(axis=1, keepdims=True))
    logp -= logits.max(axis=1, keepdims=True)
    chosen = (logits / temperature + generator.gumbel(size=logits.shape)).argmax(axis=1)
    entropy = -(np.exp(logp) * logp).sum(axis=1)
    return (
        10 + chosen + 20 * generator.integers(0, 30, count),
        np.take_along_axis(logp, chosen[:, None], 1)[:, 0],
        entropy,
    )


def foreign(generator: np.random.Generator, ids: list[int]) -> tuple[np.ndarray, ...]:
    """Give tokens that another wrote: rarely likely."""
    return np.array(ids), -generator.gamma(2.0, 3.0, len(ids)), generator.gamma(2.0, 0.6, len(ids))


def make_row(generator: np.random.Generator, temperature: float) -> Row:
    """Make a sequence: text, and in three of four a tool's output and text after it."""
    parts, mask, tools = [sampled(generator, int(generator.integers(6, 20)), temperature)], [True], 0
    if generator.random() < 0.75:
        tools = 1
        text = generator.integers(10, 800, int(generator.integers(5, 12))).tolist()
        parts += [foreign(generator, [OPENING, *text, *HEADER]), sampled(generator, 12, temperature)]
        mask += [False, True]
    ids, logp, entropy = (np.concatenate(column) for column in zip(*parts, strict=True))
    ids[-1] = END
    marked = np.repeat(mask, [len(part[0]) for part in parts])
    return Row(ids, marked, logp, entropy, tools)


Harm = Callable[[np.random.Generator, Row], Row]


def write(folder: Path, harm: Harm, *, since: int = SINCE, hot: float = 1.0, drop: tuple[str, ...] = ()) -> None:
    """Write a run; from step `since` on its sequences are harmed, or sampled at the temperature `hot`."""
    generator = np.random.default_rng(11)
    (folder / "tokens").mkdir(parents=True)
    for step in range(1, STEPS + 1):
        late = step >= since
        rows = [make_row(generator, hot if late else 1.0) for _ in range(ROWS)]
        rows = [harm(generator, row) if late else row for row in rows]
        frame = pl.DataFrame(
            {
                "step": [step] * ROWS,
                "sample_id": [f"{step}-{at}" for at in range(ROWS)],
                "temperature": [1.0] * ROWS,
                "tool_names": [["search"] * row.tools for row in rows],
                "token_ids": [row.ids.tolist() for row in rows],
                "model_mask": [row.mask.tolist() for row in rows],
                "policy_logp": [row.logp.tolist() for row in rows],
                "ref_logp": [(row.logp - generator.normal(0, 0.05, len(row.logp))).tolist() for row in rows],
                "entropy": [row.entropy.tolist() for row in rows],
            },
            schema_overrides={
                "token_ids": pl.List(pl.Int32),
                **dict.fromkeys(("policy_logp", "ref_logp", "entropy"), pl.List(pl.Float32)),
            },
        )
        frame.drop(drop).write_parquet(folder / "tokens" / f"step_{step:06d}.parquet")


def nothing(_: np.random.Generator, row: Row) -> Row:
    return row


def mark_all(_: np.random.Generator, row: Row) -> Row:
    return replace(row, mask=np.ones_like(row.mask))


def mark_header(_: np.random.Generator, row: Row) -> Row:
    return replace(row, mask=row.mask | np.isin(row.ids, HEADER))


def mark_late(_: np.random.Generator, row: Row) -> Row:
    return replace(row, mask=np.append(row.mask[:1], row.mask[:-1]))


def mark_early(_: np.random.Generator, row: Row) -> Row:
    return replace(row, mask=np.append(row.mask[1:], row.mask[-1:]))


def invert(_: np.random.Generator, row: Row) -> Row:
    return replace(row, mask=~row.mask)


def pad(generator: np.random.Generator, row: Row) -> Row:
    ids, logp, entropy = foreign(generator, [0] * int(generator.integers(2, 9)))
    added = (row.ids, ids), (row.logp, logp), (row.entropy, entropy)
    whole = [np.concatenate(both) for both in added]
    return replace(
        row, ids=whole[0], logp=whole[1], entropy=whole[2], mask=np.append(row.mask, np.ones(len(ids), np.bool_))
    )


def pad_quietly(generator: np.random.Generator, row: Row) -> Row:
    """Pad with tokens of which the policy is sure."""
    padded = pad(generator, row)
    added = np.arange(len(padded.ids)) >= len(row.ids)
    return replace(padded, logp=np.where(added, -1e-4, padded.logp), entropy=np.where(added, 1e-3, padded.entropy))


def findings(folder: Path) -> dict[str, Finding]:
    found = ptt.diagnose(folder)
    assert found.crashes == ()
    return {one.id: one for one in found.findings if one.id in MINE}


@pytest.mark.parametrize(
    "drop", [(), *(pytest.param(held, marks=pytest.mark.slow) for held in (("entropy",), ("token_ids", "tool_names")))]
)
def test_a_sound_mask_is_not_accused(drop: tuple[str, ...], tmp_path: Path) -> None:
    write(tmp_path / "run", nothing, drop=drop)
    assert findings(tmp_path / "run") == {}


@pytest.mark.parametrize(
    ("harm", "drop", "name", "words"),
    first_fast(
        [
            (mark_header, ("entropy",), "misplaced-mask", "first 2 tokens after each observation"),
            (mark_late, (), "misplaced-mask", "one token late"),
            (mark_header, ("token_ids",), "misplaced-mask", "first 2 tokens after each observation"),
            (mark_late, ("entropy",), "misplaced-mask", "one token late"),
            (mark_early, ("entropy",), "misplaced-mask", "first token after each observation"),
            (invert, ("token_ids",), "misplaced-mask", "inverted"),
            (pad_quietly, (), "misplaced-mask", "Padding"),
            (pad, ("entropy",), "misplaced-mask", "Padding"),
            (mark_all, ("entropy", "token_ids"), "unmasked-tools", "name a tool"),
            (mark_all, ("tool_names", "token_ids"), "surprisal-off-entropy", "their entropy"),
        ],
        2,
    ),
)
def test_what_the_mask_marks_wrongly_is_named_with_its_step(
    harm: Harm, drop: tuple[str, ...], name: str, words: str, tmp_path: Path
) -> None:
    write(tmp_path / "run", harm, drop=drop)
    found = findings(tmp_path / "run")
    assert name in found
    assert words in found[name].claim
    assert found[name].onset_step == SINCE
    assert found[name].evidence["contaminates"] == "all"
    assert found[name].evidence["first_step"] == SINCE


def test_a_mask_that_is_wrong_all_along_has_no_onset(tmp_path: Path) -> None:
    write(tmp_path / "run", mark_header, since=1)
    found = findings(tmp_path / "run")
    assert set(found) == {"misplaced-mask"}
    assert (found["misplaced-mask"].onset_step, found["misplaced-mask"].held_from_step) == (None, 1)


@pytest.mark.parametrize(("hot", "since"), first_fast([(1.5, 1), (1.5, SINCE), (0.6, SINCE)]))
def test_a_sampler_at_another_temperature_is_named_with_it(hot: float, since: int, tmp_path: Path) -> None:
    write(tmp_path / "run", nothing, since=since, hot=hot)
    (found,) = findings(tmp_path / "run").values()
    assert found.id == "surprisal-off-entropy"
    assert float(str(found.evidence["sampling_temperature"])) == pytest.approx(hot, rel=0.08)
    assert found.onset_step == (None if since == 1 else SINCE)


@pytest.mark.slow
def test_a_temperature_that_is_recorded_is_no_fault(tmp_path: Path) -> None:
    for hot in (0.7, 1.2):
        run = tmp_path / str(hot)
        write(run, nothing, since=1, hot=hot)
        for path in (run / "tokens").glob("*.parquet"):
            pl.read_parquet(path).with_columns(pl.lit(hot).alias("temperature")).write_parquet(path)
        assert findings(run) == {}


def test_without_entropy_surprisal_is_not_judged(tmp_path: Path) -> None:
    write(tmp_path / "run", nothing, drop=("entropy",))
    missing = {one.id: one.missing for one in ptt.diagnose(tmp_path / "run").not_judged}
    assert missing["surprisal-off-entropy"] == ("entropy",)


def test_tool_output_that_is_not_recorded_at_all_is_not_taken_for_marked(tmp_path: Path) -> None:
    def leave_out(_: np.random.Generator, row: Row) -> Row:
        kept = row.mask
        return replace(row, ids=row.ids[kept], mask=kept[kept], logp=row.logp[kept], entropy=row.entropy[kept])

    write(tmp_path / "run", leave_out, since=1)
    assert findings(tmp_path / "run") == {}
