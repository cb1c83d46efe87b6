"""bf16 and fp16 arithmetic: precisions of their own, computed where the processor has them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import edgekit
from edgekit.bundle import Bundle
from edgekit.compiler.evaluate.verify import compare
from edgekit.compiler.evaluate.verify_bundle import verify_bundle
from edgekit.errors import EngineError, UsageError
from edgekit.runtime import Session
from edgekit.system import cpu
from tests.fixtures import models

pytestmark = [pytest.mark.needs_ort, pytest.mark.needs_openvino]

WITHOUT = ("avx2", "avx512f")
WITH = (*WITHOUT, "avx512_bf16", "amx_bf16")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return models.write(tmp_path, models.SMALL_CNN)


def processor(monkeypatch: pytest.MonkeyPatch, *instruction_sets: str) -> None:
    monkeypatch.setattr(cpu, "instruction_sets", lambda: instruction_sets)


def built(model: Path, monkeypatch: pytest.MonkeyPatch, *targets: str, precision: str = "bf16") -> Bundle:
    processor(monkeypatch, *WITHOUT)
    return edgekit.build(model, targets=targets, precision=precision)


def test_without_the_processor_it_is_emulated_or_not_run_and_never_timed(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = built(model, monkeypatch, "xeon-amx", "ort")
    names = ["xeon-amx-fp32", "xeon-amx-bf16", "ort-fp32", "ort-bf16"]
    assert [v.name for v in bundle.variants] == names
    fp32, bf16, _, ort = bundle.variants
    assert ort.status == "not run: it needs a processor with bf16; this one has avx2, avx512f"
    assert ort.evidence["limits_db"] == {"scores": 20.0, "features": 20.0}
    assert bf16.files == fp32.files  # one copy of the weights
    assert bf16.options["needs_isa"] == ["avx512_bf16", "amx_bf16"]
    assert "timing" in fp32.evidence
    assert "timing" not in bf16.evidence
    if not bf16.verified:  # this machine has no AVX-512: OpenVINO can't emulate it
        assert bf16.status.startswith("not run: it needs a processor with avx512_bf16 or amx_bf16")
        return
    assert bf16.status == "verified by reference execution; not run on a processor with bf16"
    assert bf16.evidence["executed"]["precision"] == "bf16"
    assert 20 <= bf16.evidence["accuracy"]["features"]["snr_db"] < 70  # 8 bits, and not fp32's 24
    assert [c.status.split(":")[0] for c in verify_bundle(bundle)] == [
        "verified on " + fp32.evidence["engine"],
        bf16.status,
        "verified on " + bundle.variants[2].evidence["engine"],
        "not run",
    ]


def test_a_session_takes_it_only_where_the_processor_has_it(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = built(model, monkeypatch, "xeon-amx")
    bf16 = bundle.variants[1]
    with Session(bundle) as session:
        assert session.active.variant == "xeon-amx-fp32"
        assert session.fallbacks == ()
    why = "it needs a processor with avx512_bf16 or amx_bf16; this one has avx2, avx512f"
    with Session(bundle, variant="xeon-amx-bf16") as session:
        assert session.active.variant == "xeon-amx-fp32"
        assert session.fallbacks[0].reason == why
    with pytest.raises(EngineError, match=why):
        Session(bundle, variant="xeon-amx-bf16", strict=True)
    if not bf16.verified:
        return
    processor(monkeypatch, *WITH)
    golden, expected = bundle.golden[0]
    with Session(bundle) as session:  # the profile says that the chip has it, and nothing has timed it
        assert (session.active.variant, session.active.precision) == ("xeon-amx-bf16", "bf16")
        answers = session.run(golden)
    error = compare([expected["features"]], [answers["features"]], 20)
    assert error.within_limit
    assert error.snr_db is not None
    assert error.snr_db < 70


def test_auto_tries_it_where_it_can_be_timed_and_ships_it_only_if_it_is_faster(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = built(model, monkeypatch, "openvino", precision="auto")
    assert "bf16" not in [v.precision for v in bundle.variants]
    processor(monkeypatch, *WITH)
    bundle = edgekit.build(model, targets=["openvino"], precision="auto")
    (bf16,) = (v for v in bundle.variants if v.precision == "bf16")
    # On the machine of this test it may be emulated: then it is slow.
    assert bf16.evidence["timing"]["isa"] == " ".join(WITH)
    ratio = bf16.evidence["timing"]["min_ms"] / bundle.variants[0].evidence["timing"]["min_ms"]
    assert bf16.rejected is (bf16.evidence["timing"].get("ratio", ratio) > 1), bf16.status


def test_with_samples_auto_holds_it_to_the_goal(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    processor(monkeypatch, *WITH)
    draw = np.random.default_rng(0)
    samples = [{"image": draw.standard_normal((1, 3, 16, 16)).astype(np.float32)} for _ in range(12)]
    bundle = edgekit.build(
        model, targets=["openvino"], precision="auto", samples=samples, time_budget=0, max_drop="90dB"
    )
    (bf16,) = (v for v in bundle.variants if v.precision == "bf16")
    if bf16.evidence["executed"]["precision"] == "bf16":
        assert bf16.evidence["agreement"]["samples"] > 0
        assert "90 dB is required" in bf16.reason


@pytest.mark.needs_tflite
def test_it_is_refused_where_it_does_not_exist(model: Path) -> None:
    with pytest.raises(UsageError, match=r"^tflite does not support bf16; use fp32, fp16, int8 or auto$"):
        edgekit.build(model, targets=["openvino", "tflite"], precision="bf16")
    with pytest.raises(
        UsageError, match=r"^openvino does not support fp16-arithmetic; use fp32, fp16, int8 or auto$"
    ):
        edgekit.build(model, targets=["openvino"], precision="fp16-arithmetic")


@pytest.mark.needs_tflite
def test_fp16_arithmetic_is_permitted_by_the_file(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = built(model, monkeypatch, "rpi5", precision="fp16-arithmetic")
    variant = bundle.variants[1]
    assert variant.status == "not run: it needs a processor with asimdhp; this one has avx2, avx512f"
    assert b"reduced_precision_support" in bytes(bundle.read(variant.files["model.tflite"]))
