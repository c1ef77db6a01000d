"""Versions by PEP 440 and conditions on settings: yes, no, or not recorded."""

from __future__ import annotations

from typing import Any

import pytest

from ptt.diagnostics.advisories.advisory import AffectedPackage, Condition, OtherSetting
from ptt.diagnostics.advisories.conditions import holds, in_range
from ptt.diagnostics.evidence.training_setup import TrainingSetup

RANGE = AffectedPackage(name="Some_Package", introduced="0.4.0", fixed="0.9.0")


@pytest.mark.parametrize(
    ("version", "answer", "sure"),
    [
        ("0.4.0", True, True),
        ("0.8.9.post1", True, True),
        ("0.8.0+cu124", True, True),  # a build of the release
        ("0.9.0", False, True),
        ("0.3.9", False, True),
        ("0.9.0rc1", True, True),  # before 0.9.0, by PEP 440
        ("0.8.0.dev0", True, False),
        ("0.9.0.dev0+gabc", False, False),  # matched by its base
        ("0.5.0+ours", True, False),  # a fork
        ("git+0123456", None, False),
        (None, None, False),
    ],
)
def test_versions(version: str | None, answer: bool | None, sure: bool) -> None:
    packages = {} if version is None else {"some-package": version}
    found = in_range(RANGE, TrainingSetup(packages=packages))
    assert (found.holds, not found.unsure) == (answer, sure)


RECORDED: dict[str, Any] = {
    "on": True, "off": False, "number": 0.1, "word": "colocate", "nothing": None, "text": "…", "batch": 4, "times": 8,
    "groups": 16, "odd": 5, "written": "1e-1",
}  # fmt: skip


@pytest.mark.parametrize(
    ("key", "condition", "answer"),
    [
        ("on", {"is_": True}, True),
        ("on", {"is_": 1}, False),
        ("off", {"is_": False}, True),
        ("number", {"is_": 0.1}, True),
        ("number", {"above": 0.0, "below": 0.5}, True),
        ("number", {"at_least": 0.2}, False),
        ("word", {"is_": ("server", "COLOCATE")}, True),
        ("word", {"not_": "colocate"}, False),
        ("word", {"above": 1}, None),  # no number: nothing can be said
        ("nothing", {"is_": True}, False),
        ("nothing", {"absent": True}, True),
        ("nothing", {"present": True}, False),
        ("nothing", {"is_": True, "default": True}, False),  # written as null: the default does not count
        ("text", {"present": True}, True),
        ("text", {"is_": "word"}, None),  # it was not kept
        ("missing", {"is_": True}, None),
        ("missing", {"is_": True, "default": True}, True),
        ("missing", {"is_": True, "default": False}, False),
        ("missing", {"absent": True}, True),
        ("batch", {"times": ("times",), "not_multiple_of": OtherSetting(setting="groups")}, False),
        ("odd", {"times": ("times",), "not_multiple_of": OtherSetting(setting="groups")}, True),
        ("odd", {"times": ("missing",), "above": 1}, None),
        ("batch", {"below": OtherSetting(setting="times")}, True),
        ("batch", {"at_least": OtherSetting(setting="missing", default=4)}, True),
        ("batch", {"at_least": OtherSetting(setting="missing")}, None),
        ("batch", {"differs_from": OtherSetting(setting="odd")}, True),
    ],
)
def test_settings(key: str, condition: dict[str, Any], answer: bool | None) -> None:
    assert holds(key, Condition(**condition), TrainingSetup(settings=RECORDED)).holds is answer


def test_a_setting_whose_text_is_not_kept_is_told_as_set() -> None:
    assert holds("text", Condition(present=True), TrainingSetup(settings=RECORDED)).value == "set"


@pytest.mark.parametrize("condition", [{"absent": True}, {"is_": False, "default": False}, {"not_": 3}])
def test_a_run_without_any_setting_answers_nothing(condition: dict[str, Any]) -> None:
    assert holds("key", Condition(**condition), TrainingSetup()).holds is None
