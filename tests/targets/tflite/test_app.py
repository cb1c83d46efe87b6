"""The file for Android's tools: the card's words inside, the same answers, and refusals in words.

Read back field by field by the numbers of the published schema; Google's own reader (tflite-support 0.4.4)
was given files like these by hand, and found the same.
"""

from __future__ import annotations

import io
import zipfile
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from edgekit_tflite import assembly
from edgekit_tflite.app import app_files
from edgekit_tflite.assembly import IDENTIFIER
from edgekit_tflite.compile import FILE
from edgekit_tflite.records import Record, packed, unpacked
from flatbuffers import number_types, table

from edgekit.compiler.lowering.io_layouts import lay_out
from edgekit.errors import UsageError
from edgekit.processing import Card
from edgekit.processing.card import parse_card
from edgekit.target import Artifact
from edgekit.target.build_target import resolve
from edgekit.target.installed_profiles import find_profile
from edgekit.tensor_spec import Array, TensorSpec
from tests.targets.tflite.running import compiled, files_of, model_of, ran, with_weights

OUTPUTS = [TensorSpec("y", "float32", (1, 5))]


def network() -> ir.Model:
    """A picture of 4 x 6 -> 5 scores."""
    body = "c = Conv <pads = [1, 1, 1, 1]> (x, w)\n g = GlobalAveragePool(c)\n y = Flatten(g)"
    model = model_of("float[1, 3, 4, 6] x", body, "float[5, 3, 3, 3] w")
    return with_weights(model, {"w": np.random.default_rng(0).normal(size=(5, 3, 3, 3)).astype(np.float32)})


def for_android() -> Artifact:
    model = network()
    lay_out(model, {"x": "nhwc"}, [resolve(find_profile("tflite"))])
    return compiled(model)


def card(labels: list[str] | None = None, **image: Any) -> Card:
    told = {
        "kind": "image", "shape": [1, 3, 4, 6], "layout": "NCHW", "colour": "RGB", "resize": "letterbox",
        "pad": 7, "mean": [1, 2, 3], "std": [4, 5, 6], **image,
    }  # fmt: skip
    task = {"kind": "classify", "decode": "logits", "outputs": {"scores": "y"}, "labels": labels or []}
    about = {"author": "A. Author", "license": "Apache-2.0", "version": "1.2", "description": "Names birds."}
    return parse_card({"title": "Birds", "inputs": {"x": told}, "task": task, "about": about})


class Fields:
    """A table of the metadata, its fields by their place in the schema."""

    def __init__(self, held: Any) -> None:
        self._held = held

    @classmethod
    def root(cls, content: bytes) -> Fields:
        start = int.from_bytes(content[:4], "little")
        return cls(table.Table(content, start))

    def _at(self, place: int) -> int:
        return int(self._held.Offset(4 + 2 * place))

    def text(self, place: int) -> str:
        at = self._at(place)
        return bytes(self._held.String(at + self._held.Pos)).decode() if at else ""

    def number(self, place: int, flags: Any = number_types.Int8Flags) -> int:
        at = self._at(place)
        return int(self._held.Get(flags, at + self._held.Pos)) if at else 0

    def floats(self, place: int) -> list[float]:
        found: Array = self._held.GetVectorAsNumpy(number_types.Float32Flags, self._at(place))
        return [float(x) for x in found]

    def inner(self, place: int) -> Fields:
        at = self._at(place)
        return Fields(table.Table(self._held.Bytes, self._held.Indirect(at + self._held.Pos)))

    def all(self, place: int) -> list[Fields]:
        at = self._at(place)
        if not at:
            return []
        start, count = self._held.Vector(at), self._held.VectorLen(at)
        places = [self._held.Indirect(start + 4 * i) for i in range(count)]
        return [Fields(table.Table(self._held.Bytes, place)) for place in places]


