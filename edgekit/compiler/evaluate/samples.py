"""Samples: inputs for calibration, verification and golden vectors.

A sample is a dict of arrays by input name, in the source model's dtypes, shapes and layouts. Sources:

- a folder (``folder/**``: and all below it) or a glob of ``.npz`` (arrays by input name), ``.npy`` (one
  input) or, with a card, pictures, sounds, texts (one a line) and videos, of which frames are taken evenly;
- Python: a sequence of such dicts;
- none: seeded random inputs within the ranges that the card declares or the graph gives.

Files are read on demand: a thousand photographs take the memory of a few (``FileSamples``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias, TypeVar, overload

import numpy as np

from edgekit.compiler.evaluate.array_files import misfit, read_arrays
from edgekit.compiler.evaluate.prepared_files import (
    kind_of_file,
    prepared_suffixes,
    random_prepared,
    read_prepared,
)
from edgekit.compiler.evaluate.random_samples import RANDOM_COUNT, random_arrays, range_notes, sample_ranges
from edgekit.compiler.evaluate.sample_files import find_files, unread_media
from edgekit.compiler.evaluate.text_files import TEXTS, is_line, text_lines
from edgekit.compiler.evaluate.video_files import VIDEOS, is_frame, video_frames
from edgekit.compiler.model.input_range import InputRange
from edgekit.errors import SampleError
from edgekit.processing.card import Card
from edgekit.processing.picture_files import PICTURES, read_picture
from edgekit.system.progress import counted
from edgekit.tensor_spec import Array, Json, TensorSpec

__all__ = [
    "PICTURES", "RANDOM_COUNT", "FileSamples", "Sample", "Samples", "load_into_memory", "load_samples",
    "random_samples", "read_files", "read_picture", "read_sample", "sample_digest", "sample_digests",
    "sample_name", "spread", "subset",
]  # fmt: skip

CACHED_BYTES = 64 * 2**20
"""Bytes of samples from files that are cached in memory; the others are read again."""

T = TypeVar("T")
Sample = Mapping[str, Array]
SampleSource: TypeAlias = "str | Path | Sequence[Sample | Array] | Sample | Array | None"


class FileSamples(Sequence[Sample]):
    """Sample files, read on demand; created by :func:`read_files`.

    Every file was read and checked once before. The first ``CACHED_BYTES`` stay in memory.

    Attributes:
        digests: The :func:`sample_digest` of each sample.
        paths: The file of each sample.

    Raises:
        SampleError: on access, if the file is missing or has changed.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        inputs: Sequence[TensorSpec],
        card: Card | None,
        digests: Sequence[str],
        cached: Mapping[Path, Sample],
    ) -> None:
        self.digests = tuple(digests)
        self.paths, self._inputs, self._card, self._cached = tuple(paths), tuple(inputs), card, cached

    def __len__(self) -> int:
        return len(self.paths)

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> FileSamples: ...
    def __getitem__(self, index: int | slice) -> Sample | FileSamples:
        if isinstance(index, slice):
            return self.select(range(len(self))[index])
        path = self.paths[index]
        if path in self._cached:
            return self._cached[path]
        sample = _checked(read_sample(path, self._inputs, self._card), self._inputs, str(path))
        if sample_digest(sample) != self.digests[index]:
            raise SampleError(f"{path} changed during the build; run it again without changing the samples")
        return sample

    def select(self, indices: Iterable[int]) -> FileSamples:
        chosen = list(indices)
        return FileSamples(
            [self.paths[i] for i in chosen],
            self._inputs,
            self._card,
            [self.digests[i] for i in chosen],
            self._cached,
        )


@dataclass(frozen=True)
class Samples:
    """Samples with their origin.

    Attributes:
        arrays: One dict of arrays by input name for each sample; :class:`FileSamples` for files.
        origin: Description for the report, e.g. ``128 files`` or ``2 seeded random inputs``.
        digest: sha256 over names, dtypes, shapes and bytes.
        ranges: Ranges of random values, by input, if the graph gave them or they are a guess.
    """

    arrays: Sequence[Sample]
    origin: str
    digest: str
    ranges: Mapping[str, InputRange] = field(default_factory=dict)

    def as_json(self) -> dict[str, Json]:
        table: dict[str, Json] = {"count": len(self.arrays), "origin": self.origin, "sha256": self.digest}
        ranges = {name: input_range.as_json() for name, input_range in self.ranges.items()}
        return {**table, "ranges": ranges} if ranges else table


