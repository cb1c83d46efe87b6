"""Makers of the scoreboard: every tool's artifact of one network for one engine, in a folder of its own.

    NETWORK/ENGINE/ENTRY/   the artifact's files as EdgeKit's runner of the engine takes them, and made.json

Each maker runs in a process of its own, whose time and largest resident set are kept: all that the user of
that tool waits for, imports included. Every other tool has an environment of its own, made here from the
pinned packages of ``requirements/``.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from edgekit.bundle import Bundle
from edgekit.compiler.model.onnx_file import open_model, signature
from tests.benchmarks.packaged_models import read_table
from tests.benchmarks.text_runners import CONTEXT, LLAMA_CPP

ROOT = Path(__file__).resolve().parents[3]
PATHS = os.pathsep.join([str(ROOT), str(ROOT / "targets"), os.environ.get("PYTHONPATH", "")])
REQUIREMENTS = Path(__file__).with_name("requirements")
CHILD = Path(__file__).with_name("maker_child.py")
EDGEKIT = [sys.executable, "-c", "from edgekit.cli import main; main()"]
OURS = "EdgeKit"
QUIET = {"NO_COLOR": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore"}
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
WATCH = """import json, resource, subprocess, sys
try:
    code = subprocess.call(sys.argv[3:], timeout=float(sys.argv[2]))
except subprocess.TimeoutExpired:
    code = "timeout"
used = resource.getrusage(resource.RUSAGE_CHILDREN)
with open(sys.argv[1], "w") as file:
    json.dump([code, used.ru_utime + used.ru_stime, used.ru_maxrss], file)
"""
"""Runs a maker from a small process: what a process that forks holds counts as a peak of the one forked."""
FILES = (
    *("model.onnx", "model.data", "model.xml", "model.bin", "model.tflite"),
    *("model.gguf", "openvino_model.xml", "openvino_model.bin"),
)
TEXT_MODEL = "source.gguf"
"""A language model's file in the folder of its network; of other networks it is ``source.onnx``."""
REASON_LENGTH = 160
ERROR_LINE = re.compile(r"error\b|ERROR\b|[\w.]+(?:Error|Exception)\b")
"""How a maker's line begins that says why it failed; without one it is the last line."""


@dataclass(frozen=True)
class Maker:
    """Way to an artifact of one precision.

    Attributes:
        name: Tool and, where there are several ways, the way.
        precision: ``fp32``, ``int8`` (stored ranges) or ``int8-dynamic`` (ranges of each run); of a language
            model's weights ``int8`` or ``int4``.
        call: Key of CALLS in ``maker_child.py``; "" for EdgeKit's own build.
        environment: Name of a file in ``requirements``; "" for EdgeKit's own environment.
        from_ours: Whether it reads EdgeKit's fp32 artifact instead of the source model, because its tool
            reads no ONNX.
        runner: Key of RUNNERS in ``text_runners.py`` for a language model that EdgeKit's runner can't run.
        runs_in: Name of a file in ``requirements``: the environment that it runs in; "" for EdgeKit's own.
    """

    name: str
    precision: str
    call: str = ""
    environment: str = ""
    from_ours: bool = False
    runner: str = ""
    runs_in: str = ""

    @property
    def entry(self) -> str:
        """Return the name of its folder and in results."""
        return f"{self.name}, {self.precision}"


