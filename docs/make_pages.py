"""Make the pages that come from code; `--check` tells whether they are current."""

from __future__ import annotations

import ast
import inspect
import json
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import chain
from pathlib import Path

from describe_tables import tables
from draw_rooms import draw
from make_ledger_page import page as ledger

from ptt.diagnostics import schema
from ptt.diagnostics.advisories.advisory import Advisory, shipped
from ptt.diagnostics.budget_limits import DEFAULT_LIMITS, ROWS_PER_MB, SECONDS_PER_FILE, SECONDS_PER_MB
from ptt.diagnostics.config import MAX_DEPTH, Settings
from ptt.diagnostics.evidence.algorithm import Family
from ptt.diagnostics.gate.policy import Policy
from ptt.diagnostics.metrics.catalogue import document, metrics
from ptt.diagnostics.metrics.identities import Identity, identities
from ptt.diagnostics.metrics.recording import framework_name
from ptt.diagnostics.parsers import PARSERS, InPlace, Rows
from ptt.diagnostics.parsers.io.lines import TOTAL_BYTES
from ptt.diagnostics.parsers.io.run_files import MAX_FILES
from ptt.diagnostics.rules import LIMITS, RULES, tool_tail_growth
from ptt.diagnostics.schema import LOGPS, TABLES
from ptt.diagnostics.scrub.scrub import DOUBTFUL, certain_shapes
from ptt.diagnostics.scrub.shapes import shapes, source, words
from ptt.diagnostics.store.archives import ALWAYS_MEMBERS, PACKED_MEMBER
from ptt.diagnostics.verdict.causes import explains
from ptt.reports.gate import github_workflow
from ptt.reports.run.advisories import KINDS, advisory_parts
from ptt.reports.text import names

HERE = Path(__file__).parent
TESTS = HERE.parent / "tests"
HEAD = "<!-- made from code by docs/make_pages.py; edit the code -->\n\n"


def rules() -> str:
    """One section a rule: its docstring and its limits."""
    modules = [(tool_tail_growth.ID, tool_tail_growth, "policy_update")]
    modules += [(rule.id, inspect.getmodule(rule.check), str(rule.link)) for rule in RULES]
    parts = ["# Rules\n\nYou can set each limit in `ptt.toml` under `[limits.<rule>]`.\n"]
    for name, module, link in modules:
        limits = "\n".join(f"| `{key}` | {value:.4g} |" for key, value in LIMITS[name].items())
        table = f"| limit | default |\n|---|---|\n{limits}\n"
        parts.append(f"## {name}\n\nLink: {link}.\n\n{inspect.getdoc(module)}\n\n{table}")
    return "\n".join(parts)


FORMATS = """# Formats

The first parser that recognises a file, by its name and first bytes, reads it. Of a torn or damaged file only the
damaged part is lost; Sources counts it.

No time depends on where it is read: one without an offset counts as UTC. Samples of machines find their steps by time.
Where the log's times name no offset, and do not fit those of the samples as UTC, they are joined at the one offset of
whole, half or quarter hours that fits; one that other stamps of the run name comes first. Sources says which. At no
offset, or at several, they are not joined. Where summer time set a local clock back or forward, its times are
corrected.

The column "yields" is measured on the sample that the tests use. A *real*
sample was made by the writer itself; a *source* sample was built field by field from the code named.

If none of these reads your file, `ptt sources RUN --sample FILE` writes its shape to attach to an issue: ending, size
and first lines, with each digit replaced by 9, each uncommon word by x, and texts removed. It contains no names, paths
or values; read it before you share it all the same.

| parser | files | yields | checked against |
|---|---|---|---|
"""


def formats() -> str:
    """One line a parser: whose files, what its samples yield, and what the reader was held against."""
    yields = {"own_logs": "metrics", **_yields()}  # which no sample is: it reads what ptt.toml says
    return FORMATS + "".join(
        f"| `{parser.name}` | {parser.describes} | {yields[parser.name]} | {parser.held_against} |\n"
        for parser in PARSERS
    )


def _yields() -> dict[str, str]:
    """Read every sample and say what came of it: tables, and of sequences the log-probabilities."""
    sys.path.insert(0, str(TESTS))
    from parser_samples import SAMPLES, make_samples, run_file

    found: dict[str, dict[str, set[str]]] = {parser.name: {} for parser in PARSERS}
    with tempfile.TemporaryDirectory() as folder:
        parsers = {parser.name: parser for parser in PARSERS}
        for rel, path in make_samples(Path(folder)).items():
            tables = found[SAMPLES[rel][0]]
            for piece in parsers[SAMPLES[rel][0]].read(run_file(path, rel)):
                match piece:
                    case Rows(table=table, frame=frame):
                        tables.setdefault(table, set()).update(frame.columns)
                    case InPlace(columns=columns):
                        tables.setdefault("sequences", set()).update(columns)
                    case _:
                        pass
    return {name: _told(tables) for name, tables in found.items()}


