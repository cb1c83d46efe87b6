"""Writer of a language model's decoder graph; a target overrides parts with its engine's operators.

    embedding -> layers x [norm -> q k v -> rotation -> attention over the cache -> product -> add
                           norm -> activation(gate) * up -> product, or experts -> add]
              -> the last rows -> norm -> logits

A target defines how it keeps the cache (``attention``), and its operators for products and norms. This module
has the parts shared by all engines: order, biases, and features of architectures (norms of q, k and outputs,
scaled embeddings, soft caps, sliding windows).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping

import numpy as np

from edgekit.errors import ModelError
from edgekit.generate.device.decoder import DecoderShape
from edgekit.generate.host.adapters import add_adapter
from edgekit.generate.host.graphs.language.block_weights import BlockWeights, stacked
from edgekit.generate.host.graphs.language.graph_writer import CONTRIB, GraphWriter
from edgekit.generate.host.readers.language.language_model import ROUTER, LanguageModel, expert_prefix
from edgekit.tensor_spec import Array, Json

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


class DecoderWriter(ABC):
    """Writes one decoder.

    Args:
        weights: Name -> integers, of the matrices that are stored so; the others are floats.
        context: Tokens that a cache holds at most.
        adapted: Weights that adapters change (edgekit/generate/device/adapter.py).

    Attributes:
        accuracy_level: Attribute of MatMulNBits that selects the kernel; 0 is the engine's default.
        sites: The artifact's option on the adapted products.
        sign: Factor of the first half of sin in the tables of ``rotation``, as ``rotated`` takes it.
    """

    sign, accuracy_level = -1, 0

    def __init__(
        self,
        model: LanguageModel,
        weights: Mapping[str, BlockWeights],
        context: int,
        half: bool = False,
        adapted: Collection[str] = (),
    ) -> None:
        self.model, self.config, self.weights = model, model.config, weights
        self.context, self.half, self._adapted = context, half, adapted
        self.sites: dict[str, Json] = {}
        self.graph = GraphWriter()
        self._angles: dict[bytes, tuple[str, str]] = {}

    def write(self) -> GraphWriter:
        """Write the whole graph: logits of the last rows, and the caches that ``attention`` keeps."""
        g, config = self.graph, self.config
        x = self.embedding(self.begin())
        if config.embedding_scale != 1.0:
            x = g.op("Mul", x, g.number(config.embedding_scale))
        for layer in range(config.layers):
            x = self._layer(layer, x)
        x = self.norm(self.last_rows(x), "model.norm.weight")
        head = EMBEDDING if config.tied_embedding else HEAD
        capped = config.logit_softcap != 0
        logits = self.linear(x, head, out="" if capped else "logits")
        if capped:
            self.soft_cap(logits, config.logit_softcap, out="logits")
        self.end()
        return g

    def shape(self, cache: str = "float32", *, fixed: bool = False) -> DecoderShape:
        c = self.config
        return DecoderShape(c.layers, c.kv_heads, c.head_size, c.vocabulary, self.context, cache, fixed)

    @abstractmethod
    def begin(self) -> str:
        """Declare the inputs and values shared by all layers. Return the name of the tokens, int64 [1, T]."""

    @abstractmethod
    def attention(self, layer: int, qkv: list[str]) -> str:
        """Write attention over the cache and the new tokens.

        Args:
            qkv: [1, T, heads * head_size] each, before the rotation; heads of k and v are ``kv_heads``.

        Returns:
            [1, T, heads * head_size].
        """

    def last_rows(self, x: str) -> str:
        """Select the rows from the input ``from_row`` on: [1, T, width] -> [1, rows, width]."""
        g = self.graph
        return g.op("Slice", x, "from_row", g.ints(2**62), g.ints(1))

    def rotation(self, layer: int, positions: str) -> tuple[str, str]:
        """Look up cos and sin of each position, [*positions, head_size]; sin's first half is multiplied by
        ``sign``. Equal layers share them."""
        g, frequencies = self.graph, self.config.inverse_frequencies(layer)
        key = frequencies.tobytes()
        if key not in self._angles:
            cos, sin = rotation_tables(frequencies, self.context)
            tables = (np.concatenate([cos, cos], axis=1), np.concatenate([self.sign * sin, sin], axis=1))
            at_cos, at_sin = (g.op("Gather", g.constant(table), positions, axis=0) for table in tables)
            self._angles[key] = (at_cos, at_sin)
        return self._angles[key]

    @abstractmethod
    def end(self) -> None:
        """Declare the outputs."""

    def embedding(self, tokens: str) -> str:
        """Look up the embeddings: [1, T] -> float32 [1, T, width]."""
        g, packed = self.graph, self.weights.get(EMBEDDING)
        if packed is None:
            return g.op("Gather", self.floats(EMBEDDING), tokens, axis=0)
        stored = g.constant(packed.packed(), f"{EMBEDDING}/stored")  # where it is the head too, the head's
        scales = g.constant(packed.scales, f"{EMBEDDING}/scales")
        rows = g.op("Cast", g.op("Gather", stored, tokens, axis=0), to=1)
        zero = g.number(float(1 << (packed.bits - 1)))
        factors = g.op("Unsqueeze", g.op("Gather", scales, tokens, axis=0), g.ints(-1))
        blocks = g.op("Mul", g.op("Sub", rows, zero), factors)
        return g.op("Reshape", blocks, g.ints(0, 0, self.config.width))

    def norm(self, x: str, name: str) -> str:
        """Write RMSNorm: x / sqrt(mean(x^2) + eps) * weight along the last axis."""
        g = self.graph
        square = g.op("ReduceMean", g.op("Mul", x, x), g.ints(-1), keepdims=1)
        root = g.op("Sqrt", g.op("Add", square, g.number(self.config.norm_eps)))
        return g.op("Mul", g.op("Div", x, root), g.constant(self.model.weight(name), name))

    def linear(self, x: str, name: str, out: str = "") -> str:
        """Multiply x by the transposed matrix of that name."""
        packed = self.weights.get(name)
        if packed is not None:
            y = self.product(x, packed, name, out)
        else:
            y = self.graph.op("MatMul", x, self.floats(name, transposed=True), out=out)
        return self._with_adapter(x, y, [name])

    def _with_adapter(self, x: str, product: str, names: list[str]) -> str:
        """Let adapters change a product, if one changes one of its weights."""
        if not set(names) & set(self._adapted):
            return product
        site, shapes = "+".join(names), [self.config.weight_shapes()[name] for name in names]
        inputs, sizes = shapes[0][1], [shape[0] for shape in shapes]
        self.sites[site] = {"inputs": inputs, "outputs": list(map(list, zip(names, sizes, strict=True)))}
        return add_adapter(self.graph, x, product, site, inputs, sum(sizes), f"rank{len(self.sites)}")

    def product(self, x: str, weights: BlockWeights, name: str, out: str = "") -> str:
        """Multiply x by the transposed integers, as MatMulNBits does. Minima are a second product, with the
        sums of x over each block: no engine has a fast kernel for zero points that are floats."""
        g, zeros = self.graph, weights.packed_zeros()
        inputs = [
            x,
            g.constant(weights.packed(), f"{name}/stored"),
            g.constant(weights.scales, f"{name}/scales"),
            *([] if zeros is None else [g.constant(zeros, f"{name}/zeros")]),
        ]
        product = g.op(
            "MatMulNBits", *inputs, out=out if weights.minima is None else "", domain=CONTRIB,
            K=weights.inputs, N=weights.outputs, bits=weights.bits, block_size=weights.block,
            accuracy_level=self.accuracy_level,
        )  # fmt: skip
        if weights.minima is None:
            return product
        blocks = g.op("Reshape", x, g.ints(0, 0, -1, weights.block))
        sums = g.op("ReduceSum", blocks, g.ints(-1), keepdims=0)
        rest = g.op("MatMul", sums, g.constant(weights.minima.T, f"{name}/minima"))
        return g.op("Add", product, rest, out=out)

    def together(self, x: str, names: list[str]) -> list[str]:
        """Compute several products of the same x, as one product if their weights can be stacked."""
        whole = self.whole(x, names)
        if whole is None:
            return [self.linear(x, weight_name) for weight_name in names]
        sizes = [self.config.weight_shapes()[weight_name][0] for weight_name in names]
        return self.graph.ops("Split", [whole, self.graph.ints(*sizes)], len(names), axis=-1)

    def whole(self, x: str, names: list[str]) -> str | None:
        """Compute the products concatenated in one value. Return None if they can't be one product."""
        packed, name = [self.weights.get(weight_name) for weight_name in names], "+".join(names)
        if not any(p is not None for p in packed):
            floats = np.concatenate([self.model.weight(weight_name) for weight_name in names])
            return self._with_adapter(x, self.graph.op("MatMul", x, self._float(floats.T, name)), names)
        stored = stacked([p for p in packed if p is not None]) if all(p is not None for p in packed) else None
        return None if stored is None else self._with_adapter(x, self.product(x, stored, name), names)

    def floats(self, name: str, *, transposed: bool = False) -> str:
        """Return the name of a float matrix, stored as float32 in the graph."""
        array = self.model.weight(name)
        return self._float(array.T if transposed else array, f"{name}/transposed" if transposed else name)

    def _float(self, array: Array, name: str) -> str:
        if not self.half:
            return self.graph.constant(array, name)
        return self.graph.op("Cast", self.graph.constant(array.astype(np.float16), name), to=1)

    def soft_cap(self, x: str, cap: float, out: str = "") -> str:
        g = self.graph
        return g.op("Mul", g.op("Tanh", g.op("Div", x, g.number(cap))), g.number(cap), out=out)

    def split_heads(self, x: str, heads: int) -> str:
        """Split heads: [1, T, heads * head_size] -> [1, heads, T, head_size]."""
        g = self.graph
        whole = g.op("Reshape", x, g.ints(0, 0, heads, self.config.head_size))
        return g.op("Transpose", whole, perm=[0, 2, 1, 3])

    def join_heads(self, x: str) -> str:
        """Join heads: [1, heads, T, head_size] -> [1, T, heads * head_size]."""
        g, c = self.graph, self.config
        return g.op("Reshape", g.op("Transpose", x, perm=[0, 2, 1, 3]), g.ints(0, 0, c.heads * c.head_size))

    def rotated(self, x: str, cos: str, sin: str) -> str:
        """Write the rotation by halves: x * cos + (second half, first half) * sin.

        Args:
            x: [..., T, head_size].
            cos: [T, head_size].
            sin: The same; negative in the first half.
        """
        g, half = self.graph, self.config.head_size // 2
        first, second = g.ops("Split", [x, g.ints(half, half)], 2, axis=-1)
        swapped = g.op("Concat", second, first, axis=-1)
        return g.op("Add", g.op("Mul", x, cos), g.op("Mul", swapped, sin))

    def _layer(self, layer: int, x: str) -> str:
        g, c, prefix = self.graph, self.config, f"model.layers.{layer}."
        qkv = self.queries_keys_values(layer, self.norm(x, f"{prefix}input_layernorm.weight"))
        y = self.linear(self.attention(layer, qkv), f"{prefix}self_attn.o_proj.weight")
        after = f"{prefix}post_attention_layernorm.weight"
        x = g.op("Add", x, self.norm(y, after) if c.output_norms else y)
        before = f"{prefix}pre_feedforward_layernorm.weight" if c.output_norms else after
        y = self.norm(x, before)
        y = self.experts(prefix, y) if c.experts else self._mlp(prefix, y)
        if c.output_norms:
            y = self.norm(y, f"{prefix}post_feedforward_layernorm.weight")
        return g.op("Add", x, y)

    def _mlp(self, prefix: str, x: str) -> str:
        g, names = self.graph, [f"{prefix}mlp.{part}_proj.weight" for part in ("gate", "up", "down")]
        gate, hidden = self.together(x, names[:2])
        return self.linear(g.op("Mul", g.activation(gate, self.config.activation), hidden), names[2])

    def experts(self, prefix: str, x: str) -> str:
        """Write the sum of the experts that each token picks: [1, T, width] -> [1, T, width].

        Raises:
            ModelError: the target has no form in which only these are computed.
        """
        raise ModelError(
            f"{self.model.name}: has experts, and this target would compute all of them for every token; "
            "build it for ort or openvino"
        )

    def routing(self, prefix: str, x: str) -> tuple[str, str, str]:
        """Flatten x to rows [T, width]. Return them, and the router's logits and shares [T, experts]."""
        g = self.graph
        rows = g.op("Reshape", x, g.ints(-1, self.config.width))
        logits = self.linear(rows, prefix + ROUTER)
        return rows, logits, g.op("Softmax", logits, axis=-1)

    def expert_weights(self, prefix: str, part: str) -> tuple[list[str], list[BlockWeights]]:
        """Return the names of a matrix of each expert, and its integers; [] if they are floats."""
        names = [f"{prefix}{expert_prefix(each)}{part}_proj.weight" for each in range(self.config.experts)]
        return names, [self.weights[name] for name in names if name in self.weights]

    def queries_keys_values(self, layer: int, x: str) -> list[str]:
        """Compute q, k and v of a layer, with biases and norms, before the rotation."""
        g, c, prefix = self.graph, self.config, f"model.layers.{layer}.self_attn."
        qkv = self.together(x, [f"{prefix}{letter}_proj.weight" for letter in "qkv"])
        if c.qkv_bias:
            names = [f"{prefix}{letter}_proj.bias" for letter in "qkv"]
            qkv = [
                g.op("Add", value, g.constant(self.model.weight(name), name))
                for value, name in zip(qkv, names, strict=True)
            ]
        if c.qk_norm:
            for index, (letter, heads) in enumerate((("q", c.heads), ("k", c.kv_heads))):
                name = f"{prefix}{letter}_norm.weight"
                if c.whole_qk_norm:
                    qkv[index] = self.norm(qkv[index], name)
                    continue
                apart = g.op("Reshape", qkv[index], g.ints(0, -1, heads, c.head_size))
                qkv[index] = g.op("Reshape", self.norm(apart, name), g.ints(0, -1, heads * c.head_size))
        return qkv


def rotation_tables(frequencies: Array, context: int) -> tuple[Array, Array]:
    """Compute cos and sin of every position, float32 [context, head_size / 2]."""
    angles = np.outer(np.arange(context, dtype=np.float64), frequencies)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
