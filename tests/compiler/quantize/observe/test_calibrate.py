from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from edgekit.compiler.evaluate.samples import FileSamples, Sample, load_samples, sample_digest
from edgekit.compiler.model.onnx_file import open_model, signature
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.passes import run_passes
from edgekit.compiler.quantize.numerics import channel_affine, choose_range
from edgekit.compiler.quantize.observe import calibrate, observation_cache
from edgekit.compiler.quantize.observe.calibrate import graph_digest, observe, refuse_without_samples, split
from edgekit.compiler.quantize.observe.observers import Observation
from edgekit.errors import ModelError, SampleError
from tests.fixtures.models import SMALL_CNN, write

NO_SAMPLES = (
    "int8 needs calibration samples: add --samples (samples= in Python) with 64 to 128 typical inputs"
)


def _images(count: int, shape: tuple[int, ...] = (1, 3, 16, 16)) -> list[Sample]:
    return [
        {"image": np.random.default_rng(i).standard_normal(shape).astype(np.float32)} for i in range(count)
    ]


def _model(folder: Path, text: str = SMALL_CNN) -> ir.Model:
    model = open_model(write(folder, text))
    run_passes(model)
    return model


def _digests(samples: Sequence[Sample]) -> list[str]:
    return [sample_digest(sample) for sample in samples]


def _same(one: dict[str, Observation], other: dict[str, Observation]) -> bool:
    return list(one) == list(other) and all(
        np.array_equal(getattr(one[name], part), getattr(other[name], part))
        for name in one
        for part in ("low", "high", "sample", "axis", "count")
    )


@pytest.mark.parametrize(
    ("count", "parts", "shared"),
    [
        (1, (1, 1, 1), ("choose", "prove")),
        (2, (1, 1, 1), ("choose",)),
        (3, (2, 2, 1), ("choose",)),
        (4, (2, 1, 1), ()),
        (6, (3, 1, 2), ()),
        (64, (29, 14, 21), ()),
        (128, (57, 28, 43), ()),
        (192, (57, 28, 107), ()),
    ],
)
def test_split(count: int, parts: tuple[int, int, int], shared: tuple[str, ...]) -> None:
    found = split(_images(count))
    assert (len(found.calibration), len(found.validation), len(found.test)) == parts
    assert found.shared == shared
    groups = [_digests(part) for part in (found.calibration, found.validation, found.test)]
    if not shared:
        assert sorted(digest for group in groups for digest in group) == sorted(_digests(_images(count)))


def test_split_does_not_depend_on_the_order() -> None:
    images = _images(20)
    shuffled = [images[i] for i in np.random.default_rng(0).permutation(20)]
    one, other = split(images), split(shuffled)
    for part in ("calibration", "validation", "test"):
        assert _digests(getattr(one, part)) == _digests(getattr(other, part))


def test_a_sample_that_is_given_twice_is_on_one_side() -> None:
    images = _images(12)
    once, twice = split(images), split(images + images[::-1])
    for part in ("calibration", "validation", "test"):
        assert _digests(getattr(once, part)) == _digests(getattr(twice, part))


def test_split_leaves_files_in_their_files(tmp_path: Path) -> None:
    model = _model(tmp_path)
    for index, image in enumerate(_images(7)):
        np.save(tmp_path / f"{index}.npy", image["image"])
    samples = load_samples(str(tmp_path / "*.npy"), signature(model)[0])
    found = split(samples.arrays)
    assert isinstance(found.calibration, FileSamples)
    assert isinstance(found.test, FileSamples)
    assert _digests(found.calibration) == _digests(split(_images(7)).calibration)


@pytest.mark.parametrize("samples", [None, [], ()])
def test_quantizing_needs_samples(samples: Sequence[Sample] | None) -> None:
    with pytest.raises(SampleError) as error:
        refuse_without_samples(samples)
    assert str(error.value) == NO_SAMPLES


