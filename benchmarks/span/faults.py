"""Faults that are planted in a made run's token data, each with the findings that may name it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.span.run import Drawn, Growth

Generator = np.random.Generator
Values = npt.NDArray[np.float32]
CALM: Final = 0.3  # nats: p99 of a healthy run
Break = Callable[[Generator, Drawn, pa.Table], pa.Table]


def values_of(table: pa.Table, name: str) -> Values:
    """Give a column's tokens, one after the other."""
    return np.array(table[name].combine_chunks().flatten(), dtype=np.float32)


def with_values(table: pa.Table, name: str, values: Values) -> pa.Table:
    """Give the table with other tokens in a column."""
    offsets = table["model_mask"].combine_chunks().offsets
    column = pa.ListArray.from_arrays(offsets, pa.array(values, from_pandas=False))
    if name in table.column_names:
        return table.set_column(table.column_names.index(name), name, column)
    return table.append_column(name, column)


def rows_of(table: pa.Table) -> npt.NDArray[np.int64]:
    """Give the sequence of every token."""
    lengths = np.diff(np.asarray(table["model_mask"].combine_chunks().offsets))
    return np.repeat(np.arange(len(lengths)), lengths)


def _zero_rows(generator: Generator, _drawn: Drawn, table: pa.Table) -> pa.Table:
    hit = generator.random(table.num_rows) < generator.uniform(0.02, 0.3)
    return with_values(table, "ref_logp", np.where(hit[rows_of(table)], np.float32(0), values_of(table, "ref_logp")))


def _constant(value: float) -> Break:
    def breaks(generator: Generator, _drawn: Drawn, table: pa.Table) -> pa.Table:
        values = values_of(table, "ref_logp")
        hit = generator.random(len(values)) < generator.uniform(0.03, 0.15)
        return with_values(table, "ref_logp", np.where(hit, np.float32(value), values))

    return breaks


def _zeros(generator: Generator, _drawn: Drawn, table: pa.Table) -> pa.Table:
    """Zero on tokens that were not sampled, to which the reference gives next to nothing."""
    values, other = values_of(table, "policy_logp"), values_of(table, "ref_logp")
    hit = generator.random(len(values)) < generator.uniform(0.01, 0.1)
    other = np.where(hit, np.float32(-5) - generator.exponential(1.0, len(values)), other).astype(np.float32)
    return with_values(with_values(table, "ref_logp", other), "policy_logp", np.where(hit, np.float32(0), values))


def _missing(generator: Generator, _drawn: Drawn, table: pa.Table) -> pa.Table:
    values = values_of(table, "policy_logp")
    hit = generator.random(len(values)) < generator.uniform(0.01, 0.2)
    return with_values(table, "policy_logp", np.where(hit, np.float32(np.nan), values))


def _shifted(_generator: Generator, _drawn: Drawn, table: pa.Table) -> pa.Table:
    return with_values(table, "ref_logp", np.roll(values_of(table, "ref_logp"), 1))


def _scaled(generator: Generator, _drawn: Drawn, table: pa.Table) -> pa.Table:
    by = np.float32(generator.uniform(0.4, 0.65))
    return with_values(table, "ref_logp", values_of(table, "ref_logp") * by)


def _copied(_generator: Generator, _drawn: Drawn, table: pa.Table) -> pa.Table:
    return with_values(table, "policy_logp", values_of(table, "ref_logp"))


def _repeated(generator: Generator, _drawn: Drawn, table: pa.Table) -> pa.Table:
    hit = np.flatnonzero(generator.random(table.num_rows) < generator.uniform(0.1, 0.5))
    return pa.concat_tables([table, table.take(pa.array(hit))])


PLANTED: Final[Mapping[str, tuple[Break, tuple[str, ...]]]] = {
    "rows of zeros": (_zero_rows, ("filled-rows", "placeholder-logprobs")),
    "zeros on tokens not sampled": (_zeros, ("placeholder-logprobs",)),
    "-9999": (_constant(-9999.0), ("placeholder-logprobs",)),
    "log(1/V)": (_constant(float(-np.log(151_936))), ("placeholder-logprobs",)),
    "NaN": (_missing, ("missing-logprobs",)),
    "shifted by one": (_shifted, ("shifted-logprobs",)),
    "another temperature": (_scaled, ("scaled-logprobs",)),
    "copied column": (_copied, ("copied-logprobs",)),
    "repeated sequences": (_repeated, ("repeated-sequences",)),
}
"""What is done to the data, and the findings that name it."""


def calm(drawn: Drawn) -> Drawn:
    """Give the run without any growth, its tails low: what is wrong with it is then its data alone."""
    p99, text = min(drawn.p99, CALM), min(drawn.text_p99, CALM)
    return replace(drawn, post=Growth(), text=Growth(), p99=p99, text_p99=text)


def break_data(fault: str, drawn: Drawn, table: pa.Table) -> tuple[Drawn, pa.Table]:
    """Plant a fault; the run is then asked about its data alone."""
    generator = np.random.default_rng([drawn.seed, 17])
    return replace(drawn, plan="blind", blindness=fault), PLANTED[fault][0](generator, drawn, table)
