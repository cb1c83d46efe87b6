"""The file of a catalogue: models x targets x precisions x sample sets, as a list of builds.

docs/build-all.md specifies it. Paths in it are relative to its own folder.
"""

from __future__ import annotations

import contextlib
import glob
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgekit.batch.stored_files import is_url
from edgekit.compiler.pipeline.build_request import BuildRequest
from edgekit.errors import CardError, ProfileError, UsageError
from edgekit.system.declared_options import declared
from edgekit.system.formats.plain_text import shortened
from edgekit.system.formats.strict_tables import get, kind_of, load_toml, only, text_list, whole_numbers
from edgekit.system.size_range import as_range
from edgekit.target.installed_profiles import find_profile
from edgekit.target.precisions import FULL_PRECISION
from edgekit.tensor_spec import Json

BUILDS_LIMIT = 10_000
"""Most builds of one matrix: more are a slip."""
NAME_LIMIT = 200
"""Most characters in the name of a build: file systems take 255, with ".edgekit" and what a draft adds."""
AXES = ("model", "target", "precision", "samples")
OWN_KEYS = ("model", "targets", "precision", "samples", "card", "shapes")
"""Arguments of a build that a matrix has keys of its own for."""
OPTIONS: Mapping[str, type] = {
    spec.name: spec.kind
    for spec in declared(BuildRequest)
    if spec.name not in OWN_KEYS
    and not spec.option.python_only
    and spec.kind in (str, float, bool, int, list)
}
"""Keys of ``[options]`` with their types: arguments of ``edgekit.build``, the same for every build. A path is
none of them: it would be relative to the matrix."""


