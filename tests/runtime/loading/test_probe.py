"""What kills an engine kills a child process; what is well is loaded, and asked about once."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

from edgekit.bundle import Bundle, Variant
from edgekit.runtime import Session, background
from edgekit.runtime.loading import probe
from edgekit.runtime.loading.probe import ProbeResult, judge_exit, probe_once
from edgekit.runtime.session_state import SessionOptions
from edgekit.system import cache_folder
from edgekit.system import json_records as records_module
from edgekit.target import EngineInfo, registry
from tests.fixtures.bundles import X, small_bundle, variant
from tests.fixtures.child_processes import children
from tests.fixtures.fake_engines import Engines
from tests.fixtures.ort_bundles import DOUBLES, TURNS, onnx_bytes, ort_bundle


def killer() -> bytes:
    """A model that passes ONNX's checker and ends ONNX Runtime (1.31 and 1.32): the quotient of the smallest
    int32 and -1 is none."""
    from onnx import TensorProto, helper

    constants = [
        helper.make_tensor("smallest", TensorProto.INT32, [1], [-(2**31)]),
        helper.make_tensor("minus_one", TensorProto.INT32, [1], [-1]),
    ]
    nodes = [
        helper.make_node("Div", ["smallest", "minus_one"], ["quotient"]),
        helper.make_node("Add", ["x", "x"], ["y"]),
    ]
    value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 6]) for n in "xy"]
    quotient = helper.make_tensor_value_info("quotient", TensorProto.INT32, None)
    graph = helper.make_graph(nodes, "kills", value[:1], [value[1], quotient], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    content: bytes = model.SerializeToString()
    return content


def records() -> list[Path]:
    return sorted((cache_folder.cache_folder() / "probes").glob("*.json"))


@pytest.mark.needs_ort
def test_a_model_that_kills_the_engine_costs_a_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = ort_bundle(killer=killer(), good=onnx_bytes(DOUBLES))
    with Session(bundle, threads=1, probe=True) as session:
        np.testing.assert_array_equal(session.run({"x": X})["y"], 2 * X)
        assert [(hop.from_, hop.to, hop.reason) for hop in session.fallbacks] == [
            ("killer", "good", "it crashed the probe process (SIGFPE)")
        ]
    assert len(records()) == 2
    monkeypatch.setattr(probe, "probe", lambda *given: pytest.fail("a process was started"))
    with Session(bundle, threads=1, probe=True) as session:  # remembered
        assert session.active.variant == "good"
        assert len(session.fallbacks) == 1
    assert len(records()) == 2


@pytest.mark.needs_ort
def test_what_a_probe_finds(tmp_path: Path) -> None:
    def why(**models: bytes) -> str:
        bundle = ort_bundle(**models)
        return probe_once(bundle, bundle.variants[0], 1).reason

    assert why(good=onnx_bytes(DOUBLES)) == ""
    assert why(turned=onnx_bytes(TURNS)) == "it returned y float32 6x1; the model's outputs are y float32 1x6"
    assert why(garbage=b"not a model").startswith("ONNX Runtime ")
    logs = onnx_bytes(DOUBLES.replace("y = Add(x, x)", "z = Sub(x, x) y = Div(x, z)"))
    assert why(nan=logs).startswith("6 of 6 values of output y are NaN or infinite")
    assert len(records()) == 1  # what may be different next time is asked again


@pytest.mark.needs_ort
def test_a_record_of_another_engine_version_counts_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = ort_bundle(good=onnx_bytes(DOUBLES))
    calls = []

    def counted(*given: object) -> ProbeResult:
        calls.append(given)
        return ProbeResult("", engine=f"ONNX Runtime {len(calls)}")

    monkeypatch.setattr(probe, "probe", counted)
    for _ in range(2):
        assert probe_once(bundle, bundle.variants[0], 1).reason == ""
    assert len(calls) == 2
    from edgekit.target import registry

    monkeypatch.setattr(registry.engine("ort"), "engine_version", lambda: "ONNX Runtime 2")
    assert probe_once(bundle, bundle.variants[0], 1).reason == ""
    assert len(calls) == 2


def test_a_missing_engine_is_not_the_probes_business() -> None:
    variant = Variant("a", "no-such-target", "ort", "fp32", {"model.bin": "v/a"}, {}, "verified")
    bundle = small_bundle([variant])
    for _ in range(2):
        assert probe_once(bundle, bundle.variants[0], 1).reason == ""
    assert len(records()) == 1
    assert b'"engine":""' in records()[0].read_bytes()


def test_a_child_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "sleeps"
    script.write_text(f"#!{sys.executable}\nimport time\ntime.sleep(3600)\n")
    script.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(script))
    bundle = small_bundle()
    probed = probe.probe(bundle, bundle.variants[0], 1, seconds=0.5)
    assert probed == ProbeResult("it did not load within 0.5 s in the probe process", cacheable=False)
    assert children() == []


def test_a_crash_at_the_engines_import_is_not_remembered() -> None:
    probed = judge_exit(-4, {}, "", 60)
    assert (probed.cacheable, probed.blame) == (False, "machine")


def test_an_app_in_one_file_is_not_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(probe, "probe", lambda *given: pytest.fail("started"))
    bundle = small_bundle()
    assert probe_once(bundle, bundle.variants[0], 1).reason == ""


ENGINE = "X 1.0"


@pytest.mark.parametrize(
    ("code", "result", "probed"),
    [
        (0, {"why": ""}, ProbeResult("", ENGINE)),
        (0, {"why": "bad"}, ProbeResult("bad", ENGINE, cacheable=False, transient=True)),
        (0, {"why": "no", "missing": True}, ProbeResult("")),
        (0, {}, ProbeResult("the probe process exited with code 0", ENGINE, cacheable=False)),
        (1, {"why": ""}, ProbeResult("the probe process exited with code 1", ENGINE, cacheable=False)),
        (-11, {"why": ""}, ProbeResult("it crashed the probe process (SIGSEGV)", ENGINE, blame="bundle")),
        (-9, {}, ProbeResult("it crashed the probe process (SIGKILL)", ENGINE, False, "machine")),
        (0, {"why": "bad", "blame": "bundle"}, ProbeResult("bad", ENGINE, False, "bundle")),
        (0, {"why": "bad", "blame": ["x"]}, ProbeResult("bad", ENGINE, False, transient=True)),
        (-99, {}, ProbeResult("it crashed the probe process (signal 99)", ENGINE, cacheable=False)),
        (
            None,
            {"why": ""},
            ProbeResult("it did not load within 60 s in the probe process", ENGINE, False),
        ),
    ],
)
def test_what_is_believed_of_a_child(
    code: int | None, result: dict[str, object], probed: ProbeResult
) -> None:
    assert judge_exit(code, result, ENGINE, 60) == probed


@pytest.mark.needs_ort
def test_wrong_golden_answers_are_the_bundles_doing() -> None:
    bundle = ort_bundle(nan=onnx_bytes(DOUBLES.replace("y = Add(x, x)", "z = Sub(x, x) y = Div(x, z)")))
    assert probe.probe_once(bundle, bundle.variants[0], 1).blame == "bundle"


@pytest.mark.needs_ort
def test_a_bundle_cannot_switch_the_probe_off() -> None:
    """Only the target says that its variants are made ready on the device."""
    bundle = ort_bundle(killer=killer())
    each = bundle.variants[0]._replace(options={"prepared_on_device": True})
    assert probe_once(bundle, each, 1).reason == "it crashed the probe process (SIGFPE)"
    assert background.variants_to_prepare([each], set(), SessionOptions()) == []


def test_what_a_target_makes_ready_on_the_device_is_not_probed(
    engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "probe", lambda *given: pytest.fail("a process was started"))
    monkeypatch.setattr(engines["ort"], "ENGINE", EngineInfo(prepared_on_device=True))
    bundle = small_bundle()
    assert probe_once(bundle, bundle.variants[0], 1).reason == ""


def test_what_stands_by_is_probed_too(engines: Engines, monkeypatch: pytest.MonkeyPatch) -> None:
    probed = []

    def child(bundle: Bundle, variant: Variant, threads: int) -> ProbeResult:
        probed.append(variant.name)
        return ProbeResult("", cacheable=False)

    monkeypatch.setattr(probe, "probe", child)
    bundle = small_bundle([variant("first", "ort"), variant("second", "tflite")])
    with Session(bundle, probe=True, deadline_ms=10_000) as session:
        assert session.active.variant == "first"
    assert probed == ["first", "second"]


@pytest.mark.skipif(os.name != "posix", reason="needs permission bits")
@pytest.mark.needs_ort
@pytest.mark.parametrize("above", [False, True])
def test_a_record_that_others_may_have_written_is_not_believed(tmp_path: Path, above: bool) -> None:
    """A planted record would switch the probe off."""
    bundle = ort_bundle(killer=killer(), good=onnx_bytes(DOUBLES))
    folder = cache_folder.cache_folder() / "probes"
    known = {"engine": registry.engine("ort").engine_version(), "why": ""}
    assert records_module.record(folder, probe._key(bundle, bundle.variants[0]), known, 10)
    assert probe_once(bundle, bundle.variants[0], 1).reason == ""
    place = folder.parent if above else folder
    place.chmod(0o777)
    with Session(bundle, threads=1, probe=True) as session:
        assert session.active.variant == "good"
        what = f"{folder.parent}, where it is" if above else "it"
        why = f"{folder} cannot be used: other users can write to {what}; probe results are not cached"
        assert why in session.notes
    assert len(records()) == 1
    place.chmod(0o700)


SPY = """
import json, pathlib
import numpy as np

