"""The float reference computes what transformers does (goldens.npz, written by write_goldens.py)."""

from pathlib import Path

import numpy as np
import pytest

from edgekit.generate.host.readers.encoder_decoder.config import POSITIONS, relative_buckets
from edgekit.generate.host.readers.encoder_decoder.reference import ReferenceModel
from edgekit.generate.host.readers.text2text.open_text2text import open_text2text_model
from edgekit.tensor_spec import Array
from tests.fixtures.text2text_folders import FAMILIES, write_text2text
from tests.fixtures.transformers_goldens import needs_transformers, read_goldens
from tests.generate.host.readers.text2text.write_goldens import (
    CHOSEN,
    DISTANCES,
    FILE,
    NEW_TOKENS,
    SOURCES,
    buckets,
    computed,
)


def goldens() -> dict[str, Array]:
    return read_goldens(FILE)


def snr_db(expected: Array, actual: Array) -> float:
    """Signal-to-noise ratio in dB."""
    noise = np.square(expected.astype(np.float64) - actual).sum()
    return float(10 * np.log10(np.square(expected.astype(np.float64)).sum() / noise))


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_and_tokens_are_those_of_transformers(tmp_path: Path, family: str) -> None:
    model = open_text2text_model(write_text2text(tmp_path / family, family), 64)
    reference, figures = ReferenceModel(model), []
    for number, source in enumerate(SOURCES):
        encoded = reference.encode(np.array(source))
        logits = reference.logits(encoded, [model.start, *CHOSEN], [])
        figures.append(snr_db(goldens()[f"{family}/logits"][number], logits))
        tokens = reference.generate(encoded, [model.start], NEW_TOKENS)
        expected = [token for token in goldens()[f"{family}/tokens{number}"] if token not in model.rules.ends]
        assert len(tokens) - len(expected) in (
            0,
            1,
        )  # transformers ends BART's and Marian's longest text itself
        assert tokens[: len(expected)] == expected
    assert len({*goldens()[f"{family}/tokens1"].tolist()}) > 4, "the texts do not vary"
    print(f"{family}: logits {min(figures):.0f} dB or more")
    assert min(figures) > 70  # unscaled scores of random weights: softmax enlarges the last bits


@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize(("number", "distance"), [(32, 128), (8, 12), (48, 200)])
def test_buckets_of_relative_positions_are_t5s(both_ways: bool, number: int, distance: int) -> None:
    expected = goldens()[f"buckets/{int(both_ways)}/{number}/{distance}"]
    np.testing.assert_array_equal(
        relative_buckets(DISTANCES, number, distance, both_ways=both_ways), expected
    )


def test_marians_positions_are_bit_exact(tmp_path: Path) -> None:
    model = open_text2text_model(write_text2text(tmp_path / "marian", "marian"), 64)
    np.testing.assert_array_equal(model.weight(f"encoder.{POSITIONS}"), goldens()["marian/positions"][:64])


@needs_transformers
@pytest.mark.parametrize("family", FAMILIES)
def test_the_goldens_are_what_transformers_computes(tmp_path: Path, family: str) -> None:
    for name, values in computed(write_text2text(tmp_path / family, family), family).items():
        np.testing.assert_allclose(values, goldens()[name], rtol=1e-4, atol=1e-4)


@needs_transformers
def test_the_golden_buckets_are_what_transformers_computes() -> None:
    for name, values in buckets().items():
        np.testing.assert_array_equal(values, goldens()[name])
