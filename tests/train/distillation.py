"""Trainings of the digits' student, how it answers, and Ctrl-C in the middle."""

from __future__ import annotations

import signal
from typing import Any

import numpy as np

import edgekit
from edgekit.compiler.pipeline.distil import DistilledModel
from edgekit.system.progress import Stage
from tests.train.conftest import Digits
from tests.train.digits import digits


def accuracy(run: Any) -> float:
    pictures, labels = digits(1000, 99)
    made = [next(iter(run({"x": picture}).values())).argmax() for picture in pictures]
    return float(np.mean(made == labels))


def distilled(pair: Digits, **options: Any) -> DistilledModel:
    given = {"epochs": 1, "augment": "none", "threads": 1, "card": pair.card, **options}
    return edgekit.distil(pair.teacher, student=pair.student, samples=pair.samples, **given)


class StopAt:
    """Ctrl-C at a moment of the training."""

    def __init__(self, progress: int) -> None:
        self.at, self.reports = progress, 0

    def __call__(self, found: Stage) -> None:
        self.reports += found.name == "trained"
        if self.reports == self.at:
            signal.raise_signal(signal.SIGINT)
