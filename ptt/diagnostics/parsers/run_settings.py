"""The setup of a run, beside its logs: settings as JSON, YAML, TOML or `training_args.bin`, and package versions.

`config.yaml` and `.hydra/` of Hydra, `args.json`, Lightning's `hparams.yaml`, W&B's `config.yaml`, `requirements.txt`
and `wandb-metadata.json`, a trainer's `training_args.bin`, DeepSpeed's settings, environment files, model cards,
launch scripts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

from ptt.diagnostics.parsers.io.interface import Context, Lost, Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.lines import BOM, parse_json
from ptt.diagnostics.parsers.io.setup_files import (
    banner_packages,
    card_packages,
    command_settings,
    kept,
    listed_packages,
    pickled_settings,
    read_settings,
)
from ptt.diagnostics.parsers.io.telemetry import Facts, length_and_engine
from ptt.diagnostics.parsers.io.token_dumps import content

STEMS: Final = frozenset(
    {"config", "args", "arguments", "hparams", "hyperparameters", "hyperparams", "params", "settings", "variant",
     "training_args", "train_config", "training_config", "run_config", "experiment_config", "run_manifest", "manifest",
     "overrides", "hydra", "resolved_config", "full_config", "grpo_config", "ppo_config", "rl", "trainer",
     "orchestrator", "inference", "trainer_config", "ds_config", "adapter_config", "deepspeed_config",
     "orch", "infer", "train", "finetune", "launch", "run", "train_args"}
)  # fmt: skip
CONFIGS: Final = (".yaml", ".yml", ".toml")  # whatever they are called, if they hold settings
NO_CONFIGS: Final = frozenset({"pyproject", "meta", "mlmodel", "conda", "docker-compose", "mkdocs", "ptt"})
PARTS: Final = {
    "orch": "orchestrator", "orchestrator": "orchestrator", "trainer": "trainer", "train": "trainer",
    "infer": "inference", "inference": "inference",
}  # fmt: skip
"""prime-rl's files, and the part of its joint `rl.toml` that each holds."""
ENDINGS: Final = (".json", ".yaml", ".yml", ".toml", ".sh")
PACKAGE_LISTS: Final = re.compile(
    r"(?:requirements[\w.-]*|pip[_-]?(?:freeze|list)[\w.-]*|freeze|packages|constraints[\w.-]*)\.txt|"
    r"(?:conda[_-]?)?env(?:ironment)?[\w.-]*\.ya?ml|conda[_-]env[\w.-]*\.ya?ml|(?:uv|poetry)\.lock"
)
ENVIRONMENTS: Final = re.compile(
    r"(?:[\w.-]*[_-])?(?:env(?:ironment)?|versions?)\.txt"
)  # what `llamafactory-cli env` prints
DEEPSPEED: Final = re.compile(r"(?:ds|deepspeed|zero)[\w.-]*\.json")
SCRIPTS: Final = re.compile(
    r"(?:[\w.-]+[_-])?(?:(?:run|train|launch|finetune)[\w.-]*|(?:grpo|dpo|ppo|sft|rl)(?:[_-][\w.-]+)?)\.(?:sh|py)"
)
"""Scripts that may start a run: they count where they name a framework, or give settings enough."""
CARD, PICKLED, METADATA = "readme.md", "training_args.bin", "wandb-metadata.json"
OF_TRAINING: Final = frozenset({"learning_rate", "per_device_train_batch_size", "output_dir"})
MODEL: Final = frozenset({"model_type", "architectures", "transformers_version"})  # `config.json` of a checkpoint
ZERO: Final = "zero_optimization"
MAX_BYTES: Final = 1 << 20  # a full dump of settings is some 60 KB; a longer file is something else
MIN_SETTINGS: Final = 3  # in a file whose name alone says little: fewer are a stray `config.json`
MIN_OF_ANY: Final = 8  # in a file of any name: fewer are notes
PROGRAM: Final = re.compile(
    r"\b(unsloth|verl|openrlhf|nemo_rl|skyrl_train|skyrl|slime|areal|roll|open_instruct|swift|llamafactory|axolotl|prime_rl|trl)\b"
)
STARTED: Final = re.compile(
    r"^\s*(?:from|import)\s+([\w.]+)|"
    r"(?:python3?|uv run\b[^\n]{0,200}?|torchrun\b[^\n]{0,200}?)\s+-m\s+([\w.]+)|"
    r"\b(swift)\s+rlhf|\b(llamafactory|axolotl)(?:-cli)?\s+train",
    re.MULTILINE,
)
"""What a script imports or starts."""
UNSLOTH: Final = "unsloth"  # it patches the trainer that a script imports beside it
PROGRAMS: Final = {
    "nemo_rl": "nemo-rl", "skyrl_train": "skyrl", "open_instruct": "open-instruct", "swift": "ms-swift",
    "prime_rl": "prime-rl"
}  # fmt: skip


