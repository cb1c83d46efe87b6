"""Model packages of an engine: a folder with several variants of one model, which the engine chooses from.

A target that has them names a module in ``EngineInfo.model_packages``:

    is_package(path) -> bool                 whether a folder is one; it never raises
    read_package(path) -> ModelPackage       checks and reads it; raises ModelError
    has_digests(path) -> bool                whether its manifest has the digests of its files
    write_package(bundle, variants, name, folder)   writes one
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from edgekit.errors import SignatureError
from edgekit.target import registry
from edgekit.tensor_spec import Json

PROVIDER = "provider"
"""Option of a variant that came in a model package: ``ep`` and ``device`` that the package has it for."""


class PackagedVariant(NamedTuple):
    """A variant of a model package, with its files in memory.

    Attributes:
        name: Name in the package.
        files: Files of an artifact of the target, by the engine's names.
        options: Options of the target's runner.
        precision: Precision of the graph, whose limits apply.
        provider: Name of the processor or library that it was made for, e.g. ``CUDAExecutionProvider``.
        on_cpu: Whether that is the CPU.
        only_there: Reason that it runs only there, or "".
    """

    name: str
    files: Mapping[str, bytes]
    options: Mapping[str, Json]
    precision: str
    provider: str
    on_cpu: bool
    only_there: str = ""


class ModelPackage(NamedTuple):
    """A model package, checked.

    Attributes:
        name: Name that it gives itself, else the name of its folder.
        digest: sha256 of its manifest and of all files that were read, in hexadecimal.
        variants: In the order of the package.
        reference: Name of the variant that computes most exactly, on the CPU.
        bundle: Manifest and entries of the bundle that EdgeKit wrote it from, or None.
    """

    name: str
    digest: str
    variants: Sequence[PackagedVariant]
    reference: str
    bundle: tuple[Mapping[str, Json], Mapping[str, bytes]] | None = None


class Written(NamedTuple):
    """Result of writing a package.

    Attributes:
        files: Files that were written.
        variants: Names in the order of the package; the engine prefers the first.
        left_out: Name and reason of each variant that the package does not have.
    """

    files: Sequence[Path]
    variants: Sequence[str]
    left_out: Mapping[str, str]


def package_target(path: Path) -> str | None:
    """Return the target whose model package a folder is, or None. Never raises."""
    if not path.is_dir():
        return None
    return next((name for name in package_targets() if packages_of(name).is_package(path)), None)


def signed_file(path: Path) -> Path:
    """Return the file whose signature is that of a bundle or a package: a package's manifest has the digests
    of its other files."""
    return path / "manifest.json" if package_target(path) is not None else path


def need_digests(path: Path) -> None:
    """Check that the signature of a package covers its files.

    Raises:
        SignatureError: EdgeKit did not write the package.
    """
    target = package_target(path)
    if target is not None and not packages_of(target).has_digests(path):
        raise SignatureError(
            f"{path}: its manifest has no digests of its files, so a signature does not cover them; build it "
            f"(edgekit build {path}), and export the bundle with --package"
        )


def package_targets() -> list[str]:
    """Return the targets whose engines have model packages."""
    return [name for name in registry.target_names() if registry.engine(name).ENGINE.model_packages]


def packages_of(target: str) -> Any:
    """Return the module that reads and writes the packages of a target's engine."""
    return import_module(registry.engine(target).ENGINE.model_packages)
