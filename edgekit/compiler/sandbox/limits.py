"""Limits of a model's process: memory, time and files, derived from the model's size and the options.

A build raises the limits of memory and time by what its values need, once it knows their shapes
(edgekit/compiler/pipeline/memory_need.py). Memory is limited to ``MACHINE_SHARE`` of the machine's, time to
``MOST_SECONDS``.
"""

from __future__ import annotations

import contextlib
import glob
import math
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from edgekit.compiler.compress.training_length import training_length
from edgekit.compiler.evaluate.label_files.folder import label_folders
from edgekit.compiler.model.external_names import external_names
from edgekit.compiler.model.shape_sets import further_shapes, largest_shapes
from edgekit.compiler.quantize.search.measurement_cache import SHIPPED
from edgekit.compiler.toolchains.environment import MEMORY_BYTES, environments_of
from edgekit.errors import UsageError
from edgekit.system.cache_folder import cache_folder
from edgekit.system.confinement import DEVICES, Bounds
from edgekit.system.memory import all_memory_bytes
from edgekit.system.regular_file import followed, linked_files
from edgekit.target.precisions import FULL_PRECISION, precision_of

MEMORY_MB, SECONDS = "EDGEKIT_MEMORY_MB", "EDGEKIT_SECONDS"
"""Environment variables: the limits of a model's process, in place of those below."""
BYTES_BEYOND = 1_000_000_000
TIMES_MODEL = 16
"""Memory: so much, and so many times the model's file with its external data."""
TIMES_SHAPE = 4
"""And for each shorter length of a text encoder: it is opened, canonical, compiled and stored."""
TIMES_SHAPES = 100
"""And so many times the inputs whose shapes the caller gives: a detector's values at 960 x 960 take 65."""
FRAMEWORK_BYTES = 4_000_000_000
"""More for a file that its framework loads: PyTorch alone takes half of it to be imported."""
MACHINE_SHARE = 7 / 8
"""Maximum share of the memory of the machine or its control group that a limit takes by default."""
RESERVED_BYTES = 512 << 20
RESERVED_BYTES_A_CORE = 64 << 20
"""What engines reserve beyond what they touch: the stacks and heaps of their threads. Measured: 200 MB on two
cores."""
CHECK_SECONDS, BUILD_SECONDS = 300.0, 300.0
"""Of ``check``, and of ``build`` for each target. Measured on two cores: 2 s, and 7 s at 200 MB."""
SHRINK_SECONDS, MOMENTS_BYTES = 1800.0, 4_000_000_000
"""More to shrink a model, which keeps second moments of what its layers read. Measured: 80 s of
EfficientNet-Lite0."""
DISTIL_BYTES, DISTIL_EPOCHS_SECONDS = 10_000_000_000, 24 * 3600.0
"""More to train smaller models: PyTorch, samples, the values of a batch; and where epochs are given."""
TIMES_TRAINING = 6.0
"""Three smaller models, each with what is judged of it."""
SECONDS_A_MB = 10.0
"""More for each megabyte of the model."""
TIMES_BUDGET, SEARCH_SECONDS = 4, 180.0
"""More of the time limit of the int8 search, and what counts as its limit without one: its result is verified
and timed as well."""
FRAMEWORK_SECONDS = 2 * 1800.0
"""More for a file that its framework loads and runs (edgekit/compiler/importers/child_process.py)."""
MOST_SECONDS = 12 * 3600.0
"""Maximum to which a build raises its time limit. ViT-B with 128 samples for three targets claims 5 h."""
LINKS_LIMIT = 100_000
_OWN_FORMATS = (".onnx", ".tflite")


class ChildLimits(NamedTuple):
    """Limits of one child.

    Attributes:
        memory_bytes: Maximum memory of the child and its own children together, in bytes.
        most_memory_bytes: Maximum to which a build may raise ``memory_bytes`` by the shapes of its model.
        seconds: Time limit for its result, in seconds; time in which this process was stopped is not counted.
        most_seconds: Maximum to which a build may raise ``seconds`` by its model and its samples.
    """

    memory_bytes: int
    most_memory_bytes: int
    seconds: float
    most_seconds: float


