"""The contract of language models: what loads a decoder on the device, and what compiles one on the host.

A target that runs language models names two modules:

    decoder.py          ENGINE.decoder: open_decoder(files, options, threads, capacity) -> DecoderRunner
    compile_decoder.py  TARGET.decoder: compile_decoder(model, precision, weights, context) -> Artifact

``Artifact.options["decoder"]`` is a ``DecoderShape`` as JSON, so that memory is planned before loading.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from edgekit.errors import UsageError
from edgekit.tensor_spec import Array, Json

if TYPE_CHECKING:
    from edgekit.target.contract import Artifact

OPTION = "decoder"
"""The artifact's option that holds the ``DecoderShape``."""
EXTRA_BYTES = "extra_bytes"
"""The artifact's option: memory that it takes beside its files and its caches; none where it is absent."""
SIZES = {"float32": 4, "float16": 2}
"""Element type of a cache -> bytes."""


class DecoderShape(NamedTuple):
    """Dimensions that determine a decoder's memory and limits.

    Attributes:
        vocabulary: Number of tokens, the length of a row of logits.
        context: Maximum tokens in a cache: positions that the file has rotary angles for.
        cache: Element type of the cache, ``float32`` or ``float16``.
        fixed: Whether the cache always has ``context`` tokens: the file has static shapes.
    """

    layers: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    context: int
    cache: str = "float32"
    fixed: bool = False

    def cache_bytes(self, capacity: int) -> int:
        """Return the memory of one cache of ``capacity`` tokens, in bytes."""
        tokens = self.context if self.fixed else capacity
        return 2 * self.layers * self.kv_heads * self.head_dim * tokens * SIZES[self.cache]

    def as_json(self) -> dict[str, Json]:
        return dict(self._asdict())

    @classmethod
    def from_options(cls, options: Mapping[str, Json]) -> DecoderShape:
        """Read the shape from an artifact's options."""
        return cls(**options[OPTION])


class DecoderRunner(Protocol):
    """A loaded decoder with a KV cache. Not safe for concurrent calls, nor are runners of one ``another()``.

    The cache holds the keys and values of the tokens so far: ``forward`` appends, ``truncate`` drops the last
    ones, and what follows is computed as if those had never been there.
    """

    device: str
    """What it runs on, as the engine names it."""
    precision: str
    """Of the weights, e.g. ``int8``."""
    capacity: int
    """Tokens that the cache can hold."""
    length: int
    """Tokens in the cache."""
    row_consistent: bool
    """May be set at any time. True: the logits of a token do not depend on how many tokens a call of
    ``forward`` has, as far as the engine allows. It costs time, and rounds differently than a call with one
    token does otherwise, if the engine computes one row by another kernel than many. Else it changes nothing.
    False at first."""

    def forward(self, tokens: Sequence[int], rows: int = 1) -> Array:
        """Append tokens to the cache.

        Args:
            tokens: At least one, each from 0 to ``vocabulary`` - 1.
            rows: For how many of the last tokens logits are made, 1 to ``len(tokens)``.

        Returns:
            float32 [rows, vocabulary]: the last row is what follows the last token. The caller owns it.

        Raises:
            UsageError: ``tokens`` do not fit into the cache, are empty or not of the vocabulary; or ``rows``
                is not in its range. The cache is as it was.
            EngineError: the engine failed; the cache is as it was.
        """

    def truncate(self, length: int) -> None:
        """Keep the first ``length`` tokens. Costs little, so it may be called at each step.

        Raises:
            UsageError: ``length`` is below 0 or above that of the cache.
        """

    def save(self) -> Array:
        """Return a copy of the cache: [2 * layers, kv_heads, tokens, head_dim], per layer keys, then values.

        ``saved[:, :, :n]`` is the cache of the first n tokens. Keys have their rotary positions in them.
        """

    def restore(self, saved: Array) -> None:
        """Replace the cache by what ``save`` of a runner of the same artifact gave; ``length`` is its tokens.

        Raises:
            UsageError: it is of another shape or element type, or has more tokens than fit.
        """

    def another(self) -> DecoderRunner:
        """Return a runner with the same weights in memory and a cache of its own, empty, for another text."""

    def facts(self) -> dict[str, Json]:
        """Return facts that only the loaded engine knows."""

    def close(self) -> None:
        """Free the cache, and with the last runner the weights. The runner is not used afterwards."""


