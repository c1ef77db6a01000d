"""The canonical tables that every parser writes and every later stage reads, column by column."""

from enum import IntEnum
from typing import Final

import polars as pl

VERSION: Final = 12
"""Raised whenever a table below changes; a store written under another version is made anew."""


class Flag(IntEnum):
    """Why a metric has no finite value. Writers encode NaN in six incompatible ways; here it has one."""

    FINITE = 0
    NAN = 1
    POS_INF = 2
    NEG_INF = 3
    NULL_IN_SOURCE = 4
    DROPPED_BY_WRITER = 5


LOGPS: Final = ("policy_logp", "old_logp", "rollout_logp", "ref_logp", "prox_logp")
"""The log-probabilities of one token: under the policy being updated, the policy at the start of the step as the
trainer recomputes it, the engine that sampled it, the frozen reference, and the proximal policy that updates are held
near to (decoupled PPO, PPO-EWMA)."""

METRICS: Final[dict[str, pl.DataType]] = {
    "step": pl.Int64(),
    "split": pl.String(),  # train | eval
    "name_raw": pl.String(),  # as the writer spelt it
    "name": pl.String(),  # canonical, null where the alias table does not know it
    "value": pl.Float64(),  # null unless flag is FINITE
    "flag": pl.UInt8(),
    "rank": pl.Int32(),
    "wall_time": pl.Float64(),  # seconds since the epoch, where the writer gave them; without offset as of UTC
    "seq": pl.Int64(),  # order within the source: on a repeated step the last one counts
    "source": pl.String(),  # path below the run dir
}

SEQUENCES: Final[dict[str, pl.DataType]] = {
    "step": pl.Int64(),
    "sample_id": pl.String(),
    "group_id": pl.String(),
    "trajectory_id": pl.String(),
    "env": pl.String(),
    "rank": pl.Int32(),
    "reward": pl.Float64(),
    "tool_names": pl.List(pl.String()),  # of each observation, in order
    "tool_failed": pl.List(pl.Boolean()),  # likewise
    # lists below are aligned: entry t belongs to response token t, never shifted
    "token_ids": pl.List(pl.Int32()),
    "model_mask": pl.List(pl.Boolean()),  # true = sampled by the policy
    "train_mask": pl.List(pl.Boolean()),  # true = got gradient
    "policy_logp": pl.List(pl.Float32()),
    "old_logp": pl.List(pl.Float32()),
    "rollout_logp": pl.List(pl.Float32()),
    "ref_logp": pl.List(pl.Float32()),
    "prox_logp": pl.List(pl.Float32()),
    "entropy": pl.List(pl.Float32()),
    "advantage": pl.List(pl.Float32()),
    "value": pl.List(pl.Float32()),  # of the critic
    "return": pl.List(pl.Float32()),
    "policy_version": pl.Int64(),
    "temperature": pl.Float64(),
    "top_p": pl.Float64(),
    "logp_kind": pl.String(),
    "token_hash": pl.UInt64(),  # of all token ids of the sample: ties a token dump to a trace of the same sample
}

FIGURE: Final = "figure:"
"""Begins a column of sequences beside these: what the recorder's format has as one number a sequence, such as the
components of the reward (`figure:rewards/correct`) and an advantage a sequence (`figure:advantage`)."""
ADVANTAGE: Final = FIGURE + "advantage"
COMPONENT: Final = FIGURE + "rewards/"

TRAJECTORIES: Final[dict[str, pl.DataType]] = {
    "trajectory_id": pl.String(),
    "sample_id": pl.String(),  # as the sequences call it, where the sample says so
    "step": pl.Int64(),
    "split": pl.String(),  # train | eval | unknown
    "prompt_hash": pl.UInt64(),
    "reward": pl.Float64(),
    "advantage": pl.Float64(),
    "n_turns": pl.Int32(),
    "n_tool_calls": pl.Int32(),
    "n_tool_fail": pl.Int32(),
    "group_id": pl.String(),
    "env": pl.String(),
    "policy_version": pl.Int64(),
    "success": pl.Boolean(),
    "truncated": pl.Boolean(),
    "claims_success": pl.Boolean(),  # whether the last message says that the task is done; null where not in English
    "stop_reason": pl.String(),
    "error_type": pl.String(),
    "masked": pl.Boolean(),  # left out of the loss
    "answer_right": pl.Boolean(),  # whether the final answer is the expected one as it stands; null where either is not
    "duration_s": pl.Float64(),
    "token_hash": pl.UInt64(),
    "task": pl.String(),  # what the writer calls the task or example; the same for every attempt at it
    "model": pl.String(),
    "tokens_in": pl.Int64(),  # that the model read, over all of its calls
    "tokens_out": pl.Int64(),  # that it wrote
    "cost_usd": pl.Float64(),
    "tools_offered": pl.List(pl.String()),
    "tools_required": pl.List(pl.String()),  # that a right answer calls, where the task says so
    "source": pl.String(),
}

REWARDS: Final[dict[str, pl.DataType]] = {
    "trajectory_id": pl.String(),
    "name": pl.String(),
    "score": pl.Float64(),
    "weight": pl.Float64(),
}

