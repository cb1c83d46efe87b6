"""Adapters of engines in libedgekit under AddressSanitizer and UBSan, with bundles that do not fit them.

    python -m tests.native.adapters 10000 [--first 0]

Each case has variants of ONNX Runtime, LiteRT and OpenVINO, each with the file of one of several models.
Names, types and shapes of inputs and outputs, files and options of the variants are changed, so that the
adapters meet engines whose results are not what the bundle declares. The files are not damaged: a fault would
be the engine's. A fault ends the program, and its report names the case. test_adapters.py is the short form.
"""

from __future__ import annotations

import argparse
import collections
import copy
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

import edgekit
from edgekit.native import build
from tests.fixtures.bundles import pack
from tests.native.library import ort_library
from tests.native.mutations import SANITIZERS

PROGRAM = Path(__file__).with_name("run_adapters.cpp")
HEAD = '<ir_version: 8, opset_import: ["": 17]>\n'
MODELS = (
    "m (float[1,3,4,4] x) => (float[1,3,4,4] y) { y = Relu(x) }",
    "m (float[1,3,4,4] x) => (float[1,3,1,1] y) { y = GlobalAveragePool(x) }",
    "m (float[48] x) => (float[48] y) { y = Neg(x) }",
    "m (float[1,3,4,4] x, float[1,3,4,4] z) => (float[1,3,4,4] y) { y = Add(x, z) }",
    "m (float[1,3,4,4] x) => (float[1,3,4,4] y, float[1,3,4,4] w) { y = Relu(x) w = Neg(x) }",
    "m (int32[1,3,4,4] x) => (int32[1,3,4,4] y) { y = Add(x, x) }",
)
"""Models whose inputs and outputs differ in number, type, rank and size; mostly the first one is declared."""
HOSTILE: tuple[Any, ...] = (
    None, True, 0, 1, -1, 2, 1 << 31, (1 << 53) - 1, 0.5, "", "x", "y", "constructor", "a" * 300,
    "serving_default", [], [0], [3, 2, 1, 0], [0, 0, 0, 0], [1 << 40], {}, {"name": "x"},
    "float32", "float64", "uint8", "int64",
)  # fmt: skip
SHAPES: tuple[list[int], ...] = (
    [1, 3, 4, 4],
    [48],
    [3, 4, 4],
    [1, 3, 4, 5],
    [],
    [0],
    [1] * 16,
    [1, 3, -1, 4],
    [4, 4, 3, 1],
    [1 << 20],
)
TYPES = ("float32", "float64", "float16", "int8", "uint8", "int16", "int32", "int64", "bool")

NOT_SANITIZED = ("openvino",)
"""OpenVINO's oneTBB loads a library with RTLD_DEEPBIND, which AddressSanitizer refuses."""


def libraries() -> dict[str, str]:
    """Return target -> library of the engines whose wheels are installed and have one."""
    found = {"ort": ort_library()}
    for package, pattern, target in (
        ("ai_edge_litert", "libLiteRt.so", "tflite"),
        ("openvino", "libs/libopenvino_c.so*", "openvino"),
    ):
        try:
            module = __import__(package)
        except ImportError:
            continue
        paths = sorted(Path(str(module.__file__)).parent.glob(pattern))
        found[target] = str(paths[0]) if paths else ""
    return {target: path for target, path in found.items() if path}


def originals(
    folder: Path, targets: Sequence[str]
) -> dict[str, list[tuple[dict[str, Any], dict[str, bytes]]]]:
    """Return target -> variant and files of each model that it can be built for."""
    made: dict[str, list[tuple[dict[str, Any], dict[str, bytes]]]] = {target: [] for target in targets}
    for text in MODELS:
        onnx.save(onnx.parser.parse_model(HEAD + text), folder / "m.onnx")
        bundle = edgekit.build(folder / "m.onnx", targets=targets)
        for variant in bundle.manifest["variants"]:
            if variant["files"]:
                files = {name: bytes(bundle.read(entry)) for name, entry in variant["files"].items()}
                made[variant["target"]].append((variant, files))
    return made


