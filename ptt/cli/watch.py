"""`ptt watch`: follow a run while it is written, tell what it shows, and judge it when it ends."""

from __future__ import annotations

import json
import os
import shlex
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import typer

from ptt import api
from ptt.cli.exits import Exit
from ptt.cli.options import DiagnoseOptions, WatchOptions
from ptt.cli.output import artist, contains, output_folder, remote_paths
from ptt.diagnostics.errors import GIVE_A_RUN, PttError, SettingsError, no_room, no_such_path
from ptt.diagnostics.store.folders import exclusive_lock
from ptt.diagnostics.watch.observed import ObservedStep
from ptt.object_stores.client import Url, is_url
from ptt.reports.text.sanitize import safe
from ptt.watching.couriers import Courier, command, webhook
from ptt.watching.kept import FOLDER, KeptWatch
from ptt.watching.listing import Folder, Objects
from ptt.watching.reading import logged_step
from ptt.watching.watcher import Notice, Watcher

NICE: Final = 10  # beside a trainer, which has the processors first
LOOK_SHARE: Final = 4  # beside a trainer, whose steps may be faster, a fifth of a core at most
REPORT_SHARE: Final = 9  # the report is made again after so many times what it took: a tenth of the time at most


@dataclass
class Trainer:
    """What a trainer that started this process says on standard input: what it logged, a line a step, until it ends."""

    closed: bool = False
    wake: threading.Event = field(default_factory=threading.Event)
    _said: list[ObservedStep] = field(default_factory=list)

    def listen(self) -> None:
        """Read in a thread of its own."""
        threading.Thread(target=self._read, name="listens to the trainer", daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin.buffer:
            try:
                said = json.loads(line)
                if said.get("ended"):  # a process that the trainer forked may hold the pipe open
                    break
                self._said.append(logged_step(int(said["step"]), said["metrics"]))
                self.wake.set()
            except (ValueError, KeyError, TypeError, AttributeError):  # a line that the pipe had no room for
                continue
        self.closed = True
        self.wake.set()

    def take(self) -> list[ObservedStep]:
        """Return what was said since this was last asked."""
        taken, self._said = self._said, []
        return taken


@dataclass
class Watch:
    """One call of the command."""

    options: WatchOptions
    out: Path
    watcher: Watcher
    kept: KeptWatch
    couriers: dict[str, tuple[tuple[str, ...], Courier]]  # by name: the kinds of notices it takes
    trainer: Trainer
    said: set[str] = field(default_factory=set)  # troubles of the watch itself, each told once

    def begin(self) -> None:
        """Go on where an earlier watch of this run was ended, and say what it had told."""
        if not self.kept.restore(self.watcher):
            return
        if not self.options.once:
            for notice in self.watcher.alarms:
                self.print(notice)
        for name, one in self.kept.undelivered:
            if name in self.couriers:
                self.couriers[name][1].give(one)

    def look(self) -> None:
        """Look once: what is found is kept before it is told, so that a killed watch loses nothing."""
        closed = self.trainer.closed  # before what was said last is taken
        notices = list(self.watcher.look(closed=closed, given=self.trainer.take()))
        to_tell = [
            (name, {"run": str(self.options.run), **asdict(notice)})
            for notice in notices
            for name, (kinds, _) in self.couriers.items()
            if notice.kind in kinds
        ]
        self.keep(to_tell)
        if why := self.kept.why_not:
            self.say_once(f"{self.out}: {why}; the watch goes on, and would start anew if it were killed.")
        for notice in notices:
            self.print(notice)
        for name, one in to_tell:
            self.couriers[name][1].give(one)

    def keep(self, to_tell: Sequence[tuple[str, dict[str, Any]]] = ()) -> None:
        """Keep what is known, and what is still to be told to others."""
        held = [(name, dict(one)) for name, (_, courier) in self.couriers.items() for one in courier.undelivered]
        self.kept.undelivered = [*held, *to_tell]
        self.kept.keep(self.watcher)

    def print(self, notice: Notice) -> None:
        """Print one line."""
        document = {name: value for name, value in asdict(notice).items() if value not in (None, ())}
        line = json.dumps(document) if self.options.as_json else f"ptt: {safe(notice.line)}"
        typer.echo(line)
        sys.stdout.flush()

    def say_once(self, text: str) -> None:
        """Print a sentence on standard error, once."""
        if text not in self.said:
            self.said.add(text)
            typer.echo(f"ptt: {safe(text)}", err=True)

    def judge(self, *, quiet: bool) -> int:
        """Judge the run as `ptt diagnose` does, and return its exit code."""
        from ptt.cli import diagnose

        given = self.options
        options = DiagnoseOptions(
            runs=[given.run], out=self.out, settings=given.settings, fail_on=given.fail_on, one_run=True
        )
        with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
            spoken = nowhere if quiet else sys.stderr if given.as_json else sys.stdout
            with redirect_stdout(spoken), artist() as drawing:
                return diagnose.run(options, drawing)


def run(options: WatchOptions) -> int:
    """Follow the run until it ends, and return the exit code: 3 after a stop, else as `ptt diagnose`."""
    remote = is_url(options.run)
    trainer = Trainer()
    if not remote and not options.run.exists() and not options.from_trainer:
        raise no_such_path(options.run, GIVE_A_RUN)
    with remote_paths() as paths:
        given = paths.no_output(options.out, "--out") or paths.output(None, of=[options.run])
    out = output_folder(options.run, given)
    if not remote and contains(options.run, out):
        raise SettingsError(f"{out}: lies inside the run, which is never written to; give another --out.")
    if options.from_trainer:
        trainer.listen()
        if hasattr(os, "nice"):
            os.nice(NICE)
    place = Objects(Url.parsed(options.run)) if remote else Folder(options.run)
    watch = Watch(
        options=options,
        out=out,
        watcher=Watcher(place, api.read_settings(options.settings), after=options.after, idle_seconds=options.idle),
        kept=KeptWatch(out, str(options.run)),
        couriers=_couriers(options),
        trainer=trainer,
    )
    on_wait = partial(watch.say_once, f"{out}: another ptt watch writes there; waiting until it ends.")
    with exclusive_lock(out / FOLDER, on_wait=on_wait):
        watch.begin()
        try:
            code = _follow(watch)
        finally:
            for _, courier in watch.couriers.values():
                courier.close()
        watch.keep()  # without what was delivered meanwhile
        return code


def _couriers(options: WatchOptions) -> dict[str, tuple[tuple[str, ...], Courier]]:
    def say(text: str) -> None:
        typer.echo(f"ptt: {safe(text)}", err=True)

    made: dict[str, tuple[tuple[str, ...], Courier]] = {}
    for kind, given in (("warning", options.on_warning), ("stop", options.on_stop)):
        if given is not None:
            words = shlex.split(given)
            if not words:
                raise SettingsError(f"--on-{kind} is empty; give a command.")
            made[f"on-{kind}"] = ((kind,), Courier(f"--on-{kind}", command(words), tries=1, say=say))
    if options.webhook is not None:
        deliver = webhook(options.webhook, str(options.run), names=options.webhook_names)
        made["webhook"] = (("warning", "stop", "end"), Courier("--webhook", deliver, say=say))
    return made


def _follow(watch: Watch) -> int:
    options, watcher = watch.options, watch.watcher
    report_at, reported = 0.0, watcher.course.tested
    while True:
        begun = time.monotonic()
        watch.trainer.wake.clear()
        try:
            watch.look()
        except Exception as error:  # the store does not answer, or a disk is full for a while
            if not isinstance(error, PttError | OSError) and not no_room(error):
                raise  # a bug of ours
            why = (error.strerror if isinstance(error, OSError) else no_room(error)) or error
            watch.say_once(f"a look failed, the next one tries again: {why}.".replace("..", "."))
            watch.kept.restore(watcher)  # what was read of it was not tested
        if watcher.end is not None or options.once:
            break
        if options.report and watcher.course.tested != reported and time.monotonic() >= report_at:
            started, reported = time.monotonic(), watcher.course.tested
            _try_to_judge(watch)
            report_at = time.monotonic() + REPORT_SHARE * (time.monotonic() - started)
        time.sleep(LOOK_SHARE * (time.monotonic() - begun) if options.from_trainer else 0.0)
        watch.trainer.wake.wait(options.every)
    if watcher.end is None and not options.report:
        return Exit.FAILED if watcher.stopped else Exit.JUDGED
    code = watch.judge(quiet=watcher.end is None)
    return Exit.FAILED if watcher.stopped else code


def _try_to_judge(watch: Watch) -> None:
    """Make the report anew; what keeps it from being made is said, and the watch goes on."""
    try:
        watch.judge(quiet=True)
    except (PttError, OSError) as error:
        watch.say_once(f"the report could not be made: {error}")