@pytest.mark.needs_ort
def test_no_samples_for_split_and_observe(tmp_path: Path) -> None:
    for call in (lambda: split([]), lambda: observe(_model(tmp_path), [])):
        with pytest.raises(SampleError) as error:
            call()
        assert str(error.value) == NO_SAMPLES


@pytest.mark.needs_ort
def test_every_float_value_is_observed(tmp_path: Path) -> None:
    model, images = _model(tmp_path), _images(3)
    seen = observe(model, images)
    names = ["image", *(str(v.name) for node in model.graph for v in node.outputs)]
    assert list(seen) == names
    assert len(names) > 4
    outputs = {"scores", "features"}
    reference = Reference(model, intermediate=[n for n in names[1:] if n not in outputs])
    truth = [{**image, **reference.run(image)} for image in images]
    for name, observation in seen.items():
        arrays = [t[name] for t in truth]
        axes = tuple(a for a in range(arrays[0].ndim) if a != 1)
        assert np.array_equal(observation.low, np.min([a.min(axes) for a in arrays], 0))
        assert np.array_equal(observation.high, np.max([a.max(axes) for a in arrays], 0))
        assert observation.axis == 1
        assert np.isin(observation.sample, np.concatenate([a.ravel() for a in arrays])).all()


@pytest.mark.needs_ort
def test_the_order_of_the_samples_is_no_matter(tmp_path: Path) -> None:
    model, images = _model(tmp_path), _images(9)
    one = observe(model, images)
    observation_cache.observations_folder().rename(tmp_path / "elsewhere")
    other = observe(model, [*images[::-1], images[4]])
    assert _same(one, other)
    assert observation_cache.observations_folder().is_dir()  # it was not the first answer that came back
    for name, observation in one.items():
        by, again = (choose_range(o, "l4", "int8", symmetric=False) for o in (observation, other[name]))
        assert (by.scale, by.zero_point) == (again.scale, again.zero_point)
        each, again = (channel_affine(o, "uint8") for o in (observation, other[name]))
        assert np.array_equal(each.scale, again.scale)


@pytest.mark.needs_ort
def test_observed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, images = _model(tmp_path), _images(4)
    calls: list[tuple[int, int]] = []
    first = observe(model, images, lambda done, total: calls.append((done, total)))
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]
    monkeypatch.setattr(calibrate, "Reference", None)
    assert _same(observe(model, images[::-1]), first)
    monkeypatch.undo()


@pytest.mark.needs_ort
def test_another_model_or_other_samples_are_observed_anew(tmp_path: Path) -> None:
    model, images = _model(tmp_path), _images(4)
    other = _model(tmp_path, SMALL_CNN.replace("0.1,0.2,-0.1,0", "0.1,0.2,-0.1,0.5"))
    assert graph_digest(model) == graph_digest(_model(tmp_path))
    assert graph_digest(model) != graph_digest(other)
    seen = observe(model, images)
    assert not _same(seen, observe(other, images))
    assert not _same(seen, observe(model, images[:3]))


@pytest.mark.needs_ort
def test_a_model_of_many_bytes_is_observed_in_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, images = _model(tmp_path), _images(4)
    whole = observe(model, images)
    observation_cache.observations_folder().rename(tmp_path / "elsewhere")
    monkeypatch.setattr(calibrate, "PASS_BYTES", 5000)
    calls: list[tuple[int, int]] = []
    assert _same(observe(model, images, lambda done, total: calls.append((done, total))), whole)
    assert calls[-1] == (12, 12)


MIXED = """
<ir_version: 8, opset_import: ["": 17]>
mixed (float[1,4] x, double[1,4] d, float16[1,4] h, int64[1] i) => (float[1,4] y, int64[1] k, double[1,4] e,
    float16[1,4] g)
{
    y = Log(x)
    k = Add(i, i)
    e = Add(d, d)
    g = Add(h, h)
}
"""


def _mixed(x: float = 1) -> Sample:
    return {
        "x": np.full((1, 4), x, np.float32),
        "d": np.full((1, 4), 2.0),
        "h": np.full((1, 4), 3, np.float16),
        "i": np.ones(1, np.int64),
    }


