"""On ARM: the runners answer on aarch64 what they answer here, for every real network.

Each network is compiled here, put into a bundle, and opened by a Session of Python for aarch64 (device.py),
in float32 and int8. LiteRT's integer kernels give the same numbers on both machines: an output that is int8
is equal, and what is float behind the last int8 differs by the float arithmetic alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

import edgekit
from edgekit.bundle import Bundle
from edgekit.compiler.model.onnx_file import open_model, signature
from edgekit.compiler.passes import run_passes
from edgekit.compiler.quantize.observe.calibrate import observe
from edgekit.compiler.quantize.placement.qdq_graph import emit
from edgekit.compiler.quantize.placement.qdq_placement import place
from edgekit.compiler.quantize.recipe import Recipe
from edgekit.compiler.quantize.weights.optimize_weights import optimize
from edgekit.compiler.quantize.weights.weight_only import with_stored_weights
from edgekit.runtime import Session
from edgekit.target import registry
from edgekit.target.build_target import resolve
from edgekit.target.installed_profiles import find_profile
from edgekit.tensor_spec import Array, TensorSpec
from tests.arm import emulated
from tests.compiler.passes.meaning import snr_db
from tests.compiler.quantize.search import planted
from tests.fixtures.models import parse
from tests.fixtures.shared_models import CASES, feeds

pytestmark = [pytest.mark.needs_arm, pytest.mark.needs_ort, pytest.mark.needs_tflite]

ENGINES = ("ort", "tflite")
WITH_NCNN = ("kws_ref_model_float32", "resnet8_cifar10_int8_qdq")
"""Networks that ncnn was run on too."""
WEIGHT_FORMS = ("int8-dynamic", "int8-weights")
WITH_WEIGHT_FORMS = ("ch_PP-OCRv4_rec_infer", "ch_ppocr_mobile_v2.0_cls_infer", "kws_ref_model_float32")
"""Emulating them takes half a minute a network; these have matrices, convolutions and little else."""
NEAREST = Recipe(rounding="nearest", bias_correction=False)
QUICK = ("kws_ref_model_float32", "resnet8_cifar10_int8_qdq", "vww_96_int8")
SMALLER = {
    "centerface": {"input.1": (1, 3, 160, 160)},
    "ch_PP-OCRv4_det_infer": {"x": (1, 3, 160, 160)},
}
"""Networks of any size, at a size that is emulated in seconds: the kernels are the same."""

LEAST_DB = 95.0
LESS_DB = {
    ("coco_ssd_mbv2_300", "fp32.ort"): 80.0,  # scores are sigmoids near 0
    ("ch_ppocr_mobile_v2.0_cls_infer", "fp32.ort"): 90.0,
    ("kws_ref_model_float32", "int8.ncnn"): 55.0,  # ncnn rounds to int8 in floats, layer by layer
    ("ch_ppocr_mobile_v2.0_cls_infer", "int8-dynamic.ort"): 90.0,
    ("ch_ppocr_mobile_v2.0_cls_infer", "int8-weights.ort"): 90.0,
    # What is rounded as it comes may be rounded to the next number.
    ("ch_PP-OCRv4_rec_infer", "int8-dynamic.ort"): 55.0,
    ("ch_PP-OCRv4_rec_infer", "int8-dynamic.tflite"): 55.0,
    # One step of 256, where x86 and ARM round a sum that lies between two: ONNX Runtime's kernels differ.
    ("ch_PP-OCRv4_rec_infer", "int8.ort"): 35.0,
    ("vww_96_int8", "int8.ort"): 35.0,
    # Float and int8 by turns: what x86 and ARM compute in float is rounded to int8 again 70 times.
    ("ch_PP-OCRv4_rec_infer", "int8.tflite"): 35.0,
}
"""Least SNR of an output on ARM against the one here, where it is not LEAST_DB."""


def quantized(model: ir.Model, engine: str, precision: str, sample: Mapping[str, Array]) -> ir.Model:
    """The canonical model as an engine's rules quantize it; one that has pairs as it is."""
    if has_pairs(model) or precision == "fp32":
        return model
    rules = resolve(find_profile(engine)).rules
    assert rules is not None
    if precision != "int8":
        form = next(form for form in rules.weight_forms if form.name == precision)
        return with_stored_weights(model, rules, form, [])[0]
    plan = place(model, rules, observe(model, [dict(sample)]), NEAREST)
    return emit(model, optimize(model, plan, rules, [], NEAREST), rules)


