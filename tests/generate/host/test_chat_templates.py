"""``--chat-template``: a file or a format instead of a model's own template."""

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from edgekit.bundle.bundle import Bundle
from edgekit.bundle.card_files import read_card_file
from edgekit.cli import main
from edgekit.errors import ModelError, UsageError
from edgekit.generate.device.template_sandbox import compile_template
from edgekit.generate.device.text_tokens import TextTokenizer
from edgekit.generate.host.chat_templates import FORMATS, with_chat_template
from edgekit.generate.host.readers.language.language_model import LanguageModel
from edgekit.generate.host.readers.language.open_model import open_language_model
from edgekit.processing.generation import read_generation
from tests.fixtures.gguf_files import write_tiny

pytestmark = [pytest.mark.needs_tokenizers]

CHAT = [
    {"role": "system", "content": " Be short. "},
    {"role": "user", "content": "Why?"},
    {"role": "assistant", "content": "So."},
    {"role": "user", "content": "Ah"},
]


@pytest.fixture
def model(tmp_path: Path) -> LanguageModel:
    return open_language_model(write_tiny(tmp_path / "tiny.gguf"))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "chatml",
            "<|im_start|>system\nBe short.<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n"
            "<|im_start|>assistant\nSo.<|im_end|>\n<|im_start|>user\nAh<|im_end|>\n<|im_start|>assistant\n",
        ),
        (
            "llama3",
            "<s><|start_header_id|>system<|end_header_id|>\n\nBe short.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nWhy?<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nSo.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nAh<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n",
        ),
        (
            "gemma",
            "<bos><start_of_turn>user\n Be short. \n\nWhy?<end_of_turn>\n"
            "<start_of_turn>model\nSo.<end_of_turn>\n"
            "<start_of_turn>user\nAh<end_of_turn>\n<start_of_turn>model\n",
        ),
    ],
)
def test_formats_as_their_makers_publish_them(name: str, text: str) -> None:
    bos = {"llama3": "<s>", "gemma": "<bos>"}.get(name, "")
    render = compile_template(FORMATS[name].template())
    assert render({"messages": CHAT, "bos_token": bos, "add_generation_prompt": True}) == text


def test_the_token_after_an_answer_ends_texts(model: LanguageModel, tmp_path: Path) -> None:
    tokenizer = TextTokenizer(model.tokenizer)
    bare = replace(model, chat_template="", stop_ids=(0,))
    assert [tokenizer.text_of(t) for t in with_chat_template(bare, "chatml").stop_ids] == [
        "<|endoftext|>",
        "<|im_end|>",
    ]
    file = tmp_path / "own.jinja"
    file.write_text("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}")
    found = with_chat_template(bare, file)
    assert (found.stop_ids, found.chat_template) == ((0,), file.read_text())


@pytest.mark.parametrize(
    ("template", "error", "message"),
    [
        ("llama3", UsageError, "no special token <.start_header_id.>"),
        (
            "absent.jinja",
            UsageError,
            "absent.jinja: No such file or directory; give a Jinja file, or one of chatml",
        ),
        (b"\xff\xfe", UsageError, "is not UTF-8"),
        (b"{% if %}", ModelError, "can't be used"),
        (b"{{ raise_exception('never') }}", ModelError, "never"),
        (b"{{ messages[0].content }}", ModelError, "lacks the question or the answer"),
        (b"x" * 200_000, ModelError, "characters"),
    ],
)
def test_templates_that_do_not_fit(
    model: LanguageModel, tmp_path: Path, template: bytes | str, error: type[Exception], message: str
) -> None:
    if isinstance(template, bytes):
        path = tmp_path / "own.jinja"
        path.write_bytes(template)
        template = str(path)
    with pytest.raises(error, match=message):
        with_chat_template(model, template)


@pytest.mark.needs_ort
def test_a_build_with_a_template_of_another_folder(tmp_path: Path) -> None:
    path, file = write_tiny(tmp_path / "tiny.gguf"), tmp_path / "elsewhere" / "own.jinja"
    file.parent.mkdir()
    file.write_text("{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}")
    output = str(tmp_path / "chat.edgekit")
    arguments = ["build", str(path), "-t", "ort", "--chat-template", str(file), "-o", output]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    bundle = Bundle.open(output)
    card = read_generation(bundle.card or {}, "card")
    assert read_card_file(bundle, card.chat_template).decode() == file.read_text()
