"""LoRA adapters of a language model: read from a folder of PEFT or a GGUF file of llama.cpp, added to the
graph and to the reference, judged, and stored once in the bundle. Their device side is device/adapter.py.

Names and scales are those of PEFT's ``LoraConfig`` and ``save_pretrained``, and of llama.cpp's
``convert_lora_to_gguf.py`` and ``llama-adapter.cpp``.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from edgekit.compiler.model.hugging_face_folder import read_json
from edgekit.compiler.model.model_bytes import file_digest
from edgekit.errors import ModelError, UsageError
from edgekit.generate.device.adapter import ADAPTERS_LIMIT, KEY, RANK_LIMIT, Matrices, is_adapter_name
from edgekit.generate.host.judge.evaluation import TextReference, reference_of
from edgekit.generate.host.readers.folder_fields import real
from edgekit.generate.host.readers.language.gguf_blocks import read_values
from edgekit.generate.host.readers.language.gguf_file import GgufFile, GgufTensor, open_gguf
from edgekit.generate.host.readers.language.gguf_model import adapter_tensor, half_rotation
from edgekit.generate.host.readers.language.language_model import LanguageModel
from edgekit.generate.host.readers.language.reference_decoder import ReferenceDecoder
from edgekit.generate.host.readers.language.safetensors_file import SafetensorsTensor, open_safetensors
from edgekit.system.formats.npy import npy_bytes
from edgekit.tensor_spec import Array, Content, Json

if TYPE_CHECKING:
    from edgekit.generate.host.graphs.language.graph_writer import GraphWriter

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."
PLAIN: Mapping[str, object] = {
    "use_dora": False, "bias": "none", "modules_to_save": None, "fan_in_fan_out": False, "lora_bias": False,
    "alpha_pattern": {}, "alora_invocation_tokens": None, "trainable_token_indices": None,
    "use_qalora": False,
}  # fmt: skip
"""Settings of PEFT's that change what an adapter computes -> their value in plain LoRA."""
CHANGING = ("pissa", "olora", "corda", "loftq")
"""Values of PEFT's ``init_lora_weights`` with which the model itself is changed."""
ALPHA_LIMITS = (-1e6, 1e6)
Pairs = dict[str, tuple[Array, Array]]


class JudgedAdapter(NamedTuple):
    """An adapter, and the results of the float reference with the adapter merged into its weights."""

    adapter: Adapter
    reference: TextReference


def open_adapters(paths: Mapping[str, str | Path], model: LanguageModel) -> dict[str, Adapter]:
    """Open the adapters of a model.

    Raises:
        UsageError: a name is not valid, there are too many, or a path is not an adapter.
        ModelError: one is damaged, not plain LoRA, or of another model.
    """
    if len(paths) > ADAPTERS_LIMIT:
        raise UsageError(
            f"--adapter: {len(paths)} adapters were given; at most {ADAPTERS_LIMIT} fit a bundle"
        )
    for name in paths:
        if not is_adapter_name(name):
            raise UsageError(
                f"--adapter: {name[:80]!r} is not a name; use a letter and up to 63 letters, digits, - and _"
            )
    return {name: open_adapter(Path(path), model) for name, path in paths.items()}


def judged_adapters(
    adapters: Mapping[str, Adapter], model: LanguageModel, context: int
) -> dict[str, JudgedAdapter]:
    """Run the float reference with each adapter; errors as ``reference_of``."""
    judged = {}
    for name, adapter in adapters.items():
        whole = merged(model, adapter)
        judged[name] = JudgedAdapter(adapter, reference_of(whole, ReferenceDecoder(whole), context))
    return judged


def adapted_weights(model: LanguageModel, adapters: Mapping[str, JudgedAdapter]) -> list[str]:
    """Return the weights that at least one adapter changes, in the order of the model."""
    names = {name for judged in adapters.values() for name in judged.adapter.matrices}
    return [name for name in model.weight_names if name in names]


