"""Trainings that can't go on end with an error, whatever their learning rate may do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx.parser
import pytest

from edgekit.compiler.compress.picture_augmentation import PictureAugmentation
from edgekit.compiler.compress.student_training import TrainingTask, train_student
from edgekit.compiler.model.onnx_file import open_model
from edgekit.compiler.passes import run_passes
from edgekit.errors import UsageError
from edgekit.tensor_spec import Array

pytest.importorskip("torch", reason="PyTorch is not installed (pip install '.[train]')")
pytestmark = pytest.mark.needs_ort

LINE = """
<ir_version: 8, opset_import: ["": 17]>
line (float[1,2] x) => (float[1,1] y) <float[2,1] w = {1, 2}> { y = MatMul(x, w) }
"""


@pytest.mark.parametrize("lowered", [False, True])
def test_a_sample_whose_answer_is_infinite_ends_the_training(tmp_path: Path, lowered: bool) -> None:
    """Its loss is infinite with any weights, which says nothing of the learning rate."""
    from edgekit.compiler.compress.torch.training_loop import TrainingOptions

    path = tmp_path / "line.onnx"
    path.write_bytes(onnx.parser.parse_model(LINE).SerializeToString())
    model = open_model(path)
    run_passes(model)
    samples: list[dict[str, Array]] = [
        {"x": row[None]} for row in np.random.default_rng(0).normal(size=(600, 2)).astype(np.float32)
    ]
    samples[-1]["x"] = np.full((1, 2), 2e38, np.float32)  # beyond those that errors are normalized by
    task = TrainingTask(
        model, model.clone(), {"x": "x", "y": "y"}, None, samples, samples[:8], PictureAugmentation(None, ())
    )
    options = TrainingOptions(epochs=1, batch=8, learning_rate=1e-3, lowered=lowered)
    with pytest.raises(UsageError, match=r"the training diverged at step \d+: its loss is (inf|nan)"):
        train_student(task, options, 1, lambda text: None)
