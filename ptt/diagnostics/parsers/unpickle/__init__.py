"""Read torch, pickle, npz and safetensors files that may be hostile: nothing in them is ever executed.

A second process, with limited memory and time, builds inert records from the file and returns plain numbers, texts and
arrays. Neither torch nor the framework that wrote the file is needed (docs/decisions/006-inert-pickles.md)."""

from ptt.diagnostics.parsers.unpickle.arrays import array_of
from ptt.diagnostics.parsers.unpickle.process import Answer, Worker
from ptt.diagnostics.parsers.unpickle.values import Limits, Node, Plain, RefusedError

__all__ = ["Answer", "Limits", "Node", "Plain", "RefusedError", "Worker", "array_of"]
