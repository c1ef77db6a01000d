"""Read settings and package versions from what a run leaves: YAML, TOML, JSON, command lines, lists of packages.

Nothing is executed and nothing is resolved but a reference to another setting of the same file."""

from __future__ import annotations

import ast
import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, takewhile
from typing import Any, Final

from ptt.diagnostics.definitions import compiled
from ptt.diagnostics.parsers.io.interface import Context
from ptt.diagnostics.parsers.io.lines import BOM, parse_json
from ptt.diagnostics.parsers.io.metric_rows import flatten
from ptt.diagnostics.parsers.io.telemetry import Facts, plain_setting, safe_settings
from ptt.diagnostics.parsers.unpickle import Node, Plain

Setting = str | int | float | bool | None
Settings = dict[str, Setting]

LEFT_OUT: Final = "…"  # in place of a text that is not kept: a path, a prompt, a name
MAX_SETTINGS: Final = 4000  # a full dump of veRL's has some 900
MAX_NUMBERS: Final = 16  # in a list that is kept: weights of rewards, coefficients of an optimizer
MAX_NAME: Final = 200
MAX_LINE: Final = 10_000  # characters of YAML: a longer one is data
MAX_INLINE: Final = 20  # mappings inside one another on one line of YAML
MAX_PACKAGES: Final = 2000  # an environment of a year's work has some 600
NAMES_SOMEBODY: Final = compiled(
    r"(?:^|\.)name$|(?:^|[._])(?:(?:run|exp|experiment|project|user|group|team|host|job|node|cluster|hub|repo|model|dataset|data|"
    r"display|author|owner|machine|account|org|wandb)_?name|user|owner|author|entity|project|group|team|host|hostname|"
    r"email|tags?|notes?|id|repo|dir|path|folder|file|token|key|secret|url|org|addr|address|server|endpoint|ip)$",
    re.IGNORECASE,
)
"""Settings whose words may name people, machines and projects: that they are there is kept, and no word."""

PACKAGE_NAMES: Final[Mapping[str, str]] = {
    **{
        name: name
        for name in (
            "trl", "transformers", "torch", "vllm", "sglang", "accelerate", "deepspeed", "peft", "verl", "openrlhf",
            "verifiers", "areal", "unsloth", "rllm", "axolotl", "ray", "datasets", "tokenizers", "slime", "miles",
            "roll", "skyrl", "tinker", "llamafactory", "bitsandbytes",
        )
    },
    "pytorch": "torch", "swift": "ms-swift", "ms_swift": "ms-swift", "nemo_rl": "nemo-rl", "prime_rl": "prime-rl",
    "open_instruct": "open-instruct", "flash_attn": "flash-attn", "megatron_core": "megatron-core",
    "liger_kernel": "liger-kernel", "tinker_cookbook": "tinker-cookbook", "unsloth_zoo": "unsloth-zoo",
}  # fmt: skip
"""How files call packages -> the distribution."""
_DOTTED: Final = compiled(r"[A-Za-z_]\w{0,60}(?:[.:][A-Za-z_]\w{0,60}){1,8}")
_VERSION: Final = compiled(r"v?\d[\w.+-]{0,40}")
KNOWN_WORDS: Final = frozenset({*PACKAGE_NAMES, "hf", "fsdp", "fsdp2", "megatron", "trtllm", "mcore"})
"""Words that name no one, whatever setting they stand in: `rollout.name=vllm`."""


MODEL_NAMES: Final[Mapping[str, re.Pattern[str]]] = {
    "has_experts": compiled(
        r"(?i)-a\d+(?:\.\d+)?b(?![a-z\d])|moe\b|mixtral|gpt-oss|deepseek-(?:v[23]|r1(?!-distill))|glm-4\.[5-9]|kimi-k2|minimax-m|llama-4|"
        r"qwen3-next"
    ),
    "is_recurrent": compiled(
        r"(?i)(?:mamba|jamba|zamba|bamba|rwkv)|nemotron-(?:h(?![a-z])|3(?:\.\d)?-(?:nano|super|ultra))|nemotron-nano-\d+b-v2|"
        r"qwen3-next|qwen3\.[5-9]|granite-4\.\d-h|falcon-h\d|kimi-linear"
    ),
    "reads_images": compiled(
        r"(?i)(?:^|[-_/.\d])(?:vl|vlm|omni|vision|audio|pixtral|molmo|llava|internvl|smolvlm|paligemma|idefics|gemma-3n)"
        r"(?:[-_/.\d]|$)|(?-i:[a-zA-Z]VLM?[-_\d])|minicpm-[vo]\b|glm-4\.\dv"
    ),
}
"""What the name of a model tells of it, which itself is not kept."""
FAMILIES: Final = compiled(r"(?i)qwen|mixtral|gpt-oss|deepseek|glm|kimi|minimax|llama")
QWEN3_VL: Final = compiled(r"(?i)qwen.{0,4}vl|qwen-?3[-_.]5")
"""Model families with experts, known by name, and the one family that verl-7340 affects."""
NAMES_MODEL: Final = compiled(
    r"(?i)(?:^|[._])(?:model|model_path|model_name|model_name_or_path|model_id|base_model|hf_checkpoint|pretrain)$"
    r"|(?:^|\.)model\.(?:path|name)$"
)
NO_POLICY: Final = compiled(
    r"(?i)(?:^|\.)(?:ref|reference|reward\w*|rm|critic|judge|teacher|draft\w*|speculative\w*)(?:_model)?[._]"
)


