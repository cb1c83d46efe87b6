"""What bench_peers.py compares: every maker's artifact of one network for one engine, in a folder of its own.

    FOLDER/ENGINE/MAKER/   the artifact's files as EdgeKit's runner of the engine takes them, and made.json

Each maker runs in a process of its own, whose CPU time and largest resident set are kept: all that the user
of that tool would have waited for, imports included. Other tools are in an environment that is made here.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from edgekit.bundle import Bundle
from edgekit.compiler.evaluate.verify import write_files
from edgekit.compiler.model.onnx_file import open_model
from edgekit.compiler.passes import run_passes
from edgekit.target.build_target import resolve
from edgekit.target.installed_profiles import find_profile
from edgekit.target.registry import compiler

ENVIRONMENTS: Mapping[str, Sequence[str]] = {
    "quantizers": ("nncf", "openvino", "onnxruntime", "onnx", "sympy", "ai-edge-quantizer"),
}
"""Environment -> packages, by name: the newest of each."""
CHILD = Path(__file__).with_name("peer_child.py")
EDGEKIT = [sys.executable, "-c", "from edgekit.cli import main; main()"]
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "NO_COLOR": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
WATCH = """import json, resource, subprocess, sys
code = subprocess.call(sys.argv[2:])
used = resource.getrusage(resource.RUSAGE_CHILDREN)
with open(sys.argv[1], "w") as file:
    json.dump([code, used.ru_utime + used.ru_stime, used.ru_maxrss], file)
