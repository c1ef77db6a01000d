"""How often the cause of a mismatch is named right, on dumps into which one was put: docs/mismatch.md.

A folder of cases: one folder each, a run as `ptt diagnose` reads it, and truth.json, which holds for each of them
`cause` (a name of `CAUSES`, or healthy), `accept` (causes that the data cannot tell from it) and `size` (times the
healthy mean |r| of that dump).

    python -m benchmarks.mismatch_causes FOLDER [--sizes 10 0] [--every 1] [--page]
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import ptt
from ptt.diagnostics.model import Diagnosis

PAGE: Final = Path(__file__).parent.parent / "docs" / "mismatch.md"
HEALTHY: Final = "healthy"
NOTHING: Final = "no cause"
COPIED: Final = "copied-logprobs"  # says itself which column is which
START, END = "<!-- made by make bench-mismatch -->\n", "<!-- end -->\n"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What was put into a case, and what the diagnosis names: none, one cause, or two that it cannot tell apart."""

    cause: str
    accept: frozenset[str]
    size: int
    named: tuple[str, ...]

    @property
    def first(self) -> bool:
        """Whether the first cause is one that the data cannot tell from what was put in."""
        return self.named[:1] == (HEALTHY,) if self.cause == HEALTHY else bool({*self.named[:1]} & self.accept)

    @property
    def among(self) -> bool:
        """Whether one of the two named is."""
        return self.first or bool({*self.named} & self.accept)


def named_causes(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Return the causes of the first finding that carries an answer: two where it does not tell them apart."""
    for finding in diagnosis.findings:
        first, pair = finding.evidence.get("cause_1"), finding.evidence.get("cannot_tell_apart")
        if first is not None:
            return tuple(str(pair).split(" or ")) if pair else (str(first),)
    copied = any(finding.id == COPIED for finding in diagnosis.findings)
    return ("copied-column",) if copied else ()


def answers(folder: Path, *, sizes: Iterable[int], every: int) -> Iterator[Answer]:
    """Diagnose the cases of these sizes, or of each cause and size every so many."""
    truth: dict[str, dict[str, Any]] = json.loads((folder / "truth.json").read_text())
    wanted = [name for name in sorted(truth) if not sizes or truth[name]["size"] in {*sizes}]
    for name in wanted[::every]:
        case, named = truth[name], named_causes(ptt.diagnose(folder / name))
        accept = frozenset(case["accept"])
        answer = Answer(cause=case["cause"], accept=accept, size=case["size"], named=named or (HEALTHY,))
        print(f"{name}: {' or '.join(answer.named)}{'' if answer.first else '  <-'}", flush=True)
        yield answer


def page_of(found: list[Answer]) -> str:
    """Return the confusion matrix, largest cases first, and how often the answer is right by size."""
    lines = ["| put in | size | cases | first named | first right | one of two right |", "|---|---|---|---|---|---|"]
    for size in sorted({one.size for one in found}, reverse=True):
        for cause in sorted({one.cause for one in found if one.size == size}):
            cases = [one for one in found if (one.size, one.cause) == (size, cause)]
            firsts = Counter(one.named[0] if one.named != (HEALTHY,) else NOTHING for one in cases)
            told = ", ".join(f"{name} {number}" for name, number in sorted(firsts.items(), key=lambda item: -item[1]))
            right, among = sum(one.first for one in cases), sum(one.among for one in cases)
            lines.append(f"| {cause} | {size or ''} | {len(cases)} | {told} | {right} | {among} |")
    lines.append("")
    for size in sorted({one.size for one in found} - {0}, reverse=True):
        cases = [one for one in found if one.size == size]
        two = sum(len(one.named) > 1 for one in cases)
        lines.append(
            f"- {size} times the healthy mean |r|: the first cause is right in {sum(one.first for one in cases)} of "
            f"{len(cases)}, one of the two in {sum(one.among for one in cases)}; two are named in {two}."
        )
    healthy = [one for one in found if one.cause == HEALTHY]
    lines.append(f"- Healthy: {sum(not one.first for one in healthy)} of {len(healthy)} are accused.")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Diagnose the cases, print the matrix, and write it into the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sizes", type=int, nargs="*", default=[])
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--page", action="store_true")
    asked = parser.parse_args()
    made = page_of(list(answers(asked.folder, sizes=asked.sizes, every=asked.every)))
    print(made)
    if asked.page:
        before, rest = PAGE.read_text().split(START)
        PAGE.write_text(f"{before}{START}\n{made}\n{rest[rest.index(END) :]}")


if __name__ == "__main__":
    main()
