"""Judges of the scoreboard: score what an entry computes against the float model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edgekit.compiler.evaluate.fidelity import Evaluator, Fidelity, Score, worst_snr_db
from edgekit.compiler.evaluate.labels import Label
from edgekit.compiler.evaluate.prepared_files import text_placements
from edgekit.compiler.model.onnx_file import open_model, signature
from edgekit.compiler.model.reference import Reference
from edgekit.generate.host.judge.evaluation import judged, perplexity
from edgekit.generate.host.readers.language.gguf_model import open_gguf_model
from edgekit.generate.host.readers.language.reference_decoder import ReferenceDecoder
from edgekit.tensor_spec import Array
from tests.benchmarks.scoreboard.makers import TEXT_MODEL, is_text
from tests.benchmarks.scoreboard.networks import card_of, samples_of


class Judge:
    """Scores a network's outputs against those that ONNX Runtime computes in float."""

    def __init__(self, folder: Path, labels: Sequence[Label] | None) -> None:
        samples, card = samples_of(folder / "heldout"), card_of(folder)
        reference = Reference(open_model(folder / "source.onnx"), optimize=True)
        expected = [reference.run(sample) for sample in samples]
        self._evaluator = Evaluator(card, expected, labels, placed=text_placements(card, samples))
        self.metric, self.samples = self._evaluator.metric, len(expected)

    def fidelity(self, outputs: Path) -> Fidelity:
        return self._evaluator.evaluate(samples_of(outputs))


class TextJudge:
    """Scores a language model's logits against those that the numpy reference computes in float.

    The metric is the share of positions with the same likeliest token; "labelled" is the perplexity.
    """

    metric = "same likeliest token"

    def __init__(self, folder: Path) -> None:
        self._windows = [sample["tokens"].tolist() for sample in samples_of(folder / "heldout")]
        decoder = ReferenceDecoder(open_gguf_model(folder / TEXT_MODEL))
        self._expected = [{"logits": decoder.logits(rows)} for rows in decoder.hidden(self._windows)]
        self._likeliest = self._judged(self._expected)[1]
        self.samples = len(self._likeliest)

    def _judged(self, outputs: Sequence[dict[str, Array]]) -> tuple[float, Array]:
        """Return the perplexity, and the likeliest token at each position that has a next one."""
        pairs = zip(outputs, self._windows, strict=True)
        rows = [judged(output["logits"][:-1], window[1:]) for output, window in pairs]
        return perplexity([row[0] for row in rows]), np.concatenate([row[1] for row in rows])

    def fidelity(self, outputs: Path) -> Fidelity:
        logits = samples_of(outputs)
        value, likeliest = self._judged(logits)
        same = Score(self.metric, float(np.mean(likeliest == self._likeliest)))
        return Fidelity(same, worst_snr_db(self._expected, logits), Score("perplexity", value))


def judge_of(folder: Path, labels: Sequence[Label] | None) -> Judge | TextJudge:
    """Return the judge of a network's folder."""
    return TextJudge(folder) if is_text(folder) else Judge(folder, labels)


def write_specs(folder: Path) -> None:
    """Write the names, dtypes and shapes of a network's values as ``specs.json``, which its runners need."""
    if is_text(folder) or (folder / "specs.json").is_file():
        return
    inputs, outputs = signature(open_model(folder / "source.onnx"))
    specs = {
        side: [[spec.name, spec.dtype, list(spec.shape)] for spec in values]
        for side, values in (("inputs", inputs), ("outputs", outputs))
    }
    (folder / "specs.json").write_text(json.dumps(specs), "utf-8")
