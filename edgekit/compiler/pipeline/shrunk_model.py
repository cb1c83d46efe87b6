"""Result of shrinking a model: its costs, fidelity and times, before and after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from edgekit.compiler.compress.goal import ShrinkGoal
from edgekit.compiler.evaluate.fidelity import Fidelity, Score
from edgekit.compiler.evaluate.relative_time import FASTER
from edgekit.system.atomic_files import write_atomically
from edgekit.system.formats.plain_text import shortened, size, table
from edgekit.tensor_spec import Json


@dataclass(frozen=True)
class GroupChange:
    """Group of channels that became smaller.

    Attributes:
        error: Estimated change of the model's outputs by this group alone.
    """

    name: str
    before: int
    after: int
    error: float


@dataclass(frozen=True)
class ShrunkModel:
    """Smaller model: ``save`` writes the ONNX file.

    Attributes:
        multiplications: Multiplications of one run, before and after.
        weight_bytes: Bytes of the weights, before and after.
        fidelity: Fidelity to the original model, on the test samples.
        task: The original's own score on labelled test samples; ``fidelity.task`` is the smaller model's.
        latency: Target -> time of the smaller model over the model's, float32, one thread, measured here.
        not_timed: Target -> the reason that it was not timed.
    """

    name: str
    onnx: bytes
    goal: ShrinkGoal
    multiplications: tuple[int, int]
    weight_bytes: tuple[int, int]
    fidelity: Fidelity
    task: Score | None
    test_samples: int
    latency: Mapping[str, float]
    not_timed: Mapping[str, str]
    groups: tuple[GroupChange, ...]

    @property
    def faster(self) -> bool:
        """Return whether it was measured as faster on an engine; True if no engine could be timed."""
        return not self.latency or min(self.latency.values()) <= FASTER

    def save(self, path: Path | str) -> None:
        """Write the ONNX file atomically."""
        write_atomically(Path(path), [self.onnx])

    def as_json(self) -> dict[str, Json]:
        return {
            "model": self.name,
            "goal": str(self.goal),
            "multiplications": list(self.multiplications),
            "weight_bytes": list(self.weight_bytes),
            "fidelity": self.fidelity.score.as_json(),
            "snr_db": round(self.fidelity.snr_db, 2),
            "task": None if self.task is None else self.task.as_json(),
            "task_after": None if self.fidelity.task is None else self.fidelity.task.as_json(),
            "test_samples": self.test_samples,
            "latency": dict(self.latency),
            "not_timed": dict(self.not_timed),
            "faster": self.faster,
            "groups": [asdict(group) for group in self.groups],
        }

    def text(self) -> str:
        before, after = self.multiplications
        weights = " -> ".join(size(entry) for entry in self.weight_bytes)
        lines = [
            f"  multiplications  {before / 1e6:,.1f} M -> {after / 1e6:,.1f} M  ({_change(before, after)})",
            f"  weights          {weights}  ({_change(*self.weight_bytes)})",
            f"  fidelity         {self.fidelity.score}, SNR {self.fidelity.snr_db:.1f} dB on "
            f"{self.test_samples} test samples",
        ]
        if self.task is not None and self.fidelity.task is not None:
            lines.append(f"  accuracy         {self.task} -> {self.fidelity.task} on their labels")
        for target, ratio in self.latency.items():
            lines.append(f"  latency          {ratio:.2f}x on {target}, fp32, one thread, measured here")
        lines += [f"  not timed        {target}: {reason}" for target, reason in self.not_timed.items()]
        if not self.faster:
            lines.append(f"  not faster: {FASTER:g}x or less is required on one engine")
        rows = [
            (shortened(entry.name), str(entry.before), str(entry.after), f"{entry.error:.4f}")
            for entry in self.groups
        ]
        heads = ("channels of", "before", "after", "change of the outputs, for each step alone")
        return "\n".join([*lines, "", *(f"  {line}" for line in table(heads, rows))])


def _change(before: int, after: int) -> str:
    return f"{100 * (after / before - 1):+.1f} %" if before else "0 %"