def setup_context(settings: Mapping[str, Any], facts: Facts | None = None) -> Context:
    """Return what settings state: the facts that are shown, and all of them for what is held against them."""
    return Context(facts={**safe_settings(settings), **(facts or {})}, settings=kept(settings))


def kept(settings: Mapping[str, Any]) -> Settings:
    """Return settings by dotted names: numbers, booleans, null and single words; of other texts that they are there."""
    found: Settings = {}
    for name, value in settings.items():
        dotted = name.lstrip("-+~").replace("/", ".")
        if len(found) == MAX_SETTINGS or not 0 < len(dotted) <= MAX_NAME or "_wandb" in dotted:
            continue
        found[dotted] = _kept_value(dotted, value)
        if isinstance(value, str) and NAMES_MODEL.search(dotted) and not NO_POLICY.search(dotted):
            found |= {f"model_{told}": True for told, pattern in MODEL_NAMES.items() if pattern.search(value)}
            if "model_has_experts" in found and FAMILIES.search(value):
                found["model_is_qwen3_vl_or_3_5"] = bool(QWEN3_VL.search(value))
    return found


def _kept_value(name: str, value: Any) -> Setting:
    if value is None:
        return None
    if isinstance(value, list) and 0 < len(value) <= MAX_NUMBERS:
        numbers = [plain_setting(item) for item in value]
        if len(value) == 1 or len(set(map(repr, numbers))) == 1:
            value = value[0]
        elif all(isinstance(number, int | float) for number in numbers):
            return ",".join(map(str, numbers))
    if name.endswith("version") and isinstance(value, str) and _VERSION.fullmatch(value):
        return value
    plain = plain_setting(value)
    if plain is None and isinstance(value, str) and (_DOTTED.fullmatch(value) or value in ("None", "null")):
        plain = value  # a class or function by its module, or a text that was meant to be none
    somebody = isinstance(plain, str) and NAMES_SOMEBODY.search(name) and plain.lower() not in KNOWN_WORDS
    return LEFT_OUT if plain is None or somebody else plain


def read_settings(name: str, content: bytes) -> dict[str, Any]:
    """Return the settings in a file's content, by its name's ending; none where it cannot be read."""
    text = content.removeprefix(BOM).decode("utf-8", "replace")
    ending = name.lower().rpartition(".")[2]
    try:
        if ending == "json":
            found = parse_json(text.encode())
            return _unwrapped(_dotted(found)) if isinstance(found, dict) else {}
        if ending == "toml":
            return _dotted(tomllib.loads(text.replace("\r\n", "\n")))
        if ending == "py":
            return python_settings(text)
        if ending == "sh":
            return command_settings(_words(text))
        return _unwrapped(yaml_settings(text))
    except (ValueError, RecursionError):
        return {}


def _dotted(found: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("/", "."): value for name, value in flatten(found).items()}


def _unwrapped(settings: dict[str, Any]) -> dict[str, Any]:
    """Undo W&B's wrapping of each setting as `NAME: {desc, value}`; its own part is left out, but for arguments."""
    below = {name.partition(".")[2].partition(".")[0] for name in settings if not name.startswith("_wandb")}
    if not settings or not below <= {"value", "desc"}:
        return settings
    found: dict[str, Any] = {}
    for name, value in settings.items():
        parts = name.split(".")
        if parts[0] == "_wandb":
            found |= command_settings(value) if parts[-1] == "args" and isinstance(value, list) else {}
        elif len(parts) > 1 and parts[1] == "value":
            found[".".join((parts[0], *parts[2:]))] = value
    return found


