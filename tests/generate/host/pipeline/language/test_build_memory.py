"""A build holds one matrix of a model on the heap; the rest is on pages of files (scratch_file.py)."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.generate.device.decoder_registry import decoder_compiler
from edgekit.generate.host.readers.language.language_model import LanguageModel
from edgekit.generate.host.readers.language.open_model import open_language_model
from edgekit.generate.host.readers.language.reference_decoder import ReferenceDecoder
from edgekit.generate.host.weights.language.block_rounding import nearest8
from edgekit.generate.host.weights.language.decoder_weights import quantize_decoder
from edgekit.generate.host.weights.language.rotated_model import rotated_model
from edgekit.system.scratch_file import is_on_file
from tests.fixtures.gguf_files import write_tiny
from tests.fixtures.large_gguf import Form, write_large

BUILD = "from edgekit.cli import main; main()"
WIDE = Form(layers=8, width=512, heads=8, kv_heads=2, mlp_width=2048, vocabulary=8192)
"""35 million parameters; the largest matrix is the embedding, 17 MB as float32."""
WEIGHT_BYTES, LARGEST_BYTES = 140_000_000, 4 * 8192 * 512


@pytest.fixture(scope="module")
def wide_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_large(tmp_path_factory.mktemp("wide") / "wide.gguf", WIDE)


def heap_peak(run: Callable[[], object]) -> int:
    """Return the most bytes that numpy and Python had on the heap while ``run`` ran."""
    tracemalloc.start()
    try:
        kept = run()
        assert kept is not None
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("target", "precision"), [("ort", "fp32"), ("openvino", "fp32"), ("tflite", "int8")])
def test_a_compiler_has_a_few_matrices_on_the_heap(wide_file: Path, target: str, precision: str) -> None:
    pytest.importorskip({"ort": "onnxruntime", "tflite": "ai_edge_litert"}.get(target, target))
    model = open_language_model(wide_file)

    def compiled() -> object:
        weights: Any = {} if precision == "fp32" else quantize_decoder(model, precision)
        return decoder_compiler(target).compile_decoder(model, precision, weights, 64)

    decoder_compiler(target)  # imports do not count as part of the peak
    assert heap_peak(compiled) < 3 * LARGEST_BYTES + 10e6 < WEIGHT_BYTES / 2


def test_rounding_copies_few_rows() -> None:
    matrix = np.ones((16_384, 512), np.float32)
    assert heap_peak(lambda: nearest8(matrix, 32)) < 0.75 * matrix.nbytes  # a quarter is the result


def test_turning_channels_copies_few_rows(wide_file: Path) -> None:
    model = rotated_model(open_language_model(wide_file)).model
    assert heap_peak(lambda: model.weight("model.embed_tokens.weight")) < 2.7 * LARGEST_BYTES


def test_the_reference_keeps_its_embedding_in_a_file(wide_file: Path) -> None:
    model = open_language_model(wide_file)
    tracemalloc.start()
    try:
        decoder = ReferenceDecoder(model)
        assert len(decoder.hidden([[1, 2, 3]])) == 1
        assert tracemalloc.get_traced_memory()[0] < LARGEST_BYTES / 2
    finally:
        tracemalloc.stop()


def test_int4_is_kept_in_a_file(tmp_path: Path) -> None:
    model: LanguageModel = open_language_model(write_tiny(tmp_path / "tiny.gguf"))
    tokens = list(np.random.default_rng(0).integers(0, 300, 600))
    for weights in quantize_decoder(model, "int4", tokens).values():
        arrays = (weights.stored, weights.scales, weights.minima)
        assert all(is_on_file(array) for array in arrays if array is not None)


def peak_of(command: list[str], environment: dict[str, str]) -> int:
    """Run a command. Return the most bytes that its processes held at one time, looked at every 10 ms."""
    most = 0
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        most = max(most, sum(map(heap_bytes, family_of(process.pid))))
        time.sleep(0.01)
    assert process.returncode == 0
    return most


def family_of(root: int) -> list[int]:
    """Return a process and all that it, or one of these, started."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, IndexError):
            parents[int(name)] = int(Path("/proc", name, "stat").read_text().rpartition(")")[2].split()[1])
    family = [root]
    for pid in family:
        family += [child for child, parent in parents.items() if parent == pid]
    return family


def heap_bytes(pid: int) -> int:
    """Return the memory of a process that the system can't drop: without pages of files."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        resident, files = Path(f"/proc/{pid}/statm").read_text().split()[1:3]
        return (int(resident) - int(files)) * os.sysconf("SC_PAGE_SIZE")
    return 0


@pytest.mark.needs_ort
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_a_build_has_the_weights_in_memory_once(wide_file: Path, tmp_path: Path) -> None:
    """Child and parent together: the libraries, and the weights in ONNX Runtime, which packs them."""
    bundle = tmp_path / "wide.edgekit"
    options = ["-t", "ort", "--precision", "fp32", "--force", "--context", "256", "-o", str(bundle)]
    environment = {**os.environ, "EDGEKIT_CACHE": str(tmp_path / "cache")}
    peak = peak_of([sys.executable, "-c", BUILD, "build", str(wide_file), *options], environment)
    assert bundle.stat().st_size > WEIGHT_BYTES * 0.9
    assert peak < WEIGHT_BYTES + 220e6
