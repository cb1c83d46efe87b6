"""Packages sent to a device: EdgeKit itself, numpy and engines.

A device often has no network and no pip. So pip runs here, for the device's kind of processor, libc and
Python, and installs wheels into a folder, which is sent as one archive. The device unpacks it next to others
under ~/.cache/edgekit-device: nothing is installed into its system, and no special rights are needed.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from edgekit._version import __version__
from edgekit.devices.inventory import Inventory, normalized
from edgekit.errors import DeviceError, MissingDependency, ProfileError, need_package
from edgekit.system.atomic_files import private_folder, write_atomically
from edgekit.system.cache_folder import cache_folder
from edgekit.system.formats import strict_json

if TYPE_CHECKING:
    from packaging.requirements import Requirement

PIP_SECONDS = 900
KEPT_ARCHIVES = 8
NOT_NEEDED = ("edgekit-sdk", "click")
"""Requirements of EdgeKit that a measurement does not import."""
HAS_NO_WHEELS = {"tensorrt": "it comes with NVIDIA's JetPack", "coreml": "it is part of macOS"}
SAMPLES_LIMIT_BYTES = 1 << 30
"""Largest size of samples: they are packed in memory."""
OLDEST_GLIBC = 17
"""Minor version of manylinux2014's glibc. Wheels for older ones run too, but no engine has any."""


class Archive(NamedTuple):
    """A gzipped tar archive to be unpacked on the device.

    Attributes:
        digest: sha256 of the bytes.
        holds: Requested packages, e.g. ``onnxruntime 1.23.2``, without their own requirements.
    """

    content: bytes
    digest: str
    holds: tuple[str, ...]


class Samples(NamedTuple):
    """Samples with their labels.

    Attributes:
        folder: Path of the samples' folder in the archive.
        extras: Extras of EdgeKit that read them.
    """

    archive: Archive
    folder: str
    extras: tuple[str, ...] = ()


class MissingPackages(NamedTuple):
    """Requirements of a bundle's targets on a device.

    Attributes:
        missing: Requirements that the device does not meet, in pip's format.
        present: Distributions that the device has: name -> version.
        without: Target -> reason why it has no packages to send.
    """

    missing: tuple[str, ...]
    present: Mapping[str, str]
    without: Mapping[str, str]


def missing_packages(
    targets: Iterable[str], inventory: Inventory, extras: Sequence[str] = ()
) -> MissingPackages:
    """Compare what the targets' packages require with what the device has.

    A target's requirements are those of the extra that has its name, or, for a target of a third party, all
    of its distribution.

    Args:
        extras: Additional extras of EdgeKit.
    """
    environment = {
        "platform_machine": inventory.machine,
        "platform_system": inventory.system.partition(" ")[0],
        "sys_platform": inventory.system.partition(" ")[0].lower(),
        "python_version": ".".join(map(str, inventory.python[:2])),
        "python_full_version": inventory.python_text,
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "os_name": "posix",
    }
    missing: dict[str, None] = {}
    present: dict[str, str] = {}
    without: dict[str, str] = {}
    for target in sorted(set(targets)):
        try:
            requirements = _requirements(target)
        except ProfileError as unknown:
            without[target] = str(unknown)
            continue
        if target in HAS_NO_WHEELS:
            without[target] = HAS_NO_WHEELS[target]
        for requirement in requirements:
            marker = requirement.marker
            named = (target, *extras)
            if marker and not any(marker.evaluate({**environment, "extra": name}) for name in named):
                continue
            name = normalized(requirement.name)
            version = inventory.packages.get(name)
            if name in NOT_NEEDED:
                continue
            if version is not None and _meets(requirement, version):
                present[name] = version
            else:
                missing[f"{requirement.name}{requirement.specifier}"] = None
    return MissingPackages(tuple(missing), present, without)


def _requirements(target: str) -> list[Requirement]:
    with need_package("packaging", "finding what the device lacks", extra="devices"):
        from packaging.requirements import Requirement
    points = {point.name: point for point in metadata.entry_points(group="edgekit.runners")}
    point = points.get(target)
    if point is None or point.dist is None:
        raise ProfileError(f"unknown target {target!r}; available: {', '.join(sorted(points))}")
    return [Requirement(text) for text in point.dist.requires or ()]