def metadata_of(file: bytes) -> Fields:
    model: Any = unpacked(file, "Model")
    (entry,) = model.metadata
    assert entry.name == b"TFLITE_METADATA"
    content = bytes(model.buffers[entry.buffer].data)
    assert content[4:8] == b"M001"
    return Fields.root(content)


def test_the_card_is_inside() -> None:
    artifact = for_android()
    told = metadata_of(app_files(files_of(artifact), artifact.options, card(), OUTPUTS)[FILE])
    assert [told.text(i) for i in (0, 1, 2, 4, 5, 7)] == [
        "Birds",
        "Names birds.",
        "1.2",
        "A. Author",
        "Apache-2.0",
        "1.0.0",
    ]
    (subgraph,) = told.all(3)
    ((x,), (y,)) = subgraph.all(2), subgraph.all(3)
    assert (x.text(0), y.text(0)) == ("x", "y")
    assert x.text(1) == "A picture, fitted at its proportions, top-left, the rest 7; linear interpolation."
    content = x.inner(3)
    image = content.inner(1)
    size = image.inner(1)
    wide = number_types.Uint32Flags
    assert (content.number(0), image.number(0)) == (2, 1)  # an image, RGB
    assert (size.number(0, wide), size.number(1, wide)) == (6, 4)
    (step,) = x.all(4)
    assert step.number(0) == 1
    assert (step.inner(1).floats(0), step.inner(1).floats(1)) == ([1, 2, 3], [4, 5, 6])
    assert x.inner(5).floats(1) == pytest.approx([-1 / 4, -2 / 5, -3 / 6])
    assert x.inner(5).floats(0) == pytest.approx([254 / 4, 253 / 5, 252 / 6])
    assert y.text(1) == "scores, to be decoded as logits"
    assert (y.inner(3).number(0), y.all(6), told.all(6)) == (1, [], [])


def test_labels_are_a_zip_behind_the_model() -> None:
    artifact = for_android()
    files = app_files(files_of(artifact), artifact.options, card(["wren", "dipper", "swift"]), OUTPUTS)
    again = app_files(files_of(artifact), artifact.options, card(["wren", "dipper", "swift"]), OUTPUTS)
    assert files == again
    with zipfile.ZipFile(io.BytesIO(files[FILE])) as archive:
        assert archive.namelist() == ["labels.txt"]
        assert archive.read("labels.txt") == b"wren\ndipper\nswift\n\n\n"  # one line a score
    (subgraph,) = metadata_of(files[FILE]).all(3)
    ((labels,),) = [y.all(6) for y in subgraph.all(3)]
    assert (labels.text(0), labels.number(2)) == ("labels.txt", 2)