@runtime_checkable
class BatchRunner(DecoderRunner, Protocol):
    """A runner that computes a token of several texts in one step, for little more than one of them."""

    def forward_each(self, others: Sequence[Any], tokens: Sequence[int]) -> Array:
        """Append one token to this cache and to each of others, of one ``another()``.

        Args:
            others: Further runners; may be empty.
            tokens: One for this runner and each of the others, in this order.

        Returns:
            float32 [1 + others, vocabulary]. A row does not depend on how many others there are, nor on what
            is in them; ``forward`` of one token may differ from it in its last bits.

        Raises:
            UsageError: as ``forward``; all caches are as they were.
            EngineError: the engine failed; all caches are as they were.
        """


class DecoderCompiler(Protocol):
    """The host side: the module that ``TARGET.decoder`` names."""

    PRECISIONS: tuple[str, ...]
    """What it compiles, e.g. ``("fp32", "fp16", "int8", "int4")``."""
    EXPERT_PRECISIONS: tuple[str, ...]
    """Those of models with experts, of which it computes the picked ones only; () if it does not."""
    TAKES_ADAPTERS: bool
    """Whether it compiles decoders for adapters."""

    def compile_decoder(
        self,
        model: Any,
        precision: str,
        weights: Mapping[str, Any],
        context: int,
        adapted: Collection[str] = (),
        equal_rows: bool = False,
    ) -> Artifact:
        """Compile a language model.

        Args:
            model: An ``edgekit.generate.host.readers.language.LanguageModel``.
            precision: One of ``PRECISIONS``.
            weights: Name -> ``edgekit.generate.host.graphs.language.BlockWeights`` of the weights that are
                stored as integers, from ``edgekit.generate.host.weights.language``; {} for floats.
            context: Tokens that a cache shall hold at most.
            adapted: Names of the weights that adapters change; the runner is then an ``AdapterRunner``.
            equal_rows: Whether a draft will propose tokens: if the target can, the logits of a step with
                several tokens are those of single steps, bit for bit, also if single steps are slower.

        Raises:
            UsageError: an unknown precision, a context beyond the model's positions, or a target that takes
                no adapters.
            ModelError: the model's architecture has no decoder here.
            MissingDependency: a tool that compiles for this target is not installed.
        """


def check_step(tokens: Sequence[int], rows: int, length: int, capacity: int, vocabulary: int) -> None:
    """Check the arguments of ``forward``.

    Raises:
        UsageError: no token, more tokens than the cache has room for, or invalid ``rows`` or tokens.
    """
    if not tokens:
        raise UsageError("a decoder needs at least one token to append")
    if length + len(tokens) > capacity:
        raise UsageError(
            f"{len(tokens)} tokens do not fit into the cache: it has {length} of {capacity}. Use a shorter "
            "text, or open the model with a larger capacity"
        )
    if not 1 <= rows <= len(tokens):
        raise UsageError(
            f"logits of the last {rows} rows were asked for, and {len(tokens)} tokens were given"
        )
    if min(tokens) < 0 or max(tokens) >= vocabulary:
        wrong = next(token for token in tokens if not 0 <= token < vocabulary)
        raise UsageError(f"token {wrong} is not in the vocabulary, which has {vocabulary}")


def check_length(length: int, cached: int) -> None:
    """Check the argument of ``truncate``.

    Raises:
        UsageError: ``length`` is negative, or more than the cache holds.
    """
    if not 0 <= length <= cached:
        raise UsageError(f"the cache can't be cut to {length} tokens: it holds {cached}")


def check_saved(saved: Array, shape: DecoderShape, capacity: int) -> int:
    """Check the argument of ``restore``.

    Returns:
        The number of tokens saved.

    Raises:
        UsageError: another shape or element type, or more tokens than the cache has room for.
    """
    expected = (2 * shape.layers, shape.kv_heads, shape.head_dim)
    actual = (*saved.shape[:2], *saved.shape[3:])
    if saved.ndim != 4 or actual != expected or saved.dtype.name != shape.cache:
        description = f"{shape.cache} [{expected[0]}, {expected[1]}, tokens, {expected[2]}]"
        raise UsageError(
            f"a saved cache is {saved.dtype.name} {list(saved.shape)}, and this decoder's {description}"
        )
    tokens = int(saved.shape[2])
    if tokens > capacity:
        raise UsageError(f"a saved cache has {tokens} tokens, and this one has room for {capacity}")
    return tokens


def check_capacity(capacity: int | None, shape: DecoderShape) -> int:
    """Return the capacity that a runner gets: the file's whole context where none was asked for.

    Raises:
        UsageError: it is below 1 or above the file's context.
    """
    if capacity is None:
        return shape.context
    if not 1 <= capacity <= shape.context:
        raise UsageError(
            f"a cache of {capacity} tokens was asked for; the file has positions for {shape.context}"
        )
    return capacity
