"""docs/install.md and what setup.cfg says."""

from __future__ import annotations

import configparser
import re
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from edgekit import __version__

ROOT = Path(__file__).resolve().parents[2]
INSTALL = (ROOT / "docs" / "install.md").read_text("utf-8")
HERE = f"3.{sys.version_info.minor}"


@pytest.fixture(scope="module")
def setup_cfg() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


def rows() -> dict[str, dict[str, str]]:
    """Python's version -> package -> its major and minor there; the table of engines, without armv7l's row.

    >>> rows()["3.10"]["onnxruntime"]
    '1.23'
    """
    head, _, *lines = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in INSTALL.partition("## Engine versions")[2].splitlines()
        if line.startswith("|")
    ]
    found = {}
    for first, *versions in lines:
        low, _, high = first.partition(" to ")
        if "armv7l" not in first:
            for minor in range(int(low[2:]), int((high or low)[2:]) + 1):
                found[f"3.{minor}"] = dict(zip(head[1:], versions, strict=True))
    return found


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2])


def test_every_declared_python_has_a_row(setup_cfg: configparser.ConfigParser) -> None:
    declared = re.findall(r"Python :: (3\.\d+)", setup_cfg["metadata"]["classifiers"])
    assert list(rows()) == declared
    assert setup_cfg["options"]["python_requires"] == f">={declared[0]}"


@pytest.mark.skipif(HERE not in rows(), reason=f"the table has no row for Python {HERE}")
@pytest.mark.parametrize("package", ["onnxruntime", "openvino", "ai-edge-litert"])
def test_the_versions_of_the_table_can_be_installed(package: str) -> None:
    """pip found that version or, since the table was written, a newer one."""
    try:
        installed = version(package)
    except PackageNotFoundError:
        pytest.skip(f"{package} is not installed")
    assert numbers(installed) >= numbers(rows()[HERE][package])


def test_the_lines_name_extras_and_the_wheel(setup_cfg: configparser.ConfigParser) -> None:
    extras = {name.strip() for names in re.findall(r"\[([a-z,-]+)\]", INSTALL) for name in names.split(",")}
    assert {"all", "tflite"} <= extras <= set(setup_cfg["options.extras_require"])
    assert set(re.findall(r"edgekit_sdk-(.*?)-py3", INSTALL)) == {__version__}


def test_nothing_is_installed_by_a_name_that_no_index_has() -> None:
    """In a clone the name alone would be looked for in an index."""
    first = next(line for line in INSTALL.splitlines() if line.startswith("    pip install"))
    assert first.startswith("    pip install '.[all]'")
