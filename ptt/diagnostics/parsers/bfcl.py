"""Results and scores of the Berkeley Function Calling Leaderboard, of every version so far.

Source: ShishirPatil/gorilla berkeley-function-call-leaderboard/bfcl_eval (6ea5797): model_handler/base_handler.py (rows
hold `id`, `result`, token counts, latency and, with several turns, `inference_log`), eval_checker/eval_runner.py (a
score file begins with accuracy, correct_count and total_count, and then holds the failed entries alone). Read in
HuanzhiMao/BFCL-Result 2024-07-06/result-BFCL (b4adfc9, version 1, with `idx`) and bbrowning/bfcl-vllm-results (f98223a,
version 4). The files are lines, named `.json`. A call is `{name: arguments}`, or stands in a text as Python would write
it; a model's step is a turn. A result alone is unlabelled: labels come from the score file of the same run, and the
tools that a right answer calls from `possible_answer`, where these lie beside it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Final

from ptt.diagnostics.parsers.io.interface import Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.lines import line_objects
from ptt.diagnostics.parsers.io.record_files import first_records, records, splits
from ptt.diagnostics.parsers.io.tool_calls import ERROR_TEXT, calls_of
from ptt.diagnostics.parsers.io.trajectories import Sample, Samples, read_samples
from ptt.diagnostics.parsers.io.values import (
    as_count,
    as_json,
    as_label,
    as_name,
    as_number,
    as_score,
    as_text,
    dicts_in,
    nested,
)

SUMMARY: Final = frozenset({"accuracy", "correct_count", "total_count"})
COUNTS: Final = frozenset({"input_token_count", "output_token_count", "latency", "inference_log", "traceback"})
FAILED: Final = (*ERROR_TEXT, "Error during execution:")
INFERENCE: Final = "Error during inference:"
FORCED: Final = "Model has been forced to quit"
TEXT_CHARS: Final = 20_000  # of an answer that may be calls in Python's notation: longer ones are not parsed
CALLED: Final = re.compile(r"([A-Za-z_][\w.]*)\s*\(")
CATEGORY: Final = re.compile(
    r"(?:BFCL_v\d+_|gorilla_openfunctions_v\d+_test_)?(?P<category>.+?)(?:_result|_score)?\.json.*"
)
NUMBERED: Final = re.compile(r"_\d+(?:-.*)?$")  # what an id adds to its category
MODEL: Final = re.compile(r"(?:^|/)(?:result|score)[^/]*/(?P<model>[^/]+)/")
BESIDE_BYTES: Final = 32 << 20  # of a file of scores or answers read along with a result file
UNRECORDED: Final = {"text_len": None, "text_hash": None}  # for a step whose list of calls is empty
NO_RESULT: Final = "row(s) skipped: no result."


def recognises(file: RunFile) -> bool:
    """Recognise results by their keys, and scores by the summary they begin with."""
    rows = first_records(file)
    return _is_summary(rows) or (bool(rows) and all(map(_is_row, rows[: max(1, len(rows) - 1)])))


def _is_summary(rows: list[Any]) -> bool:
    return bool(rows) and isinstance(rows[0], dict) and rows[0].keys() >= SUMMARY


def _is_row(found: Any) -> bool:
    named = isinstance(found, dict) and ("id" in found or "idx" in found) and "result" in found
    if not named or COUNTS.isdisjoint(found):
        return False
    result = found["result"]
    return isinstance(result, str) or (
        isinstance(result, list) and all(isinstance(part, dict | list | str) for part in result)
    )


def read(file: RunFile) -> Iterator[Piece]:
    """Yield one trajectory an entry, and the accuracy that a score file begins with."""
    reader = _Reader(file)
    samples = Samples(file, PARSER.name)
    yield from read_samples(samples, records(file, _is_row), reader.add, NO_RESULT)


class _Reader:
    """Entries of one file, with what lies beside it."""

    def __init__(self, file: RunFile) -> None:
        named = CATEGORY.fullmatch(file.name)
        model = MODEL.search(file.rel)
        self.category = named["category"] if named else None
        self.model = model["model"] if model else None
        self.scores = _failures(file)
        self.answers = _answers(file)

    def add(self, record: dict[str, Any], samples: Samples) -> bool:
        if record.keys() >= SUMMARY:
            accuracy, total = as_score(record["accuracy"]), as_count(record["total_count"])
            model = self.model or as_label(record.get("model_name"))
            samples.evaluated(suite=self.category, step=None, metric="accuracy", value=accuracy, n=total, model=model)
            return True
        found = record.get("result", record.get("model_result_raw", record.get("model_result")))
        name = as_label(record.get("id", record.get("idx")))
        if not isinstance(found, list | str) or name is None:
            return False
        messages, steps = _conversation(record, found)
        failure = record.get("error") if record.get("valid") is False else None
        prompt = nested(record, "prompt", "question")
        answer = self.answers.get(name, record.get("possible_answer"))
        samples.add(
            Sample(
                step=None,
                split="eval",
                completion=messages,
                identity=[self.category, self.model, name, messages],
                prompt=name,
                calls=calls_of(messages, error_text=FAILED),
                timing=_timing(messages, record.get("output_token_count")),
                asked=None if any(message["role"] == "user" for message in messages) else _asked(prompt),
                tools=dicts_in(nested(record, "prompt", "function")),
                columns={
                    "task": f"{self.category}/{name}" if name.isdecimal() and self.category else name,
                    "env": as_name(record.get("test_category")) or self.category or NUMBERED.sub("", name),
                    "model": self.model or as_label(record.get("model_name")),
                    "success": None if self.scores is None else self.scores.get(name, True),
                    "error_type": _error(record, found, failure),
                    "tokens_in": _total(record.get("input_token_count")),
                    "tokens_out": _total(record.get("output_token_count")),
                    "truncated": steps,
                    "tools_required": _required(answer, messages),
                    **({"n_turns": 0} if isinstance(found, str) and found.startswith(INFERENCE) else {}),
                },
            )
        )
        return True


Message = dict[str, Any]


def _conversation(record: dict[str, Any], found: Any) -> tuple[list[Message], bool | None]:
    """Return the messages of an entry, and whether the model was stopped; None where there is no log to say so."""
    log = record.get("inference_log")
    turns = (
        [turn for turn in log if isinstance(turn, dict) and "begin_of_turn_query" in turn]
        if isinstance(log, list)
        else []
    )
    if not turns:
        return [_said(step) for step in _steps(found)], None
    messages: list[Message] = []
    stopped = False
    for turn in turns:
        messages += _asked(turn["begin_of_turn_query"])
        for name, step in turn.items():
            if name.startswith("step_"):
                entries = dicts_in(step)
                decoded = next((e["model_response_decoded"] for e in entries if e.get("model_response_decoded")), None)
                messages += (_said(e.get("content"), decoded) for e in entries if e.get("role") == "assistant")
                messages += ({"role": "tool", "content": e.get("content")} for e in entries if e.get("role") == "tool")
                stopped = stopped or any(as_text(e.get("content")).startswith(FORCED) for e in entries[-1:])
    return messages, stopped


def _steps(found: Any) -> list[Any]:
    """Return the steps of a model: turns hold steps, steps hold calls; of a single turn the calls alone are left."""
    if isinstance(found, list) and any(isinstance(turn, list) for turn in found):
        turns = [turn if isinstance(turn, list) else [turn] for turn in found]
        return [
            step for turn in turns for step in ([turn] if turn and all(isinstance(s, dict) for s in turn) else turn)
        ]
    return [found]


def _said(content: Any, decoded: Any = None) -> Message:
    if isinstance(content, list):
        calls = [
            {"function": {"name": name, "arguments": given}}
            for call in dicts_in(content)
            for name, given in call.items()
        ]
        texts = [part for part in content if isinstance(part, str)]
        said = "\n".join(texts) if texts or calls else None
        return {"role": "assistant", "content": said} | ({"tool_calls": calls} if calls else {})
    text = as_text(content)
    calls = [call for part in (decoded if isinstance(decoded, list) else [text]) for call in _python_calls(part)]
    return {"role": "assistant", "content": text} | ({"tool_calls": calls} if calls else {})


def _python_calls(text: Any) -> Iterator[Message]:
    """Yield the calls of a text that contains only calls in Python's notation, alone or in a list."""
    if not isinstance(text, str) or len(text) > TEXT_CHARS or not CALLED.match(bare := text.strip().lstrip("[ ")):
        return
    try:
        tree = ast.parse(f"[{bare.rstrip('] ')}]" if text.strip().startswith("[") else f"[{bare}]", mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # prose, cut, or nested too deep
        return
    calls = tree.body.elts if isinstance(tree.body, ast.List) else []
    if not all(isinstance(call, ast.Call) for call in calls):
        return
    for call in calls:
        if isinstance(call, ast.Call):
            given = {f"{at}": _literal(value) for at, value in enumerate(call.args)}
            given |= {key.arg or "**": _literal(key.value) for key in call.keywords}
            yield {"function": {"name": ast.unparse(call.func), "arguments": as_json(given)}}


def _literal(value: ast.expr) -> Any:
    try:
        return ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):  # a name, or a call within the call
        return ast.unparse(value)