_KEY: Final = compiled(r"""(?:"([^"]{1,200})"|'([^']{1,200})'|([^\s:'"#\[\]{},&*!|>%@`-][^:#]{0,200}?))\s*:(?:\s+|$)""")
_COMMENT: Final = compiled(r"\s#.*$")
_BLOCK: Final = compiled(r"[|>][+-]?\d?")
_TAG: Final = compiled(r"^(?:[&!][^\s]*\s*)+")
_REFERENCE: Final = compiled(r"\$\{([A-Za-z_][\w.]*)\}")


def yaml_settings(text: str) -> dict[str, Any]:
    """Return the settings of a YAML document by dotted names: mappings, lists and plain scalars."""
    found: dict[str, Any] = {}
    open_: list[tuple[int, str]] = []  # indent and name of the mappings that a line may stand in
    block: int | None = None  # the indent of the key whose text goes on over lines
    for line in text.splitlines():
        if len(line) > MAX_LINE:
            continue
        content = line.strip()
        indent = len(line) - len(line.lstrip(" "))
        if block is not None and (not content or indent > block):
            continue
        block = None
        if not content or content.startswith("#") or content in ("---", "..."):
            continue
        content = _COMMENT.sub("", content).rstrip() if "'" not in content and '"' not in content else content
        while content.startswith("- ") or content == "-":
            open_ = [entry for entry in open_ if entry[0] < indent or (entry[0] == indent and entry[1] != "-")]
            item, deeper = content[1:].strip(), indent + 2
            if item and not _KEY.match(item):
                found.setdefault(_path(open_), [])
                if isinstance(entries := found[_path(open_)], list):
                    entries.append(_scalar(item, YAML_NULLS))
                content = ""
                break
            open_, content, indent = [*open_, (indent, "-")], item, deeper
        if (match := _KEY.match(content)) is None:
            continue
        open_ = [entry for entry in open_ if entry[0] < indent]
        key, rest = (match[1] or match[2] or match[3]).strip(), _TAG.sub("", content[match.end() :]).strip()
        path = _path([*open_, (indent, key)])
        if _BLOCK.fullmatch(rest):
            found[path], block = LEFT_OUT, indent
        elif rest.startswith("{") and rest.endswith("}"):
            found |= {f"{path}.{name}": value for name, value in _inline(rest[1:-1]).items()}
        elif rest:
            found[path] = _scalar(rest, YAML_NULLS)
        open_ = [*open_, (indent, key)]
        if len(found) > MAX_SETTINGS:
            break
    return {name: _referred(value, found) for name, value in found.items()}


def _inline(text: str, depth: int = 1) -> dict[str, Any]:
    """Return the entries of a mapping on one line by dotted names, those of mappings inside it too."""
    found: dict[str, Any] = {}
    for part in _parts(text):
        name, mark, value = part.partition(":")
        name, value = name.strip().strip("'\""), value.strip()
        if mark and value.startswith("{") and value.endswith("}") and depth < MAX_INLINE:
            found |= {f"{name}.{inner}": entry for inner, entry in _inline(value[1:-1], depth + 1).items()}
        elif mark:
            found[name] = _scalar(value, YAML_NULLS)
    return found