def _meets(requirement: Requirement, version: str) -> bool:
    from packaging.version import InvalidVersion

    try:
        return requirement.specifier.contains(version, prereleases=True)
    except InvalidVersion:  # of a build by hand, or of a device that says anything
        return False


def packages_archive(packages: MissingPackages, inventory: Inventory, device: str) -> Archive | None:
    """Return the wheels of the missing packages, as pip installs them; None if nothing is missing.

    pip reads markers of a wheel's own requirements for this machine's Python and system, which is known of it
    (pip install --help, --platform). What was made once is kept in the cache folder.

    Raises:
        DeviceError: pip finds no wheels for the device, or can't reach an index.
        MissingDependency: pip is not installed here.
    """
    if not packages.missing:
        return None
    if find_spec("pip") is None:
        raise MissingDependency("pip", "bringing wheels to the device", "python -m ensurepip")
    host = {normalized(d.metadata["Name"]): d.version for d in metadata.distributions() if d.metadata["Name"]}
    likely = [f"{name}=={version}" for name, version in sorted({**host, **inventory.packages}.items())]
    facts = [*packages.missing, *_platforms(inventory), inventory.python_text]
    # First in the versions that figures of this machine are of, then in any that the device can have.
    keys = {_key([*facts, *constraints]): constraints for constraints in (likely, [])}
    cached = next((archive for key in keys if (archive := _cached_archive(key)) is not None), None)
    if cached is not None:
        return cached
    for key, constraints in keys.items():
        with tempfile.TemporaryDirectory(prefix="edgekit-wheels-") as temporary:
            folder = Path(temporary, "site")
            reason = _pip(folder, packages.missing, constraints, inventory, Path(temporary))
            if not reason:
                archive = _archive_of(folder, packages.missing)
                _keep(key, archive)
                return archive
    libc = " ".join(inventory.libc).strip() or "musl"
    raise DeviceError(
        f"{device} lacks {', '.join(packages.missing)}, and pip has no wheels for its CPython "
        f"{inventory.python_text} on {inventory.machine}, {libc}:\n"
        f"  {reason}\n"
        "  install them on the device, or give this machine access to a package index"
    )


