"""``edgekit model distil``: a pruned network learns from the whole one, stops, and goes on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import edgekit
from edgekit.compiler.model.onnx_file import save_model
from edgekit.compiler.model.reference import Reference
from edgekit.errors import SampleError, UnsupportedError, UsageError
from edgekit.runtime import Session
from edgekit.tensor_spec import Array
from tests.fixtures.command_line import Call, answer
from tests.fixtures.graphs import Graph
from tests.train.conftest import Digits
from tests.train.distillation import StopAt, accuracy, distilled

pytest.importorskip("torch")
pytestmark = pytest.mark.needs_ort


def test_digits_from_the_teacher_to_int8(digits_pair: Digits, tmp_path: Path) -> None:
    """Teacher .93, pruned to three tenths of its multiplications .71, distilled .86, int8 the same."""
    found = distilled(digits_pair, epochs=12, augment="crop,brightness")
    found.save(tmp_path / "student.onnx")
    runs = (digits_pair.teacher, digits_pair.student, tmp_path / "student.onnx")
    teacher, before, after = (accuracy(Reference(edgekit.open_model(path)).run) for path in runs)
    assert teacher > 0.88
    assert before < after - 0.08
    assert after > 0.87 * teacher
    assert found.better
    assert found.after.score.value > found.before.score.value + 0.05
    assert found.losses[-1] < 0.7 * found.losses[0]
    assert found.samples == {"training": 1152, "validation": 192, "test": 192}
    bundle = edgekit.build(
        tmp_path / "student.onnx", targets=["ort"], precision="int8", samples=digits_pair.samples[:96],
        card=digits_pair.card, force=True,
    )  # fmt: skip
    name = next(variant.name for variant in bundle.variants if "int8" in variant.precision)
    with Session(bundle, variant=name) as session:
        assert accuracy(session.run) > after - 0.04


def test_the_same_twice_and_another_seed(digits_pair: Digits) -> None:
    once, again, other = (distilled(digits_pair, seed=seed) for seed in (3, 3, 4))
    assert once.onnx == again.onnx
    assert once.onnx != other.onnx


def test_what_is_stopped_and_resumed_is_what_was_not_stopped(digits_pair: Digits, tmp_path: Path) -> None:
    checkpoint = tmp_path / "student.checkpoint"
    whole = distilled(digits_pair)
    part = distilled(digits_pair, checkpoint=checkpoint, progress=StopAt(9))
    assert not part.finished
    assert part.epochs == pytest.approx(8 / 18)
    assert "stopped, this is the best so far" in part.text()
    resumed = distilled(digits_pair, checkpoint=checkpoint, resume=True)
    assert resumed.finished
    assert resumed.onnx == whole.onnx != part.onnx


def test_a_learning_rate_that_is_too_high_is_lowered(
    digits_pair: Digits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless it was given. A training that begins again, and is stopped after that, is resumed."""
    given = distilled(digits_pair, learning_rate=1.0)
    assert not given.better
    monkeypatch.setattr("edgekit.compiler.pipeline.distil.LEARNING_RATE", 1.0)
    lowered = distilled(digits_pair, epochs=4)
    assert lowered.better
    assert lowered.losses[1] > lowered.losses[0] > lowered.losses[-1]
    checkpoint = tmp_path / "c"
    distilled(digits_pair, epochs=4, checkpoint=checkpoint, progress=StopAt(40))
    assert distilled(digits_pair, epochs=4, checkpoint=checkpoint, resume=True).onnx == lowered.onnx


def test_a_checkpoint_is_of_one_training(digits_pair: Digits, tmp_path: Path) -> None:
    checkpoint = tmp_path / "c"
    with pytest.raises(UsageError) as found:
        distilled(digits_pair, checkpoint=checkpoint, resume=True)
    assert str(found.value) == f"checkpoint {checkpoint} does not exist; start without --resume"
    distilled(digits_pair, checkpoint=checkpoint, progress=StopAt(3))
    with pytest.raises(UsageError) as found:
        distilled(digits_pair, checkpoint=checkpoint, resume=True, seed=1)
    assert str(found.value) == (
        f"{checkpoint} belongs to another training (teacher, student, samples or options differ); start "
        "without --resume"
    )
    checkpoint.write_bytes(checkpoint.read_bytes()[:-100])
    with pytest.raises(UsageError) as found:
        distilled(digits_pair, checkpoint=checkpoint, resume=True)
    assert (
        str(found.value)
        == f"{checkpoint} is not a checkpoint of edgekit model distil, or is damaged; delete it"
    )


def test_a_limit_in_minutes(digits_pair: Digits) -> None:
    """It ends by the time, whatever the epochs."""
    found = distilled(digits_pair, epochs=None, minutes=0.01)
    assert found.finished
    assert found.seconds >= 0.6
    assert found.epochs > 0


