"""Texts that are judged, and the one that weights are fitted to: kinds, templates, nothing in common."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from edgekit.generate.host.judge.texts import FILES, calibration_tokens, judged_texts
from edgekit.generate.host.readers.language.gguf_model import open_gguf_model
from edgekit.generate.host.readers.language.language_model import LanguageModel
from edgekit.processing.tokenizer import open_whole
from tests.fixtures.gguf_files import write_tiny

pytestmark = pytest.mark.needs_tokenizers
SHARED_WORDS = 6


@pytest.fixture
def model(tmp_path: Path) -> LanguageModel:
    return open_gguf_model(write_tiny(tmp_path / "tiny.gguf"))


def read(model: LanguageModel, tokens: list[int]) -> str:
    return str(open_whole(model.tokenizer).decode(tokens, skip_special_tokens=False))


def test_each_kind_is_judged_and_chats_are_in_the_model_s_template(model: LanguageModel) -> None:
    texts = judged_texts(model)
    assert list(texts) == list(FILES) == ["prose", "code", "chat"]
    assert read(model, texts["chat"]).startswith("<|im_start|>user\nMy bread comes out flat")
    assert "<|im_end|>\n<|im_start|>assistant\nHalf an hour is too short." in read(model, texts["chat"])
    assert read(model, texts["code"]).startswith('"""Bookings of meeting rooms')
    assert "<|im_start|>user\nHow does a refrigerator keep" in read(model, calibration_tokens(model))


@pytest.mark.parametrize(
    "template",
    ["", "{{ raise_exception('never') }}", "{% for", "{{ messages[0].absent.absent }}"],
    ids=["none", "refuses", "is malformed", "fails"],
)
def test_without_a_usable_template_chats_are_plain_turns(model: LanguageModel, template: str) -> None:
    plain = read(model, judged_texts(replace(model, chat_template=template))["chat"])
    assert plain.startswith("User: My bread comes out flat")
    assert "\n\nAssistant: Half an hour is too short." in plain


def test_no_judged_text_was_fitted_to() -> None:
    def runs(name: str) -> set[tuple[str, ...]]:
        words = Path("edgekit/generate/host/judge", name).read_text("utf-8").split()
        return {tuple(words[at : at + SHARED_WORDS]) for at in range(len(words) - SHARED_WORDS + 1)}

    fitted = runs("calibration_text.txt")
    assert len(fitted) > 1000
    for name in FILES.values():
        assert not runs(name) & fitted, name
