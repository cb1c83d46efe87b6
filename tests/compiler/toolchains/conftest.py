"""A toolchain whose one package is made here, so that pip needs no index."""

from __future__ import annotations

import base64
import hashlib
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from edgekit.compiler.toolchains import declaration
from edgekit.compiler.toolchains.declaration import Toolchain, this_platform
from edgekit.compiler.toolchains.environment import Environment
from edgekit.compiler.toolchains.install import install

FILES = {
    "demo_compiler.py": b"def compiled(text):\n    return text.upper()\n",
    "demo_compiler-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: demo-compiler\nVersion: 1.0\n",
    "demo_compiler-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}


def write_wheel(folder: Path) -> str:
    """``demo_compiler`` 1.0 as a wheel (PEP 427); returns its SHA-256."""
    path = folder / "demo_compiler-1.0-py3-none-any.whl"
    rows = []
    with zipfile.ZipFile(path, "w") as wheel:
        for name, content in FILES.items():
            wheel.writestr(name, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            rows.append(f"{name},sha256={digest},{len(content)}")
        rows.append("demo_compiler-1.0.dist-info/RECORD,,")
        wheel.writestr("demo_compiler-1.0.dist-info/RECORD", "\n".join(rows) + "\n")
    return hashlib.sha256(path.read_bytes()).hexdigest()


def demo(folder: Path, sha256: str, **changes: object) -> Toolchain:
    lock = folder / f"{sha256[:8]}.lock"
    lock.write_text(f"demo-compiler==1.0 --hash=sha256:{sha256}\n", "utf-8")
    python = ".".join(map(str, sys.version_info[:2]))
    found = Toolchain(
        "demo", "makes capitals", python, this_platform(), lock, ("demo_compiler",), "Be kind.\n", 1, 2000
    )
    return found._replace(**changes)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the wheel, which is all that pip finds."""
    pytest.importorskip("ensurepip", reason="environments are made with ensurepip")
    folder = tmp_path_factory.mktemp("wheels")
    write_wheel(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_NO_INDEX", "1")
        patch.setenv("PIP_FIND_LINKS", str(folder))
        yield folder


@pytest.fixture(scope="session")
def toolchain(wheels: Path) -> Toolchain:
    return demo(wheels, hashlib.sha256(next(wheels.glob("*.whl")).read_bytes()).hexdigest())


@pytest.fixture(scope="session")
def environment(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The toolchain, installed in a cache of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGEKIT_CACHE", str(tmp_path_factory.mktemp("cache")))
        return install(toolchain)


@pytest.fixture
def declared(toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch) -> Toolchain:
    """The toolchain as a target's package declares it."""
    module = ModuleType("edgekit_demo.toolchain")
    module.TOOLCHAIN = toolchain  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "edgekit_demo", ModuleType("edgekit_demo"))
    monkeypatch.setitem(sys.modules, "edgekit_demo.toolchain", module)
    monkeypatch.setattr(declaration, "_modules", lambda: {"demo": "edgekit_demo.toolchain"})
    return toolchain
