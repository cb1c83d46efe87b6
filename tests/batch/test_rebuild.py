from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import edgekit
from edgekit.batch import compare_bundles as comparing
from edgekit.batch import rebuild as module
from edgekit.batch.compare_bundles import compare_variants
from edgekit.batch.rebuild import rebuild
from edgekit.bundle.bundle import Bundle
from edgekit.bundle.model_version import model_version
from edgekit.compiler.pipeline.build_options import build_options
from edgekit.compiler.pipeline.build_request import BuildRequest
from edgekit.errors import UsageError
from edgekit.system.declared_options import declared, stored_options
from tests.fixtures import models
from tests.fixtures.bundles import small_bundle, variant
from tests.fixtures.command_line import Call, answer
from tests.fixtures.command_line import call as call

pytestmark = pytest.mark.needs_ort


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return models.write(tmp_path, models.SMALL_CNN)


@pytest.fixture
def bundle(model: Path) -> Path:
    """fp32, on a sample of the user's."""
    np.save(model.parent / "s.npy", np.full((1, 3, 16, 16), 0.5, np.float32))
    made = edgekit.build(model, targets=["ort"], samples=model.parent / "s.npy")
    return made.save(model.parent / "old.edgekit")


def altered(path: Path, **fields: Any) -> None:
    """The same bundle with other fields in its manifest, and another file, as other tools would write it."""
    with Bundle.open(path) as old:
        entries = {entry["name"]: bytes(old.read(entry["name"])) for entry in old.manifest["entries"]}
        (name,) = (name for name in entries if name.startswith("artifacts/"))
        entries[name] += b"r\x08producer"[:0] + b"\x12\x00"  # producer_name, empty once more
        Bundle.create({**old.manifest, **fields}, entries).save(path)


def test_with_the_same_tools_nothing_changes(bundle: Path, call: Call) -> None:
    before = bundle.read_bytes()
    found = answer(call("bundle", "rebuild", bundle, "--samples", bundle.parent / "s.npy", "--json"))
    assert (found["kept"], found["same"], found["worse"], found["tools"]) == (False, True, [], {})
    assert bundle.read_bytes() == before
    report = Path(found["report"])
    assert report == bundle.with_name("old.edgekit.changes.md")
    assert report.read_text().startswith("# old.edgekit built again\n\nnot kept: nothing has changed\n")


