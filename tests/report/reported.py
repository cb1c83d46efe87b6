"""A bundle with all kinds of evidence that a page shows."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image

from edgekit.bundle import Bundle, Variant
from edgekit.processing.predictions.classify import Classes
from edgekit.report.answers import Runs, Sample, SamplePrediction, ShownSamples, Word
from edgekit.report.sources import Answer
from edgekit.tensor_spec import Json
from tests.fixtures.bundles import small_bundle

HOSTILE = "</script><img src=x onerror=\"document.title='owned'\">{{7*7}}'&"
"""Markup that a name from a file may hold."""


def timing(p50_ms: float) -> dict[str, Json]:
    return {"p50_ms": p50_ms, "cpu": "A CPU", "threads": 2, "measured": "2026-11-22 10:15"}


def accuracy(snr_db: float | None) -> dict[str, Json]:
    return {"y": {"snr_db": snr_db, "max_abs": 0.1, "limit_db": 20.0}}


def candidate(
    choice: str, value: float, ratio: float | None, lost: str = "", ranges: str = "l4"
) -> dict[str, Json]:
    return {
        "choice": choice,
        "placement": "all",
        "recipe": {"ranges": ranges, "rounding": "nearest"},
        "floats": [],
        "agreement": {"metric": "self-mAP", "value": value, "unit": ""},
        "snr_db": 12.0,
        "task": None,
        "ratio": ratio,
        "lost": lost,
    }


def cause(node: str) -> dict[str, Json]:
    return {
        "kind": "depthwise range",
        "value": "act" if node == "conv" else node,
        "nodes": [node],
        "narrow": 0.16,
        "wide": 132.7,
        "plain_db": 5.2,
        "done": "kept in float",
        "left_db": None,
    }


def variant(name: str, precision: str, status: str = "verified on Ort 1", **evidence: Json) -> Variant:
    files = {} if status.startswith("rejected") else {"model.bin": f"variants/{precision}/model.bin"}
    return Variant(name, "ort", "ort", precision, files, {}, status, evidence)


def reported_bundle(node: str = "conv", reason: str = "self-mAP 0.072; 0.750 is required") -> Bundle:
    """fp32, fp16, int8 with its search, and a rejected one."""
    tried = [
        candidate("all, l4, nearest", 0.92, 0.6),
        candidate("all, minmax, nearest", 0.072, 0.55, reason, "minmax"),
    ]
    score = {"metric": "self-mAP", "value": 0.91, "unit": "", "samples": 8}
    variants = [
        variant("ort-fp32", "fp32", size_bytes=4_000_000, timing=timing(10.0), accuracy=accuracy(120.0)),
        variant("ort-fp16", "fp16", size_bytes=2_000_000, timing=timing(11.0), accuracy=accuracy(60.0)),
        variant(
            "ort-int8-mixed",
            "int8-mixed",
            size_bytes=1_500_000,
            timing=timing(6.0),
            accuracy=accuracy(15.0),
            agreement=score,
            kept={"kept": 19, "of": 20},
            quantization={
                "choice": "all, l4, nearest",
                "because": [f"1 block stays float: {node}"],
                "float": {"names": [node]},
            },
            search={
                "tried": tried,
                "damage": {node: 3.2, "stem": 25.0},
                "left_out": 0,
                "plain": candidate("all, minmax, nearest", 0.051, 0.5, "", "minmax"),
            },
            causes={"found": [cause(node)], "more": {"per-tensor weight": 3}},
        ),
        variant(
            "ort-int8",
            "int8",
            f"rejected: {reason}",
            size_bytes=1_000_000,
            timing=timing(5.0),
            agreement={**score, "value": 0.072},
        ),
    ]
    bundle = small_bundle(variants)
    bundle.manifest["samples"] = {"origin": "8 files"}
    return bundle


def classified(count: int) -> ShownSamples:
    """Photographs that a variant takes for another class than their label."""
    photo = io.BytesIO()
    Image.new("RGB", (48, 32), (90, 120, 60)).save(photo, "WEBP")
    encoded = base64.b64encode(photo.getvalue()).decode()
    picture = SamplePrediction("", "", "a photograph", encoded, 48, 32)
    right = SamplePrediction("ort-fp32", "the float model", "cat", words=(Word("same", "cat 0.81"),))
    words = (Word("new", "dog 0.55"), Word("lost", "cat"), Word("same", "(then bird 0.11)"))
    wrong = SamplePrediction("ort-int8-mixed", "top-1 agreement 0.000", "dog", words=words)
    sample = Sample("1.jpg", "labelled cat", (right, wrong), picture)

    def answer(index: int) -> Answer:
        classes = Classes(np.array([index]), np.array([0.8]), ["cat", "dog", "bird"])
        return Answer(classes, None, None, 1.0)

    expected = [answer(0)] * count
    found = [answer(1 + number % 2) for number in range(count)]
    labels, names = ["cat"] * count, [f"{number}.jpg" for number in range(count)]
    runs = Runs("ort-fp32", True, expected, {"ort-int8-mixed": found}, [0.0] * count, labels, names)
    return ShownSamples("Of some pictures.", (sample,) * count, (), runs)
