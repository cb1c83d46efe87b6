"""A model package of an engine, such as ONNX Runtime: ``edgekit export BUNDLE --package DIR``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.bundle.advice import advised, p50_ms
from edgekit.bundle.speed_order import fastest_first
from edgekit.errors import UsageError
from edgekit.release.export.export import export_title
from edgekit.target.model_packages import Written, package_targets, packages_of

if TYPE_CHECKING:
    from edgekit.bundle.bundle import Bundle


def export_package(bundle: Bundle, folder: Path) -> Written:
    """Write the variants that the engine runs, whole or not at all. The engine prefers the first one, which
    is the variant that the build advises.

    Raises:
        UsageError: no engine with packages has a variant, the folder exists, or it can't be written.
        MissingDependency: the engine is not installed, or too old.
        BundleError: an entry is damaged.
    """
    targets = [
        name for name in package_targets() if any(v.target == name for v in bundle.variants if v.usable)
    ]
    if not targets:
        names = " or ".join(package_targets())
        raise UsageError(f"{bundle.name} has no variant for {names}, whose engine has model packages")
    own = [variant for variant in bundle.variants if variant.target == targets[0]]
    chosen = [variant for variant in own if variant.usable and variant.shrunk is None]
    reasons = {v.name: "a smaller model" if v.usable else v.status for v in own if v not in chosen}
    times_ms = {v.name: time_ms for v in chosen if (time_ms := p50_ms(v)) is not None}
    ordered = list(dict.fromkeys(v.name for v in [*advised(chosen), *fastest_first(chosen, times_ms)]))
    if folder.exists():
        raise UsageError(f"{folder} already exists; choose another folder. Nothing was written")
    title = export_title(bundle.manifest["source"]["file"], "package").removesuffix("-package")
    try:
        folder.absolute().parent.mkdir(parents=True, exist_ok=True)
        module = packages_of(targets[0])
        module.write_package(bundle, [bundle[name] for name in ordered], title, folder.absolute())
    except OSError as problem:
        raise UsageError(
            f"can't write to {folder}: {problem.strerror}; choose another folder. Nothing was written"
        ) from None
    return Written([path for path in sorted(folder.rglob("*")) if path.is_file()], ordered, reasons)