def _asked(found: Any) -> list[Message]:
    """Return the messages of a question, which may be a list of turns."""
    rows = found if isinstance(found, list) else []
    return [message for row in rows for message in (dicts_in(row) if isinstance(row, list) else dicts_in([row]))]


def _timing(messages: list[Message], counts: Any) -> list[dict[str, Any]]:
    """Return the tokens of each step beside its message; where a step holds no call, its text may not be recorded."""
    steps = iter(_numbers(counts))
    timing: list[dict[str, Any]] = []
    for message in messages:
        told = {"n_tokens": next(steps, None)} if message["role"] == "assistant" else {}
        timing.append(told | (UNRECORDED if message["role"] == "assistant" and message["content"] is None else {}))
    return timing


def _numbers(found: Any) -> Iterator[int | None]:
    for value in found if isinstance(found, list) else [found]:
        if isinstance(value, list):
            yield from (as_count(as_number(inner)) for inner in value)
        else:
            yield as_count(as_number(value))


def _total(found: Any) -> int | None:
    counts = [count for count in _numbers(found) if count is not None]
    return sum(counts) if counts else None


def _error(record: dict[str, Any], found: Any, failure: Any) -> str | None:
    if isinstance(found, str) and found.startswith(INFERENCE):
        return "inference_error"
    kind = as_name(record.get("error_type")) or as_name(nested(failure, "error_type"))
    return kind if failure is not None else None


