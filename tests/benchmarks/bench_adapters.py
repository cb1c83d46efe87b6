"""Cost of LoRA adapters: CPU time of a decoder without inputs for them, with these, and with an adapter.

    python -m tests.benchmarks.bench_adapters ort:fp32 ort:int8 ort:int4 [--rank 16] [--prompt 512]

The model has the form of SmolLM2-135M and random weights; the adapter changes all seven products of a layer.
Times are CPU milliseconds of one thread, the least of some rounds in turns. Shown as well: the time of a swap,
and of merging the adapter into the weights of one precision on the host, which a swap replaces.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from edgekit.compiler.evaluate.verify import write_files
from edgekit.compiler.model.language import LanguageModel
from edgekit.compiler.quantize.language import quantize_decoder
from edgekit.target.adapter import AdapterRunner, Matrices
from edgekit.target.decoder import DecoderRunner
from edgekit.target.registry import decoder_compiler, open_decoder
from tests.targets.language.reference_decoder import tiny_model

FORM = {
    "layers": 30, "width": 576, "heads": 9, "kv_heads": 3, "head_size": 64, "mlp_width": 1536,
    "vocabulary": 49_152, "context_length": 2048, "rope_theta": 100_000.0,
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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("variants", nargs="+")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=4)
    asked = parser.parse_args()
    model = tiny_model(**FORM)
    matrices = random_matrices(model, asked.rank)
    tokens = np.random.default_rng(3).integers(0, 49_152, asked.prompt).tolist()
    print(f"{'':34}{f'{asked.prompt} tokens read':>18}{'a token written':>18}{'t/s':>8}   (CPU ms)")
    for variant in asked.variants:
        target, _, precision = variant.partition(":")
        integers = not precision.startswith("fp")
        began = time.process_time()
        weights = (
            quantize_decoder(model, precision, tokens if precision == "int4" else ()) if integers else {}
        )
        quantized_ms = 1000 * (time.process_time() - began)
        with tempfile.TemporaryDirectory() as folder:
            runners: dict[str, DecoderRunner] = {}
            for name, adapted in (("no inputs", ()), ("inputs", tuple(matrices))):
                artifact = decoder_compiler(target).compile_decoder(
                    model, precision, weights, CONTEXT, adapted
                )
                (own := Path(folder) / name.replace(" ", "-")).mkdir()
                files = write_files(artifact, own)
                runners[name] = open_decoder(target, files, artifact.options, 1, CONTEXT)
            opened = runners["inputs"]
            assert isinstance(opened, AdapterRunner)
            runners["inputs, no adapter"] = runners.pop("inputs")
            runners[f"inputs, rank {asked.rank}"] = other = opened.another()
            assert isinstance(other, AdapterRunner)
            first_ms = cpu_ms(lambda: other.adapt("one", matrices))
            best: dict[str, tuple[float, float]] = {}
            for _ in range(asked.rounds):
                for name, runner in runners.items():
                    runner.truncate(0)
                    read = cpu_ms(lambda runner=runner: runner.forward(tokens))
                    wrote = cpu_ms(lambda runner=runner: [runner.forward([1]) for _ in range(WRITTEN)])
                    least = best.get(name, (read, wrote))
                    best[name] = (min(read, least[0]), min(wrote, least[1]))

            def swap(runner: AdapterRunner = other) -> None:
                runner.adapt("", {})
                runner.adapt("one", matrices)

            swap_ms = min(cpu_ms(swap) for _ in range(5)) / 2
        for name, (read, wrote) in best.items():
            token = wrote / WRITTEN
            print(f"{variant:10}{name:24}{read:18.1f}{token:18.2f}{1000 / token:8.1f}")
        print(
            f"{variant:10}loaded in {first_ms:.1f} ms, swapped in {swap_ms:.3f} ms; quantizing merged weights"
            f" anew takes {quantized_ms:.0f} ms"
        )


if __name__ == "__main__":
    main()
