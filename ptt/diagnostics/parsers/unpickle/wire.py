"""How plain values travel from the reading process: JSON, and the arrays' bytes behind it. Never a pickle."""

from __future__ import annotations

import json
import math
import struct
from typing import Any, Final

import numpy as np

from ptt.diagnostics.parsers.unpickle.values import Array, Node, Plain, RefusedError

HEAD: Final = struct.Struct("<QQ")  # bytes of JSON, bytes of arrays
ALLOWED: Final = frozenset("biuf")


def encode(value: Plain) -> tuple[Any, list[Array]]:
    """Return a tree for JSON and the arrays it refers to; each array once."""
    arrays: list[Array] = []
    places: dict[int, int] = {}

    def tree(found: Plain) -> Any:
        if isinstance(found, np.ndarray):
            if id(found) not in places:
                places[id(found)] = len(arrays)
                arrays.append(np.ascontiguousarray(found))
            return ["a", places[id(found)]]
        if isinstance(found, list):
            return ["l", [tree(entry) for entry in found]]
        if isinstance(found, dict):
            return ["d", [[key, tree(entry)] for key, entry in found.items()]]
        if isinstance(found, Node):
            return ["n", found.name, [tree(arg) for arg in found.args], tree(found.state)]
        return found

    return tree(value), arrays


def pack(message: dict[str, Any], arrays: list[Array]) -> list[bytes | memoryview]:
    """Return what is to be written, piece by piece."""
    message["arrays"] = [[made.dtype.str, list(made.shape)] for made in arrays]
    text = json.dumps(message).encode()
    bodies = [made.reshape(-1).view(np.uint8).data for made in arrays if made.size]
    return [HEAD.pack(len(text), sum(body.nbytes for body in bodies)), text, *bodies]


def unpack(text: bytes, body: memoryview) -> tuple[dict[str, Any], list[Array]]:
    """Read a message back; everything is checked, since the sender has read a hostile file."""
    try:
        message = json.loads(text)
        arrays, at = [], 0
        for code, shape in message["arrays"]:
            dtype = np.dtype(str(code))
            size = math.prod(shape) * dtype.itemsize
            if dtype.kind not in ALLOWED or min(shape, default=0) < 0 or at + size > len(body):
                raise RefusedError("the reading process answered nonsense")
            arrays.append(np.frombuffer(body[at : at + size], dtype).reshape(shape))
            at += size
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise RefusedError("the reading process answered nonsense") from error
    return message, arrays


def decode(tree: Any, arrays: list[Array]) -> Plain:
    """Undo `encode`."""
    if not isinstance(tree, list):
        return tree  # type: ignore[no-any-return]
    match tree:
        case ["a", int(at)] if 0 <= at < len(arrays):
            return arrays[at]
        case ["l", list(entries)]:
            return [decode(entry, arrays) for entry in entries]
        case ["d", list(pairs)]:
            return {key: decode(entry, arrays) for key, entry in pairs}
        case ["n", str(name), list(args), state]:
            return Node(name, [decode(arg, arrays) for arg in args], decode(state, arrays))
        case _:
            raise RefusedError("the reading process answered nonsense")
