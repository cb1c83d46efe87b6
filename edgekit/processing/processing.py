"""Around a model, as the card says: ``prepare`` before the engine, ``decode`` after it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgekit.errors import CardError, EngineError, UsageError
from edgekit.processing.task_table import find_decoder
from edgekit.target.tensor_checks import not_finite
from edgekit.tensor_spec import Array, is_finite

if TYPE_CHECKING:
    from edgekit.processing.card import Card
    from edgekit.processing.predictions.image_placement import ImagePlacement
    from edgekit.processing.predictions.windows import WindowPrediction
    from edgekit.processing.task import Task


def prepare(
    card: Card, item: Any, order: str = "rgb", *, rate: int | None = None
) -> tuple[dict[str, Array], Any]:
    """Turn an image, a recording or a text into the model's inputs, as the card's kind of input says.

    Args:
        card: Its inputs are one image, one recording or the parts of one text; the others are constants or
            states, which the caller adds.
        item: An image: uint8 [height, width, 3], or as ``order`` says. A recording: floats from -1 to 1 or
            int16, [n] or [n, channels], of at most one window. A text: a str.
        order: Order of an image's channels: ``rgb`` (Pillow), ``bgr`` (OpenCV), or that of a camera's frames,
            ``nv12``, ``i420`` or ``yuyv`` (yuv_frames.py).
        rate: Sample rate of a recording in Hz. None means the card's.

    Returns:
        Inputs by name, and what ``decode`` needs to know of the item: of an image its ``ImagePlacement``.

    Raises:
        UsageError: the item does not fit, or ``order`` or ``rate`` is wrong.
        CardError: the card's inputs are none of these.
    """
    sources, constants = card.sources(), card.constants()
    source = sources[0]
    feeds: dict[str, Array]
    placed: Any
    # Each kind is imported only if a card has it: a device with recordings needs no images.
    if source.kind == "audio":
        from edgekit.processing import audio_preparation
        from edgekit.processing.inputs.audio import AudioInput

        assert isinstance(source, AudioInput)
        samples = audio_preparation.mono(item, source, rate)
        feeds = {source.name: audio_preparation.prepare_audio(source, samples)}
        placed = audio_preparation.AudioWindow(0.0, len(samples) / source.rate)
    elif source.kind == "text":
        from edgekit.processing.inputs.text import TextInput
        from edgekit.processing.text_preparation import prepare_text

        _no_rate(rate, card)
        parts = [entry for entry in sources if isinstance(entry, TextInput)]
        feeds, placed = prepare_text(parts, item, card.files)
    else:
        from edgekit.processing.image_preparation import frame_size, place_image, prepare_image
        from edgekit.processing.inputs.image import ImageInput

        assert isinstance(source, ImageInput)
        _no_rate(rate, card)
        feeds = {source.name: prepare_image(source, item, order)}
        placed = place_image(source, *frame_size(item, order))
    return {**feeds, **constants}, placed


def _no_rate(rate: int | None, card: Card) -> None:
    if rate is not None:
        raise UsageError(f"rate applies to sounds, and {card.title} does not take sounds")


def placement(card: Card, width: int, height: int) -> ImagePlacement:
    """Compute the placement of a frame of this size in the model's input.

    Raises:
        CardError: the card's inputs are not one image.
    """
    from edgekit.processing.image_preparation import place_image

    return place_image(card.image_input(), width, height)


def decode(card: Card, outputs: Mapping[str, Array], placed: Any, **options: Any) -> Any:
    """Turn the model's outputs into the task's prediction.

    Args:
        outputs: Outputs by the model's own names.
        placed: Result of ``prepare``.
        options: Instead of the card's, e.g. ``score=0.6``.

    Returns:
        The task's prediction, e.g. ``Classes`` or ``Detections`` (``edgekit.processing.predictions``).

    Raises:
        CardError: the card has no task.
        UsageError: an option is unknown or out of its bounds.
        EngineError: an output is missing, holds NaN or infinities, or does not fit the card's decoding.
    """
    task = card.task
    if task is None:
        raise CardError(f"{card.title}: the card has no task, so outputs stay arrays; add one, or use run()")
    settings = _settings(task, options)
    by_role = {role: _finite(outputs, name) for role, name in task.outputs.items()}
    labels = task.labels or token_labels(card)
    try:
        return find_decoder(task.kind, task.decode).function(by_role, settings, placed, labels)
    except (IndexError, TypeError, ValueError) as problem:  # what numpy says of shapes that do not fit
        shapes = ", ".join(f"{role} {list(values.shape)}" for role, values in by_role.items())
        raise EngineError(
            f"outputs do not fit kind = {task.kind!r}, decode = {task.decode!r}: {shapes}; "
            f"correct the card's task ({problem})"
        ) from problem


def token_labels(card: Card) -> Sequence[str]:
    """Return the text of each token, of a task that names a tokenizer; else nothing.

    Raises:
        CardError: the tokenizer is damaged.
    """
    name = getattr(card.task.options, "tokenizer", "") if card.task else ""
    if not name or name not in card.files:
        return ()
    from edgekit.processing.tokenizer import token_texts  # here: most tasks have no tokens

    return token_texts(card.files[name])


def predict_whole(
    card: Card, run: Callable[[Mapping[str, Array]], Mapping[str, Array]], item: Any, rate: int | None,
    options: Mapping[str, Any],
) -> Any:  # fmt: skip
    """Predict in several runs, if the card's decoder has ``whole``; see ``predict_parts``."""
    return deque(predict_parts(card, run, item, rate, options), maxlen=1)[0]


