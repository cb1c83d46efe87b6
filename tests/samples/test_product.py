"""The product's sample, run as its users run it: calibrated, run, results sent."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import edgekit
from edgekit.runtime import FolderSink, Outbox
from tests.fixtures.models import COLOUR_CARD, COLOUR_FINDER, write

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "product" / "device.py"
cv2 = pytest.importorskip("cv2")
pytestmark = pytest.mark.needs_ort


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("product")
    (folder / "card.toml").write_text(COLOUR_CARD + "\n[latency]\np95_ms = 1000.0\n", "utf-8")
    model = write(folder, COLOUR_FINDER)
    return edgekit.build(model, targets=["ort"], card=folder / "card.toml").save(folder / "b.edgekit")


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """240 frames of a camera that stands still; the light changes every 60."""
    path = tmp_path_factory.mktemp("video") / "in.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 25.0, (128, 96))
    random = np.random.default_rng(0)
    for n in range(240):
        colour = ((20, 20, 200), (20, 200, 20))[n // 60 % 2]
        noisy = np.array(colour) + random.normal(0, 2, (96, 128, 3))
        writer.write(np.clip(noisy, 0, 255).astype(np.uint8))
    writer.release()
    return path


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SAMPLE), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_calibrated_run_and_sent(bundle: Path, video: Path, tmp_path: Path) -> None:
    home = tmp_path / "state"
    done = run("run", bundle, video, "--home", home)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["{'ok': 240}"]  # not calibrated, so every frame is run
    done = run("measure", bundle, video, "--home", home)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "granted: 118 of 120 frames need no run, 0 false, below 2.5% with 95 % confidence\n"
    done = run("run", bundle, video, "--home", home)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["{'ok': 4, 'reused': 236}"]
    for box in ("results", "metrics"):
        with Outbox(home / box) as left:  # what it had no time for; the next start would deliver it
            while left.deliver(FolderSink(home / "sent", ".json")).delivered:
                pass
    assert len(list((home / "sent").glob("metric-*.json"))) == 2
    sent = [json.loads(path.read_bytes()) for path in (home / "sent").glob("result-*.json")]
    assert len(sent) == 20
    for row in sent:
        (found,) = row["found"]
        assert found["label"] == ("red", "green")[row["frame"] // 60 % 2]


def test_a_calibration_that_is_not_granted_is_reported_and_every_frame_is_run(
    bundle: Path, video: Path, tmp_path: Path
) -> None:
    done = run("measure", bundle, video, "--home", tmp_path, "--bound", "0.001")
    assert done.stdout.startswith("not granted: ")
    done = run("run", bundle, video, "--home", tmp_path)
    assert done.returncode == 0, done.stderr
    said, outcomes = done.stdout.splitlines()
    assert said.startswith("every frame is run: predictions must not be reused: ")
    assert outcomes == "{'ok': 240}"


def test_a_source_that_is_not_there(bundle: Path, tmp_path: Path) -> None:
    done = run("run", bundle, "absent.mp4", "--home", tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "error: absent.mp4 can't be opened as a video, a webcam or a stream"
    )
