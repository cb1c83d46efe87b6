"""``--shape image=1x3x64x64,1x3x96x96``: a model at several shapes, from the build to a session's answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

import edgekit
from edgekit.batch.rebuild import build_here, recipe
from edgekit.bundle.bundle import Bundle
from edgekit.cli import main
from edgekit.compiler.evaluate.verify_bundle import CheckOutcome, verify_bundle
from edgekit.errors import BundleError, UsageError
from edgekit.release.export.export import export_variant
from edgekit.runtime import Session
from edgekit.runtime.loading.probe import probe
from edgekit.runtime.remote.remote_session import RemoteSession
from edgekit.target.shapes import ShapesRunner
from edgekit.tensor_spec import Array
from tests.fixtures.detector import detector, detector_card

pytestmark = pytest.mark.needs_ort

SIZES = (64, 96, 128)
SHAPES = tuple((1, 3, size, size) for size in SIZES)
ON_TARGETS = pytest.mark.parametrize(
    "target",
    [
        "ort",
        pytest.param("tflite", marks=pytest.mark.needs_tflite),
        pytest.param("openvino", marks=pytest.mark.needs_openvino),
        pytest.param("coreml", marks=pytest.mark.needs_coreml),
    ],
)


def built(folder: Path, shapes: Any = SHAPES, **options: Any) -> Bundle:
    options = {"targets": ["ort"], "trusted": True, **options}
    return edgekit.build(detector(folder / "detector.onnx"), shapes={"image": shapes}, **options)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("three")
    return built(folder, card=detector_card(SIZES[-1])).save(folder / "three.edgekit")


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Array]:
    """Boxes of ``image(size)`` by a float build of each size alone."""
    boxes, folder = {}, tmp_path_factory.mktemp("single")
    for size, shape in zip(SIZES, SHAPES, strict=True):
        with Session(built(folder, shape), strict=True) as single:
            boxes[size] = single.run(image(size))["boxes"]
    return boxes


def image(size: int, seed: int = 0) -> dict[str, Any]:
    return {"image": np.random.default_rng(seed).random((1, 3, size, size), np.float32)}


def size_of(bundle: Bundle) -> int:
    return sum(bundle.size_bytes(entry) for entry in set(bundle.variants[0].files.values()))


@ON_TARGETS
def test_each_shape_answers_as_a_build_of_one(target: str, tmp_path: Path) -> None:
    bundle = built(tmp_path, SHAPES[::-1], targets=[target])  # in any order
    variant = bundle.variants[0]
    figures = variant.evidence["shapes"]
    assert [each["shape"] for each in figures] == [f"1x3x{size}x{size}" for size in SIZES]
    assert all(each["snr_db"] is None or each["snr_db"] > 30 for each in figures)
    with Session(bundle, engine=target, strict=True) as session:
        assert [at.inputs[0].shape for at in session.shapes] == list(SHAPES)
        assert session.inputs == session.shapes[-1].inputs
        assert session.outputs == session.shapes[-1].outputs
        for size, shape in zip(SIZES, SHAPES, strict=True):
            one = built(tmp_path, shape, targets=[target])
            with Session(one, engine=target, strict=True) as single:
                expected = single.run(image(size))["boxes"]
            found = session.run(image(size))["boxes"]
            assert found.shape == expected.shape == (1, sum((size // s) ** 2 for s in (8, 16, 32)), 7)
            assert np.array_equal(found, expected)
    assert size_of(bundle) < 1.3 * size_of(one)  # 0.2 MB of weights: the graphs count
    assert verify_bundle(bundle)[0].outcome is CheckOutcome.VERIFIED
    files = export_variant(bundle, variant.name, tmp_path / "files")
    assert not [file for file in files if "shapes" in str(file.relative_to(tmp_path))]


@ON_TARGETS
@pytest.mark.parametrize("precision", ["fp16", "int8", "int8-weights"])
def test_every_precision_has_every_shape(
    target: str, precision: str, tmp_path: Path, expected: dict[int, Array]
) -> None:
    samples = [image(SIZES[-1], seed) for seed in range(24)]
    bundle = built(
        tmp_path,
        targets=[target],
        precision=precision,
        samples=samples,
        force=precision[0] == "i",
        **({"time_budget": 1} if precision == "int8" else {}),  # any int8 will do
    )
    usable = [variant for variant in bundle.variants if variant.usable]
    assert usable
    for variant in usable:
        assert len(variant.options["shapes"]["further"]) == 2
        with Session(bundle, variant=variant.name, strict=True) as session:
            for size, boxes in expected.items():
                noise = session.run(image(size))["boxes"] - boxes
                assert np.square(noise).sum() < 0.01 * np.square(boxes).sum()


@pytest.mark.parametrize(
    ("picture", "at"),
    [((60, 64), 64), ((64, 65), 96), ((10, 96), 96), ((97, 10), 128), ((200, 300), 128)],
)
@pytest.mark.parametrize("resize", ["letterbox", "stretch"])
def test_a_picture_takes_the_smallest_shape_that_does_not_shrink_it(
    picture: tuple[int, int], at: int, resize: str, tmp_path: Path
) -> None:
    frame = np.random.default_rng(1).integers(0, 256, (*picture, 3)).astype(np.uint8)
    bundle = built(tmp_path, card=detector_card(SIZES[-1], resize))
    single = built(tmp_path, (1, 3, at, at), card=detector_card(at, resize))
    with Session(bundle) as session, Session(single) as one:
        assert session.prepare(frame)[0]["image"].shape == (1, 3, at, at)
        found, expected = session.predict(frame), one.predict(frame)
    assert len(found.boxes)
    assert np.array_equal(found.boxes, expected.boxes)  # in the picture's pixels
    assert found.boxes.max() <= max(picture)


def test_each_frame_of_a_stream_takes_its_shape(three: Path) -> None:
    sizes = (50, 90, 300, 64)
    frames = [np.full((size, size, 3), 200, np.uint8) for size in sizes]
    with Session(three) as session:
        expected = [session.predict(frame) for frame in frames]
        for result, answer in zip(session.stream(frames), expected, strict=True):
            assert np.array_equal(result.answer.boxes, answer.boxes)
        outputs = session.run_async(image(96)).result()
        assert outputs["boxes"].shape == session.shapes[1].outputs[0].shape


def test_other_shapes_are_refused_with_the_list(three: Path) -> None:
    with Session(three) as session:
        for run in (session.run, session.run_async):
            with pytest.raises(UsageError) as error:
                run(image(32))
            assert str(error.value) == (
                "input image has shape 1x3x32x32; float32 1x3x64x64 or 1x3x96x96 or 1x3x128x128 is expected: "
                "shapes are fixed when a bundle is built"
            )
        with pytest.raises(UsageError, match="input image is float64; float32 1x3x64x64 or 1x3x96x96 or "):
            session.run({"image": image(64)["image"].astype(np.float64)})


def test_further_shapes_are_loaded_when_they_are_needed(three: Path) -> None:
    with Session(three) as session:
        runner = session.runner
        assert isinstance(runner, ShapesRunner)
        assert not runner._opened
        session.run(image(64))
        assert list(runner._opened) == [((1, 3, 64, 64),)]
    with Session(three, warm=True) as session:
        assert len(session.runner._opened) == 2  # type: ignore[attr-defined]
    with Session(three, deadline_ms=5000) as session:
        for size in SIZES:
            assert session.run(image(size))["boxes"].shape[0] == 1
        assert not session.late


@pytest.mark.needs_tflite
def test_a_shape_that_does_not_load_costs_a_fallback(tmp_path: Path) -> None:
    bundle = built(tmp_path, targets=["ort", "tflite"])
    with Session(bundle, engine="ort") as session:
        expected = session.run(image(96))["boxes"]
    with Session(bundle, engine="ort") as session:
        runner = session.runner
        assert isinstance(runner, ShapesRunner)
        broken = runner._further[(SHAPES[1],)]
        runner._further[(SHAPES[1],)] = broken._replace(files={"model.onnx": tmp_path / "absent"})
        assert session.run(image(64))["boxes"].shape[1] == 84
        assert session.active.variant == "ort-fp32"
        assert session.run(image(96))["boxes"] == pytest.approx(expected, abs=1e-4)
        assert session.active.variant == "tflite-fp32"


def test_a_server_that_is_not_there_is_not_asked_for_a_further_shape(three: Path) -> None:
    with (
        Session(three) as session,
        RemoteSession(session, "http://127.0.0.1:9", "three", policy="remote-first") as remote,
    ):
        result = remote.run(image(64))
        assert result["boxes"].shape[1] == 84
        assert result.path == "local"
        with pytest.raises(UsageError, match="input image has shape 1x3x32x32; float32 1x3x64x64 or "):
            remote.run(image(32))


def test_golden_vectors_of_every_shape_are_verified(three: Path, tmp_path: Path) -> None:
    with Bundle.open(three) as bundle:
        variant = bundle.variants[0]
        golden = bundle.golden_of(variant)
        assert [feeds["image"].shape for feeds, _ in golden] == [SHAPES[2], SHAPES[0], SHAPES[1]]
        assert probe(bundle, variant, 1).reason == ""
        further = bundle.manifest["extensions"]["shapes"]
        # A damaged expectation at one shape is found.
        entry = further[0]["golden"]["outputs"]["boxes"]
        entries = {name: bytes(bundle.read(name)) for name in bundle._entries}
        entries[entry] = entries[entry][:-2000] + bytes(2000)
        wrong = Bundle.create(bundle.manifest, entries)
    (check,) = verify_bundle(wrong)
    assert check.outcome is CheckOutcome.FAILED
    assert check.reason.startswith("output boxes at image=1x3x64x64: ")
    assert "output boxes of a golden vector" in probe(wrong, wrong.variants[0], 1).reason


def test_large_golden_vectors_are_thinned(tmp_path: Path) -> None:
    shapes = [(1, 3, size, size) for size in (416, 448)]
    several, one = built(tmp_path, shapes), built(tmp_path, shapes[-1])
    assert sum(map(len, several.pieces())) < 1.05 * sum(map(len, one.pieces()))
    feeds, outputs = several.golden_of(several.variants[0])[1]
    assert feeds["image"].shape == shapes[0]
    assert np.array_equal(feeds["image"], several.golden[0][0]["image"][..., :416, :416])
    assert outputs["boxes"].shape == (-(-3549 * 7 // 2),)
    assert verify_bundle(several)[0].outcome is CheckOutcome.VERIFIED
    assert probe(several, several.variants[0], 1).reason == ""


def test_the_manifest_of_a_stranger_is_checked(three: Path) -> None:
    def changed(**change: Any) -> None:
        with Bundle.open(three) as bundle:
            manifest = json.loads(json.dumps(bundle.manifest))
            manifest["extensions"]["shapes"][0] |= change
            Bundle.create(manifest, {name: bytes(bundle.read(name)) for name in bundle._entries})

    changed()
    changes: list[dict[str, Any]] = [
        {"inputs": {}},
        {"inputs": {"image": [1, 3, 64]}},
        {"inputs": {"image": [1, 3, 0, 64]}},
        {"inputs": {"image": [1, 3, 1 << 30, 1 << 30]}},
        {"inputs": {"image": [1, 3, 96, 96]}},
        {"inputs": {"other": [1, 3, 64, 64]}},
        {"inputs": 3},
        {"more": 1},
        {"outputs": {"boxes": [1, 84, 8]}},
        {"golden": {"inputs": {}, "outputs": {}}},
        {"golden": {"inputs": {"x": "golden/0/inputs-0.npy"}, "outputs": {}}},
        {"golden": {"inputs": {}, "outputs": {"boxes": "absent"}}},
        {"golden": {"inputs": {"image": "golden/0/inputs-0.npy"}, "outputs": {}}},
    ]
    for change in changes:
        with pytest.raises(BundleError, match=r"extensions\.shapes"):
            changed(**change)


def test_a_runtime_that_does_not_know_the_option_has_the_largest_shape(three: Path) -> None:
    with Bundle.open(three) as bundle:
        variants = [
            {**variant, "options": {k: v for k, v in variant["options"].items() if k != "shapes"}}
            for variant in bundle.manifest["variants"]
        ]
        extensions = {k: v for k, v in bundle.manifest["extensions"].items() if k != "shapes"}
        entries = {name: bytes(bundle.read(name)) for name in bundle._entries}
        plain = Bundle.create({**bundle.manifest, "variants": variants, "extensions": extensions}, entries)
    with Session(plain) as session, Session(three) as own:
        assert len(session.shapes) == 1
        assert np.array_equal(session.run(image(128))["boxes"], own.run(image(128))["boxes"])


def test_the_command_line_and_a_rebuild(tmp_path: Path) -> None:
    model, path = detector(tmp_path / "detector.onnx"), tmp_path / "d.edgekit"
    command = ["build", str(model), "-t", "ort", "--shape", "image=1x3x96x96,1x3x64x64", "-o", str(path)]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0, done.output
    shown = CliRunner().invoke(main, ["inspect", str(path)]).output
    assert "runs at the shape of its inputs: 1x3x64x64 " in shown
    assert "  input     image float32 1x3x96x96\n  or        image float32 1x3x64x64\n" in shown
    with Bundle.open(path) as bundle:
        assert bundle.manifest["options"]["shapes"] == {"image": [[1, 3, 64, 64], [1, 3, 96, 96]]}
        again = build_here(path, recipe(bundle, path, {}))
        assert again.shapes == bundle.shapes


def two_inputs(path: Path) -> Path:
    """sum [n, size] of a [n, size] and b [size]."""
    floats = TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["sum"])],
        "two",
        [
            helper.make_tensor_value_info(name, floats, dims)
            for name, dims in (("a", ["n", "k"]), ("b", ["k"]))
        ],
        [helper.make_tensor_value_info("sum", floats, ["n", "k"])],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_several_inputs_and_batches_go_in_parallel(tmp_path: Path) -> None:
    shapes: dict[str, Any] = {"a": [(1, 4), (1, 8), (3, 8)], "b": [(4,), (8,), (8,)]}
    bundle = edgekit.build(two_inputs(tmp_path / "t.onnx"), targets=["ort"], shapes=shapes, trusted=True)
    with Session(bundle) as session:
        for a, b in zip(shapes["a"], shapes["b"], strict=True):
            feeds = {"a": np.ones(a, np.float32), "b": np.ones(b, np.float32)}
            assert np.array_equal(session.run(feeds)["sum"], np.full(a, 2, np.float32))
        with pytest.raises(
            UsageError, match=r"the inputs have shapes a=1x4, b=8, which the bundle does not "
        ):
            session.run({"a": np.ones((1, 4), np.float32), "b": np.ones(8, np.float32)})
    assert [each["shape"] for each in bundle.variants[0].evidence["shapes"]] == [
        "a=1x4, b=4", "a=1x8, b=8", "a=3x8, b=8",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("shapes", "options", "told"),
    [
        ({"image": SHAPES}, {"io": "nchw"}, "shapes cannot be combined with io; leave one of them out"),
        (
            {"image": SHAPES},
            {"shrink": "-50%"},
            "shapes with several shapes cannot be combined with shrink; ",
        ),
        ({"image": [SHAPES[0], SHAPES[0]]}, {}, "shapes: image=1x3x64x64 is given more than once"),
        ({"image": [SHAPES[0], 3]}, {}, "shape 2 of image is 3; it must be whole numbers"),
        ({"image": SHAPES, "other": [(1, 2)] * 2}, {}, "shapes: inputs have different numbers of shapes"),
        ({"other": SHAPES}, {}, 'shapes={"other": (1, 3, 128, 128)}: the model has no input other'),
        ({"image": [(1, 3, 64), SHAPES[1]]}, {}, "shapes: the model cannot be opened with image=1x3x64: "),
        (
            {"image": [(1, 4, 64, 64), SHAPES[1]]},
            {},
            "shapes: the model cannot be opened with image=1x4x64x64",
        ),
    ],
)
def test_what_does_not_go_with_it_is_refused(
    shapes: dict[str, Any], options: dict[str, Any], told: str, tmp_path: Path
) -> None:
    model = detector(tmp_path / "detector.onnx")
    with pytest.raises(UsageError) as error:
        edgekit.build(model, targets=["ort"], shapes=shapes, trusted=True, **options)
    assert str(error.value).startswith(told)


def test_other_verbs_take_one_shape(tmp_path: Path) -> None:
    shapes: Any = {"image": SHAPES}
    with pytest.raises(UsageError, match="shapes image: several shapes are for edgekit build; give one"):
        edgekit.check(detector(tmp_path / "d.onnx"), ["ort"], shapes=shapes, trusted=True)
