"""From image to image: super-resolution, denoising, style."""

from __future__ import annotations

from edgekit.processing.task_spec import TaskSpec

TASK = TaskSpec(
    kind="image-to-image",
    package=__name__,
    decoders={"picture": "decode"},
    recognize="recognize",
)
