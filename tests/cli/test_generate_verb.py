"""``edgekit generate``: text as it is made, on stdout; what ran, on stderr; one error where it can't."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fixtures.command_line import Call
from tests.fixtures.language_bundles import Loader, language_bundle

pytestmark = [pytest.mark.needs_tokenizers, pytest.mark.needs_templates]


@pytest.fixture
def chat(loader: Loader, tmp_path: Path) -> Path:
    return language_bundle("ort-fp32").save(tmp_path / "chat.edgekit")


def test_text_is_on_stdout_and_what_ran_on_stderr(call: Call, chat: Path) -> None:
    plain = call("generate", chat, "-p", "once upon", "--max-tokens", "12", "--json")
    found = json.loads(plain.stdout)
    assert (found["reason"], found["tokens"], found["prompt_tokens"]) == ("length", 12, 9)
    assert found["active"]["variant"] == "ort-fp32"
    result = call("generate", chat, "-p", "once upon", "--max-tokens", "12")
    assert result.stdout.rstrip("\n") == found["text"].rstrip("\n")
    assert "ran       ort-fp32 on Ort Runtime 1.0, CPU, fp32" in result.stderr
    assert "made      12 tokens after 9, end: length; first after" in result.stderr


def test_a_chat_and_a_seed(call: Call, chat: Path) -> None:
    words = ("generate", chat, "-p", "hi", "--chat", "--system", "Be kind", "--max-tokens", "9", "--json")
    texts = [json.loads(call(*words, "--temperature", "1", "--seed", seed).stdout)["text"] for seed in "113"]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.needs_llguidance
def test_json_by_a_schema(call: Call, chat: Path, tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    path.write_text('{"enum": ["yes", "no"]}')
    answer = call("generate", chat, "-p", "well?", "--json-schema", path)
    assert json.loads(answer.stdout) in ("yes", "no")
    for content, said in (
        ("[]", f"error: {path} is not a JSON schema; give an object of at most 1048576 bytes\n"),
        ("{", f"error: {path} is not valid JSON: Expecting property name"),
        ('{"type": "nothing"}', "error: json_schema can't be used: "),
    ):
        path.write_text(content)
        result = call("generate", chat, "-p", "well?", "--json-schema", path)
        assert result.exit_code == 2
        assert result.stderr.startswith(said)


def test_what_does_not_fit_is_one_error(call: Call, chat: Path, tmp_path: Path) -> None:
    for words, said in (
        (["-p", "x", "--system", "y"], "error: --system needs --chat\n"),
        (["-p", ""], "error: the prompt has no tokens; give at least one character\n"),
        (["-p", "x" * 301], "error: the prompt has 301 tokens, and the context is 300: shorten it, or "),
        (
            ["-p", "x", "--json-schema", tmp_path / "absent"],
            f"error: can't read {tmp_path / 'absent'}: No such",
        ),
        (["-p", "x", "--temperature", "-1"], "error: temperature must be a number from 0 to 100, not -1.0\n"),
        (["-p", "x", "--context", "5"], "error: context must be a whole number from 16 to 512"),
    ):
        result = call("generate", chat, *words)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith(said)


def test_bench_measures_tokens(call: Call, chat: Path) -> None:
    found = json.loads(call("bench", chat, "--seconds", "0.01", "--json").stdout)
    (row,) = found["results"]
    assert (row["variant"], row["engine"], row["texts"]) == ("ort-fp32", "Ort Runtime 1.0", 2)
    assert row["prompt_tokens"] == 75
    assert row["first_token_ms"] > 0
    assert row["tokens_per_s"] > 0
    text = call("bench", chat, "--seconds", "0.01").stdout.splitlines()
    assert text[0].split() == ["variant", "engine", "load", "prompt", "first", "token", "tokens/s", "memory"]
    assert "75 tokens" in text[1]


def test_bench_refuses_what_it_does_not_measure_of_texts(call: Call, chat: Path) -> None:
    result = call("bench", chat, "--sweep", "1x1", "--price-per-hour", "1")
    assert result.exit_code == 2
    assert (
        result.stderr == "error: --sweep, --price-per-hour: does not apply to language models; leave it out\n"
    )
    assert "has no usable variant 'other'" in call("bench", chat, "--variant", "other").stderr
