"""One run's tails over another's: exact percentiles, honest intervals under noise that follows itself, one decision."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from benchmarks.gate_calibration import profile_of
from builders import Story, sequences_of, stepped, steady
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.signal import lfilter

from builders import repeatable
from ptt.diagnostics.statistics.curves import SPANS, Curve, curve, curves, raised, redrawn, tail, thirds, window_of
from ptt.diagnostics.statistics.fitted import Mixture
from ptt.diagnostics.statistics.matched import Logged, Matched, NotMatched, matched_by_steps, matched_by_tokens
from ptt.diagnostics.statistics.profile import Profile
from ptt.diagnostics.statistics.versus import MATERIAL, Versus, decided, holm, tails_against, versus
from ptt.diagnostics.statistics.windows import Span, parts
