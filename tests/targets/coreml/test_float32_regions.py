"""Planted networks that float16 does not do for: what computes in float32 then, why, and what it answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgekit_coreml import float32_regions
from edgekit_coreml.compile import compile_model, refined_model
from edgekit_coreml.interpreter.execute import Executor

import edgekit
from edgekit.compiler.evaluate.verify import write_files
from edgekit.compiler.passes import run_passes
from edgekit.target import Artifact, registry
from edgekit.tensor_spec import Array
from tests.compiler.passes.meaning import snr_db
from tests.fixtures.models import SMALL_CNN, write
from tests.targets.coreml.networks import NOISY, X
from tests.targets.engine_trial import profile, specs, with_shapes

pytestmark = [pytest.mark.needs_coreml, pytest.mark.needs_ort]

OVERFLOWING = """
<ir_version: 10, opset_import: ["": 23]>
far (float[1,1,8,8] x) => (float[1,1,8,8] y)
<float[1,1,1,1] up = {30000}, float[1,1,1,1] down = {0.0001}, float[1,1,1,1] one = {1.5}>
{
    [near] n = Conv(x, one)
    [huge] a = Conv(n, up)
    [still] r = Relu(a)
    [back] y = Conv(r, down)
}
"""


def both(text: str) -> tuple[Artifact, Artifact]:
    """The fp16 package before and after it has seen X."""
    model = with_shapes(text)
    run_passes(model)
    made = compile_model(model, profile("coreml"), "fp16")
    return made, refined_model(model, profile("coreml"), "fp16", made, [{"x": X}])


def answers(text: str, artifact: Artifact, folder: Path) -> dict[str, Array]:
    model = with_shapes(text)
    inputs, outputs = specs(list(model.graph.inputs)), specs(list(model.graph.outputs))
    files = write_files(artifact, folder)
    runner = registry.engine("coreml").open_runner(files, inputs, outputs, artifact.options, 1)
    return runner.run({"x": X})


def test_a_planted_overflow_is_named_and_comes_out_finite(tmp_path: Path) -> None:
    before, after = both(OVERFLOWING)
    assert np.isinf(answers(OVERFLOWING, before, tmp_path / "a")["y"]).any()
    got = answers(OVERFLOWING, after, tmp_path / "b")["y"]
    np.testing.assert_allclose(got, X * 1.5 * 30000 * 1e-4, rtol=2e-3)
    why = {entry["node"]: entry["why"] for entry in after.facts["float32_nodes"]}
    assert list(why) == ["huge", "still", "back"]
    assert why["huge"].startswith("its values reach 4.4")
    assert why["huge"].endswith("and float16 ends at 65504")
    assert why["back"].startswith("it reads r, which reaches 4.4")


def test_what_loses_the_digits_computes_in_float32(tmp_path: Path) -> None:
    before, after = both(NOISY)
    wanted: dict[str, Array] = {"y": X, "z": 1 / (1 + np.exp(-2 * X))}
    poor, good = answers(NOISY, before, tmp_path / "a"), answers(NOISY, after, tmp_path / "b")
    assert snr_db(wanted["y"], poor["y"]) < 30
    assert min(snr_db(wanted[name], good[name]) for name in wanted) >= 40
    why = {entry["node"]: entry["why"] for entry in after.facts["float32_nodes"]}
    assert list(why) == ["lifted", "kept", "lowered"]
    assert why["kept"].startswith("in float16 its rounding alone leaves output y at 2")


def test_the_trace_names_where_it_is_lost() -> None:
    trace = both(NOISY)[1].facts["trace"]
    lost = trace["lowest_snr"][0]
    assert (lost["node"], lost["op"]) == ("lowered", "Conv")
    assert lost["snr_db"] < 30
    near = trace["least_headroom"][0]
    assert near["node"] in ("lifted", "kept")
    assert near["headroom_db"] == round(20 * np.log10(65504 / float((X + 2000).max())), 1)


def test_what_does_in_float16_stays(tmp_path: Path) -> None:
    model = with_shapes(SMALL_CNN)
    run_passes(model)
    made = compile_model(model, profile("coreml"), "fp16")
    image = np.random.default_rng(0).standard_normal((1, 3, 16, 16)).astype(np.float32)
    after = refined_model(model, profile("coreml"), "fp16", made, [{"image": image}])
    assert after.files == made.files
    assert {entry["node"] for entry in after.facts["trace"]["least_headroom"]}


def test_a_build_refines_and_its_report_says_so(tmp_path: Path) -> None:
    path = write(tmp_path, NOISY)
    bundle = edgekit.build(path, targets=["coreml"], precision="fp16", samples=[{"x": X}])
    (variant,) = bundle.variants
    assert variant.status == "verified by reference execution; not run on Apple hardware"
    assert [node["node"] for node in variant.evidence["compile"]["float32_nodes"]] == [
        "lifted",
        "kept",
        "lowered",
    ]
    assert "float32 within fp16: lifted (and 2 more): in float16 its rounding alone" in bundle.report


def test_what_lies_before_a_node_is_not_run_again_and_that_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    skipped: list[int] = []
    whole: Any = Executor.run

    def counted(self: Executor, *args: Any, **options: Any) -> Any:
        skipped.append(options.get("before", 0))
        return whole(self, *args, **options)

    monkeypatch.setattr(Executor, "run", counted)
    kept = both(NOISY)[1]
    assert max(skipped) > 0
    skipped.clear()
    monkeypatch.setattr(float32_regions, "KEPT_BYTES", 0)
    again = both(NOISY)[1]
    assert max(skipped) == 0
    assert (kept.files, kept.facts) == (again.files, again.facts)
