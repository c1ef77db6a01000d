"""Make sums.eval and sums.json with Inspect AI itself: `pip install inspect_ai`, then run this file here.

Two samples, one right and one whose tool raises, answered by the library's own mock model. Of the plain log the mock
model's arguments are left out: they repeat its answers.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import tiktoken
from inspect_ai import Task
from inspect_ai import eval as evaluate
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import ToolError, tool

HERE = Path(__file__).parent


class Words:
    """Counts tokens without fetching a vocabulary."""

    def encode(self, text: str, **_: object) -> list[str]:
        return text.split()


@tool
def add():
    async def execute(a: int, b: int):
        """Add two numbers, the first of which is not negative.

        Args:
            a: the first
            b: the second
        """
        if a < 0:
            raise ToolError("negative")
        return a + b

    return execute


def main() -> None:
    tiktoken.get_encoding = tiktoken.encoding_for_model = lambda _: Words()
    name = "mockllm/model"
    for form in ("eval", "json"):
        answers = [
            ModelOutput.for_tool_call(name, "add", {"a": 1, "b": 2}),
            ModelOutput.from_content(name, "it is 3"),
            ModelOutput.for_tool_call(name, "add", {"a": -1, "b": 2}),
            ModelOutput.from_content(name, "it failed"),
        ]
        task = Task(
            name="sums",
            dataset=[Sample(id="one", input="1 + 2?", target="3"), Sample(id="two", input="-1 + 2?", target="1")],
            solver=[use_tools(add()), generate()],
            scorer=includes(),
        )
        with tempfile.TemporaryDirectory() as folder:
            evaluate(
                task,
                model=get_model(name, custom_outputs=answers),
                log_format=form,
                log_dir=folder,
                max_samples=1,
                display="none",
                temperature=0.5,
                max_tokens=64,
            )
            (made,) = Path(folder).iterdir()
            shutil.copy(made, HERE / f"sums.{form}")
    path = HERE / "sums.json"
    log = json.loads(path.read_text())
    log["eval"]["model_args"] = {}
    path.write_text(json.dumps(log, indent=2))


if __name__ == "__main__":
    main()
