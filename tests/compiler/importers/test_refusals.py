"""What the importers of frameworks refuse, with or without the framework."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import edgekit
from edgekit.cli import main
from edgekit.cli.command_group import all_verbs
from edgekit.compiler.importers import original
from edgekit.compiler.importers.child_process import convert_file
from edgekit.compiler.importers.contract import ImportOptions
from edgekit.errors import EdgeKitError, MissingDependency, ModelError, UsageError
from edgekit.system import confinement
from tests.fixtures.framework_files import (
    TENSORS,
    archive,
    exported_program,
    keras_archive,
    opcodes,
    torch_pickle,
    torchscript,
    trap,
)

TRUST = "loading it runs any code it contains. If you trust its author, add trust_pickle=True. Otherwise "
SAVE = 'torch.export.save(torch.export.export(module.eval(), (example,)), "model.pt2")'
YOLO = ("ultralytics.nn.tasks", "DetectionModel")
LINEAR = ("torch.nn.modules.linear", "Linear")


def refused(path: Path, **options: Any) -> EdgeKitError:
    with pytest.raises(EdgeKitError) as error:
        edgekit.import_model(path, **options)
    return error.value


def test_pickles_are_refused_unless_trusted(tmp_path: Path) -> None:
    sprung = tmp_path / "sprung"
    model = trap(tmp_path / "model.pkl", sprung)
    instead = "pass the fitted estimator itself to edgekit.build, or an .onnx file from skl2onnx"
    assert str(refused(model)) == f"model.pkl is a Python pickle: {TRUST}{instead}"
    module = torch_pickle(tmp_path / "model.pt", *TENSORS, LINEAR)
    assert str(refused(module)) == (
        f"model.pt is a Python pickle of a PyTorch module: {TRUST}save it without code: {SAVE}"
    )
    yolo = torch_pickle(tmp_path / "yolo.pt", *TENSORS, YOLO)
    assert str(refused(yolo)) == (
        f"yolo.pt is an Ultralytics checkpoint (a Python pickle): {TRUST}export it yourself: "
        'YOLO("model.pt").export(format="onnx")'
    )
    assert not sprung.exists()


@pytest.mark.parametrize("verb", ["model import", "model card", "check", "build"])
def test_the_command_line_refuses_pickles(verb: str, tmp_path: Path) -> None:
    sprung = tmp_path / "sprung"
    model = trap(tmp_path / "model.pkl", sprung)
    outputs = {
        "model import": ["-o", "m.onnx"],
        "model card": ["-o", "c.toml"],
        "build": ["-t", "ort", "-o", "m.edgekit"],
    }
    output = outputs.get(verb, [])
    done = CliRunner().invoke(main, [*verb.split(), str(model), *output])
    assert done.exit_code == 2
    assert "add --trust-pickle" in done.stderr
    assert "Traceback" not in done.output
    assert not sprung.exists()


@pytest.mark.parametrize("verb", ["model import", "model card", "check", "build", "model shrink"])
def test_what_opens_a_model_has_the_same_options(verb: str) -> None:
    options = {flag for option in all_verbs()[verb].params for flag in option.opts}
    assert {"--shape", "--trust-pickle", "--trusted"} <= options


def test_a_card_of_a_trusted_pickle(tmp_path: Path) -> None:
    """It goes as far as the framework, which is not installed here or finds no estimator."""
    path = tmp_path / "m.pkl"
    path.write_bytes(opcodes(("sklearn.linear_model._base", "LinearRegression")))
    with pytest.raises(EdgeKitError) as error:
        edgekit.draft_card(path, trust_pickle=True)
    assert "--trust-pickle" not in str(error.value)


def test_a_state_dict_has_no_graph(tmp_path: Path) -> None:
    path = torch_pickle(tmp_path / "model.pth", *TENSORS)
    for trusted in (False, True):
        assert str(refused(path, trust_pickle=trusted)) == (
            "model.pth contains weights but no graph (a state dict); EdgeKit needs the whole module. In "
            "Python: module.load_state_dict(torch.load(...)), then edgekit.build(module, "
            f"example_inputs=(example,), targets=[...]); for the command line: {SAVE}"
        )


def test_archives_of_nobody(tmp_path: Path) -> None:
    path = archive(tmp_path / "photos.zip", {"a.jpg": b"x"})
    assert str(refused(path)) == (
        "photos.zip: is not an ONNX model: it is a zip archive, but not one written by PyTorch "
        "(torch.export.save, torch.jit.save, torch.save) or Keras 3"
    )
    damaged = tmp_path / "model.pt2"
    damaged.write_bytes(b"PK\3\4" + bytes(100))
    assert str(refused(damaged)) == (
        "model.pt2: was not written by torch.export.save, torch.jit.save or torch.save, or is damaged"
    )
    other = archive(tmp_path / "model.keras", {"a.jpg": b"x"})
    assert str(refused(other)) == "model.keras: is not a Keras 3 file (model.save), or is damaged"


@pytest.mark.parametrize(
    ("package", "make", "name", "options", "line"),
    [
        ("torch", exported_program, "m.pt2", {}, "pip install torch onnxscript"),
        ("torch", torchscript, "m.pt", {}, "pip install torch onnxscript"),
        ("keras", keras_archive, "m.keras", {}, "pip install keras jax jax2onnx"),
    ],
)
def test_a_missing_framework_is_named(
    package: str, make: object, name: str, options: dict[str, bool], line: str, tmp_path: Path
) -> None:
    if find_spec(package):
        pytest.skip(f"{package} is installed here")
    error = refused(make(tmp_path / name), **options)  # type: ignore[operator]
    assert isinstance(error, MissingDependency)
    assert error.install == line
    assert str(error).startswith(f"{package} is not installed, and importing ")


@pytest.mark.parametrize(
    ("package", "name", "line"),
    [
        ("sklearn", "m.pkl", "pip install scikit-learn skl2onnx"),
        ("torch", "m.pt", "pip install torch onnxscript"),
        ("ultralytics", "yolo.pt", "pip install ultralytics onnx"),
    ],
)
def test_a_missing_framework_of_a_trusted_pickle(package: str, name: str, line: str, tmp_path: Path) -> None:
    if find_spec(package):
        pytest.skip(f"{package} is installed here")
    path = tmp_path / name
    if package == "sklearn":
        path.write_bytes(opcodes(("sklearn.linear_model._base", "LinearRegression")))
    else:
        torch_pickle(path, *TENSORS, YOLO if package == "ultralytics" else LINEAR)
    error = refused(path, trust_pickle=True)
    assert isinstance(error, MissingDependency)
    assert error.install == line


def test_a_function_without_jax() -> None:
    if find_spec("jax"):
        pytest.skip("jax is installed here")
    with pytest.raises(MissingDependency) as error:
        edgekit.build(lambda x: x, targets=["ort"])
    assert str(error.value) == (
        "jax is not installed, and importing JAX models needs it: pip install jax jax2onnx"
    )


CHILD = """
import sys
from pathlib import Path
from typing import Any
from edgekit.errors import EngineError, UsageError
from edgekit.compiler.importers.contract import Converted
from edgekit.compiler.importers.original import Original

