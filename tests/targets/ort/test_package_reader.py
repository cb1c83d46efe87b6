"""Broken and hostile model packages are refused in one line, before ONNX Runtime sees them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest
from edgekit_ort.package_format import share_weights, with_weights_inside
from edgekit_ort.package_reader import read_package

from edgekit.bundle.bundle import Bundle
from edgekit.errors import ModelError
from tests.fixtures.model_packages import copied, doubling, doubling_bundle, exported, foreign

pytestmark = [
    pytest.mark.needs_ort,
    pytest.mark.skipif(
        not hasattr(onnxruntime, "ModelPackage"), reason="ONNX Runtime has packages since 1.32"
    ),
]

Change = Callable[[Path, dict[str, Any]], object]
THREADS = "session.intra_op_num_threads"


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(tmp_path_factory.mktemp("packages") / "pkg")


def variant(manifest: dict[str, Any], name: str = "plain") -> Any:
    return manifest["components"]["model"]["variants"][name]


def ort(manifest: dict[str, Any]) -> Any:
    return variant(manifest)["executor_info"]["ort"]


def asset(root: Path, file: str) -> Path:
    return next(root.glob(f"shared_assets/*/{file}"))


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)


def replaced(path: Path, make: Callable[[Path], object]) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    make(path)


def with_option(key: str, value: object) -> Change:
    return lambda root, m: ort(m)["session_options"].update({key: value})


def with_variant(**values: object) -> Change:
    return lambda root, m: variant(m).update(values)


CONTENT = "has other content than its name says"
CHANGED = "has changed since it was written"
ATTACKS: dict[str, tuple[Change, str]] = {
    "shared weights, a bit flipped": (lambda root, m: flip(asset(root, "weights.bin")), CHANGED),
    "shared weights, noise": (lambda root, m: asset(root, "weights.bin").write_bytes(b"?" * 9216), CHANGED),
    "shared weights cut": (lambda root, m: asset(root, "weights.bin").write_bytes(b"1" * 1000), CHANGED),
    "shared weights missing": (lambda root, m: asset(root, "weights.bin").unlink(), CONTENT),
    "golden file changed": (lambda root, m: flip(asset(root, "entries/golden/0/y.npy")), f"y.npy {CHANGED}"),
    "other session options": (
        with_option("session.disable_quant_qdq", "1"),
        "variant 'plain': its options are not those it was verified with",
    ),
    "another provider": (with_variant(ep="CUDAExecutionProvider"), "its options are not those"),
    "a variant of its own": (
        lambda root, m: m["components"]["model"]["variants"].update(third=variant(m)),
        "variant 'third' is not in bundle.json",
    ),
    "a variant removed": (
        lambda root, m: m["components"]["model"]["variants"].pop("plain"),
        "bundle.json does not fit the package: KeyError 'plain'",
    ),
    "another variant's graph": (
        lambda root, m: shutil.copy(root / "shifted/model.onnx", root / "plain/model.onnx"),
        f"plain/model.onnx {CHANGED}",
    ),
    "graph, a bit flipped": (lambda root, m: flip(root / "plain/model.onnx"), f"plain/model.onnx {CHANGED}"),
    "a file that is not listed": (
        lambda root, m: (shutil.copy(root / "plain/model.onnx", root / "plain/new.onnx"),
                         ort(m).update(model_file="new.onnx")),
        "plain/new.onnx is not in EdgeKit's list of files",
    ),
    "graph missing": (lambda root, m: (root / "plain/model.onnx").unlink(), "plain/model.onnx can't be read"),
    "variant's folder missing": (lambda root, m: shutil.rmtree(root / "shifted"), "shifted/model.onnx can't"),
    "schema 99": (lambda root, m: m.update(schema_version="99.0"), "schema_version is '99.0'; EdgeKit reads"),
    "schema a number": (lambda root, m: m.update(schema_version=1e30), "schema_version is 1e+30"),
    "no components": (lambda root, m: m.pop("components"), "it has 0 components"),
    "two components": (lambda root, m: m["components"].update(b={}), "2 components ('model', 'b')"),
    "no variants": (lambda root, m: m["components"]["model"].clear(), "variants is None, not an object"),
    "10,000 variants": (
        lambda root, m: m["components"]["model"]["variants"].update(
            {f"v{i}": {"ep": "CPUExecutionProvider"} for i in range(10_000)}
        ),
        "it has 10002 variants",
    ),
    "unknown key": (lambda root, m: m.update(novelty=1), "manifest.json: unknown key 'novelty'"),
    "unknown key of a variant": (with_variant(novelty=1), "variant 'plain': unknown key 'novelty'"),
    "ep a number": (with_variant(ep=7), "variant 'plain': ep and device must be texts"),
    "folder ..": (with_variant(variant_directory="../pkg/plain"), "'../pkg/plain' is not a path inside"),
    "folder absolute": (with_variant(variant_directory="/etc"), "'/etc' is not a path inside the package"),
    "layout installed": (
        lambda root, m: (m.update(layout="installed"), ort(m).update(model_file="/etc/passwd")),
        "'/etc/passwd' is not a path inside the package",
    ),
    "weights in /etc": (
        with_option("session.model_external_initializers_file_folder_path", "/etc"),
        "'/etc' is not a path inside the package",
    ),
    "URI with ..": (
        lambda root, m: ort(m).update(model_file=f"sha256:{'0' * 64}/../../x"), "shared asset sha256:0000"
    ),
    "an asset in itself": (
        lambda root, m: (m.update(shared_assets={f"sha256:{'0' * 64}": f"sha256:{'0' * 64}"}),
                         ort(m).update(model_file=f"sha256:{'0' * 64}/x")),
        "shared asset sha256:000000000000... is in another asset",
    ),
    "link to a file outside": (
        lambda root, m: replaced(root / "plain/model.onnx", lambda path: path.symlink_to("/etc/passwd")),
        "plain/model.onnx is a link; copy the file there",
    ),
    "link to a folder outside": (
        lambda root, m: replaced(root / "plain", lambda path: path.symlink_to("/etc")), "plain is a link"
    ),
    "weights a link to a device": (
        lambda root, m: replaced(asset(root, "weights.bin"), lambda path: path.symlink_to("/dev/zero")),
        "weights.bin is not a regular file",
    ),
    "graph a pipe": (
        lambda root, m: replaced(root / "plain/model.onnx", os.mkfifo), "model.onnx can't be read: it is not"
    ),
    "weights a pipe": (
        lambda root, m: replaced(asset(root, "weights.bin"), os.mkfifo), "weights.bin is not a regular file"
    ),
    "2,000 threads": (with_option(THREADS, "2000"), f"{THREADS} is '2000'; at most 256 threads"),
    "1e9 threads": (with_option(THREADS, "1000000000"), f"{THREADS} is '1000000000'"),
    "threads of a strange digit": (with_option(THREADS, "\N{SUPERSCRIPT TWO}"), f"{THREADS} is"),
    "threads in words": (with_option(THREADS, "many"), f"{THREADS} is 'many'"),
    "profiling": (with_option("session.enable_profiling", "1"), "'session.enable_profiling' is not one that"),
    "an output file": (
        with_option("session.optimized_model_filepath", "/tmp/x"), "session.optimized_model_filepath' is not"
    ),
    "unknown session option": (with_option("session.no_such", "1"), "'session.no_such' is not one that"),
    "session option a list": (with_option("session.disable_prepacking", ["1"]), "is not a short text"),
    "custom op library": (
        lambda root, m: ort(m).update(custom_op_library="evil.so"), "the unknown key 'custom_op_library'"
    ),
    "slot in a file outside": (
        lambda root, m: variant(m)["executor_info"].update(ort="../../etc/x.json"), "is not a path inside"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTACKS)
def test_attacks(name: str, ours: Path, tmp_path: Path) -> None:
    change, line = ATTACKS[name]
    root = copied(ours, tmp_path / "pkg")
    manifest = json.loads((root / "manifest.json").read_text())
    change(root, manifest)
    (root / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ModelError) as refused:
        read_package(root)
    assert line in str(refused.value)
    assert str(refused.value).startswith("pkg: is not a model package that EdgeKit can open: ")
    assert "\n" not in str(refused.value)


MANIFESTS: dict[str, tuple[Callable[[str], bytes], str]] = {
    "100,000 deep": (
        lambda text: json.dumps({**json.loads(text), "additional_metadata": "@"})
        .replace('"@"', "[" * 100_000 + "]" * 100_000).encode(),
        "manifest.json: objects and lists are more than 32 deep",
    ),
    "200 MB": (lambda text: b" " * 200_000_000, "manifest.json can't be read: it has more than 8 MB"),
    "not UTF-8": (lambda text: text.encode().replace(b"package_name", b"package_\xff"), "is not UTF-8"),
    "not JSON": (lambda text: b"{", "manifest.json: character 1 is not JSON"),
    "empty": (lambda text: b"", "manifest.json: character 0 is not JSON"),
    "a list": (lambda text: b"[]", "manifest.json is a list, not an object"),
    "a key twice": (
        lambda text: text.replace("{", '{"layout": "portable", "layout": "installed", ', 1).encode(),
        "key 'layout' is twice in one object",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MANIFESTS)
def test_hostile_manifests(name: str, ours: Path, tmp_path: Path) -> None:
    root = copied(ours, tmp_path / "pkg")
    change, line = MANIFESTS[name]
    (root / "manifest.json").write_bytes(change((root / "manifest.json").read_text()))
    with pytest.raises(ModelError) as refused:
        read_package(root)
    assert line in str(refused.value)


@pytest.mark.parametrize(
    "make",
    [
        os.mkfifo,
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.symlink_to(shutil.copy(__file__, path.parents[1])),
    ],
)
def test_a_manifest_that_is_no_file(make: Callable[[Path], object], ours: Path, tmp_path: Path) -> None:
    root = copied(ours, tmp_path / "pkg")
    replaced(root / "manifest.json", make)
    with pytest.raises(ModelError, match=r"manifest\.json can't be read: it is"):
        read_package(root)


def test_what_is_read(ours: Path) -> None:
    package = read_package(ours)
    assert [(v.name, v.precision, v.provider, v.on_cpu) for v in package.variants] == [
        ("shifted", "fp32", "CPUExecutionProvider", True),
        ("plain", "fp32", "CPUExecutionProvider", True),
    ]
    assert [sorted(v.files) for v in package.variants] == [["model.onnx", "weights.bin"]] * 2
    shared = [v.files["weights.bin"] for v in package.variants]
    assert shared[0] is shared[1]
    assert package.name == "m"
    assert package.bundle is not None
    assert Bundle.create(*package.bundle).digest == doubling_bundle().digest  # every byte


def test_a_stranger_s_shared_weights_have_their_hash(ours: Path, tmp_path: Path) -> None:
    root = copied(ours, tmp_path / "pkg")
    manifest = json.loads((root / "manifest.json").read_text())
    del manifest["additional_metadata"]
    (root / "manifest.json").write_text(json.dumps(manifest))
    assert read_package(root).bundle is None
    flip(asset(root, "weights.bin"))
    with pytest.raises(ModelError, match=f"shared asset sha256:.* {CONTENT}"):
        read_package(root)


def test_a_component_in_a_file_and_a_slot_in_a_file(tmp_path: Path) -> None:
    root = foreign(tmp_path / "pkg", {"only": doubling()})
    manifest = json.loads((root / "manifest.json").read_text())
    (root / "model").mkdir()
    component = manifest["components"]["model"]
    entry = component["variants"]["only"]
    (root / "only").rename(root / "model/only")
    (root / "model/only/ort.json").write_text(json.dumps(entry["executor_info"]["ort"]))
    entry["executor_info"]["ort"] = "ort.json"
    (root / "model/component.json").write_text(json.dumps(component))
    manifest["components"]["model"] = "model"
    (root / "manifest.json").write_text(json.dumps(manifest))
    assert onnxruntime.ModelPackage.open(str(root)).get_info()  # it is one for ONNX Runtime too
    assert [v.name for v in read_package(root).variants] == ["only"]


def test_the_graph_that_onnxruntime_opens_is_the_bundle_s(ours: Path, tmp_path: Path) -> None:
    root = copied(ours, tmp_path / "pkg")
    manifest = json.loads((root / "manifest.json").read_text())
    variant(manifest)["variant_directory"] = "shifted"
    (root / "manifest.json").write_text(json.dumps(manifest))
    bundle = read_package(root).bundle
    assert bundle is not None
    assert bundle[1]["v/plain.onnx"] == bundle[1]["v/shifted.onnx"] == doubling(("Add", 0.0))


def test_a_bundle_s_manifest_is_checked(ours: Path, tmp_path: Path) -> None:
    """All digests are right: the author of the package computed them."""
    root = copied(ours, tmp_path / "pkg")
    stored = asset(root, "bundle.json")
    table = json.loads(stored.read_text())
    table["variants"][0]["files"] = {"model.onnx": 7}
    stored.write_text(json.dumps(table))
    uri = onnxruntime.ModelPackage.compute_directory_hash(str(stored.parent))
    stored.parent.rename(stored.parent.with_name(uri.replace(":", "-")))
    manifest = json.loads((root / "manifest.json").read_text())
    files = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.is_file()}
    del files["manifest.json"]
    digests = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
    manifest["additional_metadata"]["edgekit"] |= {"bundle": uri, "files": digests}
    (root / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ModelError, match=r"does not fit the package: ManifestError variants\[0\]\.files"):
        read_package(root)


def test_weights_outside_their_file() -> None:
    files = {"a": {"model.onnx": doubling()}, "b": {"model.onnx": doubling(("Add", 0.0))}}
    weights, readers = share_weights(files)
    assert readers == {"a", "b"}
    assert with_weights_inside(files["a"]["model.onnx"], {"weights.bin": weights}) == doubling()
    with pytest.raises(ValueError, match=r"narrow is not inside weights\.bin"):
        with_weights_inside(files["a"]["model.onnx"], {"weights.bin": weights[:-1]})


def test_a_graph_with_weights_in_its_own_file_shares_none() -> None:
    """ONNX Runtime would look for that file where the shared weights are."""
    own = onnx.ModelProto.FromString(doubling())
    tensor = own.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="model.data")
    content = own.SerializeToString(deterministic=True)
    files = {name: {"model.onnx": content, "model.data": b""} for name in "ab"}
    assert share_weights(files) == (b"", set())
    assert files["a"]["model.onnx"] == content


def test_weights_in_a_file_of_the_graph_s_name(tmp_path: Path) -> None:
    """They would take the place of the graph that was looked at."""
    model = onnx.ModelProto.FromString(doubling())
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="model.onnx")
    root = foreign(tmp_path / "pkg", {"only": model.SerializeToString()})
    with pytest.raises(ModelError, match="its weights are in a file called"):
        read_package(root)


def test_a_variant_that_names_no_file(tmp_path: Path) -> None:
    root = foreign(tmp_path / "pkg", {"only": doubling()}, only={"executor_info": {}})
    with pytest.raises(
        ModelError, match=r"variant 'only': it names no file: it has neither executor_info\.ort"
    ):
        read_package(root)
