from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from click.testing import CliRunner, Result
from onnx import TensorProto, helper, numpy_helper

import edgekit
from edgekit.bundle import Bundle
from edgekit.cli import main
from edgekit.compiler.explain.explain import Explanation, compared, explain
from edgekit.compiler.explain.text import render
from edgekit.errors import BundleError, NoVariantError, UsageError, install_line
from edgekit.target.node_reports import NodeValue
from tests.fixtures import models
from tests.fixtures.graphs import Graph

pytestmark = [pytest.mark.needs_ort, pytest.mark.needs_openvino, pytest.mark.needs_tflite]
FIVE = ("ort", "openvino", "tflite", "coreml", "tensorrt")
SHAPE = (1, 64, 32, 32)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Two Convs: ``clean`` has whole weights, which float16 holds; those of ``noisy`` it rounds.

    Times do not decide, since the machine may be busy: no variant is rejected as slower than its parent, and
    every one that has to be faster is.
    """
    random = np.random.default_rng(0)
    whole = random.integers(-4, 5, (64, 64, 3, 3)).astype(np.float32) / 256
    weights = {"whole": whole, "rounded": random.normal(size=(64, 64, 3, 3)).astype(np.float32) / 24}
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "whole"], ["middle"], "clean", pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["middle"], ["bent"], "relu"),
            helper.make_node("Conv", ["bent", "rounded"], ["y"], "noisy", pads=[1, 1, 1, 1]),
        ],
        "two",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, SHAPE)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path_factory.mktemp("explained") / "two.onnx"
    path.write_bytes(model.SerializeToString(deterministic=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("edgekit.compiler.pipeline.variant_build.SLOWER_LIMIT", math.inf)
        patch.setattr("edgekit.compiler.pipeline.select_variants.FASTER", 0.0)
        return edgekit.build(path, targets=FIVE, precision="auto", trusted=True)  # in this process


@pytest.fixture(scope="module")
def found(bundle: Bundle) -> dict[str, Any]:
    return {each["variant"]: each for each in explain(bundle)}


def test_every_variant_with_files_is_explained(bundle: Bundle, found: dict[str, Any]) -> None:
    assert list(found) == [v.name for v in bundle.variants if v.files]
    assert {f"{target}-fp16" for target in FIVE} <= set(found)


@pytest.mark.parametrize("name", ["ort-fp16", "tflite-fp16"])
def test_the_node_that_rounds_is_named_and_the_other_is_not(found: dict[str, Any], name: str) -> None:
    values = {value["value"]: value for value in found[name]["values"]}
    assert found[name]["against"] == name.replace("fp16", "fp32")
    assert (found[name]["values"][0]["value"], found[name]["values"][0]["op"][:4].title()) == ("y", "Conv")
    assert 60 < values["y"]["adds_db"] < 80  # 11 bits of each weight are left
    # LiteRT merges the Relu into the Conv.
    assert all(values[made]["snr_db"] is None for made in ("middle", "bent") if made in values)


def test_float16_arithmetic_rounds_each_value(found: dict[str, Any]) -> None:
    for name in ("coreml-fp16", "tensorrt-fp16"):
        values = {value["value"]: value["snr_db"] for value in found[name]["values"]}
        assert 55 < values["middle"] < 85
        assert 55 < values["y"] < 85


def test_times_are_of_engines_that_tell_them_and_of_no_stand_in(found: dict[str, Any]) -> None:
    for name, kind in (("ort-fp32", "Conv"), ("openvino-fp32", "Convolution")):
        nodes = found[name]["nodes"]
        assert sum(kind in node["op"] for node in nodes) == 2
        assert [node["ms"] for node in nodes] == sorted((node["ms"] for node in nodes), reverse=True)
        assert found[name]["nodes_ms"] > 0.05  # 75 million products
    assert "noisy" in [node["node"] for node in found["ort-fp32"]["nodes"]]
    assert {"CONV_2D"} <= {node["op"] for node in found["tflite-fp32"]["nodes"]}
    words = "not measured: it ran on a reference executor, not a Jetson"
    assert (found["tensorrt-fp32"]["nodes"], found["tensorrt-fp32"]["no_times"]) == ([], words)


@pytest.mark.parametrize("engine", ["ort", "openvino", "tflite"])
def test_every_node_has_the_name_that_it_has_in_the_source_model(found: dict[str, Any], engine: str) -> None:
    nodes = found[f"{engine}-fp32"]["nodes"]
    assert {node["source"] for node in nodes} == {"clean", "noisy"}  # each a Conv, with what belongs to it
    assert {node["source_op"] for node in nodes} == {"Conv"}
    assert "relu" in {name for node in nodes for name in node["merged"]}


def test_the_nodes_are_part_of_the_run(found: dict[str, Any]) -> None:
    for name in ("ort-fp32", "openvino-fp32"):  # the same runs, by two clocks
        run, nodes, outside = (found[name][key] for key in ("run_ms", "nodes_ms", "outside_ms"))
        assert 0 < nodes <= 1.05 * run
        assert outside == run - nodes
    for name in ("ort-fp32", "openvino-fp32"):  # what is outside has a name
        told = found[name]["nodes_ms"] + sum(found[name]["parts"].values())
        assert abs(told - found[name]["run_ms"]) <= 0.1 * found[name]["run_ms"]
        assert "arrays in and out" in found[name]["parts"]
    assert found["tflite-fp32"]["how"] == "each operator was run alone: this engine has no profiler"


@pytest.mark.needs_shared
def test_a_layer_that_is_not_executed_in_every_run_has_a_time(shared: Path) -> None:
    """OpenVINO skips a Pad of Silero, and layers of states, from some run on."""
    card = Path(__file__).parents[3] / "samples" / "cards" / "silero_vad.toml"
    bundle = edgekit.build(shared / "models" / "silero_vad.onnx", targets=["openvino"], card=card)
    (explained,) = explain(bundle, "openvino-fp32")
    assert explained["no_times"] == ""
    assert len(explained["nodes"]) > 5


def test_a_profiled_run_names_every_node(tmp_path: Path) -> None:
    g = Graph({"x": (1, 16)})
    last = "x"
    for _ in range(30):
        last = g("Cos", g("Sin", last))
    g.model(tmp_path, last)
    (found,) = explain(edgekit.build(tmp_path / "small.onnx", targets=["ort"]))
    assert found["run_ms"] is not None
    assert found["nodes_ms"] is not None
    assert len(found["nodes"]) == 60


def test_values_have_the_names_of_the_source_model(found: dict[str, Any]) -> None:
    assert {v["value"]: v["source"] for v in found["ort-fp16"]["values"]}["y"] == "noisy"


def test_a_bundle_of_before_there_were_names_has_the_engines(bundle: Bundle) -> None:
    manifest = {key: value for key, value in bundle.manifest.items() if key != "extensions"}
    entries = {e["name"]: bytes(bundle.read(e["name"])) for e in bundle.manifest["entries"]}
    (old,) = explain(Bundle.create(manifest, entries), "openvino-fp32")
    assert {node["source"] for node in old["nodes"]} == {None}
    assert "clean" in render([old])


def test_names_that_are_damaged_are_told(bundle: Bundle) -> None:
    entries = {e["name"]: bytes(bundle.read(e["name"])) for e in bundle.manifest["entries"]}
    made = Bundle.create(bundle.manifest, {**entries, "source-names.json": b'{"nodes": 3}'})
    with pytest.raises(BundleError, match=r"^new bundle: its names of source nodes can't be read: 'source'"):
        explain(made)


def test_fp32_has_nothing_to_be_compared_with(found: dict[str, Any]) -> None:
    assert found["ort-fp32"]["no_values"] == "fp32 is the reference for the other variants"
    assert found["openvino-fp16"]["no_values"] == "this engine does not return intermediate values"


def test_the_text_answers_first(bundle: Bundle) -> None:
    lines = render(explain(bundle, "ort-fp16")).splitlines()
    assert lines[0].startswith("  ort-fp16  output SNR ")
    assert [line.split()[0] for line in lines if line.startswith("  ") and line[2] != " "] == [
        "ort-fp16",
        "time",
        "accuracy",
    ]
    assert "Conv" in lines[2]


NAMELESS: Any = {"source": None, "source_op": "", "scope": "", "merged": []}


def _explanation(**given: Any) -> Explanation:
    empty: Any = {"variant": "v", "status": "verified", "snr": "exact", "threads": 2, "how": "", "nodes": []}
    empty |= {
        "run_ms": None,
        "nodes_ms": None,
        "outside_ms": None,
        "no_times": "",
        "no_values": "none",
        "parts": {},
        "causes": [],
        "price": "",
    }
    found: Any = {
        **empty,
        "against": None,
        "estimated_by": "",
        "costs": [],
        "values": [],
        "notes": [],
        **given,
    }
    return cast("Explanation", found)


def test_the_figures_stand_before_what_may_be_long() -> None:
    stem: Any = {"source": "conv_0", "source_op": "Conv", "scope": "stem.conv", "merged": ["relu_0"]}
    found = _explanation(
        nodes=[
            {**stem, "node": "a", "op": "Convolution brgconv_avx2_f32", "ms": 3.0},
            {**NAMELESS, "node": "b", "op": "Add", "ms": 1.0},
        ],
        run_ms=5.0,
        nodes_ms=4.0,
        outside_ms=1.0,
        values=[
            {**stem, "node": "a", "op": "Conv", "value": "x", "finite": True, "snr_db": 40.0, "adds_db": 41.0}
        ],
        against="w",
        notes=["why"],
    )
    assert render([found]).splitlines() == [
        "  v  output SNR exact at the build  verified",
        "",
        "  time      4 ms in 2 nodes on 2 threads: Convolution brgconv_avx2_f32 75%, Add 25%",
        "            a run takes 5 ms, 20% of it outside nodes",
        "    slowest                     time  share  op",
        "    stem.conv: conv_0 + relu_0  3 ms  75%    Convolution brgconv_avx2_f32",
        "    b                           1 ms  25%    Add",
        "",
        "  accuracy  1 value inside the network compared with w, by SQNR",
        "    largest error               own SQNR  total SQNR  op",
        "    stem.conv: conv_0 + relu_0  41.0 dB   40.0 dB     Conv",
        "",
        "  note      why",
    ]


def test_on_a_device_times_are_told_and_values_not(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.partition(".")[0] in ("onnx", "onnx_ir")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "onnx_ir", None)
    (found,) = explain(bundle, "ort-fp16")
    assert found["nodes"]
    assert found["no_values"] == f"this needs onnx_ir: {install_line('build')}"


def test_a_target_a_profile_or_a_variant(bundle: Bundle) -> None:
    assert {each["variant"].split("-")[0] for each in explain(bundle, "tflite")} == {"tflite"}
    assert [each["variant"] for each in explain(bundle, "tflite-fp16")] == ["tflite-fp16"]
    with pytest.raises(UsageError) as error:
        explain(bundle, "rpi5")
    assert str(error.value).startswith(
        "unknown target or variant 'rpi5'; available: ort, ort-fp32, ort-fp16, openvino,"
    )


def test_threads_that_an_engine_would_not_come_back_from(bundle: Bundle) -> None:
    with pytest.raises(UsageError) as error:
        explain(bundle, threads=5000)
    assert str(error.value) == "threads must be a whole number from 1 to 1024, not 5000"


def test_without_golden_vectors_there_is_nothing_to_run(bundle: Bundle) -> None:
    bare = Bundle.create({**bundle.manifest, "golden": [], "variants": []}, {})
    with pytest.raises(BundleError) as error:
        explain(bare)
    assert str(error.value) == "new bundle has no golden vectors to run; build it again"


def test_a_bundle_of_rejected_variants_says_so(bundle: Bundle) -> None:
    variants = [{**v, "files": {}, "status": "rejected: slow"} for v in bundle.manifest["variants"]]
    entries = {e["name"]: bytes(bundle.read(e["name"])) for e in bundle.manifest["entries"]}
    with pytest.raises(NoVariantError, match=r"^new bundle has nothing to run: the build rejected all"):
        explain(Bundle.create({**bundle.manifest, "variants": variants}, entries))


def test_a_rejected_variant_says_why(bundle: Bundle) -> None:
    first, *others = bundle.manifest["variants"]
    variants = [{**first, "files": {}, "status": "rejected: slow"}, *others]
    entries = {e["name"]: bytes(bundle.read(e["name"])) for e in bundle.manifest["entries"]}
    made = Bundle.create({**bundle.manifest, "variants": variants}, entries)
    with pytest.raises(UsageError) as error:
        explain(made, variant=first["name"])
    assert str(error.value) == f"{first['name']} has no files in new bundle: rejected: slow"


def test_a_target_that_is_not_known_here_is_said_and_hides_no_other(bundle: Bundle) -> None:
    variants = [
        {**v, "target": "another"} if v["name"] == "tflite-fp16" else v for v in bundle.manifest["variants"]
    ]
    entries = {e["name"]: bytes(bundle.read(e["name"])) for e in bundle.manifest["entries"]}
    made = Bundle.create({**bundle.manifest, "variants": variants}, entries)
    found = {each["variant"]: each for each in explain(made, "tflite")}
    assert "another" in found["tflite-fp16"]["no_times"]
    assert found["tflite-fp16"]["no_values"] == found["tflite-fp16"]["no_times"]
    assert found["tflite-fp32"]["nodes"]


@pytest.mark.parametrize(
    ("evidence", "why"),
    [({"executed": []}, ""), ({"quantization": []}, "'list' object has no attribute 'get'")],
)
def test_evidence_of_any_form_ends_in_no_traceback(
    bundle: Bundle, evidence: dict[str, Any], why: str
) -> None:
    variants = [{**v, "evidence": {**v["evidence"], **evidence}} for v in bundle.manifest["variants"]]
    entries = {e["name"]: bytes(bundle.read(e["name"])) for e in bundle.manifest["entries"]}
    made = Bundle.create({**bundle.manifest, "variants": variants}, entries)
    if not why:
        assert explain(made, "ort-fp32")[0]["nodes"]
        return
    with pytest.raises(BundleError, match=why):
        explain(made)


def test_times_below_what_the_engine_counts_are_said() -> None:
    node = {**NAMELESS, "node": "a", "op": "Add", "ms": 0.0}
    found = _explanation(run_ms=0.1, nodes_ms=0.0, nodes=[node])
    assert render([found]).splitlines()[1] == "  time      below the resolution of the profiler"


def _value(name: str, reads: str, array: list[float]) -> NodeValue:
    return NodeValue(f"make {name}", "Op", name, (reads,), np.array(array, np.float32))


def test_noise_that_comes_in_is_not_the_nodes_own() -> None:
    right = [_value("a", "x", [1, 1]), _value("b", "a", [1, 1]), _value("c", "b", [1, 1])]
    made = [_value("a", "x", [1.1, 1]), _value("b", "a", [1.1, 1]), _value("c", "b", [1.5, 1])]
    rows: Any = compared(made, right)
    assert [(row["value"], row["snr_db"], row["adds_db"]) for row in rows] == [
        ("c", 9.0, 9.2),
        ("a", 23.0, 23.0),
        ("b", 23.0, None),
    ]


def test_a_constant_less_is_no_noise_where_values_are_centred() -> None:
    right, made = [_value("a", "x", [1, 2, 3])], [_value("a", "x", [-1, 0, 1])]
    assert compared(made, right)[0]["snr_db"] == 0.7
    assert compared(made, right, centred=True)[0]["snr_db"] is None


def test_what_is_not_finite_is_said_and_is_laid_to_the_first() -> None:
    right = [_value("a", "x", [1, 2]), _value("b", "a", [1, 2])]
    made = [_value("a", "x", [1, np.inf]), _value("b", "a", [np.nan, 2])]
    rows: Any = compared(made, right)
    assert [(row["value"], row["finite"], row["snr_db"]) for row in rows] == [
        ("a", False, None),
        ("b", False, None),
    ]
    json.dumps(rows, allow_nan=False)


def test_a_signal_whose_power_is_zero() -> None:
    tiny, large = (NodeValue("make a", "Op", "a", (), np.array([x])) for x in (1e-200, 1.0))
    assert compared([tiny], [tiny])[0]["finite"]
    assert not compared([large], [tiny])[0]["finite"]


def test_other_shapes_and_values_without_a_signal_are_left_out() -> None:
    right = [_value("a", "x", [1, 2]), _value("zero", "a", [0, 0]), _value("only", "a", [1, 2])]
    made = [_value("a", "x", [1, 2, 3]), _value("zero", "a", [1, 0])]
    assert compared(made, right) == []


def test_the_verb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = models.write(tmp_path, models.SMALL_CNN)
    path = tmp_path / "m.edgekit"
    edgekit.build(model, targets=["ort"]).save(path)
    run: Callable[..., Result] = CliRunner().invoke
    monkeypatch.setattr(sys, "argv", ["edgekit", "explain", str(path), "--json"])
    result = run(main, ["explain", str(path), "--json"])
    assert result.exit_code == 0
    (variant,) = json.loads(result.stdout)["variants"]
    assert variant["variant"] == "ort-fp32"
    assert variant["nodes"]
    monkeypatch.setattr(sys, "argv", ["edgekit", "explain", str(path), "tflite"])
    result = run(main, ["explain", str(path), "tflite"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "error: unknown target or variant 'tflite'; available: ort, ort-fp32\n"