def recognises(file: RunFile) -> bool:
    """Recognise a setup by its file's name, and by what it holds."""
    name = file.name.lower()
    if not 0 < file.size <= MAX_BYTES:
        return False
    if name == PICKLED:
        return file.begins(b"PK\x03\x04") or file.begins(b"\x80")
    stem, _, ending = name.rpartition(".")
    listed = any(pattern.fullmatch(name) for pattern in (PACKAGE_LISTS, ENVIRONMENTS, DEEPSPEED))
    named = name in (CARD, METADATA) or listed or (stem in STEMS and f".{ending}" in ENDINGS)
    script = SCRIPTS.fullmatch(name)
    if not named and not script and (f".{ending}" not in CONFIGS or stem in NO_CONFIGS):
        return False
    found = setup_in(file)
    if found is not None and DEEPSPEED.fullmatch(name) and stem not in STEMS:
        return any(key.startswith(ZERO) for key in found.settings)
    if found is not None and script and not named:
        started = "framework" in found.facts and bool(found.settings)
        return started or (ending == "sh" and len(found.settings) >= MIN_OF_ANY)
    least = MIN_SETTINGS if named else MIN_OF_ANY
    return found is not None and bool((named and (found.packages or found.facts)) or len(found.settings) >= least)


def setup_in(file: RunFile) -> Context | None:
    """Return what a text states of a setup, whatever it is called; None where it cannot be read."""
    return None if file.size > MAX_BYTES else file.look("setup", lambda: _read(file))


def _read(file: RunFile) -> Context | None:
    """Read a text of a setup; None where it is gone."""
    try:
        text = (file.path.read_bytes() if file.size > len(file.head) else file.head).removeprefix(BOM)
    except OSError:
        return None
    name = file.name.lower()
    if name == CARD:
        return Context(facts={}, packages=card_packages(text.decode("utf-8", "replace")))
    if PACKAGE_LISTS.fullmatch(name):
        return Context(facts={}, packages=listed_packages(text.decode("utf-8", "replace")))
    if ENVIRONMENTS.fullmatch(name):
        printed = text.decode("utf-8", "replace").replace("`", "")
        return Context(facts={}, packages=listed_packages(printed) | banner_packages(printed))
    if name == METADATA:
        return _of_metadata(parse_json(text))
    settings = read_settings(name, text)
    if len(MODEL & settings.keys()) > 1 and not OF_TRAINING & settings.keys():
        version = settings.get("transformers_version")
        return Context(facts={}, packages={"transformers": version} if isinstance(version, str) else {})
    if isinstance(overrides := settings.pop("", None), list):  # .hydra/overrides.yaml
        settings |= command_settings(overrides)
    if name.endswith(".toml") and (part := PARTS.get(name.rpartition(".")[0])) is not None:
        settings |= {f"{part}.{key}": value for key, value in settings.items()}
    facts = _facts(settings)
    if name.endswith((".sh", ".py")):
        facts |= _of_program(" ".join(chain.from_iterable(STARTED.findall(text.decode("utf-8", "replace")))))
    unresolved = sum("$" in value for value in settings.values() if isinstance(value, str))
    return Context(facts=facts, settings=kept(settings), unresolved=unresolved if name.endswith(".sh") else 0)


def _of_program(text: str) -> Facts:
    found = PROGRAM.findall(text)
    name = UNSLOTH if UNSLOTH in found else next(iter(found), None)
    return {} if name is None else {"framework": PROGRAMS.get(name, name)}


def _facts(settings: dict[str, Any]) -> Facts:
    return length_and_engine({name.replace(".", "/"): value for name, value in settings.items()})


def _of_metadata(found: Any) -> Context:
    """Read W&B's description of the command that was run."""
    found = found if isinstance(found, dict) else {}
    arguments, program = found.get("args"), found.get("program")
    return Context(
        facts=_of_program(program) if isinstance(program, str) else {},
        settings=kept(command_settings(arguments)) if isinstance(arguments, list) else {},
    )


def read(file: RunFile) -> Iterator[Piece]:
    """Yield what the setup states: settings, versions, and how long the run was to be."""
    if file.name.lower() == PICKLED:
        value, lost = content(file)
        yield from lost
        if settings := pickled_settings(value):
            yield Context(facts=_facts(settings), settings=kept(settings))
        return
    if found := setup_in(file):
        yield found
    else:  # gone, or written anew
        yield Lost(bytes=file.size, note=f"{file.rel} holds no settings that can be read.")


PARSER = Parser(
    name="run_settings",
    describes="A run's setup: settings (config.yaml, .hydra/, args.json, training_args.bin, launch scripts) and "
    "package versions (requirements.txt, pip freeze, environment.yml, model cards).",
    held_against="source: Spinning Up's `logx.save_config`, Lightning's loggers, W&B's config.yaml, Hydra, TRL's cards",
    priority=60,
    of_training=False,
    recognises=recognises,
    read=read,
)