def _told(tables: Mapping[str, set[str]]) -> str:
    told = []
    for table in TABLES:
        if table in tables:
            logps = [name for name in LOGPS if name in tables[table]]
            told.append(f"{table} ({', '.join(logps)})" if logps else table)
    return ", ".join(told)


SETTINGS = r"""# Settings

`ptt` reads `ptt.toml` in the current folder, or `--settings FILE`. An unknown key is an error. These are the defaults:

```toml
[diagnose]
fail_on = "never"  # or critical, high, medium, low, info
keep_text = false  # true: keep shortened sample texts in the store; the report shows those at the largest |r|
required_tools = []  # tools that the task needs: `underused-tools` reports one that is never called
rules = []  # files and folders of custom rules, relative to this file; docs/custom-rules.md
advisories = []  # folders of advisories of your own, relative to this file; docs/advisories.md

[slices]
min_observation = {shortest}  # tokens; a shorter gap between model tokens is a template, not tool output

[budget]  # what reading a run may cost: docs/budget.md
{budget}

[metrics]  # what logged names mean, where no known framework logs them: see below
# "my/avg_rew" = "reward/mean"
# "avg_reward" = ""  # not a metric of the table, whatever its words suggest
# "my/figure" = {{ better = "higher" }}  # or "lower": no metric of the table, but which way it gets better is known

# [[logs]]  # how to read text in a format of your own: see below
# files = "train_*.log"
# line = 'step (?P<step>\d+): (?P<loss>\S+) / (?P<reward>\S+)'

[run]  # counts before all that the files say
# algorithm = "grpo"
# framework = "trl"
# kind = "online"  # or {kinds}
# total_steps = 1000  # steps that the run is to take

[gate]  # what `ptt gate` requires of a run: docs/gate.md has all keys
severity = "{severity}"
cannot_say = "fail"
min_steps = {min_steps}
{limits}
```

## Names of metrics

`ptt` knows what each framework calls its metrics. A name that no framework logs, such as `avg_rew` or `gradNorm`, is
recognised by its words if they name exactly one metric, no word is left over, the values fit, and nothing else in the
run is that metric. `score`, `H` or `completion_tokens` count only where nothing plainer is logged. A name of an
evaluation may hold a data set's (`eval_gsm8k_loss`). Shares in per cent are divided by 100, and an `entropy_loss`
below 0 is minus the entropy. The note on its file says what was recognised, and why. `format_reward`, `reward_max` and
`kl_coef` are not recognised: they mean something else. `[metrics]` says what other names mean, and corrects a wrong
guess; `""` or `"ignore"` takes a name out of the table. Write names as `ptt sources RUN` lists them; it prints the
section ready to paste. A mapped name replaces other names of that metric in its file. A key that the run does not log
is reported there with the name most like it; `ptt sources RUN --strict` then exits with 2. The metrics are:

| name | what it is |
|---|---|
{metrics}

## Logs in a format of your own

Text that no parser reads, `ptt` reads by `[[logs]]`. Start with `ptt sources RUN`: for a log whose lines are the same
but for their numbers it prints entries to paste, at most six lines each: one for training, one for evaluations that
count for themselves. It names values by the words beside them, a header, numbered columns or a legend, writes short
names out (`gn` becomes `grad_norm`), and lists the rest with their first and last value. For a log that is read as a
console's it does so where metrics on its lines are left out, and says which and on how many lines. An entry has

| key | what it says | default |
|---|---|---|
| `files` | the name of the files, or their path in the run, with `*`, `?` and `[...]` | required |
| `line` | a regular expression with a named group for each value; it may match anywhere in a line | |
| `columns` | `{{ step = 1, reward = 3 }}`: names, and groups of `line` or, without it, cells | the named groups |
| `separator` | what separates cells, such as `","` | white space |
| `step` | the name of the value that counts | `"step"` |
| `epoch_steps` | how many steps an epoch has, where the step starts again in each | |
| `epoch` | the name of the value that counts epochs, with `epoch_steps` | `"epoch"` |
| `carry` | `true`: a line without the step, or the epoch, belongs to the last one above it | `false` |
| `decimal` | `","` for 0,25 and 1.000,5 | `"."` |

```toml
[[logs]]  # [2026-03-04 09:12:57] [rank0] 12 0.7019 0.158 7.7e-04
files = "train.log"
line = '\[rank0\] (?P<step>\d+) (?P<loss>\S+) (?P<reward>\S+) (?P<kl>\S+)$'

[[logs]]  # 12<TAB>0.7019<TAB>0.158
files = "*.tsv"
columns = {{ step = 1, "loss/policy" = 2, "reward/mean" = 3 }}

[[logs]]  # E2 B 17/300 rew .231: step 317
files = "epochs.log"
line = '^E(?P<epoch>\d+) B (?P<step>\d+)/\d+ rew (?P<reward>\S+)'
epoch_steps = 300

[[logs]]  # a line `== it 12 ==`, and below it `reward 0.31` and `kl 0.002`
files = "blocks.log"
line = '^== it (?P<step>\d+)|^reward (?P<reward>\S+)|^kl (?P<kl>\S+)'
carry = true
```

Names are read like any logged name, and may be names of the table above. Of a value the number that it begins with
counts, behind brackets and quotes; `%` divides by 100, `k` and `M` multiply by a thousand and a million, `mnat` and `u`
(or `µ`) are a thousandth and a millionth, other units are dropped, and `-`, `null` and `n/a` are no value. Lines whose
step is no whole number do not match. Without a `step` on the line, rows are numbered from 1. Epochs count from 0 or
from 1, as the first one in the file does. Several entries may read one file, each line by each. An entry comes before
all parsers. Lines that match none are read as a console's where the file is one: an evaluation between them, at the
step of the line above, exceptions, and how the run ended.

The note on the file says how many lines match no entry, and quotes the first. Lines of more than 4,096 characters are
skipped and counted. Expressions are those of [Rust's regex crate](https://docs.rs/regex/latest/regex/#syntax), without
look-around and back references: they take time in proportion to the line, whatever it holds. Repetitions written out,
as in `(?:a{{0,50}}){{0,50}}`, may come to 1,000 characters, and what one file takes is limited by `[budget]`.

## Kind of training

Which questions are asked depends on the kind of training: nobody asks SFT for a reward. It is told by the run's
settings, by names that one trainer alone logs, by what is logged (a loss and no reward; a KL to a teacher; episodes and
nothing of texts), and last by the words of names, files and folders. `ptt sources RUN` says by which. `[run]` overrules
it: `kind` is one of

| kind | what it is |
|---|---|
{kind_table}
"""


