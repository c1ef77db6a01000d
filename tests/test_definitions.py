"""The cheap dataclasses and regular expressions behave as those of the standard library."""

import copy
import dataclasses
import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest

from ptt.diagnostics import definitions


def kind(dataclass: Callable[..., Any]) -> Any:
    @dataclass(frozen=True, kw_only=True)
    class Base:
        steps: int
        unit: str = "step"

    @dataclass(frozen=True, kw_only=True)
    class Run(Base):
        """A run."""

        names: list[str] = dataclasses.field(default_factory=list)
        cache: dict[str, int] = dataclasses.field(default_factory=dict, compare=False, repr=False)

        def __post_init__(self) -> None:
            if self.steps < 0:
                raise ValueError("negative")

    return Run


OURS, THEIRS = kind(definitions.dataclass), kind(dataclasses.dataclass)


def test_values_are_shown_compared_and_replaced_alike() -> None:
    given: list[dict[str, Any]] = [{"steps": 1}, {"steps": 1, "names": ["a"]}, {"steps": 2, "unit": "row", "cache": {}}]
    ours, theirs = [OURS(**one) for one in given], [THEIRS(**one) for one in given]
    assert list(map(repr, ours)) == list(map(repr, theirs))
    assert [list(vars(one)) for one in ours] == [list(vars(one)) for one in theirs]
    assert ours == [OURS(**one) for one in given]
    assert ours[0] != ours[1]
    assert ours[0] != theirs[0]
    assert OURS(steps=1, cache={"a": 1}) == OURS(steps=1)
    assert dataclasses.replace(ours[1], unit="row") == OURS(steps=1, unit="row", names=["a"])
    assert dataclasses.asdict(ours[2]) == dataclasses.asdict(theirs[2])
    assert OURS(steps=1).names is not OURS(steps=1).names


def test_only_hashable_values_make_a_hash() -> None:
    assert hash(OURS(steps=1, names=())) == hash(OURS(steps=1, names=())) == hash(THEIRS(steps=1, names=()))
    with pytest.raises(TypeError):
        hash(OURS(steps=1))


@pytest.mark.parametrize("wrong", [{}, {"steps": 1, "step": 2}, {"unit": "row"}])
def test_a_missing_or_unknown_field_is_refused(wrong: dict[str, Any]) -> None:
    for made in (OURS, THEIRS):
        with pytest.raises(TypeError):
            made(**wrong)
    with pytest.raises(ValueError, match="negative"):
        OURS(steps=-1)


def test_nothing_can_be_assigned_or_deleted() -> None:
    run = OURS(steps=1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="steps"):
        run.steps = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="unit"):
        del run.unit


def test_other_options_reach_the_standard_library() -> None:
    @definitions.dataclass
    class Mutable:
        steps: int

    one = Mutable(1)
    one.steps = 2
    assert one == Mutable(2)


def test_a_pattern_is_compiled_when_it_is_used() -> None:
    broken = definitions.compiled("(")
    with pytest.raises(re.error):
        broken.search("")
    word = definitions.compiled(r"step (\d+)", re.IGNORECASE)
    for same in (word, copy.copy(word), pickle.loads(pickle.dumps(word))):
        assert same.findall("Step 1, step 2") == ["1", "2"]
        assert same.pattern == r"step (\d+)"
