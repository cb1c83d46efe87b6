"""An engine's death costs the step that it died in, and nothing else. Processes and deaths are real."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import parser

import edgekit
from edgekit.bundle import Bundle
from edgekit.compiler.sandbox import contained, watch
from edgekit.compiler.sandbox.limits import MEMORY_MB, SECONDS
from edgekit.errors import BuildFault, CrashError
from edgekit.system.progress import Stage
from edgekit.target import registry
from tests.compiler.quantize.search import planted
from tests.compiler.sandbox import frail_target
from tests.fixtures import models
from tests.fixtures.command_line import Call

pytestmark = pytest.mark.needs_ort

ENDED = "its process was killed by SIGSEGV"


@pytest.fixture(autouse=True)
def frail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    frail_target.install(tmp_path / "installed", monkeypatch, ("brittle", "frail"))
    yield
    registry._entry_points.cache_clear()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return models.write(tmp_path, models.SMALL_CNN)


def statuses(bundle: Bundle) -> dict[str, str]:
    return {variant.name: variant.status.partition(" on ONNX")[0] for variant in bundle.variants}


@pytest.mark.parametrize("step", ["^check ", "^compile fp32", "^open in frail-fp32"])
def test_a_death_costs_one_target(model: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    monkeypatch.setenv("FRAIL", step)
    stages: list[Stage] = []
    bundle = edgekit.build(model, targets=["frail", "ort"], progress=stages.append)
    assert statuses(bundle) == {"frail-fp32": f"rejected: {ENDED}", "ort-fp32": "verified"}
    ended = [stage for stage in stages if stage.seconds is not None]
    name = "frail" if step == "^check " else "frail-fp32"
    assert [s.detail for s in ended if s.name == "restarted"] == [f"without {name}: {ENDED}"]
    again = [s.name for s in ended if s.name != "restarted"]
    assert again == ["opened", "checked", "reference", "compiled", "compiled", "timed"]  # each is told once


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("SIGABRT", "its process was killed by SIGABRT"),
        ("exit", "its process exited with code 7"),
        ("memory", "its process used more than its limit of 700 MB of memory"),
        ("hang", "its process took longer than its limit of "),
    ],
)  # fmt: skip
def test_however_it_ends(model: Path, monkeypatch: pytest.MonkeyPatch, how: str, reason: str) -> None:
    monkeypatch.setenv("FRAIL", "compile")
    monkeypatch.setenv("FRAIL_HOW", how)
    monkeypatch.setenv(MEMORY_MB, "700")
    monkeypatch.setattr(watch, "STEP_SHARE", 0.01)
    said: list[str] = []
    bundle = edgekit.build(model, targets=["frail", "ort"], progress=lambda stage: said.append(stage.detail))
    found = statuses(bundle)
    assert found["ort-fp32"] == "verified"
    assert found["frail-fp32"].startswith(f"rejected: {reason}")
    limit = {"memory": MEMORY_MB, "hang": SECONDS}.get(how)
    assert limit is None or any(f"set {limit}=" in each for each in said if each.startswith("without frail"))


def test_a_death_while_variants_are_timed(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is timed alone where they died together, and the one that dies alone is lost."""
    monkeypatch.setenv("FRAIL", "open in timing of")
    targets = ["frail", "ort"]
    found = edgekit.build(model, targets=targets)
    assert statuses(found) == {"frail-fp32": "verified", "ort-fp32": "verified"}
    assert all(variant.evidence["timing"]["p50_ms"] > 0 for variant in found.variants)
    monkeypatch.setenv("EDGEKIT_CACHE", str(model.parent / "another"))
    monkeypatch.setenv("FRAIL", "open in (timing of|frail-fp32)")
    found = edgekit.build(model, targets=targets)
    assert statuses(found) == {"frail-fp32": f"rejected: {ENDED}", "ort-fp32": "verified"}


