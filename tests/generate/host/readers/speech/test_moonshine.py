"""Moonshine's float reference computes what transformers does (goldens.npz, written by write_goldens.py)."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.errors import ModelError
from edgekit.generate.host.readers.encoder_decoder.reference import ReferenceModel
from edgekit.generate.host.readers.speech.open_speech import is_speech_model, open_speech_model
from edgekit.generate.host.readers.speech.speech_model import SpeechModel
from edgekit.tensor_spec import Array
from tests.compiler.passes.meaning import snr_db
from tests.fixtures.moonshine_folders import END, SIZES, SMALL, START, write_moonshine
from tests.fixtures.transformers_goldens import needs_transformers, read_goldens
from tests.fixtures.whisper_folders import speech
from tests.generate.host.readers.speech.write_goldens import (
    CHOSEN,
    FILE,
    NEW_TOKENS,
    SECONDS,
    all_computed,
    thinned,
)


def goldens() -> dict[str, Array]:
    return read_goldens(FILE)


@pytest.mark.parametrize("form", SIZES)
def test_logits_and_tokens_are_those_of_transformers(tmp_path: Path, form: str) -> None:
    model = open_speech_model(write_moonshine(tmp_path / form, SIZES[form]))
    reference, figures = ReferenceModel(model), []
    for number, seconds in enumerate(SECONDS):
        encoded = reference.encode(speech(seconds).astype(np.float32))
        logits = thinned(reference.logits(encoded, CHOSEN, []))
        figures.append(snr_db(goldens()[f"{form}/logits{number}"], logits))
        tokens = goldens()[f"{form}/tokens{number}"].tolist()
        assert reference.generate(encoded, [START], NEW_TOKENS) == tokens
        assert len(set(tokens)) > 10, "the texts do not vary"
    print(f"Moonshine, {form}: logits {min(figures):.0f} dB or more")
    assert min(figures) > 95


@needs_transformers
def test_the_goldens_are_what_transformers_computes(tmp_path: Path) -> None:
    for name, values in all_computed(tmp_path, {"small": SMALL}).items():
        np.testing.assert_allclose(values, goldens()[name], rtol=1e-4, atol=1e-4)


def test_a_folder_has_its_sizes_and_rules(tmp_path: Path) -> None:
    folder = write_moonshine(tmp_path / "moonshine")
    assert is_speech_model(folder)
    model = open_speech_model(folder)
    assert isinstance(model, SpeechModel)
    assert (model.name, model.family, model.rules.is_end(END)) == ("moonshine", "Moonshine", True)
    assert (model.start, model.tokens.languages, model.special) == (START, {}, (0, 1, 2, 319))
    assert tuple(shape.config.window for shape in model.at_shapes()) == (64000, 128000, 256000, 480000)
    assert (model.config.form.rotary, model.config.positions) == (18, 1248)
    assert model.text_of([START, 260, 3 + ord("!"), 3 + 0xC3, 3 + 0xA9, END]) == "bb1!é"


def test_todays_names_of_settings_are_read(tmp_path: Path) -> None:
    rope = {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}
    form = open_speech_model(write_moonshine(tmp_path / "m", rope_parameters=rope)).config.form
    assert (form.rotary, form.rotary_base) == (10, 500.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attention_bias": True}, "config.json: attention_bias is not supported"),
        (
            {"decoder_num_key_value_heads": 1},
            "config.json: decoder_num_attention_heads and decoder_num_key_value_heads differ, which is not "
            "supported",
        ),
        ({"head_dim": 16}, "config.json: a width of 40 is not that of 2 heads of one size"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "config.json: rope_type 'yarn' is not supported"),
        ({"partial_rotary_factor": 0.85}, "config.json: 17 rotated values of a head are not supported"),
        (
            {"rope_theta": 0},
            "config.json: rope_theta is 0; it must be from 1 to 1e+09",
        ),
        ({"decoder_hidden_act": "mish"}, "config.json: activation 'mish' is not supported"),
        (
            {"vocab_size": 300},
            "weight model.decoder.embed_tokens.weight is [320, 40]; config.json requires [300, 40]",
        ),
        (
            {"tie_word_embeddings": False},
            "has no weight proj_out.weight, which Moonshine models of its config.json need",
        ),
        (
            {"intermediate_size": 256},
            "weight model.encoder.layers.0.mlp.fc1.weight is [512, 40]; config.json requires [256, 40]",
        ),
    ],
)
def test_what_is_not_supported_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    folder = write_moonshine(tmp_path / "m", **changes)
    with pytest.raises(ModelError) as refused:
        open_speech_model(folder)
    assert str(refused.value) == f"{folder}: {message}"


def test_another_rate_is_refused(tmp_path: Path) -> None:
    folder = write_moonshine(tmp_path / "m")
    (folder / "preprocessor_config.json").write_text(json.dumps({"sampling_rate": 8000}))
    with pytest.raises(ModelError, match="sampling_rate is 8000; Moonshine models have 16000"):
        open_speech_model(folder)
