"""Vendors' tools on a device without Python: programs stand in for adb and for the tools. Not run on a phone.

The program in the place of adb runs the command on this machine, with a PATH that has a shell's tools alone.
The one in the place of benchmark_model prints what the tool's documentation shows, if it is given a file.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import edgekit
from edgekit.bundle import Bundle
from edgekit.bundle.device_evidence import device_records, times_of_this_processor
from edgekit.cli import main
from edgekit.devices.vendor_tools import benchmark_model_times, trtexec_times
from tests.fixtures import models

SAID = """INFO: Loaded model
count=213 first=14573 curr=14450 min=14350 max=15000 avg=14575.2 std=101{more}
Inference timings in us: Init: 5685, First inference: 18535, Warmup (avg): 14462.3, Inference (avg): 14575.2
"""
MORE = " p5=14400 median=14570 p95=14900"

pytestmark = [pytest.mark.needs_ort, pytest.mark.needs_tflite]


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = tmp_path / "small.edgekit"
    edgekit.build(models.write(tmp_path, models.SMALL_CNN), targets=["tflite", "ort"]).save(path)
    return path


def phone(folder: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> Path:
    """Put programs in the place of adb and benchmark_model; where /data/local/tmp of the phone is."""
    there, tools, adb = folder / "data", folder / "tools", folder / "adb"
    for path in (there, tools, adb):
        path.mkdir()
    for name in ("sh", "uname", "head", "wc", "mkdir", "cat", "mv", "env", "sed"):
        (tools / name).symlink_to(str(shutil.which(name)))
    program = adb / "adb"
    program.write_text(
        '#!/bin/sh\n[ "$*" = "-s R5CT shell -T $5" ] || '
        "{ echo \"adb: device '$2' not found\" >&2; exit 1; }\n"
        f'command=$(printf %s "$5" | sed "s#/data/local/tmp#{there}#g")\ncd {folder}\n'
        f'exec env -i PATH={tools} sh -c "$command"\n',
        "utf-8",
    )
    tool = there / "benchmark_model"
    tool.write_text(
        f'#!/bin/sh\necho "$@" >>{folder}/ran\nfile=${{1#--graph=}}\n[ -s "$file" ] || exit 9\n'
        f"cat <<'EOF'\n{said}EOF\n",
        "utf-8",
    )
    for path in (program, tool):
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{adb}:{tools}")
    return there


def run(*words: object) -> Result:
    found = CliRunner().invoke(main, [str(word) for word in words])
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found


def test_a_phone_is_timed_by_its_tool_and_kept_apart(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = phone(tmp_path, monkeypatch, SAID.format(more=MORE))
    found = run("bench", bundle, "--device", "adb:R5CT", "--threads", 2, "--seconds", 0.5, "--merge")
    assert found.exit_code == 0, found.stderr
    assert found.stdout.splitlines() == [
        "  variant      load     first    p50      p95      by",
        "  tflite-fp32  5.68 ms  18.5 ms  14.6 ms  14.9 ms  benchmark_model",
    ]
    (file,) = (there / "edgekit-device").iterdir()
    with Bundle.open(bundle) as opened:
        variant = next(v for v in opened.variants if v.target == "tflite")
        (entry,) = variant.files.values()
        assert file.read_bytes() == opened.read(entry)
        (record,) = device_records(opened.manifest)
        assert times_of_this_processor(opened.manifest, 2) == {}  # a bare engine is no Session
    assert (record.by, record.rows("tflite-fp32")[0]["p50_ms"]) == ("benchmark_model", 14.57)
    assert (tmp_path / "ran").read_text("utf-8").split() == [
        f"--graph={file}", "--num_threads=2", "--warmup_runs=3", "--num_runs=10", "--min_secs=0.5",
        "--max_secs=65",
    ]  # fmt: skip
    assert ", by benchmark_model" in run("inspect", bundle).stdout


def test_an_average_is_called_one(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    phone(tmp_path, monkeypatch, SAID.format(more=""))
    found = run("bench", bundle, "--device", "adb:R5CT", "--merge")
    assert "this benchmark_model prints no median: p50 is the average" in found.stdout
    assert "14.6 ms (average)" in run("inspect", bundle).stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["bench", "--device", "adb:OTHER"], "adb:OTHER can't be reached: no such phone"),
        (
            ["verify", "--device", "adb:R5CT"],
            "adb:R5CT has no Python 3.10 or newer, which verify needs",
        ),
        (
            ["bench", "--device", "adb:R5CT", "--engine", "ort"],
            "adb:R5CT has neither Python 3.10 or newer nor a tool for these variants",
        ),
        (
            ["bench", "--device", "adb:R5CT"],
            "benchmark_model returned no times for tflite-fp32; it printed: ERROR: bad",
        ),
        (["bench", "--device", "adb:R5CT", "--fail-if", "p95>1ms"], "benchmark_model returned no times"),
    ],
)
def test_what_can_t_be_timed_is_told_and_not_merged(
    words: list[str], expected: str, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    phone(tmp_path, monkeypatch, "ERROR: bad\n")
    before = bundle.read_bytes()
    found = run(words[0], bundle, *words[1:], "--merge")
    assert found.exit_code == 3
    assert expected in found.stderr
    assert bundle.read_bytes() == before


def test_limits_are_not_for_a_tool(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    phone(tmp_path, monkeypatch, SAID.format(more=MORE))
    found = run("bench", bundle, "--device", "adb:R5CT", "--fail-if", "p95>1ms")
    assert found.exit_code == 3
    assert "--fail-if is for what bench measures" in found.stderr


def test_a_phone_is_listed(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = phone(tmp_path, monkeypatch, SAID.format(more=MORE))
    found = run("devices", "adb:R5CT")
    assert found.exit_code == 0, found.stderr
    (line,) = [line for line in found.stdout.splitlines() if "adb:R5CT" in line]
    assert "none" in line.split()
    assert "benchmark_model" in line
    assert list(there.iterdir()) == [there / "benchmark_model"]


def test_what_has_no_times_gives_none() -> None:
    assert benchmark_model_times("Inference (avg): 3") is None
    assert trtexec_times("[E] Error: no GPU") is None
    assert trtexec_times("[I] Latency: min = 1 ms, max = 2 ms") is None
