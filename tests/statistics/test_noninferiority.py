"""One run's tails over another's: exact percentiles, honest intervals under noise that follows itself, one decision."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from builders import Story, repeatable, sequences_of, steady, stepped
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.signal import lfilter
from slow_cases import first_fast

from benchmarks.gate_calibration import profile_of
from benchmarks.tails_against import tails_against
from ptt.diagnostics.statistics.noninferiority import (
    MATERIAL_NATS,
    UNKNOWN,
    Noninferiority,
    NormalMixture,
    decide,
    fit_mixed_model,
    noninferiority_test,
)
from ptt.diagnostics.statistics.tail_curves import (
    SPAN_COUNT,
    Curve,
    Profile,
    floor_curve,
    join_tail,
    resample_tails,
    split_thirds,
    tail_curve,
    tail_curves,
    third_of,
)
from ptt.diagnostics.statistics.trend import block_correlation
from ptt.diagnostics.statistics.windows import Span, split_steps

FloatArray = npt.NDArray[np.float64]

DENSE = Story(steps=36, sequences=16, post=stepped(0.4, 0.8), likeness=0.2)


def run(**changes: object) -> Profile:
    return profile_of(sequences_of(replace(DENSE, **changes)))  # type: ignore[arg-type]


def made(
    generator: np.random.Generator,
    *,
    steps: int = 100,
    likeness: float = 0.5,
    sd: float = 0.15,
    own: float = 0.003,
    level: float = 0.0,
    seed_sd: float = 0.0,
) -> Curve:
    """Make a curve of which all is known: a course that every run has, step noise, its sequences' own, its seed's."""
    spans = split_steps(range(1, steps + 1), SPAN_COUNT)
    pushes = generator.normal(size=steps + 80) * math.sqrt(1 - likeness**2)
    noise = sd * lfilter([1.0], [1.0, -likeness], pushes)[80:]
    values = np.array([noise[span.first - 1 : span.last].mean() for span in spans])
    values += np.linspace(-1, 2, SPAN_COUNT) + level + seed_sd * generator.normal()
    return Curve(
        slice="post_tool",
        quantile="p99",
        spans=spans,
        log_value=values + math.sqrt(own) * generator.normal(size=SPAN_COUNT),
        own=np.full(SPAN_COUNT, own),
        tokens=np.full(SPAN_COUNT, 2000),
        units=np.full(SPAN_COUNT, 60),
    )


def shifted(one: Curve, by: FloatArray | float) -> Curve:
    return replace(one, log_value=one.log_value + by)


# --- curves


def test_percentiles_of_spans_are_those_of_the_raw_tokens() -> None:
    frame = sequences_of(DENSE)
    spans = split_steps(range(1, DENSE.steps + 1), SPAN_COUNT)
    found = tail_curves(profile_of(frame), slice_name="post_tool", spans=spans)
    for number, span in enumerate(spans):
        rows = frame.filter(pl.col("step").is_between(span.first, span.last))
        r = []
        for mask, policy, ref in rows.select("model_mask", "policy_logp", "ref_logp").iter_rows():
            if False in mask:
                start = max(place for place, held in enumerate(mask) if not held) + 1
                r += [abs(np.float64(p) - np.float64(q)) for p, q in zip(policy[start:], ref[start:], strict=True)]
        for name, one in found.items():
            assert math.exp(one.log_value[number]) == pytest.approx(np.quantile(r, float(name[1:]) / 100), rel=1 / 256)
            assert one.tokens[number] == len(r)
            assert one.units[number] == rows["model_mask"].list.all().not_().sum()


@pytest.mark.slow
def test_own_noise_is_how_far_a_percentile_of_other_sequences_would_lie() -> None:
    """Against brute force: the variance of the figure over runs made anew."""
    spans = (Span(1, 6),)
    story = Story(steps=6, sequences=16, post=steady(0.5), likeness=0.4)
    each = [
        tail_curves(profile_of(sequences_of(replace(story, seed=seed))), slice_name="post_tool", spans=spans)
        for seed in range(40)
    ]
    for name in ("p95", "p99"):
        truly = np.var([one[name].log_value[0] for one in each], ddof=1)
        assert np.mean([one[name].own[0] for one in each]) == pytest.approx(truly, rel=0.5)


def test_a_span_with_too_few_tokens_has_no_value() -> None:
    profile = run()
    spans = (Span(1, 12), Span(13, 24), Span(100, 110))
    found = tail_curve(profile, slice_name="post_tool", quantile="p99", spans=spans)
    assert np.isfinite(found.log_value).tolist() == [True, True, False]
    assert found.tokens[2] == 0
    assert np.isnan(found.own[2])


def test_redrawings_of_two_runs_do_not_move_together() -> None:
    profile = run()
    spans = split_steps(range(1, DENSE.steps + 1), SPAN_COUNT)
    first, again, other = (
        resample_tails(profile, slice_name="post_tool", spans=spans, name=name).percentiles["p99"].windows_drawn
        for name in ("a", "a", "b")
    )
    assert np.array_equal(first, again)
    for window in range(3):
        assert abs(np.corrcoef(first[window], other[window])[0, 1]) < 0.2


def test_thirds_take_spans_as_windows_do() -> None:
    spans = split_steps(range(1, 37), SPAN_COUNT)
    assert split_thirds(spans) == (Span(1, 12), Span(13, 24), Span(25, 36))
    assert third_of(8).tolist() == [0, 0, 0, 1, 1, 1, 2, 2]


@given(st.floats(-4, 2), st.floats(1e-4, 1.0), st.floats(0.05, 2.0))
@repeatable
def test_a_floor_leaves_the_noise_of_what_lies_above_it(mean: float, own: float, floor: float) -> None:
    """Against numerical integration of max(x, floor)."""
    one = replace(made(np.random.default_rng(1)), log_value=np.full(SPAN_COUNT, mean), own=np.full(SPAN_COUNT, own))
    x = np.linspace(mean - 12 * math.sqrt(own), mean + 12 * math.sqrt(own), 40001)
    weight = stats.norm.pdf(x, mean, math.sqrt(own))
    weight /= weight.sum()
    held = np.maximum(x, math.log(floor))
    wanted = float((weight * held**2).sum() - (weight * held).sum() ** 2)
    found = floor_curve(one, floor)
    assert found.own[0] == pytest.approx(wanted, rel=1e-3, abs=1e-9)
    assert found.log_value[0] == max(mean, math.log(floor))


def test_a_tail_is_the_geometric_mean_of_both_percentiles() -> None:
    profile = run()
    spans = split_steps(range(1, DENSE.steps + 1), SPAN_COUNT)
    both = tail_curves(profile, slice_name="post_tool", spans=spans)
    one = join_tail(list(both.values()))
    assert np.exp(one.log_value) == pytest.approx(
        np.sqrt(np.exp(both["p95"].log_value) * np.exp(both["p99"].log_value))
    )
    assert (one.own <= np.maximum(both["p95"].own, both["p99"].own) + 1e-12).all()
    with pytest.raises(ValueError, match="p95 and p99"):
        join_tail([both["p95"], both["p95"]])


# --- the factor and its interval


@pytest.mark.parametrize(
    ("steps", "likeness", "sd", "window"),
    first_fast([(24, 0.8, 0.2, "all"), (60, 0.0, 0.2, "all"), (60, 0.8, 0.2, "late"), (240, 0.8, 0.1, "all")]),
)
def test_the_interval_holds_the_truth_under_noise_that_follows_itself(
    steps: int, likeness: float, sd: float, window: str
) -> None:
    generator = np.random.default_rng([steps, round(10 * likeness), round(100 * sd)])
    pairs = 100
    inside = false = 0
    for _ in range(pairs):
        first, second = (made(generator, steps=steps, likeness=likeness, sd=sd) for _ in range(2))
        found = noninferiority_test([shifted(first, 0.3)], [second], window=window, floor=None)
        inside += found.low <= math.exp(0.3) <= found.high
        false += found.low > math.exp(0.3)
    assert inside / pairs >= 0.88  # three standard errors below 95%
    assert false / pairs <= 0.08


def test_white_noise_gives_the_paired_t_interval_and_no_less() -> None:
    """Where nothing but white noise is there, Student's interval on the differences is the reference."""
    generator = np.random.default_rng(7)
    wider = []
    for _ in range(40):
        first, second = (made(generator, steps=600, likeness=0.0, sd=0.5, own=1e-6) for _ in range(2))
        found = noninferiority_test([first], [second], floor=None)
        apart = (first.log_value - second.log_value).reshape(3, -1)
        scatter = math.sqrt(float(apart.var(axis=1, ddof=1).mean()) / SPAN_COUNT)
        assert math.log(found.ratio) == pytest.approx(float(apart.mean()), abs=0.3 * scatter)
        wider.append((math.log(found.high) - math.log(found.low)) / (2 * stats.t.ppf(0.975, SPAN_COUNT - 3) * scatter))
    assert 0.95 < float(np.mean(wider)) < 1.35


