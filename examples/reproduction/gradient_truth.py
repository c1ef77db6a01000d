"""Compute by autograd what each sequence adds to the gradient: `make ledger-truth`.

A ledger of token weights estimates from logged numbers which tokens an update rests on. The model here is small enough
to know: `python -m examples.reproduction.gradient_truth baseline --steps 120 --out FOLDER` trains one recorded run,
keeps the weights and the batch of every fifth step, and takes the gradient of each token's log-probability there.
Since a loss reaches the weights only through these log-probabilities, its gradient is their sum, each times the
derivative of the loss (of TRL's own code) by that log-probability; so is the part of any sequence or slice.

FOLDER/run holds the run as `ptt` reads it; truth.parquet, slices.parquet and tokens.parquet say what is true of it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import polars as pl
import torch

from examples.reproduction.train import SETTINGS, make_trainer, parser_of, run

EVERY: Final = 5  # steps: odd, as each batch is trained on twice, and only its second step has ratios other than 1
DIFFERENCE: Final = 1e-3  # nats, and share of the gradient: what float32 may change between two ways to compute it

# The attributes of GRPOTrainer that make each loss. GSPO and CISPO clip where their papers do (arXiv 2507.18071, TRL's
# `paper_index`); Dr. GRPO does not divide advantages by their spread. Only the last one has the run's KL term.
LOSSES: Final[Mapping[str, Mapping[str, Any]]] = {
    "dapo": {"loss_type": "dapo", "beta": 0.0},
    "grpo": {"loss_type": "grpo", "beta": 0.0},
    "dr_grpo": {"loss_type": "dr_grpo", "beta": 0.0},
    "gspo": {
        "loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon_low": 3e-4, "epsilon_high": 4e-4,
        "beta": 0.0,
    },
    "cispo": {"loss_type": "cispo", "epsilon_high": 5.0, "beta": 0.0},
    "dapo+kl": {"loss_type": "dapo"},
}  # fmt: skip
SLICES: Final = ("text_only", "post_tool")


def keep_batches(trainer: Any, folder: Path, every: int) -> None:
    """Save weights and batch of every `every`-th step, as they are when its loss is computed."""
    compute = trainer._compute_loss
    folder.mkdir(parents=True, exist_ok=True)

    def computed(model: Any, inputs: dict[str, Any]) -> Any:
        step = trainer.state.global_step + 1
        if step % every == 0:
            torch.save({"weights": model.state_dict(), "inputs": inputs}, folder / f"{step:05d}.pt")
        return compute(model, inputs)

    trainer._compute_loss = computed


def loss_derivatives(trainer: Any, inputs: Mapping[str, Any], logps: Any, changed: Mapping[str, Any]) -> Any:
    """Return d loss / d log-probability of each token [B, T], 0 where no model token is."""
    leaf = logps.detach().clone().requires_grad_()
    given = patch.object(trainer, "_get_per_token_logps_and_entropies", lambda *_, **__: (leaf, leaf.detach(), None))
    with patch.multiple(trainer, **changed), given:
        trainer._compute_loss(trainer.model, inputs).backward()
    return leaf.grad


def centred(rewards: Any, groups: Sequence[str]) -> Any:
    """Return the rewards less the mean of their prompt group."""
    frame = pl.DataFrame({"reward": rewards, "group": groups})
    return torch.tensor(frame.select(pl.col("reward") - pl.col("reward").mean().over("group"))["reward"].to_list())


def after_tool(model_tokens: Any) -> Any:
    """Return where an observation precedes a token: a completion begins with the model's own."""
    return (~model_tokens).cumsum(-1) > 0


def token_gradients(trainer: Any, inputs: Mapping[str, Any], row: int) -> tuple[Any, Any]:
    """Return the places of a row's model tokens [N] and the gradients of their log-probabilities [N, weights]."""
    prompt = inputs["prompt_ids"][row][inputs["prompt_mask"][row].bool()]
    completion = inputs["completion_ids"][row][inputs["completion_mask"][row].bool()]
    tokens = torch.cat([prompt, completion])[None]
    logps = trainer._get_per_token_logps_and_entropies(
        trainer.model, tokens, torch.ones_like(tokens), len(completion)
    )[0][0]  # fmt: skip
    places = torch.nonzero(inputs["tool_mask"][row][: len(completion)])[:, 0]
    weights = list(trainer.model.parameters())
    gradients = [
        torch.cat([part.flatten() for part in torch.autograd.grad(logps[place], weights, retain_graph=True)])
        for place in places
    ]
    return places, torch.stack(gradients)


def whole_gradient(trainer: Any, inputs: Mapping[str, Any], changed: Mapping[str, Any]) -> Any:
    """Return the gradient that the trainer takes of a batch [weights]."""
    trainer.model.zero_grad()
    with patch.multiple(trainer, **changed):
        trainer._compute_loss(trainer.model, inputs).backward()
    return torch.cat([weight.grad.flatten() for weight in trainer.model.parameters()])


