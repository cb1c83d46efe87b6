"""Latency of a cascade: each later stage on one crop, and a whole frame with all of its crops."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from edgekit.bundle.bundle import Bundle
from edgekit.errors import CardError, UsageError
from edgekit.processing.inputs.image import ImageInput
from edgekit.runtime import Session
from edgekit.runtime.session_card import card_of
from edgekit.system.formats.plain_text import milliseconds
from edgekit.tensor_spec import Array

LEAST_FRAMES, FRAME_SECONDS = 3, 3.0


def stage_rows(
    bench: Callable[..., dict[str, Any]],
    bundle: Bundle,
    first: Mapping[str, Any],
    options: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Time each later stage alone, on its own golden vector: one crop.

    Args:
        first: Row of the first stage, whose engine runs the later ones too, if they have variants for it.
    """
    target = next(v.target for v in bundle.variants if v.name == first["variant"])
    shared = {
        name: options[name] for name in ("threads", "seconds", "fps", "price_per_hour") if name in options
    }
    rows = []
    for name in bundle.stages:
        stage = bundle.stage(name)
        engine = target if any(v.target == target and v.usable for v in stage.variants) else None
        row = bench(stage, engine=engine, **shared)
        rows.append(
            {**row, "variant": f"{name}: {row['variant']}", "stage": name, "stage_of": first["variant"]}
        )
    return rows


def add_frame(bundle: Bundle, first: dict[str, Any], options: Mapping[str, Any]) -> None:
    """Add ``frame`` to the row of the first stage: ``Session.predict`` on the image of the golden vector.

    It is ``{p50_ms, p95_ms, runs, crops}``, with the number of crops of each later stage; None if the first
    stage takes no image as floats.
    """
    first["frame"] = None
    frame, times = golden_picture(bundle), list[float]()
    if frame is None:
        return
    seconds = options.get("seconds", FRAME_SECONDS)
    with Session(
        bundle,
        variant=first["variant"],
        threads=options.get("threads"),
        device=options.get("accelerator") or "cpu",
    ) as session:
        prediction = session.predict(frame)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(times) < LEAST_FRAMES:
            began = time.perf_counter()
            session.predict(frame)
            times.append(1000 * (time.perf_counter() - began))
    p50, p95 = (round(float(value), 4) for value in np.quantile(times, [0.5, 0.95]))
    crops = {name: sum(name in details for details in prediction.details) for name in bundle.stages}
    first["frame"] = {"p50_ms": p50, "p95_ms": p95, "runs": len(times), "crops": crops}


def golden_picture(bundle: Bundle) -> Array | None:
    """Return the image that the golden vector was prepared from, uint8 [height, width, 3] in RGB; None if the
    bundle takes no image as floats."""
    try:
        image = card_of(bundle).image_input()
    except (CardError, UsageError):
        return None
    array = bundle.golden[0][0][image.name]
    return _picture(image, array) if array.dtype.kind == "f" and image.channels in (1, 3) else None


def _picture(image: ImageInput, array: Array) -> Array:
    planes = array[0] if image.layout == "NCHW" else array[0].transpose(2, 0, 1)
    shape = (-1, 1, 1)
    pixels = planes * np.reshape(image.std, shape) + np.reshape(image.mean, shape)
    pixels = np.broadcast_to(pixels[::-1] if image.colour == "BGR" else pixels, (3, *pixels.shape[1:]))
    return np.ascontiguousarray(np.clip(np.rint(pixels), 0, 255).astype(np.uint8).transpose(1, 2, 0))


def frame_lines(results: list[dict[str, Any]]) -> list[str]:
    """Format the time of whole frames, and of what each later stage adds."""
    lines = []
    for first in (row for row in results if "stage" not in row):
        added = [
            f"{milliseconds(row['p50_ms'])} for each crop of {row['stage']}"
            for row in results
            if row.get("stage_of") == first["variant"]
        ]
        name, p50 = first["variant"], milliseconds(first["p50_ms"])
        lines.append(f"  cascade   {name}: {p50} for the first stage of a frame, and {', '.join(added)}")
        if (frame := first.get("frame")) is not None:
            crops = ", ".join(f"{count} crops of {stage}" for stage, count in frame["crops"].items())
            p50, p95 = milliseconds(frame["p50_ms"]), milliseconds(frame["p95_ms"])
            lines.append(
                f"  frame     {name}: p50 {p50}, p95 {p95} for the bundle's own picture with {crops}"
            )
    return lines