def limits_of(verb: str, options: Mapping[str, Any]) -> ChildLimits:
    model = Path(options["model"])
    named = (options.get("draft"), options.get("reference"), *_adapters(options))
    others = [path for path in named if path]
    size = sum(_size_bytes(Path(path)) for path in (model, *others))
    memory = BYTES_BEYOND + TIMES_MODEL * size + TIMES_SHAPES * _shapes_bytes(options.get("shapes"))
    memory += 2 * _arrays_bytes(options)
    seconds = CHECK_SECONDS
    if verb == "build":
        further = len(options.get("lengths") or ()) + len(_further(options.get("shapes")))
        memory += TIMES_SHAPE * size * further
        seconds = BUILD_SECONDS * max(len(options["targets"]), 1) * (1 + further)
        seconds += TIMES_BUDGET * _budget_seconds(options)
    memory += MEMORY_BYTES * len(environments_of(options.get("targets") or ()))
    if verb == "shrink" or options.get("shrink"):
        memory += MOMENTS_BYTES
        seconds += SHRINK_SECONDS
    if options.get("distil"):
        memory += DISTIL_BYTES
        seconds += _distil_seconds(options)
    seconds += SECONDS_A_MB * size / 1e6
    if model.suffix.lower() not in _OWN_FORMATS:
        memory += FRAMEWORK_BYTES
        seconds += FRAMEWORK_SECONDS
    max_bytes = max(int(MACHINE_SHARE * all_memory_bytes()), BYTES_BEYOND)
    configured = int(_from_environment(MEMORY_MB) * 1e6)
    given_seconds, seconds = _from_environment(SECONDS), float(math.ceil(seconds))
    return ChildLimits(
        configured or min(memory, max_bytes),
        configured or max_bytes,
        given_seconds or seconds,
        given_seconds or max(seconds, MOST_SECONDS),
    )


def bounds_of(
    limits: ChildLimits, options: Mapping[str, Any], folder: Path, records: Path | None = None
) -> Bounds:
    """Return the bounds for the kernel. They are wide enough that the parent notices an excess first and
    reports it, and narrow enough that one call can't take the machine.

    Args:
        options: Options of the call; the child may read the files and folders that they name.
        folder: The child's own folder, which it may write to.
        records: Folder of the model's measurements, which the child may write to.
    """
    # The targets' compilers run in environments of their own, in children of the child.
    environments = environments_of(options.get("targets") or ())
    toolchains = [path for environment in environments for path in environment.reads()]
    reserved = RESERVED_BYTES + (os.cpu_count() or 1) * RESERVED_BYTES_A_CORE
    return Bounds(
        data_bytes=limits.memory_bytes + reserved,
        file_bytes=limits.memory_bytes,
        reads=[*_named_files(options), *toolchains, str(cache_folder() / SHIPPED)],
        writes=[str(folder), *([str(records)] if records else []), *_graphics()],
        most_data_bytes=limits.most_memory_bytes + reserved,
    )


def _from_environment(variable: str) -> float:
    text = os.environ.get(variable, "")
    if not text:
        return 0.0
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise UsageError(f"{variable} is {text!r}; set it to a positive number, or unset it")
    return value


def _budget_seconds(options: Mapping[str, Any]) -> float:
    budget = options.get("time_budget")
    if isinstance(budget, int | float) and budget > 0:  # a wrong one is refused by the child
        return float(budget)
    return 0.0 if precision_of(str(options.get("precision") or FULL_PRECISION)).is_float else SEARCH_SECONDS


def _distil_seconds(options: Mapping[str, Any]) -> float:
    """Return the time limit of all trainings in seconds; ``--shrink auto`` trains three models."""
    with contextlib.suppress(UsageError):  # a wrong one is refused by the child
        minutes = training_length(str(options["distil"])).minutes
        return TIMES_TRAINING * 60 * minutes if minutes is not None else DISTIL_EPOCHS_SECONDS
    return 0.0


