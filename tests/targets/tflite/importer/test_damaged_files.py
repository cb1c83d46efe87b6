"""Files that are damaged, or made to do harm: one clear error, soon, and nothing else."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgekit_tflite.graph import TensorQuantization
from edgekit_tflite.importer.convert import convert, convert_file
from edgekit_tflite.importer.file import read_file

from edgekit.compiler.importers.contract import ImportOptions
from edgekit.compiler.model.onnx_file import open_bytes
from edgekit.errors import EdgeKitError, ModelError, UsageError
from tests.fixtures.tflite_files import TfliteFile, edited
from tests.targets.tflite.importer.reader_cases import CASES, S

NUMBERS = (
    0,
    1,
    2,
    7,
    8,
    127,
    128,
    255,
    0x7FFF,
    0xFFFF,
    0x10000,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFF0,
    0xFFFFFFFF,
)
DAMAGES = 8
"""Of each small file. Tried by hand on 2026-11-22: 600 of each and 700 of three models, 100,500 files, no
other exception."""


def damaged(data: bytes, draw: random.Random) -> bytes:
    """A few bits, bytes or numbers changed, or the end cut off."""
    changed, kind = bytearray(data), draw.randrange(5)
    for _ in range(draw.choice((1, 1, 2, 4, 16))):
        at = draw.randrange(len(changed) - 4) & ~3
        if kind == 0:
            changed[at + draw.randrange(4)] ^= 1 << draw.randrange(8)
        elif kind == 1:
            changed[at + draw.randrange(4)] = draw.choice(NUMBERS) & 255
        elif kind == 2:
            changed[at : at + 4] = draw.choice(NUMBERS).to_bytes(4, "little")
        elif kind == 3:
            changed[at : at + 4] = draw.randrange(len(data)).to_bytes(4, "little")
        else:
            return bytes(changed[:at])
    return bytes(changed)


@pytest.mark.parametrize("name", CASES)
def test_damage_is_an_error_or_nothing(name: str) -> None:
    draw = random.Random(zlib.crc32(name.encode()))
    file = TfliteFile()
    data = file.content(*CASES[name][0](file))
    for _ in range(DAMAGES):
        with suppress(EdgeKitError):
            open_bytes(convert(damaged(data, draw), ImportOptions()).onnx, "model.onnx")


def relu() -> bytes:
    file = TfliteFile()
    return file.content(*file.op("RELU", [file.input((1, 4), name="x")], ((1, 4), "float32")))


def fully_connected() -> bytes:
    file = TfliteFile()
    inputs = [file.input((1, 4)), file.constant(np.ones((3, 4), np.float32)), -1]
    options: dict[str, Any] = {"weights_format": 0, "keep_num_dims": False}
    return file.content(*file.op("FULLY_CONNECTED", inputs, ((1, 3), "float32"), **options))


def reshape() -> bytes:
    file = TfliteFile()
    return file.content(*file.op("RESHAPE", [file.input((1, 4), name="x")], ((2, 2), "float32")))


def quantized() -> bytes:
    file = TfliteFile()
    x = file.input((1, 4), "int8", TensorQuantization((0.5,), (0,)))
    return file.content(*file.op("RELU", [x], ((1, 4), "int8", TensorQuantization((0.5,), (0,)))))


def graph(model: Any) -> Any:
    return model.subgraphs[0]


def set_to(path: str, value: Any) -> Callable[[Any], None]:
    """An edit that sets one field, e.g. ``tensors.0.shape``."""

    def edit(model: Any) -> None:
        *parents, name = path.split(".")
        found = graph(model) if parents[:1] != ["model"] else model
        for part in parents:
            if part != "model":
                found = found[int(part)] if part.isdecimal() else getattr(found, part)
        setattr(found, name, np.array(value, np.int32) if isinstance(value, list) else value)

    return edit


OP = "operator 0 (RELU)"
FULL = "operator 0 (FULLY_CONNECTED)"
WRONG: list[tuple[Callable[[], bytes], str, Any, str]] = [
    (relu, "tensors.0.shape", [1, -4], "tensor 0 has the shape 1x-4"),
    (relu, "tensors.0.shape", [1] * 9, "tensor 0 has more than 8 dimensions"),
    (relu, "tensors.0.buffer", 77, "tensor 0 (x) is in buffer 77, but there are only 1"),
    (relu, "inputs", [9], "subgraph 0 names a tensor that does not exist: 9 to 9"),
    (relu, "inputs", [0, 0], "one tensor is two of its inputs"),
    (relu, "outputs", [-1], "it has no output, or an input or output that is not a tensor"),
    (relu, "operators.0.opcodeIndex", 5, "operator 0 is of code 5, and there are 1"),
    (relu, "operators.0.inputs", [1], f"{OP} reads tensor 1 (y1) before it is produced"),
    (relu, "operators.0.inputs", [], f"{OP}: it has the inputs (), and needs 1"),
    (relu, "operators.0.outputs", [0], f"{OP} produces a tensor that already exists"),
    (relu, "operators.0.outputs", [-1], f"{OP} leaves out an output"),
    (relu, "operators", [], "no operator produces its output y1"),
    (relu, "tensors.0.type", 8, "input x is complex64, which is not supported"),
    (relu, "tensors.0.type", 99, "input x is type 99, which is not supported"),
    (relu, "model.subgraphs", [], "it has no subgraph"),
    (
        fully_connected,
        "tensors.1.shape",
        [3, 5],
        "tensor 1 (constant_1) has 48 bytes, but its shape and type need 60",
    ),
    (fully_connected, "operators.0.outputs", [1], f"{FULL} produces a tensor that is a constant"),
    (fully_connected, "tensors.0.shape", [1, 3], f"{FULL}: its weights are (3, 4), its data (1, 3)"),
    (
        fully_connected,
        "operators.0.builtinOptions.weightsFormat",
        1,
        f"{FULL}: its weights are shuffled for one processor; export it with plain weights",
    ),
    (reshape, "tensors.1.shape", [2, 3], "operator 0 (RESHAPE): it makes (2, 3) of (1, 4)"),
    (fully_connected, "operators.0.inputs", [0, -1], f"{FULL}: it has the inputs (0, -1), and needs 2"),
    (
        fully_connected,
        "model.operatorCodes.0.deprecatedBuiltinCode",
        11,
        "operator 0 (L2_NORMALIZATION) has the options of another operator, FullyConnectedOptions",
    ),
    (
        quantized,
        "tensors.0.quantization.scale",
        np.zeros(1, np.float32),
        "tensor 0 has a scale that is not a positive number",
    ),
    (
        quantized,
        "tensors.0.quantization.scale",
        np.ones(2, np.float32),
        "tensor 0 has 2 scales along its axis 0",
    ),
    (
        quantized,
        "tensors.0.quantization.zeroPoint",
        np.ones(3, np.int64),
        "tensor 0 has 3 zero points and 1 scales",
    ),
    (
        quantized,
        "tensors.1.quantization.zeroPoint",
        np.array([300], np.int64),
        f"{OP}: the zero point 300 is not a valid int8",
    ),
]
"""A file, a field and what it is set to, and what is said."""


@pytest.mark.parametrize(("file", "field", "value", "why"), WRONG)
def test_what_is_wrong_is_said(file: Callable[[], bytes], field: str, value: Any, why: str) -> None:
    with pytest.raises(ModelError) as error:
        convert(edited(file(), set_to(field, value)), ImportOptions())
    assert str(error.value) == why


def test_an_input_may_be_said_to_be_a_variable() -> None:
    convert(edited(relu(), set_to("tensors.0.isVariable", True)), ImportOptions())


def test_a_file_that_is_cut_short_or_none(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    for content, why in (
        (relu()[:64], "model.tflite: the model is outside the file, which has 64 bytes: it is damaged"),
        (
            b"\x1c\0\0\0TFL3",
            "model.tflite: the model is outside the file, which has 8 bytes: it is damaged",
        ),
        (b"", "model.tflite: bytes 4 to 8 are not TFL3: it is not a TFLite model, or is damaged"),
    ):
        path.write_bytes(content)
        with pytest.raises(ModelError) as error:
            convert_file(path, ImportOptions())
        assert str(error.value) == why


def test_operators_that_nothing_reads_are_all_named() -> None:
    file = TfliteFile()
    x = file.input(S)
    (y,) = file.op("Mystery", [x], (S, "float32"), custom=b"")
    (z,) = file.op("Mystery", [y], (S, "float32"), custom=b"")
    data = edited(
        file.content(*file.op("RELU", [z], (S, "float32"))), set_to("model.operatorCodes.1.builtinCode", 136)
    )
    with pytest.raises(ModelError) as error:
        convert(data, ImportOptions())
    assert str(error.value) == (
        "has operators that cannot be expressed in ONNX, or are not supported:\n"
        "  operator 0 (Mystery), which is custom, and 1 more\n"
        "  operator 2 (HASHTABLE)"
    )


@pytest.mark.parametrize("given", ["x", ""])  # without a name it is the only input's
def test_another_shape_is_refused(given: str) -> None:
    with pytest.raises(UsageError) as error:
        convert(relu(), ImportOptions({given: (2, 4)}))
    assert str(error.value) == (
        "--shape x=2x4: shapes in a .tflite file are fixed, and this one is 1x4; export the model again "
        "with the new shape"
    )
    convert(relu(), ImportOptions({given: (1, 4)}))


def test_a_window_of_no_channel_is_refused() -> None:
    file = TfliteFile()
    options: dict[str, Any] = {"radius": -1, "bias": 1.5, "alpha": 0.3, "beta": 0.6}
    outputs = file.op(
        "LOCAL_RESPONSE_NORMALIZATION", [file.input((1, 3, 2, 8))], ((1, 3, 2, 8), "float32"), **options
    )
    with pytest.raises(ModelError) as error:
        convert(file.content(*outputs), ImportOptions())
    assert str(error.value) == "operator 0 (LOCAL_RESPONSE_NORMALIZATION): its radius is -1"


def test_what_is_kept_between_runs_is_refused() -> None:
    file = TfliteFile()
    state = file.constant(np.zeros(S, np.float32))
    data = file.content(
        *file.op("ADD", [file.input(S), state], (S, "float32"), fused_activation_function="NONE")
    )

    def keep(model: Any) -> None:
        tensor = graph(model).tensors[1 if graph(model).tensors[1].buffer else 0]
        tensor.isVariable, tensor.buffer, tensor.name = True, 0, "state"

    with pytest.raises(ModelError) as error:
        convert(edited(data, keep), ImportOptions())
    assert str(error.value) == ("operator 0 (ADD): it keeps state between runs, which ONNX does not support")


def many_tables(of: str, count: int) -> bytes:
    """A file whose vector of tensors, operators or buffers names one table many times: 4 bytes for each."""
    data = bytearray(relu())

    def number(form: str, at: int) -> int:
        return int(struct.unpack_from(form, data, at)[0])

    def field(table: int, slot: int) -> int:
        return table + number("<H", table - number("<i", table) + 4 + 2 * slot)

    def target(at: int) -> int:
        return at + number("<I", at)

    root = target(0)
    subgraph = target(target(field(root, 2)) + 4)
    at = {"tensors": field(subgraph, 0), "operators": field(subgraph, 3), "buffers": field(root, 4)}[of]
    first = target(target(at) + 4)
    # Distances go forward only: the table is copied behind the vector that names it.
    vtable, table = first - number("<i", first), bytes(data[first + 4 : first + 64])
    vector = -(-len(data) // 4) * 4
    data += b"\0" * (vector - len(data))
    copy = vector + 4 + 4 * count
    struct.pack_into("<I", data, at, vector - at)
    distances = range(copy - vector - 4, copy - vector - 4 - 4 * count, -4)
    return (
        bytes(data) + struct.pack(f"<I{count}I", count, *distances) + struct.pack("<i", copy - vtable) + table
    )


@pytest.mark.parametrize(
    ("of", "what", "most"),
    [("tensors", "tensor", 100_000), ("operators", "operator", 20_000), ("buffers", "buffer", 100_000)],
)
def test_counts_are_limited(of: str, what: str, most: int) -> None:
    with pytest.raises(ModelError) as error:
        read_file(many_tables(of, most + 1))
    assert str(error.value) == f"it claims {most + 1} {what}s; at most {most} are supported"


def test_inputs_of_all_operators_are_limited() -> None:
    file = TfliteFile()
    ends, shape = [file.input((1, 0))] * 4000, ((1, 0), "float32")
    made = [file.op("ADD_N", ends, shape)[0] for _ in range(251)]
    with pytest.raises(ModelError) as error:
        read_file(file.content(*made))
    assert str(error.value) == "its operators have more than 1000000 inputs and outputs"


def test_a_large_constant_that_many_tensors_name_is_counted_each_time() -> None:
    file = TfliteFile()
    x = file.input((1, 4))
    shared = np.ones((1024, 1024), np.float32)
    for _ in range(40):
        file.constant(shared)
    data = file.content(*file.op("RELU", [x], ((1, 4), "float32")))

    def share(model: Any) -> None:
        for tensor in graph(model).tensors[1:-1]:
            tensor.buffer = graph(model).tensors[1].buffer
        kept = graph(model).tensors[1].buffer
        for number, buffer in enumerate(model.buffers):
            buffer.data = buffer.data if number == kept else None

    with pytest.raises(ModelError) as error:
        convert(edited(data, share), ImportOptions())
    assert str(error.value) == "its constants, scales and names are more than 16 times its own size"


def test_a_constant_that_many_operators_convert_is_counted_each_time() -> None:
    file = TfliteFile()
    half = file.constant(np.ones((512, 1024), np.float16))
    outs = [file.op("DEQUANTIZE", [half], ((512, 1024), "float32"))[0] for _ in range(100)]
    data = file.content(*outs)
    with pytest.raises(ModelError) as error:
        convert(data, ImportOptions())
    assert str(error.value) == "operator 40 (DEQUANTIZE): its constants grow to more than 64 times the file"


def test_a_file_beyond_2_gb_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    with path.open("wb") as file:
        file.truncate(1 << 31)  # a hole, which takes no place on the disk
    with pytest.raises(ModelError, match=r"^model\.tflite: is 2\.0 GB; the limit is 2 GB$"):
        convert_file(path, ImportOptions())
