"""Drafts a card: finds a model's picture, its task and its pixels, and writes each line with its reason."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from shlex import quote
from typing import Any, TypeVar

from edgekit.compiler.card_inference.facts import GraphFacts, read_facts, read_source
from edgekit.compiler.card_inference.hugging_face_files import TOKENIZER
from edgekit.compiler.card_inference.image_habits import UNKNOWN, Habits
from edgekit.compiler.card_inference.lines import CardLine, comment_text, key_path, table_text
from edgekit.compiler.card_inference.pixels import pixel_lines
from edgekit.compiler.card_inference.recognized import (
    Draftable,
    ImageShape,
    Recognized,
    Recognizers,
    TextOutputs,
)
from edgekit.compiler.card_inference.sizes import Size, as_image, is_free, open_static, resized
from edgekit.compiler.card_inference.tflite_metadata import input_metadata
from edgekit.compiler.importers.contract import ImportOptions
from edgekit.compiler.importers.contract import Source as ModelSource
from edgekit.errors import CardError, ModelError
from edgekit.processing.card import Card, parse_card
from edgekit.processing.task_table import all_tasks, has_decoder
from edgekit.system.formats.strict_tables import load_toml
from edgekit.tensor_spec import TensorSpec

HEAD = (
    "Drafted by edgekit model card from {name}.",
    ('Check the lines marked "guessed" first: the model does not determine them. Format: docs/cards.md'),
)
NO_TASK = (
    "EdgeKit has no decoder for outputs of this form: {outputs}.",
    "Without a [task], results are arrays.",
)


@dataclass(frozen=True)
class Draft:
    """Drafted card.

    Attributes:
        text: Text in TOML, with reasons as comments.
        guessed: Lines that the model does not determine, e.g. ``inputs.images.colour``.
    """

    text: str
    card: Card
    guessed: tuple[str, ...]
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()

    def __str__(self) -> str:
        return self.text


def draft_card(
    model: ModelSource | str,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    example_inputs: Any = None,
    trust_pickle: bool = False,
) -> Draft:
    """Draft the card of a model. The same model gives the same text.

    Returns:
        The card. Check the lines whose comment begins with ``guessed:``.

    Raises:
        ModelError: the file is not a model, has no inputs, or can't be opened with any usual size.
        MissingDependency: the package that imports it is not installed.
    """
    source = read_source(model, ImportOptions(shapes or {}, example_inputs, trust_pickle))
    facts, sizes = open_static(source, shapes or {})
    if not facts.inputs:
        raise ModelError(f"{source.name} has no inputs, which a card describes; build it without a card")
    images = [one for spec in facts.inputs if (one := as_image(spec.name, spec.shape))]
    if len(images) != 1:
        return _without_picture(facts, sizes)
    image, recognized = images[0], recognize(facts, images[0])
    size = sizes.get(image.name)
    declared = source.inputs[image.name]
    habits = source.files.habits or (recognized.habits if recognized else UNKNOWN)
    if habits.size and not habits.is_stated and size and size.guessed and is_free(declared):
        shape = resized(image, habits.size, declared)
        size = Size(shape, f"not fixed by the model; {habits.origin}'s usual size", True)
        if shape != sizes[image.name].shape:
            sizes = {**sizes, image.name: size}
            facts = read_facts(source, {name: chosen.shape for name, chosen in sizes.items()})
            image = as_image(image.name, shape) or image
            recognized = recognize(facts, image) or recognized
    habits = source.files.habits or (recognized.habits if recognized else UNKNOWN)
    tables = [
        _image_table(facts, image, size, habits) if spec.name == image.name else _tensor_table(spec, sizes)
        for spec in facts.inputs
    ]
    constant = all(spec.name == image.name for spec in facts.inputs)
    return _written(facts, tables, recognized if constant else None)


Table = tuple[str, list[CardLine]]


def _without_picture(facts: GraphFacts, sizes: Mapping[str, Size]) -> Draft:
    draft = recognize_sound(facts) or draft_text(facts, sizes)
    if draft is None or not has_decoder(draft.task.kind, draft.task.decode):
        return _written(facts, [_tensor_table(spec, sizes) for spec in facts.inputs], None)
    tables = [(key_path("inputs", name), lines) for name, lines in draft.inputs.items()]
    return _written(facts, tables, draft.task, draft.states)


def _image_table(facts: GraphFacts, image: ImageShape, size: Size | None, habits: Habits) -> Table:
    spec = next(spec for spec in facts.inputs if spec.name == image.name)
    if habits.resize == "resize-crop" and image.height != image.width:  # may be longer than a scaled picture
        habits = replace(habits, resize="center-crop", rounding="")
    guessed = not habits.certain
    whose = f"as {habits.origin}"
    channels = "one channel" if image.channels == 1 else f"{image.channels} channels"
    channel_order = input_metadata(facts.metadata, image.name).colour
    if image.channels == 1:
        colour = CardLine("colour", "GREY", channels)
    elif channel_order == "RGB":
        colour = CardLine("colour", "RGB", "the model's metadata")
    else:
        colour = CardLine("colour", habits.colour, whose, guessed)
    lines = [
        CardLine("kind", "image"),
        _shape_line(spec, size),
        CardLine("layout", image.layout, f"{channels} in dimension {image.layout.index('C')}"),
        colour,
        CardLine("resize", habits.resize, habits.doubt or whose, guessed or bool(habits.doubt)),
    ]
    if habits.resize == "letterbox":
        lines.append(CardLine("place", habits.place))
    if habits.resize in ("letterbox", "fit-height"):
        lines.append(CardLine("pad", habits.pad))
    if habits.rounding:
        lines.append(CardLine("rounding", habits.rounding))
    if habits.crop != 1:
        lines.append(CardLine("crop", habits.crop))
    if habits.interpolation != "linear":
        lines.append(CardLine("interpolation", habits.interpolation))
    if habits.antialias:
        lines.append(CardLine("antialias", True, "as Pillow resizes"))
    return key_path("inputs", image.name), [*lines, *pixel_lines(facts, image, habits)]


def _tensor_table(spec: TensorSpec, sizes: Mapping[str, Size]) -> Table:
    kind = CardLine("kind", "tensor", f"{spec.dtype}, given as it is")
    return key_path("inputs", spec.name), [kind, _shape_line(spec, sizes.get(spec.name))]


def _shape_line(spec: TensorSpec, size: Size | None) -> CardLine:
    reason, guessed = (size.reason, size.guessed) if size else ("the model's own", False)
    return CardLine("shape", spec.shape, reason, guessed)


def _written(
    facts: GraphFacts,
    tables: Sequence[Table],
    recognized: Recognized | None,
    states: Mapping[str, str] | None = None,
) -> Draft:
    name = facts.source.name
    folder = facts.source.files.folder
    title = (folder and folder.resolve().name) or PurePath(name).stem or name
    parts = [_comments(HEAD, name=name), CardLine("title", title).text()]
    if recognized is not None:
        task_lines = [
            CardLine("kind", recognized.kind),
            CardLine("decode", recognized.decode, recognized.evidence, recognized.guessed),
            CardLine("outputs", dict(recognized.outputs)),
            *recognized.lines,
        ]
        tables = [*tables, ("task", task_lines)]
    parts += [table_text(*table) for table in tables]
    if recognized is None:
        parts.append(_comments(NO_TASK, outputs=", ".join(map(str, facts.outputs))))
    about = [CardLine(key, facts.metadata[key]) for key in ("author", "license", "version", "description")
             if facts.metadata.get(key)]  # fmt: skip
    if states:
        parts.append(table_text("states", [CardLine(name, output) for name, output in states.items()]))
    if about:
        parts.append(table_text("about", about))
    text = "\n\n".join(parts) + "\n"
    files = facts.source.files.read if facts.source.files.has_tokenizer else None
    written = load_toml(text, name, CardError)
    card = parse_card(written, facts.inputs, facts.outputs, location=name, files=files)
    guessed = tuple(f"{table}.{line.key}" for table, lines in tables for line in lines if line.guessed)
    return Draft(text, card, guessed, tuple(facts.inputs), tuple(facts.outputs))


def _comments(lines: Sequence[str], **named: str) -> str:
    return "\n".join(comment_text(line.format(**named)) for line in lines)


def drafted_text(draft: Draft, model: Path | str, output: Path, trust_pickle: bool = False) -> str:
    """Return the output of ``edgekit model card``: the task, the guesses, and the next step.

    Args:
        trust_pickle: Whether the model was opened with ``--trust-pickle``; the next step then has it too.
    """
    task = draft.card.task
    lines = [f"  task      {task.kind}, decoded as {task.decode}" if task else "  task      not recognized"]
    if draft.guessed:
        lines.append(f"  guessed   {', '.join(draft.guessed)}")
    trust = " --trust-pickle" if trust_pickle else ""
    build = f"edgekit build {quote(str(model))}{trust} --card {quote(str(output))} -t ort"
    advice = f"check the guessed lines, then {build}" if draft.guessed else build
    return "\n".join([*lines, "", f"  {output}", f"  next: {advice}"])


LEAST_TOKENS = 4


def draft_text(facts: GraphFacts, sizes: Mapping[str, Size]) -> Draftable | None:
    """Return the inputs and the task of a model whose inputs are token ids; None for other models."""
    parts = {spec.name: _part(spec) for spec in facts.inputs}
    if (
        "" in parts.values()
        or list(parts.values()).count("ids") != 1
        or len(set(parts.values())) != len(parts)
    ):
        return None
    if len({spec.shape[-1] for spec in facts.inputs}) != 1:
        return None
    task = recognize_text(facts)
    if task is None:
        return None
    inputs = {}
    for spec in facts.inputs:
        part = parts[spec.name]
        lines = [
            CardLine("kind", "text"),
            _shape_line(spec, sizes.get(spec.name)),
            CardLine("part", part, f"by its name, {spec.name!r}"),
        ]
        if part == "ids":
            files = facts.source.files
            reason = "of the model's folder; copy it beside this card"
            if not files.has_tokenizer:
                reason = "the model's own tokenizer file, beside this card"
            lines.append(CardLine("tokenizer", TOKENIZER, reason, not files.has_tokenizer))
            lines += [
                CardLine(key, value, "tokenizer_config.json") for key, value in files.tokenizer_lines.items()
            ]
            if task.reads_pairs:
                reason = "one number for a text is usually the relevance of a text pair"
                lines.append(CardLine("pair", True, reason, True))
        if spec.dtype != "int64":
            lines.append(CardLine("dtype", spec.dtype, "the input's"))
        inputs[spec.name] = lines
    return Draftable(inputs, task, {})


def _part(spec: TensorSpec) -> str:
    """Return the part of a tokenized text that an input holds, or "" where it can't hold one."""
    fits = len(spec.shape) in (1, 2) and spec.shape[-1] >= LEAST_TOKENS
    if spec.dtype not in ("int64", "int32") or not fits or math.prod(spec.shape) != spec.shape[-1]:
        return ""
    name = spec.name.lower()
    if "mask" in name:
        return "mask"
    return "types" if "type" in name or "segment" in name else "ids"