def _size_bytes(model: Path) -> int:
    try:
        if model.is_dir():
            return sum(
                path.stat().st_size for path in islice(model.rglob("*"), LINKS_LIMIT) if path.is_file()
            )
        external = sum(_file_bytes(model.parent / name) for name in external_names(model))
        return model.stat().st_size + external
    except (OSError, ValueError):
        return 0


def model_files(options: Mapping[str, Any]) -> list[Path]:
    """Return files and folders of the model, its draft and its adapters, with external data."""
    files = [Path(path) for path in _adapters(options)]
    for key in ("model", "draft", "reference"):
        if options.get(key):
            model = Path(options[key])
            files.append(model)
            with contextlib.suppress(OSError, ValueError):
                files += [model.parent / name for name in sorted(external_names(model))]
    return files


def _file_bytes(path: Path) -> int:
    with contextlib.suppress(OSError, ValueError):
        facts = os.stat(followed(path), follow_symlinks=False)
        return facts.st_size if stat.S_ISREG(facts.st_mode) else 0
    return 0


def _shapes_bytes(shapes: object) -> int:
    with contextlib.suppress(TypeError, ValueError, OverflowError, UsageError):
        largest = largest_shapes(shapes).values() if isinstance(shapes, Mapping) else ()
        return min(sum(4 * math.prod(shape) for shape in largest), 1 << 40)
    return 0


def _adapters(options: Mapping[str, Any]) -> list[str]:
    adapters = options.get("adapters")
    return list(map(os.fspath, adapters.values())) if isinstance(adapters, Mapping) else []


def _further(shapes: object) -> list[dict[str, tuple[int, ...]]]:
    with contextlib.suppress(TypeError, UsageError):
        return further_shapes(shapes) if isinstance(shapes, Mapping) else []
    return []


def _arrays_bytes(options: Mapping[str, Any]) -> int:
    """Return the size of samples in memory, which are sent once; samples in files are read one by one."""
    samples = options.get("samples")
    rows = samples if isinstance(samples, list | tuple) else []
    arrays = [array for row in rows if isinstance(row, Mapping) for array in row.values()]
    return sum(int(getattr(array, "nbytes", 0)) for array in arrays)


def _named_files(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield the paths that options name: folders of model, card and samples, and targets of their links."""
    for path in _adapters(options):
        yield os.path.realpath(path)
        yield from linked_files(path)
    if os.path.isfile(template := options.get("chat_template") or ""):  # else the name of a format
        yield os.path.realpath(template)
    for key in ("model", "draft", "reference", "card", "samples"):
        if isinstance(options.get(key), str | os.PathLike):
            path = os.path.abspath(os.fspath(options[key]))
            while glob.has_magic(os.fsdecode(path)):
                path = os.path.dirname(path)
            folder = path if os.path.isdir(path) else os.path.dirname(path)
            yield os.path.realpath(folder)
            yield os.path.realpath(path)
            if key == "model" and os.path.basename(folder) == "onnx":  # config.json is beside it
                folder = os.path.dirname(folder)
                yield os.path.realpath(folder)
            yield from linked_files(folder)
            if key == "samples":
                labels = [str(path) for path in label_folders(Path(os.fsdecode(folder)))]
                yield from map(os.path.realpath, labels)
                for path in (folder, *labels):
                    yield from _linked(path)


def _linked(folder: str) -> set[str]:
    """Return folders that links below a folder lead into: data sets are often stored so."""
    folders: set[str] = set()
    entries: Iterable[Path] = islice(Path(folder).rglob("*"), LINKS_LIMIT)
    with contextlib.suppress(OSError):
        folders = {os.path.dirname(os.path.realpath(entry)) for entry in entries if entry.is_symlink()}
        folders |= {os.path.realpath(entry) for entry in Path(folder).iterdir() if entry.is_symlink()}
    return folders


def _graphics() -> list[str]:
    with contextlib.suppress(OSError):
        device_names = {os.path.basename(path) for path in DEVICES}
        names = [name for name in os.listdir("/dev") if name.startswith("nvidia")]
        return [f"/dev/{name}" for name in names if name not in device_names]
    return []
