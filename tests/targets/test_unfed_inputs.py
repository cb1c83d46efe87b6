"""A file that reads an input which the manifest does not name must not answer from what its memory held."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit.compiler.passes import run_passes
from edgekit.errors import EngineError
from edgekit.target.registry import compiler, engine
from edgekit.tensor_spec import TensorSpec
from tests.fixtures.models import TWO_INPUTS, parse
from tests.targets.engine_trial import profile, put_down

LEFT, SUM = TensorSpec("left", "float32", (1, 8)), TensorSpec("sum", "float32", (1, 8))
SAYS = {
    "ort": r"failed to run: Required inputs \(\['right'\]\) are missing",
    "openvino": r"^model\.xml reads right, which is not an input of the model; its inputs are left$",
    "tflite": r"model\.tflite reads right, which is not an input of the model; its inputs are left$",
    "coreml": r"^input right is missing; there are left$",
}


@pytest.mark.parametrize(
    "target", [pytest.param(name, marks=getattr(pytest.mark, f"needs_{name}")) for name in SAYS]
)
def test_an_input_that_nobody_feeds_is_an_engine_error(target: str, tmp_path: Path) -> None:
    model = parse(TWO_INPUTS)
    run_passes(model)
    artifact = compiler(target).compile_model(model, profile(target), "fp32")
    options = dict(artifact.options)
    if "inputs" in options:
        options["inputs"] = [entry for entry in options["inputs"] if entry["name"] == "left"]
    files = put_down(artifact, tmp_path)

    def answer() -> None:
        runner = engine(target).open_runner(files, [LEFT], [SUM], options, 1)
        runner.run({"left": np.ones((1, 8), np.float32)})

    with pytest.raises(EngineError, match=SAYS[target]):
        answer()
