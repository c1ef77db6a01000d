"""Whatever stands in a settings file, it is a policy or an error that says where: never anything else."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path

from gate_samples import gated, healthy, opened
from hypothesis import given, settings
from hypothesis import strategies as st

from ptt.diagnostics.errors import SettingsError
from ptt.diagnostics.gate.judge import judge
from ptt.diagnostics.gate.policy import Known, Policy
from ptt.diagnostics.gate.read_policy import KEYS, read_policy

WORDS = st.sampled_from(
    ["high", "never", "pass", "fail", "kl/ref", "kl", "tail.post_tool.p95", "ess.text_only", "logged:x", "mean", "p95",
     "max", "late", "last 50", "last 1", "reward-fell", "*", "", "\x00", "tool-tail-growth", "a" * 600]
)  # fmt: skip
VALUES = st.recursive(
    st.one_of(
        WORDS, st.text(max_size=8), st.booleans(), st.integers(), st.floats(), st.none(),
        st.dates(), st.datetimes(), st.just(10**400),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
BOUNDS = st.fixed_dictionaries(
    {"name": st.sampled_from(["a", "b"]), "metric": WORDS},
    optional={
        "max": st.floats(allow_nan=True) | st.integers(), "min": st.floats(-2, 2), "window": WORDS | VALUES,
        "statistic": WORDS | VALUES, "unit": VALUES,
    },
)  # fmt: skip
ALLOWS = st.fixed_dictionaries(
    {},
    optional={
        "finding": WORDS, "owner": WORDS | VALUES, "reason": WORDS, "expires": st.dates() | VALUES, "slice": WORDS,
    },
)  # fmt: skip
GATES = st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=4), VALUES, max_size=4) | st.fixed_dictionaries(
    {},
    optional={
        "severity": st.sampled_from(["low", "high", "never"]), "bound": st.lists(BOUNDS, max_size=2),
        "allow": st.lists(ALLOWS, max_size=2), "min_steps": st.integers(-1, 50), "baseline": VALUES,
    },
)  # fmt: skip


def understood(gate: object) -> Policy | str:
    try:
        return read_policy({"gate": gate}, Path("ptt.toml"), known=Known())
    except SettingsError as error:
        return str(error)


@settings(max_examples=300, deadline=None)
@given(GATES | VALUES)
def test_it_is_a_policy_or_an_error_with_its_place(gate: object) -> None:
    found = understood(gate)
    if isinstance(found, str):
        assert found.startswith("ptt.toml: ")
        return
    run = judge(opened(*healthy(), series={"kl": [0.1] * 300}), found, name="a", today=date(2031, 5, 1))
    assert run.checks  # no policy demands nothing
    assert all(check.title and check.claim and check.data and check.fails_if for check in run.checks)
    assert found.flat()


def test_a_day_with_a_time_is_no_day() -> None:
    allow = {"finding": "reward-fell", "owner": "a", "reason": "b", "expires": datetime(2031, 1, 1)}
    assert "date without quotes or time" in str(understood({"allow": [allow]}))


def test_every_part_of_a_passed_run_says_what_would_have_failed_it() -> None:
    assert all(check.fails_if for check in gated(opened(*healthy())).checks)
