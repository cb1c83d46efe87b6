"""The table at the end of the grid: op family x target, as pass, refused, known wrong and wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.expectations import COLUMNS
from tests.conformance.grid import FAMILIES


@pytest.fixture(autouse=True)
def cache_of_its_own() -> None:
    """Thousands of cases share one cache: the folder of each test costs more than the case itself."""


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where every case writes its files; a case overwrites the last one's."""
    made = tmp_path_factory.mktemp("conformance")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGEKIT_CACHE", str(made / "cache"))
        yield made


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    counts: Counter[tuple[str, str, str]] = Counter()
    refusals: Counter[tuple[str, str]] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name == "conformance" and report.when == "call":
                    column, family, kind, detail = value
                    counts[column, family, kind] += 1
                    if kind == "refused":
                        refusals[column, detail] += 1
    if not counts:
        return
    columns = [column for column in COLUMNS if any(column == c for c, _, _ in counts)]
    terminalreporter.section("conformance: pass / refused / known wrong / wrong or crash")
    terminalreporter.write_line(f"{'':10}" + "".join(f"{column:>20}" for column in columns))
    for family in (*FAMILIES, "all"):
        cells = []
        for column in columns:
            kinds = [
                sum(
                    n for (c, f, k), n in counts.items() if c == column and k in kind and family in (f, "all")
                )
                for kind in (("pass",), ("refused",), ("known wrong",), ("wrong", "crash"))
            ]
            cells.append(f"{' / '.join(map(str, kinds)):>20}" if any(kinds) else f"{'-':>20}")
        terminalreporter.write_line(f"{family:10}" + "".join(cells))
    for (column, detail), count in sorted(refusals.items()):
        terminalreporter.write_line(f"{column}: {count} refused with {detail}")
