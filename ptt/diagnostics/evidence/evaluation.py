"""Put the figures of evaluations into series, each beside the same figure of training, and their settings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

import polars as pl

from ptt.diagnostics.definitions import compiled, dataclass
from ptt.diagnostics.evidence.series import (
    Series,
    finite_series,
    series_by_name,
    training_metric_names,
    training_series,
)
from ptt.diagnostics.metrics.name_words import NOT_A_LEVEL, is_outcome, is_reward, words_of
from ptt.diagnostics.store.wide_metrics import WideMetrics


@dataclass(frozen=True, kw_only=True)
class EvalMetric:
    """One evaluation metric that shows how good the policy is; higher is better."""

    name: str  # what is measured, without the name of the split: env/accuracy
    split: str  # as the writer calls it: eval, test, validation, ...; the suite, where a suite is all that is named
    outcome: bool  # whether it says that the task was done; a reward does not
    series: Series
    twin: Series | None = None  # the same figure of training

    @property
    def title(self) -> str:
        """Name it as a sentence does."""
        return self.series.raw_name


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting of an evaluation, point by point."""

    suite: str
    name: str  # temperature, max_tokens, samples, ...
    points: tuple[tuple[int, float], ...]  # step and setting, in the order of steps
    exact: bool = True  # False: worked out from rounded figures


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A training metric that describes the conditions of an evaluation: how often answers are cut, or tools called."""

    name: str  # canonical
    series: Series


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What is known about evaluations: each metric over the steps, and the protocol it was measured under."""

    figures: tuple[EvalMetric, ...] = ()
    slices: tuple[Series, ...] = ()  # metrics of single capabilities, where the writer names them so
    settings: tuple[Setting, ...] = ()
    conditions: tuple[Condition, ...] = ()
    lengths: tuple[Series, ...] = ()  # of turns and texts in the evaluations
    failures: tuple[Series, ...] = ()  # counts and shares of what failed in them: calls, episodes, scorings
    logged: tuple[str, ...] = ()  # everything recorded about evaluations, as spelt: losses and times too


LENGTHS: Final = compiled(r"turns|length|len(?:$|[/_])|tokens_per|num_tokens|steps_per_episode")
FAILURES: Final = compiled(r"(?i)error|fail|time.?out|timed_out|abort|unavailable")
SPLIT_NAME: Final = compiled(r"^(eval|test|validation|val-core|val-aux|val)(?:[/_])(.+)$")
SPLIT_WORD: Final = compiled(
    r"(?i)(?:^|[/_. -])(eval|evaluation|test|validation|val|dev|held[ _-]?out|holdout)(?:[/_. -]|$)"
)
REPORTER_PREFIX: Final = "train/"
SETTINGS: Final[Mapping[str, str]] = {
    "temperature": "temperature", "top_p": "top_p", "max_tokens": "max_tokens", "max_new_tokens": "max_tokens",
    "max_completion_length": "max_tokens", "samples": "samples", "num_samples": "samples", "n_samples": "samples",
    "num_examples": "samples",
}  # fmt: skip
DRAWS_NAME: Final = compiled(r"^(?:mean|avg)@(\d+)$")  # veRL: val-core/<suite>/<score>/mean@<draws for a prompt>
AT_K_NAME: Final = compiled(r"(?:^|[-_/])(?:mean|avg|pass|maj|best)@\d+(?:$|/mean$)")
SLIME_REWARD: Final = "rollout/raw_reward"  # slime's evaluations are named by their data set alone: eval/aime
SLICE_NAME: Final = compiled(r"^slice[:_]")
CONDITIONS: Final[Mapping[str, re.Pattern[str]]] = {
    "len/clipped_frac": compiled(r"(?:^|/)(?:completions/clipped_ratio|is_truncated/mean)$|-truncated_ratio$"),
    "tools/call_frequency": compiled(r"(?:^|/)tools/call_frequency$"),
}  # TRL; prime-rl: eval/<environment>/is_truncated/mean; slime: eval/<data set>-truncated_ratio