MAKERS: Mapping[str, Sequence[Maker]] = {
    "ort": (
        Maker(OURS, "fp32"),
        Maker(OURS, "int8"),
        Maker(OURS, "int8-dynamic"),
        Maker("source model", "fp32", "copy", "onnxruntime"),
        Maker("ONNX Runtime's quantizer", "int8", "onnxruntime", "onnxruntime"),
        Maker("ONNX Runtime's quantizer", "int8-dynamic", "onnxruntime-dynamic", "onnxruntime"),
        Maker("NNCF", "int8", "nncf-onnx", "nncf"),
    ),
    "openvino": (
        Maker(OURS, "fp32"),
        Maker(OURS, "int8"),
        Maker(OURS, "int8-dynamic"),
        Maker("source model", "fp32", "openvino", "nncf"),
        Maker("NNCF", "int8", "nncf-openvino", "nncf"),
        Maker("NNCF, mixed preset", "int8", "nncf-openvino-mixed", "nncf"),
    ),
    "tflite": (
        Maker(OURS, "fp32"),
        Maker(OURS, "int8"),
        Maker(OURS, "int8-dynamic"),
        Maker("onnx2tf", "int8", "onnx2tf", "onnx2tf"),
        Maker("ai-edge-quantizer", "int8", "ai-edge-static", "ai-edge-quantizer", True),
        Maker("ai-edge-quantizer", "int8-dynamic", "ai-edge-dynamic", "ai-edge-quantizer", True),
    ),
}
"""Engine -> makers of its artifacts of a network."""
_LLAMA_CPP = tuple(
    Maker(f"llama.cpp {kind}", precision, f"llama.cpp-{kind}", runner="llama.cpp")
    for kind, precision in (("Q8_0", "int8"), ("Q4_1", "int4"), ("Q4_K_M", "int4"), ("Q4_0", "int4"))
)
_GENAI = "onnxruntime-genai"
_OPENVINO_GENAI = "openvino-genai"
TEXT_MAKERS: Mapping[str, Sequence[Maker]] = {
    "ort": (
        *(Maker(OURS, precision) for precision in ("fp32", "int8", "int4")),
        *_LLAMA_CPP,
        *(Maker(_GENAI, p, f"genai-{p}", runner=_GENAI, runs_in=_GENAI) for p in ("int8", "int4")),
    ),
    "openvino": (
        *(Maker(OURS, precision) for precision in ("fp32", "int8", "int4")),
        *_LLAMA_CPP,
        *(
            Maker(
                f"{_OPENVINO_GENAI} {kind}",
                precision,
                f"{_OPENVINO_GENAI}-{kind}",
                _OPENVINO_GENAI,
                runner=_OPENVINO_GENAI,
                runs_in=_OPENVINO_GENAI,
            )
            for kind, precision in (("Q8_0", "int8"), ("Q4_1", "int4"))
        ),
    ),
    "tflite": (*(Maker(OURS, precision) for precision in ("fp32", "int8")), *_LLAMA_CPP),
}
"""The same of a language model. llama.cpp, which is an engine of its own, is compared with each."""


def makers_of(folder: Path, engine: str) -> Sequence[Maker]:
    """Return the makers for a network's folder as ``prepare`` has written it."""
    return (TEXT_MAKERS if is_text(folder) else MAKERS)[engine]


def is_text(folder: Path) -> bool:
    """Return whether a network's folder is that of a language model."""
    return (folder / TEXT_MODEL).is_file()


@dataclass
class Made:
    """Outcome of a maker, stored as ``made.json``.

    Attributes:
        files: Names of the artifact's files.
        options: Options of EdgeKit's runner of the engine.
        wall_s: Seconds of its process by the clock.
        cpu_s: CPU seconds of its process and of those that it waited for, user and system.
        peak_mb: Its largest resident set, in 2**20 bytes.
        failure: Reason why it left no artifact; "" if it left one.
        note: Reason why a build without ``--force`` rejects it; "" for none.
        versions: Versions of its packages.
        date: Day on which it was made.
    """

    files: list[str] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_mb: float = 0.0
    failure: str = ""
    note: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    date: str = ""

    def save(self, folder: Path) -> None:
        (folder / "made.json").write_text(json.dumps(asdict(self), indent=1, default=list), "utf-8")


def load_made(folder: Path) -> Made | None:
    """Load the outcome that a folder holds; None if it holds none."""
    path = folder / "made.json"
    return Made(**json.loads(path.read_text("utf-8"))) if path.is_file() else None


