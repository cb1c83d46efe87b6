"""Model packages of ONNX Runtime as bundles: judged, opened, kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import edgekit
from edgekit.compiler.sandbox import packages
from edgekit.compiler.sandbox.public import TRUSTED
from edgekit.errors import BundleError, ModelError
from tests.fixtures.bundles import X
from tests.fixtures.command_line import Call, answer
from tests.fixtures.command_line import call as call
from tests.fixtures.model_packages import copied, doubling, doubling_bundle, exported, foreign

pytestmark = [
    pytest.mark.needs_ort,
    pytest.mark.skipif(
        not hasattr(onnxruntime, "ModelPackage"), reason="ONNX Runtime has packages since 1.32"
    ),
]
CUDA = {"ep": "CUDAExecutionProvider", "device": "gpu"}
NPU = {"ep": "QNNExecutionProvider", "device": "npu"}


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def compiled() -> bytes:
    """A graph that only its provider can open."""
    model = onnx.ModelProto.FromString(doubling())
    del model.graph.node[:]
    model.graph.node.append(
        helper.make_node(
            "EPContext", ["x"], ["y"], domain="com.microsoft", ep_cache_context="?", main_context=1
        )
    )
    model.opset_import.add(domain="com.microsoft", version=1)
    content: bytes = model.SerializeToString()
    return content


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    variants = {"wrong": doubling(factor=2.02), "exact": doubling(), "cuda": doubling(), "npu": compiled()}
    return foreign(tmp_path / "pkg", variants, wrong={"ep": "XnnpackExecutionProvider"}, cuda=CUDA, npu=NPU)


def test_every_variant_is_judged(theirs: Path, call: Call) -> None:
    found = call("verify", theirs, "--json")
    assert found.exit_code == 1
    status = {check["variant"]: check["status"] for check in answer(found)["checks"]}
    version = f"ONNX Runtime {onnxruntime.__version__}"
    assert status == {
        "exact": f"verified on {version}",
        "cuda": f"verified on {version} (CPU); made for CUDAExecutionProvider, not run there",
        "npu": "not run: made for QNNExecutionProvider: its graph is compiled for it (EPContext)",
        "wrong": "failed: output y: SNR 40.0 dB; fp32 needs 100 dB",
    }


def test_a_reference_of_one_s_own(theirs: Path, tmp_path: Path, call: Call) -> None:
    (tmp_path / "source.onnx").write_bytes(doubling(factor=2.02))
    path = tmp_path / "m.edgekit"
    made = call("build", theirs, "--reference", tmp_path / "source.onnx", "-o", path, "--json")
    assert made.exit_code == 1  # some are rejected
    status = {v.name: v.status.split(":")[0].split(" on ")[0] for v in edgekit.Bundle(path)}
    assert status == {"wrong": "verified", "exact": "rejected", "cuda": "rejected", "npu": "not run"}
    call("verify", path)


def test_its_bundle_runs(theirs: Path, tmp_path: Path, call: Call) -> None:
    path = tmp_path / "m.edgekit"
    call("build", theirs, "-o", path)
    bundle = edgekit.Bundle(path)
    assert bundle["exact"].files["model.onnx"] == bundle["cuda"].files["model.onnx"]
    with edgekit.open(path, variant="cuda") as session:
        np.testing.assert_allclose(session.run({"x": X})["y"], 2 * X)


def test_every_way_opens_the_folder_itself(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    variants = {"plain": doubling(), "shifted": doubling(("Add", 0.0))}
    root = foreign(tmp_path / "pkg", variants)
    with edgekit.open(root) as session:
        np.testing.assert_allclose(session.run({"x": X})["y"], 2 * X)
    assert [check.status.split(" on ")[0] for check in edgekit.verify(root)] == ["verified", "verified"]

    def fail(request: object) -> None:
        raise AssertionError("it was built a second time")

    monkeypatch.setattr(packages, "build_request", fail)
    np.save(tmp_path / "x.npy", X)
    assert call("inspect", root).exit_code == 0
    assert call("report", root, "-o", tmp_path / "p.html").exit_code == 0
    assert call("bench", root, "--seconds", "0.01").exit_code == 0
    ran = answer(call("run", root, "-i", tmp_path / "x.npy", "--json"))
    assert ran["active"]["variant"] in ("plain", "shifted")
    assert answer(call("inspect", root, "--json"))["size_bytes"] > 10_000
    assert "shifted (fp32)" in call("inspect", root).stdout
    (root / "new").write_text("another package by its content")
    with pytest.raises(AssertionError, match="second time"):
        edgekit.Bundle(root)


def test_edgekit_s_own_package_is_the_bundle_again(tmp_path: Path, call: Call) -> None:
    root = exported(tmp_path / "pkg")
    path = tmp_path / "m.edgekit"
    call("build", root, "-o", path)
    assert path.read_bytes() == b"".join(map(bytes, doubling_bundle().pieces()))
    (tmp_path / "other.onnx").write_bytes(doubling(factor=3.0))
    judged = edgekit.build(root, targets="ort", reference=tmp_path / "other.onnx", progress=False)
    assert [v.status for v in judged] == ["rejected: output y: SNR 9.5 dB; fp32 needs 100 dB"] * 2


def test_what_does_not_apply(theirs: Path, tmp_path: Path, call: Call) -> None:
    path = tmp_path / "m.edgekit"
    refused = call("build", theirs, "-t", "ort", "-t", "tflite", "-o", path)
    assert "pkg is a model package, whose variants are compiled already: give -t ort alone" in refused.stderr
    refused = call("build", theirs, "--precision", "int8", "-o", path)
    assert "--precision does not apply to model packages; leave it out" in refused.stderr
    (tmp_path / "m.onnx").write_bytes(doubling())
    refused = call("build", tmp_path / "m.onnx", "-t", "ort", "--reference", tmp_path / "m.onnx", "-o", path)
    assert "--reference" in refused.stderr
    assert not path.exists()


def test_a_package_for_other_processors_alone(tmp_path: Path) -> None:
    root = foreign(tmp_path / "pkg", {"npu": compiled()}, npu=NPU)
    with pytest.raises(BundleError, match="no variant runs on the CPU; give the source model: --reference"):
        edgekit.Bundle(root)


def test_the_files_are_opened_in_a_child(
    theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child that ends costs one line."""
    monkeypatch.delenv(TRUSTED, raising=False)
    monkeypatch.setenv("EDGEKIT_SECONDS", "0.1")
    with pytest.raises(BundleError, match=r"took longer than its limit of 0\.1 s"):
        edgekit.Bundle(copied(theirs, tmp_path / "late"))
    monkeypatch.delenv("EDGEKIT_SECONDS")
    assert edgekit.Bundle(theirs)["exact"].status.startswith("verified")