def test_what_is_no_worse_takes_its_place(bundle: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old one was written by an older onnx; the two take the same time, as far as anybody can tell."""
    with Bundle.open(bundle) as old:
        tools = {**old.manifest["tools"], "onnx": "1.0"}
    altered(bundle, tools=tools, extensions={"version": 3})
    monkeypatch.setattr(comparing, "compare", lambda *_, **__: timed(1.001, differs=False))
    result = call("bundle", "rebuild", bundle, "--samples", bundle.parent / "s.npy")
    assert result.exit_code == 0
    assert "kept: no variant is worse" in result.stdout
    assert "tool      onnx 1.0 -> " in result.stdout
    assert "note      version 3 became 4" in result.stdout
    with Bundle.open(bundle) as made:
        assert made.manifest["tools"]["onnx"] != "1.0"
        assert model_version(made) == 4


def test_what_is_slower_does_not(bundle: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    altered(bundle)
    before = bundle.read_bytes()
    monkeypatch.setattr(comparing, "compare", lambda *_, **__: timed(1.25, differs=True))
    result = call("bundle", "rebuild", bundle, "--samples", bundle.parent / "s.npy")
    assert result.exit_code == 1
    said = "not kept: ort-fp32: the new one is 25.0 % slower than the old one, 95 %: 24.0 to 26.0"
    assert said in result.stdout
    assert said in bundle.with_name("old.edgekit.changes.md").read_text()
    assert bundle.read_bytes() == before


def timed(ratio: float, *, differs: bool) -> Mapping[str, Any]:
    return {
        "first": "the new one", "second": "the old one", "ratio": ratio, "low": ratio - 0.01,
        "high": ratio + 0.01, "confidence": 0.95, "differs": differs,
    }  # fmt: skip


def test_the_two_are_really_timed(bundle: Path, tmp_path: Path) -> None:
    altered(bundle)
    found = rebuild(bundle, tmp_path / "new.edgekit", samples=str(tmp_path / "s.npy"), seconds=0.01)
    (change,) = found.changes
    assert change["ratio"] is not None
    assert not change["same"]


@pytest.fixture
def no_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if anything is built."""
    monkeypatch.setattr(module, "build_here", lambda *_, **__: pytest.fail("the build began"))


@pytest.mark.usefixtures("no_build")
@pytest.mark.parametrize("other", ["0.25,-0.25", None])
def test_another_model_is_refused_before_the_build(bundle: Path, model: Path, other: str | None) -> None:
    """A model with other weights, and one with other inputs."""
    before, text = bundle.read_bytes(), models.SMALL_CNN
    changed = text.replace("0.5,-0.25", other) if other else text.replace("16,16", "8,8")
    assert changed != text
    models.write(model.parent, changed)
    with pytest.raises(UsageError) as error:
        rebuild(bundle, samples=str(bundle.parent / "s.npy"))
    assert f"{model} is another model than the one that {bundle} was built from: sha256 " in str(error.value)
    assert bundle.read_bytes() == before


def test_another_model_with_external_data_is_refused(tmp_path: Path) -> None:
    """Only the build knows which files hold the weights."""
    model = tmp_path / "outside.onnx"

    def save(bias: float) -> None:
        (tmp_path / "w.data").unlink(missing_ok=True)
        proto = onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["": 17]> g (float[1,4] x) => (float[1,4] y) { y = Add(x, w) }'
        )
        weight = np.full((1, 4), bias, np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
        onnx.save_model(proto, model, save_as_external_data=True, location="w.data", size_threshold=0)

    save(1.0)
    bundle = edgekit.build(model, targets=["ort"]).save(tmp_path / "m.edgekit")
    assert rebuild(bundle, seconds=0.01).same
    save(2.0)
    with pytest.raises(UsageError, match="is another model than the one that"):
        rebuild(bundle, seconds=0.01)


@pytest.mark.usefixtures("no_build")
def test_other_samples_are_refused_before_the_build(bundle: Path) -> None:
    np.save(bundle.parent / "s.npy", np.zeros((1, 3, 16, 16), np.float32))
    with pytest.raises(UsageError) as error:
        rebuild(bundle, samples=str(bundle.parent / "s.npy"))
    assert str(error.value) == (
        f"these are other samples than those of {bundle}: 1 file, as for its build, but with other contents; "
        "pass the same, so that figures can be compared"
    )


def test_an_interval_beyond_the_limit_proves_nothing(
    bundle: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is measured once more, for longer, before the rebuild is refused."""
    altered(bundle)
    before, seconds = bundle.read_bytes(), []

    def wide(*_: object, **options: float) -> Mapping[str, Any]:
        seconds.append(options["seconds"])
        return {**timed(1.0, differs=False), "low": 0.9, "high": 1.15}

    monkeypatch.setattr(comparing, "compare", wide)
    result = call("bundle", "rebuild", bundle, "--samples", bundle.parent / "s.npy", "--seconds", 2)
    assert result.exit_code == 1
    assert seconds == [2, 6]
    assert (
        "not kept, because not proved: ort-fp32: with 95 % confidence its time is at most 15.0 % longer, "
        "and 3 % is accepted; measure longer with --seconds, or on a machine with less other load"
    ) in result.stdout
    assert bundle.read_bytes() == before


def test_samples_and_model_are_asked_for(bundle: Path, model: Path) -> None:
    with pytest.raises(UsageError) as error:
        rebuild(bundle)
    assert str(error.value) == f"{bundle} was built with 1 file; pass them with --samples"
    model.unlink()
    with pytest.raises(UsageError) as error:
        rebuild(bundle, samples="s.npy")
    assert str(error.value) == f"{model}, which {bundle} was built from, does not exist; add --source"


def test_options_and_card_are_those_of_the_build(tmp_path: Path) -> None:
    model = models.write(tmp_path, models.SMALL_CNN)
    (tmp_path / "card.toml").write_text(
        'title = "four"\n[inputs.image]\nkind = "tensor"\nshape = [1, 3, 16, 16]\nrange = [0.0, 1.0]\n'
    )
    made = edgekit.build(
        model, targets=["ort"], precision="int8-weights", card=tmp_path / "card.toml", max_drop="24dB",
        force=True,
    )  # fmt: skip
    path = made.save(tmp_path / "old.edgekit")
    with Bundle.open(path) as old:
        arguments = module.recipe(old, path, {})
        again = module.build_here(path, arguments)
        assert arguments["max_drop"] == "24dB"
        assert arguments["force"] is True
        assert again.digest == old.digest


def options_of(bundle: Bundle, precision: str, **given: Any) -> dict[str, Any]:
    """The manifest's options of a build with these options about precision."""
    request = BuildRequest("model.onnx", targets=["ort"], precision=precision, **given)
    resolved = build_options(request).as_json()
    return {**bundle.manifest["options"], "precision": precision, **stored_options(request), **resolved}


@pytest.mark.parametrize(
    ("precision", "given"),
    [
        ("int8", {"max_drop": "2%", "time_budget": 7.0, "force": True, "fallback": False}),
        ("auto", {"shrink": "auto", "distil": "12epochs"}),
        ("fp32", {"shrink": "-50%", "distil": "20min", "max_drop": "24dB"}),
        ("fp32", {"lengths": [16, 32]}),
    ],
)
def test_every_option_of_a_build_is_one_of_its_rebuild(
    bundle: Path, precision: str, given: dict[str, Any]
) -> None:
    with Bundle.open(bundle) as old:
        options = options_of(old, precision, **given)
        made = Bundle.create({**old.manifest, "options": options}, {
            entry["name"]: bytes(old.read(entry["name"])) for entry in old.manifest["entries"]
        })  # fmt: skip
    arguments = module.recipe(made, bundle, {"samples": "s.npy"})
    stored = {each.name for each in declared(BuildRequest) if each.option.stored}
    again = {name: arguments[name] for name in arguments if name in stored}
    assert {name: again.get(name) for name in given} == given
    assert options_of(made, precision, **again) == options


def test_what_trusts_a_model_is_given_again_and_never_read_from_a_bundle(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    """A bundle of somebody else must not be able to have a pickle loaded."""
    with Bundle.open(bundle) as old:
        for name in ("trust_pickle", "trusted"):
            old.manifest["options"][name] = True
        with pytest.raises(UsageError, match="was built with trust_pickle, trusted, which this EdgeKit"):
            module.recipe(old, bundle, {})
    asked: dict[str, Any] = {}

    def build(model: str, **arguments: Any) -> Bundle:
        asked.update(arguments)
        raise UsageError("enough")

    monkeypatch.setattr("edgekit.compiler.sandbox.public.build", build)
    call("bundle", "rebuild", bundle, "--samples", bundle.parent / "s.npy", "--trust-pickle", "--trusted")
    assert (asked["trust_pickle"], asked["trusted"]) == (True, True)
    call("bundle", "rebuild", bundle, "--samples", bundle.parent / "s.npy")
    assert (asked["trust_pickle"], asked["trusted"]) == (False, False)


def test_an_option_that_is_not_known_is_not_dropped(bundle: Path) -> None:
    with Bundle.open(bundle) as old:
        old.manifest["options"]["polish"] = True
        with pytest.raises(UsageError) as error:
            module.recipe(old, bundle, {"samples": "s.npy"})
    assert str(error.value) == (
        f"{bundle} was built with polish, which this EdgeKit does not know; rebuild it with the version "
        "that built it, or a newer one"
    )


def test_a_build_with_other_tools_is_told_apart(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment with a package that this one has not, which pip makes from a folder."""
    folder = bundle.parent / "tool"
    folder.mkdir()
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    shutil.copy(Path(__file__).with_name("wheel_backend.py"), folder / "backend.py")
    tools = bundle.parent / "new.txt"
    tools.write_text(f"{folder}\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    found = rebuild(bundle, tools=tools, samples=str(bundle.parent / "s.npy"))
    assert found.same
    assert found.bundle.manifest["tools"]["onnx"] == "0.0.1"
    assert not found.is_written or found.tools["onnx"][1] == "0.0.1"


def test_a_lower_score_or_a_larger_file_is_worse() -> None:
    def one(score: float | None, unit: str = "") -> Any:
        figure = {"metric": "self-mAP", "value": score, "unit": unit}
        return variant("ort-int8", "ort")._replace(evidence={"agreement": figure})

    def why(before: float | None, after: float | None, unit: str = "") -> str:
        return comparing._lower(*comparing._scores(one(before, unit), one(after, unit)))

    assert why(0.93, 0.926) == ""
    assert why(0.93, 0.90) == "self-mAP 0.9 instead of 0.93"
    assert why(None, 24.0, "dB") == "self-mAP dB 24 instead of exact"
    assert why(90.0, 70.0, "dB") == ""
    assert why(24.0, 23.5, "dB") == ""


def test_a_variant_that_is_gone_is_worse(bundle: Path) -> None:
    with Bundle.open(bundle) as old:
        none = Bundle.create({**old.manifest, "variants": []}, {
            entry["name"]: bytes(old.read(entry["name"])) for entry in old.manifest["entries"]
        })  # fmt: skip
        (change,) = compare_variants(old, none, 1.0)
    assert change["worse"] == ["it was removed: it was not built"]


@pytest.mark.parametrize("file", ["../../secret.onnx", "/secret.onnx"])
def test_a_bundle_names_no_file_outside_of_its_folder(file: str) -> None:
    bundle = small_bundle()
    bundle.manifest["source"]["file"] = file
    with pytest.raises(UsageError, match=r"^here/secret\.onnx, which "):
        module.recipe(bundle, Path("here/old.edgekit"), {})
