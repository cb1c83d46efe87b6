from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import edgekit
from edgekit.compiler.pipeline import faults as room
from edgekit.compiler.pipeline.faults import Fault, Faults
from edgekit.compiler.quantize.search import candidates
from edgekit.diagnostics import Finding
from edgekit.errors import EngineError, MissingDependency, UnsupportedError, install_line
from edgekit.system.progress import Stage
from edgekit.target import Artifact, registry
from edgekit.target.contract import Engine, Runner
from edgekit.target.profile import Profile
from edgekit.tensor_spec import Array, Json, TensorSpec
from tests.fixtures import models
from tests.fixtures.command_line import Call, answer

TWO = ["ort", "tflite"]
BUG = "a bug in EdgeKit or in the engine: RuntimeError: boom"
Step = Callable[[], None]

pytestmark = [pytest.mark.needs_ort, pytest.mark.needs_tflite]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def model(tmp_path: Path, cache: Path) -> Path:
    return models.write(tmp_path, models.SMALL_CNN)


def boom() -> None:
    raise RuntimeError("boom")


def test_memory_that_is_refused_is_no_fault_of_a_variant(cache: Path) -> None:
    def take() -> None:
        raise MemoryError

    with pytest.raises(MemoryError):
        Faults("0" * 64).contain("rpi5", "rpi5-fp32", take)
    assert not cache.exists()


class FaultyRunner:
    """A runner whose nth run meets a fault."""

    def __init__(self, real: Runner, fault: Step, good_runs: int) -> None:
        self.real, self.fault, self.good_runs = real, fault, good_runs
        self.device, self.precision = real.device, real.precision

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        self.good_runs -= 1
        if self.good_runs < 0:
            self.fault()
        return self.real.run(feeds)

    def facts(self) -> dict[str, Json]:
        return self.real.facts()

    def close(self) -> None:
        self.real.close()