@pytest.mark.needs_ort
def test_integers_are_left_out_and_other_floats_are_taken(tmp_path: Path) -> None:
    seen = observe(_model(tmp_path, MIXED), [_mixed()])
    highs = {"x": 1, "d": 2, "h": 3, "y": 0, "e": 4, "g": 6}
    assert {name: float(o.high[0]) for name, o in seen.items()} == highs


@pytest.mark.needs_ort
@pytest.mark.parametrize(
    ("x", "kind", "message"),
    [
        (np.nan, SampleError, "sample 1: input x is not a number in places; leave such samples out"),
        (np.inf, SampleError, "sample 1: input x is infinite in places; leave such samples out"),
        (-1, ModelError, "value y of node {} (Log) is not a number on sample 1: such a model"),
        (0, ModelError, "value y of node {} (Log) is infinite on sample 1: such a model"),
    ],
)
def test_what_is_not_finite_is_named(tmp_path: Path, x: float, kind: type[Exception], message: str) -> None:
    model = _model(tmp_path, MIXED)
    with pytest.raises(kind) as error:
        observe(model, [_mixed(), _mixed(x)])
    assert str(error.value).startswith(message.format(next(iter(model.graph)).name))


@pytest.mark.needs_ort
def test_a_sample_in_a_file_is_called_by_its_file(tmp_path: Path) -> None:
    model = _model(tmp_path)
    for name, value in (("good", 1), ("bad", np.nan)):
        np.save(tmp_path / f"{name}.npy", np.full((1, 3, 16, 16), value, np.float32))
    samples = load_samples(str(tmp_path / "*.npy"), signature(model)[0])
    with pytest.raises(SampleError) as error:
        observe(model, samples.arrays)
    path = tmp_path / "bad.npy"
    assert str(error.value) == f"{path}: input image is not a number in places; leave such samples out"


MASKED = """
<ir_version: 8, opset_import: ["": 17]>
masked (float[1,4] x) => (float[1,4] y)
{
    relu = Relu(x)
    mask = Log(relu)
    y = Softmax(mask)
}
"""


@pytest.mark.needs_ort
def test_an_infinity_inside_is_left_out(tmp_path: Path) -> None:
    model = _model(tmp_path, MASKED)
    samples = [{"x": np.array([[1, 2, third, 3]], np.float32)} for third in (0, 1)]
    seen = observe(model, samples)
    assert list(seen) == ["x", "relu", "y"]


@pytest.mark.needs_ort
@pytest.mark.needs_shared
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="Linux tells a process's peak")
def test_memory_does_not_grow_with_the_photographs(shared: Path) -> None:
    """In a process of its own: twice the photographs take no more memory (they would take 130 MB)."""
    import subprocess
    import sys

    script = """
import sys
from pathlib import Path
from edgekit.processing import load_card
from edgekit.compiler.model.onnx_file import open_model, signature
from edgekit.compiler.passes import run_passes
from edgekit.compiler.quantize.observe.calibrate import observe
from edgekit.compiler.evaluate.samples import load_samples
shared, card, count = Path(sys.argv[1]), load_card(sys.argv[2]), int(sys.argv[3])
model = open_model(shared / "models/yolox_nano.onnx", card.shapes())
run_passes(model)
photographs = shared / "data/coco128/train/images"
samples = load_samples(photographs, signature(model)[0], card, limit=count)
assert len(observe(model, samples.arrays)) > 300
# Not ru_maxrss: that remembers the process which this one was forked from.
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
print(int(status["VmHWM"].split()[0]) // 1024)
"""
    card = Path(__file__).resolve().parents[4] / "samples/cards/yolox_nano.toml"
    peaks = []
    for count in (32, 64):
        command = [sys.executable, "-c", script, str(shared), str(card), str(count)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout))
    assert peaks[1] < peaks[0] + 40
    assert peaks[1] < 500
