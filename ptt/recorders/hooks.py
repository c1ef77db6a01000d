"""Hang a recorder onto methods of a framework's object: the framework's own work first, unchanged, then ours."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from ptt.recorders.recorder import Recorder

After = Callable[..., None]
"""Called as after(result, *args, **kwargs) with what the method gave and was given."""


def need(target: Any, *names: str, made_for: str) -> None:
    """Refuse an object that lacks the methods to hang onto: before training starts, in one sentence."""
    missing = [name for name in names if not callable(getattr(target, name, None))]
    if missing:
        raise TypeError(
            f"{type(target).__name__} has no {', '.join(missing)}: this recorder was made for {made_for}; with another "
            "version or trainer use ptt.recorders.Recorder in the loop itself (docs/recorder.md)."
        )


def before(target: Any, name: str, recorder: Recorder, act: Callable[..., None]) -> None:
    """Have `act(*args, **kwargs)` run before the method of that name, for arguments the method changes."""
    method = getattr(target, name)

    @wraps(method)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with recorder.guarded():
            act(*args, **kwargs)
        return method(*args, **kwargs)

    setattr(target, name, wrapped)


def after(target: Any, name: str, recorder: Recorder, act: After) -> None:
    """Have `act(result, *args, **kwargs)` run after the method of that name."""
    method = getattr(target, name)

    @wraps(method)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        result = method(*args, **kwargs)
        with recorder.guarded():
            act(result, *args, **kwargs)
        return result

    setattr(target, name, wrapped)


def around(target: Any, name: str, enter: Callable[..., None], leave: Callable[[], None]) -> None:
    """Have `enter(*args, **kwargs)` run before the method of that name and `leave()` after it, whatever happens."""
    method = getattr(target, name)

    @wraps(method)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        enter(*args, **kwargs)
        try:
            return method(*args, **kwargs)
        finally:
            leave()

    setattr(target, name, wrapped)
