"""Cost of LoRA adapters: CPU time of a decoder without inputs for them, with these, and with an adapter.

    python -m tests.benchmarks.bench_adapters ort:int8 ort:int4 openvino:int8 [--rank 16] [--prompt 512]

The model has the form of SmolLM2-135M and random weights; the adapter changes all seven products of a layer.
Times are CPU milliseconds of one thread, the least of some rounds in turns. Shown as well: the first use of
an adapter, a swap of two that were used before, and opening a decoder, which a merged model needs for a swap.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.compiler.evaluate.verify import write_files
from edgekit.compiler.model.language import LanguageModel
from edgekit.compiler.quantize.language import quantize_decoder
from edgekit.target.adapter import AdapterRunner, Matrices
from edgekit.target.decoder import DecoderRunner
from edgekit.target.registry import decoder_compiler, open_decoder
from tests.targets.language.reference_decoder import tiny_model

VOCABULARY = 49_152
FORM: dict[str, Any] = {
    "layers": 30, "width": 576, "heads": 9, "kv_heads": 3, "head_size": 64, "mlp_width": 1536,
    "vocabulary": VOCABULARY, "context_length": 2048, "rope_theta": 100_000.0,
}  # fmt: skip
CONTEXT, WRITTEN = 1024, 32


def random_matrices(model: LanguageModel, rank: int) -> Matrices:
    """An adapter of all products of each layer."""
    random = np.random.default_rng(7)
    matrices = {}
    for name, shape in model.config.weight_shapes().items():
        if name.endswith("_proj.weight"):
            a, b = random.standard_normal((shape[1], rank)), random.standard_normal((rank, shape[0]))
            matrices[name] = ((a / shape[1]).astype(np.float32), b.astype(np.float32))
    return matrices


def cpu_ms(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return 1000 * (time.process_time() - began)


def opened(
    variant: str, model: LanguageModel, tokens: list[int], adapted: tuple[str, ...], folder: Path
) -> tuple[DecoderRunner, float]:
    """Compile and open a decoder; return it with the time of opening it, in ms."""
    target, _, precision = variant.partition(":")
    fitted = tokens if precision == "int4" else ()
    weights = {} if precision.startswith("fp") else quantize_decoder(model, precision, fitted)
    artifact = decoder_compiler(target).compile_decoder(model, precision, weights, CONTEXT, adapted)
    folder.mkdir()
    files, began = write_files(artifact, folder), time.process_time()
    runner = open_decoder(target, files, artifact.options, 1, CONTEXT)
    return runner, 1000 * (time.process_time() - began)


def step_ms(runner: DecoderRunner, tokens: list[int]) -> tuple[float, float]:
    """CPU time of reading a prompt, and of writing WRITTEN tokens, in ms."""
    runner.truncate(0)
    read = cpu_ms(lambda: runner.forward(tokens))
    return read, cpu_ms(lambda: [runner.forward([1]) for _ in range(WRITTEN)])


def measure(variant: str, model: LanguageModel, matrices: Matrices, tokens: list[int], rounds: int) -> None:
    rank = len(next(iter(matrices.values()))[1])
    with tempfile.TemporaryDirectory() as name:
        plain, open_ms = opened(variant, model, tokens, (), Path(name) / "plain")
        none, _ = opened(variant, model, tokens, tuple(matrices), Path(name) / "adapted")
        used = none.another()
        assert isinstance(used, AdapterRunner)
        first_ms = cpu_ms(lambda: used.adapt("one", matrices))
        used.adapt("two", matrices)
        swap_ms = min(cpu_ms(partial(used.adapt, label, matrices)) for label in ("one", "two") * 5)
        runners = {"no inputs": plain, "inputs, no adapter": none, f"inputs, rank {rank}": used}
        best: dict[str, tuple[float, float]] = {}
        for _ in range(rounds):
            for label, runner in runners.items():
                read, wrote = step_ms(runner, tokens)
                least = best.get(label, (read, wrote))
                best[label] = (min(read, least[0]), min(wrote, least[1]))
        for label, (read, wrote) in best.items():
            speed = f"{1000 * len(tokens) / read:12.1f}{1000 * WRITTEN / wrote:12.1f}"
            print(f"{variant:16}{label:22}{read:12.1f}{wrote / WRITTEN:12.2f}{speed}")
        print(f"{variant:16}first use {first_ms:.1f} ms, swap {swap_ms:.2f} ms, opening {open_ms:.0f} ms")
        for runner in runners.values():
            runner.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("variants", nargs="+")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    model = tiny_model(**FORM)
    tokens = np.random.default_rng(3).integers(0, VOCABULARY, asked.prompt).tolist()
    heads = ("prompt, ms", "token, ms", f"pp{asked.prompt} t/s", f"tg{WRITTEN} t/s")
    print(f"{'':38}" + "".join(f"{head:>12}" for head in heads) + "   (CPU time, one thread)")
    for variant in asked.variants:
        measure(variant, model, random_matrices(model, asked.rank), tokens, asked.rounds)


if __name__ == "__main__":
    main()
