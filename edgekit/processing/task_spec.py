"""Parts of a task."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple


class TaskSpec(NamedTuple):
    """A task: what its package holds.

    Modules are named relative to the package, or in full, and loaded on first use, so that a device imports
    only the decoder that its card names.

    Attributes:
        kind: Name in cards, e.g. ``detect-text``.
        package: Import name of the package; ``__name__`` in its ``__init__.py``.
        decoders: Form of the model's outputs -> module with this form in its ``DECODERS``.
        metric: Module whose ``METRIC`` says how close two models' predictions are (host). "" means that the
            SNR does.
        accuracy: Module whose ``ACCURACY`` is the metric on labelled samples (host). "" means none.
        recognize: Module whose ``RECOGNIZERS`` find the task in a model, for ``edgekit model card`` (host);
            "": none.
        mirrored: Whether training may mirror its images.
    """

    kind: str
    package: str
    decoders: Mapping[str, str]
    metric: str = ""
    accuracy: str = ""
    recognize: str = ""
    mirrored: bool = True

    def load(self, module: str) -> Any:
        """Import a module of the task."""
        return import_module(self.full_name(module))

    def full_name(self, module: str) -> str:
        return module if "." in module else f"{self.package}.{module}"
