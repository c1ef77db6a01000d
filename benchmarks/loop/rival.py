"""Microsoft's post-training toolkit on the same runs: converts them, asks it, and keeps what it said."""

from __future__ import annotations

import json
import math
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.loop.files import LOST
from benchmarks.loop.judged import BY_NAME, Task, make
from benchmarks.loop.made import Made
from benchmarks.loop.names import RIVAL, RIVAL_GRPO, RIVAL_LOSS
from ptt.diagnostics.model import Severity

TRAINERS: Final = {"sft": "sft", "dpo": "dpo", "ppo": "ppo", "grpo": "grpo", "grpo-tools": "grpo"}
BATCH: Final = 100
DRIVER: Final = """
import json, sys, warnings
from pathlib import Path
warnings.simplefilter("ignore")
from post_training_toolkit.models.engine import compute_derived_metrics, load_jsonl
from post_training_toolkit.models.heuristics import run_heuristics
told = []
for path in json.load(sys.stdin):
    try:
        frame, trainer = load_jsonl(Path(path))
        found = run_heuristics(compute_derived_metrics(frame, trainer), trainer_type=trainer)
        told.append([[one.type, one.severity] for one in found])
    except Exception as error:
        told.append([["crash: " + type(error).__name__, "crash"]])
json.dump(told, sys.stdout)
"""
ABOUT: Final[Mapping[str, tuple[str, ...]]] = {
    "reward-hacking": ("reward_hacking_suspected", "grpo_reward_length_correlation", "grpo_length_drift",
                       "reward_model_imbalance"),
    "eval-not-following": ("reward_hacking_suspected", "reward_model_imbalance"),
    "reward-shape": ("grpo_reward_collapse", "yaml_grpo_group_reward_collapse"),
    "reward-outliers": ("reward_variance_spike",),
    "components-diverge": ("reward_hacking_suspected", "reward_model_imbalance"),
    "judge-spikes": ("reward_variance_spike",),
    "reward-variance": ("reward_variance_spike", "yaml_reward_variance_spike"),
    "length-inflation": ("grpo_length_drift", "grpo_reward_length_correlation"),
    "refusals-rise": ("refusal_alert", "refusal_warn", "refusal_uptick"),
    "repetition-rise": ("repetition_rate_high",),
    "slice-degradation": ("slice_degradation",),
    "no-signal-groups": ("grpo_reward_collapse", "yaml_grpo_group_reward_collapse"),
    "advantage-scale": ("advantage_explosion", "grpo_advantage_explosion"),
    "truncated-share": ("response_truncation_rate_high",),
    "empty-responses": ("empty_response_rate_high",),
    "kl-over-target": ("kl_instability", "kl_above_target", "kl_volatility", "grpo_kl_divergence",
                       "yaml_kl_divergence_high"),
    "update-too-large": ("ppo_approx_kl_spike", "clip_fraction_high", "yaml_clip_fraction_high"),
    "clip-fraction-high": ("clip_fraction_high", "grpo_clip_ratio_high", "yaml_clip_fraction_high"),
    "one-sided-clipping": ("grpo_clip_ratio_high",),
    "ratio-explosion": ("grpo_importance_sampling_ratio_anomaly",),
    "policy-drift": ("policy_drift_alert", "policy_drift_warn"),
    "value-loss-rising": ("value_head_divergence", "yaml_value_head_divergence"),
    "explained-variance-low": ("ppo_explained_variance_low",),
    "value-scale": ("ppo_explained_variance_low", "value_head_divergence", "yaml_value_head_divergence"),
    "entropy-collapse": ("entropy_collapse", "grpo_entropy_collapse", "grpo_entropy_drop", "mode_collapse_entropy",
                         "yaml_entropy_collapse"),
    "length-collapse": ("length_collapse", "grpo_length_drift"),
    "gradient-spikes": ("gradient_explosion", "gradient_instability"),
    "gradient-vanished": ("gradient_vanishing",),
    "nan-precursors": ("gradient_explosion", "gradient_instability"),
    "loss-divergence": ("grpo_loss_divergence", "perplexity_spike"),
    "at-chance": ("dpo_loss_random", "yaml_dpo_loss_random"),
    "margin-collapse": ("margin_collapse", "yaml_margin_collapse", "dpo_loss_random", "yaml_dpo_loss_random"),
    "preference-unstable": ("win_rate_instability",),
    "preference-plateau": ("win_rate_plateau", "dpo_loss_plateau"),
    "perplexity-spikes": ("perplexity_spike",),
    "loss-plateau": ("sft_loss_plateau",),
    "odds-ratio-unstable": ("odds_ratio_instability",),
    "kto-imbalance": ("kto_loss_imbalance",),
    "too large a step, and what follows": ("ppo_approx_kl_spike", "clip_fraction_high", "yaml_clip_fraction_high"),
    "a broken critic, and what follows": ("value_head_divergence", "ppo_explained_variance_low",
                                          "yaml_value_head_divergence"),
    "collapsed entropy, and what follows": ("entropy_collapse", "grpo_entropy_collapse", "grpo_entropy_drop",
                                            "mode_collapse_entropy", "yaml_entropy_collapse"),
}  # fmt: skip
"""Which of its findings are about a fault; a fault that is not here has none that could be."""


