"""Candidate of the int8 search, and its measurement."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace

from edgekit.compiler.evaluate.fidelity import Fidelity
from edgekit.compiler.evaluate.relative_time import FASTER
from edgekit.compiler.quantize.recipe import Recipe
from edgekit.tensor_spec import Json

DEFAULT = Recipe()
BASELINE = Recipe(ranges="minmax", rounding="nearest", bias_correction=False)
"""Min-max ranges and round-to-nearest: what most tools do."""
QUICK = Recipe(rounding="nearest", bias_correction=False)
"""Round-to-nearest takes seconds less than GPTQ and is accurate enough to compare placements."""
NO_BIAS_CORRECTION = Recipe(bias_correction=False)
"""Bias correction can do harm: after a global pool it is estimated from few values."""
L2_RANGES = Recipe(ranges="l2")
"""MSE ranges clip more than the default. Some detectors gain: YOLOX-nano with float depthwise kernels, two
targets, two calibration sets each: self-mAP .935 .891 .932 .929 with the default, .928 .943 .931 .958 with
this; all layers int8: .863 and .837. EfficientNet-Lite0 loses 1 dB."""
COMPENSATED = replace(L2_RANGES, bias_correction=False, compensation=1.0)
"""Adjusts the weights instead of the biases. YOLOX-nano, tflite, three calibration sets: self-mAP .852 .878
.873; DEFAULT .822 .789 .841."""
TIE = 1.15
"""Times count as equal up to this ratio: one noisy time must not decide. YOLOX-nano beside 11 programs on two
cores: most ratios rose by 1 to 10 %, those of candidates with float regions by up to 20 %."""
MIN_GAIN = {"": 0.02, "dB": 3.0}
"""Least gain in accuracy, by unit, that justifies a slower point on the front. 3 dB: half the noise."""
FLOAT_PENALTY = {unit: gain / (1 - FASTER) / 2 for unit, gain in MIN_GAIN.items()}
"""Accuracy, by unit, deducted from an untimed candidate with all MACs in float. int8 runs at twice the rate
of float16 (tensor cores, the Neural Engine), so 6 % of the MACs in float cost 3 % of the latency: as much as
FASTER requires. They must gain MIN_GAIN."""
SATURATED, SATURATED_DB = 0.985, 40.0
"""Accuracy from which on the search sees no gain."""
SATURATED_CLASSES_DB = 25.0
"""The same for classifiers whose top-1 agreement is saturated: the remaining noise changes no prediction."""


@dataclass(frozen=True)
class CandidateConfig:
    """Candidate: a placement of the target, a recipe, and the names of further nodes that stay float."""

    placement: str
    recipe: Recipe = DEFAULT
    floats: frozenset[str] = frozenset()

    def __str__(self) -> str:
        recipe = self.recipe
        words = [self.placement, recipe.ranges, recipe.rounding]
        words += ["bias"] if recipe.bias_correction else []
        words += [f"ridge {recipe.compensation:g}"] if recipe.compensation is not None else []
        words += [f"{len(self.floats)} nodes float"] if self.floats else []
        return ", ".join(words)

    @property
    def structure(self) -> tuple[str, frozenset[str]]:
        """Return what decides its time: all but the recipe."""
        return self.placement, self.floats

    def as_json(self) -> dict[str, Json]:
        return {"placement": self.placement, "recipe": asdict(self.recipe), "floats": sorted(self.floats)}


@dataclass(frozen=True)
class Measurement:
    """Measurement of one candidate.

    Attributes:
        fidelity: Fidelity to the float model on the validation set; None if it could not be run.
        ratio: Latency relative to the float parent; None if it was not timed.
        failure: Reason that it could not be compiled or run; "" otherwise.
        float_share: Share (0 to 1) that stays float of the MACs that the target can compute in int8.
    """

    config: CandidateConfig
    fidelity: Fidelity | None
    ratio: float | None
    failure: str = ""
    float_share: float = 0.0

    @property
    def rank(self) -> float:
        """Return the accuracy that candidates are compared by; greater is better."""
        return self.fidelity.rank if self.fidelity is not None else -math.inf

    @property
    def unit(self) -> str:
        return self.fidelity.rank_unit if self.fidelity is not None else ""

    @property
    def is_classification(self) -> bool:
        """Return whether the fidelity is a top-1 agreement, and the rank an SNR in dB."""
        return self.fidelity is not None and bool(self.unit) and not self.fidelity.score.unit

    @property
    def saturated(self) -> bool:
        """Return whether the accuracy is so high that the search sees no further gain."""
        return self.rank >= self.saturation

    @property
    def saturation(self) -> float:
        """Return the rank from which on the search sees no further gain."""
        if self.fidelity is not None and self.is_classification and self.fidelity.score.value >= SATURATED:
            return SATURATED_CLASSES_DB
        return SATURATED_DB if self.unit else SATURATED

    @property
    def accuracy(self) -> tuple[float, bool, float]:
        """Return the key for the more accurate of several recipes. Beyond saturation the samples can't tell
        them apart, and those with optimized weights lose less on other samples."""
        return min(self.rank, self.saturation), self._has_optimized_weights, self.rank

    @property
    def is_best_recipe(self) -> bool:
        """Return whether no recipe that rounds to nearest can be more accurate (``accuracy``)."""
        return self.saturated and self._has_optimized_weights

    @property
    def _has_optimized_weights(self) -> bool:
        return self.config.recipe.rounding == DEFAULT.rounding

    @property
    def untimed_score(self) -> float:
        """Return a score to compare untimed candidates: capped accuracy, less a penalty for float layers."""
        return min(self.rank, self.saturation) - FLOAT_PENALTY[self.unit] * self.float_share

    @property
    def time(self) -> float:
        """Return the ratio that candidates are compared by; 1 if it was not timed."""
        return 1.0 if self.ratio is None else self.ratio

    @property
    def faster(self) -> bool:
        """Return whether it is faster than the float parent; True if it ran and could not be timed."""
        return self.fidelity is not None and (self.ratio is None or self.ratio <= FASTER)


def saturation(unit: str) -> float:
    """Return the rank that counts as saturated, for a rank in ``unit``."""
    return SATURATED_CLASSES_DB if unit else SATURATED
