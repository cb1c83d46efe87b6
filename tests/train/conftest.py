"""Trained once for all tests of this folder: a teacher on digits, and what is left of it by pruning."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

import edgekit
from edgekit.tensor_spec import Array
from tests.fixtures.command_line import call as call
from tests.train.digits import card_of, digits, network, trained, write


class Digits(NamedTuple):
    """A teacher, a student with three tenths of its multiplications, and unlabelled samples."""

    teacher: Path
    student: Path
    card: Path
    samples: list[dict[str, Array]]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Small networks gain nothing by more, and lose much on a busy machine."""
    torch: Any = pytest.importorskip("torch")
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def digits_pair(tmp_path_factory: pytest.TempPathFactory) -> Digits:
    torch: Any = pytest.importorskip("torch")
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("digits")
    model = trained(network(folder), *digits(2048, 0), epochs=12)
    teacher, card = write(folder, "teacher.onnx", model), card_of(folder, model)
    samples = [{"x": picture} for picture in digits(1536, 50)[0]]
    smaller = edgekit.shrink(teacher, samples=samples[:128], flops="-70%", targets=["ort"], card=card)
    smaller.save(folder / "smaller.onnx")
    return Digits(teacher, folder / "smaller.onnx", card, samples)
