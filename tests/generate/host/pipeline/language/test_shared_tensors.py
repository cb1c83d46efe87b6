"""A bundle stores tensors once that several variants have, and engines load the files that were judged."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgekit
from edgekit.bundle import joined_files
from edgekit.bundle.bundle import Bundle
from edgekit.compiler.evaluate.verify_bundle import CheckOutcome, verify_bundle
from edgekit.compiler.pipeline.shared_tensors import share_tensors
from edgekit.errors import BundleError
from edgekit.generate.device.decoder_registry import decoder_compiler
from edgekit.generate.host.readers.language.gguf_model import open_gguf_model
from edgekit.generate.host.weights.language import quantize_decoder
from edgekit.release.export.export import export_variant
from edgekit.runtime.loading.unpacked_files import unpack
from edgekit.tensor_spec import Content
from tests.fixtures.gguf_files import write_tiny

pytestmark = [pytest.mark.needs_ort, pytest.mark.needs_openvino, pytest.mark.needs_tokenizers]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture(scope="module")
def built(path: Path) -> Bundle:
    edgekit.build(path, targets=["ort", "openvino"], precision="int8", force=True).save(
        path.with_suffix(".edgekit")
    )
    return Bundle.open(path.with_suffix(".edgekit"))


def test_engines_load_the_compiled_files(built: Bundle, path: Path) -> None:
    model = open_gguf_model(path)
    weights = quantize_decoder(model, "int8")
    assert [variant.name for variant in built.variants] == ["ort-int8", "openvino-int8"]
    for variant in built.variants:
        compiled = decoder_compiler(variant.target).compile_decoder(model, "int8", weights, 128)
        files = unpack(built, variant)
        assert {name: p.read_bytes() for name, p in files.items()} == {
            name: bytes(content) for name, content in compiled.files.items()
        }
        again = unpack(built, variant)
        assert again == files
    assert [check.outcome for check in verify_bundle(built)] == [CheckOutcome.VERIFIED] * 2


def test_equal_tensors_are_stored_once(built: Bundle, path: Path) -> None:
    shared = [entry for entry in built.manifest["entries"] if entry["name"].startswith("weights/")]
    assert len(shared) == 1
    for variant in built.variants:
        assert shared[0]["name"] in variant.files.values()
    entries = {entry for variant in built.variants for entry in variant.files.values()}
    stored = sum(map(built.size_bytes, entries))
    whole = sum(
        joined_files.size_bytes(built, variant, name)
        for variant in built.variants
        for name in joined_files.engine_files(variant)
    )
    weights = quantize_decoder(open_gguf_model(path), "int8")
    matrices = sum(matrix.stored.nbytes + matrix.scales.nbytes for matrix in weights.values())
    assert whole - stored >= shared[0]["size"] > 0.9 * matrices
    built.verify_entries()


def test_an_export_has_whole_files(built: Bundle, tmp_path: Path) -> None:
    written = export_variant(built, "ort-int8", tmp_path / "out")
    sizes = sorted(p.stat().st_size for p in written if p.suffix in (".onnx", ".data"))
    variant = built["ort-int8"]
    assert sizes == sorted(joined_files.size_bytes(built, variant, n) for n in ("model.onnx", "model.data"))


def test_a_damaged_part_is_found_when_it_is_unpacked(built: Bundle, tmp_path: Path) -> None:
    content = bytearray(Path(built.name).read_bytes())
    entry = next(e for e in built.manifest["entries"] if e["name"].startswith("weights/"))
    content[built._start + entry["offset"] + 100] ^= 1
    (tmp_path / "damaged.edgekit").write_bytes(content)
    with Bundle.open(tmp_path / "damaged.edgekit") as damaged, pytest.raises(BundleError, match="sha256"):
        joined_files.read(damaged, damaged["ort-int8"], "model.data")


def _other(bundle: Bundle, change: object) -> str:
    """Return the error of a bundle whose first variant has another option ``joined``."""
    entries = {e["name"]: bytes(bundle.read(e["name"])) for e in bundle.manifest["entries"]}
    manifest = {k: v for k, v in bundle.manifest.items() if k not in ("format", "version", "entries")}
    first, *others = manifest["variants"]
    joined = {
        name: {**file, "parts": dict(file["parts"])} for name, file in first["options"]["joined"].items()
    }
    change(joined)  # type: ignore[operator]
    changed = {**first, "options": {**first["options"], "joined": joined}}
    with pytest.raises(BundleError) as raised:
        Bundle.create({**manifest, "variants": [changed, *others]}, entries)
    return str(raised.value).splitlines()[1].strip()


def test_parts_that_do_not_fit_are_refused(built: Bundle) -> None:
    size = built["ort-int8"].options["joined"]["model.data"]["size"]
    where = "variants[0].options.joined"

    def leave(joined: dict) -> None:  # type: ignore[type-arg]
        joined["../model.data"] = joined.pop("model.data")

    def grow(joined: dict) -> None:  # type: ignore[type-arg]
        joined["model.data"]["size"] = 1 << 40

    def overlap(joined: dict) -> None:  # type: ignore[type-arg]
        ranges = joined["model.data"]["parts"]["model.data.0"]
        joined["model.data"]["parts"]["model.data.0"] = [[0, length] for _, length in ranges]

    def shorten(joined: dict) -> None:  # type: ignore[type-arg]
        del joined["model.data"]["parts"]["model.data.0"][-1]

    def other(joined: dict) -> None:  # type: ignore[type-arg]
        joined["model.data"]["parts"]["nothing"] = [[size, 1]]

    assert "'../model.data' is not a plain relative name" in _other(built, leave).replace('"', "'")
    assert "ranges overlap, or too much is zero" in _other(built, grow)
    assert "ranges overlap, or too much is zero" in _other(built, overlap)
    assert "not a file of" in _other(built, shorten)
    assert _other(built, other).startswith(where)


def test_a_single_variant_keeps_its_files(path: Path) -> None:
    bundle = edgekit.build(path, targets=["ort"], precision="int8", force=True)
    (variant,) = bundle.variants
    assert set(variant.files) == {"model.onnx", "model.data"}
    assert "joined" not in variant.options


def test_tensors_go_with_all_files_that_have_them() -> None:
    """Four files; a tensor in all, one in two of them, one in one."""

    class Variant:
        def __init__(self, tensors: dict[str, list[tuple[int, int]]]) -> None:
            self.artifact = type("Artifact", (), {"tensors": tensors})()

    random = np.random.default_rng(0)
    common, pair, own = (random.integers(0, 256, 5000).astype(np.uint8).tobytes() for _ in range(3))
    contents = [common + bytes(100) + pair, pair + common, b"head" + common, own]
    places = [[(0, 5000), (5100, 5000)], [(0, 5000), (5000, 5000)], [(4, 5000)], [(0, 5000)]]
    rows: list[dict[str, Any]] = [{"files": {"f": f"a/{index}"}, "options": {}} for index in range(4)]
    entries: dict[str, Content] = {f"a/{index}": content for index, content in enumerate(contents)}
    variants: list[Any] = [Variant({"f": ranges}) for ranges in places]
    share_tensors(variants, rows, entries)
    names = {hashlib.sha256(content).hexdigest()[:16] for content in (common, pair)}
    assert set(entries) == {"a/2.rest", "a/3", *(f"weights/{name}" for name in names)}
    assert rows[3] == {"files": {"f": "a/3"}, "options": {}}
    for content, row in zip(contents[:3], rows, strict=False):
        whole = bytearray(row["options"]["joined"]["f"]["size"])
        for part, ranges in row["options"]["joined"]["f"]["parts"].items():
            stored, position = bytes(entries[row["files"][part]]), 0
            for offset, size in ranges:
                whole[offset : offset + size] = stored[position : position + size]
                position += size
        assert bytes(whole) == content


@pytest.mark.parametrize("ranges", [[[0, 8], [0, 1]], [[0, 9], [0, -1]]])
def test_ranges_longer_than_the_file_are_refused(ranges: list[list[int]]) -> None:
    """A package's author may write any: each may be the whole file once more."""
    joined = {"model.data": {"size": 8, "parts": {"a": ranges}}}
    with pytest.raises(ValueError, match="longer than its file"):
        joined_files.part_content(joined, "a", lambda name: bytes(8))
