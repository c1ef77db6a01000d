"""The recordings that two other tools make of their own faults, judged: is the first finding about the right link?

`python -m benchmarks.rivals --python PYTHON` makes each kind of rlprobe 0.1.0 and rldoctor 0.2.0 with PYTHON, which has
both (`pip install rlprobe==0.1.0 rldoctor==0.2.0`), and judges it as its writer spells it and under other names. Seeds
0 to 2 were used for tuning, 3 to 5 were not.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import polars as pl

from ptt import api
from ptt.diagnostics.model import Severity

Row = dict[str, Any]
LINKS: Final[Mapping[str, Mapping[str, frozenset[str]]]] = {
    "rlprobe": {
        "healthy": frozenset(),
        "kl_blowup": frozenset({"policy_update"}),
        "entropy_collapse": frozenset({"exploration"}),
        "reward_hack_length": frozenset({"reward"}),
        "format_gaming": frozenset({"reward"}),
        "clip_saturation": frozenset({"policy_update"}),
        "degenerate_groups": frozenset({"training_signal"}),
        "adv_collapse": frozenset({"training_signal"}),
        "value_divergence": frozenset({"critic"}),
        "grad_pathology": frozenset({"numerics"}),
        "truncation_starve": frozenset({"training_signal"}),
        "repetition_spiral": frozenset({"reward", "exploration"}),  # answers repeat themselves while entropy halves
        "reward_std_death": frozenset({"training_signal"}),
        "ref_drift_asymmetry": frozenset({"policy_update"}),
        "throughput_rot": frozenset({"systems"}),
    },
    "rldoctor": {
        "healthy": frozenset(),
        "entropy_collapse": frozenset({"exploration"}),
        "saturated_groups": frozenset({"training_signal"}),
        "too_hard": frozenset({"training_signal"}),
        "reward_hacking": frozenset({"reward"}),
        "length_hacking": frozenset({"reward"}),
        "truncation": frozenset({"training_signal"}),
        "kl_blowup": frozenset({"policy_update"}),
        "clip_saturation": frozenset({"policy_update"}),
        "grad_spikes": frozenset({"numerics"}),
        "plateau": frozenset({"reward"}),
        "format_domination": frozenset({"reward"}),
    },
}
"""Each kind, and the links that name it; none: the run is sound."""
OWN: Final = "own"
RENAMED: Final[Mapping[str, Mapping[str, str]]] = {
    "slashes": {  # as a home-made loop groups its curves
        "reward_mean": "rollout/mean_reward", "reward": "rollout/mean_reward", "reward_std": "rollout/reward_std",
        "reward_min": "rollout/reward_min", "reward_max": "rollout/reward_max", "kl_mean": "policy/kl_to_ref",
        "kl": "policy/kl_to_ref", "kl_max": "policy/kl_to_ref_max", "entropy_mean": "policy/token_entropy",
        "entropy": "policy/token_entropy", "clip_fraction": "policy/clip_frac",
        "clip_ratio/region_mean": "policy/clip_frac", "clip_ratio/low_mean": "policy/clip_frac_low",
        "clip_ratio/high_mean": "policy/clip_frac_high", "ratio_mean": "policy/ratio",
        "zero_variance_group_frac": "rollout/frac_groups_all_same",
        "frac_reward_zero_std": "rollout/frac_groups_all_same",
        "group_reward_std_mean": "rollout/within_group_std", "adv_std": "policy/advantages_std",
        "adv_mean": "policy/advantages_mean", "adv_zero_frac": "policy/advantages_zero_frac",
        "completion_len_mean": "rollout/response_length", "completions/mean_length": "rollout/response_length",
        "completion_len_max": "rollout/response_length_max", "truncation_rate": "rollout/truncated_frac",
        "completions/clipped_ratio": "rollout/truncated_frac", "repetition_rate": "rollout/repetition_frac",
        "grad_norm": "optim/gradient_norm", "lr": "optim/learning_rate", "learning_rate": "optim/learning_rate",
        "loss": "policy/loss", "value_loss": "critic/value_loss",
        "value_explained_variance": "critic/explained_var", "step_time_s": "time/step_seconds",
        "step_time": "time/step_seconds", "generation_time_s": "time/rollout_seconds",
        "optimization_time_s": "time/update_seconds", "reward_component.correctness": "reward/correctness",
        "reward_component.format": "reward/format", "rewards/correctness/mean": "reward/correctness",
        "rewards/format/mean": "reward/format", "eval/accuracy": "test/acc",
    },
    "flat": {  # as one writes them into a CSV by hand
        "reward_mean": "avg_reward", "reward": "avg_reward", "reward_std": "std_reward", "reward_min": "min_reward",
        "reward_max": "max_reward", "kl_mean": "approx_kl_ref", "kl": "approx_kl_ref", "kl_max": "max_kl_ref",
        "entropy_mean": "policy_entropy", "entropy": "policy_entropy", "clip_fraction": "clipfrac",
        "clip_ratio/region_mean": "clipfrac", "clip_ratio/low_mean": "clipfrac_low",
        "clip_ratio/high_mean": "clipfrac_high", "ratio_mean": "mean_ratio",
        "zero_variance_group_frac": "degenerate_group_ratio", "frac_reward_zero_std": "degenerate_group_ratio",
        "group_reward_std_mean": "group_std", "adv_std": "std_advantage", "adv_mean": "mean_advantage",
        "adv_zero_frac": "zero_advantage_ratio", "completion_len_mean": "avg_response_len",
        "completions/mean_length": "avg_response_len", "completion_len_max": "max_response_len",
        "truncation_rate": "truncation_ratio", "completions/clipped_ratio": "truncation_ratio",
        "repetition_rate": "repeat_ratio", "grad_norm": "global_grad_norm", "lr": "current_lr",
        "learning_rate": "current_lr", "loss": "pg_loss", "value_loss": "vf_loss",
        "value_explained_variance": "vf_explained_variance", "step_time_s": "seconds_per_step",
        "step_time": "seconds_per_step", "generation_time_s": "generation_seconds",
        "optimization_time_s": "training_seconds", "reward_component.correctness": "correctness_reward",
        "reward_component.format": "format_reward", "rewards/correctness/mean": "correctness_reward",
        "rewards/format/mean": "format_reward", "eval/accuracy": "val_accuracy",
    },
}  # fmt: skip
"""Other spellings of what they record, each a set of its own; what has no other name keeps its own."""
DRIVER: Final = """
import json, sys
from pathlib import Path
from rl_doctor.simulate import simulate
from rlprobe.testing.synth import generate_run
for task in json.load(sys.stdin):
    folder, kind, seed = Path(task["folder"]), task["kind"], task["seed"]
    folder.mkdir(parents=True)
    if task["tool"] == "rlprobe":
        generate_run(folder, None if kind == "healthy" else kind, seed=seed)
        continue
    records, config = simulate(kind, seed=seed)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + chr(10) for record in records))
    (folder / "config.json").write_text(json.dumps(config))
