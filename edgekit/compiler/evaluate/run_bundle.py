"""One run of a bundle on files, for ``edgekit run``."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.bundle.bundle import Bundle
from edgekit.compiler.evaluate.prepared_files import NAMES, PREPARED, kind_of_file
from edgekit.compiler.evaluate.samples import read_sample
from edgekit.compiler.evaluate.text_files import read_line, text_lines
from edgekit.errors import BundleError, SampleError, UsageError
from edgekit.processing.card import parse_card
from edgekit.processing.drawing import save_drawing
from edgekit.processing.generation import refuse_generation
from edgekit.processing.picture_files import PICTURES, read_picture
from edgekit.processing.predictions.texts import TextPrediction, TextPredictions
from edgekit.processing.predictions.windows import WindowPredictions
from edgekit.processing.processing import predicts_in_parts
from edgekit.processing.sound_files import Sound, read_sound
from edgekit.runtime import Session
from edgekit.runtime.loading.output_checks import non_finite_inputs
from edgekit.system.atomic_files import write_atomically
from edgekit.system.formats.npy import npy_bytes
from edgekit.tensor_spec import Array, TensorSpec

if TYPE_CHECKING:
    from edgekit.processing.card import Card, Input

SAVED = ".npz"
"""What the outputs are written as."""


@dataclass(frozen=True)
class RunResult:
    """Outputs by name (of several runs: the last one's), the task's answer where a card prepared the input,
    what ran, and the picture."""

    outputs: Mapping[str, Array]
    answer: Any
    active: Mapping[str, Any]
    fallbacks: tuple[Mapping[str, Any], ...]
    picture: Array | None = None
    warnings: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        outputs = {
            name: {
                "dtype": str(array.dtype),
                "shape": list(array.shape),
                **_limits(array),
            }
            for name, array in self.outputs.items()
        }
        answer = self.answer.as_json() if self.answer is not None else None
        return {
            "active": dict(self.active),
            "fallbacks": [dict(f) for f in self.fallbacks],
            "warnings": list(self.warnings),
            "outputs": outputs,
            "answer": answer,
        }

    def text(self) -> str:
        lines = [f"  {line}" for line in str(self.answer).splitlines()] if self.answer is not None else []
        lines += [""] if lines else []
        lines.append(ran_text(self.active, self.fallbacks))
        for name, array in self.outputs.items():
            shape = "x".join(map(str, array.shape)) or "scalar"
            limits = _in_words(_limits(array)) if array.size else "empty"
            lines.append(f"  output    {name}  {array.dtype} {shape}  {limits}")
        lines += [f"  warning   {warning}" for warning in self.warnings]
        return "\n".join(lines)


def ran_text(active: Mapping[str, Any], fallbacks: Sequence[Mapping[str, Any]]) -> str:
    variant, *ran = (active[key] for key in ("variant", "engine", "device", "precision"))
    lines = [f"  fallback  {f['from_']} -> {f['to']}: {f['reason']}" for f in fallbacks]
    return "\n".join([f"  ran       {variant} on {', '.join(ran)}", *lines])


def golden_inputs(bundle: Bundle) -> Mapping[str, Array]:
    """Return the inputs of a bundle's first golden vector.

    Raises:
        UsageError: it has a language model, which does not run on arrays.
        BundleError: it has no golden vector.
    """
    refuse_generation(bundle.card, bundle.name)
    if not bundle.golden:
        raise BundleError(f"{bundle.name} has no golden vectors to run; build it again")
    return bundle.golden[0][0]


def run_files(
    bundle: Bundle,
    paths: Mapping[str, Path],
    *,
    text: str | None = None,
    **options: Any,
) -> RunResult:
    """Run a bundle on files: once, or on each window of a sound or each text of a file.

    Args:
        paths: Files by input name: ``.npy``, ``.npz`` or, with a card, a picture, a sound or a text file.
            "" is the only input that is neither constant nor a state in the card.
        text: One text, instead of files.
        options: Arguments of a Session.

    Raises:
        UsageError: an input has no file, or a file has no input; or the variant or engine does not exist.
        SampleError: a file can't be read, or its array does not fit the input.
        EngineError: nothing ran.
    """
    refuse_generation(bundle.card, bundle.name)
    card = parse_card(bundle.card) if bundle.card is not None else None
    whole = read_whole(paths, text, card, bundle.name)
    feeds, picture = ({}, None) if whole is not None else read_feeds(bundle, paths, card)
    with Session(bundle, **options) as session:
        placed = answer = None
        if whole is not None:
            answer, outputs = run_whole(session, whole)
        else:
            if picture is not None:
                feeds, placed = session.prepare(picture)
            outputs = session.run(feeds)
        if card is not None and card.task is not None and placed is not None:
            answer = session.decode(outputs, placed)
        fallbacks = tuple(f._asdict() for f in session.fallbacks)
        warnings = tuple(non_finite_inputs(feeds))
        return RunResult(outputs, answer, session.active._asdict(), fallbacks, picture, warnings)


def read_feeds(
    bundle: Bundle, paths: Mapping[str, Path], card: Card | None
) -> tuple[dict[str, Array], Array | None]:
    """Read the model's inputs from files.

    Returns:
        Arrays by input name and None; or nothing and the picture, uint8 [height, width, 3], which the card
        makes the inputs of.
    """
    constants = {**card.constants(), **card.initial_states(bundle.inputs)} if card is not None else {}
    names = [spec.name for spec in bundle.inputs if spec.name not in constants]
    if set(paths) == {""} and len(names) == 1:
        paths = {names[0]: paths[""]}
    _check_names(bundle.inputs, names, paths)
    for path in paths.values():
        if path.is_dir() or not path.exists():
            raise SampleError(f"{path}: {'is a folder; pass a file' if path.is_dir() else 'file not found'}")
    pictures = [path for path in paths.values() if path.suffix.lower() in PICTURES]
    if pictures and card is None:
        raise UsageError(
            f"{pictures[0]} is a picture, but {bundle.name} has no card that describes its preparation; "
            "build it with --card card.toml (edgekit model card MODEL -o card.toml drafts one), or pass "
            "arrays (.npy, .npz)"
        )
    if card is not None and pictures and len(paths) == 1:
        return {}, read_picture(pictures[0])
    feeds = dict(constants)
    for spec in bundle.inputs:
        if spec.name in paths:
            read = read_sample(paths[spec.name], [spec], card, skip_others=True)
            if spec.name not in read:
                raise UsageError(f"{paths[spec.name]} has no array named {spec.name}")
            feeds[spec.name] = read[spec.name]
    return feeds, None


def _check_names(inputs: Sequence[TensorSpec], needed: Sequence[str], paths: Mapping[str, Path]) -> None:
    specs = {spec.name: spec for spec in inputs}
    if "" in paths:
        raise UsageError(
            f"which input is {paths['']} for? Write -i NAME={paths['']}, with one of {', '.join(specs)}"
        )
    unknown = [name for name in paths if name not in specs]
    if unknown:
        raise UsageError(f"the model has no input {unknown[0]}; its inputs are {', '.join(map(str, inputs))}")
    missing = [name for name in needed if name not in paths]
    if missing:
        options = ", ".join(f"-i {name}=FILE" for name in missing)
        specifications = ", ".join(str(specs[name]) for name in missing)
        raise UsageError(f"no file was given for {specifications}; add {options}")


def _limits(array: Array) -> dict[str, Any]:
    """``{min, max, not_finite}``: over the finite values, None where there is none, and how many are not."""
    finite = array[np.isfinite(array)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (None, None)
    return {"min": low, "max": high, "not_finite": array.size - finite.size}


def _in_words(limits: Mapping[str, Any]) -> str:
    parts = [] if limits["min"] is None else [f"{limits['min']:.5g} to {limits['max']:.5g}"]
    if limits["not_finite"]:
        parts.append(f"{limits['not_finite']} not finite")
    return ", ".join(parts)


def check_output(path: Path) -> None:
    """Refuse a file that the outputs can't be written to."""
    if path.suffix.lower() != SAVED:
        drawn = f"; --draw {path} draws the answer" if path.suffix.lower() in PICTURES else ""
        raise UsageError(f"outputs are arrays, written as {SAVED}: use -o {path.with_suffix(SAVED)}{drawn}")


def draw_answer(path: Path, result: RunResult) -> None:
    """Write the picture with the result drawn into it.

    Raises:
        UsageError: the input was not a picture, or the bundle has no task; or the
            file can't be written.
    """
    if result.picture is None or result.answer is None:
        reason = "the input was not a picture" if result.picture is None else "its card has no task"
        raise UsageError(f"--draw {path}: nothing to draw, because {reason}")
    save_drawing(path, result.answer.draw(result.picture))


def save_npz(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays by name as a ``.npz``, whole or not at all. ``numpy.savez`` takes none called ``file``.

    Raises:
        UsageError: it can't be written; ``path`` is untouched.
    """
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        for name, array in arrays.items():
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), npy_bytes(array))
    try:
        write_atomically(path, [whole.getvalue()])
    except OSError as problem:
        raise UsageError(f"can't write {path}: {problem.strerror}; choose another path") from None


TEXT = "text"
"""Name of a text, whose parts are several inputs of the model: ``-i text=reviews.txt``."""
TEXTS_LIMIT = 10_000
"""Most texts of one run."""


def read_whole(
    paths: Mapping[str, Path], text: str | None, card: Card | None, bundle_name: str
) -> Sound | Sequence[str] | None:
    """Return the sound that is processed window by window, or the texts; None if the inputs are arrays or a
    picture.
    """
    source = None
    if card is not None and (card.task is not None or any(e.kind == TEXT for e in card.inputs.values())):
        source = card.sources()[0]
    if text is not None:
        if source is None or source.kind != TEXT:
            raise UsageError(
                f"--text needs a card with a text input, but {bundle_name} {_other_options(source)}"
            )
        if paths:
            raise UsageError("use -i or --text, not both")
        return [text]
    if source is None or card is None:
        return None
    if source.kind == TEXT and not paths:
        raise UsageError('no text was given; add --text "...", or -i FILE.txt with one text a line')
    if len(paths) != 1:
        return None
    ((name, path),) = paths.items()
    kind = kind_of_file(path)
    if source.kind == TEXT and name in ("", TEXT) and not path.exists():
        raise SampleError(f'{path}: file not found; to pass a text itself, use --text "..."')
    if source.kind == "audio" and kind == "audio" and name in ("", source.name):
        return read_sound(path)
    if source.kind == TEXT and kind == TEXT and name in ("", TEXT, *card.inputs):
        lines = text_lines(path)
        if len(lines) > TEXTS_LIMIT:
            raise UsageError(f"{path} has {len(lines)} texts; the limit for one run is {TEXTS_LIMIT}")
        return [read_line(line) for line in lines]
    return None


def _other_options(source: Input | None) -> str:
    """Return what a bundle without a text input takes instead."""
    if source is not None and source.kind in NAMES:
        return f"takes {NAMES[source.kind]}s: add -i FILE{PREPARED[source.kind][0]}"
    return (
        "has no such card: build it with --card card.toml (edgekit model card MODEL -o card.toml drafts "
        "one), or pass arrays with -i NAME=FILE.npy"
    )


def run_whole(session: Session, whole: Sound | Sequence[str]) -> tuple[Any, dict[str, Array]]:
    """Return the task's result (None without a task), and the outputs of the last run."""
    if isinstance(whole, Sound) and predicts_in_parts(session.card):
        return session.predict(whole.samples, rate=whole.rate), {}
    if isinstance(whole, Sound):
        listening = session.listen(whole.samples, rate=whole.rate)
        answer = listening.answer()
        if isinstance(answer, WindowPredictions) and len(answer) == 1:
            answer = answer[0].prediction
        return answer, dict(listening.outputs)
    answers, outputs = [], {}
    for text in whole:
        if predicts_in_parts(session.card):
            answers.append(TextPrediction(text, session.predict(text)))
            continue
        feeds, placed = session.prepare(text)
        outputs = session.run(feeds)
        if session.card.task is not None:
            answers.append(TextPrediction(text, session.decode(outputs, placed)))
    if len(answers) == 1:
        return answers[0].prediction, outputs
    return TextPredictions(answers) if answers else None, outputs
