"""``edgekit model distil --quantize``: what is trained with int8's rounding is what a build ships."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import edgekit
from edgekit.compiler.model.onnx_file import open_model
from edgekit.compiler.model.reference import Reference
from edgekit.errors import ProfileError
from edgekit.runtime import Session
from edgekit.tensor_spec import Array
from tests.fixtures.command_line import Call, answer
from tests.train.conftest import Digits
from tests.train.distillation import StopAt, accuracy, distilled

pytest.importorskip("torch")
pytestmark = pytest.mark.needs_ort


def pairs(model: ir.Model) -> int:
    return sum(node.op_type == "QuantizeLinear" for node in model.graph)


def test_digits_from_the_teacher_to_int8(digits_pair: Digits, tmp_path: Path, call: Call) -> None:
    """Teacher .92, pruned .74, trained in int8 .88."""
    for index, sample in enumerate(digits_pair.samples):
        np.save(tmp_path / f"{index}.npy", sample["x"])
    output = tmp_path / "student.onnx"
    done = call(
        "model", "distil", digits_pair.teacher, "--student", digits_pair.student, "--samples",
        tmp_path / "*.npy", "--card", digits_pair.card, "-o", output, "--threads", "1", "--augment",
        "crop,brightness", "--epochs", "12", "--quantize", "ort", "--json",
    )  # fmt: skip
    found = answer(done)
    assert done.exit_code == 0
    assert found["quantized_for"] == ["ort"]
    assert found["after"]["fidelity"]["value"] > found["before"]["fidelity"]["value"] + 0.05
    model = open_model(output)
    assert pairs(model)
    teacher, before, after = (
        accuracy(Reference(open_model(path)).run)
        for path in (digits_pair.teacher, digits_pair.student, output)
    )
    assert before + 0.08 < after
    assert after > 0.87 * teacher
    bundle = edgekit.build(output, targets=["ort"], precision="int8", card=digits_pair.card, force=True)
    with Session(bundle) as session:
        assert accuracy(session.run) > after - 0.02


def test_stopped_and_resumed(digits_pair: Digits, tmp_path: Path) -> None:
    checkpoint = tmp_path / "c"
    options: dict[str, Any] = {"quantize": ["ort", "tflite"]}
    whole = distilled(digits_pair, **options)
    part = distilled(digits_pair, checkpoint=checkpoint, progress=StopAt(9), **options)
    assert not part.finished
    resumed = distilled(digits_pair, checkpoint=checkpoint, resume=True, **options)
    assert resumed.onnx == whole.onnx != part.onnx
    assert "int8             ort and tflite: before and after, of the worse one" in whole.text()
    whole.save(tmp_path / "student.onnx")
    models = [open_model(tmp_path / f"student-{target}.onnx") for target in ("ort", "tflite")]
    assert pairs(models[0]) != pairs(models[1])
    made = [[reference(model, sample) for sample in digits_pair.samples[:64]] for model in models]
    one, other = np.stack(made[0]), np.stack(made[1])
    assert np.square(one - other).mean() < 0.01 * np.square(one).mean(), "one network, rounded in two ways"


def reference(model: ir.Model, sample: dict[str, Array]) -> Array:
    return next(iter(Reference(model).run(sample).values()))


def test_a_target_that_there_is_not(digits_pair: Digits) -> None:
    with pytest.raises(ProfileError):
        distilled(digits_pair, quantize=["abacus"])