def _parts(text: str, brackets: str = "{[}]") -> Iterator[str]:
    """Cut a text at its commas, but for those in brackets and quotes; a quote opens where a name or value begins."""
    opening, closing = brackets[: len(brackets) // 2], brackets[len(brackets) // 2 :]
    begin = depth = 0
    quote, before = "", ","
    for at, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"" and before in ",:=" + opening:
            quote = letter
        elif letter == "," and not depth:
            yield text[begin:at]
            begin = at + 1
        else:
            depth += (letter in opening) - (letter in closing)
            if depth < 0:  # the end of the call that it stands in
                yield text[begin:at]
                return
        before = before if letter.isspace() else letter
    yield text[begin:]


def _path(open_: Iterable[tuple[int, str]]) -> str:
    return ".".join(name for _, name in open_ if name != "-")


def _referred(value: Any, found: Mapping[str, Any]) -> Any:
    match = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
    return value if match is None else found.get(match[1], LEFT_OUT)


UNREADABLE: Final = (ValueError, TypeError, SyntaxError, MemoryError, RecursionError)
"""What Python's own reader of literals raises for what is none, and for what is nested too deeply."""
YAML_NULLS: Final = ("null", "~", "")
"""What YAML calls nothing; None, as Python has it, is a text there."""


def _scalar(text: str, nulls: Sequence[str] = (*YAML_NULLS, "none")) -> Any:
    if len(text) > 1 and text[0] in "'\"" and text.endswith(text[0]):
        return text[1:-1]
    text = _COMMENT.sub("", text).rstrip()
    if text.startswith("[") and text.endswith("]"):
        return [_scalar(part.strip(), nulls) for part in text[1:-1].split(",") if part.strip()]
    lower = text.lower()
    if lower in nulls:
        return None
    return {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}.get(lower, text)


_OVERRIDE: Final = compiled(r"[+~]{0,2}([A-Za-z_][\w./-]*(?:@[\w.]+)?)=(.*)", re.DOTALL)
_OPTION: Final = compiled(r"--?([A-Za-z][\w.-]*)(?:=(.*))?", re.DOTALL)


def command_settings(words: Iterable[Any]) -> dict[str, Any]:
    """Return the settings of a command line: `a.b=1` as Hydra has it, `--name value`, `--name=value`, `--flag`."""
    found: dict[str, Any] = {}
    waiting = last = None  # the option that waits for its value, and the one that may have more of them
    for word in map(str, words):
        option, override = _OPTION.fullmatch(word), _OVERRIDE.fullmatch(word)
        if option is not None:
            name = option[1].replace("-", "_")
            found[name] = True if option[2] is None else _scalar(option[2])
            waiting = name if option[2] is None else None
            last = None
        elif waiting is not None:
            found[waiting], last, waiting = _scalar(word), waiting, None
        elif last is not None and isinstance(plain_setting(word), int | float):
            found[last] = [*(before if isinstance(before := found[last], list) else [before]), word]
        elif override is not None:
            found[override[1]] = _scalar(override[2])
    return found


def _words(text: str) -> Iterator[str]:
    """Yield the words of the commands in a shell script that give settings; variables stay as they are spelt."""
    for command in text.replace("\\\n", " ").splitlines():
        if "=" not in command and "--" not in command:
            continue
        try:
            words = shlex.split(command, comments=True)
        except ValueError:  # a quote that goes on
            words = command.split()
        assigned = list(takewhile(_ASSIGNED.fullmatch, words))
        if len(assigned) < len(words):  # variables of the shell alone are no settings
            yield from words[len(assigned) :]
        elif len(words) == 1 and (value := words[0].partition("=")[2]).startswith("("):
            yield from value.strip("()").split()


_ASSIGNED: Final = compiled(r"[A-Za-z_]\w*=.*", re.DOTALL)
_CONFIG_CALL: Final = compiled(r"(?:Config|Arguments|Args|Params|Settings|Trainer)$")


def python_settings(text: str) -> dict[str, Any]:
    """Return the settings that a script gives to `...Config(...)` and the like, where they stand as plain values."""
    try:
        tree = ast.parse(text)
    except UNREADABLE:
        return {}
    found: dict[str, Any] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if not _CONFIG_CALL.search(called):
            continue
        for keyword in node.keywords:
            if keyword.arg is not None:
                found[keyword.arg] = _literal(keyword.value)
    return found


_PINNED: Final = compiled(
    r"^[ \t]*(?:-[ \t]*)?([A-Za-z0-9][\w.-]{0,79})(?:\[[\w,.-]*\])?[ \t]*"
    r"(?:===?[ \t]*([\w.+!*-]{1,80})|@[ \t]*((?:git\+)?(?:https?|ssh|file)://[^\s;]{1,300}))(?![^\s,;#\\])",
    re.MULTILINE,
)
"""A pin or a direct reference, as PEP 440 and PEP 508 write them: a prompt, `user@host:~$`, is neither."""
_CONDA: Final = compiled(r"^[ \t]*-[ \t]*([A-Za-z0-9][\w.-]{0,79})=(\d[\w.+!-]{0,40})", re.MULTILINE)
_LOCKED: Final = compiled(r'^name = "([A-Za-z0-9][\w.-]{0,79})"\r?\nversion = "([^"\s]{1,40})"', re.MULTILINE)
_LISTED: Final = compiled(
    r"^([A-Za-z0-9][\w.-]{0,79})(?: {2,}(\d[\w.+!-]{0,40})(?:\s.*)?| (\d+\.\d[\w.+!-]{0,40}))$", re.MULTILINE
)
_CARD: Final = compiled(
    r"^[-*] (TRL|Transformers|Pytorch|Datasets|Tokenizers|PEFT|Unsloth|Accelerate):? +(\S{1,40})$", re.MULTILINE
)
_COMMIT: Final = compiled(r"@([0-9a-f]{7,40})(?:#.*)?$")


def listed_packages(text: str) -> dict[str, str]:
    """Return the versions in `pip freeze`, requirements, a lock, a Conda environment or `pip list`; a commit counts
    as `git+COMMIT`."""
    found: dict[str, str] = {}
    for pattern in (_PINNED, _LOCKED, _CONDA, _LISTED):
        for name, *versions in pattern.findall(text):
            if len(found) < MAX_PACKAGES:
                found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), _version("".join(versions)))
    if "pytorch" in found:
        found.setdefault("torch", found.pop("pytorch"))
    return found


