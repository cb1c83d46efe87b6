"""Projects of apps that run a bundle by libedgekit: for Android Studio, Xcode and CMake.

DIR/
    README.md                       how to build it
    (the platform's files)          an app with one screen, or a program, that runs the model
    edgekit/ or EdgeKit/            the wrapper, and libedgekit's sources, which library.cpp includes
    (in the app) model.edgekit      the bundle, with the variants that the platform runs
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from edgekit._version import __version__
from edgekit.bundle.bundle import Bundle
from edgekit.errors import UsageError
from edgekit.native import build
from edgekit.native.support import LITERT, OPENVINO, ORT, described, predicts, runnable
from edgekit.processing.generation import is_generation
from edgekit.system.atomic_files import new_folder

CORE = ("include", "source")
MODEL = "model.edgekit"
LIBRARY = "library.cpp"
ENGINE = "  // runs variants for "
"""Ends a line of a build script that only bundles with such variants need."""


class Platform(NamedTuple):
    """Layout of a project.

    Attributes:
        copied: Folder or file of edgekit/native -> its place in the project.
        core: Folder for libedgekit's sources.
        included: Sources in that folder that library.cpp includes besides the core's.
        model: Folder for the bundle.
        next_step: Text on how to open or build the project; ``{folder}`` is its place.
    """

    targets: tuple[str, ...]
    copied: Mapping[str, str]
    core: str
    included: tuple[str, ...]
    model: str
    next_step: str


PLATFORMS: Mapping[str, Platform] = {
    "android": Platform(
        targets=(ORT, LITERT),
        copied={
            "kotlin/app": ".",
            "kotlin/wrapper": "edgekit/src/main/kotlin/org/edgekit",
            "kotlin/jni.cpp": "edgekit/src/main/cpp/jni.cpp",
            "cpp/edgekit": "edgekit/src/main/cpp",
        },
        core="edgekit/src/main/cpp",
        included=("jni.cpp",),
        model="app/src/main/assets",
        next_step="open {folder} in Android Studio and run it",
    ),
    "ios": Platform(
        targets=("coreml",),
        copied={"swift/app": ".", "swift/wrapper": "EdgeKit"},
        core="EdgeKit/Sources/CEdgeKit",
        included=(),
        model="App",
        next_step="open {folder}/App.xcodeproj in Xcode and run it",
    ),
    "cpp": Platform(
        targets=(ORT, LITERT, OPENVINO),
        copied={"cpp": "."},
        core="edgekit",
        included=(),
        model=".",
        next_step="cmake -S {folder} -B build && cmake --build build",
    ),
}


class Project(NamedTuple):
    """Written project.

    Attributes:
        notes: Limits of the app for this bundle, as sentences.
    """

    files: list[Path]
    variants: list[str]
    next_step: str
    notes: list[str]


def write_project(bundle: Bundle, platform: str, folder: Path, variant: str | None = None) -> Project:
    """Write the project, whole or not at all.

    Args:
        bundle: Bundle for the app.
        platform: One of PLATFORMS.
        folder: Destination; it must be missing or empty.
        variant: The only variant to include; None includes all that the platform runs.

    Raises:
        UsageError: no variant runs there, or the folder is not empty or cannot be written to.
        BundleError: an entry is damaged.
    """
    if is_generation(bundle.card):
        raise UsageError(
            f"{bundle.name} is a language model, which an app's libedgekit can't run; use edgekit.open in "
            "Python, or edgekit serve on another machine. Nothing was written"
        )
    layout = PLATFORMS[platform]
    variants = [v for v in runnable(bundle, layout.targets) if variant in (None, v.name)]
    chosen = [v.name for v in variants]
    if not chosen:
        targets = " or ".join(f"-t {target}" for target in layout.targets)
        named = f"variant {variant!r}" if variant else "variant"
        raise UsageError(
            f"{bundle.name} has no {named} that an app for {platform} runs; it has {described(bundle)}. "
            f"Build with {targets}. Nothing was written"
        )
    part = with_variants(bundle, chosen)
    with new_folder(folder) as root:
        for source, place in layout.copied.items():
            _copy(build.FOLDER / source, root / place)
        for file in root.rglob("*.gradle.kts"):
            file.write_text(with_engines(file.read_text("utf-8"), {v.target for v in variants}), "utf-8")
        core = root / layout.core
        for name in CORE:
            _copy(build.FOLDER / name, core / name)
        (core / LIBRARY).write_text(library_source(layout.included), "utf-8")
        (root / layout.model).mkdir(parents=True, exist_ok=True)
        part.save(root / layout.model / MODEL)
        names = sorted(path.relative_to(root) for path in root.rglob("*") if path.is_file())
    next_step = layout.next_step.format(folder=folder)
    return Project([folder / name for name in names], chosen, next_step, _notes(bundle, chosen))


def library_source(included: Sequence[str] = ()) -> str:
    """Return C++ that includes the library's sources, for compilers of other build systems."""
    lines = [
        "// libedgekit as one translation unit.",
        f'#define LIBRARY_VERSION "{__version__}"',
        "#if defined(__clang__)",
        "#pragma clang fp contract(off)  // a fused multiply-add rounds once where Python rounds twice",
        "#endif",
    ]
    return "\n".join([*lines, build.translation_unit(*included)])


def with_engines(script: str, targets: Collection[str]) -> str:
    """Return a build script without the dependencies of engines for other targets."""
    lines = script.splitlines(keepends=True)
    return "".join(line for line in lines if ENGINE not in line or line.split(ENGINE)[1].strip() in targets)


def with_variants(bundle: Bundle, names: Sequence[str]) -> Bundle:
    """Return the bundle with some of its variants. Its digest is another one, and it is not signed.

    Raises:
        BundleError: an entry is damaged.
    """
    files = {variant.name: set(variant.files.values()) for variant in bundle.variants}
    unused = set[str]().union(*files.values()).difference(*(files[name] for name in names))
    listed = [entry["name"] for entry in bundle.manifest["entries"]]
    entries = {name: bytes(bundle.read(name)) for name in listed if name not in unused}
    rows = [row for row in bundle.manifest["variants"] if row["name"] in names]
    return Bundle.create({**bundle.manifest, "variants": rows}, entries)


def _copy(source: Path, place: Path) -> None:
    if source.is_file():
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, place)
        return
    ignored = shutil.ignore_patterns("__pycache__", ".*")
    shutil.copytree(source, place, ignore=ignored, copy_function=shutil.copyfile, dirs_exist_ok=True)


def _notes(bundle: Bundle, chosen: Sequence[str]) -> list[str]:
    others = [variant.name for variant in bundle.variants if variant.usable and variant.name not in chosen]
    notes = [f"not in the app: {', '.join(others)}"] if others else []
    kind = predicts(bundle)
    if not kind:
        notes.append("the card's inputs or task are not those of libedgekit: call run with arrays")
    elif kind == "audio":
        notes.append("the app's screen takes photos, and the card a sound: call listen with samples")
    return notes
