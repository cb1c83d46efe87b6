"""The runner of OpenVINO keeps the contract of edgekit.target.contract."""

from __future__ import annotations

import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from edgekit_openvino import run

from edgekit.errors import EngineError
from edgekit.tensor_spec import Array, TensorSpec
from tests.fixtures.models import SMALL_CNN, TWO_INPUTS, parse
from tests.targets.engine_trial import feeds, load, same_as_reference, with_shapes

pytestmark = pytest.mark.needs_openvino

LARGE = """
<ir_version: 10, opset_import: ["": 23]>
large (float[1,50000] x, float[1,4] y) => (float[1,50000] same, float[1,4] small, float[1,50000] twice)
{
    same = Identity(x)
    small = Add(y, y)
    twice = Add(x, x)
}
"""
"""Arrays beyond COPIED_BYTES, one handed straight through, and one below."""


def test_large_arrays_answer_as_the_reference_does(tmp_path: Path) -> None:
    model = with_shapes(LARGE)
    runner = load(model, "openvino", tmp_path)
    for seed in range(3):
        same_as_reference(model, runner, feeds(model, seed))


def test_arithmetic_is_fp32_as_executed(tmp_path: Path) -> None:
    """OpenVINO's default is bf16 or fp16 where the chip has it."""
    runner = load(with_shapes(SMALL_CNN), "openvino", tmp_path)
    assert (runner.device, runner.precision) == ("CPU", "fp32")
    facts = runner.facts()
    assert facts["inference_precision"] == "fp32"
    assert facts["layers"]["Convolution"] == 1
    assert (facts["int8_layers"], facts["threads"], facts["streams"]) == (0, 1, 1)
    assert run.engine_version().startswith("OpenVINO 20")


MASKED = """
<ir_version: 10, opset_import: ["": 23]>
masked (uint8[1,8] bytes, float[1,8] x) => (float[8,1] y)
<float zero = {0}, float low = {-100}, int64[2] column = {8, 1}>
{
    shown = Greater(x, zero)
    column_shown = Reshape(shown, column)
    column_x = Reshape(x, column)
    masked = Where(column_shown, low, column_x)
    floats = Cast<to=1>(bytes)
    column_floats = Reshape(floats, column)
    y = Add(masked, column_floats)
}
"""


def test_booleans_and_bytes_are_not_int8(tmp_path: Path) -> None:
    """OpenVINO calls the layers that move them u8, and Swin's mask is one of booleans."""
    runner = load(with_shapes(MASKED), "openvino", tmp_path)
    assert isinstance(runner, run.OpenvinoRunner)
    assert any(run.layer_precision(layer) == "u8" for layer in run.executed_layers(runner._compiled))
    assert (runner.precision, runner.facts()["int8_layers"]) == ("fp32", 0)


COUNTERS = """
<ir_version: 10, opset_import: ["": 23]>
counters (int64[3] k, uint32[2] u, int32[2] i) => (int64[3] twice, uint32[2] same, int32[2] more)
{
    twice = Add(k, k)
    same = Identity(u)
    more = Add(i, i)
}
"""


def test_integers_up_to_int32_are_taken(tmp_path: Path) -> None:
    runner = load(with_shapes(COUNTERS), "openvino", tmp_path)
    given = {
        "k": np.array([-(2**30), 0, 2**29]),
        "u": np.array([0, 2**31 - 1], np.uint32),
        "i": np.array([-(2**31), 1], np.int32) // 2,
    }
    answers = runner.run(given)
    assert answers["twice"].tolist() == [-(2**31), 0, 2**30]
    assert answers["same"].tolist() == [0, 2**31 - 1]
    assert answers["more"].tolist() == [-(2**31), 0]


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("k", np.array([5, 2**31, -7]), "k contains -7 to 2147483648, but OpenVINO computes int64 in int32"),
        (
            "k",
            np.array([-(2**31) - 1, 0, 1]),
            "k contains -2147483649 to 1, but OpenVINO computes int64 in int32",
        ),
        (
            "u",
            np.array([0, 2**32 - 1], np.uint32),
            "u contains 0 to 4294967295, but OpenVINO computes uint32 in int32",
        ),
    ],
)
def test_integers_beyond_int32_are_an_engine_error(
    name: str, values: Array, message: str, tmp_path: Path
) -> None:
    """The CPU plugin would wrap them and not say so."""
    runner = load(with_shapes(COUNTERS), "openvino", tmp_path)
    given: dict[str, Array] = {
        "k": np.zeros(3, np.int64),
        "u": np.zeros(2, np.uint32),
        "i": np.zeros(2, np.int32),
        name: values,
    }
    with pytest.raises(EngineError) as caught:
        runner.run(given)
    assert str(caught.value) == message


def test_outputs_of_another_model_are_an_engine_error(tmp_path: Path) -> None:
    load(parse(TWO_INPUTS), "openvino", tmp_path)
    files = {name: tmp_path / name for name in ("model.xml", "model.bin")}
    with pytest.raises(EngineError, match=r"^model\.xml has no output other; it has sum$"):
        run.open_runner(files, [], [TensorSpec("other", "float32", (1,))], {}, 1)


def test_a_failing_run_is_an_engine_error(tmp_path: Path) -> None:
    runner = load(parse(TWO_INPUTS.replace("8]", "50000]")), "openvino", tmp_path)
    wrong = np.ones((2, 7), np.float32)
    with pytest.raises(EngineError, match=r"^OpenVINO 20\S+ failed to run: \S"):
        runner.run({"left": wrong, "right": wrong})


def test_no_telemetry_is_loaded(tmp_path: Path) -> None:
    """And openvino's own converter works on without it."""
    script = (
        "import sys\n"
        "from edgekit_openvino.run import engine_version, openvino\n"
        "engine_version()\n"
        "print([m for m in sys.modules if m.startswith('openvino_telemetry')])\n"
        "print(callable(openvino().convert_model))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\nTrue\n"


@pytest.mark.parametrize("damage", ["cut", "garbage", "large"])
def test_a_packed_file_that_is_damaged_is_one_error(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = zlib.compress(b"<net/>" * 100)
    if damage == "large":
        monkeypatch.setattr(run, "XML_LIMIT_BYTES", 16)
    packed = {"cut": content[:-8], "garbage": b"no zlib", "large": content}[damage]
    (tmp_path / run.PACKED_FILE).write_bytes(packed)
    (tmp_path / run.BIN_FILE).write_bytes(b"")
    files = {name: tmp_path / name for name in (run.PACKED_FILE, run.BIN_FILE)}
    with pytest.raises(EngineError, match=r"model\.xml\.z"):
        run.open_runner(files, [], [], {}, 1)