def test_outputs_that_are_no_classes(tmp_path: Path) -> None:
    """Two outputs, one of them of two parts of unlike scale; a student of other names; features."""

    def network(wide: int, seed: int, folder: Path) -> Path:
        graph = Graph({"x": [1, 3, 8, 8]}, seed=seed)
        hidden = graph("Relu", graph.conv("x", wide, 3, 3))
        boxes = graph("Mul", graph("Relu", graph.conv(hidden, 4, wide)), np.array(200, np.float32))
        scores = graph("Sigmoid", graph.conv(hidden, 2, wide))
        model = graph.model(folder, graph("Concat", boxes, scores, axis=1), graph.conv(hidden, 1, wide))
        path = folder / f"{wide}.onnx"
        path.write_bytes(save_model(model))
        return path

    rng = np.random.default_rng(0)
    samples: list[dict[str, Array]] = [
        {"x": rng.normal(0, 1, (1, 3, 8, 8)).astype(np.float32)} for _ in range(256)
    ]
    teacher = network(16, 0, tmp_path)
    for features in (False, True):
        found = edgekit.distil(
            teacher,
            student=network(12, 5, tmp_path),
            samples=samples,
            epochs=8,
            batch=8,
            threads=1,
            features=features,
        )
        assert found.better
        assert found.after.snr_db > found.before.snr_db + 3


def test_verb(digits_pair: Digits, tmp_path: Path, call: Call) -> None:
    for index, sample in enumerate(digits_pair.samples[:64]):
        np.save(tmp_path / f"{index}.npy", sample["x"])
    output = tmp_path / "student.onnx"
    words = (
        "model", "distil", digits_pair.teacher, "--student", digits_pair.student, "--samples",
        tmp_path / "*.npy", "--card", digits_pair.card, "-o", output, "--batch", "16", "--threads", "1",
        "--json",
    )  # fmt: skip
    done = call(*words, "--epochs", "4", "--force")
    found = answer(done)
    assert done.exit_code == 0
    assert found["onnx"] == str(output)
    assert found["augmentation"] == ["flip", "crop", "brightness"]
    assert found["samples"] == {"training": 48, "validation": 8, "test": 8}
    assert output.is_file()
    assert not output.with_name("student.onnx.checkpoint").exists()


def test_nothing_is_written_that_is_not_better(digits_pair: Digits, tmp_path: Path, call: Call) -> None:
    """The teacher as its own student."""
    for index, sample in enumerate(digits_pair.samples[:32]):
        np.save(tmp_path / f"{index}.npy", sample["x"])
    output = tmp_path / "student.onnx"
    done = call(
        "model", "distil", digits_pair.teacher, "--student", digits_pair.teacher, "--samples",
        tmp_path / "*.npy", "-o", output, "--epochs", "1", "--threads", "1",
    )  # fmt: skip
    assert done.exit_code == 1
    assert "not better than before" in done.stdout
    assert "nothing was written" in done.stdout
    assert not output.exists()


def test_what_is_refused(digits_pair: Digits, tmp_path: Path, call: Call) -> None:
    with pytest.raises(UsageError) as found:
        distilled(digits_pair, epochs=None)
    assert str(found.value) == "training needs a limit: set epochs, minutes or both"
    with pytest.raises(UsageError) as found:
        distilled(digits_pair, batch=0)
    assert str(found.value) == "batch is 0; it must be above 0"
    with pytest.raises(UsageError) as found:
        distilled(digits_pair, augment="blur")
    assert str(found.value) == "--augment blur: 'blur' is not one of none, flip, crop, brightness"
    with pytest.raises(UsageError) as found:
        distilled(digits_pair, augment="flip", card=None)
    assert str(found.value) == "--augment flip: needs a card that describes an image input"
    with pytest.raises(SampleError) as refused:
        edgekit.distil(
            digits_pair.teacher, student=digits_pair.student, samples=digits_pair.samples[:9], epochs=1
        )
    assert str(refused.value) == (
        "9 samples given: training needs 16 or more different samples, but has 9; hundreds to thousands "
        "are better (no labels needed)"
    )
    with pytest.raises(UsageError) as found:
        distilled(digits_pair, learning_rate=1e30)
    assert "lower the learning rate" in str(found.value)
    graph = Graph({"x": [1, 1, 16, 16]})
    other = tmp_path / "other.onnx"
    other.write_bytes(save_model(graph.model(tmp_path, graph("Flatten", graph("LRN", "x", size=3)))))
    with pytest.raises(UsageError) as found:
        distilled(digits_pair._replace(student=other))
    assert str(found.value).startswith("the teacher's output is ")
    with pytest.raises(UnsupportedError) as unknown:
        distilled(digits_pair._replace(teacher=other, student=other), card=None)
    assert "PyTorch does not support LRN" in str(unknown.value)
    done = call(
        "model", "distil", "a.onnx", "--student", "b.onnx", "--samples", tmp_path, "-o", tmp_path / "s.pt"
    )
    assert done.exit_code == 2
    assert "must be an ONNX file; end its name in .onnx" in done.stderr
