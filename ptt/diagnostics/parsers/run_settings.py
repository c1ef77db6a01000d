"""Settings beside the logs, as JSON or YAML: how long the run was to be, and how its inference engine was set.

`config.json` of Spinning Up and home-made loops, `args.json`, Lightning's `hparams.yaml`, `config.yaml` of W&B.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from ptt.diagnostics.parsers.io.interface import Context, Lost, Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.lines import BOM, parse_json
from ptt.diagnostics.parsers.io.metric_rows import flatten
from ptt.diagnostics.parsers.io.telemetry import ENGINE_SETTINGS, Facts, length_and_engine

STEMS: Final = frozenset(
    {"config", "args", "arguments", "hparams", "hyperparameters", "hyperparams", "params", "settings", "variant",
     "training_args", "train_config", "training_config", "run_config", "experiment_config", "run_manifest", "manifest"}
)  # fmt: skip
JSON, YAML = (".json",), (".yaml", ".yml")
MAX_BYTES: Final = 65_536  # the size of a file's head: settings are smaller, and a longer file is something else
LINE: Final = re.compile(
    r"^ {0,8}([A-Za-z_][\w./-]{0,63}):[ \t]*(?:(\d[\d_]{0,15}(?:\.0)?)[ \t]*(?:#.*)?)?\r?$", re.MULTILINE
)
ENGINE: Final = re.compile(rf"(?<!\w)({'|'.join(sorted(ENGINE_SETTINGS))}):[ \t]*([\w.+-]+)")  # in braces too
COMMENT: Final = re.compile(r"(?m)(?:^|(?<=\s))#.*$")
WRAPPED: Final = frozenset({"value", "desc"})  # W&B's: the number is one line below its name


def recognises(file: RunFile) -> bool:
    """Recognise settings by their name, and by what is read among them."""
    stem, _, ending = file.name.lower().rpartition(".")
    if stem not in STEMS or f".{ending}" not in (*JSON, *YAML) or file.size > MAX_BYTES:
        return False
    return bool(_facts(file))


def _facts(file: RunFile) -> Facts:
    text = file.readable_head.removeprefix(BOM)
    if not file.name.lower().endswith(JSON):
        return length_and_engine(_yaml(text.decode("utf-8", "replace")))
    found = parse_json(text)
    return length_and_engine(flatten(found)) if isinstance(found, dict) else {}


def _yaml(text: str) -> dict[str, Any]:
    """Return the whole numbers and the engine's settings by name, whatever they are nested in."""
    found: dict[str, Any] = {}
    for name, value in ENGINE.findall(COMMENT.sub("", text)):
        found.setdefault(name, value)
    above = ""
    for name, number in LINE.findall(text):
        if number:
            found.setdefault(above if name in WRAPPED else name, number.replace("_", "").removesuffix(".0"))
        above = above if name in WRAPPED else name
    return found


def read(file: RunFile) -> Iterator[Piece]:
    """Yield how long the run was to be, and how its engine was set."""
    if facts := _facts(file):
        yield Context(facts=facts)
    else:  # gone, or written anew
        yield Lost(bytes=file.size, note=f"{file.rel} holds no settings that can be read.")


PARSER = Parser(
    name="run_settings",
    describes="Settings beside the logs (config.json, args.json, hparams.yaml): how many steps or epochs were "
    "planned, and how the inference engine was set.",
    held_against="source: Spinning Up's `logx.save_config`, Lightning's loggers, W&B's config.yaml",
    priority=60,
    of_training=False,
    recognises=recognises,
    read=read,
)
