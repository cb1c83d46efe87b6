"""A model repository for NVIDIA's Triton Inference Server: ``edgekit export BUNDLE --triton DIR``.

Each variant that a backend of Triton runs is a model of its own. A card with one image makes an ensemble
around the best of them: EdgeKit's own code prepares and decodes, in Triton's Python backend.
https://github.com/triton-inference-server/server/blob/main/docs/user_guide/model_configuration.md
"""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from edgekit.bundle.advice import p50_ms
from edgekit.bundle.speed_order import fastest_first
from edgekit.errors import MissingDependency, ProfileError, UsageError
from edgekit.release.export.export import export_title
from edgekit.target import registry
from edgekit.tensor_spec import TensorSpec

if TYPE_CHECKING:
    from edgekit.bundle.bundle import Bundle
    from edgekit.bundle.variant import Variant
    from edgekit.target.contract import TritonForm

DTYPES: Mapping[str, str] = {
    "bool": "BOOL", "int8": "INT8", "uint8": "UINT8", "int16": "INT16", "uint16": "UINT16", "int32": "INT32",
    "uint32": "UINT32", "int64": "INT64", "uint64": "UINT64", "float16": "FP16", "float32": "FP32",
    "float64": "FP64",
}  # fmt: skip
"""numpy's name of an element type -> Triton's, without TYPE_."""
VERSION = "1"
CONFIG = "config.pbtxt"
WARM_UP = "golden"


class TritonModel(NamedTuple):
    """A model of the repository."""

    name: str
    files: Mapping[str, bytes]


def export_triton(bundle: Bundle, folder: Path, names: Sequence[str] = ()) -> list[Path]:
    """Write a model repository, whole or not at all.

    Args:
        names: Variants. Empty means all that a backend of Triton runs.

    Returns:
        The files.

    Raises:
        UsageError: no such variant, none that Triton runs, a model of that name is there, or the folder can't
            be written to.
        BundleError: an entry is damaged.
    """
    models = triton_models(bundle, names)
    existing = [str(folder / model.name) for model in models if (folder / model.name).exists()]
    if existing:
        raise UsageError(f"{', '.join(existing)} already exists; choose another folder. Nothing was written")
    created: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".edgekit-", dir=folder) as draft:
            for model in models:
                for name, content in model.files.items():
                    path = Path(draft, model.name, name)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(content)
            for model in models:
                Path(draft, model.name).rename(folder / model.name)
                created.append(folder / model.name)
    except OSError as problem:
        for path in created:
            shutil.rmtree(path, ignore_errors=True)
        raise UsageError(
            f"can't write to {folder}: {problem.strerror}; choose another folder. Nothing was written"
        ) from None
    return [folder / model.name / name for model in models for name in model.files]


def triton_models(bundle: Bundle, names: Sequence[str] = ()) -> list[TritonModel]:
    """Return the models of a repository. Raises the same errors as :func:`export_triton`."""
    variants = {variant.name: variant for variant in bundle.variants if variant.usable}
    for name in names:
        if name not in variants:
            raise UsageError(f"unknown variant {name!r}; available: {', '.join(variants)}")
        if _form(variants[name]) is None:
            raise UsageError(f"Triton has no backend for {name}, which is for {variants[name].target}")
    chosen = [variants[name] for name in names] or list(variants.values())
    form_by_name = {variant.name: form for variant in chosen if (form := _form(variant)) is not None}
    if not form_by_name:
        targets = ", ".join(sorted({variant.target for variant in variants.values()})) or "nothing"
        raise UsageError(f"Triton has no backend for the targets of {bundle.name}: {targets}")
    models = [_model(bundle, variants[name], form) for name, form in form_by_name.items()]
    return [*models, *_ensemble(bundle, _preferred([variants[name] for name in form_by_name]))]


def _preferred(variants: Sequence[Variant]) -> Variant:
    whole = [variant for variant in variants if variant.shrunk is None] or variants
    times_ms = {variant.name: time_ms for variant in whole if (time_ms := p50_ms(variant)) is not None}
    return fastest_first(whole, times_ms)[0]