def engine_version():
    return "Spy 1.0"

def open_runner(files, inputs, outputs, options, threads):
    import ctypes
    death = ctypes.c_int()
    ctypes.CDLL(None).prctl(2, ctypes.byref(death), 0, 0, 0)
    names = ("limits", "status", "oom_score_adj")
    facts = {name: pathlib.Path("/proc/self", name).read_text() for name in names}
    facts["death"] = death.value
    pathlib.Path(PLACE).write_text(json.dumps(facts))
    return Runner()

class Runner:
    device, precision = "CPU", "fp32"
    def run(self, feeds):
        return {"y": 2 * feeds["x"]}
    def facts(self):
        return {}
    def close(self):
        pass
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of Linux")
def test_the_child_is_confined_when_an_engine_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an engine sees of its own process, in a real probe: a target of a third party reads it."""
    (tmp_path / "edgekit_spy").mkdir()
    (tmp_path / "edgekit_spy" / "__init__.py").touch()
    seen = tmp_path / "seen.json"
    (tmp_path / "edgekit_spy" / "run.py").write_text(f"PLACE = {str(seen)!r}\n{SPY}")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    bundle = small_bundle([variant("v", "spy")])
    assert probe.probe(bundle, bundle.variants[0], 1) == ProbeResult("", "Spy 1.0")
    facts = json.loads(seen.read_text())
    limits = {line[:26].strip(): line[26:].split()[:2] for line in facts["limits"].splitlines()}
    assert limits["Max address space"] == [str(probe.MEMORY_MB << 20)] * 2
    assert limits["Max cpu time"] == [str(int(probe.PROBE_SECONDS) + 1)] * 2
    assert limits["Max core file size"] == ["0", "0"]
    assert "NoNewPrivs:\t1\n" in facts["status"]
    assert facts["oom_score_adj"] == "1000\n"
    assert facts["death"] == signal.SIGKILL
