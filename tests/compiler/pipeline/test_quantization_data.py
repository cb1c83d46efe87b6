from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.compiler.evaluate.samples import sample_digests
from tests.fixtures import models
from tests.fixtures.quantization_data import quantization_data

pytestmark = pytest.mark.needs_ort


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return models.write(tmp_path, models.SMALL_CNN)


def test_no_sample_both_chooses_and_proves(path: Path) -> None:
    found = quantization_data(path, 12)
    held_out = found.held_out.reference.samples
    groups = (found.search_context.calibration, found.search_context.validation, held_out)
    parts = [set(sample_digests(part)) for part in groups]
    assert [len(part) for part in parts] == [6, 2, 4]
    assert len(set.union(*parts)) == 12
    assert found.summary() == "samples: 6 calibration, 2 validation, 4 test"
    assert [len(found.search_context.evaluator.expected), len(found.held_out.evaluator.expected)] == [2, 4]
    assert (found.labelled, found.held_out.labelled) == (None, None)


def test_too_few_samples_are_said(path: Path) -> None:
    assert quantization_data(path, 1).summary() == (
        "samples: 1 calibration, 1 validation, 1 test (validation and test not held out: too few samples)"
    )
