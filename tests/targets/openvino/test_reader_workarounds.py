"""What OpenVINO would answer wrongly is written out or refused."""

from __future__ import annotations

import numpy as np
import pytest
from edgekit_openvino import compile as openvino
from edgekit_openvino.reader_workarounds import computed_wrongly, with_reader_workarounds

from edgekit.compiler.model.rewriting import scalar_of
from edgekit.errors import UnsupportedError
from tests.compiler.passes.meaning import Weight, answers, folded, model_of, ops
from tests.targets.engine_trial import profile

LSTM = """g (float[{steps},1,3] x, float[1,8,3] w, float[1,8,2] r, float[1,6] p) => (float[1,1,2] h) {{
    _, h = LSTM <hidden_size = 2> (x, w, r, , , , , p)
}}"""


def test_a_model_that_it_reads_well_is_itself() -> None:
    model = folded("g (float[3,4] x) => (float[3,4] y) { y = Relu (x) }")
    assert with_reader_workarounds(model) is model


@pytest.mark.needs_ort
def test_the_source_is_not_changed() -> None:
    model = folded(
        """g (float[1,2,8,10] x) => (float[1,2,4,7] y) {
        y = Resize <mode="linear", antialias=1> (x, , , sizes) }""",
        sizes=np.array([1, 2, 4, 7]),
    )
    assert "Resize" not in ops(with_reader_workarounds(model))
    assert ops(model) == ["Resize"]


@pytest.mark.needs_ort
def test_a_row_of_nothing_but_infinity_keeps_it() -> None:
    model = folded(
        """g (float[2,3] x) => (bool[2] y, float[2] z) {
        low = Constant <value = float {-inf}> ()   least = Constant <value = float {-0.5}> ()
        few = Less (x, least)   masked = Where (few, low, x)
        axes = Constant <value = int64[1] {1}> ()
        z = ReduceMax <keepdims = 0> (masked, axes)   y = Equal (z, low) }"""
    )
    written = with_reader_workarounds(model)
    assert ops(written).count("ReduceMax") == 2
    for wanted, got in zip(answers(model), answers(written), strict=True):
        np.testing.assert_array_equal(got["y"], wanted["y"])
        np.testing.assert_array_equal(got["z"], wanted["z"])


@pytest.mark.needs_openvino
def test_peepholes_of_a_long_sequence_are_refused() -> None:
    model = model_of(LSTM.format(steps=257))
    (finding,) = computed_wrongly(model, "openvino")
    assert finding.message == "OpenVINO drops the peepholes (input P) of an LSTM"
    assert openvino.check_model(model, profile("openvino")) == [finding]
    with pytest.raises(UnsupportedError, match="drops the peepholes"):
        openvino.compile_model(model, profile("openvino"), "fp32")


@pytest.mark.needs_openvino
def test_peepholes_of_a_short_sequence_are_written_out() -> None:
    model = model_of(LSTM.format(steps=2))
    assert openvino.check_model(model, profile("openvino")) == []
    openvino.compile_model(model, profile("openvino"), "fp32")


NMS = """g (float[1,2,4] boxes, float[1,1,2] scores ARGUMENT) => (int64[?,3] y) {
    most = Constant <value = int64 {5}> ()
    y = NonMaxSuppression (boxes, scores, most GIVEN)
}"""


@pytest.mark.needs_ort
@pytest.mark.parametrize("given", ["", ", iou", ", iou, least"])
def test_a_box_at_the_threshold_itself_stays(given: str) -> None:
    weights: dict[str, Weight] = {}
    if given:
        weights["iou"] = [0.25]
    if "least" in given:
        weights["least"] = [0.1]
    text = NMS.replace("ARGUMENT", "").replace("GIVEN", given)
    model = folded(text, 23, **weights)
    written = with_reader_workarounds(model)
    assert written is not model
    (node,) = (each for each in written.graph if each.op_type == "NonMaxSuppression")
    threshold = scalar_of(node.inputs[3])
    assert threshold is not None
    assert threshold > (0.25 if given else 0.0)
    assert threshold < (0.2501 if given else 1e-30)


def test_a_threshold_that_the_model_computes_is_refused() -> None:
    text = NMS.replace("ARGUMENT", ", float[1] iou").replace("GIVEN", ", iou")
    (finding,) = computed_wrongly(model_of(text), "openvino")
    assert finding.message == (
        "OpenVINO also drops boxes exactly at the threshold, and the model computes this threshold"
    )
