"""Run the whole experiment: `python -m examples.reproduction.run [--small | --gallery | --gpu] [--out FOLDER]`.

Trains what is not yet trained, two runs at a time, judges each run, and compares the arms. If you stop it, the same
command resumes it: finished runs are kept, and a run that was stopped in the middle starts again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from examples.reproduction import gallery, gpu
from examples.reproduction.arms import ARMS, FULL_STEPS, SEEDS, SMALL_STEPS
from examples.reproduction.page import Judged, read_judged, write_gallery, write_results
from ptt.stopping import END_SIGNALS

OUT: Final = Path("ptt-report/reproduction")
AT_ONCE: Final = 2
GRACE: Final = 10.0  # seconds from SIGTERM to SIGKILL; on busy cores torch's launcher takes four to end its ranks

Launch = Callable[[Sequence[str], Path], int]  # a command and the file for what it prints; returns the exit code


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run to train."""

    name: str  # of an arm or a gallery case
    seed: int
    steps: int
    on_gpu: bool = False

    @property
    def label(self) -> str:
        """Name its folder."""
        return f"{self.name}-s{self.seed}"


def arm_jobs(steps: int, seeds: Sequence[int] = SEEDS, *, on_gpu: bool = False) -> list[Job]:
    """Return the runs of the experiment, seed by seed, so that a stopped one has some of each arm."""
    return [Job(name=name, seed=seed, steps=steps, on_gpu=on_gpu) for seed in seeds for name in ARMS]


def gallery_jobs(steps: int = gallery.STEPS, seeds: Sequence[int] = gallery.SEEDS) -> list[Job]:
    """Return the runs of the failure gallery."""
    return [Job(name=name, seed=seed, steps=steps) for seed in seeds for name in gallery.GALLERY]


class Launcher:
    """Run commands on a single thread each; end them all once stopped.

    Each has a process group of its own, so Ctrl-C reaches this process alone: a run that it ended by itself would
    pass for one that died, and the next would begin.
    """

    def __init__(self) -> None:
        """Nothing runs yet."""
        self.lock = threading.Lock()
        self.running: set[subprocess.Popen[bytes]] = set()
        self.stopped = False

    def __call__(self, command: Sequence[str], log: Path) -> int:
        """Run a command, append what it prints to the log, and return its code; raise SystemExit once stopped."""
        alone = os.environ | {"OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        with log.open("a") as printed:
            with self.lock:
                self._go_on()
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=printed, stderr=subprocess.STDOUT, env=alone,
                    start_new_session=True,
                )  # fmt: skip
                self.running.add(process)
            code = process.wait()
        with self.lock:
            self.running.discard(process)
            self._go_on()
        return code

    def _go_on(self) -> None:
        if self.stopped:
            raise SystemExit("stopped")

    def stop(self) -> None:
        """Start nothing more and end what runs: politely first, for torch's launcher has children of its own."""
        with self.lock:
            self.stopped, running = True, list(self.running)
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in running:
                if process.poll() is None:
                    with suppress(ProcessLookupError):  # the thread that waits for it has just seen its end
                        os.killpg(process.pid, number)
            until = time.monotonic() + GRACE
            for process in running:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, until - time.monotonic()))


launch: Final = Launcher()


def train_command(job: Job, out: Path, *, resume: bool = False) -> list[str]:
    """Return the command that trains a run: under torch's launcher where it has several ranks."""
    case = gallery.GALLERY.get(job.name)
    ranks = case.setting.ranks if case else 1
    launcher = ["torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}", "-m"] if ranks > 1 else []
    command = [sys.executable, "-m", *launcher, f"examples.reproduction.{'gpu' if job.on_gpu else 'train'}", job.name]
    command += [f"--seed={job.seed}", f"--steps={job.steps}", f"--out={out}"]
    return [*command, "--resume"] if resume else command


def train(job: Job, out: Path, start: Launch = launch) -> None:
    """Train a run from its start unless it is finished; resume only one that is killed on purpose."""
    finished = out / "finished" / f"{job.label}.json"
    if finished.exists() and json.loads(finished.read_text())["steps"] == job.steps:
        return
    case = gallery.GALLERY.get(job.name)
    folder, log = out / "runs" / job.label, out / "logs" / f"{job.label}.log"
    for parent in (folder.parent, log.parent, finished.parent):
        parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    log.unlink(missing_ok=True)
    began = time.monotonic()
    code = start(train_command(job, folder), log)
    if case is not None and case.setting.killed:
        code = start(train_command(job, folder, resume=True), log)
    if code and (case is None or case.link is None):  # a planted fault may end its run
        raise SystemExit(f"{job.label} failed with code {code}; see {log}")
    summary = {"steps": job.steps, "code": code, "seconds": round(time.monotonic() - began, 1)} | printed_summary(log)
    write_json(finished, summary | {"steps": job.steps})
    print(f"{job.label}: {summary['seconds']:.0f} s", flush=True)


