"""The contents of a bundle: the manifest, the artifacts and the golden vector."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version

import numpy as np
import onnx_ir as ir

from edgekit._version import __version__
from edgekit.bundle import card_files, shape_entries
from edgekit.bundle import source_names as source_names_entry
from edgekit.bundle.bundle import Bundle
from edgekit.compiler.evaluate.samples import Sample, Samples, hold_one_value
from edgekit.compiler.evaluate.verify import ReferenceOutputs
from edgekit.compiler.lowering.shared_transposes import transposed_pairs
from edgekit.compiler.model.onnx_file import assumed_shapes, opened_digest
from edgekit.compiler.model.origins import source_names
from edgekit.compiler.model.rewriting import SHARED_FROM_ELEMENTS
from edgekit.compiler.pipeline.build_job import BuildJob
from edgekit.compiler.pipeline.build_request import BuildRequest
from edgekit.compiler.pipeline.import_check import ImportCheck
from edgekit.compiler.pipeline.variant_build import Shrunk, VariantBuild
from edgekit.system.declared_options import stored_options
from edgekit.system.formats.npy import npy_bytes
from edgekit.system.formats.plain_text import shortened, size
from edgekit.system.formats.strict_json import encode
from edgekit.system.size_range import range_text
from edgekit.target import registry
from edgekit.target.build_target import BuildTarget
from edgekit.target.precisions import FULL_PRECISION
from edgekit.target.shape_range import OPTION as RANGE
from edgekit.target.shape_range import ShapeRange
from edgekit.tensor_spec import Array, Content, Json, Signature, TensorSpec

PACKAGES = ("onnx", "onnx-ir", "onnxruntime", "numpy")
"""Packages of the core whose versions can change the bytes of an artifact; targets declare their own."""


def make_bundle(
    job: BuildJob,
    samples: Samples,
    reference: ReferenceOutputs,
    variants: Sequence[VariantBuild],
    import_check: ImportCheck | None = None,
    shapes: Sequence[tuple[Signature, ReferenceOutputs]] = (),
    of_range: ShapeRange | None = None,
    tried: Mapping[str, Json] | None = None,
) -> Bundle:
    """Create the bundle of these variants, in memory.

    Args:
        reference: Its first sample becomes the golden vector.
        variants: In the order in which a runtime prefers them, rejected ones included.
        shapes: Reference at each shape of a model that has several, the largest last; of a range, at those
            that were tested.
        tried: Entries of the manifest's ``samples`` about the trial of the card.
    """
    explain_sizes(job.source, job.canonical, variants)
    files = job.card.files if job.card else {}
    names = encode(source_names(job.source, job.canonical))
    entries: dict[str, Content] = {source_names_entry.ENTRY: names}
    entries |= {card_files.entry_of(name): content for name, content in files.items()}
    described = samples.as_json()
    described |= {"one_value": True} if hold_one_value(samples.arrays) else {}
    described |= tried or {}
    described |= {"nan": shares} if (shares := _nan_shares(reference)) else {}
    manifest = manifest_of(
        job.request, job.targets, variants, entries, source=_source(job, import_check), samples=described,
        inputs=job.inputs, outputs=job.outputs, card=job.card.as_json() if job.card else None,
    )  # fmt: skip
    manifest["options"] |= {
        "precision": job.request.precision,
        **job.options.as_json(),
        **({"no_int8": job.no_int8} if job.no_int8 else {}),
        "shapes": _given_shapes(job, shapes, of_range),
        **({"assumed_shapes": assumed} if (assumed := assumed_shapes(job.source)) else {}),
        **({"io": job.layouts} if job.layouts else {}),
    }
    manifest |= {
        "passes": job.passes,
        "golden": [shape_entries.golden_json(0, _first(reference), entries)],
        "extensions": {source_names_entry.EXTENSION: source_names_entry.ENTRY},
    }
    if shapes:
        golden = [*(_first(smaller) for _, smaller in shapes[:-1]), _first(reference)]
        further = shape_entries.as_json([signature for signature, _ in shapes], golden, entries)
        manifest["extensions"][shape_entries.EXTENSION] = further
    if of_range is not None:
        manifest["extensions"][RANGE] = of_range.as_json()
    return Bundle.create(manifest, entries)


def manifest_of(
    request: BuildRequest,
    targets: Sequence[BuildTarget],
    variants: Sequence[VariantBuild],
    entries: dict[str, Content],
    *,
    source: Mapping[str, Json],
    samples: Mapping[str, Json],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    card: Json,
) -> dict[str, Json]:
    """Return the manifest's keys that all models have. Files of the variants are added to ``entries``."""
    return {
        "edgekit": __version__,
        "tools": tool_versions(),
        "source": dict(source),
        "options": {
            "targets": [target.profile.name for target in targets],
            "precision": request.requested_precision,
            **stored_options(request),
        },
        "samples": dict(samples),
        "inputs": [spec.as_json() for spec in inputs],
        "outputs": [spec.as_json() for spec in outputs],
        "card": card,
        "profiles": {target.profile.name: target.profile.as_json() for target in targets},
        "variants": [variant_entry(variant, entries) for variant in variants],
    }


