"""``--shape ids=1x1..512``: one file for every size of a range, from the build to a session's answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from click.testing import CliRunner

import edgekit
from edgekit.batch.rebuild import build_here, recipe
from edgekit.bundle.bundle import Bundle
from edgekit.bundle.manifest import ManifestError, check_manifest
from edgekit.cli import main
from edgekit.compiler.evaluate.verify_bundle import CheckOutcome, verify_bundle
from edgekit.compiler.model.shape_sets import compiled_sizes
from edgekit.compiler.pipeline import shape_figures
from edgekit.compiler.pipeline.shape_ranges import proof_sizes
from edgekit.errors import BuildFault, UsageError
from edgekit.runtime import Session
from edgekit.runtime.loading.unpacked_files import unpack
from edgekit.target import registry
from edgekit.target.range_runner import RangeRunner
from edgekit.tensor_spec import Array
from tests.fixtures.encoder import WHOLE, encoder, encoder_card

pytestmark = pytest.mark.needs_ort
SIZES = range(1, WHOLE + 1)
TESTED = [*proof_sizes(SIZES), WHOLE]
ON_TARGETS = pytest.mark.parametrize(
    "target", ["ort", pytest.param("openvino", marks=pytest.mark.needs_openvino)]
)


def built(folder: Path, **options: Any) -> Bundle:
    options = {"targets": ["ort"], "trusted": True, "shapes": {"ids": (1, f"1..{WHOLE}")}, **options}
    return edgekit.build(encoder(folder / "encoder.onnx"), **options)


@pytest.fixture(scope="module")
def ranged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranged")
    return built(folder).save(folder / "ranged.edgekit")


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Array]:
    """Tokens of ``text(size)`` by a float build of some sizes, each alone."""
    tokens, folder = {}, tmp_path_factory.mktemp("single")
    for size in (1, 3, 7, WHOLE):
        with Session(built(folder, shapes={"ids": (1, size)}), strict=True) as single:
            tokens[size] = single.run(text(size))["tokens"]
    return tokens


def text(size: int, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {"ids": rng.integers(0, 7, (1, size)), "mask": np.ones((1, size), np.int64)}


def size_of(bundle: Bundle) -> int:
    return sum(bundle.size_bytes(entry) for entry in set(bundle.variants[0].files.values()))


@ON_TARGETS
def test_every_size_answers_as_a_build_of_one(target: str, tmp_path: Path) -> None:
    bundle = built(tmp_path, targets=[target])
    variant = bundle.variants[0]
    assert variant.usable
    figures = variant.evidence["shapes"]
    assert [each["shape"] for each in figures] == [f"1x{size}" for size in TESTED]
    assert all(each["snr_db"] is None or each["snr_db"] > 100 for each in figures)
    timed = [each["shape"] for each in figures if "of_one_shape" in each]
    assert timed == [f"1x{size}" for size in compiled_sizes(SIZES)[-2:]]
    with Session(bundle, engine=target, strict=True) as session:
        assert isinstance(session.runner, RangeRunner)
        for size in SIZES:
            found = session.run(text(size))["tokens"]
            if size % 5 == 1:
                one = built(tmp_path, targets=[target], shapes={"ids": (1, size)})
                with Session(one, engine=target, strict=True) as single:
                    assert found == pytest.approx(single.run(text(size))["tokens"], abs=2e-5)
    assert size_of(bundle) < 1.2 * size_of(one)  # 65 KB of weights: the graph counts
    assert verify_bundle(bundle)[0].outcome is CheckOutcome.VERIFIED
    assert len(bundle.golden_of(variant)) == len(TESTED)
    assert f"runs at every size from 1 to {WHOLE}; tested at 1x1 " in bundle.report


@ON_TARGETS
@pytest.mark.parametrize("precision", ["fp16", "int8", "int8-weights", "int8-dynamic"])
def test_every_precision_takes_every_size(
    target: str, precision: str, tmp_path: Path, expected: dict[int, Array]
) -> None:
    samples = [text(WHOLE, seed) for seed in range(24)]
    if (target, precision) == ("openvino", "int8-dynamic"):
        pytest.skip("this OpenVINO profile does not have it")
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
        with Session(bundle, variant=variant.name, strict=True) as session:
            for size, tokens in expected.items():
                noise = session.run(text(size))["tokens"] - tokens
                assert np.square(noise).sum() < 0.01 * np.square(tokens).sum()


@pytest.mark.needs_tokenizers
@ON_TARGETS
def test_a_text_with_a_mask_runs_at_its_number_of_tokens(target: str, tmp_path: Path) -> None:
    card = encoder_card()
    bundle = built(tmp_path, targets=[target], card=card)  # of the mask and the ids, though one was given
    whole = built(tmp_path, shapes=None, card=card)
    with Session(bundle, strict=True) as session, Session(whole, strict=True) as single:
        runner = session.runner
        assert isinstance(runner, RangeRunner)
        sizes: list[int] = []
        inner, run = runner._runner, runner._runner.run
        inner.run = lambda feeds: sizes.append(feeds["ids"].shape[1]) or run(feeds)  # type: ignore[method-assign, func-returns-value]
        for sentence in ("good", "the food was good good", "good " * 40):
            assert session.predict(sentence).vector == pytest.approx(
                single.predict(sentence).vector, abs=1e-5
            )
            feeds, _ = session.prepare(sentence)
            count = int(feeds["mask"].sum())
            assert sizes.pop() == count
            tokens = session.run(feeds)["tokens"]
            assert tokens.shape == (1, WHOLE, 64)
            assert not tokens[feeds["mask"] == 0].any()
            sizes.clear()
        assert session.run(text(5))["tokens"].shape == (1, 5, 64)


@pytest.mark.needs_tokenizers
def test_a_model_that_ignores_its_mask_has_no_range_for_texts(tmp_path: Path) -> None:
    """With the padding on the left, the positions of the tokens depend on it."""
    with pytest.raises(UsageError, match=r"ignores its mask: .*; leave the card out, and fit your arrays$"):
        built(tmp_path, card=encoder_card("left"))


def test_a_size_beyond_the_range_is_refused_with_the_range(ranged: Path) -> None:
    with Session(ranged) as session:
        for run in (session.run, session.run_async):
            for size in (0, WHOLE + 1):
                with pytest.raises(UsageError) as error:
                    run(text(size))
                assert str(error.value) == (
                    f"input ids has shape 1x{size}; int64 1x1..{WHOLE} is expected: shapes are fixed when a "
                    "bundle is built"
                )
        with pytest.raises(
            UsageError, match="the inputs have shapes ids=1x3, mask=1x4, which the bundle does"
        ):
            session.run({**text(3), "mask": text(4)["mask"]})
        assert session.run_async(text(3)).result()["tokens"].shape == (1, 3, 64)


def test_the_command_line_and_a_rebuild(ranged: Path, tmp_path: Path) -> None:
    made = tmp_path / "made.edgekit"
    arguments = [
        "build",
        str(encoder(tmp_path / "encoder.onnx")),
        "-t",
        "ort",
        "--shape",
        f"ids=1x1..{WHOLE}",
    ]
    result = CliRunner().invoke(main, [*arguments, "--trusted", "-o", str(made)])
    assert result.exit_code == 0, result.output
    with Bundle.open(made) as bundle, Bundle.open(ranged) as first:
        assert bundle.manifest["options"]["shapes"] == {"ids": [1, f"1..{WHOLE}"], "mask": [1, f"1..{WHOLE}"]}
        assert bundle.manifest["extensions"]["range"] == first.manifest["extensions"]["range"]
        again = build_here(made, recipe(bundle, made, {}))
        assert again.manifest["extensions"] == bundle.manifest["extensions"]
        assert [v.options for v in again.variants] == [v.options for v in bundle.variants]
    inspected = CliRunner().invoke(main, ["inspect", str(made)]).output
    assert f"or        every size of ids=1x1..{WHOLE}, mask=1x1..{WHOLE}" in inspected


def fooling(folder: Path, wrong_at: int) -> Path:
    """Return a model whose constants follow from the size at all sizes but one."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]> g (float[1,n] x) => (float[1,n] y)
        <int64[1] at = {{{wrong_at}}}, float two = {{2.0}}, float one = {{1.0}}>
        {{ s = Shape<start = 1>(x) same = Equal(s, at) factor = Where(same, two, one) y = Mul(x, factor) }}"""
    )
    onnx.save(model, folder / "fooling.onnx")
    return folder / "fooling.onnx"


def test_a_file_that_is_wrong_at_a_middle_size_is_rejected(tmp_path: Path) -> None:
    """The sizes that are compiled show nothing; a size that was not does."""
    (wrong_at,) = [size for size in TESTED[1:-1] if size not in compiled_sizes(SIZES)][:1]
    bundle = edgekit.build(
        fooling(tmp_path, wrong_at), targets=["ort"], shapes={"x": (1, f"1..{WHOLE}")}, trusted=True
    )
    assert bundle.variants[0].status.startswith(f"rejected: SNR 6.0 dB at 1x{wrong_at}, but inf at 1x{WHOLE}")
    assert bundle.variants[0].evidence["shapes"][TESTED.index(wrong_at)]["snr_db"] == 6.0


def test_verify_runs_sizes_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device runs them too: the same file, had the build not rejected it."""
    (wrong_at,) = [size for size in TESTED[1:-1] if size not in compiled_sizes(SIZES)][:1]
    monkeypatch.setattr(shape_figures, "_reject_inaccurate", lambda *_: None)
    bundle = edgekit.build(
        fooling(tmp_path, wrong_at), targets=["ort"], shapes={"x": (1, f"1..{WHOLE}")}, trusted=True
    )
    assert bundle.variants[0].usable
    check = verify_bundle(bundle)[0]
    assert check.outcome is CheckOutcome.FAILED
    assert check.reason.startswith(f"output y at x=1x{wrong_at}: ")