def gather_evaluation(
    metrics: pl.DataFrame, evals: pl.DataFrame, trajectories: pl.DataFrame, wide: WideMetrics
) -> Evaluation | None:
    """Put the figures of evaluations into series; None where nothing of any evaluation is recorded."""
    logged = _logged_evaluation(metrics, wide)
    figures = {(metric.split, metric.name): metric for metric in _eval_metrics(evals, trajectories)}
    figures |= {(metric.split, metric.name): metric for metric in logged.figures}
    settings = (*logged.settings, *_settings_of_evals(evals))
    names = {*metrics.filter(pl.col("split") == "eval")["name_raw"], *evals["metric"].drop_nulls()}
    if not (names or figures or settings):
        return None
    return Evaluation(
        figures=tuple(figures[key] for key in sorted(figures)), slices=logged.slices, settings=tuple(settings),
        conditions=logged.conditions, lengths=logged.lengths, failures=logged.failures,
        logged=tuple(sorted(names)),
    )  # fmt: skip


def _logged_evaluation(metrics: pl.DataFrame, wide: WideMetrics) -> Evaluation:
    numbered = pl.col("step").is_not_null() & pl.col("rank").is_null()
    named = metrics.filter(numbered & (pl.col("split") == "eval"))
    split_names = {raw: parts for raw in named["name_raw"].unique() if (parts := _split_and_rest(raw))}
    plain = {raw: f"{split} {rest}" for raw, (split, rest) in split_names.items()}
    series = series_by_name(named, plain)
    by_name = {
        (split, name): logged_series for key, logged_series in series.items() for split, _, name in [key.partition(" ")]
    }
    trained = training_metric_names(metrics, wide) if by_name else []
    suites = SLIME_REWARD in trained
    wanted = {
        key: logged_series
        for key, logged_series in by_name.items()
        if _is_figure(key[1], suites=suites and key[0] == "eval")
    }
    plain_names = {raw: raw.removeprefix(REPORTER_PREFIX) for raw in trained}
    names = {name for _, name in wanted}
    twins = training_series(metrics, wide, {raw: name for raw, name in plain_names.items() if name in names})
    return Evaluation(
        figures=tuple(
            EvalMetric(name=name, split=split, outcome=_is_outcome(name), series=logged_series, twin=twins.get(name))
            for (split, name), logged_series in wanted.items()
        ),
        slices=tuple(logged_series for (_, name), logged_series in sorted(by_name.items()) if SLICE_NAME.match(name)),
        lengths=tuple(logged_series for (_, name), logged_series in sorted(by_name.items()) if LENGTHS.search(name)),
        failures=tuple(logged_series for (_, name), logged_series in sorted(by_name.items()) if FAILURES.search(name)),
        settings=tuple(_settings_of_metrics(by_name)),
        conditions=tuple(
            Condition(name=name, series=logged_series)
            for (_, raw), logged_series in sorted(by_name.items())
            for name, wanted_name in CONDITIONS.items()
            if wanted_name.search(raw)
        ),
    )


def _split_and_rest(raw: str) -> tuple[str, str] | None:
    """Return the writer's name of the split, and the metric's name without it, wherever in the name the split is."""
    if match := SPLIT_NAME.match(raw):
        return match[1], match[2]
    match = SPLIT_WORD.search(raw)
    if match is None:
        return None
    rest = "".join((raw[: match.start()], "/" if match.start() and match.end() < len(raw) else "", raw[match.end() :]))
    return match[1].lower(), rest


def _is_outcome(name: str) -> bool:
    return is_outcome(name) or bool(AT_K_NAME.search(name))


