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


def shrunk_figures(found: ShrunkModel) -> dict[str, Json]:
    """Return the figures of a smaller model. Floats are texts: JSON has no infinity."""
    fidelity = found.fidelity
    return {
        "multiplications": list(found.multiplications),
        "weight_bytes": list(found.weight_bytes),
        "score": _score(fidelity.score),
        "snr_db": repr(float(fidelity.snr_db)),
        "task": fidelity.task and _score(fidelity.task),
        "kept": fidelity.kept and [repr(each) for each in fidelity.kept],
        "before": found.task and _score(found.task),
        "test_samples": found.test_samples,
        "latency": {name: repr(float(ratio)) for name, ratio in found.latency.items()},
        "not_timed": dict(found.not_timed),
        "groups": [[g.name, str(g.before), str(g.after), repr(float(g.error))] for g in found.groups],
    }


def parse_shrunk(given: Json, name: str, goal: ShrinkGoal, onnx: bytes) -> ShrunkModel:
    """Parse a smaller model from its figures.

    Args:
        given: Figures from the child.
        name: File name of the model.
        goal: Goal that the user requested.
        onnx: ONNX file that the child wrote.

    Raises:
        Broken: the figures have another format.
    """
    try:
        _CHECK(given, "shrunk")
        kept = given["kept"] and _kept(given["kept"])
        task, before = (given[key] and _parsed(given[key]) for key in ("task", "before"))
        return ShrunkModel(
            name=name,
            onnx=onnx,
            goal=goal,
            multiplications=_pair(given["multiplications"]),
            weight_bytes=_pair(given["weight_bytes"]),
            fidelity=Fidelity(_parsed(given["score"]), float(given["snr_db"]), task, kept),
            task=before,
            test_samples=given["test_samples"],
            latency={printable(target): float(ratio) for target, ratio in given["latency"].items()},
            not_timed={printable(target): printable(why) for target, why in given["not_timed"].items()},
            groups=tuple(
                GroupChange(printable(group), int(old), int(new), float(error))
                for group, old, new, error in given["groups"]
            ),
        )
    except (ManifestError, ValueError) as problem:
        raise Broken(f"figures of a smaller model: {problem}") from None


def _score(score: Score) -> dict[str, Json]:
    return {"metric": score.metric, "value": repr(float(score.value)), "unit": score.unit}


def _parsed(given: Mapping[str, str]) -> Score:
    return Score(printable(given["metric"]), float(given["value"]), printable(given["unit"]))


def _kept(given: Sequence[str]) -> Kept:
    found, total, share, of = given
    return Kept(int(found), int(total), float(share), int(of))


def _pair(given: Sequence[int]) -> tuple[int, int]:
    before, after = given
    return before, after
