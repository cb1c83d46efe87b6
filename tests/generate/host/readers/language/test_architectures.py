"""Every architecture with random weights: readable, and the float reference's logits against llama.cpp's.

llama.cpp comes as the package xllamacpp, which is not part of the tests' own requirements (100 MB).
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgekit.generate.host.readers.language.gguf_model import ARCHITECTURES, open_gguf_model
from edgekit.generate.host.readers.language.reference_decoder import ReferenceDecoder
from edgekit.tensor_spec import Array
from tests.fixtures.gguf_architectures import OWN_KEYS, write_architecture

TOLERANCE = {"gemma2": 5e-3, "gemma3": 5e-3}
"""llama.cpp looks GELU up in a table of float16; elsewhere only the order of sums differs."""
IN_LLAMA_CPP = """
import json, sys, xllamacpp
parameters = xllamacpp.CommonParams()
parameters.model.path, prompt = sys.argv[1], json.loads(sys.argv[2])
parameters.n_ctx, parameters.n_parallel, parameters.warmup = 128, 1, False
parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
parameters.cache_type_k = parameters.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
parameters.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
server = xllamacpp.Server(parameters)
wish = {"prompt": prompt, "n_predict": 1, "temperature": 0, "n_probs": 1000, "cache_prompt": False}
answer = server.handle_completions(wish)
answer = answer if isinstance(answer, dict) else json.loads(answer)
(step,) = answer["choices"][0]["logprobs"]["content"]
print(json.dumps({str(each["id"]): each["logprob"] for each in step["top_logprobs"]}))
"""


def log_probabilities(path: Path, prompt: list[int]) -> Array:
    """Of each token after the prompt, by the float reference."""
    decoder = ReferenceDecoder(open_gguf_model(path))
    (hidden,) = decoder.hidden([prompt])
    logits = decoder.logits(hidden[-1:])[0].astype(np.float64)
    found: Array = logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())
    return found


def test_all_are_here() -> None:
    assert tuple(sorted(OWN_KEYS)) == ARCHITECTURES


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_weight_is_found(tmp_path: Path, architecture: str) -> None:
    model = open_gguf_model(write_architecture(tmp_path / "tiny.gguf", architecture))
    assert model.config.architecture == architecture
    for name, shape in model.config.weight_shapes().items():
        assert model.weight(name).shape == shape


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_logits_are_those_of_llama_cpp(tmp_path: Path, architecture: str) -> None:
    pytest.importorskip("xllamacpp", reason="xllamacpp is not installed (pip install xllamacpp)")
    path = write_architecture(tmp_path / "tiny.gguf", architecture)
    random = np.random.default_rng(1)
    prompt = [int(token) for token in random.integers(3, 300, 40)]
    ours = log_probabilities(path, prompt)
    while not 36 <= ours.argmax() < 130:  # llama.cpp gives probabilities with text: a printable letter
        prompt = [int(token) for token in random.integers(3, 300, 40)]
        ours = log_probabilities(path, prompt)
    command = [sys.executable, "-c", IN_LLAMA_CPP, str(path), json.dumps(prompt)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    theirs = json.loads(done.stdout.splitlines()[-1])
    assert len(theirs) == len(ours)
    worst = max(abs(ours[int(token)] - value) for token, value in theirs.items())
    assert worst < TOLERANCE.get(architecture, 1e-4), worst