def test_the_fit_is_generalised_least_squares() -> None:
    """Against the textbook formula written out, for the likeliest noise of the grid."""
    generator = np.random.default_rng(3)
    runs = [made(generator) for _ in range(3)]
    values, own = np.array([one.log_value for one in runs]), np.array([one.own for one in runs])
    upper, windows = np.array([True, False, False]), third_of(SPAN_COUNT)
    only = {
        "AR1_PRIOR": {0.4: 1.0},
        "STEP_NOISE_SDS": (0.1,),
        "SEED_NOISE_SDS": (0.2,),
        "PERSISTENT_SHARES": (1.0,),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in only.items():
            patch.setattr(f"ptt.diagnostics.statistics.noninferiority.{name}", value)
        found = fit_mixed_model(values, own, upper=upper, windows=windows, steps=np.full(3, 8.0))
    within = 0.01 * block_correlation(SPAN_COUNT, 8, 0.4) + 0.04
    covariance = np.zeros((3 * SPAN_COUNT, 3 * SPAN_COUNT))
    design = np.zeros((3 * SPAN_COUNT, SPAN_COUNT + 3))
    for number in range(3):
        rows = slice(number * SPAN_COUNT, (number + 1) * SPAN_COUNT)
        covariance[rows, rows] = within + np.diag(own[number])
        design[rows, :SPAN_COUNT] = np.eye(SPAN_COUNT)
        if upper[number]:
            design[np.arange(SPAN_COUNT) + number * SPAN_COUNT, SPAN_COUNT + windows] = 1
    inverse = np.linalg.inv(covariance)
    known = np.linalg.inv(design.T @ inverse @ design)
    wanted = known @ design.T @ inverse @ values.ravel()
    assert found.means[0] == pytest.approx(wanted[SPAN_COUNT:])
    assert found.covariances[0] == pytest.approx(known[SPAN_COUNT:, SPAN_COUNT:])


def test_quantiles_of_a_mixture_are_those_of_its_draws() -> None:
    mixture = NormalMixture(np.array([0.3, 0.7]), np.array([-1.0, 0.5]), np.array([0.2, 0.6]))
    for q in (0.025, 0.5, 0.975):
        x = mixture.quantile(q)
        assert 0.3 * stats.norm.cdf(x, -1, 0.2) + 0.7 * stats.norm.cdf(x, 0.5, 0.6) == pytest.approx(q, abs=1e-9)
        assert mixture.above(x) == pytest.approx(1 - q, abs=1e-9)


def test_what_both_runs_do_alike_cancels() -> None:
    generator = np.random.default_rng(11)
    first, second = made(generator), made(generator)
    course = np.sin(np.arange(SPAN_COUNT)) * 3
    plain = noninferiority_test([first], [second], floor=None)
    moved = noninferiority_test([shifted(first, course)], [shifted(second, course)], floor=None)
    assert astuple(moved) == pytest.approx(astuple(plain), rel=1e-6)


def astuple(one: Noninferiority) -> tuple[float, ...]:
    return (one.ratio, one.low, one.high, one.p_value, one.detectable)


@given(st.integers(0, 10_000), st.floats(-0.5, 0.5), st.sampled_from(["all", "early", "mid", "late"]))
@repeatable
def test_swapping_sides_inverts_the_factor_and_its_interval(seed: int, level: float, window: str) -> None:
    generator = np.random.default_rng(seed)
    first, second = made(generator, level=level), made(generator)
    here = noninferiority_test([first], [second], window=window)
    there = noninferiority_test([second], [first], window=window)
    assert there.ratio == pytest.approx(1 / here.ratio, rel=1e-6)
    assert (there.low, there.high) == pytest.approx((1 / here.high, 1 / here.low), rel=1e-6)
    assert there.p_value == pytest.approx(1 - here.p_value, abs=1e-8)
    assert there.detectable == pytest.approx(here.detectable, rel=0.2)


def test_the_order_of_seeds_is_of_no_consequence() -> None:
    generator = np.random.default_rng(5)
    baseline = [made(generator, seed_sd=0.1) for _ in range(3)]
    variant = [made(generator, seed_sd=0.1) for _ in range(2)]
    plain = noninferiority_test(variant, baseline)
    assert astuple(noninferiority_test(variant[::-1], [baseline[place] for place in (2, 0, 1)])) == pytest.approx(
        astuple(plain), rel=1e-9
    )


@pytest.mark.parametrize(("variants", "baselines"), first_fast([(1, 3), (3, 3)]))
def test_how_far_seeds_lie_apart_is_counted(variants: int, baselines: int) -> None:
    generator = np.random.default_rng([variants, baselines])
    inside, pairs = 0, 30
    for _ in range(pairs):
        variant = [made(generator, seed_sd=0.3) for _ in range(variants)]
        baseline = [made(generator, seed_sd=0.3) for _ in range(baselines)]
        found = noninferiority_test(variant, baseline)
        inside += found.low <= 1 <= found.high
    assert inside / pairs >= 0.8  # three standard errors below 95%
    alike = [made(generator) for _ in range(6)]
    apart = [shifted(one, by) for one, by in zip(alike, (-0.4, 0, 0.4, -0.4, 0, 0.4), strict=True)]
    wide, narrow = (noninferiority_test(six[:3], six[3:]) for six in (apart, alike))
    assert wide.high / wide.low > 1.5 * narrow.high / narrow.low


def test_more_seeds_tell_more() -> None:
    generator = np.random.default_rng(9)
    six = [made(generator) for _ in range(6)]
    assert noninferiority_test(six[:3], six[3:]).detectable < noninferiority_test(six[:1], six[3:5]).detectable


def test_a_factor_that_is_detectable_is_told() -> None:
    generator = np.random.default_rng(13)
    told, pairs = 0, 60
    for _ in range(pairs):
        first, second = made(generator), made(generator)
        least = noninferiority_test([first], [second]).detectable
        told += noninferiority_test([shifted(first, math.log(least))], [second]).p_value < 0.025
    assert told / pairs >= 0.9


def test_too_few_spans_say_nothing() -> None:
    generator = np.random.default_rng(2)
    first, second = made(generator), made(generator)
    sparse = replace(first, log_value=np.where(np.arange(SPAN_COUNT) < 5, first.log_value, np.nan))
    found = noninferiority_test([sparse], [second])
    assert (found.spans, found.detectable) == (5, math.inf)
    assert all(math.isnan(value) for value in (found.ratio, found.low, found.high, found.p_value))
    vanished = replace(first, log_value=np.where(np.arange(SPAN_COUNT) < 8, first.log_value, np.nan))
    assert noninferiority_test([vanished], [second]).spans == 8
    assert math.isnan(noninferiority_test([vanished], [second], window="late").ratio)


def test_a_seed_that_lacks_a_span_costs_only_that() -> None:
    generator = np.random.default_rng(4)
    baseline, variant = [made(generator) for _ in range(3)], [made(generator)]
    whole = noninferiority_test(variant, baseline)
    gap = replace(baseline[0], log_value=np.where(np.arange(SPAN_COUNT) == 3, np.nan, baseline[0].log_value))
    found = noninferiority_test(variant, [gap, *baseline[1:]])
    assert found.spans == SPAN_COUNT
    assert found.ratio == pytest.approx(whole.ratio, rel=0.05)


def test_curves_over_unlike_spans_are_refused() -> None:
    generator = np.random.default_rng(4)
    one = made(generator)
    short = replace(one, spans=one.spans[:6], log_value=one.log_value[:6], own=one.own[:6])
    with pytest.raises(ValueError, match="different spans"):
        noninferiority_test([one], [short])
    with pytest.raises(ValueError, match="needs a run"):
        noninferiority_test([one], [])


# --- the decision


def told(ratio: float, low: float, high: float, p_value: float) -> Noninferiority:
    return replace(UNKNOWN, ratio=ratio, low=low, high=high, p_value=p_value, detectable=1.2, spans=12)


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (told(1.6, 1.4, 1.8, 1e-4), "worse"),
        (told(1.0, 0.9, 1.1, 0.5), "not_worse"),
        (told(1.2, 1.1, 1.3, 1e-4), "not_worse"),  # beyond noise, within the limit
        (told(1.3, 0.9, 1.9, 0.2), "cannot_say"),  # beyond the limit, within noise
        (told(1.0, 0.5, 2.0, 0.5), "cannot_say"),  # too wide to have shown anything
        (told(0.3, 0.1, 0.9, 0.98), "not_worse"),
        (UNKNOWN, "cannot_say"),
    ],
)
def test_worse_needs_noise_and_limit_passed_and_not_worse_needs_power(found: Noninferiority, wanted: str) -> None:
    assert decide(found) == wanted


