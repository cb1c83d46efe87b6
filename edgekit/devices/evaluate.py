"""Accuracy on labelled samples, measured on a device."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from edgekit.compiler.accuracy.evaluate import opened, read_labelled
from edgekit.compiler.accuracy.evaluation import Evaluation
from edgekit.compiler.evaluate.label_files.folder import label_folders
from edgekit.compiler.evaluate.label_metric import label_metric
from edgekit.devices.measure import measure
from edgekit.devices.provision import samples_archive
from edgekit.errors import DeviceError
from edgekit.processing.inputs.text import TextInput
from edgekit.runtime.session_card import card_of


def evaluate_on(
    device: str,
    model: str | os.PathLike[str],
    samples: Path,
    notify: Callable[[str], None],
    *,
    card: Path | None = None,
    variant: str | None = None,
    engine: str | None = None,
    threads: int | None = None,
) -> Evaluation:
    """Evaluate variants, or a model, on a device, which is sent the samples with their labels.

    Args:
        device: Address in the format of ``--device``.
        model: A bundle's path; or a model's, which ``card`` describes. It is built here.
        notify: Takes lines for the user.
        variant: Name of the only variant to evaluate. None means all.
        engine: Target whose variants are evaluated, or that runs the model. None means all, or ONNX Runtime.
        threads: Number of threads of one inference. None means the session's default.

    Raises:
        DeviceError: the device can't be reached, lacks what can't be brought, or its response is invalid.
        EdgeKitError: as :func:`edgekit.evaluate`.
    """
    with opened(model, card, None, engine) as (name, bundle, float_bundle):
        bundle_card = card_of(bundle)
        metric = label_metric(bundle_card)
        read_labelled(metric, samples, bundle_card, bundle.outputs)  # an error here is sooner
        beside = [path for path in label_folders(samples, metric.label_folders) if path.is_dir()]
        has_text = any(isinstance(source, TextInput) for source in bundle_card.sources())
        extras = ("labels", "text") if has_text else ("labels",)
        sent = samples_archive(samples, beside)._replace(extras=extras)
        options = {"variant": variant, "engine": engine, "threads": threads}
        with TemporaryDirectory(prefix="edgekit-") as folder:
            path = Path(folder) / "model.edgekit"
            bundle.save(path)
            answer = measure(path, device, "evaluate", options, notify, sent)
    try:
        evaluation = Evaluation.from_json(answer.results[0])
    except (AttributeError, LookupError, TypeError, ValueError) as problem:
        raise DeviceError(f"{device} sent an invalid response: {type(problem).__name__}: {problem}") from None
    if float_bundle is None:
        return evaluation
    return replace(
        evaluation, reference=name, variants=[replace(r, variant=name) for r in evaluation.variants]
    )