def settings() -> str:
    """All keys of ptt.toml with their defaults."""
    limits = "\n".join(
        f"\n[limits.{rule}]\n" + "\n".join(f"{key} = {value:.4g}" for key, value in values.items())
        for rule, values in LIMITS.items()
    )
    gate = Policy()
    return SETTINGS.format(
        shortest=Settings().min_observation,
        budget="\n".join(f"{key} = {value}" for key, value in asdict(DEFAULT_LIMITS).items()),
        severity=gate.severity,
        min_steps=gate.extent.min_steps,
        limits=limits,
        kinds=", ".join(str(kind) for kind in Family if kind is not Family.ONLINE),
        kind_table="\n".join(f"| `{kind}` | {names.kind_name(kind)} |" for kind in Family),
        metrics="\n".join(f"| `{name}` | {metric.label} |" for name, metric in metrics().items()),
    )


BUDGET = """# What reading a run may cost

A file of a few kilobytes can unpack to gigabytes, or take hours to search. So each run is read under a budget. Readers
ask the budget before they allocate memory, and check its clock as they go. Beyond a limit

- the part read so far is kept and judged;
- the rest of that file is lost: Sources counts its bytes or rows, and the note on the file names the limit;
- the other files are read as usual, as long as there is time;
- a verdict that the loss may have changed says so, as for any damaged file, and `ptt gate` takes it into account;
- a run that ran out of time is read again at the next call, when it may get further.

| key | default | what it bounds |
|---|---|---|
{limits}

The limits on CPU time grow with the run: each MB on disk adds {per_mb:g} s for its file and for the run, and each file
adds {per_file:g} s for the run. Each MB also adds {per_mb_rows:,} to the rows of a run, as many as a dense table has.
The limit on rows bounds the memory for judging, however many files share the rows: about 350 bytes per row, so up to
450 MB for a small run, and up to 2 GB for 45 MB of tables in which one value repeats.

An archive is unpacked into up to {members:,} files, plus one for each {member} bytes of it: files of a log take more
than that when packed. Further files stay packed, and the report says so; unpack the archive yourself to have them
read.

Raise a limit in `ptt.toml`:

```toml
[budget]
memory_mb = {more_memory}
file_seconds = {more_seconds:g}
```

or for one call of `ptt diagnose` or `ptt ingest`:
`ptt diagnose RUN --budget-memory {more_memory} --budget-seconds {more_run_seconds:g}`. The seconds then apply to
the run and to each file. A store made under other limits is made again.

Some limits are fixed: {max_files:,} files in a run, {max_text} GB of text unpacked from one file, and
{max_depth} levels of JSON.
"""
BOUNDS = {
    "memory_mb": "MB that one reader may have decoded at a time: a row, a page of a table, a member of an archive",
    "seconds": "CPU seconds for reading a run",
    "file_seconds": "CPU seconds for reading one file",
    "rows": "rows in the tables of a run",
    "names": "distinct metrics in a run: values of further metrics are lost",
    "depth": "levels of objects and lists in JSON: a row nested deeper is lost",
    "steps": "steps with recorded tokens",
}