def case_of(number: int, made: Mapping[str, Sequence[tuple[dict[str, Any], dict[str, bytes]]]]) -> bytes:
    """Return the bundle of a case."""
    draw = random.Random(number)
    variants: list[dict[str, Any]] = []
    contents: dict[str, bytes] = {}
    for target, choices in made.items():
        variant, files = copy.deepcopy(draw.choice(choices))
        variant |= {"name": target, "status": "verified", "evidence": {}}
        variant["files"] = {name: f"v/{target}/{name}" for name in files}
        contents |= {f"v/{target}/{name}": content for name, content in files.items()}
        if draw.random() < 0.7:
            variant["options"] = changed(variant["options"], draw)
        if draw.random() < 0.1:
            variant["files"] = {
                draw.choice(["model.onnx", "a", "model.xml"]): next(iter(variant["files"].values()))
            }
        variants.append(variant)
    sides = {
        side: [tensor(draw, name) for name in names[: draw.choice([1, 1, 1, 2])]]
        for side, names in (("inputs", ["x", "z"]), ("outputs", ["y", "w"]))
    }
    manifest = {
        "format": "edgekit-bundle", "version": 1, "edgekit": edgekit.__version__, "tools": {}, "options": {},
        "samples": {}, "card": None, "profiles": {}, "passes": [], "golden": [],
        "source": {"file": "m.onnx", "sha256": "0" * 64, "opset": 17, "nodes": 1},
        "variants": variants, **sides,
    }  # fmt: skip
    return sealed(manifest, contents)


def tensor(draw: random.Random, name: str) -> dict[str, Any]:
    """Return an input or output, which is mostly that of the first model."""
    right = draw.random() < 0.7
    dtype, shape = ("float32", SHAPES[0]) if right else (draw.choice(TYPES), draw.choice(SHAPES))
    return {
        "name": name if draw.random() < 0.95 else draw.choice(["q", "a b", "__proto__"]),
        "dtype": dtype,
        "shape": shape,
    }


def changed(value: Any, draw: random.Random) -> Any:
    """Return options with one value replaced, dropped or doubled."""
    if isinstance(value, dict) and value and draw.random() < 0.85:
        key = draw.choice(sorted(value))
        if draw.random() < 0.1:
            return {name: each for name, each in value.items() if name != key}
        return {**value, key: changed(value[key], draw)}
    if isinstance(value, list) and value and draw.random() < 0.85:
        index = draw.randrange(len(value))
        if draw.random() < 0.2:
            return [*value, *value] if draw.random() < 0.5 else value[:index]
        return [*value[:index], changed(value[index], draw), *value[index + 1 :]]
    return draw.choice(HOSTILE)


def sealed(manifest: dict[str, Any], contents: Mapping[str, bytes]) -> bytes:
    """Return the file of a bundle, whether or not it fits the format."""
    entries, data = [], bytearray()
    for name in sorted(contents):
        data += bytes(-len(data) % 64)
        digest = hashlib.sha256(contents[name]).hexdigest()
        entries.append({"name": name, "offset": len(data), "size": len(contents[name]), "sha256": digest})
        data += contents[name]
    text = json.dumps({**manifest, "entries": entries}, sort_keys=True, separators=(",", ":")).encode()
    return pack(text, bytes(data))


def run_cases(
    program: Path,
    folder: Path,
    cases: range,
    counts: collections.Counter[str],
    engines: Mapping[str, str],
) -> None:
    """Run cases, and count how they end. Raises RuntimeError: the program ended; the text has its report."""
    made = originals(folder, list(engines))
    environment = {**os.environ, "ASAN_OPTIONS": "allocator_may_return_null=1:detect_leaks=0"}
    command = [str(program), *(word for pair in engines.items() for word in pair)]
    with (
        (folder / "log").open("w+") as log,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
        ) as process,
    ):
        assert process.stdin
        assert process.stdout
        for number in cases:
            (folder / "case.edgekit").write_bytes(case_of(number, made))
            try:
                process.stdin.write(f"{folder / 'case.edgekit'}\n")
                process.stdin.flush()
                line = process.stdout.readline()
            except BrokenPipeError:
                line = ""
            if not line:
                process.wait()
                raise RuntimeError(f"case {number} ended the program\n{(folder / 'log').read_text()[-6000:]}")
            counts.update(line.split())
        process.stdin.close()


def main(arguments: list[str] | None = None) -> int:
    """Run cases; print how they ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", type=int)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args(arguments)
    counts: collections.Counter[str] = collections.Counter()
    engines = {target: path for target, path in libraries().items() if target not in NOT_SANITIZED}
    with tempfile.TemporaryDirectory() as name:
        program = build.compile_program(PROGRAM, Path(name) / "run_adapters", flags=SANITIZERS)
        run_cases(program, Path(name), range(given.first, given.first + given.cases), counts, engines)
    print(*(f"{count:8} {end}" for end, count in sorted(counts.items())), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