def _form(variant: Variant) -> TritonForm | None:
    try:
        form = registry.engine(variant.target).ENGINE.triton
    except (MissingDependency, ProfileError):
        return None
    return form if form is not None and set(form.files) <= set(variant.files) else None


def _title(bundle: Bundle, description: str) -> str:
    return export_title(bundle.manifest["source"]["file"], description)


def _model(bundle: Bundle, variant: Variant, form: TritonForm) -> TritonModel:
    name, inputs, outputs = _title(bundle, variant.name), bundle.inputs, bundle.outputs
    batch = _batch(inputs, outputs) if form.pads else 0
    timing = variant.evidence.get("timing") or {}
    threads = timing.get("threads")
    parameters = dict(form.parameters)
    parameters |= dict(form.pads) if batch else {}
    parameters |= {form.threads: str(int(threads))} if form.threads and threads else {}
    lines = [
        f"# {variant.name} of {bundle.manifest['source']['file']}, {variant.status}",
        f"name: {_text(name)}",
        f"backend: {_text(form.backend)}",
        f"max_batch_size: {batch}  # {_batch_reason(batch, bool(form.pads))}",
        *(_tensor("input", spec, batch) for spec in inputs),
        *(_tensor("output", spec, batch) for spec in outputs),
        f"instance_group [{{ count: 1 kind: {'KIND_GPU' if form.accelerator else 'KIND_CPU'} }}]",
        *(_parameter(key, value) for key, value in parameters.items()),
    ]
    if batch:
        lines.append(_batching(batch, timing.get("p50_ms")))
    if form.accelerator:
        lines.append(
            "optimization { execution_accelerators { gpu_execution_accelerator "
            f"[{{ name: {_text(form.accelerator)} }}] }} }}"
        )
    files = {f"{VERSION}/{form.files[file]}": bytes(bundle.read(variant.files[file])) for file in form.files}
    if bundle.golden:
        lines.append(_warm_up(inputs, batch))
        feeds = bundle.golden[0][0]
        for number, spec in enumerate(inputs):
            files[f"warmup/{WARM_UP}-{number}"] = _row(feeds[spec.name], batch)
    return TritonModel(name, {CONFIG: _config(lines), **files})


def _row(array: Any, batch: int) -> bytes:
    content: bytes = (array[:1] if batch else array).tobytes()
    return content


