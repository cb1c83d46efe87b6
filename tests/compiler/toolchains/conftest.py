"""Environment of a compiler, as a user makes it."""

from __future__ import annotations

import sysconfig
import venv
from pathlib import Path

import pytest

from edgekit.compiler.toolchains.environment import Environment


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """A virtual environment with ``demo-compiler`` 1.0."""
    folder = tmp_path_factory.mktemp("demo")
    venv.create(folder, with_pip=False, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    (packages / "demo_compiler.py").write_text("def compiled(text):\n    return text.upper()\n", "utf-8")
    metadata = packages / "demo_compiler-1.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: demo-compiler\nVersion: 1.0\n", "utf-8")
    return Environment("demo", folder / "bin" / "python")
