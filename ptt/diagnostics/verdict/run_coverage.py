"""Which questions a run's files can answer, which not, and the line of configuration that would record the rest."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Final

import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence.algorithm import Algorithm, detect_algorithm, samples_online, samples_texts, trainer_of
from ptt.diagnostics.evidence.gather import read_metrics
from ptt.diagnostics.evidence.placed_rows import place_rows
from ptt.diagnostics.evidence.separate_starts import separate_starts
from ptt.diagnostics.evidence.series import read_series
from ptt.diagnostics.evidence.sources import with_notes
from ptt.diagnostics.log_entries import LogEntry
from ptt.diagnostics.metrics.aliases import canonical, canonical_names
from ptt.diagnostics.metrics.catalogue import document, listed
from ptt.diagnostics.metrics.guessed_names import SHORT, near_names, spelt_words, told_by
from ptt.diagnostics.metrics.name_words import NO_LEVEL
from ptt.diagnostics.metrics.recording import Switch, switches_for
from ptt.diagnostics.parsers import PARSERS, console_log, git_lfs_pointer, plain_tables
from ptt.diagnostics.parsers.io.interface import RunFile
from ptt.diagnostics.parsers.io.metric_rows import UNNUMBERED
from ptt.diagnostics.parsers.io.unrecognised import logged_names as hinted_names
from ptt.diagnostics.schema import ADVANTAGE, COMPONENT, LOGPS
from ptt.diagnostics.scrub.scrub import Scrubber, Sort
from ptt.diagnostics.store.ingest import UNREADABLE, UNRECOGNISED
from ptt.diagnostics.store.manifest import Manifest
from ptt.diagnostics.store.scan import SequenceScan, read_table, scan_readable
from ptt.diagnostics.store.wide_metrics import WideMetrics, read_wide
from ptt.diagnostics.verdict.log_proposals import LogProposal, proposals
from ptt.diagnostics.verdict.logged_names import LoggedName, logged_names, names_nothing
from ptt.diagnostics.verdict.recomputable import Recomputable, recomputable
from ptt.diagnostics.wording import counted

MAX_ENDINGS: Final = 12
MAX_LOOKED_AT: Final = 200  # foreign files whose beginning is searched for names of metrics
MAX_HINTS: Final = 5

MIN_VALUES: Final = 3  # of a metric that is worth a name: fewer are no series
MAX_LISTED: Final = 20  # names in a section: one reads them all
MAX_NEAR: Final = 2
MAX_CHARS: Final = 80  # of a name that is listed
CORE: Final = frozenset(listed("named_first"))
MIN_CORE: Final = 3  # of them known: reward, loss and a third say what most rules ask


@dataclass(frozen=True, kw_only=True)
class FormatCoverage:
    """What one kind of file yielded."""

    kind: str
    describes: str
    files: int
    rows: int
    rows_bad: int
    bytes_lost: int
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class UnreadFiles:
    """Files of one ending that nothing here reads."""

    ending: str
    files: int
    example: str


@dataclass(frozen=True, kw_only=True)
class Pointers:
    """Files whose content was never downloaded."""

    files: int
    example: str
    command: str  # that fetches what would hold something of the run, or all where nothing would


@dataclass(frozen=True, kw_only=True)
class LogHint:
    """A file in no known format that holds numbers under names of metrics."""

    path: str
    names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Question:
    """One question to a run: answered by `by`, or not, for want of `missing`; `switches` would record it."""

    title: str
    answered: bool
    by: str
    missing: tuple[str, ...]
    switches: tuple[Switch, ...]


@dataclass(frozen=True, kw_only=True)
class RunCoverage:
    """What a run's files hold; `ptt sources --json` prints it under these names."""

    name: str
    framework: str | None
    held: tuple[FormatCoverage, ...]
    unread: tuple[UnreadFiles, ...]
    pointers: Pointers | None
    hints: tuple[LogHint, ...]
    proposals: tuple[LogProposal, ...]
    notes: tuple[str, ...]
    names: tuple[LoggedName, ...]
    metric_names: MetricNames
    names_nothing: tuple[str, ...]  # in ptt.toml
    questions: tuple[Question, ...]
    recomputable: tuple[Recomputable, ...]  # with columns that are not recorded
    kind: str | None  # of training; None where nothing tells it
    kind_reason: str  # by what it was told
    unasked: str  # why some questions are not put to this kind of training; empty where all are
    faults: Mapping[str, str] = field(default_factory=dict)  # of ours: parser or step -> the error


NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "How far has the policy left the reference (policy/ref)?": ("policy_logp", "ref_logp", "model_mask"),
    "How off-policy was each update (policy/rollout)?": ("policy_logp", "rollout_logp", "model_mask"),
    "Do trainer and inference engine agree (old/rollout)?": ("old_logp", "rollout_logp", "model_mask"),
    "How large was each update (policy/old)?": ("policy_logp", "old_logp", "model_mask"),
    "Did loss, KL, entropy, reward and gradient norm stay quiet?": ("metrics",),
    "Are tools called, and do they fail?": ("tool_calls",),
    "Which component of the reward moved?": ("rewards",),
    "Does the evaluation follow the training?": ("evals",),
    "How old were the rollouts?": ("policy_version",),
}
STAND_INS: Final[Mapping[tuple[str, ...], tuple[str, ...]]] = {
    ("policy_logp", "ref_logp"): ("old_logp", "prox_logp"),
    ("old_logp", "rollout_logp"): ("prox_logp",),
}
"""Of a pair the first side may be stood in for: drift of pi_old is drift, a step late."""
BESIDE_LOGPS: Final = ("model_mask", "policy_version", "reward", "tool_names", "entropy", "advantage", "group_id")
SAMPLED: Final = ("reward", "advantage", "group_id")  # of samples, where no sequences hold them
MAX_PARTS: Final = 4  # components of the reward named
CURVES: Final = listed("curves")
ANYWHERE: Final = frozenset({"metrics", "evals"})
"""What any training leaves; where nothing is sampled, only questions that need no more than these are asked."""
BY_METRICS: Final[Mapping[str, list[str]]] = document()["stand_ins"]


def run_coverage(
    name: str,
    folder: Path,
    manifest: Manifest,
    root: Path,
    *,
    keys: Collection[str] = (),
    logs: Sequence[LogEntry] = (),
) -> RunCoverage:
    """Return what a store covers, from its tables and the columns of its sequences, not at any token.

    `keys`, `logs`: of `[metrics]` and `[[logs]]` in the settings.
    """
    framework = manifest.facts.get("framework")
    framework = framework if isinstance(framework, str) else None
    wide = read_wide(folder, manifest)
    logged, starts = separate_starts(read_metrics(folder))
    table = with_notes(read_table(folder, "sources"), *place_rows(logged, wide), wide, starts=starts)
    recorded = _recorded(folder, scan_readable(folder, manifest, root, {}), wide)
    texts = bool({"trajectories", "model_mask"} & recorded.keys())
    algorithm = _algorithm(folder, manifest, wide, texts=texts, places=(name, *table["path"]))
    offline = not samples_texts(algorithm)
    asked = {title: needs for title, needs in NEEDS.items() if not offline or set(needs) <= ANYWHERE}
    nothing = "no text" if samples_online(algorithm) else "nothing"
    foreign = _files(table, root, UNRECOGNISED)
    consoles, tables = (_files(table, root, parser.PARSER.name) for parser in (console_log, plain_tables))
    proposed, left_out = proposals(foreign, consoles=consoles, tables=tables)
    metrics = read_table(folder, "metrics")
    names = logged_names(
        metrics,
        wide.spellings(),
        mapped=manifest.metric_names,
        guessed=manifest.guessed_names,
        reasons=manifest.guess_reasons,
    )
    unasked = f"{algorithm.title} training samples {nothing}: {len(NEEDS) - len(asked)} questions do not apply."
    return RunCoverage(
        name=name,
        framework=framework,
        held=_format_coverage(table),
        unread=_count_unrecognised(table),
        pointers=_pointers(table),
        hints=_hints(foreign),
        proposals=proposed,
        notes=(*manifest.notes, *_list_unreadable(table), *(left.note for left in left_out)),
        names=names,
        names_nothing=tuple(names_nothing(keys, logs, names, table["path"].to_list())),
        metric_names=metric_names(
            metrics,
            wide.spellings(),
            manifest.guessed_names,
            framework=framework,
            reasons=manifest.guess_reasons,
        ),
        questions=tuple(_question(title, needs, recorded, framework, algorithm) for title, needs in asked.items()),
        recomputable=recomputable(recorded, _canonical_names(metrics, wide), framework, algorithm),
        kind=algorithm.family and str(algorithm.family),
        kind_reason=algorithm.reason,
        unasked=unasked if offline else "",
        faults=manifest.faults,
    )


