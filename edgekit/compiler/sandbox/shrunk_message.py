"""Message with a smaller model's figures from its child; the model itself is in a file.

Everything in it is checked. The ONNX file is trusted no more than the model that it comes from: the next
reader opens it in a child of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgekit.compiler.build.shrunk_model import GroupChange, ShrunkModel
from edgekit.compiler.compress.goal import ShrinkGoal
from edgekit.compiler.evaluate.fidelity import Fidelity, Score
from edgekit.compiler.evaluate.kept_boxes import Kept
from edgekit.compiler.sandbox.messages import Broken
from edgekit.errors import printable
from edgekit.system.formats.json_schema import ManifestError, list_of, map_of, nothing_or, record, text, whole
from edgekit.tensor_spec import Json

GROUPS_LIMIT, TARGETS_LIMIT = 10_000, 256
_PAIR = list_of(whole(0), 2)
_SCORE = record({"metric": text, "value": text, "unit": text})
_CHECK = record(
    {
        "multiplications": _PAIR,
        "weight_bytes": _PAIR,
        "score": _SCORE,
        "snr_db": text,
        "task": nothing_or(_SCORE),
        "kept": nothing_or(list_of(text, 4)),
        "before": nothing_or(_SCORE),
        "test_samples": whole(0),
        "latency": map_of(text, text, TARGETS_LIMIT),
        "not_timed": map_of(text, text, TARGETS_LIMIT),
        "groups": list_of(list_of(text, 4), GROUPS_LIMIT),
    }
)


def shrunk_figures(shrunk: ShrunkModel) -> dict[str, Json]:
    """Return the figures of a smaller model. Floats are texts: JSON has no infinity."""
    fidelity = shrunk.fidelity
    return {
        "multiplications": list(shrunk.multiplications),
        "weight_bytes": list(shrunk.weight_bytes),
        "score": _score(fidelity.score),
        "snr_db": repr(float(fidelity.snr_db)),
        "task": fidelity.task and _score(fidelity.task),
        "kept": fidelity.kept and [repr(value) for value in fidelity.kept],
        "before": shrunk.task and _score(shrunk.task),
        "test_samples": shrunk.test_samples,
        "latency": {name: repr(float(ratio)) for name, ratio in shrunk.latency.items()},
        "not_timed": dict(shrunk.not_timed),
        "groups": [[g.name, str(g.before), str(g.after), repr(float(g.error))] for g in shrunk.groups],
    }


def parse_shrunk(message: Json, name: str, goal: ShrinkGoal, onnx: bytes) -> ShrunkModel:
    """Parse a smaller model from its figures.

    Args:
        message: Figures from the child.
        name: File name of the model.
        goal: Goal that the user requested.
        onnx: ONNX file that the child wrote.

    Raises:
        Broken: the figures have another format.
    """
    try:
        _CHECK(message, "shrunk")
        preserved = message["kept"] and _parse_kept(message["kept"])
        task, before = (message[key] and _parsed(message[key]) for key in ("task", "before"))
        return ShrunkModel(
            name=name,
            onnx=onnx,
            goal=goal,
            multiplications=_pair(message["multiplications"]),
            weight_bytes=_pair(message["weight_bytes"]),
            fidelity=Fidelity(_parsed(message["score"]), float(message["snr_db"]), task, preserved),
            task=before,
            test_samples=message["test_samples"],
            latency={printable(target): float(ratio) for target, ratio in message["latency"].items()},
            not_timed={printable(target): printable(cause) for target, cause in message["not_timed"].items()},
            groups=tuple(
                GroupChange(printable(group), int(old), int(new), float(error))
                for group, old, new, error in message["groups"]
            ),
        )
    except (ManifestError, ValueError) as problem:
        raise Broken(f"figures of a smaller model: {problem}") from None


def _score(score: Score) -> dict[str, Json]:
    return {"metric": score.metric, "value": repr(float(score.value)), "unit": score.unit}


def _parsed(message: Mapping[str, str]) -> Score:
    return Score(printable(message["metric"]), float(message["value"]), printable(message["unit"]))


def _parse_kept(message: Sequence[str]) -> Kept:
    count, total, share, base_count = message
    return Kept(int(count), int(total), float(share), int(base_count))


def _pair(message: Sequence[int]) -> tuple[int, int]:
    before, after = message
    return before, after
