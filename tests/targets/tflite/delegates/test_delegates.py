"""A delegate is used only if all of it works: loading, the golden vectors, and the end of its process."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from edgekit_tflite.device import delegates
from edgekit_tflite.run import engine_version

from edgekit.bundle import Bundle
from edgekit.errors import EngineError, UsageError
from edgekit.runtime import Session
from edgekit.runtime.fallback.accelerated import accelerated_copy, with_copies
from edgekit.runtime.fallback.policy import LoadOrder, RankedVariant
from edgekit.runtime.loading import probe
from edgekit.runtime.loading.worker import WorkerRunner
from edgekit.runtime.session_state import SessionOptions
from edgekit.system import cache_folder
from tests.fixtures.delegates import counted_probes, settled

pytestmark = pytest.mark.needs_tflite
Opener = Callable[..., Session]
Library = Callable[..., Path]
OLD = "it was built for TFLite before 2.14: get a newer build"


def verdict(session: Session) -> str:
    """Reason why the CPU runs; "" if the delegate does."""
    with session:
        if session.active.device != "CPU":
            assert session.fallbacks == ()
            return ""
        ((_, _, reason),) = [(hop.from_, hop.to, hop.reason) for hop in session.fallbacks]
        return reason


def test_a_right_delegate_serves_from_its_own_process(
    open_on: Opener, library: Library, tmp_path: Path
) -> None:
    shutil.copy(library(), tmp_path / "libx.so")
    with open_on(path=tmp_path / "libx.so") as session:
        assert session.active.device == "delegate (libx.so, 3 of 7 nodes on the CPU)"
        facts = session.runner.facts()
        assert facts["nodes_by_provider"] == {"libx.so": 4, "CPU": 3}
        assert facts["nodes_on_cpu"][1] == "p (MAX_POOL_2D)"
        assert facts["worker_pid"] != os.getpid()
        assert "libx.so" not in Path("/proc/self/maps").read_text()
        limits = Path(f"/proc/{facts['worker_pid']}/limits").read_text()
        assert re.search(r"Max cpu time +unlimited", limits)
        (feeds, expected), *_ = session.bundle.golden
        np.testing.assert_allclose(session.run(feeds)["y"], expected["y"], atol=1e-4)
        assert session.notes[0].startswith(f"{session.active.variant} is right, but takes ")
    with open_on("limit=1") as session:
        assert session.active.device == "delegate (delegate88.so, 6 of 7 nodes on the CPU)"
    with open_on(variant="tflite-int8") as session:
        assert session.active.device == "delegate (delegate88.so, 5 of 9 nodes on the CPU)"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("mode=small", "output y of a golden vector: SNR 39.8 dB; the limit is 100.0 dB"),
        ("mode=large", "output y of a golden vector: SNR "),
        ("mode=nan", "512 of 512 values of output y are NaN or infinite"),
        (
            "mode=nothing",
            "delegate88.so took 0 of 7 nodes: it may take another precision, the variant is fp32",
        ),
        ("dtype=int8", "delegate88.so took 0 of 7 nodes: it may take another precision, the variant is fp32"),
        ("mode=in_place", f"delegate88.so writes over its inputs: {OLD}"),
        (
            "mode=refuse",
            "delegate88.so did not start: it gave no reason; usual ones: no device, no permission",
        ),
        ("nonsense=1", "delegate88.so did not start: unknown option"),
        (
            "mode=error_prepare",
            "delegate88.so refused model.tflite: the model was compiled for runtime 13, this is 14",
        ),
        (
            "mode=error_invoke",
            f"{engine_version()} with delegate88.so failed to run: the device was unplugged",
        ),
        ("mode=crash_create", "it crashed the probe process (SIGSEGV) in create"),
        ("mode=crash_prepare", f"it crashed the probe process (SIGSEGV) in Prepare; {OLD}"),
        ("mode=crash_invoke", "it crashed the probe process (SIGSEGV) in a run"),
        ("mode=crash_destroy", "it crashed the probe process (SIGSEGV) in destroy"),
        ("mode=crash_exit", "it crashed the probe process (SIGSEGV) in destroy"),
        ("mode=large,after=2,limit=1", "output y of a golden vector: SNR "),
    ],
)
def test_a_bad_delegate_leaves_the_cpu(open_on: Opener, options: str, reason: str) -> None:
    """The last one is right in the first rounds of the golden vectors only."""
    assert verdict(open_on(options)).startswith(reason)


@pytest.mark.parametrize("prefix", ["delegate", "delegate-in-process"])
def test_a_childs_pass_is_not_enough(open_on: Opener, tmp_path: Path, prefix: str) -> None:
    """What serves must have reproduced the golden vectors itself."""
    options = f"mode=second,lock={tmp_path / 'device'}"
    assert verdict(open_on(options, prefix=prefix)).startswith("output y of a golden vector: SNR ")


@pytest.mark.parametrize("options", ["mode=large", "dtype=float32", "mode=small,by=0.5"])
def test_a_bad_delegate_of_int8_leaves_the_cpu(open_on: Opener, options: str) -> None:
    reason = "took 0 of 9" if "float32" in options else "output y of a golden vector"
    assert reason in verdict(open_on(options, variant="tflite-int8"))


@pytest.mark.parametrize(
    ("mode", "place"),
    [("create", "create"), ("prepare", "Prepare"), ("invoke", "a run"), ("destroy", "destroy")],
)
def test_a_hang_ends_the_child_alone(
    open_on: Opener, mode: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "ACCELERATOR_PROBE_SECONDS", 3.0)
    reason = f"it did not load within 3 s in the probe process in {place}"
    assert verdict(open_on(f"mode=hang_{mode}")) == reason


def test_a_worker_that_hangs_while_it_loads_ends_itself(
    bundle: Bundle, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prepare holds Python's lock, so only the kernel's timer can."""
    monkeypatch.setattr(probe, "ACCELERATOR_PROBE_SECONDS", 2.0)
    copy = accelerated_copy(bundle.variants[0], f"delegate:{library()},mode=hang_prepare")
    with pytest.raises(EngineError, match=r"SIGALRM|within 2 s"):
        WorkerRunner(bundle, copy, 1)


