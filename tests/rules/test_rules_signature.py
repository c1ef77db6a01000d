"""The signature: found where it is, and not where something merely looks like it."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from builders import Scale, Story, aggregates, evidence_of, hump, rising, sequences_of, series_of, steady, stepped
from slow_cases import first_fast

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import finite_series
from ptt.diagnostics.model import Answer, Broken, Healthy, NotJudged, Severity
from ptt.diagnostics.rules.single_series import lasting_excess
from ptt.diagnostics.rules.tool_tail_growth import ID, LIMITS, Judgement, judge
from ptt.diagnostics.verdict.run_rules import aggregates_of

GROWS = rising(0.05, 1.5)


def until(end: float, share: float = 0.75) -> Scale:
    return lambda done: share if done < end else 0.0


def first_calls(done: float) -> float:
    """Six calls in all before two fifths of the run are over."""
    return 0.0625 if done < 0.1 else 0.0 if done < 0.4 else 0.75


STORIES: dict[str, Story] = {
    "found": Story(post=GROWS),
    "medium": Story(post=rising(0.05, 0.5)),
    "high": Story(post=rising(0.05, 1.0)),
    "immaterial": Story(post=rising(0.01, 0.1)),
    "no growth": Story(),
    "high but stable": Story(post=steady(1.0)),
    "more tools, same tails": Story(post=steady(1.0), tool_share=lambda done: 0.2 + 0.8 * done),
    "alike": Story(text=GROWS, post=GROWS),
    "both, more nats after tools": Story(text=rising(0.05, 0.2), post=rising(0.6, 2.4)),
    "alike, text near nothing": Story(text=stepped(0.003, 0.045), post=stepped(0.02, 0.3)),
    "more than text near nothing": Story(text=stepped(0.003, 0.006), post=stepped(0.02, 0.3)),
    "from the first step on": Story(text=rising(0.05, 0.06), post=rising(0.6, 2.4)),
    "late": Story(post=lambda done: 0.2 if done < 0.92 else 1.2),
    "early": Story(post=lambda done: 0.2 if done < 0.1 else 1.2),
    "swelling": Story(post=rising(0.5, 0.9), post_noise=0.5, steps=20, seed=1),
    "rare and extreme": Story(sequences=40, post=steady(0.35), post_rare=lambda done: 0.0 if done < 0.4 else 0.005),
    "late by nats": Story(
        text=lambda done: 0.05 if done < 0.85 else 0.15, post=lambda done: 0.6 if done < 0.85 else 2.2
    ),
    "late everywhere": Story(
        text=lambda done: 0.2 if done < 0.85 else 1.2, post=lambda done: 0.2 if done < 0.85 else 1.2
    ),
    "last block": Story(steps=40, sequences=6, post=lambda done: 0.4 if done < 0.98 else 3.0),
    "too late": Story(steps=40, sequences=6, post=lambda done: 0.3 if done < 0.96 else 1.5),
    "high and short": Story(post=steady(3.0), steps=11),
    "raised and short": Story(post=steady(0.6), steps=11),
    "high and wild": Story(post=lambda done: 4.0 if int(done * 40) % 3 else 1.0, steps=40, sequences=4),
    "higher and wilder": Story(post=lambda done: 9.0 if int(done * 40) % 4 else 1.0, steps=40, sequences=3, seed=3),
    "hump left high": Story(steps=90, post=lambda done: 0.4 if done < 0.35 else 5.0 if done < 0.75 else 1.2),
    "text only": Story(text=GROWS, post=steady(0.05)),
    "hump": Story(post=hump(0.05, 1.0)),
    "rise that came back": Story(steps=90, post=lambda done: 0.05 if done < 0.4 else 1.5 if done < 0.82 else 0.06),
    "falling": Story(post=rising(1.5, 0.05)),
    "no tools": Story(post=GROWS, tool_share=steady(0.0)),
    "no head": Story(post=GROWS, head=0),
    "vanished": Story(post=GROWS, tool_share=until(0.4)),
    "first calls late": Story(post=stepped(0.1, 1.5), tool_share=first_calls),
    "first calls late, no growth": Story(post=steady(1.5), tool_share=first_calls),
    "few calls at all": Story(
        steps=31, post=lambda done: 0.1 if done < 0.85 else 1.5, tool_share=lambda done: 1.0 if done > 0.85 else 0.1
    ),
    "vanished in the end": Story(post=GROWS, tool_share=until(0.82)),
    "too few tool tokens": Story(post=GROWS, tail=2, sequences=6, tool_share=steady(0.5)),
    "thin blocks": Story(post=rising(0.05, 3.0), steps=240, sequences=8, tail=8, tool_share=steady(0.13)),
    "few text tokens": Story(post=GROWS, head=1, steps=30, tool_share=steady(1.0)),
    "short": Story(post=GROWS, steps=11),
    "copies": Story(text=steady(0.0), post=steady(0.0)),
    "holes": Story(post=GROWS, nan_share=0.3),
    "few holes": Story(post=GROWS, nan_share=0.1),
}


@cache
def evidence(story: str) -> Evidence:
    return evidence_of(sequences_of(STORIES[story]))


@cache
def judged(story: str, **limits: float) -> Judgement:
    return judge(replace(evidence(story), limits={ID: limits}), aggregates())


def test_growth_after_tools_alone_is_found_with_its_numbers() -> None:
    judgement = judged("found")
    signature = judgement.signature
    assert signature.status is Answer.FOUND
    assert dict(signature.conditions) == dict.fromkeys(("growth", "localised", "lasting", "material"), True)
    assert signature.pair == "policy/ref"
    assert signature.p_value is not None
    assert signature.p_value <= 0.001
    assert signature.false_alarm_rate == LIMITS["false_alarms"]
    post, text = signature.growth["post_tool"], signature.growth["text_only"]
    # thirtyfold over the run, so about 30 ** (2/3) = 9.7 from the first third to the last
    assert post.p95 == pytest.approx(9.7, rel=0.2)
    assert text.p95 == pytest.approx(1.0, abs=0.1)
    assert post.interval_p99 is not None
    assert post.interval_p99[0] <= post.p99 <= post.interval_p99[1]  # type: ignore[operator]
    assert isinstance(judgement.verdict, Broken)
    finding = judgement.verdict.findings[0]
    assert (finding.id, finding.slice, finding.unit) == (ID, "post_tool", "nats")
    assert finding.severity is Severity.CRITICAL
    assert finding.observed is not None
    assert finding.limit == LIMITS["critical_p95"]
    assert finding.observed > finding.limit
    assert finding.onset_step == signature.onset_step


@pytest.mark.parametrize(
    ("story", "severity", "name"),
    [("medium", Severity.MEDIUM, "p99"), ("high", Severity.HIGH, "p95"), ("found", Severity.CRITICAL, "p95")],
)
def test_severity_is_that_of_the_late_tail(story: str, severity: Severity, name: str) -> None:
    verdict = judged(story).verdict
    assert isinstance(verdict, Broken)
    assert verdict.findings[0].severity is severity
    assert verdict.findings[0].evidence["percentile"] == name


def test_a_step_is_dated_where_it_comes_and_passes_its_limit_there() -> None:
    signature = judge(evidence_of(sequences_of(Story(post=stepped(0.05, 1.5)))), aggregates()).signature
    assert (signature.onset_step, signature.limit_passed_step) == (31, 31)
    for first, last in (signature.onset_interval or (0, 0), signature.limit_passed_interval or (0, 0)):
        assert 25 <= first <= 31 <= last <= 35


@pytest.mark.slow
def test_a_step_to_just_above_the_limit_is_dated_all_the_same() -> None:
    """p95 ends near its limit of 1 nat, so noise decides when the limit is passed; the step itself is plain."""
    for seed in range(5):
        story = Story(post=stepped(0.1, 0.37), post_noise=0.1, seed=seed, steps=80)
        judgement = judge(evidence_of(sequences_of(story)), aggregates())
        assert judgement.signature.status is Answer.FOUND
        assert judgement.signature.onset_step == pytest.approx(41, abs=2)


def test_a_ramp_begins_before_it_passes_its_limit() -> None:
    story = Story(post=lambda done: 0.1 * 12.0 ** max(0.0, (done - 0.4) / 0.6), steps=100)
    signature = judge(evidence_of(sequences_of(story)), aggregates()).signature
    assert signature.onset_step == pytest.approx(45, abs=10)  # bent below 0.2 nats, so it shows a little late
    assert signature.limit_passed_step is not None
    assert signature.limit_passed_step > signature.onset_step + 20  # type: ignore[operator]


def test_growth_from_the_first_step_on_begins_there() -> None:
    signature = judged("from the first step on").signature
    assert signature.onset_interval is not None
    assert signature.onset_interval[0] == 1
    assert signature.onset_step is not None
    assert signature.onset_step <= 6


def test_the_tail_alarms_as_a_usual_curve_with_its_values_would() -> None:
    held = long_run()
    assert held.tails is not None
    values = held.tails.post_steps.percentiles["p95"]
    excess = lasting_excess(finite_series("p95", np.arange(1, 121), values), LIMITS["critical_p95"])
    assert excess is not None
    signature = judge(held, aggregates(kl_ref=119)).signature
    assert signature.lead_steps == 119 - excess.onset
    assert signature.limit_passed_step is not None
    assert signature.limit_passed_step <= excess.onset  # a mean over 20 steps passes late


@cache
def long_run() -> Evidence:
    return evidence_of(sequences_of(Story(post=rising(0.05, 2.5), steps=120)))


@pytest.mark.parametrize(
    ("story", "condition"),
    first_fast(
        [
            ("immaterial", "material"),
            ("more tools, same tails", "growth"),
            ("hump", "lasting"),
            ("alike", "localised"),
            ("no growth", "growth"),
            ("high but stable", "growth"),
            ("text only", "growth"),
            ("falling", "growth"),
            ("rise that came back", "lasting"),
        ],
        4,
    ),
)
def test_what_lacks_one_condition_is_not_the_signature(story: str, condition: str) -> None:
    judgement = judged(story)
    assert judgement.signature.status is Answer.NOT_FOUND
    assert judgement.signature.conditions[condition] is False
    assert judgement.signature.reason
    assert judgement.signature.onset_step is None
    assert judgement.signature.lead_steps is None


@pytest.mark.parametrize(
    ("story", "note"),
    [("immaterial", "tail-growth-immaterial"), ("hump", "tail-hump"), ("rise that came back", "tail-hump")],
)
def test_what_is_worth_knowing_is_a_note_and_no_failure(story: str, note: str) -> None:
    verdict = judged(story).verdict
    assert isinstance(verdict, Healthy)
    assert [(one.id, one.severity) for one in verdict.notes] == [(note, Severity.INFO)]


def since_equal(post: Scale, text: Scale) -> Judgement:
    """Judge a run whose policy and reference were equal at its first step."""
    held = evidence_of(sequences_of(Story(post=post, text=text, steps=40, sequences=8)))
    assert held.tails is not None
    assert judge(held, aggregates()).signature.status is not Answer.FOUND
    return judge(replace(held, tails=replace(held.tails, equal_at=1)), aggregates())


def test_what_is_high_since_policy_and_reference_were_equal_grew_from_nothing() -> None:
    judgement = since_equal(steady(1.0), steady(0.02))
    assert judgement.signature.status is Answer.FOUND
    assert "from 0 at step 1, where policy and reference were equal" in judgement.signature.reason
    assert judgement.signature.p_value is not None
    assert judgement.signature.p_value < LIMITS["false_alarms"]
    assert isinstance(judgement.verdict, Broken)
    assert judgement.signature.reason in judgement.verdict.findings[0].claim  # ratios of windows would say nothing grew


@pytest.mark.parametrize(
    ("post", "text", "condition"),
    first_fast(
        [
            (steady(1.0), steady(1.0), "localised"),
            (steady(0.05), steady(0.02), "material"),
            (lambda done: 1.5 if done < 0.6 else 0.4, steady(0.02), "lasting"),
            (steady(0.2), steady(1.0), "localised"),
        ],
        3,
    ),
)
def test_growth_from_nothing_wants_the_other_conditions_too(post: Scale, text: Scale, condition: str) -> None:
    judgement = since_equal(post, text)
    assert judgement.signature.status is Answer.NOT_FOUND
    assert judgement.signature.conditions["growth"] is True
    assert judgement.signature.conditions[condition] is False


def test_little_growth_from_nothing_in_both_slices_is_no_finding() -> None:
    assert isinstance(since_equal(steady(0.2), steady(0.4)).verdict, Healthy)


@pytest.mark.parametrize("story", ["no growth", "high but stable", "more tools, same tails", "falling"])
def test_where_nothing_grew_there_is_nothing_to_note(story: str) -> None:
    verdict = judged(story).verdict
    assert isinstance(verdict, Healthy)
    assert verdict.notes == ()


def test_growth_everywhere_is_a_finding_of_its_own() -> None:
    verdict = judged("alike").verdict
    assert isinstance(verdict, Broken)
    # as bad as the level that it reached, whatever its name
    assert [(one.id, one.severity) for one in verdict.findings] == [("tail-growth-everywhere", Severity.CRITICAL)]


def test_growth_by_the_same_factor_is_growth_everywhere_however_many_nats_more_it_is_after_tools() -> None:
    judgement = judged("both, more nats after tools")
    assert judgement.signature.conditions["localised"] is False
    assert judgement.signature.status is Answer.NOT_FOUND
    assert isinstance(judgement.verdict, Broken)
    assert [one.id for one in judgement.verdict.findings] == ["tail-growth-everywhere"]


@pytest.mark.parametrize(
    ("story", "status"),
    [("alike, text near nothing", Answer.NOT_FOUND), ("more than text near nothing", Answer.FOUND)],
)
def test_a_floor_in_nats_makes_no_ratio_of_growth_by_one_factor(story: str, status: Answer) -> None:
    assert judged(story).signature.status is status


@pytest.mark.parametrize(
    "story", first_fast(["found", "medium", "rare and extreme", "late", "early", "late by nats"], 3)
)
def test_what_is_found_is_found_at_the_stated_rate_by_both_tests(story: str) -> None:
    signature = judged(story).signature
    assert signature.status is Answer.FOUND
    assert signature.p_value is not None
    assert signature.false_alarm_rate is not None
    assert signature.p_value < signature.false_alarm_rate


@pytest.mark.slow
@pytest.mark.parametrize(("first", "last"), [(0.05, 0.95), (0.01, 0.99), (0.95, 0.05)])
def test_tool_use_that_rises_or_falls_is_no_growth_of_a_tail(first: float, last: float) -> None:
    for seed in range(8):
        story = Story(
            sequences=20, head=10, tail=12, post=steady(0.5), text=steady(0.2), likeness=0.5, step_noise=0.1,
            tool_share=lambda done: first + (last - first) * done, seed=seed,
        )  # fmt: skip
        assert judge(evidence_of(sequences_of(story)), aggregates()).signature.status is not Answer.FOUND


def test_growth_that_the_pooled_thirds_do_not_show_is_not_found() -> None:
    held = evidence("found")
    assert held.tails is not None
    post = held.tails.post
    turned = {name: replace(one, windows=one.windows[::-1].copy()) for name, one in post.percentiles.items()}
    judgement = judge(replace(held, tails=replace(held.tails, post=replace(post, percentiles=turned))), aggregates())
    assert judgement.signature.conditions["growth"] is None
    assert judgement.signature.status is not Answer.FOUND


def test_a_rise_in_the_last_twelfth_is_found_with_the_step_it_began_at() -> None:
    judgement = judged("late")
    assert judgement.signature.status is Answer.FOUND
    steps = STORIES["late"].steps
    assert judgement.signature.onset_step == pytest.approx(0.92 * steps, abs=0.05 * steps)
    low, high = judgement.signature.onset_interval or (0, 0)
    assert low <= 56 <= high  # the first step that is more than 0.92 of the way
    assert "before the end" in judgement.signature.reason


def test_growth_that_begins_in_the_first_tenth_is_found() -> None:
    assert judged("early").signature.status is Answer.FOUND


def test_a_late_rise_of_both_slices_is_found_where_nats_say_so() -> None:
    assert judged("late by nats").signature.status is Answer.FOUND


def test_extreme_tails_of_a_few_tokens_are_found_where_percentiles_hardly_move() -> None:
    judgement = judged("rare and extreme")
    assert judgement.signature.status is Answer.FOUND
    assert "tokens beyond" in judgement.signature.reason


def test_growth_that_noise_seldom_gives_is_not_called_none() -> None:
    signature = judged("swelling").signature
    assert signature.status is not Answer.FOUND
    assert "no growth beyond" not in signature.reason
    assert "p = " in signature.reason or "in one of" in signature.reason


def test_a_late_rise_of_both_slices_is_not_the_signature() -> None:
    assert judged("late everywhere").signature.status is not Answer.FOUND


def test_a_rise_too_late_to_test_is_never_healthy() -> None:
    judgement = judged("too late")
    assert judgement.signature.status is not Answer.NOT_FOUND
    assert not isinstance(judgement.verdict, Healthy)


def test_a_high_tail_is_a_finding_although_growth_cannot_be_tested() -> None:
    judgement = judged("high and short")
    assert judgement.signature.status is Answer.CANNOT_SAY
    assert isinstance(judgement.verdict, Broken)
    assert [(one.id, one.severity) for one in judgement.verdict.findings] == [("tails-high", Severity.HIGH)]


@pytest.mark.parametrize(
    ("story", "severity"),
    [("raised and short", Severity.MEDIUM), ("high and wild", Severity.HIGH), ("hump left high", Severity.HIGH)],
)
def test_a_high_tail_is_told_by_its_level_whatever_is_known_of_growth(story: str, severity: Severity) -> None:
    judgement = judged(story)
    assert isinstance(judgement.verdict, Broken)
    found = judgement.verdict.findings[0]
    assert (found.id, found.severity) == ("tails-high", severity)
    assert found.observed is not None
    assert found.limit is not None
    assert found.observed > found.limit


@pytest.mark.parametrize(
    ("story", "why"),
    first_fast(
        [
            ("no tools", "no token follows"),
            ("vanished", "vanished"),
            ("too few tool tokens", "too few post-tool tokens"),
            ("few text tokens", "too few text-only tokens"),
            ("short", "too few"),
            ("copies", "is a copy"),
            ("holes", "no finite log-ratio"),
            ("no head", "no token follows"),
            ("first calls late, no growth", "too few post-tool tokens"),
            ("vanished in the end", "last sixth"),
        ],
        7,
    ),
)
def test_where_the_tails_cannot_be_judged_it_says_why_and_never_healthy(story: str, why: str) -> None:
    judgement = judged(story)
    assert judgement.signature.status is Answer.CANNOT_SAY
    assert why in judgement.signature.reason
    if isinstance(judgement.verdict, Broken):  # that it is high is known
        assert [one.id for one in judgement.verdict.findings] == ["tails-high"]
        return
    assert isinstance(judgement.verdict, NotJudged)
    assert judgement.verdict.reason == judgement.signature.reason
    assert judgement.verdict.enable


@pytest.mark.parametrize("story", ["first calls late", "few calls at all"])
def test_few_calls_at_first_do_not_hide_growth_that_later_blocks_show(story: str) -> None:
    assert judged(story).signature.status is Answer.FOUND


def test_a_few_holes_do_not_hide_the_signature() -> None:
    assert judged("few holes").signature.status is Answer.FOUND
    tails = evidence("few holes").tails
    assert tails is not None
    assert tails.bad_tokens / (tails.tokens + tails.bad_tokens) == pytest.approx(0.1, abs=0.01)


def test_a_run_in_which_every_log_ratio_is_missing_has_no_tails() -> None:
    assert evidence_of(sequences_of(Story(steps=12, nan_share=1.0))).tails is None


def test_a_few_wild_blocks_are_no_growth() -> None:
    held = evidence("no growth")
    assert held.tails is not None
    wild = {}
    for name, one in held.tails.post.percentiles.items():
        times = np.ones(len(one.blocks))
        times[[-12, -7, -2]] = 20.0
        wild[name] = replace(one, blocks=one.blocks * times, drawn=one.drawn * times[:, None])
    tails = replace(held.tails, post=replace(held.tails.post, percentiles=wild))
    judgement = judge(replace(held, tails=tails), aggregates())
    assert judgement.signature.conditions["growth"] is not True


def test_limits_set_by_the_user_are_those_in_force() -> None:
    assert judged("immaterial", material_p99=0.05).signature.status is Answer.FOUND
    assert judged("found", material_p99=50.0).signature.conditions["material"] is False
    assert judged("found", false_alarms=1e-9).signature.conditions["growth"] is not True
    verdict = judged("found", critical_p95=50.0).verdict
    assert isinstance(verdict, Broken)
    assert verdict.findings[0].severity is Severity.HIGH


def test_much_growth_that_noise_might_have_made_is_neither_growth_nor_none() -> None:
    signature = judged("found", false_alarms=1e-9).signature
    assert signature.status is Answer.CANNOT_SAY
    assert signature.conditions["growth"] is None
    assert "noise in this run would give as much in one in" in signature.reason


def test_a_p_value_near_one_is_put_in_words() -> None:
    signature = judged("higher and wilder").signature
    assert signature.status is Answer.CANNOT_SAY
    assert signature.reason.endswith("noise in this run would give as much in most runs")


def test_a_jump_of_the_last_block_that_no_test_can_show_is_reported_with_its_step() -> None:
    judgement = judged("last block")
    assert judgement.signature.status is Answer.CANNOT_SAY
    assert "too late to rule out noise" in judgement.signature.reason
    assert "before the end" in judgement.signature.reason


def test_a_tail_that_touches_the_limit_is_neither_material_nor_immaterial() -> None:
    tails = evidence("medium").tails
    assert tails is not None
    judgement = judged("medium", material_p99=float(tails.post.percentiles["p99"].windows[2]))
    assert judgement.signature.conditions["material"] is None
    assert judgement.signature.status is Answer.CANNOT_SAY


def test_the_lead_is_from_alarm_to_alarm() -> None:
    held = long_run()
    quiet = judge(held, aggregates("quiet")).signature
    assert quiet.lead_is_lower_bound
    assert quiet.lead_steps is not None
    alarm = 120 - quiet.lead_steps
    alarmed = judge(held, aggregates(kl_ref=alarm + 7, grad_norm=alarm + 30)).signature
    assert (alarmed.lead_steps, alarmed.lead_is_lower_bound) == (7, False)
    early = judge(held, aggregates(kl_ref=alarm - 3)).signature
    assert (early.lead_steps, early.lead_is_lower_bound) == (-3, False)
    blind = judge(held, aggregates("cannot_say")).signature
    assert (blind.lead_steps, blind.lead_is_lower_bound, blind.lead_interval) == (None, False, None)


@pytest.mark.parametrize("every", first_fast([1, 2]))
def test_a_lead_counts_no_step_that_tokens_and_curves_do_not_both_cover(every: int) -> None:
    """One metric of six may be logged at every second step: it covers the step after its last value."""
    frame = sequences_of(Story(post=rising(0.05, 6.0), steps=120))
    end, noise = 90, np.random.default_rng(1).normal(size=90)
    curves = {name: series_of(name, noise) for name in ("loss/total", "entropy", "grad_norm", "clip/frac")}
    curves["reward/mean"] = series_of("reward/mean", noise[: end // every], steps=range(1, end + 1, every))
    whole = judge(evidence_of(frame), aggregates("quiet")).signature
    held = evidence_of(frame, metrics=curves)
    quiet = aggregates_of(held, [])
    assert (quiet.until, set(quiet.last_steps.values())) == (end, {end})
    cut = judge(held, quiet).signature
    assert whole.lead_steps is not None
    assert (whole.lead_until, cut.lead_until, cut.lead_is_lower_bound) == (None, end, True)
    assert cut.lead_steps == whole.lead_steps - (120 - end)
    late = judge(held, replace(quiet, last_steps={"entropy": 120 - whole.lead_steps - 1})).signature
    assert (late.lead_steps, late.lead_is_lower_bound) == (None, False)  # they end before the tail's own alarm
    of_tokens = judge(replace(held, run=replace(held.run, last_step=200)), aggregates("quiet")).signature
    assert of_tokens.lead_until == 120  # where the tokens end


def test_the_lead_s_interval_joins_what_is_not_known_at_either_end() -> None:
    held = long_run()
    plain = judge(held, aggregates(kl_ref=100)).signature
    assert plain.lead_interval is not None
    low, high = plain.lead_interval  # an alarm that is known to the step
    wide = judge(held, replace(aggregates(kl_ref=100), alarm_intervals={"kl/ref": (90, 104)})).signature
    assert plain.lead_steps is not None
    assert high is not None
    below, above = plain.lead_steps - low, high - plain.lead_steps
    assert wide.lead_interval == (
        math.floor(plain.lead_steps - math.hypot(below, 10)),
        math.ceil(plain.lead_steps + math.hypot(above, 4)),
    )


def test_a_tail_whose_mean_has_not_alarmed_yet_has_no_lead() -> None:
    signature = judged("found").signature  # p95 passes 2 nats in the last steps alone
    assert signature.limit_passed_step is not None
    assert signature.lead_steps is None


@pytest.mark.slow
def test_every_number_of_a_judgement_is_finite_or_absent() -> None:
    for story in STORIES:
        judgement = judged(story)
        numbers = [judgement.signature.p_value]
        for growth in judgement.signature.growth.values():
            numbers += [growth.p95, growth.p99, *(growth.interval_p95 or ()), *(growth.interval_p99 or ())]
        if isinstance(judgement.verdict, Broken):
            finding = judgement.verdict.findings[0]
            numbers += [finding.observed, finding.limit]
            numbers += [value for value in finding.evidence.values() if isinstance(value, float)]
        assert all(number is None or math.isfinite(number) for number in numbers), story


@pytest.mark.slow
def test_runs_in_which_nothing_happens_do_not_show_the_signature() -> None:
    for seed in range(12):
        made = sequences_of(Story(steps=24, sequences=10, text=steady(0.4), post=steady(0.8), seed=100 + seed))
        judgement = judge(evidence_of(made), aggregates())
        assert judgement.signature.status is Answer.NOT_FOUND, seed


def test_two_judgements_of_one_run_are_equal() -> None:
    first, second = (judge(evidence_of(sequences_of(Story(post=GROWS, steps=24))), aggregates()) for _ in range(2))
    assert first == second


def test_a_few_tool_tokens_a_step_are_enough_where_steps_are_many() -> None:
    """Blocks are made long enough to hold tail tokens instead of refusing to judge."""
    assert judged("thin blocks").signature.status is Answer.FOUND


def test_growth_that_could_not_be_tested_is_not_called_no_growth() -> None:
    held = evidence("found")
    assert held.tails is not None
    post = held.tails.post
    few = {
        name: replace(one, equal=np.where(np.arange(len(one.equal)) % 9 == 0, one.equal, np.nan))
        for name, one in post.percentiles.items()
    }
    p99 = {**few, "p99": replace(few["p99"], equal=post.percentiles["p99"].equal)}  # p95 alone has gaps
    judgement = judge(replace(held, tails=replace(held.tails, post=replace(post, percentiles=p99))), aggregates())
    assert judgement.signature.conditions["growth"] is None
    assert judgement.signature.status is Answer.CANNOT_SAY
    assert "too few blocks of steps" in judgement.signature.reason