def _source(job: BuildJob, import_check: ImportCheck | None) -> dict[str, Json]:
    imported = job.imported
    source: dict[str, Json] = {
        "file": job.name,
        "sha256": (imported and imported.source_sha256) or opened_digest(job.source),
        "opset": job.source.opset_imports[""],
        "nodes": job.nodes,
    }
    if imported is not None:
        source["imported"] = {
            **imported.as_json(),
            **({"compared": import_check.as_json()} if import_check else {}),
        }
    return source


def _nan_shares(reference: ReferenceOutputs) -> dict[str, float]:
    """Return the share of each output of the source model that is NaN, 0 to 1, on the reference's samples.
    Outputs without NaN are left out."""
    shares: dict[str, float] = {}
    for spec in reference.outputs:
        arrays = [outputs[spec.name] for outputs in reference.expected]
        size = sum(array.size for array in arrays)
        count = sum(int(np.isnan(array).sum()) for array in arrays if array.dtype.kind == "f")
        if count:
            shares[spec.name] = float(f"{count / size:.3g}")
    return shares


def tool_versions() -> dict[str, str]:
    """Return versions of the packages that can change the bytes: the core's, and those of every installed
    target."""
    packages = [*PACKAGES]
    for name in registry.target_names():
        try:
            packages += registry.engine(name).ENGINE.packages
        except Exception:  # a target that is not built for may be broken
            continue
    versions = {}
    for package in dict.fromkeys(packages):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


def variant_entry(variant: VariantBuild, entries: dict[str, Content]) -> dict[str, Json]:
    """Return a variant's manifest entry, and add its files to ``entries`` unless it is rejected."""
    files = {}
    if not variant.rejected:
        # Named by content: profiles of one target that compile to the same bytes share them, and so do files.
        names: dict[Content, str] = {}
        for file, content in variant.artifact.files.items():
            files[file] = names.setdefault(content, f"artifacts/{variant.digest[:16]}/{file}")
        entries.update({name: content for content, name in names.items()})
    shrunk: dict[str, Json] = {}
    if variant.shrunk is not None:
        golden = [] if variant.rejected else [_own_golden(variant.shrunk, entries)]
        shrunk = {"shrunk": {"multiplications": list(variant.shrunk.multiplications), "golden": golden}}
    return {
        "name": variant.name,
        "target": variant.target.name,
        "profile": variant.profile.name,
        "precision": variant.precision,
        "files": files,
        "options": dict(variant.artifact.options),
        "status": variant.status,
        "evidence": variant.evidence,
        **shrunk,
    }


def _own_golden(shrunk: Shrunk, entries: dict[str, Content]) -> dict[str, Json]:
    """Store the smaller model's outputs for the golden vector as entries, and return their names; its
    variants share them."""
    names = {name: f"golden/0/{shrunk.entry}-outputs-{k}.npy" for k, name in enumerate(shrunk.golden)}
    entries.update({names[name]: npy_bytes(array) for name, array in shrunk.golden.items()})
    return dict(names)


def _first(reference: ReferenceOutputs) -> tuple[Sample, Mapping[str, Array]]:
    """Return the golden vector: the first sample and the reference's outputs for it. The device verifies the
    bundle with it again."""
    return reference.samples[0], reference.expected[0]


