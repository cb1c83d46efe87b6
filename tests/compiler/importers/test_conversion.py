"""The importer of samples/extend/importer, installed, and what every importer's models go through."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

import edgekit
from edgekit.cli import main
from edgekit.compiler.evaluate.verify import compare
from edgekit.compiler.importers import conversion
from edgekit.compiler.importers.conversion import import_source, open_source_model
from edgekit.errors import MissingDependency, ModelError, UsageError
from edgekit.runtime import Session
from tests.fixtures import models
from tests.fixtures.sample_distributions import unpack

pytestmark = pytest.mark.needs_ort


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    unpack("importer", tmp_path / "site")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    forget = conversion.importers.cache_clear  # a test may put something else in its place
    forget()
    yield
    sys.modules.pop("edgekit_onnxtext", None)
    forget()


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "small.onnxtxt"
    path.write_text(models.SMALL_CNN, "utf-8")
    return path


def test_build_imports_compares_and_names_both_steps(text: Path, tmp_path: Path) -> None:
    stages = []
    bundle = edgekit.build(text, targets=["ort"], progress=lambda stage: stages.append(stage))
    source = bundle.manifest["source"]
    assert source["file"] == "small.onnxtxt"
    assert source["sha256"] == hashlib.sha256(text.read_bytes()).hexdigest()
    imported = source["imported"]
    expected = onnx.parser.parse_model(models.SMALL_CNN).SerializeToString(deterministic=True)
    assert imported["onnx_sha256"] == hashlib.sha256(expected).hexdigest()
    assert (imported["format"], imported["importer"], imported["notes"]) == ("ONNX text", "onnxtext", [])
    assert imported["tools"]["onnx"] == onnx.__version__
    compared = imported["compared"]
    assert compared["engine"] == f"onnx reference {onnx.__version__}"
    assert set(compared["outputs"]) == {"scores", "features"}
    done = {stage.name: stage.detail for stage in stages if stage.seconds is not None}
    assert done["opened"].startswith("small.onnxtxt  ONNX text, as ONNX opset 17, ")
    start = f"ONNX Runtime and onnx reference {onnx.__version__} on the original: "
    assert done["compared"].startswith(start)
    bundle.save(tmp_path / "b.edgekit")
    inputs, outputs = bundle.golden[0]
    with Session(tmp_path / "b.edgekit") as session:
        found = session.run(inputs)
    assert (compare([outputs["scores"]], [found["scores"]], 0).snr_db or 200) > 60


def test_an_onnx_file_asks_no_importer(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = models.write(tmp_path, models.SMALL_CNN)
    monkeypatch.setattr(conversion, "importers", lambda: pytest.fail("asked"))
    model, imported = open_source_model(path)
    assert (imported, len(model.graph)) == (None, 7)
    assert "imported" not in edgekit.build(path, targets=["ort"]).manifest["source"]


def test_check_takes_it(text: Path) -> None:
    assert edgekit.check(text, ["ort"]) == []


def test_the_content_decides_and_then_the_suffix(text: Path, tmp_path: Path) -> None:
    other = tmp_path / "model.onnx"
    other.write_text(models.SMALL_CNN, "utf-8")
    assert conversion.find_importer(other) == "onnxtext"
    damaged = tmp_path / "damaged.ONNXTXT"
    damaged.write_text("nothing", "utf-8")
    with pytest.raises(ModelError, match=r"damaged\.ONNXTXT: is not ONNX's textual form: "):
        edgekit.build(damaged, targets=["ort"])


def test_what_nobody_recognizes_is_opened_as_onnx(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(b"\xff\xff\xff")
    with pytest.raises(ModelError) as error:
        open_source_model(path)
    why = "it is not valid protobuf, or it is truncated (3 bytes): export or download it again"
    assert str(error.value) == f"x.bin: is not an ONNX model: {why}"
    with pytest.raises(ModelError) as error:
        open_source_model(tmp_path / "none.onnxtxt")
    assert str(error.value) == f"{tmp_path / 'none.onnxtxt'}: file not found"


def test_an_object_of_no_framework() -> None:
    with pytest.raises(UsageError) as error:
        edgekit.build(np.zeros(3), targets=["ort"])
    assert str(error.value).startswith(
        "EdgeKit cannot import a numpy.ndarray; pass the path of a file, or an object from one of: "
    )
    assert "ONNX text" in str(error.value)


def test_an_import_that_answers_otherwise_is_refused(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The conversion doubles a bias: the original says otherwise."""
    (name,) = [name for name in conversion.importers() if name == "onnxtext"]
    importer = conversion.importers()[name]

    def wrong(path: Path, options: object) -> object:
        changed = path.read_text("utf-8").replace("{0.1,0.2,-0.1,0}", "{0.2,0.2,-0.1,0}")
        proto = onnx.parser.parse_model(changed)
        return importer.to_onnx(path, options)._replace(onnx=proto.SerializeToString())  # type: ignore[arg-type]

    found = {name: importer._replace(to_onnx=wrong)}  # type: ignore[arg-type]
    monkeypatch.setattr(conversion, "importers", lambda: found)
    monkeypatch.setattr(conversion, "importers", lambda: found)
    with pytest.raises(ModelError) as error:
        edgekit.import_model(text)
    first, *outputs, last = str(error.value).splitlines()
    assert first == (
        f"small.onnxtxt: the imported ONNX model gives other results than onnx reference {onnx.__version__}:"
    )
    assert [line.split(":")[0] for line in outputs] == ["  output scores", "  output features"]
    assert last == "  this is a bug of the importer: please report it with the model"


