"""Language models on their runtimes: loaded and run in one way, in a process that has the runtime.

Each of RUNNERS is opened with the folder of an artifact, the name of EdgeKit's engine and the number of
threads. Other tools' packages are imported where they are used: a process has those of one environment.

    python -m tests.benchmarks.text_runners RUNNER PLACE ENGINE PROMPT WRITTEN REPEATS

prints the least CPU milliseconds, on one thread, of reading PROMPT tokens and of each of the WRITTEN after.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np

LLAMA_CPP = "@node-llama-cpp/linux-x64"
CONTEXT = 1024
"""Most tokens of a prompt and what follows it."""


class TextRunner(Protocol):
    """Loaded language model."""

    def logits(self, tokens: Sequence[int]) -> Any:
        """Return the logits after each token of a text, float32 [tokens, vocabulary]."""

    def generate(self, prompt: Sequence[int], count: int, first: Callable[[], None]) -> None:
        """Write the likeliest token ``count`` times; call ``first`` once the first one is known."""


class EdgeKitRunner:
    """A variant of EdgeKit's; ``made.json`` has its files and options."""

    def __init__(self, place: Path, engine: str, threads: int) -> None:
        from edgekit.generate.device.decoder_registry import open_decoder

        made = json.loads((place / "made.json").read_text("utf-8"))
        files = {name: place / name for name in made["files"]}
        self._decoder = open_decoder(engine, files, made["options"], threads, CONTEXT)

    def logits(self, tokens: Sequence[int]) -> Any:
        self._decoder.truncate(0)
        return self._decoder.forward(tokens, rows=len(tokens))

    def generate(self, prompt: Sequence[int], count: int, first: Callable[[], None]) -> None:
        self._decoder.truncate(0)
        row = self._decoder.forward(prompt)
        first()
        for _ in range(count - 1):
            row = self._decoder.forward([int(row[-1].argmax())])


class _Parameters(ctypes.Structure):
    """A struct of llama.h that is passed by value: some first fields, and room for those after them."""

    _fields_ = (("numbers", ctypes.c_int32 * 4), ("flags", ctypes.c_bool * 8), ("rest", ctypes.c_char * 488))


class _Batch(ctypes.Structure):
    """``llama_batch``."""

    _fields_ = (
        ("n_tokens", ctypes.c_int32),
        ("token", ctypes.POINTER(ctypes.c_int32)),
        ("embd", ctypes.c_void_p),
        ("pos", ctypes.POINTER(ctypes.c_int32)),
        ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
        ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
        ("logits", ctypes.POINTER(ctypes.c_int8)),
    )


@cache
def llama_library() -> Any:
    """Load llama.cpp as node-llama-cpp packages it: with the kernels that fit this processor best."""
    from tests.benchmarks.packaged_models import fetch_folder, read_table

    folder = fetch_folder(read_table()[0][LLAMA_CPP]) / "bins" / "linux-x64"
    ggml = ctypes.CDLL(str(next(folder.glob("libggml.*"))), ctypes.RTLD_GLOBAL)
    ggml.ggml_backend_load_all_from_path(str(folder).encode())
    library: Any = ctypes.CDLL(str(next(folder.glob("libllama.*"))))
    quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
    library.quiet = quiet  # kept, as the library keeps a pointer to it
    library.llama_log_set(quiet, None)
    for name in ("llama_model", "llama_context", "llama_model_quantize"):
        getattr(library, f"{name}_default_params").restype = _Parameters
    for name in ("model_load_from_file", "init_from_model", "get_memory", "model_get_vocab"):
        getattr(library, f"llama_{name}").restype = ctypes.c_void_p
    library.llama_get_logits_ith.restype = ctypes.POINTER(ctypes.c_float)
    library.llama_batch_init.restype = _Batch
    return library


class LlamaCppRunner:
    """A ``model.gguf`` on llama.cpp."""

    def __init__(self, place: Path, engine: str, threads: int) -> None:
        self._library = library = llama_library()
        path = str(place / "model.gguf").encode()
        model = ctypes.c_void_p(
            library.llama_model_load_from_file(path, library.llama_model_default_params())
        )
        words = ctypes.c_void_p(library.llama_model_get_vocab(model))
        self._vocabulary = int(library.llama_vocab_n_tokens(words))
        parameters = library.llama_context_default_params()
        parameters.numbers[0] = CONTEXT
        self._context = ctypes.c_void_p(library.llama_init_from_model(model, parameters))
        library.llama_set_n_threads(self._context, threads, threads)
        self._memory = ctypes.c_void_p(library.llama_get_memory(self._context))
        self._batch = library.llama_batch_init(CONTEXT, 0, 1)

    def _decode(self, tokens: Sequence[int], start: int, every: bool = False) -> None:
        batch = self._batch
        batch.n_tokens = len(tokens)
        for index, token in enumerate(tokens):
            batch.token[index], batch.pos[index] = token, start + index
            batch.n_seq_id[index], batch.seq_id[index][0] = 1, 0
            batch.logits[index] = every or index == len(tokens) - 1
        code = self._library.llama_decode(self._context, batch)
        if code:
            raise RuntimeError(f"llama_decode returns {code}")

    def _row(self, index: int) -> Any:
        pointer = self._library.llama_get_logits_ith(self._context, index)
        return np.ctypeslib.as_array(pointer, (self._vocabulary,))

    def logits(self, tokens: Sequence[int]) -> Any:
        self._library.llama_memory_clear(self._memory, True)
        self._decode(tokens, 0, every=True)
        return np.stack([self._row(index) for index in range(len(tokens))])

    def rows(self, prompt: Sequence[int], count: int) -> Iterator[Any]:
        """Yield the logits of ``count`` tokens, each the likeliest; a row lasts until the next one."""
        self._library.llama_memory_clear(self._memory, True)
        self._decode(prompt, 0)
        for index in range(count):
            row = self._row(-1)
            yield row
            if index < count - 1:
                self._decode([int(row.argmax())], len(prompt) + index)

    def generate(self, prompt: Sequence[int], count: int, first: Callable[[], None]) -> None:
        for index, row in enumerate(self.rows(prompt, count)):
            row.argmax()
            if index == 0:
                first()


