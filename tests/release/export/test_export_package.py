"""Model packages, opened by ONNX Runtime's own library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import edgekit
from edgekit.bundle.joined_files import engine_files, read
from edgekit.release.export.export_package import export_package
from edgekit.runtime import Session
from tests.fixtures.bundles import X, small_bundle, variant
from tests.fixtures.command_line import Call, answer
from tests.fixtures.command_line import call as call
from tests.fixtures.gguf_files import write_tiny
from tests.fixtures.keys import KINDS, key_files
from tests.fixtures.model_packages import COPIES, doubling, doubling_bundle, exported, foreign

pytestmark = [
    pytest.mark.needs_ort,
    pytest.mark.skipif(
        not hasattr(onnxruntime, "ModelPackage"), reason="ONNX Runtime has packages since 1.32"
    ),
]


def stock(root: Path) -> tuple[str, Any]:
    """The variant that ONNX Runtime chooses for the CPU, and its session."""
    options = onnxruntime.SessionOptions()
    options.add_provider("CPUExecutionProvider", {})
    context = onnxruntime.ModelPackageContext(str(root))
    chosen = context.select_component("model", onnxruntime.ModelPackageOptions(options))
    return chosen.get_selected_variant_name(), chosen.create_session(None)


def test_onnxruntime_runs_the_advised_variant_with_the_bundle_s_bits(tmp_path: Path, call: Call) -> None:
    bundle = doubling_bundle().save(tmp_path / "m.edgekit")
    written = answer(call("export", bundle, "--package", tmp_path / "pkg", "--json"))
    assert written["variants"] == ["shifted", "plain"]  # the faster one first
    assert written["left_out"] == {"lost": "rejected: too slow"}
    name, session = stock(tmp_path / "pkg")
    assert name == "shifted"
    with Session(bundle, variant="shifted") as ours:
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], ours.run({"x": X})["y"])
    settings = session.get_session_options()
    assert settings.get_session_config_entry("session.intra_op.allow_spinning") == "0"


def test_weights_are_there_once(tmp_path: Path) -> None:
    root = exported(tmp_path / "pkg")
    (weights,) = root.glob("shared_assets/*/weights.bin")
    assert weights.stat().st_size == 2 * 6 * 6 * COPIES * 4
    assert all(path.stat().st_size < 1000 for path in root.glob("*/model.onnx"))
    digest = onnxruntime.ModelPackage.compute_directory_hash(str(weights.parent))
    assert weights.parent.name == digest.replace(":", "-")


def test_what_a_package_says(tmp_path: Path) -> None:
    root = exported(tmp_path / "pkg")
    info = onnxruntime.ModelPackage.open(str(root)).get_info()
    assert info["package_name"] == "m"
    manifest = json.loads((root / "manifest.json").read_text())
    files = manifest["additional_metadata"]["edgekit"]["files"]
    present = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    assert set(files) == present - {"manifest.json"}
    slot = manifest["components"]["model"]["variants"]["plain"]["executor_info"]["edgekit"]
    assert slot == {"precision": "fp32", "status": "verified on ONNX Runtime"}
    stored = json.loads(next(root.glob("shared_assets/*/bundle.json")).read_text())
    assert stored["variants"][0]["evidence"]["timing"]["p50_ms"] == 2.0
    assert "sha256-" + manifest["additional_metadata"]["edgekit"]["bundle"][7:] in {
        path.name for path in root.glob("shared_assets/*")
    }


def test_what_is_refused(tmp_path: Path, call: Call) -> None:
    bundle = doubling_bundle().save(tmp_path / "m.edgekit")
    (tmp_path / "there").mkdir()
    refused = call("export", bundle, "--package", tmp_path / "there")
    assert refused.exit_code == 2
    assert "there already exists; choose another folder. Nothing was written" in refused.stderr
    refused = call("export", bundle, "plain", "--package", tmp_path / "pkg")
    assert "--package takes no VARIANT" in refused.stderr
    refused = call("export", bundle, "--package", tmp_path / "pkg", "-o", tmp_path / "o")
    assert "give one of -o DIR, --triton DIR, --package DIR, --deepstream DIR and --web DIR" in refused.stderr
    other = small_bundle([variant("a", "tflite")]).save(tmp_path / "o.edgekit")
    refused = call("export", other, "--package", tmp_path / "pkg")
    assert "has no variant for ort, whose engine has model packages" in refused.stderr
    assert not (tmp_path / "pkg").exists()


def test_a_signature_covers_every_file(tmp_path: Path, call: Call) -> None:
    pytest.importorskip("cryptography")
    private, public = key_files(tmp_path, "key", KINDS["Ed25519"]())
    root = exported(tmp_path / "pkg")
    signed = call("release", "sign", root, "--private-key", private)
    assert signed.exit_code == 0, signed.stderr
    assert (root / "manifest.json.sig").is_file()
    checked = call("verify", root, "--key", public)
    assert checked.exit_code == 0, checked.stderr
    assert checked.stdout.count("verified on ONNX Runtime") == 2
    onnxruntime.ModelPackage.open(str(root)).close()  # the signature does not disturb it
    graph = root / "plain/model.onnx"
    content = graph.read_bytes()
    graph.write_bytes(content[:-1])
    changed = call("verify", root, "--key", public)
    assert (changed.exit_code, "plain/model.onnx has changed" in changed.stderr) == (2, True)
    graph.write_bytes(content)
    manifest = root / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"cpu"', '"gpu"', 1))
    changed = call("verify", root, "--key", public)
    assert "is not the file that was signed" in changed.stderr


def test_a_stranger_s_package_is_not_signed(tmp_path: Path, call: Call) -> None:
    pytest.importorskip("cryptography")
    private, public = key_files(tmp_path, "key", KINDS["Ed25519"]())
    root = foreign(tmp_path / "pkg", {"only": doubling()})
    refused = call("release", "sign", root, "--private-key", private)
    assert "its manifest has no digests of its files, so a signature does not cover them" in refused.stderr
    assert not list(tmp_path.rglob("*.sig"))
    from edgekit.signing.signing_keys import load_private_key
    from edgekit.signing.trusted_keys import sign_file

    signature = sign_file(root / "manifest.json", load_private_key(private))  # by another tool
    (root / "manifest.json.sig").write_bytes(signature)
    assert "its manifest has no digests of its files" in call("verify", root, "--key", public).stderr


@pytest.mark.needs_openvino
@pytest.mark.needs_tokenizers
def test_a_language_model_whose_variants_share_tensors(tmp_path: Path, call: Call) -> None:
    """ONNX Runtime opens what the bundle has in parts, and the package has the bundle's variant again."""
    model = write_tiny(tmp_path / "tiny.gguf")
    bundle = edgekit.build(model, targets=["ort", "openvino"], precision="int8", force=True, progress=False)
    assert "joined" in bundle["ort-int8"].options
    assert export_package(bundle, tmp_path / "pkg").variants == ["ort-int8"]
    name, session = stock(tmp_path / "pkg")
    assert name == "ort-int8"
    assert "logits" in {output.name for output in session.get_outputs()}
    again = edgekit.Bundle(tmp_path / "pkg")
    assert [variant.name for variant in again] == ["ort-int8"]
    for file in engine_files(bundle["ort-int8"]):
        expected = read(bundle, bundle["ort-int8"], file)
        assert read(again, again["ort-int8"], file) == expected
        assert (tmp_path / "pkg/ort-int8" / file).read_bytes() == expected
    assert call("verify", tmp_path / "pkg").exit_code == 0