"""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What was said of one recording; of each finding severity, link, id and claim."""

    tool: str
    kind: str
    seed: int
    spelling: str
    said: tuple[tuple[str, str, str, str], ...]  # of each finding, causes first
    headline: str

    @property
    def alarms(self) -> tuple[str, ...]:
        """Findings of medium or above."""
        return tuple(rule for severity, _, rule, _ in self.said if Severity(severity).at_least(Severity.MEDIUM))

    @property
    def right(self) -> bool:
        """Whether the first finding is of the right link; of a sound run, whether none is of medium or above."""
        links = LINKS[self.tool][self.kind]
        return bool(self.said) and self.said[0][1] in links if links else not self.alarms


def make(python: str, folder: Path, seeds: Sequence[int]) -> list[Path]:
    """Have every kind of both tools recorded for these seeds, under their names and under others; return the runs."""
    tasks = [
        {"tool": tool, "kind": kind, "seed": seed, "folder": str(folder / tool / kind / str(seed) / OWN)}
        for tool, kinds in LINKS.items()
        for kind in kinds
        for seed in seeds
    ]
    subprocess.run([python, "-c", DRIVER], input=json.dumps(tasks), text=True, check=True)
    runs = [Path(str(task["folder"])) for task in tasks]
    return [path for run in runs for path in (run, *_renamed(run))]