def budget() -> str:
    """What each limit of the budget bounds, with its default."""
    limits = asdict(DEFAULT_LIMITS)
    return BUDGET.format(
        limits="\n".join(f"| `{key}` | {value} | {BOUNDS[key]} |" for key, value in limits.items()),
        per_mb=SECONDS_PER_MB,
        per_file=SECONDS_PER_FILE,
        per_mb_rows=ROWS_PER_MB,
        members=ALWAYS_MEMBERS,
        member=PACKED_MEMBER,
        more_memory=4 * DEFAULT_LIMITS.memory_mb,
        more_seconds=10 * DEFAULT_LIMITS.file_seconds,
        more_run_seconds=10 * DEFAULT_LIMITS.seconds,
        max_files=MAX_FILES,
        max_text=TOTAL_BYTES >> 30,
        max_depth=MAX_DEPTH,
    )


CAUSES = """# Causes

Which failure causes which others, and how. If both are found, and the first began no later than the second, or too
near to tell which was first, the report puts the second under the first. If A causes C through B, C goes under A only
where B was found. If two can cause each other, the one that began first is the cause.

"""


SCRUBBING = """# What is scrubbed

Console lines, exception messages, settings, names and sample texts pass a scrubber before the store is written. All
outputs (report, findings.json, store, terminal, gate, comparison, baseline, figures) are therefore free of every secret
that the scrubber recognises, with or without `--redact`; training data alone, which you ask for by `--export`, keep
[what was recorded](#conversations-for-training). It recognises secrets by their shape and by the words around them; a
password that stands alone in a sentence looks like any other word. `ptt report --redact` removes texts entirely and
hashes names; use it before a report leaves your group.

A mask says what was there and is numbered within the run, for example `[github-pat-1]`, so two lines about one host still
show that it is the same. Home folders become `~`. The files of the run stay unchanged: look there for what a mask hides.

| masked | recognised by | mask |
|---|---|---|
| keys and tokens of {shapes} shapes, listed below | their own shape, also where a line was cut in them | `[NAME-1]` |
| other random strings | 24 letters and digits or more, with small letters, capitals and digits mixed as in no name | `[random-string-1]` |
| passwords | a setting, option or field that ends in {passwords} | `[password-1]` |
| keys, tokens, cookies | one that ends in {secrets}; `key` behind one of {keys_of}; `token` behind one of {tokens_of}; any other `key` or `token` of 16 characters with digits | `[key-1]`, `[token-1]` |
| logins | headers (`Authorization`, `Bearer`, `Basic`, `Cookie`), `user:password@` in a URL, `curl -u`, netrc lines | `[authorization-1]`, `[cookie-1]`, `[login-1]` |
| private keys | `BEGIN ... PRIVATE KEY`, to its end or the end of the line | `[private-key-1]` |
| e-mail addresses | their shape, with a known ending | `[e-mail-1]` |
| user names | settings (`user`, `USER=`, `owner`, `entity` ...), `for user "..."`, `logged in as`, `user@host:` | `[user-1]` |
| home folders | `/home/...`, `/Users/...`, `C:\\Users\\...`, also on a share | `~` |
| hosts | names with dots and the ending of a machine, hosts of URLs, settings (`host`, `master_addr` ...), `on host ...` | `[host-1]` |
| addresses | IP of version 4 and 6, MAC; not 127.0.0.1, not a version of a package | `[ip-1]`, `[mac-1]` |

The scrubber keeps what you need to read a run: commits and other hexadecimal hashes (unless a setting calls them a key
or a token), run ids, ids of requests and calls, names of models, data sets, checkpoints, metrics and files, steps,
numbers, Python names, and public sites ({public}).

## Shown by design

| shown | why |
|---|---|
| names of files and folders of the run, unless they contain a key, e-mail address or home folder; TensorBoard puts the host into them | they say where to look |
| ids of samples, groups and calls, on the same condition | they are random, and you look things up by them |
| names of machines in telemetry (`node` of the table `ranks`, and findings on machines) | such a finding says which machine to replace |
| names of metrics, tools, environments, models and data sets, on the same condition | they are what the report is about; `--redact` hashes them |
| what you give on the command line: paths of runs and of outputs, names of settings in ptt.toml; for a folder of runs or its archive, the folders that are runs, which name their output and are listed in its index | they are yours, on your terminal, and links use them |
| a commit hash or run id in hexadecimal, though some keys look the same | without a word before it the two cannot be distinguished |
| a findings.json, or a store whose run is gone, made before texts were scrubbed | its content is shown as written; if the run is there, every later version makes its store again |

A recorder file with something to mask in its texts is copied into the store without it; other recorder files are read in
place.

## Conversations for training

`ptt traces --export` writes training data, in which a mask would be wrong text that a model learns. In the
conversations that it keeps (`conversations` of the store, and the exported files) only what is unmistakably a credential
by its shape is masked: {certain} of the shapes below at their full strength, private keys with their body, JSON web
tokens in three parts. People, hosts, addresses, home folders, values of settings, random strings, public keys, and
examples such as `AKIAIOSFODNN7EXAMPLE` stay as they were recorded. Not masked there, since texts of programs look the
same, unless another shape has them: {doubtful}. Rows with a mask are counted and left out unless you ask for them ([traces](traces.md)). All other
tables, and everything that is shown, are scrubbed as above.

## Keys and tokens by shape

The patterns are those of [gitleaks](https://github.com/gitleaks/gitleaks) ({source}, MIT licence), converted to
Python's syntax by docs/make_secret_patterns.py, and our own for providers that gitleaks knows only by name.

{names}
"""  # noqa: E501