@dataclass(frozen=True)
class Model:
    """A model of the matrix.

    Attributes:
        name: Prefix of its bundles' names.
    """

    name: str
    source: str
    card: str | None = None
    shapes: Mapping[str, tuple[int, ...] | tuple[tuple[int, ...], ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class MatrixBuild:
    """One build of the matrix.

    Attributes:
        name: Name of the bundle without ``.edgekit``.
        precision: Requested precision, or that of the targets' profiles, for names and tables.
        requested: Value for ``edgekit.build``'s ``precision``.
        samples: Name of the sample set; "" for random samples.
        source: Path, glob or URL of the samples, or None.
        options: Other arguments of ``edgekit.build``.
    """

    name: str
    model: Model
    targets: tuple[str, ...]
    precision: str
    requested: str | None
    samples: str
    source: str | None
    options: Mapping[str, Json]


@dataclass(frozen=True)
class Matrix:
    """A catalogue's builds in their order, and the folder or URL that their bundles go to."""

    output: str
    builds: tuple[MatrixBuild, ...]


def read_matrix(path: Path) -> Matrix:
    """Read and check a matrix.

    Raises:
        UsageError: it is malformed, names a model that is not there, or two of its builds have one name.
        OSError: it can't be read.
    """
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not valid TOML: it is not UTF-8") from None
    table = load_toml(text, str(path), UsageError)
    try:
        return _parse(table, path)
    except CardError as problem:  # what the reader of tables raises
        raise UsageError(str(problem)) from None


def _parse(table: Mapping[str, Any], path: Path) -> Matrix:
    file, folder = str(path), path.parent
    only(table, ("output", "models", "targets", "precisions", "samples", "options", "leave_out"), file)
    output = get(table, "output", str, file) if "output" in table else path.stem
    models = _models(get(table, "models", list, file), file, folder)
    targets = [_target(entry, file) for entry in get(table, "targets", list, file)]
    precisions: Sequence[str | None] = [None]
    if "precisions" in table:
        precisions = text_list(table, "precisions", file)
    samples: dict[str, str | None] = {"": None}
    if "samples" in table:
        sources = get(table, "samples", dict, file)
        samples = {name: _located(get(sources, name, str, f"{file}: samples"), folder) for name in sources}
    if not (models and targets and precisions and samples):
        raise UsageError(f"{file} has nothing to build: add at least one of models, targets, precisions")
    options = _options(table, file)
    left_out = [_rule(rule, file) for rule in table.get("leave_out", [])]
    builds: dict[str, MatrixBuild] = {}
    files: dict[str, str] = {}
    for model, target, requested, name in itertools.product(models, targets, precisions, samples):
        precision = _own_precision(target) if requested is None else requested
        axes = (model.name, "+".join(target), precision, name)
        if any(all(rule.get(axis, value) == value for axis, value in zip(AXES, axes, strict=True))
               for rule in left_out):  # fmt: skip
            continue
        title = _title(axes, target, file)
        if title in builds:
            raise UsageError(f"{file} has two builds called {title}; give each of these models its own name")
        if (other := files.setdefault(title.lower(), title)) != title:
            raise UsageError(
                f"{file} has the builds {other} and {title}, which differ in case only; rename their "
                "models or samples"
            )
        builds[title] = MatrixBuild(
            title, model, target, precision, requested, name, samples[name], options
        )  # fmt: skip
        if len(builds) > BUILDS_LIMIT:
            raise UsageError(f"{file} has more than {BUILDS_LIMIT} builds; split it into several matrices")
    if not builds:
        raise UsageError(f"{file} leaves out every build; check leave_out")
    return Matrix(_located(output, folder), tuple(builds.values()))


def _own_precision(targets: Sequence[str]) -> str:
    names = []
    for target in targets:
        with contextlib.suppress(ProfileError):  # one of its builds says so
            names.append(find_profile(target).own_precision)
    return "+".join(dict.fromkeys(names)) or FULL_PRECISION


def _title(axes: Sequence[str], target: Sequence[str], location: str) -> str:
    """Return the name of a build and of its file, in the characters of file names. If it is too long, it has
    the first of several targets and the number of the others."""
    model, targets, precision, samples = axes
    parts = [model, targets, _plain(precision), samples and _plain(samples)]
    if len("-".join(parts)) > NAME_LIMIT and target[1:]:
        parts[1] = f"{target[0]}+{len(target) - 1}"
    title = "-".join(filter(None, parts))
    if len(title) > NAME_LIMIT:
        raise UsageError(
            f"{location}: {shortened(title)} is a name of {len(title)} characters; the limit for a file name "
            f"is {NAME_LIMIT}: give its model or its samples a shorter name"
        )
    return title


def _models(entries: Sequence[Any], location: str, folder: Path) -> list[Model]:
    models: list[Model] = []
    for number, entry in enumerate(entries):
        entry_label = f"{location}: models[{number}]"
        if isinstance(entry, str):
            models += [Model(_plain(_stem(source)), source) for source in _files(entry, entry_label, folder)]
            continue
        only(entry, ("file", "name", "card", "shapes"), entry_label)
        sources = list(_files(get(entry, "file", str, entry_label), entry_label, folder))
        if "name" in entry and len(sources) > 1:
            raise UsageError(f"{entry_label}: one name is given for {len(sources)} models; leave name out")
        name = get(entry, "name", str, entry_label) if "name" in entry else ""
        if "name" in entry and _plain(name) != name:
            wrong = f"{entry_label}.name is {shortened(name)!r}"
            raise UsageError(f"{wrong}; it may have letters, digits, '.', '_' and '-' between them")
        card = _located(get(entry, "card", str, entry_label), folder) if "card" in entry else None
        table = get(entry, "shapes", dict, entry_label) if "shapes" in entry else {}
        shapes = {key: _shapes(table, key, f"{entry_label}: shapes") for key in table}
        models += [Model(name or _plain(_stem(source)), source, card, shapes) for source in sources]
    return models


def _shapes(table: Mapping[str, Any], name: str, location: str) -> tuple[Any, ...]:
    value = table[name]
    if isinstance(value, list) and any(as_range(size) is not None for size in value):
        whole_numbers({name: [size for size in value if as_range(size) is None]}, name, location, minimum=1)
        return tuple(value)
    if not isinstance(value, list) or not any(isinstance(entry, list) for entry in value):
        return whole_numbers(table, name, location, minimum=1)
    places = {f"{name}[{number}]": entry for number, entry in enumerate(value)}
    return tuple(whole_numbers(places, entry, location, minimum=1) for entry in places)


def _files(source: str, location: str, folder: Path) -> Iterator[str]:
    """Yield the model files of an entry: the file itself, or those that match its pattern."""
    located = _located(source, folder)
    if is_url(located) or not glob.has_magic(located) or Path(located).exists():
        if not is_url(located) and not Path(located).exists():
            raise UsageError(f"{location}: {located} does not exist")
        yield located
        return
    matches = sorted(glob.glob(located, recursive=True))
    if not matches:
        raise UsageError(f"{location}: nothing matches {located}")
    yield from matches


def _target(entry: Any, location: str) -> tuple[str, ...]:
    if isinstance(entry, str):
        return (entry,)
    if isinstance(entry, list) and entry and all(isinstance(one, str) for one in entry):
        return tuple(entry)
    raise UsageError(
        f"{location}: targets contains {kind_of(entry)}; it must contain strings and lists of strings"
    )


def _options(table: Mapping[str, Any], location: str) -> dict[str, Json]:
    options = get(table, "options", dict, location) if "options" in table else {}
    only(options, list(OPTIONS), f"{location}: options")
    return {name: get(options, name, OPTIONS[name], f"{location}: options") for name in options}


def _rule(rule: Any, location: str) -> dict[str, str]:
    only(rule, AXES, f"{location}: leave_out")
    if not rule:
        raise UsageError(f"{location}: leave_out has an empty rule; it would leave out everything")
    return {axis: get(rule, axis, str, f"{location}: leave_out") for axis in rule}


def _located(source: str, folder: Path) -> str:
    return source if is_url(source) else str(folder / source)


def _stem(source: str) -> str:
    """
    >>> _stem("s3://models/v2/detector.onnx"), _stem("models/smollm2/")
    ('detector', 'smollm2')
    """
    return Path(source.rstrip("/").rpartition("/")[2]).stem


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._-") or "model"
