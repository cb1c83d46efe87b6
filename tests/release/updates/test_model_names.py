"""Which model of a channel a publication is of, and which one a device follows."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.bundle.bundle import Bundle
from edgekit.errors import UpdateError, UsageError
from edgekit.release.updates.publishing import publish
from tests.fixtures.bundles import small_bundle, variant
from tests.release.updates.conftest import World


def bundle(world: World, file: str, source: str = "yolo.onnx", output: str = "") -> Path:
    made = small_bundle([variant(file, "ort")])
    made.manifest["source"]["file"] = source
    if output:
        made.manifest["outputs"] = [{**spec, "name": output} for spec in made.manifest["outputs"]]
        made.manifest["golden"] = []
    entries = {entry["name"]: bytes(made.read(entry["name"])) for entry in made.manifest["entries"]}
    return Bundle.create(made.manifest, entries).save(world.folder / f"{file}.edgekit")


def target(world: World, path: Path, **options: object) -> str:
    return publish(world.repository, path, "stable", **options).target  # type: ignore[arg-type]


def test_the_next_release_is_one_of_the_same_model_whatever_its_file_is_called(world: World) -> None:
    assert target(world, bundle(world, "v1")) == "stable/yolo/1.edgekit"
    assert world.update().outcome == "installed"
    assert target(world, bundle(world, "v2")) == "stable/yolo/2.edgekit"
    done = world.update()
    assert (done.outcome, done.model, done.release) == ("installed", "yolo", 2)
    retrained = bundle(world, "v3", source="yolo-retrained.onnx")  # the same inputs and outputs
    assert target(world, retrained) == "stable/yolo/3.edgekit"


def test_a_channel_whose_model_has_a_files_name_keeps_it(world: World) -> None:
    assert target(world, bundle(world, "detector"), model="detector") == "stable/detector/1.edgekit"
    assert target(world, bundle(world, "v2")) == "stable/detector/2.edgekit"
    assert target(world, bundle(world, "detector", source="x.onnx", output="boxes")).endswith("/3.edgekit")


def test_a_source_names_a_model_in_letters_digits_and_hyphens(world: World) -> None:
    first = bundle(world, "v1", source="my model (v1.2).onnx")
    assert target(world, first) == "stable/my-model-v1-2/1.edgekit"


def test_what_may_be_another_model_is_asked_about(world: World) -> None:
    target(world, bundle(world, "v1"))
    other = bundle(world, "segmenter", source="best.onnx", output="masks")
    with pytest.raises(UsageError) as error:
        target(world, other)
    assert str(error.value) == (
        f"{other} may be a release of yolo in channel stable, or another model: neither its file nor its "
        "source 'best' has that name, and its inputs and outputs do not decide it; nothing has changed\n"
        "  give --model, or --add-model for one more model"
    )
    assert target(world, other, model="yolo") == "stable/yolo/2.edgekit"


def test_language_models_have_no_inputs_to_tell_them_apart(world: World) -> None:
    def language_model(file: str, source: str) -> Path:
        made = small_bundle([variant(file, "ort")])
        made.manifest.update(inputs=[], outputs=[], golden=[])
        made.manifest["source"]["file"] = source
        entries = {entry["name"]: bytes(made.read(entry["name"])) for entry in made.manifest["entries"]}
        return Bundle.create(made.manifest, entries).save(world.folder / f"{file}.edgekit")

    target(world, language_model("v1", "SmolLM2.gguf"))
    assert target(world, language_model("v2", "SmolLM2.gguf")) == "stable/SmolLM2/2.edgekit"
    with pytest.raises(UsageError, match="may be a release of SmolLM2"):
        target(world, language_model("v3", "Qwen3.gguf"))


def test_a_second_model_is_asked_for(world: World) -> None:
    target(world, bundle(world, "v1"))
    second = bundle(world, "segmenter", source="best.onnx", output="masks")
    with pytest.raises(UsageError) as error:
        target(world, second, model="segmenter")
    assert str(error.value) == (
        "channel stable has yolo but not segmenter; nothing has changed\n"
        "  give --model for a release of a model that it has; --add-model for one more model, after which "
        "new devices need `edgekit store update --model`"
    )
    assert target(world, second, model="segmenter", add_model=True) == "stable/segmenter/1.edgekit"
    assert target(world, bundle(world, "v2")) == "stable/yolo/2.edgekit"  # by its source
    third = bundle(world, "v3", source="other.onnx")
    with pytest.raises(UsageError, match="release of segmenter, yolo in channel stable, or another model"):
        target(world, third)  # it fits yolo, but nothing says so


def test_devices_stay_with_their_model_when_a_channel_gets_a_second_one(world: World) -> None:
    target(world, bundle(world, "v1"))
    world.update()
    target(world, bundle(world, "seg", source="best.onnx"), model="segmenter", add_model=True)
    assert world.update().outcome == "up to date"
    target(world, bundle(world, "v2"))
    assert (world.update().model, world.current()) == ("yolo", "v2")
    # Moved to the other model, it stays there, though it knows both.
    assert world.update(model="segmenter").outcome == "installed"
    assert world.update().model == "segmenter"


def test_a_new_device_is_told_which_models_there_are(world: World) -> None:
    target(world, bundle(world, "v1"))
    target(world, bundle(world, "seg", source="best.onnx"), model="segmenter", add_model=True)
    with pytest.raises(UpdateError) as error:
        world.update()
    assert str(error.value) == (
        "channel stable has 2 models: segmenter, yolo\n"
        "  give --model, e.g. --model segmenter; the device stays with the model that it installed"
    )
    with pytest.raises(UpdateError, match="channel stable has no model tracker; it has: segmenter, yolo"):
        world.update(model="tracker")
    assert world.update(model="yolo").model == "yolo"
    assert world.update().model == "yolo"
