"""A second oracle: Apple's own Core AI runtime for Linux, on models that another converter read. What our
package answers by the reference executor is compared with what that answers.
"""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from edgekit_coreai.convert import convert
from edgekit_coreml.compile import compile_model
from edgekit_coreml.run import open_runner

from edgekit.compiler.evaluate.verify import write_files
from edgekit.compiler.model.onnx_file import open_model, save_model, signature
from edgekit.compiler.passes import run_passes
from edgekit.target import Artifact, registry
from edgekit.target.installed_profiles import find_profile
from tests.compiler.passes.meaning import snr_db
from tests.fixtures.shared_models import Case, feeds
from tests.targets.coreml.networks import NETWORKS

pytestmark = [
    pytest.mark.needs_shared, pytest.mark.needs_coreml, pytest.mark.needs_ort, pytest.mark.needs_coreai,
]  # fmt: skip


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
    files, found = convert(onnx.ModelProto.FromString(save_model(source)), "coreai")
    assert found == []
    names = {"inputs": [spec.name for spec in inputs], "outputs": [spec.name for spec in outputs]}
    theirs = write_files(Artifact(files), tmp_path / "theirs")
    runner = registry.engine("coreai").open_runner(theirs, inputs, outputs, names | {"precision": "fp32"}, 1)
    apples = runner.run(given)
    runner.close()
    run_passes(source)
    made = compile_model(source, find_profile("coreml"), "fp32")
    ours = open_runner(write_files(made, tmp_path / "ours"), inputs, outputs, made.options, 1).run(given)
    for spec in outputs:
        assert snr_db(apples[spec.name], ours[spec.name]) >= 90, spec.name