@pytest.mark.needs_tflite
@pytest.mark.parametrize("outside", [False, True])
def test_it_answers_as_before(outside: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if outside:
        monkeypatch.setattr(assembly, "INSIDE_LIMIT_BYTES", 1000)
    artifact = for_android()
    files = app_files(files_of(artifact), artifact.options, card(["wren"]), OUTPUTS)
    x = np.random.default_rng(0).normal(size=(1, 4, 6, 3)).astype(np.float32)
    before, after = ran(artifact, {"x": x}), ran(Artifact(files, artifact.options, {}), {"x": x})
    assert np.array_equal(before["y"], after["y"])


def test_an_integer_input_is_prepared_as_the_float_it_stands_for() -> None:
    """The tools prepare a float and quantize it: (p - mean) / std / scale + zero point is p - 128 again."""
    artifact = for_android()
    model: Any = unpacked(artifact.files[FILE], "Model")
    made = Record("QuantizationParameters", scale=[0.25], zeroPoint=[-128])
    model.subgraphs[0].tensors[model.subgraphs[0].inputs[0]].quantization = made
    files = {FILE: packed(model, IDENTIFIER)}
    told = metadata_of(app_files(files, artifact.options, card(mean=[128] * 3, std=[1] * 3), OUTPUTS)[FILE])
    ((x,),) = [subgraph.all(2) for subgraph in told.all(3)]
    (step,) = x.all(4)
    mean, std = np.array(step.inner(1).floats(0)), np.array(step.inner(1).floats(1))
    pixel = np.array([0.0, 100.0, 255.0])
    assert np.allclose((pixel - mean) / std / 0.25 - 128, pixel - 128)


BODIES = {
    "conv": "c = Conv <pads = [1, 1, 1, 1]> (x, w)\n g = GlobalAveragePool(c)\n y = Flatten(g)",
    "rows": "y = Flatten(x)",
    "both": "c = Conv <pads = [1, 1, 1, 1]> (x, w)\n g = GlobalAveragePool(c)\n f = Flatten(g)\n"
    " r = Flatten(x)\n m = MatMul(r, v)\n y = Add(f, m)",
    "cast": "a = Cast <to = 6> (x)\n b = Cast <to = 1> (a)\n c = Conv(b, w)\n y = Add(c, c)",
    "transposed": "y = Transpose<perm = [0, 2, 3, 1]>(x)",
    "outside": "c = Mul(x, x)\n y = Add(c, x)",
}
WEIGHTS = {
    name: np.random.default_rng(0).normal(size=shape).astype(np.float32)
    for name, shape in (("w", (5, 3, 3, 3)), ("v", (72, 5)))
}


@pytest.mark.needs_tflite
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("outside", [False, True])
def test_channels_become_the_last_axis_where_they_were_built_first(
    body: str, outside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if outside:
        monkeypatch.setattr(assembly, "INSIDE_LIMIT_BYTES", 1000)
    declared = "float[5, 3, 3, 3] w, float[72, 5] v"
    artifact = compiled(with_weights(model_of("float[1, 3, 4, 6] x", BODIES[body], declared), WEIGHTS))
    files = app_files(files_of(artifact), artifact.options, card(), OUTPUTS)
    x = np.random.default_rng(0).normal(size=(1, 3, 4, 6)).astype(np.float32)
    after = Artifact(files, artifact.options, {})
    expected = ran(artifact, {"x": x})["y"]
    assert np.array_equal(expected, ran(after, {"x": x.transpose(0, 2, 3, 1)})["y"])
    subgraph: Any = unpacked(files[FILE], "Model")
    subgraph = subgraph.subgraphs[0]
    taken = subgraph.tensors[subgraph.inputs[0]]
    assert (bytes(taken.name), taken.shape.tolist()) == (b"x", [1, 4, 6, 3])
    if body == "conv":  # the transpose that the convolution needed is not there any more
        before: Any = unpacked(artifact.files[FILE], "Model")
        assert len(subgraph.operators) == len(before.subgraphs[0].operators) - 1


def test_labels_of_what_is_no_row_of_scores_are_beside_the_model() -> None:
    """YOLOX's rows hold boxes and scores: no axis of them is one of classes."""
    artifact = for_android()
    picture = {"kind": "image", "shape": [1, 3, 4, 6], "layout": "NCHW", "colour": "RGB", "resize": "stretch"}
    task = {"kind": "detect", "decode": "yolox", "outputs": {"predictions": "y"}, "labels": ["bird"]}
    told = parse_card({"title": "Boxes", "inputs": {"x": picture}, "task": task})
    file = app_files(files_of(artifact), artifact.options, told, OUTPUTS)[FILE]
    (labels,) = metadata_of(file).all(6)
    assert (labels.text(0), labels.number(2)) == ("labels.txt", 0)
    assert zipfile.ZipFile(io.BytesIO(file)).read("labels.txt") == b"bird\n"


def test_what_the_tools_would_prepare_wrongly_is_refused() -> None:
    artifact = compiled(network())
    with pytest.raises(UsageError) as caught:
        app_files(files_of(artifact), artifact.options, card(colour="BGR"), OUTPUTS)
    assert str(caught.value) == (
        "Birds: input x is BGR, and Android's tools give RGB or grey; "
        "export it without --metadata, and prepare the picture yourself"
    )