def predict_parts(
    card: Card, run: Callable[[Mapping[str, Array]], Mapping[str, Array]], item: Any, rate: int | None,
    options: Mapping[str, Any],
) -> Iterator[Any]:  # fmt: skip
    """Predict in several runs: for a recording window by window, of a written text a few tokens at a time.

    Args:
        card: A card for which ``predicts_in_parts`` is true.
        item: A recording: floats from -1 to 1 or int16, [n] or [n, channels]. A text: a str.
        rate: Sample rate of a recording in Hz. None means the card's.
        options: Instead of the card's.

    Returns:
        An iterator of the predictions so far, after each run.

    Raises:
        UsageError: the item does not fit, or an option is unknown or out of its bounds.
        EngineError: the outputs do not fit the card.
    """
    task, source = card.task, card.sources()[0]
    if task is None or source.kind not in ("audio", "text"):
        raise CardError(f"{card.title}: its task needs a sound or a text as input")
    whole = find_decoder(task.kind, task.decode).whole
    assert whole is not None
    if source.kind == "audio":
        from edgekit.processing import audio_preparation
        from edgekit.processing.inputs.audio import AudioInput

        assert isinstance(source, AudioInput)
        item = audio_preparation.mono(item, source, rate)
    else:
        _no_rate(rate, card)
    return whole(run, card, item, _settings(task, options))


def predicts_in_parts(card: Card) -> bool:
    """Return whether the task's decoder runs the model as often as it needs: for a recording of any length,
    or for a text that it writes."""
    return card.task is not None and find_decoder(card.task.kind, card.task.decode).whole is not None


def decode_windows(card: Card, windows: Sequence[WindowPrediction], **options: Any) -> Any:
    """Compute the prediction for a whole recording from those of its windows, or None if its task has none.

    Raises:
        UsageError: an option is unknown or out of its bounds.
    """
    task = card.task
    assert task is not None
    whole = find_decoder(task.kind, task.decode).over_windows
    return None if whole is None else whole(windows, _settings(task, options))


def _settings(task: Task, options: Mapping[str, Any]) -> Any:
    if not options:
        return task.options
    allowed = sorted(vars(task.options))
    unknown = sorted(set(options) - set(allowed))
    if unknown:
        is_score = "score" in allowed and unknown[0] in ("conf", "confidence", "threshold")
        hint = "; did you mean 'score'?" if is_score else ""
        raise UsageError(f"{task.decode} has no option {unknown[0]}{hint}; available: {', '.join(allowed)}")
    try:
        return replace(task.options, **options)
    except (TypeError, ValueError) as problem:
        raise UsageError(f"{task.decode} does not accept these options: {problem}") from None


def _finite(outputs: Mapping[str, Array], name: str) -> Array:
    if name not in outputs:
        raise EngineError(f"the card decodes output {name}, but the model returned {', '.join(outputs)}")
    values = outputs[name]
    if values.dtype.kind != "f":
        return values
    if not is_finite(values):
        raise not_finite(name, values)
    return values
