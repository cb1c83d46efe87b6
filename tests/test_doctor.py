from __future__ import annotations

from pathlib import Path

import pytest

from edgekit import doctor
from tests.fake_engines import Engines


def test_an_engine_is_ok_missing_or_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    engines = Engines("a", "b", "c")
    engines["b"].missing = True

    def broken() -> str:
        raise OSError("wrong wheel")

    monkeypatch.setattr(engines["c"], "engine_version", broken)
    monkeypatch.setattr("edgekit.target.engine", engines)
    monkeypatch.setattr("edgekit.target.target_names", lambda: ["a", "b", "c"])
    rows = doctor.engines()
    assert [(row["status"], row["version"], row["install"]) for row in rows] == [
        ("ok", "A Runtime 1.0", None),
        ("missing", None, "pip install 'edgekit-sdk[b]'"),
        ("broken: OSError: wrong wheel", None, None),
    ]
    assert [row["seconds"] is None for row in rows] == [False, True, True]


@pytest.mark.parametrize(
    ("text", "features"),
    [
        ("flags\t\t: fpu avx2 avx512f\n", ["avx2", "avx512"]),
        ("Features\t: asimd asimddp\n", ["neon", "dotprod"]),
        ("model name: x\n", []),
    ],
)
def test_features(monkeypatch: pytest.MonkeyPatch, text: str, features: list[str]) -> None:
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: text)
    assert doctor.cpu_features() == features


def test_a_governor_that_wobbles_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    for governor, warned in (("powersave", True), ("performance", False), (None, False)):
        monkeypatch.setattr(doctor, "_read", lambda path, governor=governor: governor)
        assert bool(doctor.doctor()["warnings"]) is warned


def test_tools_beside_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    engines = Engines("a", "b", "c")

    def broken() -> None:
        raise OSError("wrong wheel")

    monkeypatch.setattr(engines["a"], "tools", lambda: [("gauge", None, "checks")], raising=False)
    monkeypatch.setattr(engines["c"], "tools", broken, raising=False)
    monkeypatch.setattr("edgekit.target.engine", engines)
    monkeypatch.setattr("edgekit.target.target_names", lambda: ["a", "b", "c"])
    assert doctor.tools() == [{"target": "a", "tool": "gauge", "found": None, "purpose": "checks"}]
