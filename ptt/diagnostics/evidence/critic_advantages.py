"""Advantages that differ between tokens, held against the critic's values and returns."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.evidence.audited_steps import steps_to_audit
from ptt.diagnostics.model import Agreement, AuditRow
from ptt.diagnostics.statistics.advantage_faults import codes_of
from ptt.diagnostics.statistics.token_advantages import CriticFit, fit_critic
from ptt.diagnostics.store.sample_rows import file_of
from ptt.diagnostics.store.scan import READ_ERRORS
from ptt.diagnostics.wording import pct, sig

QUANTITY: Final = "advantage"
CRITIC: Final = ("advantage", "value", "return")
DRIFT: Final = ("old_logp", "ref_logp")  # for a penalty in the reward


def audit_critic(tokens: Tokens | None, share: float) -> AuditRow:
    """Hold the advantages of spread steps against return less value; `share`: of sequences whose tokens differ."""
    found = None if tokens is None else _fitted(tokens)
    said = f"advantages differ between the tokens of {pct(share)} of the sequences"
    if found is None:
        return AuditRow(
            quantity=QUANTITY, agreement=Agreement.NOT_CHECKABLE, said=said, logged_as=QUANTITY,
            missing=("value", "return"), reason="a critic, or a penalty by token, gives each token its own",
        )  # fmt: skip
    fit, steps = found
    decay = f", gamma {sig(fit.decay[0])} and lambda {sig(fit.decay[1])}" if fit.decay else ""
    if fit.penalty:
        decay += f", {sig(fit.penalty[1])} times {fit.penalty[0]} of old/ref taken off each token's reward"
    if fit.whitened is None:
        return AuditRow(
            quantity=QUANTITY, agreement=Agreement.DIFFERS, said="they are not return less value, whitened or not",
            logged_as=QUANTITY, error=fit.error, steps=steps, since=None,
            reason="value and return may be of another update than the advantages",
        )  # fmt: skip
    return AuditRow(
        quantity=QUANTITY, agreement=Agreement.AGREES, logged_as=QUANTITY, formula="gae", steps=steps, agreeing=steps,
        said=f"GAE: return less value{', whitened over each step' if fit.whitened else ''}{decay}",
        error=None if fit.whitened else fit.error,
    )  # fmt: skip


def _fitted(tokens: Tokens) -> tuple[CriticFit, int] | None:
    """Return the fit over sampled tokens of the audited steps, and how many steps; None without values and returns."""
    lines = tokens.sound_rows.select("seq", "step").drop_nulls("step").sort("step", "seq")
    recorded = lines["step"].unique().sort().to_numpy()
    if not tokens.scan.files or not len(recorded):
        return None
    chosen = steps_to_audit(tokens, recorded, recorded)
    parts = []
    found = _by_file(tokens, lines.filter(pl.col("step").is_in(chosen.tolist())))
    for (path,), rows in found.group_by("path", maintain_order=True):
        part = _columns(str(path), rows)
        if part is not None:
            parts.append(part)
    if not parts:
        return None
    flat = pl.concat(parts).filter(pl.col("model_mask") & pl.all_horizontal(pl.col(CRITIC).is_finite()))
    if flat.is_empty():
        return None
    sequence, step = (codes_of(flat[name].cast(pl.Int64).to_numpy()) for name in ("seq", "step"))
    advantage, value, returns = (flat[name].to_numpy() for name in CRITIC)
    drift = (flat["old_logp"] - flat["ref_logp"]).to_numpy()
    return fit_critic(advantage, value, returns, sequence, step, drift), len(np.unique(step))


def _by_file(tokens: Tokens, frame: pl.DataFrame) -> pl.DataFrame:
    files = [file_of(tokens.scan, seq) for seq in frame["seq"]]
    return frame.select("seq", "step").with_columns(
        path=pl.Series([str(file.path) for file in files], dtype=pl.String),
        row=pl.Series([seq - file.start for seq, file in zip(frame["seq"], files, strict=True)], dtype=pl.UInt32),
    )


def _columns(path: str, rows: pl.DataFrame) -> pl.DataFrame | None:
    """Return a file's tokens with the critic's columns and old and reference logprobs; None without the critic's."""
    try:
        source = pl.scan_parquet([path], glob=False, row_index_name="row")
        lists = {name for name, kind in source.collect_schema().items() if isinstance(kind, pl.List)}
        if not {"model_mask", *CRITIC} <= lists:
            return None
        present = ["model_mask", *CRITIC, *(name for name in DRIFT if name in lists)]
        found = source.select("row", *present).join(rows.lazy(), on="row", how="inner").collect()
    except READ_ERRORS:
        return None
    length = pl.col("model_mask").list.len()
    fits = pl.all_horizontal(pl.col(name).list.len() == length for name in present)
    flat = found.filter(fits & (length > 0)).sort("seq").explode(present)
    numbers = [pl.col(name) if name in present else pl.lit(None).alias(name) for name in (*CRITIC, *DRIFT)]
    mask = pl.col("model_mask").cast(pl.Boolean)
    return flat.select("seq", "step", mask, *(number.cast(pl.Float64) for number in numbers))
