"""The checks of one run, each with its three answers, and what they come to."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta

import numpy as np
import polars as pl
import pytest
from gate_samples import TODAY, check_of, finding, gated, healthy, not_judged, opened, policy
from hypothesis import given
from hypothesis import strategies as st

from ptt.diagnostics.gate.findings import expired_notes
from ptt.diagnostics.gate.judge import judge
from ptt.diagnostics.gate.results import CheckKind, GatedRun, Outcome
from ptt.diagnostics.model import Healthy, Link, Severity, Status

ALLOW = '[[gate.allow]]\nfinding = "reward-fell"\nowner = "ann"\nreason = "new task"\nexpires = 2031-05-01\n'


def bound(rest: str, metric: str = "kl/ref", head: str = "") -> str:
    return f'{head}[[gate.bound]]\nname = "b"\nmetric = "{metric}"\n{rest}\n'


def noisy(level: float, *, count: int = 300, sd: float = 0.01, seed: int = 1) -> list[float | None]:
    return list(level + sd * np.random.default_rng(seed).standard_normal(count))


def other_notes(run: GatedRun) -> tuple[str, ...]:
    """Return the notes but for that on what a pass rests on: so short a run is only partly judged."""
    return tuple(note for note in run.notes if "cannot say whether the run is sound" not in note)


class TestFindings:
    def test_a_run_without_findings_passes_and_says_what_would_have_failed_it(self) -> None:
        run = gated(opened(*healthy()))
        assert run.outcome is Outcome.PASSED
        check = check_of(run, "severity")
        assert check.fails_if == "any finding of severity high or above"
        assert check.data == "1 rule gave an answer, 0 had too little data"

    def test_a_pass_of_a_run_that_is_only_partly_judged_says_what_was_checked(self) -> None:
        made = opened(*healthy())
        run, blind = gated(made), gated(opened(*healthy(), steps=10))
        sound = replace(made.diagnosis.verdict, status=Status.HEALTHY)
        sure = gated(replace(made, diagnosis=replace(made.diagnosis, verdict=sound)))
        assert (run.outcome, run.status) == (Outcome.PASSED, Status.CANNOT_SAY)
        assert run.notes[-1] == (
            "passes, although the diagnosis cannot say whether the run is sound; only this was checked: no finding of "
            "severity high or above (1 rule gave an answer, 0 had too little data); the run has at least 20 logged "
            "steps"
        )
        assert (blind.outcome, blind.notes) == (Outcome.BLIND, ())
        assert (sure.outcome, sure.notes) == (Outcome.PASSED, ())

    def test_each_finding_at_the_limit_is_a_failed_check_of_its_own_worst_first(self) -> None:
        found = [finding("reward-fell"), finding("kl-over-target", Severity.CRITICAL), finding("x", Severity.MEDIUM)]
        run = gated(opened(*healthy(), findings=found))
        assert run.outcome is Outcome.FAILED
        assert [check.id for check in run.checks if check.outcome is Outcome.FAILED] == [
            "severity:kl-over-target", "severity:reward-fell",
        ]  # fmt: skip
        check = check_of(run, "severity:reward-fell")
        assert (check.severity, check.step, check.rule, check.observed, check.limit) == (
            Severity.HIGH, 40, "reward-fell", 2.0, 1.0,
        )  # fmt: skip
        assert check.file == "tokens/step_000040.parquet"
        assert check.next == ("look at it",)
        assert not [one for one in run.checks if one.id == "severity"]  # nothing passes where something failed

    def test_files_that_are_in_order_are_no_answer_on_the_training(self) -> None:
        held = Healthy(id="resumed-segments", link=Link.DATA_VALIDITY, reason="no step was logged twice")
        run = gated(opened(held, not_judged("reward-fell")))
        assert run.outcome is Outcome.BLIND
        assert check_of(run, "severity").claim == "no rule could judge anything about training in this run"
        assert gated(opened(held, *healthy())).outcome is Outcome.PASSED

    def test_a_store_that_was_judged_otherwise_is_told(self) -> None:
        run = opened(*healthy())
        other = replace(run, diagnosis=replace(run.diagnosis, judged_with="Judged by ptt 0.1."), kind="store")
        assert other_notes(gated(other)) == ("Judged by ptt 0.1.",)

    def test_findings_of_one_id_are_told_apart(self) -> None:
        found = [finding(where="post_tool"), finding(where="text_only"), finding(), finding()]
        run = gated(opened(findings=found))
        ids = [check.id for check in run.checks if check.kind is CheckKind.SEVERITY]
        assert sorted(ids) == [
            "severity:reward-fell", "severity:reward-fell#2", "severity:reward-fell/post_tool",
            "severity:reward-fell/text_only",
        ]  # fmt: skip

    def test_severity_never_leaves_findings_alone(self) -> None:
        text = '[gate]\nseverity = "never"\nmin_steps = 30\n'
        assert gated(opened(findings=[finding(severity=Severity.CRITICAL)]), text).outcome is Outcome.PASSED

    def test_a_run_of_which_nothing_could_be_judged_is_blind_even_where_cannot_say_passes(self) -> None:
        run = opened(not_judged("reward-fell"))
        assert gated(run).outcome is Outcome.BLIND
        assert gated(run, '[gate]\ncannot_say = "pass"\n').outcome is Outcome.BLIND
        assert check_of(gated(run), "severity").outcome is Outcome.BLIND

    def test_a_rule_that_crashed_outranks_a_finding(self) -> None:
        run = gated(opened(*healthy(), findings=[finding()], crashed="loss-divergence"))
        assert run.outcome is Outcome.CRASHED
        assert [check.outcome for check in run.checks][:2] == [Outcome.CRASHED, Outcome.FAILED]
        assert "ValueError: no" in check_of(run, "crash:loss-divergence").claim


class TestTailsThatPass:
    def test_a_material_tail_below_the_limit_is_told_where_the_gate_passes(self) -> None:
        run = gated(opened(*healthy(), findings=[finding("tail-growth-everywhere", Severity.MEDIUM, "post_tool")]))
        assert run.outcome is Outcome.PASSED
        (note,) = run.notes
        assert "tail-growth-everywhere (medium, post_tool): tail-growth-everywhere was seen" in note
        assert 'severity = "medium" would fail it' in note

    def test_what_the_verdict_of_a_passing_run_rests_on_is_told(self) -> None:
        run = gated(opened(*healthy(), findings=[finding("reward-fell", Severity.MEDIUM)]))
        assert run.outcome is Outcome.PASSED
        assert [note for note in run.notes if note.startswith("passes, although the diagnosis finds reward-fell (med")]

    @pytest.mark.parametrize(
        ("name", "severity", "text"),
        [
            ("tail-growth-everywhere", Severity.LOW, ""),
            ("reward-fell", Severity.LOW, ""),
            ("tool-tail-growth", Severity.HIGH, ""),  # it fails
            ("tool-tail-growth", Severity.MEDIUM, "[gate]\nmin_steps = 999\n"),  # blind, for another reason
        ],
    )
    def test_nothing_is_told_of_others(self, name: str, severity: Severity, text: str) -> None:
        assert not other_notes(gated(opened(*healthy(), findings=[finding(name, severity)]), text))


def test_rows_that_are_no_steps_are_called_rows() -> None:
    made = opened(*healthy(), findings=[finding()], series={"kl": noisy(0.05)})
    run = replace(made, diagnosis=replace(made.diagnosis, run=replace(made.diagnosis.run, step_unit="row")))
    told = gated(run, bound('statistic = "mean"\nwindow = "late"\nmax = 1.0', head="[gate]\nmin_steps = 400\n"))
    assert told.step_unit == "row"
    texts = " ".join(f"{check.title} {check.claim} {check.data} {check.fails_if}" for check in told.checks)
    assert "at least 400 logged rows" in texts
    assert "rows 201 to 300" in texts
    assert "since row 40" in texts
    assert not re.search(r"\bsteps? \d|\d (logged )?steps?\b", texts)


class TestAllowances:
    def test_an_allowance_passes_its_finding_up_to_its_last_day_and_shows_who_answers(self) -> None:
        run = gated(opened(findings=[finding()]), ALLOW, today=date(2031, 5, 1))
        assert run.outcome is Outcome.PASSED
        check = check_of(run, "severity:reward-fell")
        assert check.outcome is Outcome.PASSED
        assert check.waiver is not None
        assert (check.waiver.owner, check.waiver.expires) == ("ann", "2031-05-01")
        assert check.claim == "reward-fell was seen; allowed until 2031-05-01 by ann: new task"
        assert check_of(run, "severity").title == "no other finding of severity high or above"

    def test_the_day_after_it_fails_and_the_expiry_is_told(self) -> None:
        run = gated(opened(findings=[finding()]), ALLOW, today=date(2031, 5, 2))
        assert run.outcome is Outcome.FAILED
        check = check_of(run, "severity:reward-fell")
        assert "its allowance (ann: new task) expired after 2031-05-01" in check.claim
        assert check.waiver is not None
        assert "renew the allowance" in check.next[0]

    def test_an_expired_one_is_told_once_of_all_runs(self) -> None:
        held = policy(ALLOW)
        assert list(expired_notes(held, today=date(2031, 5, 1))) == []
        (note,) = expired_notes(held, today=date(2031, 5, 2))
        assert note.startswith("the allowance of reward-fell (ann: new task) expired after 2031-05-01; remove it")

    def test_one_that_nothing_needs_is_a_note(self) -> None:
        run = gated(opened(*healthy()), ALLOW)
        assert run.outcome is Outcome.PASSED
        assert other_notes(run) == (
            "the allowance of reward-fell (ann, until 2031-05-01) is not needed here: this run does not show it",
        )
        mild = gated(opened(findings=[finding(severity=Severity.LOW)]), ALLOW)
        assert other_notes(mild)[0].endswith("the finding is low, below the limit")
        assert other_notes(gated(opened(findings=[finding()]), ALLOW)) == ()

    def test_one_of_a_slice_lets_no_other_slice_pass(self) -> None:
        text = ALLOW + 'slice = "text_only"\n'
        both = [finding(where="text_only"), finding(where="post_tool")]
        run = gated(opened(findings=both), text)
        assert run.outcome is Outcome.FAILED
        assert check_of(run, "severity:reward-fell/text_only").outcome is Outcome.PASSED
        assert check_of(run, "severity:reward-fell/post_tool").outcome is Outcome.FAILED

    def test_one_in_force_counts_before_one_that_expired(self) -> None:
        text = ALLOW + ALLOW.replace("2031-05-01", "2031-12-31") + 'slice = "text_only"\n'
        run = gated(opened(findings=[finding(where="text_only")]), text, today=date(2031, 6, 1))
        assert run.outcome is Outcome.PASSED

    @given(st.integers(-400, 400), st.sampled_from(list(Severity)), st.sampled_from([None, "post_tool", "text_only"]))
    def test_a_finding_passes_if_and_only_if_it_is_mild_or_allowed_today(
        self, days: int, severity: Severity, slice_: str | None
    ) -> None:
        text = ALLOW + ('slice = "post_tool"\n' if slice_ else "")
        today = TODAY + timedelta(days=days)
        run = gated(opened(findings=[finding(severity=severity, where=slice_)]), text, today=today)
        mild = not severity.at_least(Severity.HIGH)
        allowed = days <= 0 and slice_ in (None, "post_tool")
        assert run.outcome is (Outcome.PASSED if mild or allowed else Outcome.FAILED)


class TestExtent:
    def test_a_short_run_is_blind_and_not_failed(self) -> None:
        run = gated(opened(*healthy(), steps=19))
        assert run.outcome is Outcome.BLIND
        check = check_of(run, "extent:min_steps")
        assert check.claim == "the run is too short to judge"
        assert (check.observed, check.limit) == (19.0, 20.0)
        assert gated(opened(*healthy(), steps=20)).outcome is Outcome.PASSED

    def test_one_that_shows_a_failure_all_the_same_fails(self) -> None:
        assert gated(opened(findings=[finding()], steps=10)).outcome is Outcome.FAILED

    @pytest.mark.parametrize("key", ["last_step", "min_sequences", "min_model_tokens"])
    def test_each_guard_is_blind_below_what_it_demands(self, key: str) -> None:
        text = f"[gate]\n{key} = 200\n"
        for size, outcome in ((199, Outcome.BLIND), (200, Outcome.PASSED), (None, Outcome.BLIND)):
            steps = size if key == "last_step" else 100
            held = size or 0
            run = opened(*healthy(), steps=steps or 0, sequences=held, model_tokens=held)
            if size is None and key == "last_step":
                run = replace(run, diagnosis=replace(run.diagnosis, run=replace(run.diagnosis.run, step_count=50)))
            assert check_of(gated(run, text), f"extent:{key}").outcome is outcome
            assert gated(run, text).outcome is outcome

    def test_cannot_say_does_not_let_a_short_run_pass(self) -> None:
        assert gated(opened(*healthy(), steps=10), '[gate]\ncannot_say = "pass"\n').outcome is Outcome.BLIND


class TestRequired:
    TEXT = '[gate]\nrequire = ["reward-fell"]\n'

    def test_a_rule_that_was_judged_passes_whatever_it_found_below_the_limit(self) -> None:
        assert gated(opened(*healthy("reward-fell")), self.TEXT).outcome is Outcome.PASSED
        run = gated(opened(findings=[finding(severity=Severity.LOW)]), self.TEXT)
        assert run.outcome is Outcome.PASSED
        assert check_of(run, "required:reward-fell").claim == "it gives one: reward-fell was seen"

    def test_one_that_was_not_is_blind_with_the_reason_and_the_line_that_records_it(self) -> None:
        run = gated(opened(*healthy(), not_judged("reward-fell")), self.TEXT)
        assert run.outcome is Outcome.BLIND
        check = check_of(run, "required:reward-fell")
        assert check.claim == "it cannot say: no reward is logged"
        assert check.next == ("log it",)

    def test_one_that_makes_no_sense_for_this_training_is_blind_and_says_so(self) -> None:
        check = check_of(gated(opened(not_judged("reward-fell", applies=False)), self.TEXT), "required:reward-fell")
        assert check.outcome is Outcome.BLIND
        assert "take the rule out" in check.next[0]

    def test_one_of_which_nothing_is_known_is_blind(self) -> None:
        run = gated(opened(*healthy()), self.TEXT)
        assert check_of(run, "required:reward-fell").outcome is Outcome.BLIND

    def test_one_that_crashed_is_not_judged(self) -> None:
        run = gated(opened(*healthy("reward-fell"), crashed="reward-fell"), self.TEXT)
        assert check_of(run, "required:reward-fell").outcome is Outcome.BLIND
        assert run.outcome is Outcome.CRASHED

    def test_a_finding_of_another_name_is_of_its_rule(self) -> None:
        text = '[gate]\nrequire = ["tool-tail-growth"]\n'
        found = [finding("tail-growth-immaterial", Severity.INFO)]
        assert gated(opened(findings=found), text).outcome is Outcome.PASSED


class TestBounds:
    @pytest.mark.parametrize(
        ("level", "rest", "outcome"),
        [
            (0.2, "max = 0.3", Outcome.PASSED),
            (0.4, "max = 0.3", Outcome.FAILED),
            (0.2, "min = 0.3", Outcome.FAILED),
            (0.4, "min = 0.3\nmax = 0.5", Outcome.PASSED),
            (0.6, "min = 0.3\nmax = 0.5", Outcome.FAILED),
        ],
    )
    def test_a_level_is_held_against_its_bound(self, level: float, rest: str, outcome: Outcome) -> None:
        run = gated(opened(*healthy(), series={"kl": noisy(level)}), bound(rest))
        check = check_of(run, "bound:b")
        assert run.outcome is check.outcome is outcome
        assert check.observed == pytest.approx(level, abs=0.01)
        assert check.low is not None
        assert check.high is not None
        assert check.low < level + 0.01
        assert check.high > level - 0.01
        assert check.high - check.low < 0.02
        assert check.data == "kl, the late third: steps 201 to 300, 100 finite values of 100"
        assert check.file == "log.csv"

    def test_it_says_what_would_have_failed_it(self) -> None:
        check = check_of(gated(opened(series={"kl": noisy(0.2)}), bound("min = 0.1\nmax = 0.3")), "bound:b")
        assert check.title == "mean of kl/ref over the late third lies between 0.1 and 0.3"
        assert check.fails_if == "a value below 0.1 or above 0.3"

    def test_a_bound_within_the_noise_is_decided_by_the_value_and_told(self) -> None:
        values = noisy(0.3, sd=0.05)
        mean = float(np.mean([value for value in values[200:] if value is not None]))
        for limit, outcome in ((mean + 1e-3, Outcome.PASSED), (mean - 1e-3, Outcome.FAILED)):
            check = check_of(gated(opened(*healthy(), series={"kl": values}), bound(f"max = {limit}")), "bound:b")
            assert check.outcome is outcome
            assert check.claim.endswith("by less than its own noise")

    def test_a_value_a_hair_past_its_bound_is_not_rounded_onto_it(self) -> None:
        run = gated(opened(*healthy(), series={"kl": [0.30001] * 300}), bound("max = 0.3"))
        assert run.outcome is Outcome.FAILED
        assert check_of(run, "bound:b").claim == "it lies above its bound, at 0.30001"

    @pytest.mark.parametrize("level", [0.1, 0.25, 0.3, 0.7, 1e-7, 3e5])
    def test_a_value_on_its_bound_passes_however_its_sum_is_rounded(self, level: float) -> None:
        run = opened(*healthy(), series={"kl": [level] * 300})
        assert gated(run, bound(f"max = {level!r}")).outcome is Outcome.PASSED
        assert gated(run, bound(f"min = {level!r}")).outcome is Outcome.PASSED

    @pytest.mark.parametrize(
        ("window", "expected"),
        [("early", 1.0), ("mid", 2.0), ("late", 3.0), ("all", 2.0), ("last 50", 3.0), ("last 200", 2.5)],
    )
    def test_windows_are_thirds_of_what_is_logged_or_its_end(self, window: str, expected: float) -> None:
        values = [1.0] * 100 + [2.0] * 100 + [3.0] * 100
        text = bound(f'max = 100\nwindow = "{window}"')
        assert check_of(gated(opened(series={"kl": values}), text), "bound:b").observed == pytest.approx(
            expected, abs=1e-12
        )

    def test_a_metric_has_all_its_names(self) -> None:
        series = {"kl": noisy(0.2), "env/score": noisy(5.0), "eval_reward": noisy(7.0)}
        for name, level in (("kl/ref", 0.2), ("kl", 0.2), ("logged:kl", 0.2), ("env/score", 5), ("eval_reward", 7)):
            run = gated(opened(series=series), bound("max = 100", metric=name))
            assert check_of(run, "bound:b").observed == pytest.approx(level, abs=0.02), name
        missing = gated(opened(*healthy(), series=series), bound("max = 1", metric="logged:kl/ref"))
        assert check_of(missing, "bound:b").outcome is Outcome.BLIND  # nobody wrote that name

    def test_a_metric_that_is_not_logged_is_blind_and_says_how_to_log_it(self) -> None:
        run = gated(opened(*healthy(), series={"env/scores": noisy(1.0)}), bound("max = 1", metric="env/score"))
        assert run.outcome is Outcome.BLIND
        check = check_of(run, "bound:b")
        assert check.claim == "nothing is logged as env/score; closest here: env/scores"
        assert check.next

    def test_the_line_that_logs_it_is_the_frameworks_own(self) -> None:
        run = opened(*healthy())
        run = replace(run, diagnosis=replace(run.diagnosis, run=replace(run.diagnosis.run, framework="trl")))
        assert "in TRL: " in check_of(gated(run, bound("max = 1")), "bound:b").next[0]

    def test_too_few_values_are_blind_with_how_many_there_were(self) -> None:
        run = gated(opened(*healthy(), series={"kl": noisy(0.2, count=27)}, every=11), bound("max = 1"))
        assert run.outcome is Outcome.BLIND
        assert "9 finite values are logged there; 10 are needed" in check_of(run, "bound:b").claim

    def test_a_percentile_needs_values_beyond_it(self) -> None:
        text = bound("max = 1\nstatistic = 'p95'")
        short = gated(opened(*healthy(), series={"kl": noisy(0.2, count=117)}, steps=117), text)
        assert "39 finite values are logged there; 40 are needed" in check_of(short, "bound:b").claim
        assert gated(opened(*healthy(), series={"kl": noisy(0.2)}), text).outcome is Outcome.PASSED

    @pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
    @pytest.mark.parametrize("where", [slice(297, 300), slice(230, 260), slice(200, 300), slice(0, 300)])
    def test_what_is_no_number_never_passes(self, odd: float, where: slice) -> None:
        values = noisy(0.2)
        values[where] = [odd] * len(values[where])
        for head in ("", "[gate]\ncannot_say = 'pass'\n"):
            run = gated(opened(*healthy(), series={"kl": values}), bound("max = 0.3", head=head))
            assert run.outcome is Outcome.BLIND
            assert "NaN or infinite at" in check_of(run, "bound:b").claim

    def test_a_few_that_are_no_numbers_are_counted_and_told(self) -> None:
        values = noisy(0.2)
        values[220:225] = [math.nan] * 5
        check = check_of(gated(opened(series={"kl": values}), bound("max = 0.3")), "bound:b")
        assert check.outcome is Outcome.PASSED
        assert check.data.endswith("95 finite values of 100")

    def test_nulls_are_rows_that_do_not_log_the_metric(self) -> None:
        values = [value if index % 2 else None for index, value in enumerate(noisy(0.2))]
        check = check_of(gated(opened(series={"kl": values}), bound("max = 0.3")), "bound:b")
        assert check.data.endswith("50 finite values of 50")

    def test_a_metric_that_fell_silent_has_no_late_third(self) -> None:
        run = gated(opened(*healthy(), series={"kl": noisy(0.2, count=200)}), bound("max = 0.3"))
        assert run.outcome is Outcome.BLIND
        assert check_of(run, "bound:b").claim == "kl is logged only up to step 200, but the run reaches step 300"
        early = gated(opened(*healthy(), series={"kl": noisy(0.2, count=200)}), bound("max = 0.3\nwindow = 'early'"))
        assert early.outcome is Outcome.PASSED

    def test_rare_evaluations_reach_the_end_of_their_run(self) -> None:
        run = opened(*healthy(), series={"eval_reward": noisy(0.9, count=30)}, every=10, steps=300)
        assert gated(run, bound("min = 0.5", metric="eval_reward")).outcome is Outcome.PASSED

    def test_cannot_say_lets_a_bound_without_data_pass_and_tells_so(self) -> None:
        run = gated(opened(*healthy()), bound("max = 1", head="[gate]\ncannot_say = 'pass'\n"))
        assert run.outcome is Outcome.PASSED
        assert check_of(run, "bound:b").outcome is Outcome.BLIND  # never shown as passed
        assert check_of(run, "bound:b").excused
        assert other_notes(run) == ("1 check had no data, which the policy accepts (cannot_say = 'pass')",)

    def test_a_log_too_large_for_rows_is_read_from_its_series(self) -> None:
        wide = opened(series={"kl": noisy(0.2), "env/score": noisy(5.0)}).diagnosis.tables["metrics"]
        other = wide.filter(pl.col("name_raw") == "env/score").with_columns(name=pl.col("name_raw"))
        tables = {
            "metrics": wide.clear(),
            "series": opened(series={"kl": noisy(0.2)}).diagnosis.tables["series"],
            "other_series": other.select("name", "name_raw", "step", "value", "flag"),
        }
        for name, level in (("kl/ref", 0.2), ("kl", 0.2), ("logged:kl", 0.2), ("env/score", 5.0)):
            run = gated(opened(*healthy(), tables=tables), bound("max = 10", metric=name))
            assert check_of(run, "bound:b").observed == pytest.approx(level, abs=0.01)
            assert check_of(run, "bound:b").file is None

    def test_findings_alone_hold_no_curve(self) -> None:
        run = opened(*healthy(), tables={"metrics": pl.DataFrame(), "series": pl.DataFrame()}, kind="findings")
        for metric in ("kl/ref", "tail.post_tool.p95", "ess.post_tool"):
            check = check_of(gated(run, bound("max = 0.3", metric=metric)), "bound:b")
            assert check.outcome is Outcome.BLIND
            assert "findings.json" in check.next[0]

    def test_a_run_without_tokens_has_no_tails(self) -> None:
        check = check_of(gated(opened(*healthy()), bound("max = 2", metric="tail.post_tool.p95")), "bound:b")
        assert check.outcome is Outcome.BLIND
        assert check.claim == "the run records no pair of logprobs"
        assert check.next


VALUES = st.lists(st.floats(-1e6, 1e6), min_size=5, max_size=80)


@given(VALUES, st.floats(-100, 100), st.floats(0, 100), st.sampled_from(["mean", "median", "p75", "change", "slope"]))
def test_loosening_a_bound_never_turns_passed_into_failed(
    values: Sequence[float], limit: float, by: float, statistic: str
) -> None:
    run = opened(*healthy(), series={"kl": values}, steps=max(20, len(values)))

    def outcome(high: float) -> Outcome:
        return gated(run, bound(f"max = {high!r}\nwindow = 'all'\nstatistic = '{statistic}'")).outcome

    tight, loose = outcome(limit), outcome(limit + by)
    assert not (tight is Outcome.PASSED and loose is Outcome.FAILED)
    assert (tight is Outcome.BLIND) == (loose is Outcome.BLIND)


FINDINGS = st.builds(
    finding,
    st.sampled_from(["reward-fell", "kl-over-target", "custom:mine"]),
    st.sampled_from(list(Severity)),
    st.sampled_from([None, "post_tool"]),
)


@given(st.lists(FINDINGS, max_size=4), FINDINGS, st.booleans(), st.integers(1, 40))
def test_one_more_finding_never_turns_failed_into_passed(held, more, allowed: bool, steps: int) -> None:  # type: ignore[no-untyped-def]
    text = ALLOW if allowed else ""
    before = gated(opened(findings=held, steps=steps), text)
    after = gated(opened(findings=[*held, more], steps=steps), text)
    if before.outcome is Outcome.FAILED:
        assert after.outcome is Outcome.FAILED
    assert len({check.id for check in after.checks}) == len(after.checks)


def test_the_same_run_gives_the_same_answer() -> None:
    run = opened(*healthy(), findings=[finding()], series={"kl": noisy(0.2)})
    demanded = policy(ALLOW + bound("max = 0.3"))
    assert judge(run, demanded, name="a", today=TODAY) == judge(run, demanded, name="a", today=TODAY)