def has_pairs(model: ir.Model) -> bool:
    return any(node.op_type == "QuantizeLinear" for node in model.graph)


def bundled(
    model: ir.Model,
    engine: str,
    precision: str,
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
) -> Bundle:
    """A bundle with one variant, not verified: what it answers is compared here."""
    form = "fp32" if precision == "int8" else precision  # pairs say themselves what is int8
    artifact = registry.compiler(engine).compile_model(model, find_profile(engine), form)
    variant = {
        "name": f"{engine}-variant",
        "target": engine,
        "profile": engine,
        "precision": precision,
        "files": {file: f"artifacts/{file}" for file in artifact.files},
        "options": dict(artifact.options),
        "status": "verified here",
        "evidence": {},
    }
    manifest = {
        "tools": {},
        "source": {"file": "model.onnx", "sha256": "0" * 64, "opset": 23, "nodes": len(model.graph)},
        "inputs": [{"name": s.name, "dtype": s.dtype, "shape": list(s.shape)} for s in inputs],
        "outputs": [{"name": s.name, "dtype": s.dtype, "shape": list(s.shape)} for s in outputs],
        "variants": [variant],
        "golden": [],
    }
    return Bundle.create(manifest, {f"artifacts/{file}": data for file, data in artifact.files.items()})


def prepared(shared: Path, name: str, folder: Path) -> dict[str, dict[str, Array]]:
    """Bundles of one network for the device, and what each answers here."""
    model = open_model(shared / "models" / f"{name}.onnx", SMALLER.get(name, CASES[name].shapes))
    inputs, outputs = signature(model)
    sample = feeds(inputs, CASES[name])
    run_passes(model)
    expected = {}
    precisions = ("int8",) if has_pairs(model) else ("fp32", "int8")
    for precision in (*precisions, *(WEIGHT_FORMS if name in WITH_WEIGHT_FORMS else ())):
        np.savez(folder / f"{precision}.npz", **sample)  # type: ignore[arg-type]
        ncnn = ("ncnn",) if name in WITH_NCNN and precision not in WEIGHT_FORMS else ()
        for engine in (*ENGINES, *ncnn):
            given = quantized(model, engine, precision, sample)
            bundle = bundled(given, engine, precision, inputs, outputs)
            bundle.save(folder / f"{precision}.{engine}.edgekit")
            with Session(bundle, engine=engine, strict=True, threads=1) as session:
                expected[f"{precision}.{engine}"] = session.run(sample)
    return expected


@pytest.mark.needs_shared
@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in CASES]
)
def test_a_network_answers_on_arm_as_it_does_here(name: str, shared: Path, tmp_path: Path) -> None:
    expected = prepared(shared, name, tmp_path)
    rows = emulated.ran(tmp_path)
    assert sorted(row["bundle"] for row in rows) == sorted(f"{kind}.edgekit" for kind in expected)
    for row in rows:
        assert row["machine"] == "aarch64"
        assert row["device_side"]
    for kind, arrays in expected.items():
        answers = emulated.answers(tmp_path, kind)
        assert set(answers) == set(arrays)
        for output, array in arrays.items():
            assert answers[output].dtype == array.dtype
            db = snr_db(array, answers[output])
            print(f"{name} {kind} {output}: {db:.1f} dB from this machine's")
            assert db >= LESS_DB.get((name, kind), LEAST_DB), (kind, output)
            if kind == "int8.tflite" and array.dtype == np.int8:
                assert np.array_equal(answers[output], array), output


@pytest.mark.needs_shared
@pytest.mark.parametrize("cpu", ["cortex-a53", "cortex-a72", "cortex-a76"])
def test_each_processor_has_kernels_of_its_own_and_the_same_int8(
    cpu: str, shared: Path, tmp_path: Path
) -> None:
    """XNNPACK has integer kernels with and without dot products, ordered for each core."""
    expected = prepared(shared, "vww_96_int8", tmp_path)["int8.tflite"]
    (tmp_path / "int8.ort.edgekit").unlink()
    (row,) = emulated.ran(tmp_path, cpu)
    assert row["precision"] == "int8"
    assert np.array_equal(
        emulated.answers(tmp_path, "int8.tflite")["Identity_int8"], expected["Identity_int8"]
    )


