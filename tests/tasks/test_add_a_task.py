"""The distribution of docs/add-a-task.md (samples/extend/task): a model of the task goes all the way."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module, invalidate_caches
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

import edgekit
import edgekit.tasks
from edgekit.errors import CardError
from edgekit.processing import load_card, task_table
from edgekit.runtime import Session
from tests.fixtures.command_line import Call, answer, call
from tests.fixtures.sample_distributions import unpack

__all__ = ["call"]

OURS, IN_THE_TREE = "edgekit_count", "edgekit.tasks.count"
HEIGHT, WIDTH, CELL = 48, 64, 8
WHY = "one map of an eighth of the input's size without negative values: a density"
DEVICE = """
import sys
import numpy as np
from edgekit.runtime import Session
with Session(sys.argv[1]) as session:
    print(session.predict(np.full((48, 64, 3), 200, np.uint8)))
print(*sorted(name for name in sys.modules if name.startswith(("edgekit.compiler", "onnx."))))
print(*sorted(name for name in sys.modules if name.startswith("edgekit_count")))
"""

pytestmark = pytest.mark.needs_ort


def forget_installed() -> None:
    for cached in (task_table._task, task_table._entry_points):
        cached.cache_clear()
    for module in [name for name in sys.modules if name.startswith((OURS, IN_THE_TREE))]:
        del sys.modules[module]
    invalidate_caches()


@pytest.fixture(params=["a distribution", "in the tree"])
def package(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The sample's task as pip would unpack it, or as a folder beside the other tasks: its import name."""
    site = tmp_path / "site"
    unpack("task", site)
    name = OURS
    if request.param == "in the tree":
        name = IN_THE_TREE
        (site / OURS).rename(site / "count")
        for file in (site / "count").iterdir():
            file.write_text(file.read_text("utf-8").replace(OURS, name), "utf-8")
        monkeypatch.setattr(edgekit.tasks, "__path__", [*edgekit.tasks.__path__, str(site)])
        monkeypatch.setenv("EDGEKIT_TRUSTED", "1")  # builds in this process, which alone has this folder
    else:
        monkeypatch.syspath_prepend(str(site))
    forget_installed()
    yield name
    forget_installed()


def weights() -> npt.NDArray[np.float32]:
    return np.random.default_rng(0).normal(0.02, 0.01, (1, 3, CELL, CELL)).astype(np.float32)


