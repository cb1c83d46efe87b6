"""A session in bad weather: each way an engine fails is answered by the next variant, and explained."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.errors import (
    BundleError,
    EdgeKitError,
    EngineError,
    MissingDependency,
    NoVariantError,
)
from edgekit.runtime import Fallback, Session
from tests.fixtures.bundles import X, small_bundle, variant
from tests.fixtures.fake_engines import (
    Behaviour,
    Engines,
    change,
    doubled,
    nothing,
    one_too_many,
    throws,
    wrong_dtype,
    wrong_name,
    wrong_shape,
)


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> Engines:
    engines = Engines("ort", "tflite", "openvino")
    monkeypatch.setattr("edgekit.target.registry.engine", engines)
    return engines


@pytest.fixture
def path(tmp_path: Path) -> Path:
    variants = [
        variant("onnx", "ort", p50_ms=7.0),
        variant("onnx16", "ort", p50_ms=8.0, precision="fp16"),
        variant("lite", "tflite", p50_ms=10.0),
    ]
    return small_bundle(variants).save(tmp_path / "b.edgekit")


def test_a_missing_engine(engines: Engines, path: Path) -> None:
    engines["ort"].missing = True
    with Session(path) as session:
        np.testing.assert_array_equal(session.run({"x": X})["y"], 2 * X)
        assert session.active.variant == "lite"
        assert session.fallbacks == (
            Fallback(
                "onnx",
                "lite",
                "ort is not installed (pip install 'edgekit-sdk[ort]')",
                "10 ms instead of 7 ms (+43 %)",
            ),
        )


def test_a_target_whose_package_is_not_installed(engines: Engines) -> None:
    bundle = small_bundle([variant("core", "coreml", p50_ms=1.0), variant("lite", "tflite", p50_ms=2.0)])
    with Session(bundle) as session:
        assert [hop.reason for hop in session.fallbacks] == ["coreml is not installed"]


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (EngineError("it refused\n  the file"), "it refused the file"),
        (RuntimeError("bad"), "RuntimeError: bad"),
        (MemoryError(), "MemoryError: "),
        (ImportError("libfoo.so: no such file"), "ImportError: libfoo.so: no such file"),
        (EngineError("x" * 1000), "x" * 397 + "..."),
    ],
)
def test_a_variant_that_does_not_load(engines: Engines, path: Path, problem: Exception, reason: str) -> None:
    engines["ort"].refused["onnx"] = problem
    with Session(path) as session:
        assert session.active.variant == "onnx16"
        assert session.fallbacks == (
            Fallback("onnx", "onnx16", reason, "8 ms instead of 7 ms (+14 %), fp16 instead of fp32"),
        )


RUNS: dict[str, tuple[Behaviour, str]] = {
    "throws": (throws, "RuntimeError: kernel died"),
    "shape": (wrong_shape, "it returned y float32 6x1; the model's outputs are y float32 1x6"),
    "dtype": (wrong_dtype, "it returned y float16 1x6; the model's outputs are y float32 1x6"),
    "name": (wrong_name, "KeyError: 'y'"),
    "nothing": (nothing, "it returned nothing; the model's outputs are y float32 1x6"),
    "more": (one_too_many, "it returned y float32 1x6, z float32 1x6; the model's outputs are y float32 1x6"),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_variant_that_fails_to_run(
    engines: Engines, path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    behaviour, reason = RUNS[name]
    with Session(path) as session, caplog.at_level(logging.WARNING, "edgekit.runtime"):
        session.run({"x": X})
        change(session, behaviour)
        np.testing.assert_array_equal(session.run({"x": X})["y"], 2 * X)
        assert session.active.variant == "onnx16"
        assert [(hop.from_, hop.to, hop.reason) for hop in session.fallbacks] == [("onnx", "onnx16", reason)]
        assert engines["ort"].closed == 1  # the one that failed holds no memory any more
        assert reason in caplog.text
        session.run({"x": X})
        assert len(session.fallbacks) == 1


def test_a_damaged_variant(engines: Engines, path: Path) -> None:
    content = path.read_bytes()
    start = content.rindex(b"onnx16")
    path.write_bytes(content[: start - 64] + b"ONNX" + content[start - 60 :])
    with Session(path) as session:
        assert session.active.variant == "onnx16"
        assert "entry variants/onnx/model.bin: its sha256 is not the one" in session.fallbacks[0].reason
    with pytest.raises(EngineError, match=r"onnx does not run: .* is damaged"):
        Session(path, strict=True)


def test_nothing_works(engines: Engines, path: Path) -> None:
    engines["ort"].missing = engines["tflite"].missing = True
    with pytest.raises(NoVariantError) as error:
        Session(path)
    assert str(error.value).splitlines()[1:3] == [
        "  onnx    ort is not installed (pip install 'edgekit-sdk[ort]')",
        "  onnx16  ort is not installed (pip install 'edgekit-sdk[ort]')",
    ]
    assert error.value.exit_code == 3
    with pytest.raises(BundleError, match="file not found"):
        Session(path.with_name("absent.edgekit"))


def test_strict_tells_what_would_have_run(engines: Engines, path: Path) -> None:
    engines["ort"].missing = True
    with pytest.raises(MissingDependency) as error:
        Session(path, engine="ort", strict=True)
    assert str(error.value) == (
        "ort was requested and is not installed (pip install 'edgekit-sdk[ort]'); "
        "without strict, Tflite Runtime would have run"
    )
    assert (error.value.name, error.value.exit_code) == ("ort", 3)
    with pytest.raises(MissingDependency) as error:
        Session(path, strict=True)
    assert str(error.value) == (
        "ort has the best variant, onnx, and is not installed (pip install 'edgekit-sdk[ort]'); "
        "without strict, Tflite Runtime would have run"
    )
    engines["tflite"].missing = True
    with pytest.raises(MissingDependency, match="; no other engine of this bundle is installed either"):
        Session(path, engine="ort", strict=True)


def test_strict_never_hops(engines: Engines, path: Path) -> None:
    with Session(path, strict=True) as session:
        change(session, throws)
        for _ in range(2):
            with pytest.raises(EngineError) as error:
                session.run({"x": X})
            assert str(error.value) == (
                "onnx does not run: RuntimeError: kernel died; strict forbids fallbacks"
            )
        change(session, doubled)
        session.run({"x": X})
        assert session.fallbacks == ()
    engines["ort"].refused["onnx"] = EngineError("bad")
    with pytest.raises(EngineError, match="onnx does not run: bad; strict forbids fallbacks"):
        Session(path, strict=True)


def test_an_engine_asked_for_whose_variants_were_rejected(engines: Engines) -> None:
    bundle = small_bundle([variant("vino", "openvino", status="rejected: slow"), variant("onnx", "ort")])
    with Session(bundle, engine="openvino") as session:
        assert [(hop.from_, hop.reason) for hop in session.fallbacks] == [("vino", "rejected: slow")]
    with pytest.raises(NoVariantError) as error:
        Session(bundle, engine="openvino", strict=True)
    assert str(error.value) == ("openvino was requested and has no usable variant; vino was rejected: slow")


def test_an_engine_that_does_not_close(
    engines: Engines, path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> None:
        raise RuntimeError("busy")

    session = Session(path)
    monkeypatch.setattr(session.runner, "close", fails)
    session.close()
    assert "Ort Runtime 1.0 did not close: busy" in caplog.text


def test_a_cache_that_cannot_be_used_is_noted(
    engines: Engines, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "file"))
    with Session(path) as session:
        np.testing.assert_array_equal(session.run({"x": X})["y"], 2 * X)
        assert len(session.notes) == 1
        assert "unpacked for this process only" in session.notes[0]


FAULTS = {"throws": throws, "shape": wrong_shape, "name": wrong_name, "nothing": nothing, "fine": doubled}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["missing", "refuses", *FAULTS]), min_size=3, max_size=3), st.booleans())
def test_whatever_fails_the_answer_is_right_or_the_error_names_all(faults: list[str], strict: bool) -> None:
    variants = [variant("a", "ort"), variant("b", "tflite"), variant("c", "openvino")]
    engines = Engines("ort", "tflite", "openvino")
    for each, fault in zip(variants, faults, strict=True):
        engine = engines[each.target]
        engine.missing = fault == "missing"
        if fault == "refuses":
            engine.refused[each.name] = EngineError("refused")
        engine.behaviour[each.name] = FAULTS.get(fault, doubled)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("edgekit.target.registry.engine", engines)
        problem = None
        try:
            with Session(small_bundle(variants), strict=strict) as session:
                np.testing.assert_array_equal(session.run({"x": X})["y"], 2 * X)
                active, hops = session.active.variant, len(session.fallbacks)
        except EdgeKitError as error:
            problem = error
    if problem is None:
        working = faults.index("fine")
        assert (active, hops) == ("abc"[working], working)
        assert not (strict and hops)
    elif strict:
        assert faults[0] != "fine"
        assert isinstance(problem, (EngineError, MissingDependency))
    else:
        assert "fine" not in faults
        assert isinstance(problem, NoVariantError)
        assert all(f"\n  {name}  " in str(problem) for name in "abc")