def adapter_contents(
    adapters: Mapping[str, JudgedAdapter],
) -> tuple[dict[str, Json], dict[str, Content]]:
    """Return the manifest's extension, in the form that ``device/adapter.py`` reads, and the entries."""
    extension: dict[str, Json] = {}
    entries: dict[str, Content] = {}
    for name, (adapter, reference) in adapters.items():
        matrices = sorted(adapter.matrices.items())
        values = np.concatenate([matrix.ravel() for _, pair in matrices for matrix in pair])
        with np.errstate(over="ignore"):
            half = values.astype(np.float16)
        stored = half if np.array_equal(half.astype(np.float32), values) else values
        weights, logits = f"adapters/{name}.npy", f"golden/adapter-{name}.npy"
        entries |= {weights: npy_bytes(stored), logits: npy_bytes(reference.logits)}
        extension[name] = {
            "sha256": adapter.sha256,
            "weights": weights,
            "dtype": stored.dtype.name,
            "matrices": {key: [len(b), len(a), b.shape[1]] for key, (a, b) in matrices},
            "logits": logits,
        }
    return ({KEY: extension} if extension else {}), entries


@dataclass(frozen=True, eq=False)
class Adapter:
    """Adapter of a model.

    Attributes:
        matrices: Name of a weight -> A [inputs, rank], B [rank, outputs], float32; the scale is in B.
    """

    matrices: Matrices
    sha256: str


def open_adapter(path: Path, model: LanguageModel) -> Adapter:
    """Open an adapter of a model.

    Raises:
        UsageError: it is neither a PEFT folder nor a GGUF file.
        ModelError: it is damaged, of another kind than plain LoRA, or of another model.
    """
    if (path / CONFIG).is_file():
        pairs, files = _peft(path, model), [path / CONFIG, path / WEIGHTS]
    elif path.suffix.lower() == ".gguf" and path.is_file():
        pairs, files = _gguf(path, model), [path]
    else:
        raise UsageError(
            f"--adapter: {path} is not an adapter; pass a folder of PEFT with {CONFIG} and {WEIGHTS}, or a "
            "GGUF file of llama.cpp's convert_lora_to_gguf.py"
        )
    if not pairs:
        raise ModelError(f"{path}: has no LoRA matrices; save the adapter again")
    for name, (a, b) in pairs.items():
        if not (np.isfinite(a).all() and np.isfinite(b).all()):
            raise ModelError(f"{path}: its matrices for {name} have values that are not finite")
    digest = hashlib.sha256("".join(map(file_digest, files)).encode()).hexdigest()
    return Adapter({name: (a.T, b.T) for name, (a, b) in pairs.items()}, digest)


def merged(model: LanguageModel, adapter: Adapter) -> LanguageModel:
    """Return the model with an adapter added to its weights, as floats."""

    def read(name: str) -> Array:
        values = model.read(name)
        if name not in adapter.matrices:
            return values
        a, b = adapter.matrices[name]
        whole: Array = values + (a @ b).T
        return whole

    return replace(model, read=read, read_packed=lambda name: None)


def add_adapter(
    graph: GraphWriter, x: str, product: str, site: str, inputs: int, outputs: int, rank: str
) -> str:
    """Add (x A) B to the product of x and a matrix; A and B are inputs of the graph with an open rank."""
    a = graph.input(f"{site}/lora_a", "float32", [inputs, rank])
    b = graph.input(f"{site}/lora_b", "float32", [rank, outputs])
    return graph.op("Add", product, graph.op("MatMul", graph.op("MatMul", x, a), b))


def _adapted(path: Path, tensor: str, weight: str, model: LanguageModel) -> str:
    """Return the name of a weight that can be adapted: a product of a layer."""
    adaptable = weight.endswith("_proj.weight") and weight in model.config.weight_shapes()
    if not adaptable or ".experts." in weight:
        raise ModelError(
            f"{path}: adapts {tensor[:100]}, which is not a product of a layer of {model.name}; EdgeKit "
            "adapts q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj and down_proj, not those of experts"
        )
    return weight