def load_samples(
    source: SampleSource,
    inputs: Sequence[TensorSpec],
    card: Card | None = None,
    limit: int | None = None,
    graph_ranges: Mapping[str, InputRange] = MappingProxyType({}),
) -> Samples:
    """Load samples for a model with these inputs.

    Args:
        source: A path or glob, samples in memory, or None for random samples. Arrays alone are for a model's
            only input: a list of them, or one with the samples along its first axis.
        card: Card with the preparation of pictures and sounds, and the ranges of random inputs.
        limit: Maximum number of samples to load, evenly spread; None for all.
    """
    if source is None:
        return random_samples(inputs, card, graph_ranges=graph_ranges)
    if not isinstance(source, str | Path):
        source = _named(source, inputs)
        chosen = spread(source, limit)
        if not chosen:
            raise SampleError("samples is empty; pass at least one, or None for random samples")
        arrays = [_checked(sample, inputs, f"sample {i}") for i, sample in enumerate(chosen)]
        return Samples(arrays, f"{_part(len(arrays), len(source))} samples given", _digest(arrays))
    found_files: list[Path] = []
    suffixes = (".npz", ".npy", *prepared_suffixes(card), *VIDEOS)
    for path in find_files(str(source), suffixes):
        suffix = path.suffix.lower()
        if suffix in VIDEOS:
            found_files += video_frames(path, limit)
        elif suffix in TEXTS and card is not None:
            found_files += text_lines(path)
        else:
            found_files.append(path)
    chosen_files = spread(found_files, limit)
    samples = read_files(chosen_files, inputs, card)
    return replace(samples, origin=_origin(chosen_files, found_files, unread_media(str(source), suffixes)))


def _named(source: Sequence[Sample | Array] | Sample | Array, inputs: Sequence[TensorSpec]) -> list[Sample]:
    """Return samples in memory as dicts by input name; floats of another width are converted."""
    if isinstance(source, Mapping):
        return [source]
    if hasattr(source, "__array__") and np.shape(source) == inputs[0].shape:
        source = [np.asarray(source)]
    return [item if isinstance(item, Mapping) else {inputs[0].name: _fitted(item, inputs)} for item in source]


def _fitted(item: Array, inputs: Sequence[TensorSpec]) -> Array:
    """Return an array in the shape and float width of the only input. One that does not fit stays as it is,
    for the error that says so."""
    array, spec = np.asarray(item), inputs[0]
    if len(inputs) > 1:
        names = _list(spec.name for spec in inputs)
        raise SampleError(
            f"samples are arrays, but the model has the inputs {names}; pass dicts by input name"
        )
    if array.dtype.kind == "f":
        array = array.astype(spec.dtype) if np.dtype(spec.dtype).kind == "f" else array
    return array.reshape(spec.shape) if array.size == np.prod(spec.shape, dtype=int) else array


def read_files(paths: Sequence[Path], inputs: Sequence[TensorSpec], card: Card | None) -> Samples:
    """Read each file once, check it and compute its digest."""
    whole = hashlib.sha256()
    digests: list[str] = []
    cached: dict[Path, Sample] = {}
    budget = CACHED_BYTES
    for path in counted(paths, "samples", name="reading"):
        sample = _checked(read_sample(path, inputs, card), inputs, str(path))
        _update(whole, sample)
        digests.append(sample_digest(sample))
        size = sum(array.nbytes for array in sample.values())
        if size <= budget and path not in cached:
            cached[path] = sample
            budget -= size
    samples = FileSamples(paths, inputs, card, digests, cached)
    return Samples(samples, _origin(paths), whole.hexdigest())


def _origin(paths: Sequence[Path], available: Sequence[Path] = (), unread: Sequence[str] = ()) -> str:
    """Describe the origin: ``8 files``, ``8 frames`` of videos, or both.

    Args:
        available: The samples that they were chosen from: ``128 of 5000 files``. Frames have no total: those
            of a video are chosen when it is opened.
        unread: Suffixes of pictures, sounds and videos in the folder that cannot be read.
    """
    frames, files = sum(map(is_frame, paths)), [path for path in available if not is_frame(path)]
    count = len(paths) - frames
    counted = (("frame", frames, str(frames)), ("file", count, _part(count, len(files))))
    origin = " and ".join(f"{text} {unit}{'s' if text != '1' else ''}" for unit, n, text in counted if n)
    return f"{origin} ({', '.join(unread)}: not read)" if unread else origin


def _part(count: int, available: int) -> str:
    """Return ``8``, or ``8 of 20`` where fewer were taken than there are."""
    return f"{count} of {available}" if count < available else str(count)


def random_samples(
    inputs: Sequence[TensorSpec],
    card: Card | None = None,
    graph_ranges: Mapping[str, InputRange] = MappingProxyType({}),
) -> Samples:
    """Return seeded random inputs within the ranges of the card, the graph or the dtype (random_samples.py).

    Args:
        card: Card whose ranges have priority.
    """
    ranges = sample_ranges(inputs, card, graph_ranges)
    arrays = random_arrays(inputs, ranges)
    for index, sample in enumerate(arrays):
        prepared = random_prepared(card, inputs, [0, index])
        sample.update(prepared)
        ranges = {name: input_range for name, input_range in ranges.items() if name not in prepared}
    return Samples(arrays, f"{RANDOM_COUNT} seeded random inputs", _digest(arrays), range_notes(ranges))


