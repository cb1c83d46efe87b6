"""Metrics in Prometheus' protobuf format, which has native histograms and thereby our buckets as they are.

Source of names, types and numbers: github.com/prometheus/client_model, io/prometheus/client/metrics.proto;
exemplars are left out. Prometheus asks for this format if it stores native histograms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from itertools import pairwise
from typing import Any

from edgekit.runtime.metrics.histogram import LEAST, at_most
from edgekit.runtime.metrics.prometheus import Family
from edgekit.serve.grpc_messages import message_classes

MEDIA_TYPE = "application/vnd.google.protobuf"
CONTENT_TYPE = f"{MEDIA_TYPE}; proto=io.prometheus.client.MetricFamily; encoding=delimited"
KINDS = {"counter": 0, "gauge": 1, "histogram": 4}
"""Of MetricType."""
FIELDS: Mapping[str, tuple[str, ...]] = {
    "LabelPair": ("name:string", "value:string"),
    "Number": ("value:double",),
    "Bucket": ("cumulative_count:uint64", "upper_bound:double"),
    "BucketSpan": ("offset:sint32", "length:uint32"),
    "Histogram": (
        "sample_count:uint64", "sample_sum:double", "bucket:*Bucket", "sample_count_float:double",
        "schema:sint32", "zero_threshold:double", "zero_count:uint64", "zero_count_float:double",
        "negative_span:*BucketSpan", "negative_delta:*sint64", "negative_count:*double",
        "positive_span:*BucketSpan", "positive_delta:*sint64",
    ),
    "Metric": (
        "label:*LabelPair", "gauge:Number", "counter:Number", "summary:bytes", "untyped:Number",
        "timestamp_ms:int64", "histogram:Histogram",
    ),
    "MetricFamily": ("name:string", "help:string", "type:int32", "metric:*Metric"),
}  # fmt: skip
"""As ``grpc_messages.FIELDS``. ``Number`` is Prometheus' Gauge, Counter and Untyped."""


@cache
def _messages() -> dict[str, Any]:
    return message_classes("metrics.proto", "io.prometheus.client", FIELDS)


def encode(families: Iterable[Family]) -> bytes:
    """Return metrics as MetricFamily messages, each after its length."""
    content = bytearray()
    for name, kind, about, samples in families:
        family = _messages()["MetricFamily"](name=name, help=about, type=KINDS[kind])
        for labels, value in samples:
            metric = family.metric.add()
            for label, text in labels.items():
                metric.label.add(name=label, value=text)
            if kind == "histogram":
                _fill(metric.histogram, value)
            else:
                getattr(metric, kind).value = value
        encoded = family.SerializeToString()
        length = len(encoded)
        while length >= 0x80:
            content.append(length & 0x7F | 0x80)
            length >>= 7
        content.append(length)
        content += encoded
    return bytes(content)


def _fill(histogram: Any, entry: Mapping[str, Any]) -> None:
    """Write a histogram in JSON. Prometheus numbers buckets by their upper limits, we by the lower."""
    histogram.sample_count, histogram.sample_sum = entry["count"], entry["sum"]
    histogram.schema, histogram.zero_threshold = entry["scale"], LEAST
    histogram.zero_count = entry["zero_count"]
    counts = entry["bucket_counts"]
    if counts:
        histogram.positive_span.add(offset=entry["offset"] + 1, length=len(counts))
    histogram.positive_delta.extend(after - before for before, after in pairwise([0, *counts]))
    for limit, count in at_most(entry):  # for a Prometheus that stores classic histograms
        histogram.bucket.add(cumulative_count=count, upper_bound=limit)