def test_a_death_in_the_search_costs_one_candidate(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are measured, int8 is shipped, and the report names what died."""
    monkeypatch.setenv("FRAIL", "compile int8 in .*minmax")
    model, samples, output = planted.sound(tmp_path), tmp_path / "samples", tmp_path / "b.edgekit"
    samples.mkdir()
    for number, sample in enumerate(planted.samples(12)):
        np.savez(samples / f"{number:02}.npz", x=sample["x"])
    result = call("build", model, "-t", "frail", "-t", "ort", "--precision", "int8", "--samples", samples,
                  "-o", output)  # fmt: skip
    assert result.exit_code == 0, result.stderr
    bundle = Bundle.open(output)
    assert set(statuses(bundle).values()) == {"verified"}
    assert len(bundle.variants) == 4
    tried = {v.name: v.evidence["search"]["tried"] for v in bundle.variants if "search" in v.evidence}
    assert [each["choice"] for each in tried["frail-int8"] if each["lost"] == ENDED] == [
        "all, minmax, nearest"
    ]
    assert len(tried["frail-int8"]) == len(tried["ort-int8"]) > 2
    assert ENDED not in json.dumps(tried["ort-int8"])
    assert "without frail-int8 > all, minmax, nearest (" in result.stderr


def test_a_death_in_the_test_of_a_candidate_costs_its_variant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRAIL", "open in .*test of frail-int8")
    bundle = edgekit.build(
        planted.sound(tmp_path), targets=["frail"], precision="int8", samples=planted.samples(12)
    )
    assert statuses(bundle) == {"frail-fp32": "verified", "frail-int8": f"rejected: {ENDED}"}


def test_a_candidate_that_died_is_not_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where it is the best of a search that measured no other. A later build measures it anew."""
    monkeypatch.setenv("FRAIL", "compile int8")
    model, samples, stages = planted.sound(tmp_path), planted.samples(12), list[Stage]()
    options: dict[str, Any] = {"targets": ["frail"], "precision": "int8", "samples": samples}
    bundle = edgekit.build(model, **options, progress=stages.append)
    assert statuses(bundle) == {"frail-fp32": "verified", "frail-int8": f"rejected: {ENDED}"}
    assert len([stage for stage in stages if stage.name == "restarted"]) == 1
    monkeypatch.setenv("FRAIL", "nothing")
    assert set(statuses(edgekit.build(model, **options)).values()) == {"verified"}


def test_time_is_that_of_all_children(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spent_s: list[float] = []

    class Noted(watch.ChildWatch):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            spent_s.append(self.spent_s)

    monkeypatch.setenv("FRAIL", "compile")
    monkeypatch.setattr(contained, "ChildWatch", Noted)
    edgekit.build(model, targets=["frail", "brittle", "ort"])
    first, second, third = spent_s
    assert first < 0.1 < second < third


PAD = """
<ir_version: 8, opset_import: ["": 17]>
crafted (float[1,4] x) => (float[1,4] y)
<int64[4] pads = {0, -4611686018427387904, 0, 4611686018427387904}> { y = Pad(x, pads) }
"""


@pytest.mark.needs_openvino
def test_a_crafted_model_costs_the_engine_that_it_ends(tmp_path: Path) -> None:
    """OpenVINO 2026.4.1 dies of these pads."""
    path = tmp_path / "pad.onnx"
    path.write_bytes(parser.parse_model(PAD).SerializeToString())
    found = statuses(edgekit.build(path, targets=["openvino", "ort"]))
    assert found["ort-fp32"] == "verified"
    assert found["openvino-fp32"].startswith((f"rejected: {ENDED}", "verified on OpenVINO"))


def test_measurements_are_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that begins again loads what the dead one measured."""
    monkeypatch.setenv("FRAIL", "compile int8 in .*minmax")
    said: list[str] = []
    edgekit.build(
        planted.sound(tmp_path), targets=["frail"], precision="int8", samples=planted.samples(12),
        progress=lambda stage: said.append(stage.detail),
    )  # fmt: skip
    assert said.count("frail, candidate 1: running") == 1


def test_too_many_deaths_in_a_search_cost_its_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAIL", "compile int8 in .*(gptq|minmax)")
    monkeypatch.setattr(contained, "INNER_DEATHS_LIMIT", 1)
    stages: list[Stage] = []
    bundle = edgekit.build(
        planted.sound(tmp_path), targets=["frail", "ort"], precision="int8", samples=planted.samples(12),
        progress=stages.append,
    )  # fmt: skip
    assert statuses(bundle) == {
        "frail-fp32": "verified", "frail-int8": f"rejected: {ENDED}",
        "ort-fp32": "verified", "ort-int8": "verified",
    }  # fmt: skip
    first, second = (s.detail for s in stages if s.name == "restarted")
    assert first.startswith("without frail-int8 > all, l4, gptq, bias (")
    assert second == f"without frail-int8: {ENDED}"


def test_deaths_are_bounded(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAIL", "compile fp32")
    monkeypatch.setattr(contained, "DEATHS_LIMIT", 1)
    with pytest.raises(CrashError) as caught:
        edgekit.build(model, targets=["frail", "brittle", "ort"])
    assert str(caught.value) == (
        f"model.onnx: {ENDED}\n  at compiled, brittle-fp32\n"
        "  the model may be hostile or malformed, or an engine has a bug; this process is unharmed"
    )


def test_all_targets_dead_is_one_error(
    model: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRAIL", "compile")
    with pytest.raises(BuildFault) as caught:
        edgekit.build(model, targets=["frail", "brittle"])
    assert str(caught.value) == (
        "model.onnx could not be built for any target\n"
        f"  frail  {ENDED}\n"
        f"  brittle  {ENDED}\n"
        "  nothing was written"
    )
    output = tmp_path / "b.edgekit"
    result = call("build", model, "-t", "frail", "-o", output)
    assert (result.exit_code, output.exists()) == (BuildFault.exit_code, False)
    assert "Traceback" not in result.stderr


def test_one_that_is_stopped_stays_stopped(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAIL", "compile")
    monkeypatch.setenv("FRAIL_HOW", signal.SIGTERM.name)
    with pytest.raises(CrashError, match="its process was killed by SIGTERM"):
        edgekit.build(model, targets=["frail", "ort"])


def test_a_check_names_the_target_that_died(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAIL", "^check ")
    found = edgekit.check(model, ["frail", "ort"])
    assert [(each.target, ENDED in each.message) for each in found if each.severity == "error"] == [
        ("frail", True)
    ]