def test_a_build_for_an_old_tflite_never_gives_a_wrong_answer(bundle: Bundle, library: Library) -> None:
    """What such a build does depends on the stack, so a delegate imitates it in addition."""
    feeds, expected = bundle.golden[0]
    refused = []
    imitation = f"delegate:{library()},mode=chance"
    for device in [*(f"delegate:{library(size)}" for size in (64, 72, 80)), *[imitation] * 6]:
        try:
            runner = WorkerRunner(bundle, accelerated_copy(bundle.variants[0], device), 1)
        except EngineError as error:
            refused.append(str(error) if device == imitation else OLD)
        else:
            np.testing.assert_allclose(runner.run(feeds)["y"], expected["y"], atol=1e-4)
            runner.close()
    assert len(refused) < 9
    assert all(OLD in reason for reason in refused)


def test_slower_than_the_cpu_is_refused_for_auto(
    bundle: Bundle, library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(library(), tmp_path / "libedgetpu.so.1")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    with settled(Session(bundle, device="auto", threads=1)) as session:
        assert session.active.device == "CPU"
        assert session.preparing["tflite-int8@npu"].startswith("failed: slower here: ")
    with settled(Session(bundle, device="delegate:edgetpu,mode=refuse", threads=1)) as session:
        assert session.fallbacks[0].reason.endswith("an unknown option; its options: device=usb, pci or :N")
    with settled(Session(bundle, device="delegate:edgetpu,mode=crash_create", threads=1)) as session:
        assert "(SIGSEGV) in create; known faults: edgetpu#332" in session.fallbacks[0].reason
    for device in ("npu", "edgetpu", "delegate:edgetpu,limit=9", "delegate:libedgetpu.so.1"):
        with settled(Session(bundle, device=device, threads=1)) as session:
            assert session.active.variant == f"tflite-int8@{device}"
            assert session.active.device == "NPU (libedgetpu.so.1, 5 of 9 nodes on the CPU)"
            assert " is right, but takes " in session.notes[0]


@pytest.mark.parametrize(
    ("device", "variant"),
    [("delegate:edgetpu", "int8"), ("edgetpu", "int8"), ("delegate:/opt/libteflon.so,a=1", "int8"),
     ("delegate:vx", "fp32"), ("delegate:/opt/libx.so", "fp32")],
)  # fmt: skip
def test_a_family_gets_the_best_variant_that_it_takes(bundle: Bundle, device: str, variant: str) -> None:
    ranked = [RankedVariant(each, None) for each in sorted(bundle.variants, key=lambda each: each.name)]
    order = with_copies(LoadOrder(tuple(ranked), {}), SessionOptions(device=device))
    assert order.candidates[0].variant.name == f"tflite-{variant}@{device}"


def test_a_device_that_one_process_holds_moves_from_the_probe_to_the_worker(
    open_on: Opener, tmp_path: Path
) -> None:
    with open_on(f"lock={tmp_path / 'device'}") as session:
        assert session.active.device != "CPU"
        monkeypatched = list((cache_folder.cache_folder() / "probes").glob("*.json"))
        busy = open_on(f"lock={tmp_path / 'device'},limit=99")
        assert verdict(busy) == "delegate88.so did not start: device busy"
        assert list((cache_folder.cache_folder() / "probes").glob("*.json")) == monkeypatched
    assert verdict(open_on(f"lock={tmp_path / 'device'},limit=99")) == ""


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda content: content[:18] + b"\xb7\0" + content[20:], "{} is for aarch64, this is x86-64"),
        (lambda content: content[:9000], "{} is cut short: it has 9000 of at least "),
        (
            lambda content: content.replace(b"plugin_create", b"plugin_destro"),
            "{} is not a TFLite delegate: it has no",
        ),
        (lambda content: b"#!/bin/sh", "{} is not a shared library of Linux"),
    ],
)
def test_a_library_is_checked_before_it_is_loaded(
    library: Library, tmp_path: Path, change: Callable[[bytes], bytes], reason: str
) -> None:
    path = tmp_path / "libx.so"
    path.write_bytes(change(library().read_bytes()))
    found = delegates.find(f"delegate:{path}")
    assert found is not None
    if os.uname().machine != "x86_64" and "aarch64" in reason:
        pytest.skip("made for another processor than x86-64")
    with pytest.raises(EngineError) as raised:
        assert found.identity
    assert str(raised.value).startswith(reason.format(path))


