"""Which cases of a parametrised test `make test` takes: the first few; `make test-all` takes all of them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest


def first_fast(cases: Collection[Any], count: int = 1) -> list[Any]:
    """Mark all cases but the first as slow: one shows the behaviour, the others that it holds for more.

    A tuple stands for several names, as in `parametrize`; a tuple that is one value needs a `pytest.param` of its own.
    """
    assert not [case for case in cases if isinstance(case, tuple) and len(case) == 1], "is a tuple here one value?"
    plain = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [
        case if place < count else pytest.param(*values, marks=pytest.mark.slow)
        for place, (case, values) in enumerate(zip(cases, plain, strict=True))
    ]
