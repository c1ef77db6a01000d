"""What the words of a metric's name tell: an outcome, a judge's score, text that repeats itself."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

WORD: Final = re.compile(r"[a-z]+|\d+")
CAMEL: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")

RANKING: Final = frozenset({"ndcg", "mrr", "recall"})
"""Words of how well right things are found or ranked: a level of a few hundredths may be a good one."""
OUTCOME: Final = RANKING | frozenset(
    {"accuracy", "acc", "accuracies", "correct", "correctness", "success", "successes", "solved", "resolved", "pass",
     "exact", "em", "outcome", "win", "verified", "maj"}
)  # fmt: skip
"""Words of a figure that says whether the task was done, not what was paid for it."""
ASIDE: Final = frozenset({"format", "style", "tag", "tags", "xml", "json", "tool", "tools", "call", "calls"})
"""Words of what may be right while the task is not done: a tool call's success is none of the task."""
NO_OUTCOME: Final = frozenset(
    {"filter", "filters", "filtered", "filtering", "dropped", "evicted", "discarded",
     "len", "lens", "lengths", "seqs", "steps"}
)  # fmt: skip
"""Words of counts of samples that are left out, and of sizes: how many solved prompts a filter takes, or how long right
answers are, is no outcome."""
PROMPT_SHARE: Final = re.compile(
    r"solved?_(?:all|none|some|partial)$"
)  # prime-rl, rLLM: shares of prompts, not of answers
REWARD: Final = frozenset({"reward", "rewards", "score", "scores", "return", "returns"})
LOSS_WORDS: Final = frozenset({"loss", "nll", "perplexity", "ppl"})
JUDGE: Final = frozenset({"judge", "llm", "rubric", "grader", "gpt", "preference", "critique"})
REFUSAL: Final = frozenset({"refusal", "refusals", "refused"})
REPETITION: Final = frozenset({"repetition", "repetitions", "repeat", "repeated"})
PENALTY: Final = frozenset({"penalty", "penalties", "cost", "length", "overlong"})
NOT_A_LEVEL: Final = frozenset(
    {"std", "min", "max", "var", "variance", "median", "p10", "p90", "zero", "clip", "clipped", "clipfrac", "loss",
     "kl", "entropy", "time", "timing", "seconds", "runtime", "sec", "tokens", "token", "length", "count", "num",
     "margin", "margins", "chosen", "rejected", "advantage", "advantages", "ratio", "grad", "lr", "learning", "fail",
     "failure", "failures", "error", "errors", "logp", "logps", "value", "values", "perf", "slowdown", "baseline"}
)  # fmt: skip
"""Words of figures that are no mean level of anything paid or achieved."""
NO_LEVEL: Final = frozenset(
    {"time", "times", "timing", "timings", "second", "seconds", "sec", "secs", "ms", "s", "minutes", "hours", "runtime",
     "eta", "elapsed", "duration", "latency", "gpu", "cpu", "cuda", "mem", "memory", "gb", "gib", "mb", "mib", "util",
     "utilization", "power", "disk", "network", "flops", "tflops", "mfu", "throughput", "tps", "fps", "speed", "perf",
     "system", "epoch", "epochs", "step", "steps", "iteration", "iterations", "iter", "timestamp", "seed", "version",
     "min", "max", "std", "var", "variance", "median", "percentile", "count", "counts", "num", "n", "cumulative",
     "remaining", "percentage", "progress", "size", "idx", "index", "id"}
)  # fmt: skip
"""Words of clocks, machines, counters and spreads: their series are no levels that the metrics of the table name."""


@lru_cache(maxsize=1 << 14)
def words_of(name: str) -> frozenset[str]:
    """Return the words of a name, in small letters; numbers apart."""
    return frozenset(WORD.findall(CAMEL.sub("_", name).lower()))


def is_outcome(name: str) -> bool:
    """Return whether a figure says that the task was done."""
    words = words_of(name)
    return bool(words & OUTCOME) and not words & (NOT_A_LEVEL | ASIDE | NO_OUTCOME) and not PROMPT_SHARE.search(name)


def is_reward(name: str) -> bool:
    """Return whether a figure is the level of a reward or score."""
    words = words_of(name)
    return bool(words & REWARD) and not words & NOT_A_LEVEL


def is_judge(name: str) -> bool:
    """Return whether a figure is the level that a model gave as a judge."""
    words = words_of(name)
    return bool(words & JUDGE) and not words & NOT_A_LEVEL
