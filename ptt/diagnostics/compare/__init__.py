"""Compare runs: arms in, a comparison out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from ptt.diagnostics.compare.comparable import Comparable, WithTails, comparable, other_quantities, with_tails
from ptt.diagnostics.compare.comparison import Arm, Comparison, NotCompared
from ptt.diagnostics.compare.confounders import compare_settings
from ptt.diagnostics.compare.divergence_onset import Statistic, divergence_table, metric_figures, tail_figures
from ptt.diagnostics.compare.metric_differences import compare_aggregates, logged_by_some
from ptt.diagnostics.compare.sentences import headline_of, sentences_of
from ptt.diagnostics.compare.tails import ECDF, ESS, Axis, distribution_tables, measure, tail_tables, vanished
from ptt.diagnostics.evidence.logged_metrics import Series, logged_metrics
from ptt.diagnostics.statistics.step_matching import NotMatched

__all__ = ["compare"]

AXES = ("steps", "tokens")
NO_SERIES = "no metric is logged by the baseline and another arm over steps they share"


def compare(arms: Sequence[Arm]) -> Comparison:
    """Compare arms of runs, the first of them the baseline."""
    given = comparable(arms)
    series = {member.name: logged_metrics(member.diagnosis) for arm in arms for member in arm.members}
    tails = with_tails(given.arms)
    not_compared = [*given.left_out, *tails.not_compared]
    axes: list[Axis] = []
    names = tails.slices[tails.arms[0].name] if tails.arms else ()
    for name in AXES if tails.arms else ():
        axis = measure(tails.arms, names, series, name)
        if isinstance(axis, NotMatched):
            not_compared.append(NotCompared(what=f"tails over {name}", reason=axis.reason, enable="record every step"))
        else:
            axes.append(axis)
    tables = tail_tables(tails, axes)
    by_steps = next((axis for axis in axes if axis.name == "steps"), None)
    if by_steps is not None:
        tables |= distribution_tables(tails, by_steps)
        not_compared += vanished(tails, by_steps)
    else:
        tables |= {"ecdf": ECDF.to_frame(), "ess": ESS.to_frame()}
    others = {arm.name: other_quantities(arm, given.arms[0]) for arm in given.arms[1:]}
    tables["aggregates"], tables["aggregate_differences"] = compare_aggregates(given.arms, series, given.reach, others)
    if tables["aggregate_differences"].is_empty():
        not_compared.append(_no_metrics(arms))
    not_compared += logged_by_some(given.arms, series)
    tables["settings"], unrecorded = compare_settings(arms, series)
    tables["divergence"], undated = _divergence(given, tails, series, others)
    not_compared += undated
    not_compared += unrecorded
    said = sentences_of(arms, tables, tails.slices)
    matched = {name: next(((a.matched.first, a.matched.last) for a in axes if a.name == name), None) for name in AXES}
    return Comparison(
        arms=tuple(arms),
        pair=tails.pair,
        headline=headline_of(arms, tables, not_compared),
        sentences=said.sentences,
        cautions=said.cautions,
        tables=tables,
        not_compared=tuple(not_compared),
        matched=matched,
    )


def _divergence(
    given: Comparable, tails: WithTails, series: Mapping[str, Series], others: Mapping[str, Mapping[str, str]]
) -> tuple[pl.DataFrame, list[NotCompared]]:
    """Return the table `divergence`: each arm is judged only on what it shares with the baseline."""
    figures: dict[str, dict[str, dict[str, Statistic]]] = {}
    undated = []
    base, compared = given.arms[0], {arm.name for arm in tails.arms}
    for arm in given.arms[1:]:
        figures_of_tails = (
            tail_figures(arm, base, tails.slices[arm.name]) if arm.name in compared and tails.slices[arm.name] else {}
        )
        if isinstance(figures_of_tails, NotCompared):
            undated.append(figures_of_tails)
            figures_of_tails = {}
        figures[arm.name] = {
            member.name: {
                name: figure
                for name, figure in metric_figures(series[member.name]).items()
                if name not in others[arm.name]
            }
            | figures_of_tails.get(member.name, {})
            for member in (*base.members, *arm.members)
        }
    return divergence_table(given.arms, figures, given.reach), undated


def _no_metrics(arms: Sequence[Arm]) -> NotCompared:
    bare = [member.name for arm in arms for member in arm.members if "series" not in member.diagnosis.tables]
    if bare:
        reason = f"{', '.join(bare)}: findings.json has no logged series"
        return NotCompared(what="metrics", reason=reason, enable="give the run or its store")
    return NotCompared(what="metrics", reason=NO_SERIES, enable="log the same metrics in all runs")