def _peft(folder: Path, model: LanguageModel) -> Pairs:
    config = read_json(folder / CONFIG)
    if config.get("peft_type") != "LORA":
        raise ModelError(f"{folder}: is a {str(config.get('peft_type'))[:40]} adapter; EdgeKit reads LORA")
    for key, plain in PLAIN.items():
        if config.get(key) and config[key] != plain:
            raise ModelError(f"{folder}: its {key} is {str(config[key])[:60]}; EdgeKit reads plain LoRA")
    begun = str(config.get("init_lora_weights"))
    if begun.partition("_")[0] in CHANGING:
        raise ModelError(
            f"{folder}: its init_lora_weights, {begun[:40]}, changed the model; save it with PEFT's "
            "path_initial_model_for_weight_conversion"
        )
    alpha = real(config, "lora_alpha", folder, limits=ALPHA_LIMITS, file=CONFIG)
    root = math.sqrt if config.get("use_rslora") else float
    file = open_safetensors(folder / WEIGHTS)

    def place(tensor: str) -> tuple[str, str]:
        name, _, kind = tensor.removesuffix(".weight").rpartition(".lora_")
        return _adapted(folder, tensor, f"{name.removeprefix(PREFIX)}.weight", model), kind

    return _pairs(folder, model, file.tensors, place, file.read, lambda rank: alpha / root(rank))


def _gguf(path: Path, model: LanguageModel) -> Pairs:
    file = open_gguf(path)
    if file.get("general.type", str) != "adapter" or file.get("adapter.type", str) != "lora":
        raise ModelError(
            f"{path}: is not a LoRA adapter; convert one with llama.cpp's convert_lora_to_gguf.py"
        )
    architecture = file.get("general.architecture", str)
    if architecture != model.config.architecture:
        raise ModelError(
            f"{path}: adapts {str(architecture)[:40]} models; {model.name} is {model.config.architecture}"
        )
    if "adapter.alora.invocation_tokens" in file.metadata:
        raise ModelError(f"{path}: is an activated LoRA adapter; EdgeKit reads plain LoRA")
    alpha = file.get("adapter.lora.alpha", float) or 0.0
    names = {adapter_tensor(name, model.config): name for name in model.config.weight_shapes()}

    def place(tensor: str) -> tuple[str, str]:
        name, _, kind = tensor.rpartition(".lora_")
        return _adapted(path, tensor, names.get(name, ""), model), kind.upper()

    pairs = _pairs(path, model, file.tensors, place, partial(_values, file), lambda rank: alpha / rank or 1.0)
    return {name: (a, half_rotation(b, name, model.config)) for name, (a, b) in pairs.items()}


def _values(file: GgufFile, name: str) -> Array:
    return read_values(file.tensors[name].kind, file.read(name), file.tensors[name].shape)


def _pairs(
    path: Path,
    model: LanguageModel,
    tensors: Mapping[str, SafetensorsTensor] | Mapping[str, GgufTensor],
    place: Callable[[str], tuple[str, str]],
    read: Callable[[str], Array],
    scale: Callable[[int], float],
) -> Pairs:
    """Read the pairs of an adapter: A [rank, inputs], and B [outputs, rank] times the scale of its rank.

    Sizes are checked before anything is read.
    """
    names = {place(tensor): tensor for tensor in tensors}
    pairs = {}
    for weight in {weight for weight, _ in names}:
        if not {(weight, "A"), (weight, "B")} <= names.keys():
            raise ModelError(f"{path}: has one of two LoRA matrices for {weight}; save the adapter again")
        a, b = names[weight, "A"], names[weight, "B"]
        shapes, (outputs, inputs) = (tensors[a].shape, tensors[b].shape), model.config.weight_shapes()[weight]
        rank = shapes[0][0] if shapes[0] else 0
        if shapes != ((rank, inputs), (outputs, rank)) or not 1 <= rank <= RANK_LIMIT:
            raise ModelError(
                f"{path}: its matrices for {weight} are {list(shapes[0])} and {list(shapes[1])}; {model.name}"
                f" needs [rank, {inputs}] and [{outputs}, rank], with a rank of at most {RANK_LIMIT}"
            )
        pairs[weight] = read(a), read(b) * np.float32(scale(rank))
    return pairs