TURNS: Final[dict[str, pl.DataType]] = {
    "trajectory_id": pl.String(),
    "turn_idx": pl.Int32(),
    "role": pl.String(),
    "text_len": pl.Int32(),
    "text_hash": pl.UInt64(),
    "text": pl.String(),  # null unless texts are kept, and then shortened
    "n_tokens": pl.Int32(),
    "t_start": pl.Float64(),  # seconds since the epoch
    "t_end": pl.Float64(),
}

ANSWERS: Final[dict[str, pl.DataType]] = {  # of a draw of each step's samples: the last message that says anything
    "trajectory_id": pl.String(),
    "refuses": pl.Boolean(),  # null where not in English
    "repetition": pl.Float32(),  # share of runs of four words that stood there before; null where too short
    "sketch": pl.List(pl.UInt32()),  # of runs of three words: equal entries tell how much two texts have in common
}

CODED, WORDED, PRINTED = "coded", "worded", "printed"
"""How a result says what became of its call: `told_by`. PRINTED are words that may be those of a program or a page."""

TOOL_CALLS: Final[dict[str, pl.DataType]] = {
    "trajectory_id": pl.String(),
    "step": pl.Int64(),
    "turn_idx": pl.Int32(),
    "call_idx": pl.Int32(),
    "name": pl.String(),
    "args_json": pl.String(),
    "result_len": pl.Int32(),
    "result_hash": pl.UInt64(),
    "ok": pl.Boolean(),
    "ok_source": pl.String(),  # flag | error_field | error_text | heuristic | unknown | went_on (without a result)
    "told_failed": pl.Boolean(),  # what the result itself says, whatever marks it; null where it does not say
    "told_by": pl.String(),  # CODED | WORDED | PRINTED
    "result_form": pl.UInt32(),  # hash of how the result begins, up to the first number, name or path
    "result_hints": pl.Boolean(),  # says nothing sure, but holds a word of failure, or is empty
    "result_empty": pl.Boolean(),  # holds nothing: blank, empty brackets, or headers of items without their content
    "call_id": pl.String(),
    "error_type": pl.String(),
    "error_text": pl.String(),  # of a failed call: the beginning of what came back
    "latency_s": pl.Float64(),
}

CONVERSATIONS: Final[dict[str, pl.DataType]] = {  # kept for exports alone; each column is JSON
    "trajectory_id": pl.String(),
    "prompt": pl.String(),  # messages before the first of the assistant
    "completion": pl.String(),  # messages from there on
    "tools": pl.String(),  # definitions of the tools offered, as the writer has them
    "masked_prompt": pl.Int32(),  # texts of the prompt and the tools in which a key or token is masked
    "masked_completion": pl.Int32(),
}

EVALS: Final[dict[str, pl.DataType]] = {
    "suite": pl.String(),  # task or benchmark
    "step": pl.Int64(),
    "model": pl.String(),
    "metric": pl.String(),
    "value": pl.Float64(),
    "n": pl.Int64(),  # samples behind the value
    "temperature": pl.Float64(),
    "max_tokens": pl.Int64(),
    "source": pl.String(),
}

RANKS: Final[dict[str, pl.DataType]] = {
    "step": pl.Int64(),
    "wall_time": pl.Float64(),  # seconds since the epoch
    "node": pl.String(),
    "rank": pl.Int32(),
    "device": pl.Int32(),
    "name": pl.String(),  # as the writer spelt it
    "value": pl.Float64(),
    "source": pl.String(),
}

EVENTS: Final[dict[str, pl.DataType]] = {
    "step": pl.Int64(),
    "wall_time": pl.Float64(),
    "kind": pl.String(),  # stdout | stderr | exit | exception | last_line | alert | restart
    "text": pl.String(),  # one line, shortened
    "source": pl.String(),
}

SOURCES: Final[dict[str, pl.DataType]] = {
    "path": pl.String(),
    "kind": pl.String(),  # name of the parser, "unrecognised" or "unreadable"
    "bytes": pl.Int64(),
    "rows_ok": pl.Int64(),
    "rows_bad": pl.Int64(),
    "bytes_lost": pl.Int64(),
    "note": pl.String(),
}

TABLES: Final[dict[str, dict[str, pl.DataType]]] = {
    "metrics": METRICS,
    "sequences": SEQUENCES,
    "trajectories": TRAJECTORIES,
    "rewards": REWARDS,
    "turns": TURNS,
    "answers": ANSWERS,
    "tool_calls": TOOL_CALLS,
    "conversations": CONVERSATIONS,
    "evals": EVALS,
    "ranks": RANKS,
    "events": EVENTS,
    "sources": SOURCES,
}

MAX_NAME: Final = 80  # letters of an id that is shown, and typed again
OWN_NAME: Final = r"^[^\s,\p{C}]+(?: [^\s,\p{C}]+)*$"  # findings list names with ", " between them


def named_episodes(rows: pl.DataFrame) -> pl.DataFrame:
    """Add `name`, by which reports call an episode and `ptt show` finds it.

    It is its own id where no other has the same, else its file and its number there, from 1.
    `rows`: trajectory_id, sample_id and source, in the order of the files.
    """
    own = pl.col("sample_id")
    typed = own.is_unique() & (own.str.len_chars() <= MAX_NAME) & own.str.contains(OWN_NAME)
    place = pl.format("{}#{}", "source", pl.int_range(1, pl.len() + 1).over("source"))
    return rows.with_columns(pl.when(typed).then(own).otherwise(pl.coalesce(place, "trajectory_id")).alias("name"))