"""
"""Runs a maker from a small process: what a process that forks holds counts as a peak of the one forked."""
FILES = ("model.onnx", "model.xml", "model.bin", "model.tflite")


@dataclass(frozen=True)
class Peer:
    """Another tool's way to int8 for an engine.

    Attributes:
        name: In the table.
        maker: A key of MAKERS in peer_child.py.
        of_ours: Whether it gets our fp32 artifact instead of the source model.
    """

    name: str
    maker: str
    of_ours: bool = False


PEERS: Mapping[str, Sequence[Peer]] = {
    "ort": (
        Peer("ONNX Runtime's quantizer", "onnxruntime"),
        Peer("ONNX Runtime's quantizer, on our fp32", "onnxruntime", True),
        Peer("NNCF", "nncf-onnx"),
    ),
    "openvino": (
        Peer("NNCF", "nncf-openvino"),
        Peer("NNCF, mixed preset", "nncf-openvino-mixed"),
        Peer("NNCF, on our fp32", "nncf-openvino", True),
    ),
    "tflite": (
        Peer("ai-edge-quantizer, static", "ai-edge-static", True),
        Peer("ai-edge-quantizer, dynamic", "ai-edge-dynamic", True),
    ),
}


@dataclass
class Made:
    """What a maker left: ``made.json``.

    Attributes:
        name: Of the maker, in the table.
        files: Of the artifact.
        options: What EdgeKit's runner needs besides.
        cpu_s: CPU seconds of its process and of those that this waited for, user and system.
        peak_mb: Its largest resident set, in 2**20 bytes.
        failure: Why there is no artifact; "" where there is one.
        note: What else the table says of it.
    """

    name: str
    files: list[str] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    cpu_s: float | None = None
    peak_mb: float | None = None
    failure: str = ""
    note: str = ""

    def save(self, folder: Path) -> None:
        (folder / "made.json").write_text(json.dumps(asdict(self), indent=1, default=list), "utf-8")


def load_made(folder: Path) -> Made:
    return Made(**json.loads((folder / "made.json").read_text("utf-8")))


def environment(folder: Path, name: str) -> Path:
    """The ``bin`` folder of an environment, made where it is not there yet.

    Raises:
        CalledProcessError: pip can't install a package.
    """
    place = folder / name
    if not (place / "ready").is_file():
        shutil.rmtree(place, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        subprocess.run([place / "bin" / "pip", "install", "-q", *ENVIRONMENTS[name]], check=True)
        (place / "ready").touch()
    return place / "bin"


def make_parent(folder: Path, engine: str) -> Made:
    """Our fp32 artifact: what all times are relative to."""
    canonical = open_model(folder / "source.onnx")
    run_passes(canonical)
    artifact = compiler(engine).compile_model(canonical, resolve(find_profile(engine)).profile, "fp32")
    place = _fresh(folder / engine / "fp32")
    write_files(artifact, place)
    made = Made("fp32", list(artifact.files), dict(artifact.options))
    if engine == "tflite":
        from ai_edge_litert.interpreter import Interpreter

        signature = artifact.options["signature"]
        runner = Interpreter(str(place / "model.tflite")).get_signature_runner(signature)
        names = {entry["name"]: entry["signature_name"] for entry in artifact.options["inputs"]}
        details = runner.get_input_details()
        shapes = {source: [int(d) for d in details[own]["shape"]] for source, own in names.items()}
        (place / "names.json").write_text(
            json.dumps({"signature": signature, "inputs": names, "shapes": shapes}), "utf-8"
        )
    made.save(place)
    return made


def make_ours(folder: Path, engine: str, seconds: float) -> Made:
    """``edgekit build --precision int8``, nothing remembered; the note says why it would be rejected."""
    place = _fresh(folder / engine / "ours")
    with tempfile.TemporaryDirectory() as cache:
        bundle = place / "ours.edgekit"
        command = [
            *EDGEKIT, "build", "source.onnx", "-t", engine, "--precision", "int8", "--card", "card.toml",
            "--samples", "calibration", "--time-budget", f"{seconds:g}", "--force",
            "-o", str(bundle), "--json",
        ]  # fmt: skip
        code, made = _run("ours", command, folder, place, {"EDGEKIT_CACHE": cache})
    if bundle.is_file():
        unpack(bundle, place, made)
    made.failure = made.failure or ("" if made.files else f"exit status {code}")
    made.save(place)
    return made


def unpack(bundle: Path, place: Path, made: Made) -> None:
    """Take the int8 variant out of a bundle of ours, mixed ones too."""
    with Bundle.open(bundle) as opened:
        variants = [variant for variant in opened.variants if variant.precision.startswith("int8")]
        shipped = next((variant for variant in variants if variant.files), None)
        if shipped is None:
            made.failure = "; ".join(variant.status for variant in variants)
            return
        for name, entry in shipped.files.items():
            (place / name).write_bytes(opened.read(entry))
        made.files, made.options = list(shipped.files), dict(shipped.options)
        made.note = shipped.status.partition("shipped by force: ")[2]


def make_peer(folder: Path, engine: str, peer: Peer, environments: Path) -> Made:
    """Another tool's artifact."""
    place = _fresh(folder / engine / peer.name)
    parent = load_made(folder / engine / "fp32")
    model = folder / "source.onnx" if not peer.of_ours else folder / engine / "fp32" / parent.files[0]
    python = environment(environments, "quantizers") / "python"
    command = [str(python), str(CHILD), peer.maker, str(model), str(folder / "calibration"), str(place)]
    code, made = _run(peer.name, command, folder, place, {})
    made.files = [name for name in FILES if (place / name).is_file()]
    made.options = {**parent.options, **({"precision": "int8"} if "precision" in parent.options else {})}
    if code or not made.files:
        made.failure, made.files = made.failure or f"exit status {code}", []
    made.save(place)
    return made


def _fresh(place: Path) -> Path:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    return place


def _run(
    name: str, command: Sequence[str], folder: Path, place: Path, variables: Mapping[str, str]
) -> tuple[int, Made]:
    """Run a maker; its exit status, what it used, and, where it failed, the last line that it said."""
    watched = [sys.executable, "-I", "-S", "-c", WATCH, str(place / "used.json"), *command]
    with (place / "log.txt").open("wb") as log:
        subprocess.run(
            watched,
            cwd=folder,
            stdout=log,
            stderr=log,
            env={**os.environ, **ONE_THREAD, **variables},
            check=True,
        )
    code, cpu_s, peak_kb = json.loads((place / "used.json").read_text("utf-8"))
    made = Made(name, cpu_s=cpu_s, peak_mb=peak_kb / 1024)
    if code:
        said = (place / "log.txt").read_text("utf-8", "replace").strip().splitlines()
        made.failure = said[-1][:160] if said else f"exit status {code}"
    return code, made