def _is_figure(name: str, *, suites: bool) -> bool:
    if words_of(name) & {"std", "worst"} or SLICE_NAME.match(name):
        return False
    if AT_K_NAME.search(name):
        return not words_of(name) & (NOT_A_LEVEL - {"min", "max"})
    return is_outcome(name) or is_reward(name) or (suites and "/" not in name and "truncated" not in name)


def _settings_of_metrics(series: Mapping[tuple[str, str], Series]) -> Iterator[Setting]:
    """Return settings that are logged as figures; how large the suite is, by rate and time; draws, by the names."""
    draws: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for (split, name), logged_series in series.items():
        *stem, last = name.split("/")
        if setting := SETTINGS.get(last if stem else name):
            yield Setting(suite="/".join([split, *stem]), name=setting, points=_points(logged_series))
        if draws_match := DRAWS_NAME.match(last):
            points = draws.setdefault(("/".join([split, *stem]), "samples per prompt"), [])
            points += [(step, float(draws_match[1])) for step, _ in _points(logged_series)]
        if name.endswith("samples_per_second"):
            time = series.get((split, name.removesuffix("samples_per_second") + "runtime"))
            rates, times = dict(_points(logged_series)), () if time is None else _points(time)
            if sizes := tuple((step, seconds * rates[step]) for step, seconds in times if step in rates):
                yield Setting(suite=split, name="samples", points=sizes, exact=False)
    for (suite, name), points in sorted(draws.items()):
        if len({step for step, _ in points}) == len(points):  # several values at one step are not a change
            yield Setting(suite=suite, name=name, points=tuple(sorted(points)))


def _points(series: Series) -> tuple[tuple[int, float], ...]:
    steps, values = series.finite()
    return tuple(zip(steps.tolist(), values.tolist(), strict=True))


def _eval_metrics(evals: pl.DataFrame, trajectories: pl.DataFrame) -> Iterator[EvalMetric]:
    """Yield the metrics of the evaluation table; if it is empty, the rewards of evaluated trajectories."""
    usable = evals.filter(pl.col("step").is_not_null() & pl.col("value").is_finite())
    rows = usable.select(pl.col("suite").fill_null("evaluation"), "step", pl.col("metric").fill_null("score"), "value")
    if rows.is_empty():
        scored = trajectories.filter((pl.col("split") == "eval") & pl.col("step").is_not_null())
        rows = scored.select(
            pl.col("env").fill_null("evaluation").alias("suite"), "step", pl.col("reward", "success").cast(pl.Float64)
        ).unpivot(["reward", "success"], index=["suite", "step"], variable_name="metric")
        rows = rows.drop_nulls("value").select("suite", "step", "metric", "value")
    means = rows.group_by("suite", "metric", "step").agg(pl.col("value").mean()).sort("suite", "metric", "step")
    for part in means.partition_by("suite", "metric", maintain_order=True):
        suite, metric = str(part["suite"][0]), str(part["metric"][0])
        if not (_is_outcome(metric) or is_reward(metric)):
            continue
        yield EvalMetric(
            name=metric,
            split=suite,
            outcome=_is_outcome(metric),
            series=finite_series(
                f"{suite} {metric}",
                part["step"].to_numpy(),
                part["value"].to_numpy(),
                raw_name=f"{suite}: {metric}",
            ),
        )


def _settings_of_evals(evals: pl.DataFrame) -> Iterator[Setting]:
    named = evals.filter(pl.col("step").is_not_null()).with_columns(pl.col("suite").fill_null("evaluation"))
    for part in named.sort("suite", "step").partition_by("suite", maintain_order=True):
        for column, name in (("temperature", "temperature"), ("max_tokens", "max_tokens"), ("n", "samples")):
            by_step = part.filter(pl.col(column).is_not_null()).group_by("step").agg(pl.col(column).max()).sort("step")
            if by_step.height:
                points = tuple((int(step), float(value)) for step, value in by_step.iter_rows())
                yield Setting(suite=str(part["suite"][0]), name=name, points=points)
