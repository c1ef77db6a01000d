"""Freed memory is given back at once, unless the user says otherwise."""

import os

import pytest

from ptt.cli.streams import AT_ONCE, SETTING, give_back_at_once


def test_freed_memory_is_given_back_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SETTING, raising=False)
    give_back_at_once()
    assert os.environ[SETTING] == AT_ONCE


def test_what_the_user_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SETTING, "dirty_decay_ms:1000")
    give_back_at_once()
    assert os.environ[SETTING] == "dirty_decay_ms:1000"
