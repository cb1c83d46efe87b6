"""All sizes of a range in one engine with an optimization profile, on the stand-ins: no GPU ran it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgekit_tensorrt import run

import edgekit
from edgekit.bundle.bundle import Bundle
from edgekit.errors import EngineNotReady
from edgekit.runtime import Session
from edgekit.runtime.device_builds.engine_store import ENGINE, EngineStore
from edgekit.runtime.loading.unpacked_files import unpack
from edgekit.target import registry
from tests.fixtures.encoder import WHOLE, encoder
from tests.targets.tensorrt.jetson import NEEDS_STAND_INS, alive

pytestmark = NEEDS_STAND_INS


@pytest.fixture(scope="module")
def ranged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranged")
    made = edgekit.build(
        encoder(folder / "encoder.onnx"),
        targets=["ort", "tensorrt"],
        shapes={"ids": (1, f"3..{WHOLE}")},
        trusted=True,
    )
    return made.save(folder / "ranged.edgekit")


def text(size: int) -> dict[str, Any]:
    return {"ids": np.arange(size)[None] % 7, "mask": np.ones((1, size), np.int64)}


def opened(bundle: Bundle) -> Any:
    variant = next(each for each in bundle.variants if each.target == "tensorrt")
    files = unpack(bundle, variant)
    return registry.open_runner(run, files, bundle.inputs, bundle.outputs, variant.options, None)


def test_the_reference_executor_runs_the_tested_sizes(ranged: Path) -> None:
    with Bundle.open(ranged) as bundle:
        variant = next(each for each in bundle.variants if each.target == "tensorrt")
        assert variant.status.startswith("verified by reference execution")
        assert "not run on a Jetson" in variant.status
        figures = variant.evidence["shapes"]
        assert [each["shape"] for each in figures][:: len(figures) - 1] == ["1x3", f"1x{WHOLE}"]
        assert all(each["snr_db"] is None or each["snr_db"] > 100 for each in figures)
        assert "p50_ms" not in figures[0]
        assert "optimization profile was not built" in bundle.report


def test_one_engine_takes_every_size(jetson: pytest.MonkeyPatch, ranged: Path) -> None:
    with Bundle.open(ranged) as bundle:
        with pytest.raises(EngineNotReady) as found:
            opened(bundle)
        assert found.value.build.wait(60)
        assert found.value.build.reason == ""
        (engine,) = EngineStore().root.glob(f"*/{ENGINE}")
        head = engine.read_bytes().partition(b"\n")[0]
        settings = json.loads(head[head.index(b"{") :])
        assert settings["profile"] == {name: [[1, 3], [1, 9], [1, WHOLE]] for name in ("ids", "mask")}
        runner = opened(bundle)
        with Session(bundle, engine="ort", strict=True) as session:
            for size in (WHOLE, 3, 8, WHOLE, 11):
                expected = session.run(text(size))["tokens"]
                assert runner.run(text(size))["tokens"] == pytest.approx(expected, abs=1e-4)
        facts = runner.facts()
        assert (facts["cuda_graph"], facts["cuda_graph_problem"]) == (
            False,
            "the engine takes a range of sizes",
        )
        runner.close()
        assert alive() == 0