def test_a_missing_library_and_a_bad_option_are_said(bundle: Bundle, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"libnone.so: not in LD_LIBRARY_PATH or the system's"):
        Session(bundle, device="delegate:libnone.so", strict=True)
    with pytest.raises(EngineError, match=r"libvx_delegate.so: not in .*; install: NXP's Linux image"):
        delegates.find("delegate:vx")
    with pytest.raises(
        UsageError, match=r"'usb' is not an option of a delegate; write delegate:FILE,OPTION=VALUE"
    ):
        delegates.find("delegate:/x.so,usb")
    with pytest.raises(UsageError, match=r"device is 'delegates:x'; it must be one of .*delegate:FILE"):
        Session(bundle, device="delegates:x")
    (tmp_path / "libQnnTFLiteDelegate.so").touch()
    qnn = delegates.find(f"delegate:{tmp_path}/libQnnTFLiteDelegate.so,htp_performance_mode=2")
    assert qnn is not None
    assert qnn.options == {"backend_type": "htp", "htp_performance_mode": "2"}
    assert delegates._options(["backends=GpuAcc", "CpuAcc", "a=1"]) == {"backends": "GpuAcc,CpuAcc", "a": "1"}


def test_a_file_of_the_vendors_compiler_is_verified_as_the_variant(
    open_on: Opener, bundle: Bundle, tmp_path: Path
) -> None:
    """No vendor's compiler was available: here it is the same model, or another one."""
    compiled = tmp_path / "model_edgetpu.tflite"
    compiled.write_bytes(bundle.read(bundle.variants[0].files["model.tflite"]))
    assert verdict(open_on(f"compiled={compiled}")) == ""
    compiled.write_bytes(bundle.read(bundle.variants[1].files["model.tflite"]))
    assert verdict(open_on(f"compiled={compiled}")).startswith("output y of a golden vector: SNR ")
    assert "compiled=/none: there is no such file" in verdict(open_on("compiled=/none"))


def test_a_verdict_holds_for_one_library_and_its_options(
    open_on: Opener, library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = counted_probes(monkeypatch)
    path = tmp_path / "libx.so"
    shutil.copy(library(), path)
    for options, count in (("", 1), ("", 1), ("limit=2", 2), ("limit=2", 2)):
        assert verdict(open_on(options, path=path)) == ""
        assert len(started) == count
    path.write_bytes(path.read_bytes() + b"newer")
    assert verdict(open_on(path=path)) == ""
    assert len(started) == 3
    identity = delegates.find(f"delegate:{path}").identity  # type: ignore[union-attr]
    monkeypatch.setattr(delegates, "_driver_version", lambda module: f"{module} 2")
    assert delegates.find(f"delegate:{path}").identity == identity  # type: ignore[union-attr]
    shutil.copy(path, tmp_path / "libedgetpu.so.1")
    assert delegates.find(f"delegate:{tmp_path}/libedgetpu.so.1").identity.endswith("apex 2 gasket 2")  # type: ignore[union-attr]
    assert os.uname().release in identity