def _renamed(run: Path) -> Iterator[Path]:
    """Write the curves of a recording under each set of other names."""
    for spelling, names in RENAMED.items():
        folder = run.parent / spelling
        folder.mkdir()
        rows = [{names.get(name, name): value for name, value in row.items()} for row in _rows(run)]
        if spelling == "flat":
            pl.DataFrame(rows, infer_schema_length=None).write_csv(folder / "log.csv")
        else:
            (folder / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        yield folder


def _rows(run: Path) -> list[Row]:
    """Read the numbers of a recording, a row a step."""
    if (run / "metrics.jsonl").exists():
        return [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    table = pl.read_parquet(run / "steps.parquet").drop("kl_positional", "timestamp", "rank", strict=False)
    return [{name: value for name, value in row.items() if value is not None} for row in table.to_dicts()]


def judge(run: Path) -> Judged:
    """Judge one recording as `ptt diagnose` would."""
    tool, kind, seed, spelling = run.parts[-4:]
    diagnosis = api.diagnose(run)
    found = sorted(diagnosis.findings, key=lambda one: one.consequence_of is not None)  # what follows from it after it
    said = tuple((one.severity.value, one.link.value, one.id, one.claim) for one in found)
    return Judged(
        tool=tool, kind=kind, seed=int(seed), spelling=spelling, said=said, headline=diagnosis.verdict.headline
    )


def table(found: Sequence[Judged]) -> str:
    """Return the figures, and each recording that was not judged right."""
    lines = ["| tool | names | right link | sound, nothing of medium or above |", "|---|---|---:|---:|"]
    for tool in LINKS:
        for spelling in (OWN, *RENAMED):
            some = [one for one in found if (one.tool, one.spelling) == (tool, spelling)]
            broken = [one.right for one in some if LINKS[tool][one.kind]]
            sound = [one.right for one in some if not LINKS[tool][one.kind]]
            lines.append(f"| {tool} | {spelling} | {sum(broken)} of {len(broken)} | {sum(sound)} of {len(sound)} |")
    broken = [one.right for one in found if LINKS[one.tool][one.kind]]
    lines += ["", f"Right link: {sum(broken)} of {len(broken)} ({sum(broken) / max(1, len(broken)):.1%}).", ""]
    lines += [
        f"- {one.tool} {one.kind} {one.seed} {one.spelling}: {one.headline}"
        + "".join(f"\n    {severity} {link} {rule}: {claim}" for severity, link, rule, claim in one.said[:3])
        for one in found
        if not one.right
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> None:
    """Make, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", required=True, help="a Python that has rlprobe and rldoctor")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", action="append", default=[], help="kinds by name; all by default")
    parser.add_argument("--spelling", action="append", default=[], help="own, slashes or flat; all by default")
    chosen = parser.parse_args(arguments)
    with TemporaryDirectory() as folder, ProcessPoolExecutor(chosen.workers, mp_context=get_context("spawn")) as pool:
        runs = make(chosen.python, Path(folder), chosen.seeds)
        runs = [run for run in runs if run.parts[-3] in chosen.only or not chosen.only]
        runs = [run for run in runs if run.parts[-1] in chosen.spelling or not chosen.spelling]
        print(table(list(pool.map(judge, runs))))


if __name__ == "__main__":
    main(sys.argv[1:])