def read_sample(
    path: Path, inputs: Sequence[TensorSpec], card: Card | None, *, skip_others: bool = False
) -> Sample:
    """Read one file as a sample.

    Args:
        inputs: The model's inputs; with ``skip_others`` the ones to read.
        skip_others: Whether an ``.npz`` may hold other arrays too, which are ignored.
    """
    if is_frame(path) or is_line(path):
        return read_prepared(path, inputs, card)
    if not path.is_file():
        raise SampleError(f"{path}: {'is not a file' if path.exists() else 'file not found'}")
    if path.suffix.lower() in (".npz", ".npy"):
        if path.suffix.lower() == ".npy" and len(inputs) > 1:
            names = _list(spec.name for spec in inputs)
            raise SampleError(
                f"{path} has one array, but the model has {len(inputs)} inputs ({names}); use .npz"
            )
        return read_arrays(path, inputs, skip_others=skip_others)
    if path.suffix.lower() in VIDEOS:
        raise SampleError(f"{path} is a video, but one picture is needed; only build --samples reads videos")
    if kind_of_file(path) is None:
        raise SampleError(f"{path} is not one of .npz, .npy, {', '.join(prepared_suffixes())}")
    return read_prepared(path, inputs, card)


def spread(items: Sequence[T], limit: int | None) -> list[T]:
    """Return at most ``limit`` of the items, evenly spread, including the first.

    >>> spread([0, 1, 2, 3, 4, 5], 3)
    [0, 2, 4]
    """
    if limit is None or len(items) <= limit:
        return list(items)
    return [items[i * len(items) // limit] for i in range(limit)]


def sample_digest(sample: Sample) -> str:
    """Compute the sha256 (hexadecimal) over the names, dtypes, shapes and bytes of one sample's arrays."""
    digest = hashlib.sha256()
    _update(digest, sample)
    return digest.hexdigest()


def sample_digests(samples: Sequence[Sample]) -> Sequence[str]:
    return samples.digests if isinstance(samples, FileSamples) else [sample_digest(s) for s in samples]


def sample_name(samples: Sequence[Sample], index: int) -> str:
    """Return the name of a sample in messages: its file, or its index."""
    return str(samples.paths[index]) if isinstance(samples, FileSamples) else f"sample {index}"


def subset(samples: Sequence[Sample], indices: Iterable[int]) -> Sequence[Sample]:
    return samples.select(indices) if isinstance(samples, FileSamples) else [samples[i] for i in indices]


def hold_one_value(samples: Iterable[Sample]) -> bool:
    """Return whether every array holds one and the same number throughout, e.g. 0. Such inputs or outputs
    cannot test a model. Iteration ends at the first sample that differs.

    >>> hold_one_value([{"x": np.zeros(3)}, {"x": np.zeros(3)}]), hold_one_value([{"x": np.arange(3)}])
    (True, False)
    """
    values: dict[str, Array] = {}
    for sample in samples:
        for name, array in sample.items():
            if array.size:
                value = values.setdefault(name, array.reshape(-1)[0])
                if not bool((array == value).all()):
                    return False
    return bool(values)


def need_variation(samples: Samples) -> None:
    if hold_one_value(samples.arrays):
        raise SampleError(
            f"{samples.origin}: all values are the same, so they are useless for calibration and tests; use "
            "64 to 128 typical inputs"
        )


def need_answers(origin: str, outputs: Iterable[Sample]) -> None:
    """Check that the source model does not return only NaN. Infinities are accepted.

    Raises:
        SampleError: every value of every output is NaN.
    """
    values = (array for sample in outputs for array in sample.values() if array.size)
    are_nan = [array.dtype.kind in "fc" and bool(np.isnan(array).all()) for array in values]
    if are_nan and all(are_nan):
        raise SampleError(
            f"{origin}: the source model's outputs are all NaN, so no variant can be compared with it; use "
            "typical inputs"
        )


def load_into_memory(samples: Sequence[Sample]) -> Sequence[Sample]:
    """Load the samples into memory for repeated use, if they fit into CACHED_BYTES.

    Reading a photograph takes as long as running a small network.
    """
    if not isinstance(samples, FileSamples):
        return samples
    size = sum(array.nbytes for array in samples[0].values())
    return list(samples) if size * len(samples) <= CACHED_BYTES else samples


def _checked(sample: Sample, inputs: Sequence[TensorSpec], location: str) -> Sample:
    names = {spec.name for spec in inputs}
    if set(sample) != names:
        raise SampleError(f"{location} has {_list(sample)}; the model's inputs are {_list(names)}")
    checked = {}
    for spec in inputs:
        array = np.asarray(sample[spec.name])
        if array.shape != spec.shape or array.dtype != np.dtype(spec.dtype):
            has = TensorSpec(spec.name, str(array.dtype), array.shape)
            raise misfit(location, has, spec)
        checked[spec.name] = np.ascontiguousarray(array).reshape(spec.shape)
    return checked


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


def _digest(arrays: Sequence[Sample]) -> str:
    digest = hashlib.sha256()
    for sample in arrays:
        _update(digest, sample)
    return digest.hexdigest()


def _update(digest: hashlib._Hash, sample: Sample) -> None:
    for name, array in sorted(sample.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).data)