def printed_summary(log: Path) -> dict[str, Any]:
    """Return the summary that a finished run prints; one that died prints none."""
    lines = log.read_text().splitlines() if log.exists() else []
    return {"training": json.loads(lines[-1])} if lines and lines[-1].startswith('{"steps"') else {}


def write_json(path: Path, content: object) -> None:
    """Write a file whole or not at all."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(content, indent=1) + "\n")
    part.replace(path)


def judge(job: Job, out: Path, start: Launch = launch) -> Judged:
    """Judge a run with `ptt diagnose`."""
    report, log = out / "reports" / job.label, out / "logs" / f"{job.label}.log"
    command = [sys.executable, "-m", "ptt", "diagnose", str(out / "runs" / job.label), "--out", str(report)]
    if start(command, log):
        raise SystemExit(f"{job.label} could not be judged; see {log}")
    return read_judged(report, job.name, job.seed)


def train_and_judge(jobs: Sequence[Job], out: Path, start: Launch = launch) -> list[Judged]:
    """Do all jobs in their order: two at a time, or one where they share a GPU."""

    def train_then_judge(job: Job) -> Judged:
        train(job, out, start)
        return judge(job, out, start)

    pool = ThreadPoolExecutor(1 if any(job.on_gpu for job in jobs) else AT_ONCE)
    try:
        return [result.result() for result in [pool.submit(train_then_judge, job) for job in jobs]]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def compare_command(jobs: Sequence[Job], out: Path) -> list[str]:
    """Return the command that compares the arms, the seeds of each pooled."""
    command = [sys.executable, "-m", "ptt", "compare", "--baseline", next(iter(ARMS))]
    for name in ARMS:
        runs = [str(out / "reports" / job.label) for job in jobs if job.name == name]
        command += ["--group", f"{name}={','.join(runs)}"]
    return [*command, "--out", str(out / "compare")]


def experiment(out: Path, steps: int, *, on_gpu: bool = False) -> int:
    """Run the arms, compare them and write the page."""
    jobs = arm_jobs(steps, on_gpu=on_gpu)
    judged = train_and_judge(jobs, out)
    code = subprocess.run(compare_command(jobs, out), check=False).returncode
    print(f"\nArms and seeds  {write_results(out, judged)}")
    return code


def failures(out: Path, steps: int) -> int:
    """Run the gallery, and write each verdict beside what was planted."""
    judged = train_and_judge(gallery_jobs(steps), out)
    write_json(out / "truth.json", truths(steps))
    print(write_gallery(out, judged, steps).read_text())
    return 0


def truths(steps: int) -> dict[str, Any]:
    """Return what the gallery plants, so that others can score verdicts on it."""
    return {
        name: {"link": case.link, "findings": case.findings, "since": case.since(steps), "says": case.says}
        for name, case in gallery.GALLERY.items()
    }


def main(arguments: Sequence[str]) -> int:
    """Read the arguments and run what they ask for."""
    parser = argparse.ArgumentParser(description=__doc__)
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--small", action="store_true", help=f"{SMALL_STEPS} steps a run instead of {FULL_STEPS}")
    kind.add_argument("--gallery", action="store_true", help="the failure gallery instead of the experiment")
    kind.add_argument("--gpu", action="store_true", help=f"the experiment with {gpu.MODEL} and vLLM; untried")
    parser.add_argument("--steps", type=int, help="steps a run")
    parser.add_argument("--out", type=Path, help=f"default: {OUT}, with -small, -gallery or -gpu")
    given = parser.parse_args(arguments)
    if given.gpu and (reason := gpu.why_not()) is not None:
        print(f"Skipped: {reason}. `make reproduce-small` runs the experiment on a CPU.")
        return 0
    if given.gallery:
        return failures(given.out or OUT.with_name("reproduction-gallery"), given.steps or gallery.STEPS)
    steps = given.steps or (SMALL_STEPS if given.small or given.gpu else FULL_STEPS)
    suffix = "-small" if given.small else "-gpu" if given.gpu else ""
    return experiment(given.out or OUT.with_name(f"reproduction{suffix}"), steps, on_gpu=given.gpu)


def command(arguments: Sequence[str]) -> int:
    """Do what `main` does; Ctrl-C, SIGTERM or a closed terminal ends it with all that it started."""
    heard: list[int] = []

    def stop(number: int, _frame: object) -> None:
        heard.append(number)
        if len(heard) == 1:  # a second one would leave processes behind
            raise KeyboardInterrupt

    for number in END_SIGNALS:  # Python's own handler of Ctrl-C is no use: Polars' takes its place and wakes no thread
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop)
    try:
        return main(arguments)
    except KeyboardInterrupt:
        launch.stop()
        print("\nStopped. The same command resumes: finished runs are kept.", file=sys.stderr)
        return 128 + heard[0]


if __name__ == "__main__":
    sys.exit(command(sys.argv[1:]))