def scrubbing() -> str:
    """What the scrubber masks, by its own tables."""
    lists = {
        name: ", ".join(sorted(words(name))) for name in ("passwords", "secrets", "keys_of", "tokens_of", "public")
    }
    names = ", ".join(sorted({shape.id for shape in shapes()}))
    kinds = {shape.id for shape in certain_shapes()}
    doubtful = ", ".join(sorted(DOUBTFUL - kinds))
    return SCRUBBING.format(
        shapes=len(shapes()), certain=len(kinds), doubtful=doubtful, source=source(), names=names, **lists
    )


def causes() -> str:
    """One section a failure: what it brings about."""
    parts = []
    for cause, effects in explains().items():
        rows = "".join(f"| `{effect}` | {how} |\n" for effect, how in effects.items())
        parts.append(f"## {cause}\n\n| causes | how |\n|---|---|\n{rows}")
    return CAUSES + "\n".join(parts)


ADVISORIES = """# Advisories: known bugs and risky settings of frameworks

{count} entries, database {version} of {date}: bugs of trainers and engines whose cause a fix, a bisect, the source or
a maintainer established, settings that do nothing, and settings that are legal and ruin runs.

```
ptt advisories                      # all, one line each; with --json as their files have them
ptt advisories {example}             # one in full
ptt advisories runs/my_run          # which apply to a run, and why
ptt check-config config.yaml requirements.txt    # before training
```

`ptt diagnose` holds every run against them too: causes stand under their finding, the rest in one line and a folded
part of the report, all of it under `advisories` in findings.json. A report names the database; a newer one may know
more.

## What is said, and when

| strength | when | where |
|---|---|---|
| cause | framework, versions and settings are affected, and the run shows the signature | under the finding, with \
the line to change |
| note | versions and settings are affected, and the run cannot show the signature, does not show it, or a version \
is not certain | one line, and what would show it |
| possible | the run shows the signature, the framework is the advisory's, and not all settings are recorded | among \
the possible causes of the finding |

An affected version is one from `introduced` up to, and without, `fixed`, by PEP 440. A version that is not recorded
is said and not assumed; a development version, a local one (`0.9.0.dev0+gabc`) and a commit are matched by their
base, and never more than a note. A setting that is not written has the framework's default where the advisory knows
it.

## Where framework, versions and settings are read from

| what | files |
|---|---|
| settings | `config.yaml` and `.hydra/` of Hydra, W&B's `config.yaml` and `.wandb`, `wandb-metadata.json` \
(arguments), MLflow's params, trackio, `args.json`, `training_args.bin` (nothing in it is executed), YAML and TOML \
configs under any name, launch scripts (`run.sh`), settings printed at the start of a console, the toolkit's \
`run_metadata.json` |
| versions | `requirements.txt`, `pip freeze`, `pip list`, `environment.yml`, `uv.lock`, a model card's "Framework \
versions", `config.json` of a checkpoint, settings called `..._version`, what programs print when they start (`vLLM \
engine (v0.8.4)`) |
| framework | what the parsers recognise, names that only one framework's settings have, the installed trainer |

Numbers, booleans and single words are kept. Of paths, texts, and names of people, machines and projects only that
they are set. `ptt.toml` may say `[run] framework = "trl"` where no file does.

## In the gate

```toml
[gate.advisories]
severity = "high"        # causes of this severity or worse fail a run
ids = ["{example}"]        # and these, whatever their severity
notes = false            # true: those that only would apply fail it too

[[gate.allow]]
finding = "advisory:{example}"
owner = "ann"
reason = "the engine is patched here"
expires = 2031-12-31
```

A run that records neither framework nor versions nor settings is blind to this check. `ptt check-config` exits with 3
where an advisory of `--fail-on` (default: high) surely applies, 4 where the file holds no setting, else 0.

## Your own

`--advisories DIR`, or `[diagnose] advisories = ["DIR"]` in `ptt.toml`, adds a folder of such files; one with the id
of an entry below takes its place. Every output says where an advisory comes from. CONTRIBUTING.md says how to write
one.

"""


