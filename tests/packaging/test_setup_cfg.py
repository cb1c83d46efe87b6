"""What setup.cfg says and what the tree holds are the same."""

from __future__ import annotations

import configparser
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def setup_cfg() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


def test_every_target_is_typed(setup_cfg: configparser.ConfigParser) -> None:
    targets = {path.name for path in (ROOT / "targets").iterdir() if (path / "__init__.py").is_file()}
    for name in targets:
        assert "py.typed" in setup_cfg["options.package_data"][name]
        assert (ROOT / "targets" / name / "py.typed").is_file()
        assert "profiles/*.toml" in setup_cfg["options.package_data"][name]


@pytest.mark.parametrize("group", ["edgekit.compilers", "edgekit.runners"])
def test_every_entry_point_has_its_functions(setup_cfg: configparser.ConfigParser, group: str) -> None:
    needed = {"edgekit.compilers": ["TARGET", "check_model", "compile_model"]}
    names = needed.get(group, ["ENGINE", "engine_version", "open_runner"])
    for line in setup_cfg["options.entry_points"][group].strip().splitlines():
        module = import_module(line.split(" = ")[1])
        assert [name for name in names if not hasattr(module, name)] == []


def test_serve_decodes_the_photos_that_its_page_sends(setup_cfg: configparser.ConfigParser) -> None:
    """An environment with ``[serve]`` and an engine runs the first request of docs/serving.md, a JPEG."""
    assert "image/jpeg" in (ROOT / "docs" / "serving.md").read_text("utf-8").partition("## ")[0]
    lines = setup_cfg["options.extras_require"]["serve"].split()
    assert "pillow" in [line.partition(">")[0] for line in lines]