def test_a_package_that_would_be_hashed_for_hours(theirs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(theirs / "sparse", "wb") as file:
        file.truncate(33 << 30)
    with pytest.raises(BundleError, match="has at most 10000 files and 32 GB"):
        edgekit.Bundle(theirs)
    (theirs / "sparse").unlink()
    monkeypatch.setattr(packages, "FILES_LIMIT", 5)
    with pytest.raises(BundleError, match="has at most 5 files"):
        edgekit.Bundle(theirs)


def test_a_folder_that_is_no_package(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(BundleError, match="is not a regular file"):
        edgekit.Bundle(tmp_path / "folder")
    with pytest.raises(ModelError, match="is not a model package of an installed target"):
        packages.package_bundle(tmp_path / "folder")


def test_the_cache_keeps_the_packages_that_were_opened_last(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "BUNDLES_LIMIT", 2)
    first, second, third = (
        packages.package_bundle(foreign(tmp_path / str(factor), {"one": doubling(factor=factor)}))
        for factor in (2.0, 3.0, 4.0)
    )
    assert not first.exists()
    assert second.exists()
    packages.package_bundle(tmp_path / "3.0")
    assert packages.package_bundle(tmp_path / "2.0") == first
    assert (first.exists(), second.exists(), third.exists()) == (True, True, False)
