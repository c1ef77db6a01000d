"""Tell others what a watch found: a command that the user names, or a webhook. Neither can hold the watch up.

Each has a thread and a short queue of its own. What was not delivered when a watch was killed is sent again by the next
one. A command is started without a shell; a webhook's address is neither printed nor kept.
"""

from __future__ import annotations

import json
import queue
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any, Final

from ptt.diagnostics.errors import SettingsError

MAX_WAITING: Final = 64  # notices of one courier; beyond, the oldest are dropped
STDERR: Final = 2  # the descriptor: standard output is for our own lines
TRIES: Final = 4
FIRST_PAUSE: Final = 1.0  # seconds after the first failure, doubled after each
WEBHOOK_SECONDS: Final = 5.0  # for the other side to answer
COMMAND_SECONDS: Final = 60.0  # for a command to end
CLOSE_SECONDS: Final = 10.0  # for all that is still to be told when the watch ends
WEB: Final = ("http://", "https://")
Deliver = Callable[[Mapping[str, Any]], None]
"""Delivers one notice, or raises an error of the system, of the command or of the other side."""


class Courier:
    """Delivers notices in their order, in a thread of its own."""

    def __init__(self, name: str, deliver: Deliver, *, tries: int = TRIES, say: Callable[[str], object]) -> None:
        """`say` prints a sentence, of what could not be delivered after so many `tries`."""
        self.name = name
        self._deliver, self._say, self._tries = deliver, say, tries
        self._waiting: queue.Queue[Mapping[str, Any] | None] = queue.Queue(MAX_WAITING)
        self._held: list[Mapping[str, Any]] = []  # given and not delivered
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"tells {name}", daemon=True)
        self._thread.start()

    @property
    def undelivered(self) -> list[Mapping[str, Any]]:
        """What is still to be delivered."""
        return list(self._held)

    def give(self, notice: Mapping[str, Any]) -> None:
        """Take a notice at once; the oldest is dropped where too many wait."""
        self._held.append(notice)
        while True:
            try:
                self._waiting.put_nowait(notice)
                return
            except queue.Full:
                with suppress(queue.Empty):
                    self._drop(self._waiting.get_nowait(), "too many are waiting")

    def close(self) -> None:
        """Wait a little for what is still to be delivered."""
        with suppress(queue.Full):
            self._waiting.put_nowait(None)
        self._thread.join(CLOSE_SECONDS)
        self._ends.set()

    def _work(self) -> None:
        while (notice := self._waiting.get()) is not None:
            self._try(notice)

    def _try(self, notice: Mapping[str, Any]) -> None:
        why = ""
        for number in range(self._tries):
            if number and self._ends.wait(FIRST_PAUSE * 2 ** (number - 1)):
                return  # the watch has ended: it stays undelivered
            try:
                self._deliver(notice)
            except (OSError, subprocess.SubprocessError, ValueError) as error:
                why = _why(error)
                continue
            self._held.remove(notice)
            return
        self._drop(notice, why)

    def _drop(self, notice: Mapping[str, Any] | None, why: str) -> None:
        if notice is not None:
            self._held.remove(notice)
            self._say(f"{self.name}: a {notice['kind']} could not be delivered: {why}.")


def _why(error: Exception) -> str:
    """Say what went wrong, without the address that a library's message may hold."""
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answered {error.code}"
    if isinstance(error, TimeoutError) or isinstance(getattr(error, "reason", None), TimeoutError):
        return "the server did not answer in time"
    if isinstance(error, subprocess.TimeoutExpired):
        return f"it did not end within {COMMAND_SECONDS:.3g} s"
    if isinstance(error, subprocess.CalledProcessError):
        return f"it ended with code {error.returncode}"
    reason = getattr(error, "reason", error)
    return getattr(reason, "strerror", None) or type(reason).__name__


def command(words: Sequence[str]) -> Deliver:
    """Return what runs a command with the notice as JSON on its standard input."""

    def deliver(notice: Mapping[str, Any]) -> None:
        subprocess.run(  # noqa: S603  what the user gave, and no shell
            list(words), input=json.dumps(notice).encode(), stdout=STDERR, timeout=COMMAND_SECONDS, check=True
        )

    return deliver


def webhook(url: str, run: str, *, names: bool) -> Deliver:
    """Return what posts the notice to a webhook as Slack and others take it; SettingsError where `url` is no address.

    `names`: also send the run's name and the sentence, in which tools and metrics are named; else a hash and numbers.
    """
    if not url.startswith(WEB):
        raise SettingsError("--webhook: is no http:// or https:// address.")
    called = run if names else f"run-{sha256(run.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"

    def deliver(notice: Mapping[str, Any]) -> None:
        body = json.dumps(message(notice, called, names=names)).encode()
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})  # noqa: S310  checked above
        with urllib.request.urlopen(request, timeout=WEBHOOK_SECONDS) as answer:  # noqa: S310
            answer.read(1)

    return deliver


def message(notice: Mapping[str, Any], called: str, *, names: bool) -> dict[str, Any]:
    """Return what a webhook is sent."""
    kept = ("kind", "rule", "step", "since_step", "value", "limit")
    known = {name: notice[name] for name in kept if notice.get(name) is not None}
    at = "" if notice.get("step") is None else f" at step {notice['step']}"
    since = "" if notice.get("since_step") is None else f", since step {notice['since_step']}"
    said = f": {notice['text']}" if names else f": {notice['rule']}{since}"
    return {"text": f"ptt: {called}: {notice['kind']}{at}{said}", "run": called, **known}
