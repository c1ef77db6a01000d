"""Hands sample diagnoses to the tests; by import they are out of reach, as the root has a `reports` too."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ptt.diagnostics.model import Diagnosis

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def samples() -> dict[str, Diagnosis]:
    """Make every sample diagnosis once."""
    spec = importlib.util.spec_from_file_location("ptt_report_samples", HERE / "report_samples.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    makers: dict[str, Callable[[], Diagnosis]] = module.SAMPLES
    return {name: make() for name, make in makers.items()}


@pytest.fixture
def golden_dir() -> Path:
    """Give the folder of recorded outputs."""
    return HERE / "golden"