def test_a_file_that_is_slower_than_one_of_one_shape_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shape_figures, "RANGE_SLOWER_LIMIT", 0.001)
    monkeypatch.setattr(shape_figures, "RANGE_SLOWER_MS", -1e9)
    bundle = built(tmp_path)
    assert bundle.variants[0].rejected
    assert bundle.variants[0].reason.endswith(
        f"x the time of a file of one shape at 1x{compiled_sizes(SIZES)[-2]}"
    )


def uneven(folder: Path, nodes: str, output: str = "n") -> Path:
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]> g (float[1,n] x) => (float[1,{output}] y)
        <int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] two = {{2}}> {{ {nodes} }}"""
    )
    onnx.save(model, folder / "uneven.onnx")
    return folder / "uneven.onnx"


def test_a_constant_that_does_not_follow_is_refused_by_its_node_with_shapes_to_list(tmp_path: Path) -> None:
    model = uneven(tmp_path, "s = Shape<start = 1>(x) f = Cast<to = 1>(s) y = Div(x, f) z = Sqrt(f)")
    model = uneven(tmp_path, "s = Shape<start = 1>(x) f = Cast<to = 1>(s) r = Sqrt(f) y = Div(x, r)")
    with pytest.raises(BuildFault) as error:
        edgekit.build(model, targets=["ort"], shapes={"x": (1, "1..64")}, trusted=True)
    message = str(error.value)
    assert "it cannot take all sizes of 1..64: node " in message
    assert "(Div): constant r does not follow from the size; list shapes instead: " in message
    assert 'shapes={"x": [(1, 8), (1, 16), (1, 32), (1, 64)]}' in message


def test_an_output_that_does_not_grow_evenly_is_refused(tmp_path: Path) -> None:
    model = uneven(tmp_path, "s = Shape<start = 1>(x) h = Div(s, two) y = Slice(x, zero, h, one)", "m")
    with pytest.raises(
        UsageError, match=r"^shapes: dimension 1 of y does not grow evenly with the range 2\.\.64"
    ):
        edgekit.build(model, targets=["ort"], shapes={"x": (1, "2..64")}, trusted=True)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"targets": ["ort", "tflite"]}, "tflite cannot have a range; list shapes instead, e.g. shapes="),
        ({"shapes": {"ids": (1, "1..8"), "mask": (1, "1..9")}}, "shapes: a range is one size, of one"),
        ({"shapes": {"ids": ("1..8", "1..8")}}, "shapes: a range is one size, of one dimension"),
        ({"shapes": {"ids": (1, "1..8"), "mask": [(1, 2), (1, 3)]}}, "shapes: a range is one size"),
        ({"shapes": {"ids": (1, "8..1")}}, "a range is written 1..512"),
        ({"shapes": {"ids": (1, "1..2")}}, "1..2 is a range of 2 sizes; list their shapes instead"),
        ({"lengths": (4,), "card": encoder_card()}, "lengths cannot be combined with several shapes of"),
        ({"io": {"tokens": "nchw"}}, "shapes cannot be combined with io"),
    ],
)  # fmt: skip
def test_ranges_that_are_refused(options: dict[str, Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=reason.replace(".", r"\.")):
        built(tmp_path, **options)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"sizes": [1, WHOLE + 1]}, "ValueError: at 17 the shapes are not the model's"),
        ({"sizes": [3, WHOLE]}, "it does not hold ids=1x1, mask=1x1"),
    ],
)
def test_a_bundle_whose_range_is_not_the_models_is_refused(
    changed: dict[str, Any], reason: str, ranged: Path
) -> None:
    with Bundle.open(ranged) as bundle:
        manifest = json.loads(json.dumps(bundle.manifest))
    manifest["extensions"]["range"] |= changed
    with pytest.raises(ManifestError) as error:
        check_manifest(manifest)
    assert str(error.value) == f"extensions.range: {reason}"


@ON_TARGETS
def test_a_reader_without_ranges_runs_the_largest_shape(target: str, tmp_path: Path) -> None:
    bundle = built(tmp_path, targets=[target])
    variant = bundle.variants[0]
    engine = registry.engine(target)
    files = unpack(bundle, variant)
    own = {name: value for name, value in variant.options.items() if name != "range"}
    runner = engine.open_runner(files, bundle.inputs, bundle.outputs, own, 1)
    with Session(bundle, strict=True) as session:
        expected = session.run(text(WHOLE))["tokens"]
    assert runner.run(text(WHOLE))["tokens"] == pytest.approx(expected, abs=1e-5)
    runner.close()