def _version(text: str) -> str:
    if "://" not in text and "/" not in text:
        return text
    commit = _COMMIT.search(text)
    return f"git+{commit[1][:12]}" if commit else "git"


def card_packages(text: str) -> dict[str, str]:
    """Return the framework versions that a Hugging Face trainer writes into its model card."""
    return {PACKAGE_NAMES[name.lower()]: version for name, version in _CARD.findall(text)}


_NAMED: Final = "|".join(
    sorted(map(re.escape, {*PACKAGE_NAMES, "ms-swift", "nemo-rl", "prime-rl", "flash-attn"}), key=len, reverse=True)
)
_BANNER: Final = compiled(
    rf"(?<![\w./-])({_NAMED})(?: ?==| version[:=]? ?|[ _]v?(?:ersion)?[:=] ?| v|: v?)['\"]?(\d+\.\d+[\w.+]{{0,40}})",
    re.IGNORECASE,
)
_BANNERS: Final = (
    (compiled(r"Unsloth (\d{4}\.\d+\.\d+)[^\n]{0,40}patching"), "unsloth"),
    (compiled(r"LLM engine \(v(\d+\.\d+[\w.+]{0,40})\)"), "vllm"),
    (compiled(r"vLLM API server version (\d+\.\d+[\w.+]{0,40})"), "vllm"),
    (compiled(r'"transformers_version": "(\d+\.\d+[\w.+]{0,40})"'), "transformers"),
    (compiled(r"DeepSpeed info: version=(\d+\.\d+[\w.+]{0,40})"), "deepspeed"),
)  # fmt: skip


def banner_packages(text: str) -> dict[str, str]:
    """Return the versions that programs print when they start: `vllm==0.8.4`, `Transformers: 4.51.3`."""
    found: dict[str, str] = {}
    for pattern, name in _BANNERS:
        if match := pattern.search(text):
            found[name] = match[1]
    for name, version in _BANNER.findall(text):
        key = name.lower()
        found.setdefault(PACKAGE_NAMES.get(key.replace("-", "_"), key), version.rstrip("."))
    return found


_LINE_HEAD: Final = compiled(r"^(?:\x1b\[\d+m)?\([^)\n]{1,80}pid=\d+[^)\n]*\)(?:\x1b\[0m)? ?", re.MULTILINE)
_PRINTED: Final = compiled(r"^\{'[A-Za-z_]\w*': ", re.MULTILINE)
MAX_TRIED: Final = 20  # dicts that may be the settings: each may have to be followed to its end
MAX_PRINTED: Final = 60_000  # characters of settings that a trainer prints when it starts


def printed_settings(text: str) -> dict[str, Any]:
    """Return the settings that a trainer prints as a dict when it starts (veRL, rLLM)."""
    text = _LINE_HEAD.sub("", text)
    for match in islice(_PRINTED.finditer(text), MAX_TRIED):
        end = _closing(text, match.start())
        if end is None:
            continue
        try:
            found = ast.literal_eval(text[match.start() : end])
        except UNREADABLE:
            continue
        if isinstance(found, dict) and any(isinstance(value, dict) for value in found.values()):
            return _dotted({str(key): value for key, value in found.items()})
    return {}


_LISTED_ARGUMENT: Final = compiled(r"^ *(?:\[[^\]\n]{0,40}\]:? *)?([a-z]\w{1,60}) \.{3,60} ?(.*)$", re.MULTILINE)


def listed_arguments(text: str) -> dict[str, Any]:
    """Return the arguments that Megatron prints when it starts: a name, dots, a value; a log may keep a few of them."""
    return {name: _scalar(value.strip()) for name, value in _LISTED_ARGUMENT.findall(_LINE_HEAD.sub("", text))}