def _batch(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> int:
    sizes = {spec.shape[0] if spec.shape else 1 for spec in (*inputs, *outputs)}
    size = sizes.pop()
    return size if not sizes and size > 1 else 0


def _batch_reason(batch: int, pads: bool) -> str:
    if batch:
        return "as it was built and verified; the backend fills up smaller ones"
    return (
        "shapes are those that were verified; of a bundle with a batch in front the backend batches"
        if pads
        else "shapes are those that were verified, the batch in front of them too"
    )


def _batching(batch: int, p50_ms: float | None) -> str:
    """Return the configuration of dynamic batching. A request waits at most half of a measured run for a
    batch, so a single request takes at most one and a half runs."""
    delay_us = math.ceil(1000 * p50_ms / 2) if p50_ms else 0
    return (
        f"dynamic_batching {{ preferred_batch_size: [ {batch} ] max_queue_delay_microseconds: {delay_us} }}"
        + (f"  # half of a measured run of {p50_ms:g} ms" if p50_ms else "  # it was not timed")
    )


def _tensor(kind: str, spec: TensorSpec, batch: int = 0) -> str:
    shape = spec.shape[1:] if batch else spec.shape
    dims, reshape = ", ".join(map(str, shape)), ""
    if not shape:  # Triton has no scalars
        dims, reshape = "1", " reshape: { shape: [ ] }"
    dtype = DTYPES[spec.dtype]
    return f"{kind} [{{ name: {_text(spec.name)} data_type: TYPE_{dtype} dims: [ {dims} ]{reshape} }}]"


def _parameter(key: str, value: str) -> str:
    return f"parameters {{ key: {_text(key)} value: {{ string_value: {_text(value)} }} }}"


def _warm_up(inputs: Sequence[TensorSpec], batch: int) -> str:
    """Return the configuration of a warm-up with the golden vector's input, so that the first request finds a
    warm engine."""
    rows = []
    for number, spec in enumerate(inputs):
        dims = ", ".join(map(str, spec.shape[1:] if batch else spec.shape)) or "1"
        rows.append(
            f"inputs {{ key: {_text(spec.name)} value: {{ data_type: TYPE_{DTYPES[spec.dtype]} "
            f"dims: [ {dims} ] input_data_file: {_text(f'{WARM_UP}-{number}')} }} }}"
        )
    return f"model_warmup [{{ name: {_text(WARM_UP)} batch_size: {max(batch, 1)} {' '.join(rows)} }}]"


def _ensemble(bundle: Bundle, best: Variant) -> list[TritonModel]:
    """Return preparation, model and decoding as one model. The list is empty if the card has no single image
    and task, or the model has a batch size above 1."""
    from edgekit.errors import CardError
    from edgekit.processing.card import parse_card

    if bundle.card is None or any(spec.shape[:1] != (1,) for spec in bundle.inputs):
        return []
    try:
        card = parse_card(bundle.card)
        image = card.image_input()
    except CardError:
        return []
    if card.task is None or image.name not in {spec.name for spec in bundle.inputs}:
        return []
    prepare, decode, whole = (_title(bundle, part) for part in ("prepare", "decode", "ensemble"))
    frame, size = TensorSpec("IMAGE", "uint8", (-1, -1, 3)), TensorSpec("SIZE", "int32", (2,))
    answer = 'output [{ name: "PREDICTION" data_type: TYPE_STRING dims: [ 1 ] }]'
    content = json.dumps(bundle.card).encode()
    python = [f"backend: {_text('python')}", "max_batch_size: 0"]
    first = [f"name: {_text(prepare)}", *python, _tensor("input", frame),
             *(_tensor("output", spec) for spec in bundle.inputs), _tensor("output", size)]  # fmt: skip
    last = [f"name: {_text(decode)}", *python, *(_tensor("input", spec) for spec in bundle.outputs),
            _tensor("input", size), answer]  # fmt: skip
    inner = {spec.name: f"in_{number}" for number, spec in enumerate(bundle.inputs)}
    outer = {spec.name: f"out_{number}" for number, spec in enumerate(bundle.outputs)}
    steps = [
        _step(prepare, {"IMAGE": "IMAGE"}, {**inner, "SIZE": "size"}),
        _step(_title(bundle, best.name), inner, outer),
        _step(decode, {**outer, "SIZE": "size"}, {"PREDICTION": "PREDICTION"}),
    ]
    both = [f"name: {_text(whole)}", f"platform: {_text('ensemble')}", "max_batch_size: 0",
            _tensor("input", frame), answer,
            f"ensemble_scheduling {{ step [ {', '.join(steps)} ] }}"]  # fmt: skip
    script = Path(__file__).with_name("triton_steps.py").read_bytes()
    shared_files = {f"{VERSION}/model.py": script, f"{VERSION}/card.json": content}
    return [
        TritonModel(prepare, {CONFIG: _config(first), **shared_files}),
        TritonModel(decode, {CONFIG: _config(last), **shared_files}),
        TritonModel(whole, {CONFIG: _config(both), f"{VERSION}/.keep": b""}),
    ]


def _step(model: str, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> str:
    """``inputs`` and ``outputs``: the step's own name -> the ensemble's."""
    maps = [f"input_map {{ key: {_text(k)} value: {_text(v)} }}" for k, v in inputs.items()]
    maps += [f"output_map {{ key: {_text(k)} value: {_text(v)} }}" for k, v in outputs.items()]
    return f"{{ model_name: {_text(model)} model_version: -1 {' '.join(maps)} }}"


def _config(lines: Sequence[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode("utf-8")


def _text(value: str) -> str:
    """Quote a text for protobuf's text format.

    >>> print(_text('a "b"'))
    "a \\"b\\""
    """
    return json.dumps(value, ensure_ascii=False)