def test_a_higher_limit_fails_less() -> None:
    assert decide(told(1.6, 1.4, 1.8, 1e-4), limit=2.0) == "not_worse"


def both(one: Curve, *, p95: float = -0.7) -> list[Curve]:
    return [replace(one, quantile="p95", log_value=one.log_value + p95), one]


def test_each_slice_is_asked_over_the_run_and_late_in_it() -> None:
    generator = np.random.default_rng(21)
    post, text = both(made(generator, level=1)), both(made(generator, level=1))
    other = both(made(generator, level=1))
    plain = tails_against({"post_tool": [post], "text_only": [text]}, {"post_tool": [other], "text_only": [text]})
    assert plain.decision == "not_worse"
    assert [(one.slice, one.window) for one in plain.tests] == [
        ("post_tool", "all"),
        ("post_tool", "late"),
        ("text_only", "all"),
        ("text_only", "late"),
    ]
    late = [shifted(one, math.log(2) * (third_of(SPAN_COUNT) == 2)) for one in post]
    found = tails_against({"post_tool": [late], "text_only": [text]}, {"post_tool": [other], "text_only": [text]})
    assert found.decision == "worse"
    assert [one.window for one in found.tests if one.decision == "worse"] == ["late"]


def test_a_slice_that_one_side_lacks_cannot_be_said() -> None:
    post = both(made(np.random.default_rng(22), level=1))
    assert tails_against({"post_tool": [post]}, {}).decision == "cannot_say"
    assert tails_against({}, {"post_tool": [post]}).decision == "cannot_say"
    assert tails_against({}, {}).decision == "cannot_say"
    gone = [
        replace(
            one,
            log_value=np.full(SPAN_COUNT, np.nan),
            own=np.full(SPAN_COUNT, np.nan),
            tokens=np.zeros(SPAN_COUNT, np.int64),
        )
        for one in post
    ]
    assert tails_against({"post_tool": [gone]}, {"post_tool": [post]}).decision == "cannot_say"
    assert tails_against({"post_tool": [gone]}, {"post_tool": [gone]}).tests == ()


