"""Recorders for training loops: they keep the per-token logprobs a trainer throws away, in files `ptt` always reads.

Importing this package loads neither a framework nor pyarrow, so a trainer pays only for what it records.
"""

from ptt.recorders.recorder import Recorder

__all__ = ["Recorder"]
