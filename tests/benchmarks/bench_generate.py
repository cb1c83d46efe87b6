"""CPU time of a language model's tokens on each engine, beside others with the same file, in turns.

    python -m tests.benchmarks.bench_generate MODEL.gguf ort:int4 ort:int8 openvino:int4 tflite:int8 \
        [--peers PYTHON] [--rounds 3] [--prompt 40] [--written 64]

Times are CPU milliseconds of the process, one thread: on a machine with other work they repeat, where times
by the clock do not. Each runs in a process of its own (text_runners.py). llama.cpp, which is fetched, reads
the file. PYTHON has some of the packages openvino-genai, which also reads it, and onnxruntime-genai, which
reads the graph and the weights of each ``ort`` variant. Shown are the least times of all rounds, and the same
as tokens a second: with ``--prompt 512 --written 128`` these are llama-bench's pp512 and tg128, the latter
after the prompt. MODEL.gguf may be ``0.5b`` or ``1.5b``: random weights in the form of Qwen2.5
(tests/fixtures/large_gguf.py).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from edgekit.compiler.evaluate.verify import write_files
from edgekit.generate.device.decoder_registry import decoder_compiler
from edgekit.generate.host.graphs.language import BlockWeights
from edgekit.generate.host.judge.texts import calibration_tokens
from edgekit.generate.host.readers.language import LanguageModel
from edgekit.generate.host.readers.language.gguf_model import open_gguf_model
from edgekit.generate.host.weights.language import quantize_decoder
from tests.benchmarks.genai_folder import write_genai_folder
from tests.benchmarks.text_runners import CONTEXT
from tests.fixtures.large_gguf import FORMS, write_large


@cache
def weights_of(model: LanguageModel, precision: str) -> Mapping[str, BlockWeights]:
    """The integers of a precision, computed once."""
    if precision.startswith("fp"):
        return {}
    return quantize_decoder(model, precision, calibration_tokens(model) if precision == "int4" else ())


def write_variant(target: str, precision: str, model: LanguageModel, folder: Path) -> None:
    """A variant in ``folder``, which is made, with what ``open_decoder`` needs in ``made.json``."""
    weights = weights_of(model, precision)
    artifact = decoder_compiler(target).compile_decoder(model, precision, weights, CONTEXT)
    folder.mkdir()
    files = list(write_files(artifact, folder))
    made = {"target": target, "files": files, "options": artifact.options, "context": CONTEXT}
    (folder / "made.json").write_text(json.dumps(made))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("variants", nargs="+")
    parser.add_argument("--peers", default="")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3, help="of each process")
    parser.add_argument("--prompt", type=int, default=40)
    parser.add_argument("--written", type=int, default=64)
    asked = parser.parse_args()
    root = Path(__file__).resolve().parents[2]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(root), str(root / "targets")])}
    best: dict[str, tuple[float, float]] = {}
    missing: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        form, file = FORMS.get(asked.model), Path(asked.model)
        file = write_large(Path(folder) / "large.gguf", form) if form else file
        model = open_gguf_model(file)
        runs: dict[str, tuple[str, str, Path, str]] = {}
        for name in asked.variants:
            target, _, precision = name.partition(":")
            own = Path(folder) / name.replace(":", "-")
            write_variant(target, precision, model, own)
            runs[name] = (sys.executable, "edgekit", own, target)
        if asked.peers:
            own = Path(folder) / "file"
            own.mkdir()
            (own / "model.gguf").symlink_to(file.resolve())
            runs["llama.cpp"] = (sys.executable, "llama.cpp", own, "")
            runs["openvino-genai"] = (asked.peers, "openvino-genai", own / "model.gguf", "")
        for name in asked.variants if asked.peers else ():
            target, _, precision = name.partition(":")
            if target == "ort" and precision != "fp16":
                own = Path(folder) / f"genai-{precision}"
                write_genai_folder(model, weights_of(model, precision), CONTEXT, own)
                runs[f"genai:{precision}"] = (asked.peers, "onnxruntime-genai", own, target)
        for _ in range(asked.rounds):
            for name, (python, runner, path, target) in list(runs.items()):
                figures = [str(asked.prompt), str(asked.written), str(asked.repeats)]
                command = [python, "-m", "tests.benchmarks.text_runners", runner, str(path), target, *figures]
                done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
                if done.returncode:
                    missing.append(f"{name}: {(done.stderr.strip() or 'it crashed').splitlines()[-1]}")
                    del runs[name]
                    continue
                read, token = json.loads(done.stdout.splitlines()[-1])
                least = best.get(name, (read, token))
                best[name] = (min(read, least[0]), min(token, least[1]))
    heads = (
        f"{asked.prompt} tokens read",
        "a token written",
        f"pp{asked.prompt} t/s",
        f"tg{asked.written} t/s",
    )
    print(f"{'':16}" + "".join(f"{head:>18}" for head in heads) + "   (CPU ms, one thread)")
    for name, (read, token) in best.items():
        print(f"{name:16}{read:18.1f}{token:18.2f}{1000 * asked.prompt / read:18.1f}{1000 / token:18.1f}")
    print("\n".join(missing))


if __name__ == "__main__":
    main()