def test_growth_of_tails_that_are_of_no_matter_is_not_worse() -> None:
    quiet = both(made(np.random.default_rng(23), level=math.log(0.02) - 2, sd=0.05))
    grown = [shifted(one, math.log(3)) for one in quiet]
    assert max(np.exp(grown[1].log_value)) < MATERIAL_NATS["p99"]
    found = tails_against({"post_tool": [grown]}, {"post_tool": [quiet]})
    assert found.decision == "not_worse"
    assert found.tests[0].versus["p99"].ratio == pytest.approx(1.0)
    assert noninferiority_test([grown[1]], [quiet[1]], floor=None).ratio == pytest.approx(3.0)


def test_the_same_run_against_itself_is_not_worse() -> None:
    profile = run(post=steady(0.9), text=steady(0.9), sequences=24)
    spans = split_steps(range(1, DENSE.steps + 1), SPAN_COUNT)
    sides = {
        name: [tuple(tail_curves(profile, slice_name=name, spans=spans).values())] for name in profile.slices.values()
    }
    found = tails_against(sides, sides)
    assert found.decision == "not_worse"
    assert all(seen.ratio == pytest.approx(1.0) for one in found.tests for seen in one.versus.values())


def test_a_slice_that_vanished_has_an_empty_curve() -> None:
    profile = run(tool_share=steady(0.0))
    spans = split_steps(range(1, DENSE.steps + 1), SPAN_COUNT)
    found = tail_curves(profile, slice_name="post_tool", spans=spans)
    for one in found.values():
        assert not one.tokens.any()
        assert np.isnan(one.log_value).all()
        assert np.isnan(one.own).all()
    assert math.isnan(noninferiority_test([found["p99"]], [found["p99"]]).ratio)