def advisories() -> str:
    """One section an advisory, under its framework."""
    known = shipped()
    parts = [ADVISORIES.format(count=len(known.advisories), version=known.version, date=known.date, example=EXAMPLE)]
    by_framework: dict[str, list[Advisory]] = {}
    for advisory in known.advisories:
        by_framework.setdefault(advisory.affected.framework or "", []).append(advisory)
    for framework, mine in sorted(by_framework.items()):
        parts.append(f"## {framework_name(framework) if framework else 'Any framework'}\n\n")
        for advisory in mine:
            rows = "".join(
                f"- {heading}: {_plain('; '.join(lines))}\n" for heading, lines in advisory_parts(advisory).items()
            )
            kind = f"{advisory.severity}, {KINDS[advisory.kind]}, {advisory.date}"
            parts.append(f"### {advisory.id}\n\n{_plain(advisory.summary)} ({kind}).\n\n{rows}\n")
    return "".join(parts).rstrip("\n") + "\n"


def _plain(text: str) -> str:
    """Return a text on one line, whose signs mean nothing to Markdown outside of code."""
    pieces = " ".join(text.split()).split("`")
    return "`".join(
        piece if number % 2 else piece.replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")
        for number, piece in enumerate(pieces)
    )


EXAMPLE = "trl-5312"
AUDIT = """# The audit of the objective

A trainer says what it optimises: advantages, a loss, curves with names. `ptt diagnose` recomputes what the run's own
records allow, and holds the logged metrics against each other. `findings.json` has one row for each under `audit`:
`agrees`, `differs`, `fact` (nothing is logged to hold it against) or `not_checkable`, with the missing columns. A
difference alone is no finding. It becomes one where a known mistake explains it, or where it begins in mid-run.

The answer on the terminal is one line, and the report has a table:

    Recomputed  advantages are GRPO's; KL is k3 x ratio policy/ref, token mean; 25 of 26 logged metrics agree

## Advantages from rewards

Needs `reward`, `advantage` and a group (`group_id`, or the prompt) for each sample: recorder files, the dumps of most
frameworks, or completions. All samples of all recorded steps are read.

1. Each estimator is computed for all samples: GRPO (deviation by n - 1 or n, with the usual epsilons), Dr. GRPO, RLOO,
   REINFORCE++ with and without a group's baseline, OPO, GRPO with the batch's deviation, whitening over the batch, a
   rank or tokens, the reward itself, and GAE where the dump holds `value` and `return`. Digits tell the rounding.
2. The one that gives most samples is named. Where it gives all, that is the answer: "it is GRPO's, exactly".
3. Where it gives all but some, each of these is tried as: the sign turned; the right advantages on other samples; those
   of an earlier batch; groups cut every n rows, although some groups are partial or prompts are interleaved; shifted
   ids; the whole batch or one rank's part of it instead of the group; the reward itself; 0.
4. A fault that explains them is a finding, with the steps, the share of samples and the first of them:
   [advantages-against-rewards](rules.md#advantages-against-rewards),
   [advantages-of-other-samples](rules.md#advantages-of-other-samples),
   [groups-of-other-prompts](rules.md#groups-of-other-prompts), [groups-of-one](rules.md#groups-of-one),
   [batch-wide-advantages](rules.md#batch-wide-advantages), [advantages-off-centre](rules.md#advantages-off-centre).

For example, a trainer that reorders a batch for balance and forgets the advantages leaves rewards and advantages that
are each right as a set. The log shows nothing. The audit says: "The advantages of 34.8% of the samples, at 32 of 32
steps since step 337, belong to other samples: right as a set, but shuffled."

What cannot be told:

- A group of which the dump holds a part (every fourth row, one of two ranks) has another mean than the trainer's. It is
  not checkable, and nothing is found there.
- Advantages that follow another reward (a length penalty, a KL by token, a critic) fit nothing from the start. That is
  a difference without a finding: nothing tells it from a shuffle unless the set of values fits.
- Where all groups of a step have rewards in the same pattern, several estimators give the same values; the simplest is
  named. Samples whose advantage is the same either way are not counted as wrong.

## Scalars from tokens

Needs whole rows of some steps, with masks and logprobs. Up to 48 steps spread over the run are read once more; only
where something differs are others read, to find since when. So a run of 20 million tokens costs a few per cent more.

For each logged scalar that is known (KL, clip fractions, entropy, ratios and their extremes, mismatch of trainer and
engine, reward and its parts, advantages, lengths, truncation, groups without spread, tool calls, loss), each formula
(k1, k2, k3, absolute, weighted by the ratio, ...) is computed under each reduction: mean over tokens, over sequences,
over groups, ranks or micro-batches; sum over a constant; with and without tool output and padding; over the window of
steps that one logged value is the mean of. What gives the logged value at nine steps in ten is named.

[miscounted-metric](rules.md#miscounted-metric) is found where only a known mistake gives it (padding or tool output
counted, a ratio times the rows of its batch, a sum where a mean is named, a turned sign, another pair of logprobs, the
rows of another step), or where it was right and is not from some step on. Rows that may be a part of each batch accuse
nothing. [metrics-contradict-each-other](rules.md#metrics-contradict-each-other) sees some of these without tokens.

What cannot be told: formulas that give the same value here (the row counts them), for example token and sequence
means where all answers are equally long; and garbage in padding, whose values no dump holds: the row then differs, and
is a finding only if it was right before.

The loss denominator is told as a fact: what the loss is divided by, as the settings or the logged loss show, and what a
token weighs in a short answer and in a long one.

## Contradictions between logged metrics

These need no tokens: they hold between metrics of the same steps, whatever was trained. Each metric counts under the
names that frameworks give it; a name that was only guessed from its words is left out. Metrics that are logged at
different steps, or as means over different windows, are not held against each other.

How far logged values are rounded shows in their digits, and is allowed for. Beyond that and the tolerance below, a
stretch of steps must break an identity: one in which broken steps outnumber the others by five. A bound marked "at
once" is broken by a single step. Identities with one cause give one finding of
[metrics-contradict-each-other](rules.md#metrics-contradict-each-other).

| identity | what must hold | as | metrics | tolerance | severity | source |
|---|---|---|---|---|---|---|
"""


