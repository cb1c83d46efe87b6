"""From picture to picture: super-resolution, denoising, style."""

from __future__ import annotations

from edgekit.processing.tasks.task_spec import TaskSpec

TASK = TaskSpec(
    kind="image-to-image",
    package=__name__,
    decoders={"picture": "decode"},
    predictions={"Picture": "prediction"},
    drawing="drawing",
    recognize="recognize",
)