def test_a_package_from_a_package(tmp_path: Path) -> None:
    """Providers, session options and shared weights survive."""
    gpu = {"ep": "CUDAExecutionProvider", "device": "gpu"}
    bare = {"variant_directory": "c", "ep": "CPUExecutionProvider", "executor_info": {"ort": {
        "model_file": "model.onnx", "session_options": {"session.disable_prepacking": "1"}}}}  # fmt: skip
    contents = {"a": doubling(), "b": doubling(("Add", 0.0)), "c": doubling()}
    root = foreign(tmp_path / "pkg", contents, b=gpu)
    manifest = json.loads((root / "manifest.json").read_text())
    manifest["components"]["model"]["variants"]["c"] = bare
    (root / "manifest.json").write_text(json.dumps(manifest))
    bundle = edgekit.build(root, targets="ort", progress=False)
    export_package(bundle, tmp_path / "again")
    again = export_package(edgekit.Bundle(tmp_path / "again"), tmp_path / "third")
    manifest = json.loads((tmp_path / "third/manifest.json").read_text())
    variants = manifest["components"]["model"]["variants"]
    assert {name: entry["ep"] for name, entry in variants.items()} == {
        "a": "CPUExecutionProvider", "b": "CUDAExecutionProvider", "c": "CPUExecutionProvider",
    }  # fmt: skip
    assert len([path for path in again.files if path.name == "weights.bin"]) == 1
    assert all("edgekit" in entry["executor_info"] for entry in variants.values())
    options = variants["c"]["executor_info"]["ort"]["session_options"]
    assert options["session.disable_prepacking"] == "1"
    assert "session.intra_op.allow_spinning" not in options
    assert "device" not in variants["c"]
    onnxruntime.ModelPackage.open(str(tmp_path / "third")).close()