def _archive_of(folder: Path, missing: Sequence[str]) -> Archive:
    missing_names = {normalized(re.split(r"[^A-Za-z0-9._-]", text, maxsplit=1)[0]) for text in missing}
    distributions = metadata.distributions(path=[str(folder)])
    versions = {normalized(d.metadata["Name"]): d.version for d in distributions}
    contents = [f"{name} {version}" for name, version in sorted(versions.items()) if name in missing_names]
    paths = sorted(p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    content = _archive((path.relative_to(folder).as_posix(), path) for path in paths)
    return Archive(content, hashlib.sha256(content).hexdigest(), tuple(contents))


def edgekit_archive(targets: Iterable[str]) -> Archive:
    """EdgeKit as it is here, and the packages of these targets, with their entry points."""
    points = [p for p in metadata.entry_points(group="edgekit.runners") if p.name in set(targets)]
    names = ["edgekit", *dict.fromkeys(point.value.partition(".")[0] for point in points)]
    files: list[tuple[str, Path | bytes]] = []
    for name in names:
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        root = Path(spec.origin).parent
        files += [
            (path.relative_to(root.parent).as_posix(), path)
            for path in sorted(root.rglob("*"))
            if path.is_file() and path.suffix in (".py", ".toml", ".json")
        ]
    about = f"edgekit_sdk-{__version__}.dist-info"
    runners = "".join(f"{point.name} = {point.value}\n" for point in points)
    files.append(
        (f"{about}/METADATA", f"Metadata-Version: 2.1\nName: edgekit-sdk\nVersion: {__version__}\n".encode())
    )
    files.append((f"{about}/entry_points.txt", f"[edgekit.runners]\n{runners}".encode()))
    content = _archive(files)
    return Archive(content, hashlib.sha256(content).hexdigest(), (f"edgekit-sdk {__version__}",))


def samples_archive(folder: Path, label_folders: Iterable[Path]) -> Samples:
    """Return the files of a folder of samples, and those of the folders of their labels, in the same places
    relative to each other.

    Raises:
        DeviceError: they have more than SAMPLES_LIMIT_BYTES.
    """
    folders = [folder.absolute(), *(one.absolute() for one in label_folders)]
    root = Path(os.path.commonpath([path.parent for path in folders]))
    paths = sorted({path for one in folders for path in one.rglob("*") if path.is_file()})
    total = sum(path.stat().st_size for path in paths)
    if total > SAMPLES_LIMIT_BYTES:
        raise DeviceError(
            f"{folder} and its labels have {total >> 20} MB, more than the {SAMPLES_LIMIT_BYTES >> 20} MB "
            "that are sent to a device; evaluate fewer samples"
        )
    content = _archive((path.relative_to(root).as_posix(), path) for path in paths)
    archive = Archive(content, hashlib.sha256(content).hexdigest(), (f"{len(paths)} files of samples",))
    return Samples(archive, folders[0].relative_to(root).as_posix())


def _pip(
    folder: Path, missing: Sequence[str], constraints: Sequence[str], inventory: Inventory, temporary: Path
) -> str:
    limits = temporary / "constraints.txt"
    limits.write_text("\n".join(constraints), "utf-8")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder)]
    command += ["--only-binary=:all:", "--implementation", "cp", "--no-compile", "--no-warn-conflicts"]
    command += ["--python-version", ".".join(map(str, inventory.python[:2])), "--constraint", str(limits)]
    command += [word for name in _platforms(inventory) for word in ("--platform", name)]
    try:
        done = subprocess.run(
            [*command, "--", *missing], capture_output=True, text=True, timeout=PIP_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"pip took more than {PIP_SECONDS} s"
    if done.returncode == 0:
        return ""
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    return (errors or done.stderr.splitlines() or ["pip gave no reason"])[-1]


def _platforms(inventory: Inventory) -> list[str]:
    """Return the platform tags of wheels that run on the device, the newest first (PEP 600, PEP 656)."""
    name, version = inventory.libc
    major, _, minor = version.partition(".")
    machine = inventory.machine
    if inventory.system.startswith("Darwin"):
        raise DeviceError("wheels are copied to Linux devices only; install the engines there with pip")
    if name != "glibc" or re.fullmatch(r"[0-9]{1,3}", minor, re.ASCII) is None:
        return [f"musllinux_1_{number}_{machine}" for number in range(2, 0, -1)]
    tags = [f"manylinux_{major}_{number}_{machine}" for number in range(int(minor), OLDEST_GLIBC - 1, -1)]
    return [*tags, f"manylinux2014_{machine}", f"linux_{machine}"]


def _archive(files: Iterable[tuple[str, Path | bytes]]) -> bytes:
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=5, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, source in files:
            content = source if isinstance(source, bytes) else source.read_bytes()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


# --- archives made before ----------------------------------------------------------------------------------


def _key(parts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _folder() -> Path:
    return cache_folder() / "device_packages"


def _cached_archive(key: str) -> Archive | None:
    try:
        about = strict_json.decode((_folder() / f"{key}.json").read_bytes(), "record", 1 << 20)
        content = (_folder() / f"{key}.tar.gz").read_bytes()
        holds = tuple(map(str, about["holds"]))
    except (OSError, ValueError, LookupError, TypeError):
        return None
    digest = hashlib.sha256(content).hexdigest()
    return Archive(content, digest, holds) if digest == about.get("sha256") else None


def _keep(key: str, archive: Archive) -> None:
    """Keep an archive. It is a matter of time alone: what can't be written is made again."""
    try:
        private_folder(_folder())
        write_atomically(_folder() / f"{key}.tar.gz", [archive.content], 0o600)
        row = {"sha256": archive.digest, "holds": list(archive.holds)}
        write_atomically(_folder() / f"{key}.json", [strict_json.encode(row)], 0o600)
        old = sorted(_folder().glob("*.tar.gz"), key=lambda path: path.stat().st_mtime)[:-KEPT_ARCHIVES]
        for path in old:
            path.unlink(missing_ok=True)
            path.with_name(path.name.replace(".tar.gz", ".json")).unlink(missing_ok=True)
    except OSError:
        pass