def audit() -> str:
    """One line an identity between metrics, and what it means where it is broken."""
    rows = [
        f"| `{one.id}` | {_cell(one.says)} | {_relation(one)} | {_names(one)} | {_tolerance(one)} "
        f"| {one.severity} | {_cell(one.source)} |\n"
        for one in identities().values()
    ]
    meaning = [
        f"| `{one.id}` | {_cell('; '.join(one.causes))} | {_cell('; '.join(one.next))} |\n"
        for one in identities().values()
    ]
    head = "\nWhat it means where one is broken:\n\n| identity | what may be the cause | what to do |\n|---|---|---|\n"
    return AUDIT + "".join(rows) + head + "".join(meaning)


def _relation(identity: Identity) -> str:
    """Write what an identity is in symbols."""
    told = {"fits": "total = weighted sum of parts", "schedule": "rate = schedule(step)"}
    relations = [f"`{_cell(text)}`" for text in identity.relations] or [
        text for field, text in told.items() if getattr(identity, field)
    ]
    return "<br>".join(relations)


MAX_NAMES = 6  # of one identity: a cell with thirty names is not read


def _names(identity: Identity) -> str:
    more = len(identity.names) - MAX_NAMES
    named = ", ".join(f"`{name}`" for name in identity.names[:MAX_NAMES])
    return f"{named} and {more} more" if more > 0 else named


def _tolerance(identity: Identity) -> str:
    parts = [f"{identity.absolute:g}"] if identity.absolute else []
    parts += [f"{100 * identity.relative:g}%"] if identity.relative else []
    at_once = ["at once"] if identity.at_once is not None else []
    return ", ".join([" + ".join(parts) or "rounding", *at_once])


def _cell(text: str) -> str:
    """Write text as a cell of a table."""
    return text.replace("|", "\\|")


ARCHITECTURE = """# Architecture

A run's files go in at the bottom of this picture and a report comes out at the top. Imports point downwards only: a
room knows the rooms below it and none above, and `tests/test_architecture.py` lists every edge. An arrow is left out if
a chain of other arrows already leads there, and so is `ptt/diagnostics/definitions.py`, which all rooms use in place of
`dataclasses.dataclass` and `re.compile`.

![The rooms and what they import](img/rooms.svg)

A number takes this way from a line of a log to the headline:

1. `parsers/` recognise each file by its content and read it into canonical rows; `metrics/metrics.toml` maps the
   trainer's names of metrics. Parsers share `parsers/io/`; `parsers/unpickle/` opens pickles and executes nothing.
2. `store/` keeps the rows as Parquet, and is the only code that opens them again.
3. `engines/` runs the one pass over the tokens; `statistics/` contains every calculation, one module per
   statistic, and knows no files, no limits and no words.
4. `evidence/` reduces tables to what rules look at, one file per topic.
5. `rules/` judge: one file per failure, one folder per link of the loop. `custom/` reads rules that users write.
6. `verdict/` runs the rules, orders their findings by cause and time, and writes the headline. `compare/` and `gate/`
   start from finished diagnoses.
7. `pipeline.py` connects these stages; no other module knows them all.
8. `reports/` turn a diagnosis into pages, terminal output and files for CI; `cli/` reads arguments, calls one function,
   prints and exits. `api/` offers the same from Python.

CONTRIBUTING.md lists the files that a new parser, rule or figure touches. The reasons are in `docs/decisions/`.

| room | purpose | imports |
|---|---|---|
"""


