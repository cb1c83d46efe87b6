"""What EdgeKit writes into ONNX Runtime's model packages and reads from them again.

    manifest.json                          components, variants, session options; sha256 of all other files
    VARIANT/model.onnx                     the bundle's file, but for weights that variants share
    shared_assets/sha256-HEX/weights.bin   those weights, once
    shared_assets/sha256-HEX/bundle.json   the bundle's manifest: evidence, card, provenance
    shared_assets/sha256-HEX/entries/...   its golden vectors, files of the card and others

``additional_metadata.edgekit`` has the asset of bundle.json and the digests of all files, so a signature of
manifest.json is one of the package.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import onnx

from edgekit.compiler.model.untrusted import external_files
from edgekit.target.model_packages import PROVIDER
from edgekit.tensor_spec import Json
from edgekit_ort.run import EXACT_SUMS, MODEL_FILE, SESSION_OPTIONS, session_options_of

MANIFEST, BUNDLE, ENTRIES, WEIGHTS = "manifest.json", "bundle.json", "entries/", "weights.bin"
EDGEKIT = "edgekit"
"""Key of ``additional_metadata`` and ``executor_info``."""
CPU = "CPUExecutionProvider"
SHARED_FROM_BYTES = 16_384
"""Smaller tensors stay in each graph. Each shared one costs a map at load: YOLOX-nano (fp32, int8) opened in
23.1 ms of CPU time with those from 1 kB shared (1.55 MB), in 20.2 from 16 kB (1.40 MB), in 17.7 with none."""
ALIGNMENT_BYTES = 64


def place_of(options: Mapping[str, Json]) -> dict[str, Json]:
    """Return provider and device of a variant, by its options."""
    return dict(options.get(PROVIDER) or {"ep": CPU, "device": "cpu"})


def package_session_options(options: Mapping[str, Json]) -> dict[str, str]:
    """Return the session options with which stock ONNX Runtime computes what was verified."""
    if SESSION_OPTIONS in options:
        return dict(options[SESSION_OPTIONS])
    given = session_options_of(
        bool(options.get("float_islands")),
        bool(options.get("widened_weights")),
        options.get("arithmetic") == "bf16",
    )
    if options.get("wide_sums"):
        given[EXACT_SUMS] = "1"  # exact on every processor, not on this one alone
    return given


def share_weights(files: Mapping[str, dict[str, bytes]]) -> tuple[bytes, set[str]]:
    """Move weights that several variants have into one file; the graphs point into it. A graph whose weights
    are in a file of its own stays: ONNX Runtime reads all external data from one folder.

    Args:
        files: Files of each variant, which are changed.

    Returns:
        The content of the file, and the names of the variants that read it.
    """
    parsed = {name: onnx.ModelProto.FromString(own[MODEL_FILE]) for name, own in files.items()}
    graphs = {name: graph for name, graph in parsed.items() if not external_files(graph)}
    counts = Counter(
        raw
        for graph in graphs.values()
        for raw in dict.fromkeys(
            t.raw_data for t in graph.graph.initializer if len(t.raw_data) >= SHARED_FROM_BYTES
        )
    )
    weights, offsets, readers = bytearray(), {}, set()
    for raw, count in counts.items():
        if count > 1:
            weights += bytes(-len(weights) % ALIGNMENT_BYTES)
            offsets[raw] = len(weights)
            weights += raw
    for name, graph in graphs.items():
        moved = [tensor for tensor in graph.graph.initializer if tensor.raw_data in offsets]
        for tensor in moved:
            place = {"location": WEIGHTS, "offset": offsets[tensor.raw_data], "length": len(tensor.raw_data)}
            tensor.ClearField("raw_data")
            tensor.data_location = onnx.TensorProto.EXTERNAL
            for key, value in place.items():
                tensor.external_data.add(key=key, value=str(value))
        if moved:
            files[name][MODEL_FILE] = graph.SerializeToString(deterministic=True)
            readers.add(name)
    return bytes(weights), readers


def with_weights_inside(content: bytes, files: Mapping[str, bytes]) -> bytes:
    """Return a graph whose weights in these files, by location, are inside again: the reverse of
    :func:`share_weights`.

    Raises:
        ValueError: a place is not inside its file.
    """
    model = onnx.ModelProto.FromString(content)
    moved = False
    for tensor in model.graph.initializer:
        place = {entry.key: entry.value for entry in tensor.external_data}
        if (file := files.get(place.get("location", ""))) is None:
            continue
        start = int(place.get("offset", "0"))
        length = int(place.get("length", str(len(file) - start)))
        if not 0 <= start <= start + length <= len(file):
            raise ValueError(f"{tensor.name} is not inside {place['location']}")
        tensor.raw_data, moved = file[start : start + length], True
        tensor.ClearField("external_data")
        tensor.ClearField("data_location")
    inside: bytes = model.SerializeToString(deterministic=True) if moved else content
    return inside
