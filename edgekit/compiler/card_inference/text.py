"""Recognition of text models: the parts of a tokenized text, by the inputs' names."""

from __future__ import annotations

import math
from collections.abc import Mapping

from edgekit.compiler.card_inference.facts import GraphFacts
from edgekit.compiler.card_inference.hugging_face_files import TOKENIZER
from edgekit.compiler.card_inference.lines import CardLine
from edgekit.compiler.card_inference.recognize import recognize_text
from edgekit.compiler.card_inference.recognized import Draftable
from edgekit.compiler.card_inference.sizes import Size
from edgekit.tensor_spec import TensorSpec

LEAST_TOKENS = 4


def draft_text(facts: GraphFacts, sizes: Mapping[str, Size]) -> Draftable | None:
    """Return the inputs and the task of a model whose inputs are token ids; None for other models."""
    parts = {spec.name: _part(spec) for spec in facts.inputs}
    if (
        "" in parts.values()
        or list(parts.values()).count("ids") != 1
        or len(set(parts.values())) != len(parts)
    ):
        return None
    if len({spec.shape[-1] for spec in facts.inputs}) != 1:
        return None
    task = recognize_text(facts)
    if task is None:
        return None
    inputs = {}
    for spec in facts.inputs:
        part = parts[spec.name]
        size = sizes.get(spec.name)
        lines = [
            CardLine("kind", "text"),
            CardLine(
                "shape", spec.shape, *((size.reason, size.guessed) if size else ("the model's own", False))
            ),
            CardLine("part", part, f"by its name, {spec.name!r}"),
        ]
        if part == "ids":
            files = facts.source.files
            reason = "of the model's folder; copy it beside this card"
            if not files.has_tokenizer:
                reason = "the model's own tokenizer file, beside this card"
            lines.append(CardLine("tokenizer", TOKENIZER, reason, not files.has_tokenizer))
            lines += [
                CardLine(key, value, "tokenizer_config.json") for key, value in files.tokenizer_lines.items()
            ]
            if task.reads_pairs:
                lines.append(
                    CardLine(
                        "pair", True, "one number for a text is usually the relevance of a text pair", True
                    )
                )
        if spec.dtype != "int64":
            lines.append(CardLine("dtype", spec.dtype, "the input's"))
        inputs[spec.name] = lines
    return Draftable(inputs, task, {})


def _part(spec: TensorSpec) -> str:
    """Return the part of a tokenized text that an input holds, or "" where it can't hold one."""
    fits = len(spec.shape) in (1, 2) and spec.shape[-1] >= LEAST_TOKENS
    if spec.dtype not in ("int64", "int32") or not fits or math.prod(spec.shape) != spec.shape[-1]:
        return ""
    name = spec.name.lower()
    if "mask" in name:
        return "mask"
    return "types" if "type" in name or "segment" in name else "ids"
