"""Several shapes in Core ML: a function for each in one package from iOS 18 on, one ``weight.bin`` before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgekit
from edgekit.bundle.bundle import Bundle
from edgekit.release.export.export import export_variant
from edgekit.runtime import Session
from tests.fixtures.detector import detector, detector_card

pytestmark = [pytest.mark.needs_coreml, pytest.mark.needs_ort]
SIZES = (64, 96, 128)
SHAPES = tuple((1, 3, size, size) for size in SIZES)
WEIGHTS, SPECIFICATION = "weights/weight.bin", "model.mlmodel"


def built(folder: Path, profile: str, shapes: Any = SHAPES, **options: Any) -> Bundle:
    model = detector(folder / "detector.onnx")
    options = {"precision": "fp32", "trusted": True, **options}
    return edgekit.build(model, targets=[profile], shapes={"image": shapes}, **options)


def files_of(bundle: Bundle) -> dict[str, bytes]:
    return {name: bytes(bundle.read(entry)) for name, entry in bundle.variants[0].files.items()}


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize(("profile", "packages"), [("coreml", 3), ("iphone-12", 1)])
def test_shapes_share_weights_and_answer_as_builds_of_one(
    profile: str, packages: int, precision: str, tmp_path: Path
) -> None:
    bundle = built(tmp_path, profile, precision=precision)
    variant = next(v for v in bundle.variants if v.precision == precision)
    assert sum(name.endswith(SPECIFICATION) for name in variant.files) == packages
    assert len({entry for name, entry in variant.files.items() if name.endswith(WEIGHTS)}) == 1
    alone = built(tmp_path, profile, SHAPES[-1], precision=precision)
    sizes = [
        sum(
            each.size_bytes(e)
            for n, e in v.files.items()
            if n == f"model.mlpackage/Data/com.apple.CoreML/{WEIGHTS}"
        )
        for each in (bundle, alone)
        for v in each.variants
        if v.precision == precision
    ]
    assert sizes[0] < 1.02 * sizes[1]
    with Session(bundle, variant=variant.name, strict=True) as session:
        for size, shape in zip(SIZES, SHAPES, strict=True):
            image = {"image": np.random.default_rng(size).random((1, 3, size, size), np.float32)}
            one = built(tmp_path, profile, shape, precision=precision)
            with Session(one, variant=variant.name, strict=True) as single:
                assert np.array_equal(session.run(image)["boxes"], single.run(image)["boxes"])


def test_coremltools_reads_each_function_as_its_own_writer_does(tmp_path: Path) -> None:
    from edgekit_coreml.vendor import coremltools

    tools = coremltools()
    from coremltools.converters.mil.frontend.milproto.load import load

    export_variant(built(tmp_path, "iphone-12"), "iphone-12-fp32", tmp_path / "all")
    (package,) = (tmp_path / "all").glob("*.mlpackage")
    both = tools.utils.MultiFunctionDescriptor()
    for number, shape in enumerate(SHAPES):
        folder = tmp_path / str(number)
        export_variant(built(tmp_path, "iphone-12", shape), "iphone-12-fp32", folder)
        name = "main" if shape == SHAPES[-1] else f"main_{number + 1}"
        both.add_function(str(next(folder.glob("*.mlpackage"))), "main", name)
    both.default_function_name = "main"
    tools.utils.save_multifunction(both, str(tmp_path / "theirs.mlpackage"))
    ours, theirs = (tools.utils.load_spec(str(path)) for path in (package, tmp_path / "theirs.mlpackage"))
    for message in (ours, theirs):
        message.description.ClearField("metadata")
    key = {f.name: f for f in theirs.description.functions}
    assert {f.name: f for f in ours.description.functions} == key
    assert ours.description.defaultFunctionName == "main"
    weights = package / "Data/com.apple.CoreML/weights"
    program = load(ours, ours.specificationVersion, str(weights))
    expected = load(
        theirs, theirs.specificationVersion, str(tmp_path / "theirs.mlpackage/Data/com.apple.CoreML/weights")
    )
    assert program.functions.keys() == expected.functions.keys() == {"main", "main_1", "main_2"}
    for name, function in program.functions.items():
        pairs = zip(constants(function), constants(expected.functions[name]), strict=True)
        assert all(np.array_equal(one, other) for one, other in pairs)


def constants(function: Any) -> list[Any]:
    return [op.outputs[0].val for op in function.operations if op.op_type == "const"]


def test_a_package_for_an_app_has_the_largest_shape_alone(tmp_path: Path) -> None:
    from edgekit_coreml.vendor import coremltools

    bundle = built(tmp_path, "iphone-12", card=detector_card(SIZES[-1]))
    export_variant(bundle, "iphone-12-fp32", tmp_path / "app", metadata=True)
    (package,) = (tmp_path / "app").glob("*.mlpackage")
    spec = coremltools().utils.load_spec(str(package))
    assert list(spec.mlProgram.functions) == ["main"]
    assert not spec.description.functions
    assert spec.description.input[0].type.imageType.width == SIZES[-1]
