from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.system.energy import EnergyReading, joules_between, read_energy


def _zone(folder: Path, name: str, used: int, limit: int = 1000) -> None:
    (folder / name).mkdir(exist_ok=True)
    (folder / name / "energy_uj").write_text(f"{used}\n", "ascii")
    (folder / name / "max_energy_range_uj").write_text(f"{limit}\n", "ascii")


def test_packages_are_summed_and_their_parts_are_not(tmp_path: Path) -> None:
    for name, used in (("intel-rapl:0", 100), ("intel-rapl:1", 200), ("intel-rapl:0:0", 50)):
        _zone(tmp_path, name, used)
    before = read_energy(tmp_path)
    _zone(tmp_path, "intel-rapl:0", 400)
    _zone(tmp_path, "intel-rapl:0:0", 350)
    assert joules_between(before, read_energy(tmp_path)) == pytest.approx(300e-6)


def test_a_counter_that_began_again(tmp_path: Path) -> None:
    _zone(tmp_path, "intel-rapl:0", 900)
    before = read_energy(tmp_path)
    _zone(tmp_path, "intel-rapl:0", 100)
    assert joules_between(before, read_energy(tmp_path)) == pytest.approx(200e-6)


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    found = read_energy(tmp_path)
    assert found == EnergyReading({}, f"{tmp_path} has no RAPL counters")
    assert joules_between(found, found) is None
    _zone(tmp_path, "intel-rapl:0", 1)
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text("x", "ascii")
    assert "can't be read" in read_energy(tmp_path).absent


def test_what_only_root_may_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _zone(tmp_path, "intel-rapl:0", 1)

    def refuse(self: Path, *_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_text", refuse)
    path = tmp_path / "intel-rapl:0" / "energy_uj"
    assert read_energy(tmp_path).absent == f"{path} is not readable for this user"
