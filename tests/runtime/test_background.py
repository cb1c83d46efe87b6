"""A variant that is made ready in the background takes over between two requests, if it is faster."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from edgekit.bundle import Bundle
from edgekit.errors import EngineError, EngineNotReady, UsageError
from edgekit.runtime import Session
from edgekit.target import EngineInfo
from edgekit.tensor_spec import Array, Json, TensorSpec
from tests.fixtures.bundles import X, small_bundle, variant
from tests.fixtures.fake_engines import Engines, FakeEngine, FakeRunner, doubled, throws


class SlowBuild:
    """What tells of a build, without one."""

    def __init__(self) -> None:
        self.stage = "building"
        self._done = threading.Event()

    def wait(self, seconds: float | None = None) -> bool:
        return self._done.wait(seconds)

    def end(self) -> None:
        self._done.set()


class BuildingEngine(FakeEngine):
    """An engine that is not ready before ``build`` ended."""

    ENGINE = EngineInfo(prepared_on_device=True)

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.build = SlowBuild()
        self.broken = ""

    def open_runner(
        self,
        files: Mapping[str, Path],
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        options: Mapping[str, Json],
        threads: int | None,
    ) -> FakeRunner:
        if not self.build.wait(0):
            raise EngineNotReady("its engine is being built on this device", self.build)  # type: ignore[arg-type]
        if self.broken:
            raise EngineError(self.broken)
        return super().open_runner(files, inputs, outputs, options, threads)


def slowly(feeds: Mapping[str, Array]) -> dict[str, Array]:
    time.sleep(0.005)
    return doubled(feeds)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> BuildingEngine:
    engines = Engines("ort")
    engine = BuildingEngine("gpu")
    engines.by_name["gpu"] = engine
    engines["ort"].behaviour["onnx"] = slowly
    monkeypatch.setattr("edgekit.target.registry.engine", engines)
    return engine


def bundle() -> Bundle:
    options = {"prepared_on_device": True}
    return small_bundle(
        [
            variant("onnx", "ort", p50_ms=7.0),
            variant("gpu-fp32", "gpu", status="not run: no GPU", options=options),
            variant("gpu-fp16", "gpu", status="not run: no GPU", options=options),
        ]
    )


def until(session: Session, reached: Callable[[], bool]) -> None:
    """Run until something is so; each answer is right meanwhile."""
    end = time.monotonic() + 20
    while not reached():
        assert time.monotonic() < end
        np.testing.assert_array_equal(session.run({"x": X})["y"], 2 * X)


def test_another_variant_serves_while_the_engine_is_built(gpu: BuildingEngine) -> None:
    with Session(bundle()) as session:
        assert session.active.variant == "onnx"
        until(session, lambda: session.preparing == {"gpu-fp16": "building"})
        gpu.build.stage = "verifying"
        assert session.preparing == {"gpu-fp16": "verifying"}
        assert session.active.variant == "onnx"
        gpu.build.end()
        until(session, lambda: session.active.variant == "gpu-fp16")
        assert session.preparing == {"gpu-fp16": "ready"}
        assert session.fallbacks == ()
        assert gpu.loaded == ["gpu-fp16"]
    assert gpu.closed == 1


def test_an_engine_that_is_not_faster_does_not_take_over(gpu: BuildingEngine) -> None:
    gpu.behaviour["gpu-fp16"] = lambda feeds: (time.sleep(0.05), doubled(feeds))[1]  # type: ignore[func-returns-value]
    gpu.build.end()
    with Session(bundle()) as session:
        until(session, lambda: session.preparing["gpu-fp16"].startswith("failed: slower here: "))
        assert session.active.variant == "onnx"
    assert gpu.closed == 1


@pytest.mark.parametrize("how", ["does not load", "does not run"])
def test_an_engine_that_fails_does_not_take_over(gpu: BuildingEngine, how: str) -> None:
    if how == "does not load":
        gpu.broken = "it crashed twice"
    gpu.behaviour["gpu-fp16"] = throws
    gpu.build.end()
    with Session(bundle()) as session:
        said = "it crashed twice" if gpu.broken else "RuntimeError: kernel died"
        until(session, lambda: session.preparing["gpu-fp16"] == f"failed: {said}")
        assert session.active.variant == "onnx"


def test_after_it_took_over_the_others_still_catch_its_failure(gpu: BuildingEngine) -> None:
    gpu.build.end()
    with Session(bundle()) as session:
        until(session, lambda: session.active.variant == "gpu-fp16")
        assert isinstance(session.runner, FakeRunner)
        session.runner.behaviour = throws
        np.testing.assert_array_equal(session.run({"x": X})["y"], 2 * X)
        assert session.active.variant == "onnx"
        assert [(f.from_, f.to) for f in session.fallbacks] == [("gpu-fp16", "onnx")]


def test_asked_for_it_is_a_fallback_until_it_is_ready_and_then_taken_untimed(gpu: BuildingEngine) -> None:
    gpu.behaviour["gpu-fp16"] = lambda feeds: (time.sleep(0.01), doubled(feeds))[1]  # type: ignore[func-returns-value]
    with Session(bundle(), engine="gpu") as session:
        assert session.active.variant == "onnx"
        assert {f.reason for f in session.fallbacks} == {"its engine is being built on this device"}
        gpu.build.end()
        until(session, lambda: session.active.variant == "gpu-fp16")
        assert session.fallbacks == ()


def test_another_engine_asked_for_means_that_none_is_prepared(gpu: BuildingEngine) -> None:
    gpu.build.end()
    with Session(bundle(), engine="ort") as session:
        assert session.preparing == {}


def test_strict_waits_for_it(gpu: BuildingEngine) -> None:
    threading.Timer(0.1, gpu.build.end).start()
    with Session(bundle(), engine="gpu", strict=True) as session:
        assert session.active.variant == "gpu-fp32"
        assert session.preparing == {}


def test_a_missing_engine_is_not_prepared(gpu: BuildingEngine) -> None:
    gpu.missing = True
    with Session(bundle(), engine="gpu") as session:
        assert session.preparing == {}
        assert session.active.variant == "onnx"


def test_a_session_that_is_closed_leaves_nothing_open(gpu: BuildingEngine) -> None:
    session = Session(bundle())
    session.close()
    gpu.build.end()
    end = time.monotonic() + 20
    while not gpu.loaded and time.monotonic() < end:
        time.sleep(0.01)
    while gpu.closed < 1 and time.monotonic() < end:
        time.sleep(0.01)
    assert (gpu.loaded, gpu.closed) == (["gpu-fp16"], 1)
    with pytest.raises(UsageError, match="is closed"):
        session.run({"x": X})