_FIELDS: Final = compiled(
    r"\b[A-Z]\w{0,40}(?:Config|Arguments)\(\n((?:\w{1,60}=[^\n]{0,2000},\n){8,400})\)", re.MULTILINE
)


def printed_fields(text: str) -> dict[str, Any]:
    """Return the arguments that a Hugging Face trainer prints: `GRPOConfig(`, then a name and its value a line."""
    match = _FIELDS.search(text)
    fields = (line.removesuffix(",").partition("=") for line in match[1].splitlines()) if match else ()
    return {name: _scalar(value) for name, _, value in fields if not value.startswith("<")}


_NAMESPACE: Final = compiled(r"\bNamespace\(.{1,60000}\)")


def namespace_arguments(text: str) -> dict[str, Any]:
    """Return the arguments of an `argparse.Namespace` that a trainer prints on one line (slime, miles)."""
    for match in _NAMESPACE.finditer(text):
        try:
            call = ast.parse(match[0], mode="eval").body
            if isinstance(call, ast.Call):
                return {one.arg: _literal(one.value) for one in call.keywords if one.arg is not None}
        except UNREADABLE:
            continue
    return {}


ENGINE: Final = "engine"  # above what an engine prints of its settings
DEFAULTS: Final = f"{ENGINE}.sampling_defaults"  # of requests that leave them out
_ENGINE_CALLS: Final = compiled(r"LLM engine \(v[^)\n]{1,40}\) with config: (.+)|\bserver_args=ServerArgs\((.+)")
_ENGINE_MAPS: Final = compiled(
    r"(non-default args|[Dd]efault (?:\w+ )?sampling params? from model): \{(.*)\}"
    r"|\bUsing (\w+) (?:attention )?backend\b"
)
_OVERRIDDEN: Final = "Default sampling parameters have been overridden by the model"


def engine_settings(text: str) -> dict[str, Any]:
    """Return what vLLM and SGLang print of their settings as they start, by dotted names under `engine`."""
    found: dict[str, Any] = {}
    for match in _ENGINE_CALLS.finditer(text):
        found |= _arguments(ENGINE, (match[1] or match[2])[:MAX_PRINTED])
    for kind, entries, backend in _ENGINE_MAPS.findall(text):
        if backend:
            found.setdefault(f"{ENGINE}.attention_backend", backend)
        else:
            above = ENGINE if kind.startswith("non") else DEFAULTS
            found |= {f"{above}.{name}": value for name, value in _inline(entries[:MAX_PRINTED]).items()}
    if _OVERRIDDEN in text:
        found[f"{ENGINE}.model_sampling_defaults"] = True
    return found


def _arguments(above: str, text: str, depth: int = 1) -> dict[str, Any]:
    """Return the arguments of a call or a mapping as printed, those of calls and mappings inside it too."""
    found: dict[str, Any] = {}
    for part in _parts(text, "{[(}])"):
        name, value = (side.strip() for side in part.partition("=")[::2])
        if not name.isidentifier() or not value:
            continue
        if value.startswith("{"):
            found |= {f"{above}.{name}.{inner}": entry for inner, entry in _inline(value.strip("{}")).items()}
        elif (call := _PRINTED_CALL.match(value)) is not None:
            inside = value[call.end() :] if depth < MAX_INLINE else ""
            found |= _arguments(f"{above}.{name}", inside, depth + 1)
        else:
            found[f"{above}.{name}"] = _scalar(value)
    return found


_PRINTED_CALL: Final = compiled(r"[A-Za-z_][\w.]*\(")


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except UNREADABLE:  # a name, a call, an object that only its program can make
        return LEFT_OUT


def _closing(text: str, start: int) -> int | None:
    depth = 0
    for match in re.finditer(r"[{}]", text[start : start + MAX_PRINTED]):
        depth += 1 if match[0] == "{" else -1
        if depth == 0:
            return start + match.end()
    return None


def pickled_settings(found: Plain) -> dict[str, Any]:
    """Return the settings of `training_args.bin`: the state of one object, whose enumerations stand by their value."""
    state = found.state if isinstance(found, Node) else None
    if not isinstance(state, dict):
        return {}
    settings: dict[str, Any] = {}
    for name, value in state.items():
        if isinstance(value, Node):
            value = value.args[0] if len(value.args) == 1 else LEFT_OUT
        if isinstance(name, str) and not name.startswith("_"):
            settings[name] = value
    return settings
