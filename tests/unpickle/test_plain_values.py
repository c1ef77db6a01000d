"""What comes out equals what went in, whatever wrote it."""

from __future__ import annotations

import io
import json
import pickle
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch_files import STORAGES, Archive, Call, Name, Stored, pickled, safetensors, tensor, torch_file

from ptt.diagnostics.parsers.unpickle import Node, Plain, RefusedError, Worker, array_of
from ptt.diagnostics.parsers.unpickle.pickles import Record, unpickle

FIXTURES = Path(__file__).parents[1] / "fixtures" / "dumps"
DICE = np.random.default_rng(7)
VALUES = {
    name: DICE.integers(0, 2 if name == "bool" else 100, (3, 4)).astype(name) for name in STORAGES if name != "bfloat16"
}


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    made = Worker()
    yield made
    made.close()


def read(worker: Worker, tmp_path: Path, data: bytes, name: str = "file.pt") -> Any:
    path = tmp_path / name
    path.write_bytes(data)
    return worker.read(path).value


def same(found: Plain, wanted: np.ndarray[Any, Any]) -> None:
    assert isinstance(found, np.ndarray)
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("name", VALUES)
def test_tensors_of_every_type(worker: Worker, tmp_path: Path, name: str) -> None:
    same(read(worker, tmp_path, torch_file({"x": VALUES[name]}))["x"], VALUES[name])


def test_bfloat16_becomes_float32_exactly(worker: Worker, tmp_path: Path) -> None:
    exact = np.array([0.0, -0.0, 1.0, -0.5, 3.140625, np.inf, np.nan, 1e-38], np.float32)
    bits = (exact.view(np.uint32) >> 16).astype(np.uint16)
    wanted = (bits.astype(np.uint32) << 16).view(np.float32)
    archive = Archive()
    data = archive.packed(pickled(archive.add(bits, "bfloat16")))
    same(read(worker, tmp_path, data), wanted)


def test_views_share_a_storage_by_offset_and_stride(worker: Worker, tmp_path: Path) -> None:
    base = np.arange(24, dtype=np.float32)
    views = {
        "part": tensor("FloatStorage", "0", (5,), offset=7, numel=24),
        "turned": tensor("FloatStorage", "0", (4, 6), strides=(1, 4), numel=24),
        "spread": tensor("FloatStorage", "0", (3, 2), strides=(0, 2), offset=1, numel=24),
        "nothing": tensor("FloatStorage", "0", (0, 5), numel=24),
        "one": tensor("FloatStorage", "0", (), offset=3, numel=24),
    }
    found = read(worker, tmp_path, Archive(storages={"0": base.tobytes()}).packed(pickled(views)))
    same(found["part"], base[7:12])
    same(found["turned"], base.reshape(6, 4).T)
    same(found["spread"], np.array([[1, 3]] * 3, np.float32))
    same(found["nothing"], np.zeros((0, 5), np.float32))
    assert found["one"] == 3.0


def test_tensors_of_version_three_name_their_type(worker: Worker, tmp_path: Path) -> None:
    values = np.arange(4, dtype=np.float64)
    storage = Stored("UntypedStorage", "0", 32)
    args = (storage, 0, (4,), (1,), False, None, Name("torch", "float64"))
    call = Call(Name("torch._utils", "_rebuild_tensor_v3"), args)
    found = read(worker, tmp_path, Archive(storages={"0": values.tobytes()}).packed(pickled({"x": call})))
    same(found["x"], values)


def test_types_that_are_not_read_stay_nodes(worker: Worker, tmp_path: Path) -> None:
    archive = Archive(storages={"0": b"\0" * 64})
    found = read(worker, tmp_path, archive.packed(pickled({"x": tensor("ComplexFloatStorage", "0", (2,)), "y": 1})))
    assert isinstance(found["x"], Node)
    assert found["y"] == 1


def test_wrappers_are_taken_off(worker: Worker, tmp_path: Path) -> None:
    archive = Archive()
    inner = archive.add(np.arange(3))
    rebuild = Call(Name("torch._tensor", "_rebuild_from_type_v2"), (inner.function, Name("a", "B"), inner.args, {}))
    found = read(
        worker,
        tmp_path,
        archive.packed(
            pickled(
                {
                    "typed": rebuild,
                    "parameter": Call(Name("torch._utils", "_rebuild_parameter"), (inner, True, None)),
                    "size": Call(Name("torch", "Size"), ((3, 4),)),
                    "device": Call(Name("torch", "device"), ("cuda", 0)),
                    "set": Call(Name("builtins", "set"), ([5, 6],)),
                    "bytes": Call(Name("_codecs", "encode"), ("\xff\x01", "latin1")),
                    "other-encoding": Call(Name("_codecs", "encode"), ("\xff\x01", "rot13")),
                }
            )
        ),
    )
    same(found["typed"], np.arange(3))
    same(found["parameter"], np.arange(3))
    same(found["size"], np.array([3, 4]))
    assert found["device"] == "cuda"
    same(found["set"], np.array([5, 6]))
    same(found["bytes"], np.array([255, 1], np.uint8))
    assert isinstance(found["other-encoding"], Node)