@pytest.mark.parametrize("answers", [None, MissingDependency("onnx", "running it", "pip install onnx")])
def test_what_could_not_be_compared_says_so(
    answers: Exception | None, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: object, samples: object) -> object:
        assert answers is not None
        raise answers

    importer = conversion.importers()["onnxtext"]._replace(answers=refuse if answers else None)  # type: ignore[arg-type]
    monkeypatch.setattr(conversion, "importers", lambda: {"onnxtext": importer})
    why = "onnx is not installed, and running it needs it: pip install onnx"
    found = edgekit.import_model(text).compared
    assert found.not_run == (why if answers else "no package that runs ONNX text models is installed")
    assert str(found) == f"not compared with the original: {found.not_run}"


def test_a_file_that_changes_meanwhile(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    importer = conversion.importers()["onnxtext"]

    def slow(path: Path, options: object) -> object:
        converted = importer.to_onnx(path, options)  # type: ignore[arg-type]
        path.write_text(path.read_text("utf-8") + "\n", "utf-8")
        return converted

    monkeypatch.setattr(conversion, "importers", lambda: {"onnxtext": importer._replace(to_onnx=slow)})  # type: ignore[arg-type]
    with pytest.raises(ModelError) as error:
        import_source(text)
    assert (
        str(error.value)
        == "small.onnxtxt: changed while EdgeKit read it; wait until it is completely written"
    )


def test_weights_in_another_file_are_not_read(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    importer = conversion.importers()["onnxtext"]

    def outside(path: Path, options: object) -> object:
        proto = onnx.parser.parse_model(models.SMALL_CNN)
        tensor = proto.graph.initializer.add(name="w", data_type=1, dims=[1], data_location=1)
        tensor.external_data.add(key="location", value="weights.bin")
        return importer.to_onnx(path, options)._replace(onnx=proto.SerializeToString())  # type: ignore[arg-type]

    monkeypatch.setattr(conversion, "importers", lambda: {"onnxtext": importer._replace(to_onnx=outside)})  # type: ignore[arg-type]
    with pytest.raises(ModelError) as error:
        open_source_model(text)
    assert str(error.value) == (
        "small.onnxtxt: its weights are in another file, weights.bin: pass the path of the model, with "
        "that file beside it"
    )


def test_the_verb_writes_the_file(text: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.onnx"
    done = CliRunner().invoke(main, ["model", "import", str(text), "-o", str(path)])
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0].startswith("  from      small.onnxtxt  ONNX text, imported by edgekit-sdk ")
    assert lines[1].startswith("  to        ONNX opset 17, 7 nodes, ")
    assert lines[2:5] == [
        "  input     image float32 1x3x16x16",
        "  output    scores float32 1x4",
        "  output    features float32 1x4x16x16",
    ]
    assert lines[5].startswith("  compared  ONNX Runtime and onnx reference ")
    assert lines[-2:] == [f"  {path}", f"  next: edgekit check {path}, or edgekit build"]
    assert path.read_bytes() == edgekit.import_model(text).imported.onnx


def test_the_verb_in_json(text: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.onnx"
    done = CliRunner().invoke(main, ["model", "import", str(text), "-o", str(path), "--json"])
    found = json.loads(done.stdout)
    assert found["onnx"] == str(path)
    digest = hashlib.sha256(text.read_bytes()).hexdigest()
    assert found["source"] == {"file": "small.onnxtxt", "sha256": digest}
    assert found["onnx_sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert found["inputs"] == [{"name": "image", "dtype": "float32", "shape": [1, 3, 16, 16]}]


def test_the_verb_refuses_what_it_cannot_use(text: Path, tmp_path: Path) -> None:
    def refused(*words: object) -> str:
        done = CliRunner().invoke(main, ["model", "import", *map(str, words)])
        assert done.exit_code == 2
        return done.stderr

    out = tmp_path / "out.onnx"
    onnx_file = models.write(tmp_path, models.SMALL_CNN)
    assert refused(onnx_file, "-o", out) == (
        "error: model.onnx is already an ONNX model; pass it to edgekit build as it is\n"
        "  nothing was written\n"
    )
    assert refused(text, "-o", tmp_path / "out.bin") == (
        f"error: {tmp_path / 'out.bin'} must be an ONNX file; end its name in .onnx\n  nothing was written\n"
    )
    assert not out.exists()
