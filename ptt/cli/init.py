"""`ptt init`: write a policy, the CI workflow and, from passing runs, a baseline, and say what to do next."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from shlex import join, quote
from typing import Final

from ptt import api
from ptt.cli import baseline
from ptt.cli.exits import Exit
from ptt.cli.many_runs import write_errors
from ptt.cli.options import BaselineUpdateOptions, InitOptions
from ptt.cli.output import BASE, contains
from ptt.diagnostics.config import FILE_NAME
from ptt.diagnostics.errors import SettingsError
from ptt.diagnostics.gate.baseline.file import read_baseline
from ptt.reports.gate import github_workflow
from ptt.reports.output import write_text
from ptt.reports.run.terminal import cell, print_blocks
from ptt.reports.text.terminal import open_console

POLICY_FILE: Final = Path(FILE_NAME)
WORKFLOW: Final = Path(".github/workflows/gate.yml")
GITLAB: Final = Path(".gitlab-ci.yml")
IGNORED: Final = Path(".gitignore")
POLICY: Final = """\
# The policy of `ptt gate`: every key is in docs/gate.md, and every other setting of ptt in docs/settings.md.

[gate]
severity = "high"  # a finding of this severity or worse fails the run
{last_step}  # a run that ends earlier is blind: neither passed nor failed
# require = ["tool-tail-growth"]  # a run whose logs cannot answer this is blind, too; `ptt rules` lists all

{baseline}

# [[gate.allow]]  # a finding that is allowed for a while
# finding = "kl-over-target"
# owner = "who answers for it"
# reason = "why it is allowed"
# expires = 2031-12-31
"""


def run(options: InitOptions) -> int:
    """Write what is not there yet, print what was written and what to do next, and return the exit code."""
    runs, file = options.runs or [], options.baseline
    if options.even_failed and not runs:
        raise SettingsError("--yes-even-failed: without use here; give the runs of the baseline, or drop it.")
    wanted = [*([file] if runs else []), POLICY_FILE, *([] if GITLAB.exists() else [WORKFLOW])]
    kept = [] if options.force else [path for path in wanted if path.is_file()]
    written = [path for path in wanted if path not in kept]
    _check(written, runs)
    if file in written:
        code = baseline.update(BaselineUpdateOptions(file=file, runs=runs, even_failed=options.even_failed))
        if code:
            return code
    texts: Mapping[Path, Callable[[], str]] = {POLICY_FILE: partial(_policy, file), WORKFLOW: github_workflow}
    for path, text in texts.items():
        if path in written:
            with write_errors(path):
                write_text(path, text())
    was_there = [*map(str, kept), "(add --force to overwrite)"] if kept else []
    blocks = {"Wrote": map(str, written), "Kept": was_there, "Next": _next(options, written)}
    print_blocks({name: map(cell, lines) for name, lines in blocks.items()}, open_console())
    return Exit.JUDGED


def _check(files: Sequence[Path], runs: Sequence[Path]) -> None:
    """Refuse to write into a run, or over what is no file."""
    for path in files:
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise SettingsError(f"{path}: is no regular file; move it away, or run ptt init elsewhere.")
        for one in runs:
            if contains(one, path):
                raise SettingsError(f"{path}: lies inside {one}, which is never written to; run ptt init elsewhere.")


def _policy(file: Path) -> str:
    """Return the settings file; from a baseline that is there it takes the step that every run reached."""
    section, reached = f"[gate.baseline]\nfile = {json.dumps(file.as_posix())}", 0
    if file.is_file():
        reached = min(one.steps[1] for one in read_baseline(file).runs)
    else:
        section = "\n".join(f"# {line}" for line in section.splitlines())
    return POLICY.format(last_step=f"last_step = {reached}" if reached > 0 else "# last_step = 500", baseline=section)


def _next(options: InitOptions, written: Sequence[Path]) -> Iterator[str]:
    """Yield the steps to take, numbered."""
    file, runs, steps = options.baseline, options.runs or [], []
    if not file.is_file():
        steps.append(
            f"Make a baseline of passing runs of one setting, best three seeds: ptt baseline update {quote(str(file))} "
            f"RUN RUN RUN. Then remove the # before [gate.baseline] and its file in {POLICY_FILE}."
        )
    elif api.gate_policy().baseline is None:
        steps.append(f"Add to {POLICY_FILE} [gate.baseline] and, below it, file = {json.dumps(file.as_posix())}.")
    steps.append(f"Try the policy: ptt gate {quote(str(runs[0])) if runs else 'RUN'} --explain")
    if WORKFLOW in written:
        steps.append(
            f"In {WORKFLOW} set PTT_REPOSITORY and PTT_REF to where ptt is taken from; put runs into runs/, or name "
            "the workflow and the artifact that they come from; the job ends with code 2 until a run is there."
        )
        root = next((path for path in (Path.cwd(), *Path.cwd().parents) if (path / ".git").exists()), Path.cwd())
        if root != Path.cwd():
            steps.append(f"Move {WORKFLOW} to {root}, where alone GitHub reads it, and give its action `settings`.")
    elif GITLAB.exists():
        steps.append(f"Add the job of docs/ci/gitlab-ci.yml to {GITLAB}.")
    if written:
        steps.append(f"Commit what was written: git add {join(map(str, written))}")
    ignored = IGNORED.read_text(encoding="utf-8", errors="replace") if IGNORED.is_file() else ""
    if BASE not in ignored:
        steps.append(f"Keep reports out of the repository: echo {BASE}/ >> {IGNORED}")
    yield from (f"{number}. {step}" for number, step in enumerate(steps, start=1))