class OrtGenaiRunner:
    """A folder of onnxruntime-genai."""

    def __init__(self, place: Path, engine: str, threads: int) -> None:
        import onnxruntime_genai as genai

        self._genai = genai
        config = genai.Config(str(place))
        # Threads that spin between operators are off, as in EdgeKit's sessions.
        settings = {"intra_op_num_threads": threads, "session.intra_op.allow_spinning": "0"}
        config.overlay(json.dumps({"model": {"decoder": {"session_options": settings}}}))
        self._model = genai.Model(config)

    def _generator(self) -> Any:
        parameters = self._genai.GeneratorParams(self._model)
        parameters.set_search_options(max_length=CONTEXT, do_sample=False)
        return self._genai.Generator(self._model, parameters)

    def logits(self, tokens: Sequence[int]) -> Any:
        generator, rows = self._generator(), []
        for token in tokens:  # its graph makes the logits of the last token only
            generator.append_tokens(np.array([[token]], np.int32))
            rows.append(np.array(generator.get_logits(), np.float32).reshape(-1))
        return np.stack(rows)

    def generate(self, prompt: Sequence[int], count: int, first: Callable[[], None]) -> None:
        generator = self._generator()
        generator.append_tokens(np.array([prompt], np.int32))
        for index in range(count):
            generator.generate_next_token()
            if index == 0:
                first()


class OpenVinoGenaiRunner:
    """A folder of openvino-genai."""

    def __init__(self, place: Path, engine: str, threads: int) -> None:
        import openvino
        import openvino_genai

        self._openvino, self._genai, self._place, self._threads = openvino, openvino_genai, place, threads
        self._pipeline = openvino_genai.LLMPipeline(str(place), "CPU", INFERENCE_NUM_THREADS=threads)
        self._request: Any = None

    def logits(self, tokens: Sequence[int]) -> Any:
        """Run the network of the pipeline, which itself gives no logits."""
        if self._request is None:
            core = self._openvino.Core()
            settings = {"INFERENCE_NUM_THREADS": self._threads}
            compiled = core.compile_model(str(self._place / "openvino_model.xml"), "CPU", settings)
            self._request = compiled.create_infer_request()
        self._request.reset_state()
        ids = np.array([tokens], np.int64)
        feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "beam_idx": np.zeros(1, np.int32)}
        feeds["position_ids"] = np.arange(len(tokens), dtype=np.int64)[None]
        return np.array(self._request.infer(feeds)["logits"][0])

    def generate(self, prompt: Sequence[int], count: int, first: Callable[[], None]) -> None:
        genai, tensor = self._genai, self._openvino.Tensor
        told: list[int] = []

        class Streamer(genai.StreamerBase):  # type: ignore[misc, name-defined, unused-ignore]
            def write(self, token: Any) -> Any:
                if not told:
                    first()
                told.append(token)
                return genai.StreamingStatus.RUNNING

            def end(self) -> None:
                pass

        ids = np.array([prompt], np.int64)
        settings = genai.GenerationConfig()
        settings.max_new_tokens, settings.ignore_eos, settings.do_sample = count, True, False
        tokens = genai.TokenizedInputs(tensor(ids), tensor(np.ones_like(ids)))
        self._pipeline.generate(tokens, settings, Streamer())


RUNNERS: dict[str, Callable[[Path, str, int], TextRunner]] = {
    "edgekit": EdgeKitRunner,
    "llama.cpp": LlamaCppRunner,
    "onnxruntime-genai": OrtGenaiRunner,
    "openvino-genai": OpenVinoGenaiRunner,
}


def timed(runner: TextRunner, prompt: list[int], written: int) -> dict[str, float]:
    """Have a text written, and return seconds by the clock (``wall_s``) and CPU seconds of the process
    (``cpu_s``): of all of it, of the prompt (``read_``), and of a token that follows (``token_``).
    """
    prompt[0] += 1
    clocks = {"wall_s": time.perf_counter, "cpu_s": time.process_time}
    times: list[dict[str, float]] = []

    def note() -> None:
        times.append({name: clock() for name, clock in clocks.items()})

    note()
    runner.generate(prompt, 1 + written, note)
    note()
    began, read, end = times
    return {
        **{name: end[name] - began[name] for name in clocks},
        **{f"read_{name}": read[name] - began[name] for name in clocks},
        **{f"token_{name}": (end[name] - read[name]) / written for name in clocks},
    }


def main() -> None:
    kind, place, engine, *counts = sys.argv[1:]
    count, written, repeats = map(int, counts)
    runner = RUNNERS[kind](Path(place), engine, 1)
    prompt = list(range(1000, 1000 + count))
    runner.generate(prompt, 4, lambda: None)
    runs = [timed(runner, prompt, written) for _ in range(repeats)]
    print(json.dumps([1000 * min(run[f"{part}_cpu_s"] for run in runs) for part in ("read", "token")]))


if __name__ == "__main__":
    main()
