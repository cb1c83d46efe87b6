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


def test_every_package_is_listed(setup_cfg: configparser.ConfigParser) -> None:
    """A forgotten sub-package breaks only the wheel, where no other test looks."""
    packages = {
        ".".join(init.parent.relative_to(root).parts)
        for root, folder in ((ROOT, "edgekit"), (ROOT / "targets", ""))
        for init in (root / folder).rglob("__init__.py")
    }
    tasks = {name for name in packages if name.startswith("edgekit.tasks.")}
    assert packages - tasks == set(setup_cfg["options"]["packages"].split())
    # A new task is its folder and no line here: the files of tasks are data of the package above them.
    assert setup_cfg["options.package_data"]["edgekit.tasks"] == "*/*.py"
    assert {name.count(".") for name in tasks} == {2}


def test_every_target_is_mapped_and_typed(setup_cfg: configparser.ConfigParser) -> None:
    targets = {path.name for path in (ROOT / "targets").iterdir() if (path / "__init__.py").is_file()}
    mapped = dict(line.split(" = ") for line in setup_cfg["options"]["package_dir"].split("\n") if line)
    assert mapped == {name: f"targets/{name}" for name in targets}
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
