"""CPU time of a language model's tokens on each engine, beside llama.cpp with the same file, in turns.

    python tests/benchmarks/bench_generate.py MODEL.gguf ort:int4 ort:int8 openvino:int4 tflite:int8 \
        [--peers PYTHON] [--rounds 3]

Times are CPU milliseconds of the process, one thread: on a machine with other work they repeat, where times
by the clock do not. PYTHON has the package xllamacpp; it runs in a process of its own. Each variant reads
PROMPT tokens and writes WRITTEN; shown are the least times of all rounds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from edgekit.evaluate.verify import write_files
from edgekit.model.language import LanguageModel
from edgekit.model.language.gguf_model import open_gguf_model
from edgekit.quantize.language import quantize_decoder
from edgekit.target.registry import decoder_compiler, open_decoder

PROMPT, WRITTEN, CONTEXT = 40, 64, 1024
LLAMA = """
import json, sys, time
import xllamacpp as x
p = x.CommonParams(); p.model.path = sys.argv[1]; p.n_ctx = 1024; p.n_parallel = 1
p.cpuparams.n_threads = p.cpuparams_batch.n_threads = 1; p.warmup = False
s = x.Server(p)
def run(count):
    body = {"prompt": json.loads(sys.argv[2]), "n_predict": count, "temperature": 0, "ignore_eos": True,
            "cache_prompt": False}
    started = time.process_time(); s.handle_completions(body); return 1000 * (time.process_time() - started)
run(4); written = int(sys.argv[3])
rows = []
for _ in range(int(sys.argv[4])):
    one, all = run(1), run(1 + written)
    rows.append((one, (all - one) / written))
print(json.dumps([min(r[0] for r in rows), min(r[1] for r in rows)]))
"""


def measured(
    target: str, precision: str, model: LanguageModel, folder: Path
) -> Callable[[list[int]], tuple[float, float]]:
    """A function that reads a prompt and writes after it, and gives the CPU milliseconds of both."""
    weights = {} if precision.startswith("fp") else quantize_decoder(model, precision)
    artifact = decoder_compiler(target).compile_decoder(model, precision, weights, CONTEXT)
    folder.mkdir()
    decoder = open_decoder(target, write_files(artifact, folder), artifact.options, 1, CONTEXT)

    def run(prompt: list[int]) -> tuple[float, float]:
        decoder.truncate(0)
        started = time.process_time()
        logits = decoder.forward(prompt)
        read = time.process_time()
        for _ in range(WRITTEN):
            logits = decoder.forward([int(logits[0].argmax())])
        return 1000 * (read - started), 1000 * (time.process_time() - read) / WRITTEN

    return run


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("variants", nargs="+")
    parser.add_argument("--peers", default="")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    model = open_gguf_model(asked.model)
    prompt = list(range(1000, 1000 + PROMPT))
    best: dict[str, tuple[float, float]] = {}

    def note(name: str, read: float, token: float) -> None:
        least = best.get(name, (read, token))
        best[name] = (min(read, least[0]), min(token, least[1]))

    with tempfile.TemporaryDirectory() as folder:
        runs = {
            name: measured(*name.split(":"), model, Path(folder) / name.replace(":", "-"))  # type: ignore[call-arg]
            for name in asked.variants
        }
        for _ in range(asked.rounds):
            for name, run in runs.items():
                note(name, *run(prompt))
            if asked.peers:
                command = [asked.peers, "-c", LLAMA, str(asked.model), json.dumps(prompt), str(WRITTEN), "1"]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                note("llama.cpp", *json.loads(done.stdout.splitlines()[-1]))
    print(f"{'':16}{f'{PROMPT} tokens read':>18}{'a token written':>18}   (CPU ms, one thread)")
    for name, (read, token) in best.items():
        print(f"{name:16}{read:18.1f}{token:18.2f}")


if __name__ == "__main__":
    main()