def _algorithm(folder: Path, manifest: Manifest, wide: WideMetrics, *, texts: bool, places: Sequence[str]) -> Algorithm:
    """Infer the algorithm from settings and the names of training metrics."""
    metrics = read_metrics(folder)
    rows = metrics.filter(pl.col("split") == "train")
    spelt = wide.spellings()
    names = {*rows["name"].drop_nulls(), *spelt["name"].drop_nulls()}
    logged = {*rows["name_raw"].drop_nulls(), *spelt["name_raw"]}
    series = cache(lambda: read_series(metrics, wide))
    return detect_algorithm(
        manifest.facts,
        names,
        logged=logged,
        texts=texts,
        places=places,
        series=lambda name: series().get(name),
    )


def _recorded(folder: Path, scan: SequenceScan | None, wide: WideMetrics) -> dict[str, str]:
    """Return what the run holds by the names the questions use, each with where it stands."""
    recorded: dict[str, str] = {}
    if scan is not None:
        rows = scan.logp_rows()
        recorded = {side: f"{rows[side]} sequences" for side in LOGPS if rows[side]}
        others = [name for name in BESIDE_LOGPS if name in scan.columns]
        others += ["advantage"] if ADVANTAGE in scan.columns else []
        recorded |= dict.fromkeys(others, f"{scan.rows} sequences")
        parts = sorted(name.removeprefix(COMPONENT) for name in scan.columns if name.startswith(COMPONENT))
        if parts:
            recorded["rewards"] = f"{', '.join(parts[:MAX_PARTS])} of {scan.rows} sequences"
    recorded |= _sampled(folder)
    metrics = read_table(folder, "metrics")
    names = _canonical_names(metrics, wide)
    curves = [name for name in CURVES if name in names]
    if curves:
        recorded["metrics"] = ", ".join(curves)
    for column, stand_ins in BY_METRICS.items():
        logged = [name for name in stand_ins if name in names]
        if logged:
            recorded.setdefault(column, ", ".join(logged))
    if evals := _evals(folder, metrics):
        recorded["evals"] = evals
    return recorded


def _canonical_names(metrics: pl.DataFrame, wide: WideMetrics) -> set[str]:
    return {*metrics["name"].drop_nulls(), *wide.spellings()["name"].drop_nulls()}


def _sampled(folder: Path) -> dict[str, str]:
    """Return what sampled trajectories hold; scores of an evaluation are no components of the training reward."""
    trajectories, calls, rewards = (read_table(folder, name) for name in ("trajectories", "tool_calls", "rewards"))
    recorded = {}
    if trajectories.height:
        recorded["trajectories"] = f"{trajectories.height} rows"
        counts = {name: trajectories[name].count() for name in SAMPLED}
        recorded |= {name: f"{rows} samples" for name, rows in counts.items() if rows}
    if calls.height:
        known = calls["ok"].drop_nulls().len()
        outcomes = f", outcome known for {known}" if known < calls.height else ""
        recorded["tool_calls"] = f"{calls.height} rows{outcomes}"
    evaluated = trajectories.filter(pl.col("split") == "eval").select("trajectory_id")
    trained = rewards.join(evaluated, on="trajectory_id", how="anti")
    if trained.height:
        recorded["rewards"] = f"{trained.height} rows"
    return recorded


def _evals(folder: Path, metrics: pl.DataFrame) -> str:
    """Return what is known of evaluations: figures of harnesses and dumps, and metrics logged beside the training's."""
    figures = read_table(folder, "evals").drop_nulls("value")
    logged = metrics.filter(pl.col("split") == "eval")["name_raw"].n_unique()
    parts = [f"{logged} evaluation metrics"] if logged else []
    if figures.height:
        parts.append(f"{figures.height} figures of {figures['suite'].n_unique()} evaluated suites")
    return " and ".join(parts)