def load(path, options):
    print("a word on stdout")
    print("a word on stderr", file=sys.stderr)
    {what}
    return Original(export, None, "the exporter")

def export():
    {export}
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "imports"


@pytest.mark.parametrize(
    ("what", "export", "error", "text"),
    [
        (
            "raise ValueError('no such layer\\nmore of it')",
            "pass",
            ModelError,
            "can't be loaded: ValueError: no such layer",
        ),
        (
            "import a_module_that_is_nowhere",
            "pass",
            ModelError,
            "can't be loaded: ModuleNotFoundError: No module named 'a_module_that_is_nowhere'; its classes "
            "must be importable: set PYTHONPATH to their folder",
        ),
        (
            "pass",
            "raise RuntimeError('wrapper') from KeyError('the root')",
            ModelError,
            "the exporter can't export it: KeyError: 'the root'",
        ),
        ("import os; os._exit(7)", "pass", ModelError, "its framework failed: its process ended with 7"),
        ("raise UsageError('give a shape')", "pass", UsageError, None),
    ],
)
def test_what_fails_in_the_child_is_one_line_and_a_file(
    what: str,
    export: str,
    error: type[EdgeKitError],
    text: str | None,
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "a_framework.py").write_text(CHILD.format(what=what, export=export), "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    model = tmp_path / "my model.bin"
    model.write_bytes(b"x")
    with pytest.raises(error) as refusal:
        convert_file("a_framework", model, ImportOptions())
    if text is None:
        assert str(refusal.value) == "give a shape"
        return
    file = cache / "my_model.bin.txt"
    assert str(refusal.value) == f"my model.bin: {text}; the full message is in {file}"
    said = file.read_text("utf-8")
    assert "a word on stdout" in said
    assert "a word on stderr" in said
    assert ("Traceback" in said) == ("os._exit" not in what)


def test_an_exporter_that_never_ends_is_ended(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = CHILD.format(what="import time; time.sleep(600)", export="pass")
    (tmp_path / "a_slow_framework.py").write_text(body, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("edgekit.compiler.importers.child_process.SECONDS_LIMIT", 1)
    model = tmp_path / "m.bin"
    model.write_bytes(b"x")
    with pytest.raises(
        ModelError, match=r"^m\.bin: its framework failed: it did not end within 1 s; the full message is in"
    ):
        convert_file("a_slow_framework", model, ImportOptions())


HOSTILE = """
import json, os, socket
from pathlib import Path
from edgekit.errors import ModelError

def load(path, options):
    def tried(name, do):
        try:
            do()
            return name
        except OSError:
            return ""
    cache = Path(os.environ["EDGEKIT_CACHE"])
    raise ModelError("could " + " ".join(filter(None, [
        tried("read-itself", lambda: path.read_bytes()),
        tried("write-own-folder", lambda: Path("a").write_text("a")),
        tried("write-itself", lambda: path.write_text("a")),
        tried("write-beside-itself", lambda: Path(path.parent, "a").write_text("a")),
        tried("read-beside-itself", lambda: Path(path.parent, "secret.txt").read_text()),
        tried("write-timings", lambda: Path(cache, "timings", "a.json").write_text("a")),
        tried("write-imports", lambda: Path(cache, "imports", "a.txt").write_text("a")),
        tried("socket", lambda: socket.create_connection(("127.0.0.1", 9), 1)),
    ])))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps a process out of folders")
@pytest.mark.parametrize("trusted", [False, True])
def test_what_a_framework_that_is_taken_over_can_do(
    trusted: bool, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why := confinement.effective_limits().get("files"):
        pytest.skip(why)
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "a_hostile_framework.py").write_text(HOSTILE, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    for folder in (cache, cache.with_name("timings"), tmp_path / "downloads"):
        folder.mkdir(parents=True)
    (tmp_path / "downloads" / "secret.txt").write_text("a", "utf-8")
    model = tmp_path / "downloads" / "m.bin"
    model.write_bytes(b"x")
    with pytest.raises(ModelError) as error:
        convert_file("a_hostile_framework", model, ImportOptions(trust_pickle=trusted))
    if not trusted:
        assert str(error.value) == "could read-itself write-own-folder"
    assert trusted == ("write-timings" in str(error.value))


def test_the_files_of_exporters_are_kept_to_a_limit(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(original, "FILES_LIMIT", 2)
    for number in range(4):
        original.failure(f"m{number}", "it failed", "why", "text")
    assert len(list(cache.iterdir())) == 2


def test_without_a_cache_folder_the_reason_stands_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEKIT_CACHE", "/dev/null/none")
    assert str(original.failure("m", "it failed", "why", "text")) == "m: it failed: why"
