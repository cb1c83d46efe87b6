"""Normalization of pixels: ``mean``, ``std`` and ``dtype`` of a drafted card, and the reasons."""

from __future__ import annotations

from dataclasses import replace

from edgekit.compiler.card_inference.facts import GraphFacts
from edgekit.compiler.card_inference.first_layer import IN_DOUBT, RAW_BELOW, in_graph, response
from edgekit.compiler.card_inference.image_habits import RAW, ZERO_TO_ONE, Habits, Numbers
from edgekit.compiler.card_inference.lines import CardLine
from edgekit.compiler.card_inference.recognized import ImageShape
from edgekit.compiler.card_inference.tflite_metadata import input_metadata

SPELT = {1.0: "pixels are not scaled", 255.0: "0 to 1 goes in", 127.5: "-1 to 1 goes in"}


def pixel_lines(facts: GraphFacts, image: ImageShape, habits: Habits) -> list[CardLine]:
    """Return lines for ``mean``, ``std`` and ``dtype``; none where the card's defaults are right."""
    dtype = next(spec.dtype for spec in facts.inputs if spec.name == image.name)
    if dtype.startswith(("uint", "int")) and dtype != "int8":
        return [CardLine("dtype", dtype, "the input's: pixels are not scaled")]
    if dtype == "int8":
        quantized = facts.quantization(image.name)
        zero = -128 if quantized is None else quantized[1]
        reason = "the input is int8: pixels minus 128" if zero == -128 else "the graph's DequantizeLinear"
        return [
            CardLine("mean", [float(-zero)] * image.channels, reason, zero != -128),
            CardLine("dtype", "int8"),
        ]
    lines = _float_lines(facts, image, habits)
    return lines if dtype == "float32" else [*lines, CardLine("dtype", dtype, "the input's")]


def _float_lines(facts: GraphFacts, image: ImageShape, habits: Habits) -> list[CardLine]:
    declared = input_metadata(facts.metadata, image.name)
    if declared.mean and declared.std:
        pixels = declared.mean, declared.std
        return _habit_lines(image, replace(habits, colour="RGB"), pixels, "the model's metadata", False)
    arithmetic = in_graph(facts, image.name)
    if arithmetic is not None and arithmetic.divides_pixels:
        ops = " and ".join(dict.fromkeys(arithmetic.ops))
        return [_plain_line(image, f"{ops} in the graph convert pixels to the model's units", False)]
    if habits.is_stated:
        return _habit_lines(image, habits, habits.pixels, habits.origin, False)
    spread = response(facts, image.name)
    if spread is None:
        return _habit_lines(image, habits, habits.pixels, f"{habits.origin}: {_spelt(habits.pixels)}", True)
    units = f"{spread:.0f}" if spread >= 10 else f"{spread:.2g}"
    measured = f"its first layer spreads over {units} on pixels 0 to 255"
    doubt = IN_DOUBT[0] < spread < IN_DOUBT[1]
    if spread < RAW_BELOW:
        return [_plain_line(image, f"{measured}: pixels are not scaled", doubt)]
    if habits.raw:
        reason = f"{measured}, too far for {habits.origin}: 0 to 1"
        return _habit_lines(image, habits, ZERO_TO_ONE, reason, True)
    per_unit = f"{habits.origin}: {_spelt(habits.pixels)}"
    if not habits.certain:
        per_unit = f"{measured}, so it takes smaller numbers; {per_unit}"
    return _habit_lines(image, habits, habits.pixels, per_unit, doubt or not habits.certain)


def _habit_lines(
    image: ImageShape, habits: Habits, pixels: tuple[Numbers, Numbers], reason: str, guessed: bool
) -> list[CardLine]:
    mean, std = (_by_channel(numbers, image.channels, habits.colour) for numbers in pixels)
    if pixels == RAW:
        return [_plain_line(image, reason, guessed)]
    lines = [CardLine("mean", mean, reason, guessed)] if any(mean) else []
    return [*lines, CardLine("std", std, "" if lines else reason, guessed)]


def _plain_line(image: ImageShape, reason: str, guessed: bool) -> CardLine:
    return CardLine("std", [1.0] * image.channels, reason, guessed)


def _by_channel(numbers: Numbers, channels: int, colour: str) -> list[float]:
    """Return one number per channel, in the order of the model's colours."""
    if len(numbers) == 1:
        return [*numbers] * channels
    if channels == 1:
        return [round(sum(numbers) / len(numbers), 4)]
    return list(numbers[::-1] if colour == "BGR" else numbers)


def _spelt(pixels: tuple[Numbers, Numbers]) -> str:
    return SPELT.get(pixels[1][0], "minus the mean, divided by the standard deviation, of ImageNet's pixels")
