"""Two classifiers as one: a small one answers, a large one is asked if the small one is unsure.

Such a variant has the target ``deferral`` and the files of both, below ``small/`` and ``large/``; each is run
by the engine of its own target. How sure the small one is: the margin, the difference between its two best
probabilities. ``edgekit bundle defer`` finds the threshold (edgekit/compiler/evaluate/deferral_threshold.py).
The options:

    {"small": {"variant": "ort-int8", "target": "ort", "options": {...}}, "large": {...},
     "scores": "logits", "decode": "logits", "scale": 1.0, "threshold": 0.42}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from edgekit.errors import EngineError, MissingDependency, NonFiniteOutputError, reason_of
from edgekit.system.interrupts import pass_on
from edgekit.target import registry
from edgekit.target.contract import EngineInfo, Runner
from edgekit.tensor_spec import Array, Json, TensorSpec

ENGINE = EngineInfo()
SMALL, LARGE = "small", "large"
NAME = "EdgeKit deferral"
DECODES = ("logits", "probabilities")


def engine_version() -> str:
    """Return a name: a deferral has no engine of its own."""
    return NAME


def top_and_margin(scores: Array, decode: str, scale: float = 1.0) -> tuple[int, float]:
    """Return the best class and how sure it is: the difference between the two best probabilities.

    Args:
        scores: [1, classes]; integers mean value x scale, whatever the zero point.
        decode: ``logits``: softmax makes them probabilities; ``probabilities``: they are.
        scale: Scale of integers.

    Returns:
        The class, and 0 to 1; NaN if the scores are not finite.

    >>> top_and_margin(np.array([[0.125, 0.75, 0.125]]), "probabilities")
    (1, 0.625)
    """
    real = scores.reshape(-1).astype(np.float64)
    if not np.isfinite(real).all():
        return 0, float("nan")
    top = int(real.argmax())
    below = (np.partition(real, -2)[-2:] - real[top]) * scale  # [second, best] less the best
    if decode == "probabilities":
        return top, float(-below[0])
    return top, float((1.0 - np.exp(below[0])) / np.exp((real - real[top]) * scale).sum())


def open_runner(
    files: Mapping[str, Path],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: Mapping[str, Json],
    threads: int | None,
) -> DeferralRunner:
    """Load both variants.

    Raises:
        EngineError: an engine is missing or refused its files, or the options are malformed.
    """
    try:
        scores, decode = str(options["scores"]), str(options["decode"])
        scale, threshold = float(options["scale"]), float(options["threshold"])
        parts = {
            part: (
                str(options[part]["variant"]),
                str(options[part]["target"]),
                dict(options[part]["options"]),
            )
            for part in (SMALL, LARGE)
        }
    except (KeyError, TypeError, ValueError) as problem:
        raise EngineError(f"the options of a deferral are malformed: {reason_of(problem)}") from None
    if decode not in DECODES or scores not in {spec.name for spec in outputs}:
        raise EngineError(
            f"the options of a deferral name output {scores!r} as {decode!r}, which is not supported"
        )
    opened: list[Runner] = []
    try:
        for part, (name, target, part_options) in parts.items():
            if target == "deferral":
                raise EngineError(f"{name}: a deferral can't be part of a deferral")
            theirs = {
                file[len(part) + 1 :]: path for file, path in files.items() if file.startswith(f"{part}/")
            }
            try:
                engine = registry.engine(target)
                opened.append(registry.open_runner(engine, theirs, inputs, outputs, part_options, threads))
            except MissingDependency as missing:  # of that engine; this target is not what is missing
                raise EngineError(f"{name}: {missing}") from missing
    except BaseException:
        for runner in opened:
            runner.close()
        raise
    names = (parts[SMALL][0], parts[LARGE][0])
    return DeferralRunner(opened[0], opened[1], names, scores, decode, scale, threshold)


class DeferralRunner:
    """Both variants, loaded. It takes the small one's outputs if the margin is above the threshold.

    Attributes:
        runs: Answers so far.
        deferred: Those of them that the large one gave.
    """

    def __init__(
        self,
        small: Runner,
        large: Runner,
        names: tuple[str, str],
        scores: str,
        decode: str,
        scale: float,
        threshold: float,
    ) -> None:
        self.runs = self.deferred = 0
        self.device = " and ".join(dict.fromkeys((small.device, large.device)))
        self.precision = " and ".join(dict.fromkeys((small.precision, large.precision)))
        self._small, self._large, self._names = small, large, names
        self._scores, self._decode, self._scale, self._threshold = scores, decode, scale, threshold

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run the small one, and the large one if the small one is unsure.

        Raises:
            EngineError: either of them failed.
            NonFiniteOutputError: the small one's scores are not finite.
        """
        outputs = self._run(self._small, self._names[0], feeds)
        _, margin = top_and_margin(outputs[self._scores], self._decode, self._scale)
        if margin != margin:
            raise NonFiniteOutputError(f"{self._names[0]}: its scores are not finite")
        if margin <= self._threshold:
            outputs = self._run(self._large, self._names[1], feeds)
            self.deferred += 1
        self.runs += 1
        return outputs

    def _run(self, runner: Runner, name: str, feeds: Mapping[str, Array]) -> dict[str, Array]:
        try:
            return runner.run(feeds)
        except Exception as problem:  # an engine may throw anything
            pass_on(problem)
            raise EngineError(f"{name}: {reason_of(problem)}") from problem

    def facts(self) -> dict[str, Json]:
        """``deferral``: how many answers there were, and how many of them the large one gave."""
        return {"deferral": {"runs": self.runs, "deferred": self.deferred}}

    def close(self) -> None:
        """Free both."""
        try:
            self._small.close()
        finally:
            self._large.close()
