"""Whisper models from folders of transformers and CTranslate2."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from edgekit.errors import ModelError
from edgekit.generate.device.token_rules import TokenRules
from edgekit.generate.host.readers.speech.open_speech import is_speech_model, open_speech_model
from edgekit.generate.host.readers.speech.whisper_ctranslate2 import open_ctranslate2
from tests.fixtures.whisper_folders import (
    CONFIG,
    END,
    FIRST_TIMESTAMP,
    GERMAN,
    NO_SPEECH,
    NO_TIMESTAMPS,
    START,
    SUPPRESSED,
    TRANSCRIBE,
    ctranslate2_bytes,
    weights,
    write_ctranslate2,
    write_whisper,
)


def test_a_folder_of_transformers_is_read(tmp_path: Path) -> None:
    folder = write_whisper(tmp_path / "whisper")
    assert is_speech_model(folder)
    model = open_speech_model(folder)
    assert (model.name, model.source_format, model.config) == ("whisper", "Hugging Face", CONFIG)
    rules = model.rules
    assert isinstance(rules, TokenRules)
    assert (rules.end, rules.no_timestamps, rules.timestamp_first) == (END, NO_TIMESTAMPS, FIRST_TIMESTAMP)
    assert (rules.no_speech, rules.suppressed, rules.first_timestamp_limit) == (
        NO_SPEECH,
        tuple(SUPPRESSED),
        10,
    )
    assert (model.start, model.tokens.languages, model.tokens.transcribe) == (START, {}, None)
    for name, values in weights().items():
        np.testing.assert_array_equal(model.weight(name), values)


def test_a_multilingual_model_has_languages_and_a_task(tmp_path: Path) -> None:
    tokens = open_speech_model(write_whisper(tmp_path / "whisper", multilingual=True)).tokens
    assert (tokens.languages, tokens.transcribe) == ({"en": GERMAN - 1, "de": GERMAN}, TRANSCRIBE)
    assert tokens.translate == TRANSCRIBE - 1


def test_a_folder_of_ctranslate2_is_the_same_model(tmp_path: Path) -> None:
    theirs = open_speech_model(write_ctranslate2(tmp_path / "ct2"))
    ours = open_speech_model(write_whisper(tmp_path / "whisper"))
    assert theirs.source_format == "CTranslate2"
    assert (theirs.config, theirs.tokens) == (ours.config, ours.tokens)
    assert isinstance(ours.rules, TokenRules)
    assert theirs.rules == ours.rules._replace(first_timestamp_limit=50)
    for name, values in weights().items():
        np.testing.assert_array_equal(theirs.weight(name), values)


def test_a_variable_of_more_dimensions_than_any_weight_is_refused(tmp_path: Path) -> None:
    folder = write_ctranslate2(tmp_path / "ct2")
    (folder / "model.bin").write_bytes(ctranslate2_bytes({"a": np.zeros((1,) * 9, np.float32)}))
    with pytest.raises(ModelError, match=r"is damaged \(a has 9 dimensions\); download it again"):
        open_speech_model(folder)


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    folder = write_whisper(tmp_path / "whisper")
    table = json.loads((folder / "config.json").read_text())

    def refusal(**changes: object) -> str:
        (folder / "config.json").write_text(json.dumps({**table, **changes}))
        with pytest.raises(ModelError) as refused:
            open_speech_model(folder)
        return str(refused.value).removeprefix(f"{folder}")

    assert refusal(d_model=30) == (
        ": weight model.encoder.conv1.weight is [32, 8, 3]; config.json requires [30, 8, 3]"
    )
    assert refusal(d_model=33) == ": config.json: a width of 33 cannot be divided into 2 heads"
    assert refusal(decoder_layers=3).startswith(": has no weight model.decoder.layers.2.")
    assert (
        refusal(vocab_size=1 << 30) == ": config.json: vocabulary is 1073741824; it must be from 1 to 1048576"
    )
    assert refusal(activation_function="relu") == ": config.json: activation 'relu' is not supported"
    assert "decoder_ffn_dim differ" in refusal(decoder_ffn_dim=16)
    (folder / "config.json").write_text(json.dumps(table))
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match="has no list of added tokens"):
        open_speech_model(folder)


@pytest.mark.parametrize("cut", [3, 9, 40, 300, -30, -3])
def test_a_truncated_model_bin_is_refused(tmp_path: Path, cut: int) -> None:
    content = ctranslate2_bytes({"a": np.zeros((4, 40), np.float32), "b": np.ones(3, np.float16)})
    path = tmp_path / "model.bin"
    path.write_bytes(content[:cut])
    with pytest.raises(ModelError, match=r"model\.bin: (is damaged|has version)"):
        open_ctranslate2(path)


def test_quantized_weights_and_missing_ones_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(ctranslate2_bytes({"decoder/embeddings/weight": np.zeros((2, 2), np.int8)}))
    file = open_ctranslate2(path)
    with pytest.raises(ModelError, match="is int8; EdgeKit reads float models"):
        file.read("decoder/embeddings/weight")
    with pytest.raises(ModelError, match="has no encoder/conv1/weight"):
        file.read("encoder/conv1/weight")


def test_a_name_beyond_its_limit_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(struct.pack("<IH", 6, 60_000) + b"a" * 60_000 + bytes(64))
    with pytest.raises(ModelError, match="60000 bytes at 6 are beyond the file's end or a limit"):
        open_ctranslate2(path)
