"""What is written for Core AI: the same bytes, all refused nodes at once, and each precision."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from edgekit_coreai import compile as coreai
from edgekit_coreai.convert import HASH, with_numbered_resources
from edgekit_coreai.run import PROGRAM

from edgekit.compiler.evaluate.verify import write_files
from edgekit.compiler.model.onnx_file import open_model, signature
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.passes import run_passes
from edgekit.errors import UnsupportedError
from edgekit.target import registry
from edgekit.target.installed_profiles import find_profile
from tests.compiler.passes.meaning import snr_db
from tests.fixtures.shared_models import CASES
from tests.fixtures.shared_models import feeds as feeds_of
from tests.targets.engine_trial import feeds, load, product, with_shapes

pytestmark = [pytest.mark.needs_coreai, pytest.mark.needs_ort]
REFUSED = """
<ir_version: 10, opset_import: ["": 23]>
two (int64[2] x) => (bool[2] y, bool[2] z)
<int64[1] a = {1099511627776}, int64[1] b = {2199023255552}>
{
    [first] y = Equal(x, a)
    [second] z = Less(x, b)
}
"""
SAVED = """
import hashlib, sys
from edgekit_coreai.compile import compile_model
from edgekit.target.installed_profiles import find_profile
from tests.targets.engine_trial import product
files = compile_model(product(), find_profile("coreai"), "fp32").files
print(*(hashlib.sha256(content).hexdigest() for _, content in sorted(files.items())))
"""


def test_all_refused_nodes_are_named_at_once() -> None:
    model = with_shapes(REFUSED)
    run_passes(model)
    with pytest.raises(UnsupportedError) as refusal:
        coreai.compile_model(model, find_profile("coreai"), "fp32")
    found = refusal.value.findings
    assert [(each.code, each.node) for each in found] == [("EK1002", "first"), ("EK1002", "second")]
    why = "int64 value 1099511627776 does not fit in int32 (Core AI narrows 64-bit integers to 32-bit)"
    assert found[0].message.endswith(why)
    assert coreai.check_model(model, find_profile("coreai")) == found


def test_the_same_bytes_in_another_process() -> None:
    files = coreai.compile_model(product(), find_profile("coreai"), "fp32").files
    ours = [hashlib.sha256(content).hexdigest() for _, content in sorted(files.items())]
    done = subprocess.run([sys.executable, "-c", SAVED], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ours
    assert files[HASH] == hashlib.sha256(files[PROGRAM]).digest()
    assert b"resource_0\0" in files[PROGRAM]


def test_what_is_not_bytecode() -> None:
    with pytest.raises(ValueError, match="does not start as MLIR bytecode"):
        with_numbered_resources(b"no model")


def test_float16_halves_the_weights_and_computes_in_it(tmp_path: Path) -> None:
    model = product()
    sizes = []
    for precision in ("fp32", "fp16"):
        runner = load(model, "coreai", tmp_path / precision, precision)
        given = feeds(model)
        db = snr_db(Reference(model).run(given)["y"], runner.run(given)["y"])
        assert runner.precision == precision
        assert db >= 120 if precision == "fp32" else 50 <= db < 90
        sizes.append((tmp_path / precision / PROGRAM).stat().st_size)
        runner.close()
    assert sizes[1] < 0.6 * sizes[0]


@pytest.mark.needs_shared
@pytest.mark.parametrize("name", ["resnet8_cifar10_int8_qdq", "silero_vad", "kws_ref_model_float32"])
def test_shared_models(name: str, shared: Path, tmp_path: Path) -> None:
    """int32 biases, an LSTM with its cell state, and small convolutions. docs/coreai.md has the others."""
    case = CASES[name]
    model = open_model(shared / "models" / f"{name}.onnx", case.shapes)
    inputs, outputs = signature(model)
    given = feeds_of(inputs, case)
    wanted = Reference(model).run(given)
    run_passes(model)
    made = coreai.compile_model(model, find_profile("coreai"), "fp32")
    files = write_files(made, tmp_path)
    runner = registry.engine("coreai").open_runner(files, inputs, outputs, made.options, 1)
    got = runner.run(given)
    for output, array in wanted.items():
        if array.dtype.kind == "f":
            assert snr_db(array, got[output]) >= 100, output
        else:
            np.testing.assert_array_equal(got[output], array)
    runner.close()