class Faulty:
    """The compiler and engine of a target, with a fault in one of their steps."""

    def __init__(self, name: str, where: str, fault: Step, good_runs: int = 0) -> None:
        self.compiler, self.engine = registry.compiler(name), registry.engine(name)
        self.TARGET, self.ENGINE = self.compiler.TARGET, self.engine.ENGINE
        self.where, self.fault, self.good_runs = where, fault, good_runs

    def check_model(self, model: ir.Model, profile: Profile) -> list[Finding]:
        if self.where == "check":
            self.fault()
        return self.compiler.check_model(model, profile)

    def compile_model(self, model: ir.Model, profile: Profile, precision: str) -> Artifact:
        if self.where in ("compile", f"compile {precision}"):
            self.fault()
        return self.compiler.compile_model(model, profile, precision)

    def engine_version(self) -> str:
        return self.engine.engine_version()

    def open_runner(
        self,
        files: Mapping[str, Path],
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        options: Mapping[str, Json],
        threads: int | None,
    ) -> Runner:
        if self.where == "open":
            self.fault()
        real = self.engine.open_runner(files, inputs, outputs, options, threads)
        # One thread: the run that verifies. All of them: those that are timed.
        times_out = self.where == "time" and threads != 1
        return FaultyRunner(real, self.fault, 0) if self.where == "run" or times_out else real


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put faults into targets: ``faulty("check", boom, "ort", "tflite")``."""

    def put(where: str, fault: Step, *names: str) -> None:
        real: tuple[Callable[[str], Any], Callable[[str], Engine]] = (registry.compiler, registry.engine)
        broken = {name: Faulty(name, where, fault) for name in names}
        monkeypatch.setattr(registry, "compiler", lambda name: broken.get(name) or real[0](name))
        monkeypatch.setattr(registry, "engine", lambda name: broken.get(name) or real[1](name))
        monkeypatch.setattr("edgekit.compiler.evaluate.timing.default_threads", lambda: 2)
        monkeypatch.setattr("edgekit.compiler.pipeline.select_variants.default_threads", lambda: 2)

    return put


@pytest.mark.parametrize("where", ["check", "compile", "open", "run", "time"])
def test_a_fault_costs_its_target_alone(
    where: str, model: Path, cache: Path, faulty: Callable[..., None]
) -> None:
    faulty(where, boom, "tflite")
    bundle = edgekit.build(model, targets=TWO)
    ort, tflite = bundle.variants
    assert ort.verified
    assert ort.files
    assert ort.evidence["timing"]["p50_ms"] > 0
    assert (tflite.name, tflite.status, tflite.files) == ("tflite-fp32", f"rejected: {BUG}", {})
    fault = tflite.evidence["fault"]
    assert fault["error"] == "RuntimeError: boom"
    text = (cache / fault["traceback"]).read_text("utf-8")
    assert text.startswith("Traceback (most recent call last):")
    assert "in boom" in text
    assert text.endswith("RuntimeError: boom\n")
    line = f"  bug       tflite-fp32  {BUG}; traceback: {fault['traceback']} in EdgeKit's cache folder"
    assert line in bundle.report.splitlines()


@pytest.mark.parametrize("precision", ["fp32", "int8", "int8-weights"])
def test_a_target_that_cannot_be_imported_costs_itself_alone(
    model: Path, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    real = registry.compiler

    def compiler(name: str) -> Any:
        if name == "tflite":
            boom()
        return real(name)

    monkeypatch.setattr(registry, "compiler", compiler)
    given = [{"image": np.random.default_rng(i).random((1, 3, 16, 16), np.float32)} for i in range(6)]
    bundle = edgekit.build(model, targets=TWO, precision=precision, samples=given)
    lost = next(v for v in bundle.variants if v.target == "tflite" and "fault" in v.evidence)
    assert lost.status == f"rejected: {BUG}"
    assert bundle.variants[0].verified


def test_a_check_says_so_and_goes_on(model: Path, cache: Path, faulty: Callable[..., None]) -> None:
    faulty("check", boom, "tflite")
    (found,) = edgekit.check(model, ["tflite", "ort"])
    (trace,) = cache.rglob("faults/*-tflite-check.txt")
    assert (found.code, found.severity, found.target) == ("EK1099", "error", "tflite")
    assert found.message == f"{BUG}; traceback: {trace}"
    everything = edgekit.check(model)
    # Microcontrollers run what tflite writes.
    assert [f.target for f in everything if f.severity == "error"] == ["tflite", "tflm"]


def test_a_rebuild_with_the_same_fault_gives_the_same_bytes(model: Path, faulty: Callable[..., None]) -> None:
    faulty("compile", boom, "tflite")
    assert edgekit.build(model, targets=TWO).digest == edgekit.build(model, targets=TWO).digest


def test_a_fault_in_one_precision_costs_that_variant(model: Path, faulty: Callable[..., None]) -> None:
    faulty("compile fp16", boom, "tflite")
    bundle = edgekit.build(model, targets=["tflite"], precision="auto")
    assert {v.name: v.verified for v in bundle.variants} == {"tflite-fp32": True, "tflite-fp16": False}
    assert bundle.variants[1].reason == BUG


@pytest.mark.parametrize("precision", ["int8", "auto"])
def test_a_fault_in_the_search_leaves_the_float_variants(
    precision: str, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "emit", lambda *args: boom())
    given = [{"image": np.random.default_rng(i).random((1, 3, 16, 16), np.float32)} for i in range(6)]
    bundle = edgekit.build(model, targets=TWO, precision=precision, samples=given, time_budget=5)
    statuses = {v.name: v.status for v in bundle.variants}
    assert statuses["ort-int8"] == statuses["tflite-int8"] == f"rejected: {BUG}"
    assert all(v.verified for v in bundle.variants if v.precision == "fp32")


def test_int8_of_a_target_whose_float_variant_was_lost(model: Path, faulty: Callable[..., None]) -> None:
    faulty("compile", boom, "tflite")
    given = [{"image": np.random.default_rng(i).random((1, 3, 16, 16), np.float32)} for i in range(6)]
    bundle = edgekit.build(model, targets=TWO, precision="int8", samples=given, time_budget=5)
    statuses = {v.name: v.status for v in bundle.variants}
    assert statuses["tflite-int8"] == "rejected: its float parent, tflite-fp32, failed"


def test_a_weight_only_form_that_meets_a_fault(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgekit.compiler.pipeline.weight_only.with_stored_weights", lambda *args: boom())
    bundle = edgekit.build(model, targets=["ort"], precision="auto")
    (lost,) = (v for v in bundle.variants if v.precision == "int8-weights")
    assert lost.status == f"rejected: {BUG}"
    assert bundle.variants[0].verified


def test_nothing_is_written_if_every_target_meets_a_fault(
    model: Path, cache: Path, faulty: Callable[..., None], call: Call
) -> None:
    faulty("compile", boom, *TWO)
    output = model.with_suffix(".edgekit")
    result = call("build", model, "-t", "ort", "-t", "tflite", "-o", output, "-q")
    assert result.exit_code == 1
    assert not output.exists()
    ort, tflite = sorted(cache.rglob("faults/*.txt"))
    assert result.stderr == (
        "error: model.onnx could not be built for any target\n"
        f"  ort  RuntimeError: boom; traceback: {ort}\n"
        f"  tflite  RuntimeError: boom; traceback: {tflite}\n"
        "  nothing was written; please report this with the traceback\n"
    )


def test_the_command_says_so(model: Path, cache: Path, faulty: Callable[..., None], call: Call) -> None:
    faulty("compile", boom, "tflite")
    words = ["build", model, "-t", "ort", "-t", "tflite", "-o", model.with_suffix(".edgekit")]
    result = call(*words)
    (trace,) = cache.rglob("faults/*.txt")
    assert result.exit_code == 1
    assert f"  bug       tflite-fp32  {trace}: please report it\n" in result.stdout
    assert answer(call(*words, "--json"))["faults"] == [
        {"variant": "tflite-fp32", "error": "RuntimeError: boom", "traceback": str(trace)}
    ]


def test_an_engine_that_refuses_is_no_bug(model: Path, cache: Path, faulty: Callable[..., None]) -> None:
    def refuse() -> None:
        raise EngineError("it ran a minute ago")

    faulty("time", refuse, "tflite")
    bundle = edgekit.build(model, targets=TWO)
    assert [v.status.partition(":")[0] for v in bundle.variants] == [bundle.variants[0].status, "rejected"]
    assert bundle.variants[1].reason == "it ran a minute ago"
    assert "fault" not in bundle.variants[1].evidence
    assert not list(cache.rglob("faults"))


def test_what_the_user_can_mend_passes(model: Path, faulty: Callable[..., None]) -> None:
    def refuse() -> None:
        raise UnsupportedError("tflite can't run the model", [])

    faulty("compile", refuse, "tflite")
    with pytest.raises(UnsupportedError, match=r"^tflite can't run the model$"):
        edgekit.build(model, targets=TWO)


def interrupt() -> None:
    raise KeyboardInterrupt


def full_disk() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(("fault", "kind"), [(interrupt, KeyboardInterrupt), (full_disk, OSError)])
def test_what_is_no_fault_of_a_target_passes(
    model: Path, faulty: Callable[..., None], fault: Step, kind: type[BaseException]
) -> None:
    faulty("compile", fault, "tflite")
    with pytest.raises(kind):
        edgekit.build(model, targets=TWO)


def test_what_the_progress_function_raises_is_no_bug(model: Path, cache: Path) -> None:
    def stop(stage: Stage) -> None:
        if "candidate 2" in stage.detail:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    given = [{"image": np.random.default_rng(i).random((1, 3, 16, 16), np.float32)} for i in range(6)]
    with pytest.raises(BrokenPipeError):
        edgekit.build(model, targets=TWO, precision="int8", samples=given, progress=stop)
    assert not list(cache.rglob("faults"))


def test_a_traceback_that_cannot_be_written(cache: Path) -> None:
    cache.write_text("a file in the folder's place", "utf-8")
    found = Faults("ab" * 32).contain("ort", "ort-fp32", boom)
    assert found == Fault("RuntimeError: boom", "")


def test_the_oldest_tracebacks_go_first(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "FILES_LIMIT", 2)
    faults = Faults("ab" * 32)
    for number in range(4):
        faults.contain("ort", f"v{number}", boom)
    names = [path.name for path in sorted((cache / "faults").glob("*.txt"))]
    assert names == ["abababababab-v2.txt", "abababababab-v3.txt"]
    assert list(faults.by_profile) == ["ort"]


def test_no_path_of_this_machine_in_a_status(model: Path, faulty: Callable[..., None]) -> None:
    """A package that an engine lacks is found out when it opens a file."""

    def missing() -> None:
        raise MissingDependency("flatbuffers", "reading it", extra="tflite")

    faulty("open", missing, "tflite")
    status = edgekit.build(model, targets=TWO).variants[1].status
    assert status.endswith("reading it needs it: pip install 'edgekit-sdk[tflite]'")
    assert install_line("tflite") not in status or install_line("tflite").startswith("pip install 'edgekit")
