"""A second oracle: Apple's own Core AI runtime for Linux, in a child process, on models that another
converter read. What our package answers by the reference executor is compared with what that answers.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgekit_coreml.compile import compile_model
from edgekit_coreml.run import open_runner

from edgekit.compiler.evaluate.verify import write_files
from edgekit.compiler.model.onnx_file import open_model, save_model, signature
from edgekit.compiler.passes import run_passes
from edgekit.target.installed_profiles import find_profile
from tests.compiler.passes.meaning import snr_db
from tests.fixtures.shared_models import Case, feeds
from tests.targets.coreml.networks import NETWORKS

pytestmark = [
    pytest.mark.needs_shared, pytest.mark.needs_coreml, pytest.mark.needs_ort, pytest.mark.needs_core_ai,
]  # fmt: skip

CHILD = """
import asyncio, sys
import numpy as np, onnx
import coreai_onnx
from coreai.authoring import AIModelAsset
from coreai.runtime import NDArray

async def answers(path, feeds):
    async with AIModelAsset.load(path).executable() as model:
        function = model.load_function(model.function_names[0])
        given = {name: NDArray(array) for name, array in feeds.items()}
        return [np.array(value.numpy()) for value in (await function(given)).values()]

from pathlib import Path
source, inputs, made, outputs = map(Path, sys.argv[1:])
coreai_onnx.convert(onnx.load(source)).save_asset(made)
np.savez(outputs, *asyncio.run(answers(made, dict(np.load(inputs)))))
"""


@pytest.mark.parametrize(
    "name",
    ["resnet8_cifar10_fp32", "kws_ref_model_float32", "vww_96_float", "ch_ppocr_mobile_v2.0_cls_infer",
     "ch_PP-OCRv4_rec_infer"],
)  # fmt: skip
def test_answers_as_apples_runtime_does(name: str, shared: Path, tmp_path: Path) -> None:
    network = next(one for one in NETWORKS if one.name == name)
    source = open_model(shared / "models" / f"{name}.onnx", network.shapes)
    inputs, outputs = signature(source)
    given = feeds(inputs, Case((0, 0), picture=network.picture))
    (tmp_path / "model.onnx").write_bytes(save_model(source))
    arrays: dict[str, Any] = {spec.name: given[spec.name] for spec in inputs}
    np.savez(tmp_path / "inputs.npz", **arrays)
    paths = [str(tmp_path / n) for n in ("model.onnx", "inputs.npz", "model.aimodel", "outputs.npz")]
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *paths], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    apples = np.load(tmp_path / "outputs.npz")
    run_passes(source)
    made = compile_model(source, find_profile("coreml"), "fp32")
    ours = open_runner(write_files(made, tmp_path / "ours"), inputs, outputs, made.options, 1).run(given)
    for place, spec in enumerate(outputs):
        apple = apples[f"arr_{place}"].reshape(spec.shape)
        assert snr_db(apple, ours[spec.name]) >= 90, spec.name
