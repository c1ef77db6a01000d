"""Hang a recorder onto a trainer's methods, and say before training which log-probabilities it will record."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import wraps
from inspect import Parameter, signature
from typing import Any, Final

from ptt.diagnostics.definitions import dataclass
from ptt.recorders.recorder import NO_RATIO, Recorder, say

RECORDED: Final = "_ptt_recorded"  # on a trainer that a recorder hangs on

PAIRS: Final[Mapping[str, tuple[str, str]]] = {
    "policy/ref": ("policy_logp", "ref_logp"),
    "old/ref": ("old_logp", "ref_logp"),
    "policy/rollout": ("policy_logp", "rollout_logp"),
    "old/rollout": ("old_logp", "rollout_logp"),
    "policy/old": ("policy_logp", "old_logp"),
    "prox/ref": ("prox_logp", "ref_logp"),
    "policy/prox": ("policy_logp", "prox_logp"),
    "prox/rollout": ("prox_logp", "rollout_logp"),
}
ANSWERS: Final = {
    "ref_logp": "how far the policy has left the reference",
    "old_logp": "how big each update is",
    "rollout_logp": "whether trainer and engine agree",
    "prox_logp": "how far the proximal policy lies from the one that sampled",
}


def require_methods(target: Any, *names: str, made_for: str) -> None:
    """Refuse an object that lacks the methods to hang onto: before training starts, in one sentence."""
    missing = [name for name in names if not callable(getattr(target, name, None))]
    if missing:
        raise refusal(f"{type(target).__name__} has no {', '.join(missing)}", made_for)


def refusal(why: str, made_for: str) -> TypeError:
    """Return the error that refuses a trainer before training, and names what is supported."""
    return TypeError(
        f"{why}: this recorder was made for {made_for}; with another version or trainer use ptt.recorders.Recorder in "
        "the loop itself (docs/recorder.md)."
    )


Argument = Callable[[tuple[Any, ...], Mapping[str, Any]], Any]


def require_argument(target: Any, method: str, name: str, *, place: int, made_for: str) -> Argument:
    """Return what finds an argument of that name in a call of the method; refuse a method that has none such.

    In one that takes anything (`*args`), as a wrapper does, the argument stands at `place`.
    """
    taken = signature(getattr(target, method)).parameters
    anything = any(one.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD) for one in taken.values())
    if name not in taken and not anything:
        raise refusal(f"{type(target).__name__}.{method} takes ({', '.join(taken)}) and no {name}", made_for)
    at = list(taken).index(name) if name in taken else place

    def found(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        return kwargs[name] if name in kwargs else args[at]

    return found


def claim(trainer: Any, made_for: str) -> None:
    """Refuse a trainer that is recorded already, or in the middle of its training."""
    if getattr(trainer, RECORDED, False):
        raise RuntimeError(
            "record() was called twice for this trainer, which would write steps twice; call it once, before training."
        )
    if getattr(trainer, "is_in_train", False):
        raise RuntimeError(f"record() was called while {made_for} trains; call it once, before training starts.")
    setattr(trainer, RECORDED, True)


def hook(
    target: Any,
    name: str,
    recorder: Recorder,
    *,
    before: Callable[..., None] | None = None,
    after: Callable[..., None] | None = None,
) -> None:
    """Run `before(*args, **kwargs)` and `after(result, *args, **kwargs)` around the method of that name.

    `before` sees arguments that the method changes as they were. Neither is run once recording has stopped.
    """
    method = getattr(target, name)

    @wraps(method)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if before is not None and not recorder.stopped:
            with recorder.guarded():
                before(*args, **kwargs)
        result = method(*args, **kwargs)
        if after is not None and not recorder.stopped:
            with recorder.guarded():
                after(result, *args, **kwargs)
        return result

    setattr(target, name, wrapped)


def around(
    target: Any, name: str, recorder: Recorder, *, enter: Callable[..., None], leave: Callable[[], None]
) -> None:
    """Run `enter(*args, **kwargs)` before the method of that name and `leave()` after it, whatever happens."""
    method = getattr(target, name)

    @wraps(method)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with recorder.guarded():
            enter(*args, **kwargs)
        try:
            return method(*args, **kwargs)
        finally:
            with recorder.guarded():
                leave()

    setattr(target, name, wrapped)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a run's settings give. `unknown` are log-probabilities of which the settings do not tell."""

    recorded: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict)  # log-probability that is not recorded -> what adds it
    unknown: tuple[str, ...] = ()

    @property
    def pairs(self) -> tuple[str, ...]:
        """The pairs whose ratio can be taken."""
        held = {*self.recorded, *self.unknown}
        return tuple(name for name, pair in PAIRS.items() if held.issuperset(pair))

    def sentence(self, folder: object, every: int) -> str:
        """Say what will be recorded, and what adds the rest."""
        adds = [f"{setting} adds {name} ({ANSWERS[name]})" for name, setting in self.settings.items()]
        more = f" {'; '.join(adds)}." if adds else ""
        if not self.recorded and not self.pairs:
            return f"NOTHING will be recorded: with these settings there is no log-probability.{more}"
        steps = "each step" if every == 1 else f"every {every} steps"
        if not self.pairs:
            return f"recording {self.recorded[0]} alone of {steps} to {folder}. {NO_RATIO}.{more}"
        doubt = f" if the run computes {', '.join(self.unknown)}" if self.unknown else ""
        return f"recording {', '.join(self.pairs)} of {steps} to {folder}{doubt}.{more}"


def announce(plan: Plan, recorder: Recorder) -> None:
    """Tell the user at the start, once; a run without a pair of log-probabilities is warned of."""
    recorder.says_unpaired = bool(plan.pairs)
    if not recorder.rank:  # one process speaks for all
        say(plan.sentence(recorder.folder, recorder.every), logging.INFO if plan.pairs else logging.WARNING)


def setting(config: Any, *path: str) -> Any:
    """Follow attributes or keys of nested settings; None where one is missing."""
    for name in path:
        config = config.get(name) if isinstance(config, Mapping) else getattr(config, name, None)
    return config


def agreed(stop: bool, accelerator: Any) -> bool:
    """Return whether any rank wants to stop: every rank asks at the same step, and gets the same answer."""
    if accelerator.num_processes <= 1:
        return stop
    import torch

    wanted = torch.tensor([float(stop)], device=accelerator.device)
    torch.distributed.all_reduce(wanted, op=torch.distributed.ReduceOp.MAX)
    return bool(wanted.item())
