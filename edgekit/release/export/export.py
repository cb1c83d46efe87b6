"""Raw export: a variant's engine files, for use without EdgeKit's runtime."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.bundle.joined_files import engine_files, read
from edgekit.errors import ProfileError, UsageError
from edgekit.system.atomic_files import write_atomically
from edgekit.target.shapes import largest_files

if TYPE_CHECKING:
    from edgekit.bundle.bundle import Bundle
    from edgekit.bundle.variant import Variant


README = ".README.txt"
TITLE_LIMIT_CHARS = 80
"""Of the model's name, and of the variant's, in the names of files."""


def export_variant(
    bundle: Bundle, name: str, folder: Path, *, metadata: bool = False, npus: Sequence[str] = ()
) -> list[Path]:
    """Write the files of the variant called ``name`` into ``folder``, which is made if absent.

    They are named by model and variant, so that several variants fit into one folder: ``model.tflite`` is
    written as ``yolox_nano-tflite-int8.tflite``. Where the engine's defaults compute something else than what
    was verified, a ``...README.txt`` beside them has the settings.

    Of a variant with several shapes they are those of the largest.

    ``metadata``: embed the card's contents, for an app without our runtime; coreml and tflite have it.
    ``npus``: chips, e.g. ``Qualcomm SM8650``, for whose NPUs the file is compiled too; tflite has it.

    Raises:
        UsageError: no such variant, it was rejected, a file of that name is there already, the folder can't
            be written to, or there is no such form; nothing is written.
        MissingDependency: an NPU's vendor's SDK is not installed; nothing is written.
        EngineError: the vendor's compiler fails; nothing is written.
        BundleError: an entry is damaged; nothing is written.
    """
    variants = {variant.name: variant for variant in bundle.variants}
    if name not in variants:
        raise UsageError(f"unknown variant {name!r}; available: {', '.join(variants)}")
    variant = variants[name]
    if not variant.files:
        raise UsageError(f"{name} has no files in the bundle: {variant.status}")
    names = largest_files(dict.fromkeys(engine_files(variant), ""))
    files = {file: read(bundle, variant, file) for file in names}
    if metadata:
        files = _for_apps(bundle, variant, files)
    if npus:
        files |= _for_npus(variant, files, npus)
    title = export_title(bundle.manifest["source"]["file"], name)
    files |= _extra_files(variant, files, title)
    names = {file: exported_name(file, title) for file in files}
    contents = {folder / names[file]: content for file, content in files.items()}
    readme = _plain_use(variant, names)
    if readme:
        contents[folder / f"{title}{README}"] = readme.encode("utf-8")
    # A package is a folder: what is in another one of that name would become a part of it.
    tops = dict.fromkeys(folder / path.relative_to(folder).parts[0] for path in contents)
    existing = [str(path) for path in tops if path.exists()]
    if existing:
        raise UsageError(f"{', '.join(existing)} already exists; choose another folder. Nothing was written")
    is_new = not folder.exists()
    written: list[Path] = []
    try:
        for path, content in contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, [content])
            written.append(path)
    except OSError as problem:
        for path in written:
            path.unlink()
        if is_new:
            shutil.rmtree(folder, ignore_errors=True)
        raise UsageError(
            f"can't write to {folder}: {problem.strerror}; choose another folder. Nothing was written"
        ) from None
    return written


def exported_name(file: str, title: str) -> str:
    """Return the name under which a file of an artifact is exported.

    >>> exported_name("model.tflite", "yolox-rpi5-int8"), exported_name("trt.json", "m-jetson-fp16")
    ('yolox-rpi5-int8.tflite', 'm-jetson-fp16.trt.json')
    >>> exported_name("model.mlpackage/Manifest.json", "m-coreml-fp16")
    'm-coreml-fp16.mlpackage/Manifest.json'
    """
    return f"{title}.{file.removeprefix('model.')}"


def export_title(source_file: str, variant: str) -> str:
    """Return model and variant as a safe part of a file name. A foreign bundle may hold any text in either.

    >>> export_title("models/yolox_nano.onnx", "rpi5-int8"), export_title("../a b.onnx", "../../c")
    ('yolox_nano-rpi5-int8', 'a_b-c')
    """
    stem = source_file.replace("\\", "/").rpartition("/")[2]
    parts = (stem.rpartition(".")[0] or stem, variant)
    plain = (re.sub(r"[^A-Za-z0-9._-]+", "_", part).strip("._-")[:TITLE_LIMIT_CHARS] for part in parts)
    return "-".join(part or "model" for part in plain)


def _plain_use(variant: Variant, names: Mapping[str, str]) -> str:
    from edgekit.target import registry

    try:
        module = registry.engine(variant.target).ENGINE.plain_use
    except ProfileError:  # a file of a target that only the building machine has
        return ""
    return str(import_module(module).plain_use(variant.options, names)) if module else ""


def _extra_files(variant: Variant, files: Mapping[str, bytes], title: str) -> dict[str, bytes]:
    from edgekit.target import registry

    try:
        module = registry.engine(variant.target).ENGINE.export_files
    except ProfileError:  # as in _plain_use
        return {}
    if not module:
        return {}
    exported = import_module(module).export_files(files, variant.options, variant.evidence, title)
    return dict(exported)


def _for_apps(bundle: Bundle, variant: Variant, files: dict[str, bytes]) -> dict[str, bytes]:
    from edgekit.processing.card import parse_card
    from edgekit.target import registry

    make = registry.compiler(variant.target).TARGET.app_files
    if make is None:
        raise UsageError(f"{variant.target} embeds no metadata; export {variant.name} without --metadata")
    if bundle.card is None:
        raise UsageError("the bundle has no card, which --metadata needs; build it with --card")
    return make(files, variant.options, parse_card(bundle.card), bundle.outputs)


def _for_npus(variant: Variant, files: Mapping[str, bytes], npus: Sequence[str]) -> dict[str, bytes]:
    from edgekit.target import registry

    compile_for = registry.compiler(variant.target).TARGET.npu_files
    if compile_for is None:
        raise UsageError(f"{variant.target} has no files for NPUs; export {variant.name} without --npu")
    return {name: content for chip in npus for name, content in compile_for(files, chip).items()}
