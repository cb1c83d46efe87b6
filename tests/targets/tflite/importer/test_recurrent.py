"""An LSTM over a sequence, against LiteRT, from a state of zeros."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgekit_tflite.importer.convert import convert
from edgekit_tflite.importer.read_recurrent import STATE

import edgekit
from edgekit.compiler.importers.contract import ImportOptions
from edgekit.errors import ModelError
from tests.fixtures.tflite_files import TfliteFile, edited

BATCH, STEPS, SIZE, UNITS = 2, 5, 3, 4


def lstm(time_major: bool, **changed: Any) -> bytes:
    """A file with one LSTM; ``changed``: an option, or ``input_9`` and so on for an input that it lacks."""
    rng = np.random.default_rng(0)
    file = TfliteFile()

    def weights(*shape: int) -> int:
        return file.constant(rng.normal(size=shape).astype(np.float32))

    shape = (STEPS, BATCH) if time_major else (BATCH, STEPS)
    inputs = [file.input((*shape, SIZE), name="x")]
    inputs += [weights(UNITS, SIZE) for _ in range(4)] + [weights(UNITS, UNITS) for _ in range(4)]
    inputs += [-1] * 3 + [weights(UNITS) for _ in range(4)] + [-1] * 2
    states = [file.constant(np.zeros((BATCH, UNITS), np.float32)) for _ in range(2)]
    inputs += states
    for name in [name for name in changed if name.startswith("input_")]:
        inputs[int(name[6:])] = weights(UNITS) if changed.pop(name) else -1
    options: dict[str, Any] = {"fused_activation_function": "TANH", "cell_clip": 0.0, "proj_clip": 0.0}
    options |= {"time_major": time_major, **changed}
    made = file.op("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, ((*shape, UNITS), "float32"), **options)

    def keep(model: Any) -> None:
        for tensor in model.subgraphs[0].tensors:
            if tensor.name in [file.graph.tensors[i].name.encode() for i in states]:
                tensor.isVariable, tensor.buffer = True, 0

    return edited(file.content(*made), keep)


@pytest.mark.needs_ort
@pytest.mark.needs_tflite
@pytest.mark.parametrize("time_major", [True, False])
def test_it_answers_as_the_file_does(time_major: bool, tmp_path: Path) -> None:
    path = tmp_path / "lstm.tflite"
    path.write_bytes(lstm(time_major))
    found = edgekit.import_model(path)
    assert found.imported.notes == (STATE,)
    (error,) = found.compared.outputs.values()
    assert error.snr_db is None or error.snr_db > 120


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (
            {"input_9": True},
            "it has a projection, peepholes or normalized gates, which ONNX's LSTM does not support",
        ),
        (
            {"input_16": True},
            "it has a projection, peepholes or normalized gates, which ONNX's LSTM does not support",
        ),
        ({"cell_clip": 3.0}, "it has another activation than tanh, or clips its cells"),
        ({"fused_activation_function": "RELU"}, "it has another activation than tanh, or clips its cells"),
        ({"input_18": True}, "its first state is not zero"),
        ({"input_12": False}, "a gate has no weights or no bias: one that is coupled to another"),
        ({"input_1": False}, "a gate has no weights or no bias: one that is coupled to another"),
    ],
)
def test_what_onnx_has_not_is_refused(changed: dict[str, Any], why: str) -> None:
    data = lstm(True, **changed)
    with pytest.raises(ModelError) as error:
        convert(data, ImportOptions())
    assert str(error.value) == f"operator 0 (UNIDIRECTIONAL_SEQUENCE_LSTM): {why}"


def test_an_lstm_without_biases() -> None:
    convert(lstm(True, input_12=False, input_13=False, input_14=False, input_15=False), ImportOptions())