@dataclass(frozen=True)
class Workshop:
    """Settings of all makers.

    Attributes:
        environments: Folder of the other tools' environments.
        interpreters: Python of an environment that is there already, by the environment's name.
        search_s: Time budget of EdgeKit's int8 search, seconds.
        limit_s: Seconds after which a maker is stopped, and its failure recorded.
    """

    environments: Path
    interpreters: Mapping[str, str] = field(default_factory=dict)
    search_s: float = 60.0
    limit_s: float = 240.0

    def python(self, environment: str) -> str:
        """Return the interpreter of an environment, which is made if it is not there yet."""
        if not environment:
            return sys.executable
        if environment in self.interpreters:
            return self.interpreters[environment]
        requirements = REQUIREMENTS / f"{environment}.txt"
        digest = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()[:8]
        place = self.environments / f"{environment}-{digest}"
        python = place / ("Scripts" if os.name == "nt" else "bin") / "python"
        if not (place / "ready").is_file():
            shutil.rmtree(place, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", place], check=True)
            subprocess.run([python, "-m", "pip", "install", "-q", "-r", requirements], check=True)
            (place / "ready").touch()
        return str(python)


def make(maker: Maker, folder: Path, engine: str, workshop: Workshop) -> Made:
    """Make the artifact of a network, or record why it could not be made."""
    place = folder / engine / maker.entry
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    try:
        made = _by_edgekit(maker, folder, engine, workshop) if not maker.call else None
        made = made or _by_tool(maker, folder, engine, workshop)
    except subprocess.CalledProcessError as problem:
        made = Made(failure=f"its environment can't be made: pip ended with {problem.returncode}")
    made.date = time.strftime("%Y-%m-%d", time.gmtime())
    made.save(place)
    return made


def _by_edgekit(maker: Maker, folder: Path, engine: str, workshop: Workshop) -> Made:
    """Run ``edgekit build``, with nothing remembered; rejected variants are kept by ``--force``."""
    place = folder / engine / maker.entry
    bundle = place / "model.edgekit"
    options = [] if maker.precision == "fp32" else ["--force"]
    if is_text(folder):
        options += ["--context", str(CONTEXT)]
    else:
        options += ["--card", "card.toml", *(["--samples", "calibration"] if options else [])]
        options += ["--time-budget", f"{workshop.search_s:g}"] if maker.precision == "int8" else []
    source = TEXT_MODEL if is_text(folder) else "source.onnx"
    command = [
        *EDGEKIT, "build", source, "-t", engine, "--precision", maker.precision, *options,
        "-o", str(bundle), "--json",
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as cache:
        code, made = _run(command, folder, place, {"EDGEKIT_CACHE": cache}, workshop.limit_s)
    if bundle.is_file():  # also with exit status 1, which says that a variant is rejected
        made.failure = ""
        _unpack(bundle, maker.precision, place, made)
        bundle.unlink()
    made.failure = made.failure or ("" if made.files else f"exit status {code}")
    return made


def _unpack(bundle: Path, precision: str, place: Path, made: Made) -> None:
    """Take the variant of a precision out of a bundle; mixed ones have a longer name."""
    with Bundle.open(bundle) as opened:
        variants = [variant for variant in opened.variants if variant.precision.startswith(precision)]
        shipped = next((variant for variant in variants if variant.files), None)
        if shipped is None:
            made.failure = "; ".join(variant.status for variant in variants) or f"no {precision} variant"
            return
        for name, entry in shipped.files.items():
            (place / name).write_bytes(opened.read(entry))
        made.files, made.options = list(shipped.files), dict(shipped.options)
        made.note = shipped.status.partition("shipped by force: ")[2]


def _by_tool(maker: Maker, folder: Path, engine: str, workshop: Workshop) -> Made:
    """Run another tool in its environment; its options are those of EdgeKit's fp32 artifact."""
    place = folder / engine / maker.entry
    parent_place = folder / engine / Maker(OURS, "fp32").entry
    parent = load_made(parent_place)
    options = dict(parent.options) if parent is not None else {}
    if maker.from_ours and (parent is None or parent.failure):
        return Made(failure="EdgeKit made no fp32 artifact for it to read")
    source = folder / (TEXT_MODEL if is_text(folder) else "source.onnx")
    model = parent_place / parent.files[0] if maker.from_ours and parent else source
    python = workshop.python(maker.environment)
    command = [python, str(CHILD), maker.call, str(model), str(folder / "calibration"), str(place)]
    paths = {} if maker.environment else {"PYTHONPATH": PATHS}
    code, made = _run(command, folder, place, paths, workshop.limit_s)
    made.files = [name for name in FILES if (place / name).is_file()]
    if "precision" in options:
        options["precision"] = maker.precision
    names = place / "names.json"
    if names.is_file():
        options |= _bound(folder, json.loads(names.read_text("utf-8")))
    made.options = options
    versions = place / "versions.json"
    made.versions = json.loads(versions.read_text("utf-8")) if versions.is_file() else {}
    made.versions = made.versions if maker.environment else pinned(maker)
    if code or not made.files:
        made.failure, made.files = made.failure or f"exit status {code}", []
    return made


def pinned(maker: Maker) -> dict[str, str]:
    """Return the version of the runtime that an artifact of EdgeKit's own environment is for."""
    if maker.runs_in:
        lines = (REQUIREMENTS / f"{maker.runs_in}.txt").read_text("utf-8").split()
        return dict(line.split("==") for line in lines)
    return {maker.runner: read_table()[0][LLAMA_CPP].spec} if maker.runner == "llama.cpp" else {}


def _bound(folder: Path, names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the runner's options of a foreign ``.tflite``: its values in the order of the source's, each
    transposed where its channels come last."""
    options: dict[str, Any] = {"signature": names["signature"]}
    for side, specs in zip(("inputs", "outputs"), signature(open_model(folder / "source.onnx")), strict=True):
        options[side] = []
        for spec, (name, shape) in zip(specs, names[side], strict=True):
            last = [spec.shape[0], *spec.shape[2:], spec.shape[1]] if len(spec.shape) > 2 else []
            moved = shape == last and tuple(shape) != tuple(spec.shape)
            order = {"order": [0, *range(2, len(shape)), 1]} if moved else {}
            options[side].append({"name": spec.name, "signature_name": name, **order})
    return options


def _run(
    command: Sequence[str], folder: Path, place: Path, variables: Mapping[str, str], limit_s: float
) -> tuple[int, Made]:
    """Run a maker; return its exit status and what it used, with its last line if it failed."""
    watched = [sys.executable, "-I", "-S", "-c", WATCH, str(place / "used.json"), str(limit_s), *command]
    started = time.perf_counter()
    with (place / "log.txt").open("wb") as log:
        environment = {**os.environ, **ONE_THREAD, **QUIET, **variables}
        subprocess.run(watched, cwd=folder, stdout=log, stderr=log, env=environment, check=True)
    wall_s = time.perf_counter() - started
    code, cpu_s, peak_kb = json.loads((place / "used.json").read_text("utf-8"))
    made = Made(wall_s=round(wall_s, 2), cpu_s=round(cpu_s, 2), peak_mb=round(peak_kb / 1024, 1))
    if code == "timeout":
        made.failure = f"stopped after {limit_s:g} s"
    elif code:
        text = (place / "log.txt").read_text("utf-8", "replace").strip().replace(f"{place}{os.sep}", "")
        lines = [line.strip() for line in text.splitlines()]
        errors = [line for line in lines if ERROR_LINE.match(line)] or lines or [f"exit status {code}"]
        made.failure = errors[-1][:REASON_LENGTH]
    return (1 if code == "timeout" else code), made