def _given_shapes(
    job: BuildJob, shapes: Sequence[tuple[Signature, ReferenceOutputs]], of_range: ShapeRange | None
) -> dict[str, Json]:
    """Return the shapes of each input, to build the bundle again. An input has several if they differ and do
    not follow from lengths; one that follows from the size of a range in another way has none."""
    shapes_by_input: dict[str, Json] = {spec.name: list(spec.shape) for spec in job.inputs}
    if of_range is not None:
        sizes = {(1, 0): range_text(of_range.sizes)}
        for name, lines in of_range.inputs.items():
            shapes_by_input[name] = [sizes.get((f, o)) if f else o for f, o in lines]
        return {name: shape for name, shape in shapes_by_input.items() if None not in shape}
    if shapes and not job.request.lengths:
        for specs in zip(*(signature.inputs for signature, _ in shapes), strict=True):
            if len({spec.shape for spec in specs}) > 1:
                shapes_by_input[specs[0].name] = [list(spec.shape) for spec in specs]
    return shapes_by_input


# Why a variant is larger than its source: evidence for the report.
#
# Layers may share a weight in the source and need different ones in a variant: each scaled by a normalization
# of its own, or float for one operator and integers for another.

LARGER = 1.1
GRAPH_BYTES = 256 * 1024
"""Room for the graph, its names and settings: OpenVINO's take 1 kB for a node."""
GROWTH = 1.02
"""Weights may grow by so much before it is a reason: biases, shapes and tables of the canonical graph."""
PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def explain_sizes(source: ir.Model, canonical: ir.Model, variants: Sequence[VariantBuild]) -> None:
    """Write ``larger`` into the evidence of every kept variant that is larger than the source's weights."""
    weights = sum(_constants(source).values())
    for variant in variants:
        size_bytes = variant.evidence["size_bytes"]
        if variant.rejected or variant.shrunk is not None:
            continue
        if size_bytes > LARGER * weights + GRAPH_BYTES:
            because = list(_reasons(source, canonical, variant))
            variant.evidence["larger"] = {"source_weight_bytes": weights, "because": because}


def _reasons(source: ir.Model, canonical: ir.Model, variant: VariantBuild) -> Iterator[str]:
    before, after = _constants(source), _constants(canonical)
    if sum(after.values()) > GROWTH * sum(before.values()):
        added = sorted(((count, name) for name, count in after.items() if name not in before), reverse=True)
        named = ", ".join(f"{shortened(name)} ({size(count)})" for count, name in added[:2])
        more = f" and {len(added) - 2} more" if added[2:] else ""
        grown = size(sum(after.values()) - sum(before.values()))
        yield f"the simplified graph has {grown} more weights than the source, e.g. {named}{more}"
    if variant.precision != FULL_PRECISION:
        for name, ops in _of_two_forms(canonical):
            yield f"{shortened(name)} is stored twice: quantized, and as floats for {ops}"
    files = sorted(((len(content), name) for name, content in variant.artifact.files.items()), reverse=True)
    yield "its files: " + ", ".join(f"{name} {size(count)}" for count, name in files[:3])


def _of_two_forms(model: ir.Model) -> Iterator[tuple[str, str]]:
    """Yield large matrices that products and other operators read: the name, and a description of those
    operators."""
    copies = transposed_pairs(model.graph)
    for name, value in model.graph.initializers.items():
        if value.const_value is None or value.const_value.size < SHARED_FROM_ELEMENTS:
            continue
        forms = [value, *(model.graph.initializers[copy] for copy, first in copies.items() if first == name)]
        ops = {use.node.op_type for form in forms for use in form.uses()}
        if ops.intersection(PRODUCTS) and ops.difference(PRODUCTS):
            yield name, ", ".join(sorted(ops.difference(PRODUCTS)))


def _constants(model: ir.Model) -> dict[str, int]:
    """Name -> size in bytes of every weight and large Constant of the model."""
    size_by_name: dict[str, int] = {}
    for graph in model.graphs():
        for name, value in graph.initializers.items():
            size_by_name[name] = value.const_value.nbytes if value.const_value is not None else 0
        for node in graph:
            if node.op_type == "Constant" and not node.domain and "value" in node.attributes:
                size_by_name[str(node.outputs[0].name)] = node.attributes["value"].as_tensor().nbytes
    return size_by_name