def convert(run: Made, path: Path) -> Path:
    """Write a run as its callback would, with every curve it has a name for; a NaN is a name left out."""
    names = {**RIVAL, "loss": RIVAL_LOSS[run.algorithm]}
    if run.algorithm in ("sft", "dpo"):  # its callback keeps no entropy of these, and its floor is not meant for them
        del names["entropy"]
    columns = {names[name]: values for name, values in run.train.items() if name in names}
    if run.algorithm.startswith("grpo"):
        columns |= {RIVAL_GRPO[name]: run.train[name] for name in RIVAL_GRPO if name in run.train}
    if "reward_std" in run.train:
        columns["reward_std"] = run.train["reward_std"]
    columns |= {name: values for name, values in run.extra.items() if "/" not in name}
    trainer = TRAINERS[run.algorithm]
    if "log_odds_ratio" in run.extra or "desirable_loss" in run.extra:
        trainer = "orpo" if "log_odds_ratio" in run.extra else "kto"
    stamp = "2026-01-01T00:00:00+00:00"
    lines = [json.dumps({"type": "header", "schema_version": "1.0", "run_id": "made", "trainer_type": trainer,
                         "config_hash": None, "timestamp": stamp})]  # fmt: skip
    for place, step in enumerate(run.steps):
        row = {name: round(float(values[place]), 6) for name, values in columns.items() if _is_number(values[place])}
        lines.append(json.dumps({"step": int(step), "timestamp": stamp, "metrics": row}))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _is_number(value: float) -> bool:
    return not math.isnan(value) and value != LOST


def ask(python: str, tasks: Sequence[Task]) -> list[list[tuple[str, str]]]:
    """Have it judge the runs: type and severity of each of its findings."""
    told: list[list[tuple[str, str]]] = []
    for begin in range(0, len(tasks), BATCH):
        with TemporaryDirectory(prefix="rival-") as folder:
            paths = [
                str(convert(make(task)[0], Path(folder) / f"{number}.jsonl"))
                for number, task in enumerate(tasks[begin : begin + BATCH])
            ]
            answer = subprocess.run(
                [python, "-c", DRIVER], input=json.dumps(paths), capture_output=True, text=True, check=True
            )
        told += [[(kind, severity) for kind, severity in found] for found in json.loads(answer.stdout)]
    return told


def results(python: str, tasks: Sequence[Task], what: str) -> dict[str, Any]:
    """Ask it, and give what the page needs."""
    told = dict(zip(tasks, ask(python, tasks), strict=True))
    healthy: dict[str, Any] = {}
    faults: dict[str, Any] = {}
    for task, found in told.items():
        loud = [kind for kind, severity in found if severity in ("high", "medium")]
        if not task.fault:
            kept = healthy.setdefault(task.algorithm, {"runs": 0, "high": 0, "medium": 0, "of": Counter()})
            kept["runs"] += 1
            kept["high"] += any(severity == "high" for _, severity in found)
            kept["medium"] += bool(loud)
            kept["of"].update(f"`{kind}`" for kind in set(loud))
        else:
            note = not BY_NAME[task.fault].least.at_least(Severity.MEDIUM)
            heard = [kind for kind, _ in found] if note else loud
            kept = faults.setdefault(task.fault, {}).setdefault(task.size, {"runs": 0, "named": 0, "insights": 0})
            kept["runs"] += 1
            kept["named"] += any(kind in ABOUT.get(task.fault, ()) for kind in heard)
            kept["insights"] += len(loud)
    for kept in healthy.values():
        ordered = sorted(kept["of"].items(), key=lambda item: (-item[1], item[0]))
        kept["of"] = {name: f"{count / kept['runs']:.0%}" for name, count in ordered}
    return {"what": what, "healthy": healthy, "faults": faults}
