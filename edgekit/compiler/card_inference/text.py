"""Recognizes models of texts: the parts of a tokenized text by the inputs' names."""

from __future__ import annotations

import math
from collections.abc import Mapping

from edgekit.compiler.card_inference.facts import Facts
from edgekit.compiler.card_inference.labels import label_line
from edgekit.compiler.card_inference.lines import Line
from edgekit.compiler.card_inference.recognized import Recognized
from edgekit.compiler.card_inference.sizes import Size
from edgekit.compiler.card_inference.sound import NO_PICTURE, Draftable
from edgekit.tensor_spec import TensorSpec

TOKENIZER = "tokenizer.json"
LEAST_TOKENS = 4


def draft_text(facts: Facts, sizes: Mapping[str, Size]) -> Draftable | None:
    """The inputs and the task of a model whose inputs are token ids; None where they are something else."""
    parts = {spec.name: _part(spec) for spec in facts.inputs}
    if (
        "" in parts.values()
        or list(parts.values()).count("ids") != 1
        or len(set(parts.values())) != len(parts)
    ):
        return None
    if len({spec.shape[-1] for spec in facts.inputs}) != 1:
        return None
    task = _task(facts)
    if task is None:
        return None
    inputs = {}
    reads_pairs = task.kind == "rank"
    for spec in facts.inputs:
        part = parts[spec.name]
        size = sizes.get(spec.name)
        lines = [
            Line("kind", "text"),
            Line("shape", spec.shape, *((size.why, size.guessed) if size else ("the model's own", False))),
            Line("part", part, f"by its name, {spec.name!r}"),
        ]
        if part == "ids":
            why = "the file of the model's origin, beside this card"
            lines.append(Line("tokenizer", TOKENIZER, why, True))
            if reads_pairs:
                lines.append(
                    Line("pair", True, "one number for a text is mostly how well it fits another", True)
                )
        if spec.dtype != "int64":
            lines.append(Line("dtype", spec.dtype, "the input's"))
        inputs[spec.name] = lines
    return Draftable(inputs, task, {})


def _part(spec: TensorSpec) -> str:
    """What an input is of a text; "" where it can't be one."""
    fits = len(spec.shape) in (1, 2) and spec.shape[-1] >= LEAST_TOKENS
    if spec.dtype not in ("int64", "int32") or not fits or math.prod(spec.shape) != spec.shape[-1]:
        return ""
    name = spec.name.lower()
    if "mask" in name:
        return "mask"
    return "types" if "type" in name or "segment" in name else "ids"


def _task(facts: Facts) -> Recognized | None:
    """A vector or the tokens' vectors are an embedding, a few numbers classes, one number a relevance."""
    floats = [output for output in facts.outputs if output.dtype.startswith("float")]
    tokens = facts.inputs[0].shape[-1]
    vectors = [o for o in floats if len(o.shape) == 2 and o.shape[0] == 1]
    sequences = [o for o in floats if len(o.shape) == 3 and o.shape[:2] == (1, tokens)]
    pooled = [o for o in vectors if o.shape[1] >= 64]
    if len(vectors) == 1 and vectors[0].shape[1] == 1:
        why = "one number for a text, as rerankers give it"
        return Recognized("rank", "logit", {"score": vectors[0].name}, why, NO_PICTURE, True)
    if len(vectors) == 1 and not pooled:
        probable = "Softmax" in facts.activations(vectors[0].name)
        lines = [line for line in (label_line(facts.metadata, vectors[0].shape[1]),) if line]
        why = f"{vectors[0].shape[1]} numbers for a text"
        decode = "probabilities" if probable else "logits"
        return Recognized("classify", decode, {"scores": vectors[0].name}, why, NO_PICTURE, True, lines)
    if pooled and not sequences:
        why = f"a vector of {pooled[0].shape[1]} numbers for a text"
        return Recognized("embed", "vector", {"embedding": pooled[0].name}, why, NO_PICTURE)
    if sequences:
        why = f"{sequences[0].shape[2]} numbers for each token; sentence embeddings are mostly their mean"
        return Recognized("embed", "mean-pooling", {"tokens": sequences[0].name}, why, NO_PICTURE, True)
    return None
