"""The options of each command, declared once: a field is an option, its order that of the help."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from ptt.diagnostics.definitions import dataclass


class EngineName(StrEnum):
    """What `--engine` can be: `ptt.executors.Engine`, whose module imports polars."""

    LOCAL = "local"
    RAY = "ray"


class FailOn(StrEnum):
    """What `--fail-on` can be."""

    NEVER = "never"
    CRITICAL = "critical"
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"
    INFO = "info"


class GateReports(StrEnum):
    """What `ptt gate --reports` can be."""

    FAILED = "failed"
    ALL = "all"
    NONE = "none"


def rule_names(incomplete: str) -> Sequence[str]:
    """Return the built-in rules whose names begin so, for the shell to complete."""
    from ptt import api  # a shell that completes nothing must not wait for polars

    return [page.id for page in api.rule_pages() if page.id.startswith(incomplete)]


RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="Folder the trainer wrote to, or one file in it.")]
OneRunOption = Annotated[
    bool, typer.Option("--one-run", help="Read a folder as one run, even if it looks like several.")
]
OutOption = Annotated[
    Path | None, typer.Option("--out", "-o", help="Write to this folder (default: ./ptt-report/<run name>).")
]
KeepTextOption = Annotated[
    bool, typer.Option("--keep-text", help="Keep shortened sample texts in the store (default: none).")
]
SettingsOption = Annotated[
    Path | None, typer.Option("--settings", help="Read settings from this file (default: ./ptt.toml, if present).")
]
BudgetMemoryOption = Annotated[
    int | None,
    typer.Option(
        "--budget-memory", min=1, metavar="MB", help="Limit the memory for reading one file (docs/budget.md)."
    ),
]
BudgetSecondsOption = Annotated[
    float | None,
    typer.Option(
        "--budget-seconds", min=0.001, metavar="S", help="Limit CPU seconds for reading, beyond the allowance for size."
    ),
]
RulesOption = Annotated[
    list[Path] | None, typer.Option("--rules", help="Add custom rules from this file or folder; repeatable.")
]
AdvisoriesOption = Annotated[
    list[Path] | None,
    typer.Option("--advisories", metavar="DIR", help="Add advisories of your own from this folder; repeatable."),
]
FiguresOption = Annotated[
    Path | None, typer.Option("--figures", help="Also write each figure as SVG and PNG to this folder.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
FindingsJsonOption = Annotated[bool, typer.Option("--json", help="Print only findings.json, to standard output.")]
SaltOption = Annotated[
    str | None, typer.Option("--salt", help="Key the hashes with this secret, so that reports share names.")
]
KeepToolNamesOption = Annotated[bool, typer.Option("--keep-tool-names", help="With --redact: keep tool names.")]
FailOnOption = Annotated[
    FailOn | None, typer.Option("--fail-on", help="Exit with code 3 on a finding of this severity or worse.")
]
EngineOption = Annotated[
    EngineName, typer.Option("--engine", help="Work on this machine, or on a Ray cluster (docs/ray.md).")
]
RayAddressOption = Annotated[
    str | None,
    typer.Option(
        "--ray-address",
        metavar="HOST:PORT",
        help="Head node of the Ray cluster, or auto (default: $RAY_ADDRESS, or else a Ray of this machine's own).",
    ),
]


@dataclass(frozen=True, kw_only=True)
class DiagnoseOptions:
    """What `ptt diagnose` takes."""

    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...", help="Folder the trainer wrote to, one file in it, an archive, or a folder of runs."
        ),
    ]
    out: OutOption = None
    figures: FiguresOption = None
    settings: SettingsOption = None
    fail_on: FailOnOption = None
    keep_text: KeepTextOption = False
    rules: RulesOption = None
    advisories: AdvisoriesOption = None
    one_run: OneRunOption = False
    baseline: Annotated[
        Path | None, typer.Option("--baseline", help="Draw the tails of this run or store in the same chart.")
    ] = None
    budget_memory: BudgetMemoryOption = None
    budget_seconds: BudgetSecondsOption = None
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", min=1, max=256, help="Judge this many runs at a time (default: at most 4)."),
    ] = None
    engine: EngineOption = EngineName.LOCAL
    ray_address: RayAddressOption = None
    as_json: Annotated[
        bool, typer.Option("--json", help="Print only findings.json, or index.json for several runs.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """What `ptt compare` takes."""

    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RUN RUN...", help="Runs, archives, stores or findings.json; the baseline first."),
    ] = None
    group: Annotated[
        list[str] | None,
        typer.Option("--group", metavar="NAME=RUN,RUN", help="Pool seeds of one setting; repeatable."),
    ] = None
    baseline: Annotated[str | None, typer.Option("--baseline", help="Compare the others with this run or group.")] = (
        None
    )
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write to this folder (default: ./ptt-report/compare).")
    ] = None
    figures: FiguresOption = None
    settings: SettingsOption = None
    rules: RulesOption = None
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs", min=1, max=64, help="Judge this many runs at a time (default: one per core, at most 4)."
        ),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print only compare.json, to standard output.")] = False


@dataclass(frozen=True, kw_only=True)
class GateOptions:
    """What `ptt gate` takes."""

    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN...", help="Runs, archives, stores or findings.json, or quoted globs of them."),
    ] = None
    settings: Annotated[
        Path | None,
        typer.Option("--settings", help="Read the policy from this file (default: ./ptt.toml, if present)."),
    ] = None
    baseline: Annotated[
        Path | None, typer.Option("--baseline", help="Compare the runs with this baseline instead of the policy's.")
    ] = None
    listed: Annotated[
        Path | None,
        typer.Option("--list", help="Read more runs from this file, one path a line; - for standard input."),
    ] = None
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs", min=1, max=256, help="Judge this many runs at a time (default: one per core, at most 4)."
        ),
    ] = None
    engine: EngineOption = EngineName.LOCAL
    ray_address: RayAddressOption = None
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write to this folder (default: ./ptt-report/gate).")
    ] = None
    explain: Annotated[
        bool, typer.Option("--explain", help="Print every check, its data and what would make it fail.")
    ] = False
    as_of: Annotated[
        str | None,
        typer.Option("--as-of", metavar="DATE", help="Apply allowances as of this day (default: today in UTC)."),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print only gate.json, to standard output.")] = False
    junit: Annotated[Path | None, typer.Option("--junit", help="Also write a JUnit XML file.")] = None
    sarif: Annotated[Path | None, typer.Option("--sarif", help="Also write a SARIF 2.1.0 file.")] = None
    markdown: Annotated[
        Path | None, typer.Option("--markdown", help="Also write Markdown, for a pull request comment.")
    ] = None
    github: Annotated[
        bool, typer.Option("--github", help="Also print GitHub annotations and write the job summary.")
    ] = False
    reports: Annotated[
        GateReports,
        typer.Option("--reports", help="Draw report.html for runs that did not pass, for all, or for none."),
    ] = GateReports.FAILED
    quiet: Annotated[bool, typer.Option("--quiet", help="Hide progress.")] = False
    one_run: OneRunOption = False

    @property
    def extra(self) -> dict[str, Path]:
        """The files beside gate.json, by the name of their format."""
        files = {"junit": self.junit, "sarif": self.sarif, "markdown": self.markdown}
        return {name: path for name, path in files.items() if path}


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """What `ptt report` takes."""

    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE", help="Folder written by `ptt diagnose`, store, findings.json, run or archive."
        ),
    ]
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write the report to this folder (default: ./ptt-report/<name>-report)."),
    ] = None
    redact: Annotated[
        bool, typer.Option("--redact", help="Remove texts and replace names and ids by hashes, for sharing.")
    ] = False
    salt: SaltOption = None
    keep_tool_names: KeepToolNamesOption = False
    postmortem: Annotated[
        bool, typer.Option("--postmortem", help="Also draft a postmortem: postmortem.md and its figures.")
    ] = False
    figures: FiguresOption = None
    settings: SettingsOption = None
    rules: RulesOption = None
    as_json: FindingsJsonOption = False


@dataclass(frozen=True, kw_only=True)
class ShowOptions:
    """What `ptt show` takes."""

    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder, file, archive or self-contained store.")]
    sample: Annotated[
        str | None,
        typer.Argument(
            metavar="[SAMPLE]",
            help="Sample id, STEP:ROW or FILE:ROW; omit it to list the samples behind the findings.",
        ),
    ] = None
    text: Annotated[bool, typer.Option("--text", help="Also print texts and decoded tokens, with secrets masked.")] = (
        False
    )
    every_token: Annotated[
        bool, typer.Option("--all", help="Print all tokens, not only those around the largest |r|.")
    ] = False
    pair: Annotated[
        str | None,
        typer.Option(
            "--pair", metavar="A/B", help="Compute r from this pair, such as old/rollout (default: policy/ref)."
        ),
    ] = None
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder written by `ptt diagnose` (default: ./ptt-report/<run name>)."),
    ] = None
    settings: SettingsOption = None
    one_run: OneRunOption = False
    as_json: JsonOption = False


@dataclass(frozen=True, kw_only=True)
class IngestOptions:
    """What `ptt ingest` takes."""

    run: RunArgument
    out: OutOption = None
    keep_text: KeepTextOption = False
    settings: SettingsOption = None
    one_run: OneRunOption = False
    budget_memory: BudgetMemoryOption = None
    budget_seconds: BudgetSecondsOption = None
    engine: EngineOption = EngineName.LOCAL
    ray_address: RayAddressOption = None


@dataclass(frozen=True, kw_only=True)
class SourcesOptions:
    """What `ptt sources` takes."""

    run: RunArgument
    settings: SettingsOption = None
    sample: Annotated[
        Path | None,
        typer.Option("--sample", help="Write the shapes of unrecognised files to this file, without content."),
    ] = None
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Exit with 2 if ptt.toml names metrics or logs that the run does not hold."),
    ] = False
    one_run: OneRunOption = False
    as_json: JsonOption = False


@dataclass(frozen=True, kw_only=True)
class RulesOptions:
    """What `ptt rules` takes."""

    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Print the page of this rule.", autocompletion=rule_names)
    ] = None
    check: Annotated[
        list[Path] | None,
        typer.Option("--check", help="Check custom rules in this file or folder, without a run."),
    ] = None
    as_json: JsonOption = False


FAIL_ON_ADVISORY: Final = "Exit with code 3 on an advisory of this severity or worse that surely applies."


@dataclass(frozen=True, kw_only=True)
class AdvisoriesOptions:
    """What `ptt advisories` takes."""

    run: Annotated[
        str | None,
        typer.Argument(metavar="[RUN]", help="Say which advisories apply to this run; with the id of one, explain it."),
    ] = None
    out: OutOption = None
    settings: SettingsOption = None
    advisories: AdvisoriesOption = None
    fail_on: Annotated[FailOn, typer.Option("--fail-on", help=FAIL_ON_ADVISORY)] = FailOn.HIGH
    one_run: OneRunOption = False
    as_json: JsonOption = False


@dataclass(frozen=True, kw_only=True)
class CheckConfigOptions:
    """What `ptt check-config` takes."""

    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...", help="Config (YAML, JSON, TOML), launch or training script, list of packages; as one."
        ),
    ]
    framework: Annotated[
        str | None, typer.Option("--framework", help="Say which framework it is for (default: by its settings).")
    ] = None
    package: Annotated[
        list[str] | None,
        typer.Option("--package", metavar="NAME==VERSION", help="Say which version is installed; repeatable."),
    ] = None
    settings: SettingsOption = None
    advisories: AdvisoriesOption = None
    fail_on: Annotated[FailOn, typer.Option("--fail-on", help=FAIL_ON_ADVISORY)] = FailOn.HIGH
    as_json: JsonOption = False


FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="Baseline file.")]
StoresOption = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="Write the runs' stores to this folder (default: below ./ptt-report)."),
]


@dataclass(frozen=True, kw_only=True)
class BaselineUpdateOptions:
    """What `ptt baseline update` takes."""

    file: FileArgument
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Passing runs of one setting; several seeds show the spread.")
    ]
    name: Annotated[str | None, typer.Option("--name", help="Name the baseline (default: the name of the file).")] = (
        None
    )
    even_failed: Annotated[
        bool, typer.Option("--yes-even-failed", help="Accept runs with high findings; the file records which.")
    ] = False
    settings: SettingsOption = None
    out: StoresOption = None


@dataclass(frozen=True, kw_only=True)
class BaselineShowOptions:
    """What `ptt baseline show` takes."""

    file: FileArgument


@dataclass(frozen=True, kw_only=True)
class BaselineDiffOptions:
    """What `ptt baseline diff` takes."""

    old: Annotated[Path, typer.Argument(metavar="OLD", help="Baseline file.")]
    new: Annotated[Path | None, typer.Argument(metavar="[NEW]", help="Another baseline file.")] = None
    against: Annotated[
        list[Path] | None,
        typer.Option("--against", metavar="RUN", help="Compare with this run instead of NEW; repeatable."),
    ] = None
    settings: SettingsOption = None
    out: StoresOption = None


@dataclass(frozen=True, kw_only=True)
class InitOptions:
    """What `ptt init` takes."""

    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[RUN...]", help="Passing runs of one setting, to make the baseline from."),
    ] = None
    baseline: Annotated[
        Path, typer.Option("--baseline", help="Baseline file that the policy names, and that RUN... are written to.")
    ] = Path("baselines/main.toml")
    even_failed: Annotated[
        bool, typer.Option("--yes-even-failed", help="Accept runs with high findings; the baseline records which.")
    ] = False
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")] = False


@dataclass(frozen=True, kw_only=True)
class WatchOptions:
    """What `ptt watch` takes."""

    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="Folder the trainer writes to, one log in it, or s3://bucket/run.")
    ]
    out: OutOption = None
    report: Annotated[
        bool, typer.Option("--report", help="Also keep the report current, for a tenth of the time at most.")
    ] = False
    on_warning: Annotated[
        str | None,
        typer.Option(
            "--on-warning", metavar="CMD", help="Run this command, without a shell, with each warning as JSON on stdin."
        ),
    ] = None
    on_stop: Annotated[
        str | None, typer.Option("--on-stop", metavar="CMD", help="Run this command, in the same way, with a stop.")
    ] = None
    webhook: Annotated[
        str | None,
        typer.Option(
            "--webhook",
            metavar="URL",
            envvar="PTT_WEBHOOK",
            help="Post each warning, each stop and the end to this address as JSON.",
        ),
    ] = None
    webhook_names: Annotated[
        bool, typer.Option("--webhook-names", help="Also post the run's name and the sentence, not only numbers.")
    ] = False
    once: Annotated[bool, typer.Option("--once", help="Look once and end, as for cron.")] = False
    after: Annotated[
        int | None, typer.Option("--after", min=0, metavar="N", help="Test only steps after N, as after a warm-up.")
    ] = None
    every: Annotated[float, typer.Option("--every", min=0.1, metavar="S", help="Look every S seconds.")] = 10.0
    idle: Annotated[
        float | None,
        typer.Option(
            "--idle",
            min=0.1,
            metavar="S",
            help="Take the run as ended after S seconds without a write (default: 60 times the usual time of a step, "
            "at least 600 s).",
        ),
    ] = None
    settings: SettingsOption = None
    fail_on: FailOnOption = None
    as_json: Annotated[bool, typer.Option("--json", help="Print each line as JSON, and the verdict to stderr.")] = False
    from_trainer: Annotated[bool, typer.Option("--from-trainer", hidden=True)] = False