def test_a_bundle_for_a_raspberry_pi_runs_its_variant(tmp_path: Path) -> None:
    bundle = edgekit.build(
        planted.sound(tmp_path),
        targets=["rpi5"],
        precision="int8",
        samples=planted.samples(12),
        time_budget=600,
        fallback=False,
    )
    assert [v.name for v in bundle.variants] == ["rpi5-int8"]
    golden, expected = bundle.golden[0]
    np.savez(tmp_path / "pi.npz", **golden)  # type: ignore[arg-type]
    bundle.save(tmp_path / "pi.tflite.edgekit")
    with Session(bundle, threads=1) as session:
        here = session.run(golden)
    (row,) = emulated.ran(tmp_path)
    assert (row["variant"], row["precision"]) == ("rpi5-int8", "int8")
    for name, array in emulated.answers(tmp_path, "pi.tflite").items():
        assert snr_db(here[name], array) >= LEAST_DB
        assert snr_db(expected[name], array) > 20


def test_a_raspberry_pi_takes_what_was_made_for_it(tmp_path: Path) -> None:
    """Whichever of the two was faster on the machine that built the bundle."""
    bundle = edgekit.build(planted.sound(tmp_path), targets=["ort", "rpi5"])
    np.savez(tmp_path / "pi.npz", **bundle.golden[0][0])  # type: ignore[arg-type]
    for variant in bundle.variants:
        variant.evidence["timing"]["p50_ms"] = 1.0 if variant.target == "ort" else 2.0
    bundle.save(tmp_path / "pi.best.edgekit")
    with Session(bundle) as session:
        assert session.active.variant == "ort-fp32"
    (row,) = emulated.ran(tmp_path)
    assert row["variant"] == "rpi5-fp32"


@pytest.mark.parametrize(
    ("target", "precision", "cpu", "executed"),
    [
        ("ort", "bf16", "max", "bf16"),
        ("ort", "bf16", "cortex-a76", "fp32"),
        ("tflite", "fp16-arithmetic", "cortex-a76", "fp16"),
        ("tflite", "fp16-arithmetic", "cortex-a72", "fp32"),
    ],
)
def test_a_narrow_arithmetic_is_taken_where_the_processor_has_it(
    target: str, precision: str, cpu: str, executed: str, tmp_path: Path
) -> None:
    """By its numbers: to the last bits float32's where the processor lacks it."""
    product = with_product(tmp_path)
    bundle = edgekit.build(product, targets=[target], precision=precision)
    assert not bundle.variants[1].verified  # this machine is no ARM
    golden, expected = bundle.golden[0]
    np.savez(tmp_path / "narrow.npz", **golden)  # type: ignore[arg-type]
    # As where it was built on such a processor, and was faster there.
    times = {precision: {"timing": {"p50_ms": 1.0}}, "fp32": {"timing": {"p50_ms": 2.0}}}
    rows = [{**v.as_json(), "status": "verified", "evidence": times[v.precision]} for v in bundle.variants]
    manifest = {**bundle.manifest, "variants": rows}
    entries = {e["name"]: bytes(bundle.read(e["name"])) for e in bundle.manifest["entries"]}
    Bundle.create(manifest, entries).save(tmp_path / "narrow.best.edgekit")
    (row,) = emulated.ran(tmp_path, cpu)
    assert row["precision"] == executed
    assert row["variant"] == f"{target}-{precision if executed != 'fp32' else 'fp32'}"
    snr = snr_db(expected["y"], emulated.answers(tmp_path, "narrow.best")["y"])
    assert snr >= 110 if executed == "fp32" else 40 < snr < 70


def with_product(folder: Path) -> Path:
    """x (64, 256) times a constant (256, 128)."""
    weights = np.random.default_rng(0).standard_normal((256, 128)).astype(np.float32)
    model = parse(
        '<ir_version: 10, opset_import: ["": 23]> product (float[64,256] x) => (float[64,128] y) '
        "<float[1,1] w = {0}> { y = MatMul(x, w) }"
    )
    model.graph.initializers["w"].const_value = ir.tensor(weights, name="w")
    model.graph.initializers["w"].shape = ir.Shape(weights.shape)
    ir.save(model, folder / "product.onnx")
    return folder / "product.onnx"


def test_the_runtime_needs_python_and_numpy() -> None:
    """What importing it loads from the device's packages: numpy, and no engine before one is asked for."""
    script = (
        "import sys, edgekit.runtime\n"
        "found = {m.partition('.')[0] for m, x in sys.modules.items()"
        " if '/site/' in (getattr(x, '__file__', None) or '')}\n"
        "print(*sorted(found))"
    )
    done = emulated.python("-c", script)
    assert (done.stdout.split(), done.returncode) == (["numpy"], 0), done.stderr