@pytest.mark.parametrize("protocol", range(2, 6))
def test_what_pickle_and_numpy_write(worker: Worker, tmp_path: Path, protocol: int) -> None:
    value = {
        "floats": np.arange(6.0).reshape(2, 3),
        "columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "swapped": np.arange(4, dtype=">i4"),
        "bools": np.array([True, False]),
        "texts": np.array(["a", "bc"]),
        "objects": np.array(["u", None, {"k": 1}], object),
        "scalar": np.float32(0.5),
        "whole": np.int64(7),
        "ordered": OrderedDict(b=1, a=2.5),
        "set": {3},
        "raw": b"\x00\xff",
        "mixed": [1, 2.5, None],
        "flags": [True, False],
        "many": [[1, 2], [3]],
        "tuple": (1, "x"),
        "huge": 10**30,
        "beyond": [1, 10**30],
        "none": None,
        "surrogate": "a\ud800b",
        "long": "x" * 5000,
        7: "seven",
        (1, 2): "left out",
    }
    found = read(worker, tmp_path, pickle.dumps(value, protocol))
    same(found["floats"], np.arange(6.0).reshape(2, 3))
    same(found["columns"], np.arange(6.0).reshape(2, 3))
    same(found["swapped"], np.arange(4, dtype=np.int32))
    same(found["bools"], np.array([True, False]))
    assert found["texts"] == ["a", "bc"]
    assert found["objects"] == ["u", None, {"k": 1}]
    assert (float(found["scalar"]), int(found["whole"])) == (0.5, 7)
    assert found["ordered"] == {"b": 1, "a": 2.5}
    same(found["set"], np.array([3]))
    same(found["raw"], np.array([0, 255], np.uint8))
    same(found["mixed"], np.array([1, 2.5, np.nan]))
    same(found["flags"], np.array([True, False]))
    same(found["many"][0], np.array([1, 2]))
    assert found["tuple"] == [1, "x"]
    assert found["huge"] is None
    assert found["beyond"] == [1, None]
    assert found["none"] is None
    assert found["surrogate"] == "a?b"
    assert found["long"] == "x" * 256
    assert found[7] == "seven"
    assert (1, 2) not in found


def test_npz_and_safetensors(worker: Worker, tmp_path: Path) -> None:
    arrays = {name: values for name, values in VALUES.items() if name in ("float32", "int64", "bool", "uint8")}
    stream = io.BytesIO()
    np.savez_compressed(stream, allow_pickle=False, **arrays, uid=np.array(["a", "b"]))
    packed = read(worker, tmp_path, stream.getvalue(), "a.npz")
    flat = read(worker, tmp_path, safetensors(arrays, {"step": "3"}), "a.safetensors")
    for name, values in arrays.items():
        same(packed[name], values)
        same(flat[name], values)
    assert packed["uid"] == ["a", "b"]
    assert flat["__metadata__"] == {"step": "3"}


def test_values_that_share_an_object_share_it_still(worker: Worker, tmp_path: Path) -> None:
    shared = list(range(100_000))
    found = read(worker, tmp_path, pickle.dumps({"many": [shared] * 1000}, 4))
    assert len(found["many"]) == 1000
    assert all(entry is found["many"][0] for entry in found["many"])


def test_not_finite_numbers_stay_what_they_are(worker: Worker, tmp_path: Path) -> None:
    found = read(worker, tmp_path, pickle.dumps({"a": float("nan"), "b": float("inf"), "c": -float("inf")}))
    assert json.dumps(found) == '{"a": NaN, "b": Infinity, "c": -Infinity}'


def _shape(found: Any) -> Any:
    """Return what the machine built, in a form that can be compared."""
    if isinstance(found, Record):
        return (found.origin, _shape(found.args), _shape(found.state), _shape(found.entries), _shape(found.pairs))
    if isinstance(found, dict):
        return {str(key): _shape(value) for key, value in found.items()}
    if isinstance(found, (list, tuple)):
        return [_shape(value) for value in found]
    return found.origin if isinstance(found, type) and issubclass(found, Record) else found


@pytest.mark.parametrize("path", sorted(path for path in FIXTURES.rglob("*.*") if path.suffix in (".dp", ".pkl")))
def test_the_machine_for_systems_without_limits_builds_the_same(path: Path) -> None:
    data = memoryview(path.read_bytes())
    assert _shape(unpickle(data, guarded=False)) == _shape(unpickle(data, guarded=True))


def test_that_machine_asks_for_no_memory_that_a_file_does_not_fill() -> None:
    for code in (b"\x8e", b"\x96", b"\x8d", b"\x95"):
        with pytest.raises(RefusedError):
            unpickle(memoryview(b"\x80\x05" + code + (1 << 50).to_bytes(8, "little") + b"x."), guarded=False)
    with pytest.raises(RefusedError):
        unpickle(memoryview(b"\x80\x02Nr\xff\xff\xff\x7f"), guarded=False)


@pytest.mark.parametrize(
    ("dtype", "shape"), [("complex64", (1,)), ("torch.float32", (3,)), ("float32", (-1,)), ("float32", None)]
)
def test_bytes_that_are_no_such_array_are_refused(dtype: str, shape: object) -> None:
    with pytest.raises(RefusedError):
        array_of(np.zeros(8, np.uint8), dtype, shape)
