"""Keras' archives that would run code or read other files, made without Keras."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

import edgekit
from edgekit.compiler.importers.keras import check_keras, check_weights
from edgekit.errors import EdgeKitError, MissingDependency, ModelError
from tests.fixtures.framework_files import archive

LAMBDA = (
    "contains Python code (a Lambda layer), which runs when the file is loaded; load it yourself, and pass "
    "the model from Python: edgekit.build(model, targets=[...])"
)
OTHER = "is not a Keras layer; if the model has custom layers, pass it from Python, where they are defined:"
OTHER += " edgekit.build(model, targets=[...])"


def keras_file(path: Path, *layers: dict[str, Any], weights: bytes = b"") -> Path:
    dense = {"module": "keras.layers", "class_name": "Dense", "config": {"activation": "relu"}}
    seed = {"module": "keras.src.random.seed_generator", "class_name": "SeedGenerator", "config": {}}
    config = {
        "module": "keras.src.models.functional",
        "class_name": "Functional",
        "config": {"layers": [dense, seed, *layers]},
        "registered_name": "Functional",
    }
    members = {
        "metadata.json": b"{}",
        "config.json": json.dumps(config).encode(),
        "model.weights.h5": weights,
    }
    return archive(path, members)


def layer(module: str | None, name: str, /, **config: Any) -> dict[str, Any]:
    return {"module": module, "class_name": name, "config": config}


LAYERS: dict[str, tuple[dict[str, Any], str]] = {
    "a Lambda layer": (
        layer("keras.layers", "Lambda", function={"class_name": "__lambda__"}),
        LAMBDA,
    ),
    "a lambda without a layer": (
        layer(
            "keras.layers", "Activation", activation={"class_name": "__lambda__", "config": {"value": "4w"}}
        ),
        LAMBDA,
    ),
    "a function of any module": (
        {"module": "os", "class_name": "function", "config": "system", "registered_name": "system"},
        f"'os.function' {OTHER}",
    ),
    "a function of Keras": (
        {"module": "keras.utils", "class_name": "function", "config": "get_file"},
        f"'keras.utils.function' {OTHER}",
    ),
    "an inner function of Keras": (
        {"module": "keras.src.utils.file_utils", "class_name": "function", "config": "get_file"},
        f"'keras.src.utils.file_utils.function' {OTHER}",
    ),
    "a saved program of TensorFlow": (
        layer("keras.layers", "TFSMLayer", filepath="/tmp/x"),
        "has a TFSMLayer layer, which loads a model of another framework; import that model instead",
    ),
    "a pickle of PyTorch": (
        layer("keras.layers", "TorchModuleWrapper", module="gAS="),
        "has a TorchModuleWrapper layer, which loads a model of another framework; import that model instead",
    ),
    "a file of the user": (
        layer("keras.layers", "StringLookup", vocabulary="/etc/passwd"),
        "a layer reads its vocabulary from the file '/etc/passwd'; set it to a list, and save the "
        "model again",
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_configuration_that_does_more_than_compute(name: str, tmp_path: Path) -> None:
    own, what = LAYERS[name]
    with pytest.raises(ModelError) as error:
        edgekit.import_model(keras_file(tmp_path / "m.keras", own))
    assert str(error.value) == f"m.keras: {what}"


def test_layers_of_keras_pass(tmp_path: Path) -> None:
    check_keras(
        keras_file(
            tmp_path / "m.keras",
            layer("keras.ops", "Add"),
            layer("keras.src.ops.numpy", "Add"),
            layer("keras", "Sequential"),
            layer(None, "__tuple__"),
            layer("builtins", "function"),
            layer("keras.layers", "StringLookup", vocabulary=["a", "b"]),
        )
    )


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ({"config.json": b"[" * 100_000}, "config.json is not valid JSON: "),
        ({"config.json": b"{"}, "config.json is not valid JSON: "),
        (
            {"config.json": b"{}", "../assets/a": b""},
            "the archive has a member named '../assets/a'; ",
        ),
        (
            {"config.json": b"{}", "/etc/a": b""},
            "the archive has a member named '/etc/a'; save the model again",
        ),
    ],
)
def test_a_malformed_archive(members: dict[str, bytes], why: str, tmp_path: Path) -> None:
    path = archive(tmp_path / "m.keras", {"metadata.json": b"{}", **members})
    with pytest.raises(ModelError) as error:
        check_keras(path)
    assert str(error.value).startswith(f"m.keras: {why}")


def test_a_zip_bomb(tmp_path: Path) -> None:
    path = tmp_path / "m.keras"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("metadata.json", "{}")
        file.writestr("config.json", b"[" * (100 << 20))
    with pytest.raises(EdgeKitError, match=r"^m\.keras: the archive's members have \d+ bytes uncompressed; "):
        edgekit.import_model(path)


@pytest.mark.parametrize(
    "kind", ["plain", "soft link", "external link", "external storage", "virtual", "huge"]
)
def test_weights_that_read_other_files(kind: str, tmp_path: Path) -> None:
    h5py: Any = pytest.importorskip("h5py")
    content = io.BytesIO()
    with h5py.File(content, "w") as file:
        layers = file.create_group("layers")
        layers["w"] = [1.0, 2.0]
        if kind == "soft link":
            layers["x"] = h5py.SoftLink("/layers/w")
        elif kind == "external link":
            layers["x"] = h5py.ExternalLink("/etc/passwd", "/")
        elif kind == "external storage":
            layers.create_dataset("x", (8,), "u1", external=[("/etc/passwd", 0, 8)])
        elif kind == "virtual":
            virtual = h5py.VirtualLayout((2,), "f8")
            virtual[:] = h5py.VirtualSource("/etc/other.h5", "w", (2,))
            layers.create_virtual_dataset("x", virtual)
        elif kind == "huge":
            layers.create_dataset("x", (1 << 40,), "f4", chunks=(1 << 20,), compression="gzip")
    path = keras_file(tmp_path / "m.keras", weights=content.getvalue())
    if kind == "plain":
        check_weights(path)
        return
    why = {
        "soft link": r"model\.weights\.h5 has a link, 'x'; save the model again",
        "external link": r"model\.weights\.h5 has a link, 'x'; save the model again",
        "external storage": r"model\.weights\.h5 reads another file for 'x'; save the model again",
        "virtual": r"model\.weights\.h5 reads another file for 'x'; save the model again",
        "huge": r"the arrays in model\.weights\.h5 have \d+ bytes; a file of this size may have \d+;.*",
    }[kind]
    with pytest.raises(ModelError, match=rf"^m\.keras: {why}$"):
        check_weights(path)


def test_hdf5_of_keras_2_is_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "m.h5"
    path.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    with pytest.raises(EdgeKitError) as error:
        edgekit.import_model(path)
    assert not isinstance(error.value, MissingDependency)
    assert 'it is HDF5, the format of Keras 2: load it in Keras 3 and call model.save("model.keras")' in str(
        error.value
    )