LEAST_POOLED = 64
"""Numbers from which a vector for a text is an embedding."""

Recognizer = TypeVar("Recognizer")


def recognize(facts: GraphFacts, image: ImageShape) -> Recognized | None:
    """Return the task of a model with one picture as input; None if no decoder reads its outputs."""
    for recognizer in _in_order(lambda spec: spec.pictures):
        recognized = recognizer(facts, image)
        if recognized is not None and has_decoder(recognized.kind, recognized.decode):
            return recognized
    return None


def recognize_text(facts: GraphFacts) -> Recognized | None:
    """Return the task of a model with a tokenized text as input; None if its outputs are not recognized."""
    floats = [output for output in facts.outputs if output.dtype.startswith("float")]
    tokens = facts.inputs[0].shape[-1]
    vectors = [o for o in floats if len(o.shape) == 2 and o.shape[0] == 1]
    pooled = [o for o in vectors if o.shape[1] >= LEAST_POOLED]
    sequences = [o for o in floats if len(o.shape) == 3 and o.shape[:2] == (1, tokens)]
    outputs = TextOutputs(vectors, pooled, sequences)
    tasks = (recognizer(facts, outputs) for recognizer in _in_order(lambda spec: spec.texts))
    return next((task for task in tasks if task is not None), None)


def recognize_sound(facts: GraphFacts) -> Draftable | None:
    """Return the inputs and the task of a sound model; None if it is not recognized as one."""
    drafts = (recognizer(facts) for recognizer in _in_order(lambda spec: spec.sounds))
    return next((draft for draft in drafts if draft is not None), None)


def _in_order(select: Callable[[Recognizers], Mapping[int, Recognizer]]) -> Iterator[Recognizer]:
    """Yield the recognizers of all tasks, lowest priority number first."""
    tasks = [task.load(task.recognize).RECOGNIZERS for task in all_tasks() if task.recognize]
    places = [entry for recognizers in tasks for entry in select(recognizers).items()]
    return (recognizer for _, recognizer in sorted(places, key=lambda entry: entry[0]))
