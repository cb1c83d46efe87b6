"""Order of pairs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit.compiler.evaluate.label_files.pairs import read_pairs
from edgekit.errors import SampleError
from edgekit.processing.predictions.embed import Embedding
from edgekit.tasks.embed.accuracy import Measured, measure, score
from tests.fixtures.cards import CLASSES


@pytest.mark.parametrize("labels", [2, 5])
def test_the_order_is_that_of_other_libraries(labels: int) -> None:
    rng = np.random.default_rng(labels)
    truth, cosines = rng.integers(0, labels, 60).astype(float), rng.random(60).round(1)
    scores = score([Measured(*pair) for pair in zip(truth.tolist(), cosines.tolist(), strict=True)], CLASSES)
    weights = rng.integers(0, 3, 60)
    if labels == 2:
        expected = pytest.importorskip("sklearn.metrics").roc_auc_score(truth, cosines, sample_weight=weights)
    else:
        drawn = np.repeat(np.arange(60), weights)
        expected = pytest.importorskip("scipy.stats").spearmanr(truth[drawn], cosines[drawn]).statistic
    assert scores.value(weights) == pytest.approx(expected)


def test_one_kind_of_pairs_has_no_order() -> None:
    scores = score([Measured(1.0, 0.5), Measured(0.0, 0.25)], CLASSES)
    assert scores.value(np.array([1, 1])) == 1
    assert scores.value(np.array([1, 0])) is None
    assert list(scores.faults) == ["cosine 0.50, labelled 1", "cosine 0.25, labelled 0"]


def test_pairs_of_a_table(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(b"")
    table = tmp_path / "pairs.csv"
    table.write_text("image1,image2,same\na.png,b.png,1\n")
    (sample,) = read_pairs(tmp_path, CLASSES).samples
    assert sample.item == (tmp_path / "a.png", tmp_path / "b.png")
    embeddings = [Embedding(np.array(vector, np.float32)) for vector in ([1, 0], [0.6, 0.8])]
    assert measure(sample.label, embeddings, CLASSES) == pytest.approx((1, 0.6))
    for row, reason in (
        ("a.png,c.png,1", "'c.png' is not in the folder"),
        ("a.png,b.png,x", "same is 'x', not a number"),
    ):
        table.write_text(f"image1,image2,same\n{row}\n")
        with pytest.raises(SampleError) as error:
            read_pairs(tmp_path, CLASSES)
        assert str(error.value) == f"{table}, line 2: {reason}"
    table.unlink()
    with pytest.raises(
        SampleError, match=r"Write a .csv or .tsv with the columns a and b \(images\) and score"
    ):
        read_pairs(tmp_path, CLASSES)