def _required(answer: Any, messages: list[Message]) -> list[str] | None:
    """Return the tools that a right answer calls, spelt as the model was given them, mostly without dots."""
    called = [call["function"]["name"] for message in messages for call in message.get("tool_calls", ())]
    undotted = bool(called) and not any("." in name for name in called)
    return [name.replace(".", "_") if undotted else name for name in _names(answer)] or None


def _names(answer: Any) -> list[str]:
    """Return the tools of a possible answer: objects by name, or calls in Python's notation, perhaps by turns."""
    names: set[str] = set()
    pending = [answer]
    while pending:
        part = pending.pop()
        if isinstance(part, list):
            pending += part
        elif isinstance(part, dict):
            names |= part.keys()
        elif isinstance(part, str) and (called := CALLED.match(part)):
            names.add(called[1])
    return sorted(names)


def _beside(file: RunFile, paths: Iterable[PurePosixPath]) -> Iterator[dict[str, Any]]:
    """Yield the objects of the first of these files that is there; their paths are below the run, as `rel` is."""
    root = Path(str(file.path).removesuffix(f"/{file.rel}"))
    for rel in paths if root != file.path else ():
        path = root / rel
        links = (root.joinpath(*rel.parts[: at + 1]).is_symlink() for at in range(len(rel.parts)))
        try:
            if any(links) or not path.is_file() or path.stat().st_size > BESIDE_BYTES:
                continue
            other = RunFile(path=path, rel=str(rel), size=path.stat().st_size, budget=file.budget)
            yield from [row for row in line_objects(other) if isinstance(row, dict)]
        except OSError:  # gone by now, or not readable
            continue
        return


def _failures(file: RunFile) -> dict[str, bool] | None:
    """Return False for each entry that the scores of a result file list; None where no scores list all failures."""
    if "_result" not in file.name:
        return None
    rel = PurePosixPath(file.rel)
    name = file.name.replace("_result", "_score")
    rows = list(_beside(file, [folder / name for folder in (rel.parent, *_swapped(rel.parent))]))
    if not rows or not rows[0].keys() >= SUMMARY:
        return None
    failed = {label: False for row in rows[1:] if (label := as_label(row.get("id", row.get("idx")))) is not None}
    total, correct = (as_count(rows[0][key]) for key in ("total_count", "correct_count"))
    return failed if total is not None and correct is not None and total == correct + len(failed) else None


def _swapped(folder: PurePosixPath) -> Iterator[PurePosixPath]:
    """Yield the folder of the scores where results lie in a folder of their own."""
    for at, part in enumerate(folder.parts):
        if part.startswith("result"):
            yield PurePosixPath(*folder.parts[:at], part.replace("result", "score", 1), *folder.parts[at + 1 :])


def _answers(file: RunFile) -> dict[str, Any]:
    """Return the possible answers beside a result file or at the top of the run, by the names of the entries."""
    name = file.name.replace("_result", "")
    folders = (PurePosixPath(file.rel).parent, PurePosixPath(), PurePosixPath("data"))
    rows = _beside(file, [folder / "possible_answer" / name for folder in folders])
    return {label: row["ground_truth"] for row in rows if "ground_truth" in row and (label := as_label(row.get("id")))}


PARSER = Parser(
    name="bfcl",
    describes="Berkeley Function Calling Leaderboard, results and scores: trajectories, turns, tool calls, accuracy.",
    held_against="real: BFCL results of versions 1 and 4",
    priority=80,
    of_training=False,
    splits=splits,
    recognises=recognises,
    read=read,
)
