"""The scripts that the workflows of .github run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from edgekit import __version__
from tests.fixtures.models import write

ROOT = Path(__file__).resolve().parents[2]
CHECK = ROOT / ".github" / "actions" / "check-model" / "check-model"
NOTES = ROOT / ".github" / "release-notes"
SMALL = """
<ir_version: 8, opset_import: ["": 17]>
small (float[1,3,8,8] image) => (float[1,3,1,1] means) { means = GlobalAveragePool(image) }
"""
EDGEKIT = 'import sys; from edgekit.cli import main; sys.argv[0] = "edgekit"; main()'


BRANCHES = {"pypa/gh-action-pypi-publish@release/v1"}
"""Actions by a branch that its owner recommends, because no digest could be checked."""


def test_actions_of_others_are_pinned_by_digest() -> None:
    """A tag can be moved to other code; the version beside a digest is for its readers."""
    files = [*(ROOT / ".github").rglob("*.yml")]
    used = [word for path in files for word in re.findall(r"uses: (.+)", path.read_text("utf-8"))]
    used = [word for word in used if word not in BRANCHES]
    assert len(used) > 10
    assert [word for word in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", word)] == []


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A clone of a project that has the model small.onnx in its last commit, and ``edgekit`` on the path."""
    folder = tmp_path / "project"
    folder.mkdir()
    write(folder, SMALL, "small.onnx")
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    for command in (["init", "-q"], ["add", "."], [*identity, "commit", "-q", "-m", "A model"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    tool = tmp_path / "bin" / "edgekit"
    tool.parent.mkdir()
    tool.write_text(f"#!{sys.executable}\n{EDGEKIT}\n", "utf-8")
    tool.chmod(0o755)
    return folder


def check_model(project: Path, **variables: str) -> tuple[int, str]:
    """The exit code of the script, and the summary that it wrote."""
    out = project.parent / "out"
    path = f"{project.parent / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "OUT": str(out), **variables}
    done = subprocess.run([CHECK], cwd=project, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, (out / "summary.md").read_text("utf-8") + done.stderr


@pytest.mark.needs_ort
@pytest.mark.needs_report
def test_the_action_builds_verifies_and_measures_against_the_base(project: Path) -> None:
    build = "small.onnx -t ort --trusted"
    code, text = check_model(project, BUILD=build, BASE="HEAD", FAIL_IF="p95>+100000%")
    assert (code, [line for line in text.splitlines() if line.startswith("#")]) == (
        0,
        ["### EdgeKit", "#### Build", "#### Verify", "#### Bench against HEAD"],
    )
    assert {path.name for path in (project.parent / "out").iterdir()} == {
        "base.json", "model.edgekit", "report.html", "summary.md",
    }  # fmt: skip
    code, text = check_model(project, BUILD=build, FAIL_IF="p95>0.000001ms")
    assert code == 1
    assert "**Failed**" in text


@pytest.mark.needs_ort
def test_the_action_ends_with_the_build_s_error(project: Path) -> None:
    code, text = check_model(project, BUILD="missing.onnx -t ort")
    assert code == 2
    assert "missing.onnx" in text
    assert "**Failed**" in text


def release_notes(tag: str) -> tuple[int, str]:
    done = subprocess.run([sys.executable, NOTES, tag], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr.strip()


def test_a_release_needs_a_tag_of_this_version_and_a_section_of_the_changelog() -> None:
    assert release_notes("v99.0.0") == (
        1,
        f"error: the tag is v99.0.0, edgekit/_version.py says {__version__}",
    )
    expected = 0 if f"\n## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text("utf-8") else 1
    assert release_notes(f"v{__version__}")[0] == expected