class StepTruth:
    """The gradients of one step, for each loss."""

    def __init__(self, trainer: Any, saved: Mapping[str, Any], rows: pl.DataFrame) -> None:
        """Load the weights; `rows` are the step as recorded, in the order of the batch."""
        self.trainer, self.inputs, self.rows = trainer, saved["inputs"], rows
        trainer.model.load_state_dict(saved["weights"])
        trainer.model.train()
        trainer.current_gradient_accumulation_steps = 1
        self.after = after_tool(self.inputs["tool_mask"].bool())
        advantages = dict.fromkeys(LOSSES, self.inputs["advantages"])
        advantages["dr_grpo"] = centred(rows["reward"], rows["group_id"].to_list())
        self.given = {loss: {**self.inputs, "advantages": advantages[loss]} for loss in LOSSES}
        self.whole = {loss: whole_gradient(trainer, self.given[loss], changed) for loss, changed in LOSSES.items()}
        self.parts = {(loss, part): torch.zeros_like(self.whole[loss]) for loss in LOSSES for part in SLICES}
        self.norms = dict.fromkeys(self.parts, 0.0)

    def measure(self) -> dict[str, pl.DataFrame]:
        """Return the three tables."""
        logps = torch.zeros(self.inputs["completion_ids"].shape)
        for row, recorded in enumerate(self.rows["policy_logp"].to_list()):
            logps[row, : len(recorded)] = torch.tensor(recorded)
        derivatives = {
            loss: loss_derivatives(self.trainer, self.given[loss], logps, changed) for loss, changed in LOSSES.items()
        }
        sequences, tokens = [], []
        for row, name in enumerate(self.rows["sample_id"]):
            places, gradients = token_gradients(self.trainer, self.inputs, row)
            values = {"score_norm": gradients.norm(dim=1)}
            values |= {loss: by_token[row, places] for loss, by_token in derivatives.items()}
            columns = {"place": places.tolist()} | {key: value.tolist() for key, value in values.items()}
            tokens.append(pl.DataFrame(columns).insert_column(0, pl.lit(name).alias("sample_id")))
            sequences += [
                {"sample_id": name} | self._sequence(loss, row, by_token[row, places], places, gradients)
                for loss, by_token in derivatives.items()
            ]
        return {
            "truth": pl.DataFrame(sequences), "slices": pl.DataFrame(self._slices()), "tokens": pl.concat(tokens),
        }  # fmt: skip

    def _sequence(self, loss: str, row: int, derivatives: Any, places: Any, gradients: Any) -> dict[str, Any]:
        """Return what a sequence adds to the gradient, and add its parts to those of the slices."""
        after = self.after[row, places]
        own = {part: (derivatives * keep) @ gradients for part, keep in zip(SLICES, (~after, after), strict=True)}
        norms = {part: float(gradient.norm()) for part, gradient in own.items()}
        for part, gradient in own.items():
            self.parts[loss, part] += gradient
            self.norms[loss, part] += norms[part]
        total = own["text_only"] + own["post_tool"]
        return {
            "loss": loss, "advantage": float(self.given[loss]["advantages"][row]),
            "tokens": len(places), "post_tokens": int(after.sum()), "grad_norm": float(total.norm()),
            "inner_product": float(total @ self.whole[loss]), **{f"{part}_norm": norms[part] for part in SLICES},
        }  # fmt: skip

    def _slices(self) -> list[dict[str, Any]]:
        """Return what each slice adds; raise where the slices do not add up to the trainer's own gradient."""
        for loss, whole in self.whole.items():
            missed = float((whole - sum(self.parts[loss, part] for part in SLICES)).norm())
            if not missed <= DIFFERENCE * float(whole.norm()):
                raise RuntimeError(f"{loss}: the parts miss {missed} of a gradient of norm {float(whole.norm())}")
        return [
            {"loss": loss, "slice": part, "norm": float(gradient.norm()), "whole_norm": float(self.whole[loss].norm()),
             "inner_product": float(gradient @ self.whole[loss]), "sum_of_norms": self.norms[loss, part]}
            for (loss, part), gradient in self.parts.items()
        ]  # fmt: skip


def recorded_step(folder: Path, step: int) -> pl.DataFrame:
    """Return the rows of a step, as the recorder wrote them."""
    return pl.read_parquet(folder / "tokens" / f"step_{step:06d}.parquet")


def measure(given: argparse.Namespace) -> None:
    """Write the three tables of a run that is trained."""
    out: Path = given.out
    tables: dict[str, list[pl.DataFrame]] = {}
    trainer = make_trainer(SETTINGS[given.name], seed=given.seed, steps=given.steps, out=out / "run", resume=False)
    for path in sorted((out / "checkpoints").glob("*.pt")):
        step = int(path.stem)
        truth = StepTruth(trainer, torch.load(path, weights_only=False), recorded_step(out / "run", step))
        for name, table in truth.measure().items():
            tables.setdefault(name, []).append(table.insert_column(0, pl.lit(step).alias("step")))
        print(f"{given.name}: step {step}", file=sys.stderr, flush=True)
    for name, frames in tables.items():
        pl.concat(frames).write_parquet(out / f"{name}.parquet")


def main(arguments: Sequence[str]) -> None:
    """Read the arguments, train and measure."""
    torch.set_num_threads(1)
    parser = parser_of(__doc__)
    parser.add_argument("--every", type=int, default=EVERY)
    given = parser.parse_args(arguments)
    run_folder = argparse.Namespace(**vars(given) | {"out": given.out / "run"})
    if not (given.out / "run" / "trainer_state.json").exists():
        made = run(run_folder, prepare=lambda trainer: keep_batches(trainer, given.out / "checkpoints", given.every))
        print(json.dumps(made))
    measure(given)


if __name__ == "__main__":
    main(sys.argv[1:])
