"""--device from the command line, with the device on this machine: everything but the network and pip."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from click.testing import CliRunner, Result

from edgekit.bundle import Bundle
from edgekit.cli import main
from edgekit.compiler.bench.history import read_history
from edgekit.devices.measure import _targets
from edgekit.system import cpu
from tests.devices.local_ssh import local_ssh
from tests.fixtures import models
from tests.fixtures.bundles import small_bundle, variant
from tests.fixtures.child_processes import run_python
from tests.fixtures.classifiers import classifiers, write_card

pytestmark = pytest.mark.needs_ort


def run(*words: object) -> Result:
    found = CliRunner().invoke(main, [str(word) for word in words])
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception  # a traceback would have reached the user
    return found


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = tmp_path / "small.edgekit"
    assert run("build", models.dense_network(tmp_path), "-t", "ort", "-o", path).exit_code == 0
    return path


def test_bench_there_is_merged_and_shown(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = local_ssh(tmp_path, monkeypatch)
    found = run(
        "bench", bundle, "--device", "pi@board", "--seconds", 0.1, "--threads", 1, "--merge", "--json"
    )
    assert found.exit_code == 0, found.stderr
    (row,) = json.loads(found.stdout)["results"]
    assert (row["variant"], row["threads"]) == ("ort-fp32", 1)
    assert found.stderr.splitlines()[1:] == [
        "  pi@board: brought edgekit-sdk 0.1.0 (" + found.stderr.splitlines()[1].split("(")[1],
        f"  {bundle} has the figures now; sha256 {digest(bundle)[:12]}...",
    ]
    assert (there / "cache").is_dir()  # it was run with a cache of its own
    shown = run("inspect", bundle).stdout
    assert f"measured on {cpu.cpu_name()} ({cpu.processor_kind()}, Linux" in shown

    verified = run("verify", bundle, "--device", "pi@board", "--merge")
    assert verified.exit_code == 0
    assert verified.stdout.splitlines()[0].split() == ["variant", "on", "pi@board"]
    assert verified.stdout.splitlines()[1].split()[:4] == ["ort-fp32", "verified", "on", "ONNX"]
    assert "brought" not in verified.stderr  # it was there

    explained = run("explain", bundle, "--device", "pi@board", "--merge")
    assert " Conv\n" in explained.stdout  # half a million products: seen by every clock
    with Bundle.open(bundle) as opened:
        (record,) = opened.manifest["extensions"]["devices"]
    assert set(record["variants"]["ort-fp32"]) == {"bench", "verify", "explain"}
    assert record["variants"]["ort-fp32"]["explain"]["nodes"][0]["ms"] > 0
    assert "board" not in json.dumps(record)  # a bundle travels; whose device it was does not


def digest(bundle: Path) -> str:
    with Bundle.open(bundle) as opened:
        return opened.digest


def test_without_merge_the_bundle_stays(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local_ssh(tmp_path, monkeypatch)
    before = bundle.read_bytes()
    found = run("bench", bundle, "--device", "pi@board", "--seconds", 0.1, "--fail-if", "p50>0ms", "--json")
    assert found.exit_code == 1, found.stderr  # limits are held against what the device measured
    assert len(json.loads(found.stdout)["beyond"]) == 1
    assert bundle.read_bytes() == before


def test_what_is_damaged_between_entries_is_not_sent_either(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = local_ssh(tmp_path, monkeypatch)
    with Bundle.open(bundle) as opened:
        entries = opened.manifest["entries"]
    content = bytearray(bundle.read_bytes())
    start = len(content) - entries[-1]["offset"] - entries[-1]["size"]
    ends = ((before["offset"] + before["size"], after["offset"]) for before, after in pairwise(entries))
    content[start + next(end for end, following in ends if end < following)] = 1
    bundle.write_bytes(content)
    found = run("bench", bundle, "--device", "pi@board", "--seconds", 0.1)
    assert found.exit_code == 2
    assert "the padding is not zero" in found.stderr
    assert not there.exists()  # nobody was asked


def test_a_history_has_the_device_and_the_bundle_that_was_measured(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local_ssh(tmp_path, monkeypatch)
    history, before = tmp_path / "h.jsonl", digest(bundle)
    found = run(
        "bench", bundle, "--device", "pi@board", "--seconds", 0.1, "--merge", "--history", history, "--json"
    )
    assert found.exit_code == 0, found.stderr
    (ran,) = read_history(history)
    assert list(ran.results) == json.loads(found.stdout)["results"]
    assert [ran.cpu, *ran.isa] == cpu.identity()
    assert ran.digest == before != digest(bundle)


def test_accuracy_there_is_that_of_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = pytest.importorskip("PIL.Image")
    path, folder = classifiers(tmp_path)[0], tmp_path / "set" / "images" / "val"
    folder.mkdir(parents=True)
    labels = folder.parents[1] / "labels" / "val"
    labels.mkdir(parents=True)
    (labels / "labels.csv").write_text("file,label\n" + "".join(f"{i}.png,{i % 5}\n" for i in range(6)))
    for index in range(6):
        pixels = np.full(6, 100, np.uint8)
        pixels[index] = 200
        image.fromarray(pixels.reshape(3, 1, 2).transpose(1, 2, 0).copy()).save(folder / f"{index}.png")
    local_ssh(tmp_path, monkeypatch)
    here = run("evaluate", path, "--samples", folder, "--json")
    there = run("evaluate", path, "--samples", folder, "--device", "pi@board", "--json")
    assert there.exit_code == here.exit_code == 0, there.stderr
    assert json.loads(there.stdout) == json.loads(here.stdout)
    assert json.loads(here.stdout)["variants"][0]["score"]["value"] == pytest.approx(5 / 6, abs=1e-4)
    assert "brought 7 files of samples" in there.stderr
    card = write_card(tmp_path)
    model = path.with_suffix(".onnx")
    found = run("evaluate", model, "--card", card, "--samples", folder, "--device", "pi@board", "--json")
    (row,) = json.loads(found.stdout)["variants"]
    assert (row["variant"], row["score"]) == ("small.onnx", json.loads(here.stdout)["variants"][0]["score"])


def test_engines_of_later_stages_are_brought_too() -> None:
    """Those of the first one are enough where the stage has variants for them."""
    first = small_bundle([variant("ort-fp32", "ort"), variant("openvino-fp32", "openvino")])
    stages = {
        "read": small_bundle([variant("tflite-fp32", "tflite")]),
        "name": small_bundle([variant("ort-fp32", "ort"), variant("ncnn-fp32", "ncnn")]),
    }
    cascade: Any = Mock(variants=first.variants, stages=tuple(stages), stage=stages.get)
    assert _targets(cascade, {"engine": "ort"}) == ["ort", "tflite"]
    assert _targets(cascade, {}) == ["openvino", "ort", "tflite"]


def test_known_devices_are_listed(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("devices").stdout == "  no device is known here: add one with edgekit devices user@host\n"
    local_ssh(tmp_path, monkeypatch)
    assert run("devices", "pi@board").exit_code == 0
    (row,) = json.loads(run("devices", "--json").stdout)["devices"]
    assert (row["address"], row["machine"], row["engines"]) == ("pi@board", cpu.processor_kind(), [])
    run("verify", bundle, "--device", "pi@board")
    assert "onnxruntime 1." in run("devices").stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["bench", "--merge"], "--merge needs --device; BUNDLE already has the measurements of this machine"),
        (["bench", "--device", "pi@board", "--sweep", "1x1"], "--device does not go with --sweep"),
        (["bench", "--device", "pi@board", "--against", "b"], "--device does not go with --against"),
        (["explain", "--device", "pi@board", "--against", "b"], "--device does not go with --against"),
        (["verify", "--device", "-oProxyCommand=x"], "'-oProxyCommand=x' is not a device"),
        (
            ["evaluate", "--device", "pi@board", "--samples", ".", "--source", "m"],
            "--device does not go with --source",
        ),
    ],
)
def test_options_that_do_not_fit_are_refused(words: list[str], expected: str, bundle: Path) -> None:
    found = run(words[0], bundle, *words[1:])
    assert found.exit_code == 2
    assert expected in found.stderr


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("3", "sent an invalid response"),
        ('{"answer": 3}', "sent an invalid response"),
        ('{"answer": {"device": {}, "results": []}}', "sent an invalid response: 'cpu'"),
        ('{"error": "NoVariantError: nothing", "exit_code": 1}', "pi@board: NoVariantError: nothing"),
    ],
)
def test_an_answer_that_is_none_is_told_and_not_merged(
    answer: str, said: str, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last of six connections measures: inventory, is EdgeKit there, EdgeKit, is the bundle there, the
    bundle, the measurement."""
    fake = f"""
n=$(cat count 2>/dev/null || echo 0); echo $((n + 1)) >count
if [ $n = 5 ]; then cat <<'EOF'
{{"hello": 1}}
{answer}
EOF
exit 0; fi
"""
    local_ssh(tmp_path, monkeypatch, fake)
    before = bundle.read_bytes()
    found = run("bench", bundle, "--device", "pi@board", "--seconds", 0.1, "--merge")
    assert found.exit_code in (1, 3)
    assert said in found.stderr
    assert bundle.read_bytes() == before


def test_the_worker_loads_no_package_of_the_host() -> None:
    """A device has numpy and one engine."""
    script = "import sys, edgekit.devices.worker; print(*{m.partition('.')[0] for m in sys.modules})"
    done = run_python(script, check=True)
    assert not set(done.stdout.split()) & {"onnx", "onnx_ir", "click", "packaging", "PIL", "onnxruntime"}