def density_network(folder: Path) -> Path:
    """One convolution with a Relu: a map of density at an eighth of the picture's size."""
    node = helper.make_node("Conv", ["image", "weights"], ["sums"], strides=[CELL, CELL])
    shapes = {"image": [1, 3, HEIGHT, WIDTH], "density": [1, 1, HEIGHT // CELL, WIDTH // CELL]}
    ends = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()
    }
    graph = helper.make_graph(
        [node, helper.make_node("Relu", ["sums"], ["density"])],
        "counter",
        [ends["image"]],
        [ends["density"]],
        [numpy_helper.from_array(weights(), "weights")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    path = folder / "counter.onnx"
    path.write_bytes(model.SerializeToString())
    onnx.checker.check_model(model, full_check=True)
    return path


def photograph(folder: Path) -> Path:
    path = folder / "crowd.png"
    pixels = np.random.default_rng(1).integers(0, 256, (HEIGHT, WIDTH, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(path)
    return path


def counted(card: Any, path: Path) -> float:
    """The sum of densities, the slow way."""
    image = card.image_input()
    pixels = (np.asarray(Image.open(path), np.float64) - image.mean) / image.std
    total = 0.0
    for top in range(0, HEIGHT, CELL):
        for left in range(0, WIDTH, CELL):
            cell = pixels[top : top + CELL, left : left + CELL].transpose(2, 0, 1)
            total += max(float((cell * weights()[0]).sum()), 0.0)
    return total


def test_the_task_of_the_document_goes_all_the_way(package: str, tmp_path: Path, call: Call) -> None:
    model, photo, card = density_network(tmp_path), photograph(tmp_path), tmp_path / "counter.toml"
    drafted = call("model", "card", model, "-o", card)
    assert drafted.exit_code == 0, drafted.output
    assert [line for line in card.read_text("utf-8").splitlines() if line.startswith(("kind", "decode"))] == [
        'kind = "image"',
        'kind = "count"',
        f'decode = "density"  # guessed: {WHY}',
    ]
    bundle = tmp_path / "counter.edgekit"
    built = call("build", model, "--target", "ort", "--card", card, "-o", bundle)
    assert built.exit_code == 0, built.output

    expected = counted(load_card(card), photo)
    with Session(bundle) as session:
        found = session.predict(np.asarray(Image.open(photo)))
        many = session.predict(np.asarray(Image.open(photo)), unit=0.5)
    assert found.people == pytest.approx(expected, rel=1e-4)
    assert many.people == pytest.approx(2 * expected, rel=1e-4)
    assert type(found).__module__ == f"{package}.prediction"

    assert call("verify", bundle).exit_code == 0
    drawn = tmp_path / "drawn.png"
    ran = call("run", bundle, "--input", photo, "--draw", drawn)
    assert ran.exit_code == 0, ran.output
    assert str(found) in ran.output
    assert found.as_json() in answer(call("run", bundle, "--input", photo, "--json")).values()
    assert not np.array_equal(np.asarray(Image.open(drawn)), np.asarray(Image.open(photo)))


def test_its_metric_judges_int8(package: str, tmp_path: Path) -> None:
    card = edgekit.draft_card(density_network(tmp_path)).card
    rng = np.random.default_rng(0)
    samples = [{"image": rng.normal(size=(1, 3, HEIGHT, WIDTH)).astype(np.float32)} for _ in range(6)]
    bundle = edgekit.build(
        tmp_path / "counter.onnx",
        targets=["ort"],
        precision="int8",
        samples=samples,
        card=card,
        time_budget=0,
        force=True,
        fallback=False,
    )
    (variant,) = bundle.variants
    agreement = variant.evidence["agreement"]
    assert agreement["metric"] == "count agreement"
    assert 0.9 < agreement["value"] <= 1
    metric = import_module(f"{package}.metric")
    count = import_module(f"{package}.prediction").Count
    assert metric.count_agreement([count(0.0, None)], [count(3.0, None)]) is None
    assert (
        metric.count_agreement([count(4.0, None), count(6.0, None)], [count(5.0, None), count(5.0, None)])
        == 0.8
    )


@pytest.mark.parametrize("package", ["a distribution"], indirect=True)
def test_a_device_loads_its_decoder_and_nothing_of_the_host(package: str, tmp_path: Path) -> None:
    model = density_network(tmp_path)
    bundle = edgekit.build(model, targets=["ort"], card=edgekit.draft_card(model).card)
    bundle.save(tmp_path / "b.edgekit")
    command = [sys.executable, "-c", DEVICE, str(tmp_path / "b.edgekit")]
    environment = {"PYTHONPATH": str(tmp_path / "site"), "EDGEKIT_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    printed, host, ours = done.stdout.splitlines()
    assert printed.endswith(" people")
    assert host == ""
    assert ours.split() == ["edgekit_count", "edgekit_count.decode", "edgekit_count.prediction"]


@pytest.mark.parametrize("package", ["in the tree"], indirect=True)
def test_a_task_that_misses_a_package_is_not_an_unknown_one(package: str, tmp_path: Path) -> None:
    (tmp_path / "site" / "count" / "__init__.py").write_text("import no_such_package", "utf-8")
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        task_table.has_task("count")


def test_without_it_the_card_is_refused_with_the_tasks_that_are_installed(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(
        'title = "c"\n[inputs.x]\nkind = "tensor"\nshape = [1]\n[task]\nkind = "count"\n'
    )
    with pytest.raises(CardError) as refused:
        load_card(tmp_path / "c.toml")
    assert str(refused.value) == (
        f"{tmp_path / 'c.toml'}: task.kind is 'count'; it must be one of {', '.join(task_table.task_kinds())}"
    )


@pytest.mark.parametrize("package", ["a distribution"], indirect=True)
def test_an_entry_point_must_name_the_task_of_its_name(package: str, tmp_path: Path) -> None:
    spec = tmp_path / "site" / "edgekit_count" / "__init__.py"
    spec.write_text(spec.read_text("utf-8").replace('kind="count"', 'kind="counting"'), "utf-8")
    with pytest.raises(
        TypeError, match=r"^the entry point count of edgekit\.tasks names no TaskSpec of this kind"
    ):
        task_table.find_task("count")


@pytest.mark.parametrize(
    "kind", ["decoder", "task_spec", "segment_instances", "detect.yolox", "../rank", "", "é"]
)
def test_a_kind_that_is_no_task(kind: str) -> None:
    """A card from elsewhere may contain any text: modules beside the tasks are none."""
    assert not task_table.has_task(kind)
    with pytest.raises(KeyError):
        task_table.find_task(kind)
