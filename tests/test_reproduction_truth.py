"""The reproduction's gradients by autograd, and its guards, in real TRL runs of two steps."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from examples.reproduction.arms import PROBES

pytestmark = [
    pytest.mark.trl,
    pytest.mark.filterwarnings("default"),  # torch's and transformers' own
    pytest.mark.skipif(find_spec("trl") is None, reason="TRL is not installed; make test-trl installs it"),
]


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from examples.reproduction.gradient_truth import main

    out = tmp_path_factory.mktemp("truth")
    main(["baseline", "--seed=1", "--steps=2", "--every=2", f"--out={out}"])
    return out


def _masked_gradient(out: Path, row: int, changed: dict[str, Any]) -> float:
    """Return the norm of the gradient of the whole loss where every other sequence has advantage 0."""
    import torch

    from examples.reproduction.gradient_truth import whole_gradient
    from examples.reproduction.train import SETTINGS, make_trainer

    trainer = make_trainer(SETTINGS["baseline"], seed=1, steps=2, out=out / "run", resume=False)
    saved = torch.load(out / "checkpoints" / "00002.pt", weights_only=False)
    trainer.model.load_state_dict(saved["weights"])
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    alone = torch.zeros_like(saved["inputs"]["advantages"])
    alone[row] = saved["inputs"]["advantages"][row]
    return float(whole_gradient(trainer, {**saved["inputs"], "advantages": alone}, changed).norm())


@pytest.mark.parametrize("loss", ["dapo", "grpo", "gspo", "cispo"])
def test_a_sequences_gradient_is_that_of_the_loss_without_all_others(truth: Path, loss: str) -> None:
    from examples.reproduction.gradient_truth import LOSSES

    rows = pl.read_parquet(truth / "truth.parquet").filter(pl.col("loss") == loss)["grad_norm"]
    longest = int(rows.arg_max() or 0)
    assert rows[longest] > 0
    assert rows[longest] == pytest.approx(_masked_gradient(truth, longest, dict(LOSSES[loss])), rel=1e-3)


def test_the_shares_of_the_slices_add_up(truth: Path) -> None:
    slices = pl.read_parquet(truth / "slices.parquet").filter(pl.col("whole_norm") > 0)
    shares = slices.group_by("loss").agg((pl.col("inner_product") / pl.col("whole_norm") ** 2).sum().alias("sum"))
    assert shares["sum"].to_list() == pytest.approx([1.0] * len(shares), rel=1e-3)
    assert (slices["norm"] <= slices["sum_of_norms"] * (1 + 1e-6)).all()


def test_an_answer_with_a_call_that_raised_has_no_advantage(tmp_path: Path) -> None:
    from examples.reproduction.train import make_trainer
    from ptt.recorders.trl import record

    setting = replace(PROBES["drop-errored"], failure_rate=0.5)
    trainer = make_trainer(setting, seed=1, steps=2, out=tmp_path, resume=False)
    record(trainer, tmp_path / "tokens")
    trainer.train()
    rows = pl.read_parquet(tmp_path / "tokens" / "*.parquet").with_columns(errored=pl.col("tool_failed").list.any())
    assert (rows.filter("errored")["advantage"] == 0).all()
    assert (rows.filter(~pl.col("errored"))["advantage"] != 0).any()
    assert rows["errored"].any()
