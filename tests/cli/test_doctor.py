from __future__ import annotations

import os
import sys

import pytest

from edgekit.cli import doctor
from edgekit.errors import install_line
from edgekit.system import cache_folder, cpu
from edgekit.target import EngineInfo
from tests.fixtures.fake_engines import Engines


def test_an_engine_is_ok_missing_or_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    engines = Engines("a", "b", "c")
    engines["b"].missing = True

    def broken() -> str:
        raise OSError("wrong wheel")

    monkeypatch.setattr(engines["c"], "engine_version", broken)
    monkeypatch.setattr("edgekit.target.registry.engine", engines)
    monkeypatch.setattr("edgekit.target.registry.target_names", lambda: ["a", "b", "c"])
    rows = [engine.as_json() for engine in doctor.engines()]
    assert [(row["status"], row["version"], row["install"]) for row in rows] == [
        ("ok", "A Runtime 1.0", None),
        ("missing", None, "pip install 'edgekit-sdk[b]'"),
        ("broken: OSError: wrong wheel", None, None),
    ]
    assert [row["seconds"] is None for row in rows] == [False, True, True]


def test_features_have_their_common_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "instruction_sets", lambda: ("avx512_bf16", "asimdhp", "bf16"))
    assert doctor.cpu_features() == ["bf16", "fp16"]
    assert set(doctor.FEATURES) == set(cpu.EXTENSIONS)


def test_a_governor_that_wobbles_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    for governor, warned in (("powersave", True), ("performance", False), (None, False)):
        monkeypatch.setattr(doctor, "_read", lambda path, governor=governor: governor)
        assert bool(doctor.doctor([])["warnings"]) is warned


@pytest.mark.skipif(os.name != "posix", reason="needs permission bits")
def test_a_cache_that_others_may_write_to_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_read", lambda path: None)
    folder = cache_folder.cache_folder()
    folder.chmod(0o777)
    assert doctor.doctor([])["warnings"] == [
        f"{folder} cannot be used: other users can write to it; "
        "the cache is not used, and each start unpacks its variant again"
    ]


def test_tools_beside_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    engines = Engines("a", "b", "c")

    def broken() -> list[tuple[str, str | None, str]]:
        raise OSError("wrong wheel")

    monkeypatch.setattr(engines["a"], "ENGINE", EngineInfo(tools=lambda: [("gauge", None, "checks")]))
    monkeypatch.setattr(engines["c"], "ENGINE", EngineInfo(tools=broken))
    monkeypatch.setattr("edgekit.target.registry.engine", engines)
    monkeypatch.setattr("edgekit.target.registry.target_names", lambda: ["a", "b", "c"])
    assert doctor.tools() == [{"target": "a", "tool": "gauge", "found": None, "purpose": "checks"}]


def row(target: str, **changes: object) -> dict[str, object]:
    found = {"target": target, "status": "ok", "version": "A 1.0", "seconds": 0.5, "install": None}
    return {**found, "profiles": {target: "Any", f"{target}-board": "A board"}, **changes}


def test_each_engine_is_told_once_and_what_is_missing_below() -> None:
    lacking = row("b", status="missing", version=None, seconds=None, install="pip install b")
    assert doctor.targets_text([row("a"), lacking]).splitlines() == [
        "  -t       device   engine",
        "  a        Any      A 1.0",
        "  a-board  A board",
        "  b        Any      missing",
        "  b-board  A board",
        "",
        "  to add    b: pip install b",
    ]


def test_the_doctor_says_whether_bundles_can_be_built_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_spec", lambda module: None if module == "onnx" else object())
    assert doctor.packaging() == {
        "status": "missing",
        "missing": ["onnx"],
        "install": install_line("build"),
    }
    lacking = doctor.doctor([doctor.EngineCheck("a", doctor.EngineStatus.MISSING, install="pip install a")])
    line = "  verdict   runs no bundle: it has no engine; cannot build them without onnx: "
    assert doctor.doctor_text(lacking).splitlines()[0] == line + install_line("build")
    monkeypatch.setattr(doctor, "find_spec", lambda module: object())
    engines = [
        doctor.EngineCheck("a", doctor.EngineStatus.OK),
        doctor.EngineCheck("b", doctor.EngineStatus.BROKEN, "OSError: wrong wheel"),
    ]
    line = "  verdict   runs bundles on a; broken: b; builds them too"
    assert doctor.doctor_text(doctor.doctor(engines)).splitlines()[0] == line


@pytest.mark.needs_ort
def test_accelerators_of_this_system_are_listed_with_what_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgekit.target.registry.target_names", lambda: ["coreml", "ort"])
    monkeypatch.setattr(sys, "platform", "linux")
    rows = {row["device"]: row for row in doctor.accelerators()}
    assert {"cuda", "tensorrt", "openvino-npu", "webgpu", "xnnpack"} <= set(rows)
    assert not {"directml", "coreml-gpu"} & set(rows)  # of other systems
    assert rows["xnnpack"]["found"] is False  # no wheel has it
    assert rows["cuda"]["options"] == {"use_tf32": "0"}
    install = "a build of onnxruntime with --use_xnnpack; no wheel has it"
    assert rows["xnnpack"]["install"] == install
    lines = doctor._accelerator_lines([rows["xnnpack"], {**rows["cuda"], "found": True, "name": "CUDA"}])
    assert lines == [
        "  accelerator  target  kind  was run on      on this machine",
        f"  xnnpack      ort     cpu   not run         no ({install})",
        "  cuda         ort     gpu   an NVIDIA H200  CUDA",
        "",
    ]
    assert doctor._accelerator_lines([]) == []


@pytest.mark.needs_tflite
@pytest.mark.parametrize(
    ("engine", "reason"),
    [("LiteRT 2.3.0", "no Vulkan driver: install that of the GPU's vendor"),
     ("tflite-runtime 2.14.0", "tflite-runtime 2.14.0 has no GPU kernels, LiteRT has: pip install")],
)  # fmt: skip
def test_the_true_reason_that_litert_reaches_no_gpu_is_shown(
    monkeypatch: pytest.MonkeyPatch, engine: str, reason: str
) -> None:
    monkeypatch.setattr("edgekit.target.registry.target_names", lambda: ["tflite"])
    monkeypatch.setattr("edgekit_tflite.accelerators.engine_version", lambda: engine)
    monkeypatch.setattr("edgekit_tflite.accelerators.vulkan_drivers", list)
    monkeypatch.setattr(sys, "platform", "linux")
    rows = {row["device"]: row for row in doctor.accelerators()}
    assert rows["teflon"]["install"] == "apt install mesa-teflon-delegate (arm64)"
    row = rows["litert-gpu"]
    assert row["found"] is False
    assert row["install"].startswith(reason)
