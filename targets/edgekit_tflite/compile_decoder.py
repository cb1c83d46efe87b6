"""Language models as .tflite: a cache of fixed size that the runner writes into, one token a run, and a
second program that reads PROMPT_TOKENS of a prompt.

The cache is an input; a graph returns its tokens' own keys and values, which the runner writes into the
inputs' memory. So the graph has neither a scatter nor a copy of the cache, and all of it after the embedding
is one partition of XNNPACK:

    scores = [q . past keys + mask, q . own keys + causal] -> softmax -> past values, own values

The program for prompts returns keys and values, no logits. Its weights are the same bytes of the file; the
engine packs them a second time, as LiteRT's Python interface has no way to share them, and it has a cache of
its own. If its weights would exceed PROMPT_LIMIT_BYTES, it is left out, and each token is a run.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import numpy as np
import onnx_ir as ir

from edgekit.compiler.passes import run_passes
from edgekit.errors import UsageError
from edgekit.generate.device.decoder import EXTRA_BYTES, OPTION
from edgekit.generate.host.graphs.language import BlockWeights
from edgekit.generate.host.graphs.language.decoder_writer import EMBEDDING, HEAD, DecoderWriter
from edgekit.generate.host.graphs.language.graph_writer import as_ir
from edgekit.generate.host.readers.language import LanguageModel
from edgekit.generate.host.weights.language.decoder_weights import NearestWeights
from edgekit.generate.host.weights.language.rotated_model import RotatedModel, rotated_model
from edgekit.target import Artifact
from edgekit.target.installed_profiles import find_profile
from edgekit.tensor_spec import Array, Json
from edgekit_tflite.compile import compile_model
from edgekit_tflite.decoder import HIDDEN, PROMPT, WINDOW

PRECISIONS = ("fp32", "fp16", "int8")
EXPERT_PRECISIONS: tuple[str, ...] = ()
TAKES_ADAPTERS = False
PROMPT_TOKENS = 32
"""Of a run that reads a prompt."""
PROMPT_LIMIT_BYTES = 1 << 30
"""The most memory that the weights of the program for prompts may take."""
FORMS = {"fp32": "fp32", "fp16": "fp16", "int8": "int8-dynamic"}


def compile_decoder(
    model: LanguageModel,
    precision: str,
    weights: Mapping[str, BlockWeights],
    context: int,
    adapted: Collection[str] = (),
    equal_rows: bool = False,
) -> Artifact:
    """Compile ``model.tflite``; arguments and errors: see ``DecoderCompiler.compile_decoder``.

    XNNPACK multiplies int8 with one scale for each output, and rounds inputs with one for each token. So
    matrices in blocks are rounded again, from floats, after a rotation that gives such rows equal weight.
    """
    if precision not in PRECISIONS:
        raise UsageError(f"tflite supports {', '.join(PRECISIONS)} for language models, not {precision}")
    if adapted:
        raise UsageError("tflite takes no adapters for language models")
    rotated = rotated_model(model) if weights else RotatedModel(model, frozenset(), None, None)
    whole = NearestWeights(rotated.model, list(weights), 0)
    writer = _TfliteDecoder(rotated, whole, context)
    canonical, others = _canonical(writer), {}
    shapes = model.config.weight_shapes()
    # XNNPACK packs weights as it multiplies them: in fp16, as floats.
    width = 1 if whole else 4
    matrices = (name for name, shape in shapes.items() if len(shape) == 2 and name not in (EMBEDDING, HEAD))
    packed = width * sum(math.prod(shapes[name]) for name in matrices)
    if context > PROMPT_TOKENS and packed <= PROMPT_LIMIT_BYTES:
        others[PROMPT] = _canonical(_TfliteDecoder(rotated, whole, context, PROMPT_TOKENS))
    artifact = compile_model(canonical, find_profile("tflite"), FORMS[precision], others)
    shape = writer.shape(fixed=True)
    options: dict[str, Json] = {**artifact.options, "precision": precision, OPTION: shape.as_json()}
    if others:
        options |= {PROMPT: PROMPT_TOKENS, EXTRA_BYTES: packed + shape.cache_bytes(context)}
    if writer.slides:
        options[WINDOW] = model.config.sliding_window
    return Artifact(artifact.files, options, artifact.facts)


def _canonical(writer: _TfliteDecoder) -> ir.Model:
    model = as_ir(writer.write())
    run_passes(model)
    return model


class _TfliteDecoder(DecoderWriter):
    """Writer of a program.

    ``tokens``: number per run; more than one: for prompts, without logits.
    """

    slides = False

    def __init__(
        self, model: RotatedModel, weights: Mapping[str, BlockWeights], context: int, tokens: int = 1
    ) -> None:
        super().__init__(model.model, weights, context)
        self.turned, self.tokens = model, tokens

    def begin(self) -> str:
        g, c, count = self.graph, self.config, self.tokens
        g.input("token", "int64", [1, count])
        g.input("position", "int64", [count])
        g.input("mask", "float32", [1, 1, 1, self.context])
        self.slides = bool(c.sliding_window) and any(c.sliding_layers)
        if self.slides:
            g.input("sliding_mask", "float32", [1, 1, self._rows(count), self.context])
        return "token"

    def _rows(self, count: int) -> int:
        """Return the mask rows: one per token and head that shares keys; 1 for a run of one token."""
        return 1 if count == 1 else count * (self.config.heads // self.config.kv_heads)

    def embedding(self, tokens: str) -> str:
        if EMBEDDING not in self.weights:
            return super().embedding(tokens)
        g, packed = self.graph, self.weights[EMBEDDING]
        stored = g.constant(_signed(packed), "embedding/stored")
        rows = g.op("Cast", g.op("Gather", stored, tokens, axis=0), to=1)
        scales = g.op("Gather", g.constant(packed.scales, "embedding/scales"), tokens, axis=0)
        return g.op("Mul", rows, scales)

    def last_rows(self, x: str) -> str:
        return x

    def norm(self, x: str, name: str) -> str:
        if name not in self.turned.folded:
            return super().norm(x, name)
        g = self.graph
        square = g.op("ReduceMean", g.op("Mul", x, x), g.ints(-1), keepdims=1)
        return g.op("Div", x, g.op("Sqrt", g.op("Add", square, g.number(self.config.norm_eps))))

    def linear(self, x: str, name: str, out: str = "") -> str:
        g, c, rotated = self.graph, self.config, self.turned
        if name in (EMBEDDING, HEAD) and rotated.before_head is not None:
            x = g.op("MatMul", x, g.constant(rotated.before_head, "before_head"))
        if name.endswith("mlp.down_proj.weight") and rotated.before_down is not None:
            block = len(rotated.before_down)
            blocks = g.op("Reshape", x, g.ints(self.tokens, c.mlp_width // block, block))
            blocks = g.op("MatMul", blocks, g.constant(rotated.before_down, "before_down"))
            x = g.op("Reshape", blocks, g.ints(1, self.tokens, c.mlp_width))
        return super().linear(x, name, out)

    def product(self, x: str, weights: BlockWeights, name: str, out: str = "") -> str:
        g = self.graph
        stored = g.constant(_signed(weights).T, f"{name}/stored")
        scales = g.constant(weights.scales[:, 0], f"{name}/scales")
        return g.op("MatMul", x, g.op("DequantizeLinear", stored, scales, axis=1), out=out)

    def attention(self, layer: int, qkv: list[str]) -> str:
        g, c, count = self.graph, self.config, self.tokens
        slides = bool(c.sliding_window and c.sliding_layers and c.sliding_layers[layer])
        cos, sin = self.rotation(layer, "position")
        q, k, v = (self._heads(x, n) for x, n in zip(qkv, (c.heads, c.kv_heads, c.kv_heads), strict=True))
        # The heads that share keys are rows of one product.
        grouped = g.ints(1, c.kv_heads, c.heads // c.kv_heads * count, c.head_size)
        q = g.op("Mul", self.rotated(q, cos, sin), g.number(c.attention_scale))
        q, k = g.op("Reshape", q, grouped), self.rotated(k, cos, sin)
        for name, new in ((f"key{layer}", k), (f"value{layer}", v)):
            g.input(name, "float32", [1, c.kv_heads, self.context, c.head_size])
            g.op("Identity", new, out=f"{name}/own")
            g.output(f"{name}/own", "float32", [1, c.kv_heads, count, c.head_size])
        past = g.op("MatMul", q, g.op("Transpose", f"key{layer}", perm=[0, 1, 3, 2]))
        if count == 1:
            new = g.op("ReduceSum", g.op("Mul", q, k), g.ints(-1), keepdims=1)
        else:
            new = g.op("MatMul", q, g.op("Transpose", k, perm=[0, 1, 3, 2]))
        if c.attention_softcap:
            past, new = (self.soft_cap(scores, c.attention_softcap) for scores in (past, new))
        past = g.op("Add", past, "sliding_mask" if slides else "mask")
        if count > 1:
            new = g.op("Add", new, g.constant(self._causal(slides), f"causal{'/sliding' if slides else ''}"))
        weights = g.op("Softmax", g.op("Concat", past, new, axis=-1), axis=-1)
        of_past, of_own = g.ops("Split", [weights, g.ints(self.context, count)], 2, axis=-1)
        new_part = g.op("Mul" if count == 1 else "MatMul", of_own, v)
        attended = g.op("Add", g.op("MatMul", of_past, f"value{layer}"), new_part)
        if count > 1:
            attended = g.op("Reshape", attended, g.ints(1, c.heads, count, c.head_size))
            return self.join_heads(attended)
        return g.op("Reshape", attended, g.ints(1, 1, c.heads * c.head_size))

    def _heads(self, x: str, heads: int) -> str:
        if self.tokens > 1:
            return self.split_heads(x, heads)
        return self.graph.op("Reshape", x, self.graph.ints(1, heads, 1, self.config.head_size))

    def _causal(self, slides: bool) -> Array:
        """Return the causal mask among the tokens of a run, which is added to scores: [rows, T]."""
        ahead = np.subtract.outer(np.arange(self.tokens), np.arange(self.tokens))
        visible = (ahead >= 0) & (not slides or ahead < self.config.sliding_window)
        return np.tile(np.where(visible, np.float32(0), HIDDEN), (self._rows(self.tokens) // self.tokens, 1))

    def end(self) -> None:
        if self.tokens == 1:  # a program for prompts has none, and the passes drop what would make them
            self.graph.output("logits", "float32", [1, 1, self.config.vocabulary])


def _signed(weights: BlockWeights) -> Array:
    signed: Array = (weights.stored ^ 0x80).view(np.int8)
    return signed
