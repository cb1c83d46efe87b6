"""Caches of system prompts on disk: found after a restart, bounded, and removed where they are damaged."""

from __future__ import annotations

import os
import stat
import zlib
from pathlib import Path

import numpy as np
import pytest

from edgekit.generate import TextParts, TextSession
from edgekit.generate.device.prefix_files import MAGIC, START, PrefixFiles
from edgekit.tensor_spec import Array
from tests.fixtures.numpy_decoder import CHATML, NumpyDecoder

TOKENS = list(range(40))


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path))
    return tmp_path / "prefixes"


def cache(tokens: int, value: float = 1.0, dtype: type = np.float32) -> Array:
    made: Array = (value * np.arange(4 * 2 * tokens * 8)).reshape(4, 2, tokens, 8).astype(dtype)
    return made


def files_in(root: Path) -> list[Path]:
    return sorted(path for path in root.glob("*/*") if path.is_file())


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_another_process_finds_what_was_kept(dtype: type) -> None:
    PrefixFiles("model").keep(TOKENS, cache(40, dtype=dtype))
    files = PrefixFiles("model")
    assert (len(files), files.common([*TOKENS[:30], 99])) == (1, 30)
    found = files.longest([*TOKENS[:30], 99])
    assert found is not None
    assert found[0] == TOKENS
    np.testing.assert_array_equal(found[1], cache(40, dtype=dtype))
    assert len(PrefixFiles("another model")) == 0


def test_files_are_this_users_alone(root: Path) -> None:
    PrefixFiles("model").keep(TOKENS, cache(40))
    (path,) = files_in(root)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.skipif(os.name != "posix", reason="this system has no owners of files")
def test_a_file_that_others_may_write_to_is_not_read(root: Path) -> None:
    """They could put a conversation of their own into it."""

    def foreign(path: Path) -> None:
        if os.geteuid() == 0:
            os.chown(path, 12345, -1)
        else:
            path.chmod(0o620)

    for make in (lambda path: path.chmod(0o620), lambda path: path.chmod(0o602), foreign):
        files = PrefixFiles("model")
        files.keep(TOKENS, cache(40))
        (path,) = files_in(root)
        content = path.read_bytes()
        make(path)
        assert files.longest(TOKENS) is None  # changed since its tokens were read
        assert files_in(root) == []
        path.write_bytes(content)
        make(path)
        opened = PrefixFiles("model")  # there when the session opens
        assert (len(opened), opened.common(TOKENS), files_in(root)) == (0, 0, [])


def test_any_damage_is_found_and_the_file_removed(root: Path) -> None:
    files = PrefixFiles("model")
    files.keep(TOKENS, cache(40))
    (path,) = files_in(root)
    whole = path.read_bytes()
    damaged = [whole[:n] for n in (0, 7, 20, 39, 150, len(whole) - 1)]
    for at in (0, 9, 13, 17, 20, 24, 28, 32, 60, 3000, len(whole) - 1):
        changed = bytearray(whole)
        changed[at] ^= 16
        damaged.append(bytes(changed))
    damaged.append(whole + b"\0")
    other = whole[START.size :].replace(b"f\0\0\0", b"q\0\0\0", 1)  # of another version
    damaged.append(START.pack(MAGIC, zlib.crc32(other)) + other)
    for content in damaged:
        path.write_bytes(content)
        path.chmod(0o600)
        opened = PrefixFiles("model")
        assert opened.longest(TOKENS) is None
        assert (len(opened), files_in(root)) == (0, [])
    opened.keep(TOKENS, cache(40))
    assert len(PrefixFiles("model")) == 1


def test_files_have_a_limit_and_the_oldest_go_first(root: Path) -> None:
    files = PrefixFiles("model", limit_bytes=3 * (cache(40).nbytes + 300))
    for first in range(100, 110):
        files.keep([first, *TOKENS[1:]], cache(40))
    assert len(files_in(root)) == 3
    assert {tokens[0] for tokens in files._tokens.values()} == {107, 108, 109}
    other = PrefixFiles("another", limit_bytes=cache(40).nbytes // 2)
    other.keep(TOKENS, cache(40))
    assert len(files_in(root)) == 3


def test_a_folder_that_can_not_be_used_keeps_nothing(root: Path) -> None:
    root.write_text("no folder")
    files = PrefixFiles("model")
    files.keep(TOKENS, cache(40))
    assert files.note.startswith(f"{root} cannot be used: ")
    assert files.longest(TOKENS) is None


@pytest.mark.needs_tokenizers
@pytest.mark.needs_templates
def test_a_system_prompt_is_read_once_in_two_processes(parts: TextParts, root: Path) -> None:
    parts = parts._replace(template=CHATML)
    system = {"role": "system", "content": "You answer in one word, always, whatever the question is."}
    texts, read = [], []
    for question in ("why?", "who?", "why?"):
        runner = NumpyDecoder(1)
        with TextSession.of_parts(runner, parts, identity="m", keeps_on_disk=True) as session:
            stream = session.chat([system, {"role": "user", "content": question}], max_tokens=10)
            texts.append(stream.text())
            read.append(stream.result.prompt_tokens - stream.result.cached_tokens)
    assert read[0] - read[1] >= len(str(system["content"]))
    assert read[2] == read[1]
    assert texts[0] == texts[2]
    assert len(files_in(root)) == 1


@pytest.mark.needs_tokenizers
def test_nothing_is_on_disk_unless_asked(parts: TextParts, root: Path) -> None:
    with TextSession.of_parts(NumpyDecoder(1), parts, identity="m") as session:
        session.generate("a long prompt of more than thirty-two tokens", max_tokens=2).text()
    assert not root.exists()
    with TextSession.of_parts(NumpyDecoder(1), parts, identity="m", keeps_on_disk=True) as session:
        session.remember("a long prompt of more than thirty-two tokens")
    runner = NumpyDecoder(1)
    with TextSession.of_parts(runner, parts, identity="m", keeps_on_disk=True) as session:
        stream = session.generate("a long prompt of more than thirty-two tokens, and more", max_tokens=2)
        stream.text()
    assert stream.result.cached_tokens == len("a long prompt of more than thirty-two tokens")