def _question(
    title: str, needs: tuple[str, ...], recorded: Mapping[str, str], framework: str | None, algorithm: Algorithm
) -> Question:
    stand_ins = STAND_INS.get(needs[:2], ())
    if needs[0] not in recorded and (there := [name for name in stand_ins if name in recorded]):
        needs = (there[0], *needs[1:])
    if missing := tuple(name for name in needs if name not in recorded):
        switches = switches_for(framework, missing, trainer=trainer_of(algorithm))
        return Question(title=title, answered=False, by="", missing=missing, switches=switches)
    by = [name if name in LOGPS or name == "model_mask" else recorded[name] for name in needs]
    return Question(title=title, answered=True, by=" and ".join(by[:2]), missing=(), switches=())


def _format_coverage(table: pl.DataFrame) -> tuple[FormatCoverage, ...]:
    of_kind = table.partition_by("kind", as_dict=True)
    return tuple(
        FormatCoverage(
            kind=parser.name,
            describes=parser.describes,
            files=rows.height,
            rows=int(rows["rows_ok"].sum()),
            rows_bad=int(rows["rows_bad"].sum()),
            bytes_lost=int(rows["bytes_lost"].sum()),
            notes=tuple(rows["note"].drop_nulls().unique(maintain_order=True)),
        )
        for parser in PARSERS
        if parser is not git_lfs_pointer.PARSER
        if (rows := of_kind.get((parser.name,))) is not None
    )


def _pointers(table: pl.DataFrame) -> Pointers | None:
    """Return the Git LFS pointers of a run, and the line that fetches their content."""
    paths = table.filter(pl.col("kind") == git_lfs_pointer.PARSER.name)["path"].to_list()
    if not paths:
        return None
    wanted = [path for path in paths if git_lfs_pointer.holds_log(path)] or paths
    return Pointers(files=len(paths), example=wanted[0], command=git_lfs_pointer.command(wanted))


def _files(table: pl.DataFrame, root: Path, kind: str) -> list[RunFile]:
    """Return the files of a kind, as many as are looked at."""
    foreign = table.filter(pl.col("kind") == kind).sort("path").select("path", "bytes").rows()
    return [RunFile(path=root / path, rel=path, size=size) for path, size in foreign[:MAX_LOOKED_AT]]


def _hints(files: Iterable[RunFile]) -> tuple[LogHint, ...]:
    """Return the files that look like metric logs."""
    scrubber = Scrubber()
    named = ((file.rel, tuple(scrubber.text(name, Sort.NAME) for name in hinted_names(file))) for file in files)
    return tuple(LogHint(path=path, names=names) for path, names in named if names)[:MAX_HINTS]


def _list_unreadable(table: pl.DataFrame) -> tuple[str, ...]:
    """List files that cannot be opened, a line for each reason."""
    files = table.filter(pl.col("kind") == UNREADABLE).sort("path")
    parts = files.partition_by("note", maintain_order=True) if files.height else ()
    return tuple(f"{counted(part.height, 'file(s)')}, the first {part['path'][0]}: {part['note'][0]}" for part in parts)


def _count_unrecognised(table: pl.DataFrame) -> tuple[UnreadFiles, ...]:
    """Count foreign files by their ending, most first."""
    paths = table.filter(pl.col("kind") == UNRECOGNISED).sort("path")["path"].to_list()
    by_ending: dict[str, list[str]] = {}
    for path in paths:
        by_ending.setdefault(PurePosixPath(path).suffix or "no ending", []).append(path)
    ordered = sorted(by_ending.items(), key=lambda item: (-len(item[1]), item[0]))
    return tuple(
        UnreadFiles(ending=ending, files=len(paths), example=paths[0]) for ending, paths in ordered[:MAX_ENDINGS]
    )


