"""Notes on the trial of the card: the float model's score on labelled samples, or findings without labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from edgekit.tensor_spec import Json


def label_notes(manifest: Mapping[str, Json]) -> Iterator[str]:
    """Yield the float model's score on the labelled samples of the build, or why the labels were not used, or
    the findings on the card without labels."""
    yield from map(str, manifest.get("samples", {}).get("card", ()))
    labels = manifest.get("samples", {}).get("labels")
    if not labels:
        return
    if unused := labels.get("unused"):
        yield f"labels of the samples were not used: {unused}"
        return
    text = f"the float model with its card: {score_text(labels)}"
    if numbering := labels["numbering"]:
        text += f"; the labels may number the classes in another way: {numbering}"
    yield text
    if better := labels.get("better"):
        yield f"another card is better: {better}"


def score_text(labels: Mapping[str, Json]) -> str:
    """Describe a score: ``samples.labels`` of a manifest."""
    bound = "" if labels["upper"] is None else f" (at most {labels['upper']:.3f})"
    counted = "labelled objects found" if labels["metric"] == "mAP" else "right"
    score = f"{labels['metric']} {labels['value']:.3f}{bound}, {labels['right']} of {labels['labelled']}"
    return f"{score} {counted}, on {labels['samples']} labelled samples"
