"""Read the few settings that name an algorithm from a configuration that a trainer pretty-prints to its console."""

from __future__ import annotations

import re
from typing import Final

from ptt.diagnostics.parsers.io.telemetry import Facts, plain_setting

WANTED: Final = {
    ("algorithm", "adv_estimator"): "adv_estimator",
    ("algorithm", "use_kl_in_reward"): "use_kl_in_reward",
    ("policy_loss", "loss_mode"): "loss_mode",
    ("rollout", "n"): "rollout_n",
    ("actor", "use_kl_loss"): "use_kl_loss",
    ("data", "train_batch_size"): "train_batch_size",
}
"""By the last two keys: what it is called among a run's settings. Names are veRL's."""
MARKS: Final = (b"': {", *(f"'{key}':".encode() for _, key in WANTED))
ENTRY: Final = re.compile(r"'(\w{1,64})': (?:(\{)|([^,{}\s]{1,64}))")
MAX_DEPTH: Final = 16


class PrintedConfig:
    """Follows the lines of `pprint`: a key's column tells what it stands under, whatever prefix all lines have."""

    def __init__(self) -> None:
        self.facts: Facts = {}
        self._open: list[tuple[int, str]] = []  # column and key of the dictionaries around

    def see(self, line: bytes) -> None:
        """Take a line of the console."""
        if not any(mark in line for mark in MARKS):
            return
        for entry in ENTRY.finditer(line.decode("utf-8", "replace")):
            column, (key, opens, value) = entry.start(), entry.groups()
            while self._open and self._open[-1][0] >= column:
                self._open.pop()
            if opens:
                self._open.append((column, key))
                del self._open[:-MAX_DEPTH]
            elif self._open and (name := WANTED.get((self._open[-1][1], key))) is not None:
                fact = plain_setting(value.strip("'"))
                if fact is not None:
                    self.facts.setdefault(name, fact)