@dataclass(frozen=True, kw_only=True)
class UnnamedMetric:
    """One name as it was logged; `near` are metrics whose words it holds besides others."""

    raw: str
    near: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class MetricNames:
    """What the section says: names read by their words, and those that nothing is known of."""

    guessed: Mapping[str, str]  # raw -> canonical
    unnamed: tuple[UnnamedMetric, ...]
    left_out: int  # more of the latter
    section: str  # TOML, to be pasted into ptt.toml; empty where all is known


def metric_names(
    metrics: pl.DataFrame,
    wide: pl.DataFrame,
    guessed: Mapping[str, str],
    *,
    framework: str | None,
    reasons: Mapping[str, str] = MappingProxyType({}),
) -> MetricNames:
    """Return the names of a run that its settings may map; `wide`: spellings of metrics that stand in columns.

    What a known framework logs beside the metrics of the table was left out of it on purpose: of it, and of a run
    whose main metrics are known, only names come that may be a metric which the run lacks.
    """
    held = {*metrics["name"].drop_nulls(), *wide["name"].drop_nulls()}
    told = framework is not None or len(held & CORE) >= MIN_CORE
    raws = {*_varying(metrics), *wide.filter(pl.col("name").is_null())["name_raw"]}
    found = []
    for raw in sorted(bare for bare in {raw.removeprefix(UNNUMBERED) for raw in raws} if _is_listed(bare)):
        near = tuple(name for name in near_names(raw) if name not in held)
        if near or not (told or near_names(raw)):
            found.append(UnnamedMetric(raw=raw, near=near[:MAX_NEAR]))
    found.sort(key=lambda metric: (not metric.near, metric.raw))
    bare = {raw.removeprefix(UNNUMBERED): name for raw, name in sorted(guessed.items())}
    why = {raw.removeprefix(UNNUMBERED): reason for raw, reason in reasons.items()}
    unnamed = tuple(found[:MAX_LISTED])
    return MetricNames(
        guessed=bare,
        unnamed=unnamed,
        left_out=len(found) - len(unnamed),
        section="\n".join(_section(bare, unnamed, why)) if unnamed or canonical_names() & {*bare.values()} else "",
    )


def _varying(metrics: pl.DataFrame) -> list[str]:
    """Return the unnamed series of training whose value changes; those that only rise by whole numbers are counters."""
    trained = (pl.col("split") == "train") & pl.col("rank").is_null()
    rows = metrics.filter(trained & pl.col("name").is_null() & pl.col("value").is_not_null())
    value = pl.col("value").sort_by("seq")
    counter = (value.diff().drop_nulls() >= 0).all() & (value == value.round()).all()
    grouped = rows.group_by("name_raw").agg(values=pl.len(), distinct=value.n_unique(), counter=counter)
    chosen = grouped.filter((pl.col("values") >= MIN_VALUES) & (pl.col("distinct") > 1) & ~pl.col("counter"))
    return chosen["name_raw"].to_list()


def _is_listed(raw: str) -> bool:
    """Return whether a name may be one to map; an alias without a name was denied it by its parser, or by the user."""
    words: Collection[str] = spelt_words(raw)
    short = len(raw) == 1 or len(raw) > MAX_CHARS
    return bool(words) and not short and raw.isprintable() and NO_LEVEL.isdisjoint(words) and canonical(raw) is None


def _section(
    guessed: Mapping[str, str], unnamed: tuple[UnnamedMetric, ...], reasons: Mapping[str, str]
) -> Iterator[str]:
    yield "[metrics]"
    for raw, name in guessed.items():
        if name not in canonical_names():  # of an evaluation: told by its words, and by no setting
            continue
        reason = f": {reasons[raw]}" if raw in reasons else ""
        yield f'{_quoted(raw)} = "{name}"  # read by its words{reason}'
    for metric in unnamed:
        if (written := SHORT.get(metric.raw)) is not None and told_by(written) in metric.near:
            yield f'{_quoted(metric.raw)} = "{told_by(written)}"  # if it is short for {written}'
            continue
        if not metric.near:
            yield f'# {_quoted(metric.raw)} = ""  # write the metric that it is'
        for name in metric.near:
            yield f'# {_quoted(metric.raw)} = "{name}"'


def _quoted(raw: str) -> str:
    """Write a name as a TOML key."""
    return json.dumps(raw, ensure_ascii=False)