def architecture() -> str:
    """The rooms with what they hold and import, below the picture."""
    rows = []
    for room, imports in import_table().items():
        source = _source(room)
        purpose = (ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or "").split("\n")[0]
        names = ", ".join(f"`{name}`" for name in imports) or "none"
        rows.append(
            f"| `{source.relative_to(HERE.parent).as_posix().removesuffix('__init__.py')}` | {purpose} | {names} |\n"
        )
    return ARCHITECTURE + "".join(rows)


def _source(room: str) -> Path:
    """Return the file whose docstring says what a room is for: rooms of `diagnostics` are named without it."""
    ours = HERE.parent / "ptt"
    for folder in (ours, ours / "diagnostics"):
        place = folder if room == "ptt" else folder.joinpath(*room.split("."))
        for path in (place / "__init__.py", place.with_suffix(".py")):
            if path.is_file():
                return path
    raise SystemExit(f"{room}: no such room below ptt/; bring tests/test_architecture.py up to date.")


def import_table() -> dict[str, list[str]]:
    """Return the table that tests/test_architecture.py holds the code to, its rooms and their imports in its order."""
    sys.path.insert(0, str(TESTS))
    from test_architecture import ALLOWED

    order = list(ALLOWED)
    return {room: sorted(imports, key=order.index) for room, imports in ALLOWED.items()}


ROOMS = ("advisories", "model", "schema.py", "evidence", "verdict", "rules", "statistics", "engines", "traces")
"""Whose texts can stand in a diagnosis: every sentence of one is put together from the literals of these."""


def own_texts() -> str:
    """List the program's own texts, whose words redaction may keep."""
    home = Path(schema.__file__).parent
    texts = {parser.name for parser in PARSERS} | {*names.GUARDS, *names.BY, *names.SLICES, *names.METRICS}
    texts |= {f"{above}/{below}" for above in names.SIDES for below in names.SIDES}
    for room in ROOMS:
        for module in home.glob(room if room.endswith(".py") else f"{room}/**/*.py"):
            texts |= {module.name, *_literals(module.read_bytes())}
    for table in (
        "metrics/switches.toml",
        "metrics/identities.toml",
        "evidence/mismatch_causes.toml",
        "evidence/failure_causes.toml",
        "verdict/causes.toml",
    ):
        texts.update(_strings(tomllib.loads(home.joinpath(table).read_text(encoding="utf-8"))))
    texts.update(_strings({name: dict(metric.aliases) for name, metric in metrics().items()}))
    texts.update(_strings({name: document()[name] for name in ("reporters", "splits", "frameworks")}))
    return json.dumps(sorted(texts), indent=0, ensure_ascii=False) + "\n"


def _literals(source: bytes) -> Iterator[str]:
    """Yield the literals of a module, the fixed parts of f-strings and names of evidence among them; no docstrings."""
    tree = ast.parse(source)
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.value
        elif isinstance(node, ast.keyword) and node.arg:
            yield node.arg


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        yield from value if isinstance(value, dict) else ()
        yield from chain.from_iterable(map(_strings, value.values() if isinstance(value, dict) else value))


OWN_TEXTS = "../ptt/reports/redact/own_texts.json"
PAGES = {
    "advisories.md": advisories,
    "architecture.md": architecture,
    "audit.md": audit,
    "budget.md": budget,
    "causes.md": causes,
    "formats.md": formats,
    "ledger.md": ledger,
    "rules.md": rules,
    "scrubbing.md": scrubbing,
    "settings.md": settings,
    "tables.md": tables,
}
EVERYWHERE = {"version"}  # arrows from every room would tell nothing


def rooms() -> str:
    """The picture of the import table."""
    table = {room: set(imports) - EVERYWHERE for room, imports in import_table().items()}
    return draw({room: imports for room, imports in table.items() if room not in EVERYWHERE})


PICTURES = {"img/rooms.svg": rooms}


def main() -> int:
    """Write the pages, or with --check name those that are out of date."""
    made = {name: HEAD + make() for name, make in PAGES.items()} | {name: make() for name, make in PICTURES.items()}
    made[OWN_TEXTS] = own_texts()
    made["ci/github-actions.yml"] = github_workflow()
    stale = [name for name, text in made.items() if _text(name) != text]
    if "--check" in sys.argv:
        print("\n".join(f"docs/{name} is out of date: make docs" for name in stale), end="\n" if stale else "")
        return 1 if stale else 0
    for name in stale:
        (HERE / name).write_text(made[name], encoding="utf-8")
    return 0


def _text(name: str) -> str:
    path = HERE / name
    return path.read_text(encoding="utf-8") if path.exists() else ""


if __name__ == "__main__":
    raise SystemExit(main())
