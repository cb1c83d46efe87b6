"""Mutations that know the format: JSON by its values and its text, arrays by their header, HTTP by its lines.

A byte changed at random fails the first check. These keep what a reader checks first (lengths, hashes,
signatures, brackets) and change what comes after it.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from typing import Any

from tests.fixtures.bundle_mutations import bytes_changed, value_changed

JSON_TOKENS = (
    b"NaN", b"-Infinity", b"1e999", b"-0", b"1" * 40, b"0.1e-400", b'"\\ud800"', b'"\\u001b[2J"',
    b'"\\u0000"', b"[" * 40, b"]" * 3, b'{"a":' * 40, b"}", b",", b":", b'"', b"\xff\xfe", b"\xef\xbb\xbf",
    b"null", b"true", b'"' + b"x" * 70_000 + b'"', b"[" + b"0," * 20_000 + b"0]", b"/**/", b"\\",
    b'{"a":1,"a":2}',
)  # fmt: skip
DESCRIPTORS = (
    "<f4", ">f4", "|O", "<f8", "<M8[s]", "|V8", "<U9", "|b1", "<i8", "f4,f4", "<c16", "", "x", "<f99",
)  # fmt: skip
SHAPES = (
    "(4, 5)", "()", "(4,)", "(5, 4)", "(-1, 5)", "(4.0, 5)", "(99999999999, 5)", "(2**62, 4)", "(True, 20)",
    "4", "[4, 5]", "(4, 5) * 9", "(" + "1," * 60 + ")", "(0, 5)", "__import__('os')", "'a'", "(4, 5",
)  # fmt: skip
HTTP_LINES = (
    b"Content-Length: -1", b"Content-Length: 99999999999", b"Content-Length: 3", b"Content-Length: x",
    b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip", b"Connection: close",
    b"Connection: keep-alive", b"Inference-Header-Content-Length: -3",
    b"Inference-Header-Content-Length: 999", b"Retry-After: 1e9", b"Retry-After: 12345678",
    b"Location: file:///etc/passwd", b" folded", b"a" * 70_000, b"x: \x1b[2J\x00", b":",
    b"Content-Encoding: br", b"\xff\xff: 1", b"Set-Cookie: a=b",
)  # fmt: skip
STATUS_LINES = (
    b"HTTP/1.1 200 OK", b"HTTP/1.0 200 OK", b"HTTP/1.1 100 Continue", b"HTTP/1.1 204 No Content",
    b"HTTP/0.9 200", b"HTTP/1.1 99999 x", b"HTTP/1.1 -1 x", b"ICY 200 OK", b"", b"HTTP/1.1 503 Busy",
    b"HTTP/1.1 304 x", b"\x00" * 9,
)  # fmt: skip
CHUNKS = (
    b"5\r\nhello\r\n0\r\n\r\n", b"ffffffffffffffff\r\n", b"-1\r\n", b"5;x=" + b"y" * 70_000 + b"\r\n",
    b"0\r\n",
)  # fmt: skip


def changed_json(draw: random.Random, value: Any) -> bytes:
    """The text of a value with one to three parts changed, and at times of a text that is none."""
    copy = json.loads(json.dumps(value))
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        if isinstance(copy, dict) and copy:
            value_changed(draw, copy)
    text = json.dumps(copy, ensure_ascii=draw.random() < 0.5).encode("utf-8", "surrogatepass")
    return spoilt_text(draw, text) if draw.random() < 0.3 else text


def spoilt_text(draw: random.Random, text: bytes) -> bytes:
    """A token of JSON put in the place of another one, or between two; or a part said twice or left out."""
    marks = [found.start() for found in re.finditer(rb'[{}\[\],:"]', text)] or [0]
    at, how = draw.choice(marks), draw.randrange(4)
    end = draw.choice(marks)
    if how == 0:
        return text[:at] + draw.choice(JSON_TOKENS) + text[at:]
    if how == 1:
        return text[:at] + draw.choice(JSON_TOKENS) + text[max(at, min(end, at + 40)) :]
    if how == 2:
        return text[:at] + text[at : at + 60] + text[at:]
    return text[: draw.randrange(len(text) + 1)]


def changed_npy(draw: random.Random, contents: Sequence[bytes]) -> bytes:
    """An array with another header, whose length fits again, or with other bytes."""
    content = draw.choice(contents)
    if draw.random() < 0.3 or content[:6] != b"\x93NUMPY":
        return bytes_changed(draw, content)
    end = 10 + int.from_bytes(content[8:10], "little")
    header, data = content[10:end], content[end:]
    if draw.random() < 0.5:
        header = re.sub(rb"'descr': '[^']*'", f"'descr': {draw.choice(DESCRIPTORS)!r}".encode(), header)
    if draw.random() < 0.5:
        shape = draw.choice(SHAPES).encode()
        header = re.sub(rb"'shape': \([^)]*\)", lambda _: b"'shape': " + shape, header)
    if draw.random() < 0.3:
        header = spoilt_text(draw, header)
    if draw.random() < 0.3:
        data = draw.choice((data[:-1], data + b"\0", b"", data * 2, bytes(len(data))))
    version = draw.choice((b"\1\0", b"\1\0", b"\1\0", b"\2\0", b"\3\0", b"\x09\x09"))
    header = header[:60_000]
    size = len(header).to_bytes(4 if version == b"\2\0" else 2, "little")
    if draw.random() < 0.1:
        size = draw.randbytes(len(size))
    return b"\x93NUMPY" + version + size + header + data


def changed_reply(draw: random.Random, body: bytes) -> bytes:
    """What a server sends: status line, headers and body, each of which may lie."""
    status = draw.choice(STATUS_LINES) if draw.random() < 0.3 else STATUS_LINES[0]
    lines = [b"Content-Length: %d" % len(body)] if draw.random() < 0.8 else []
    lines += draw.sample(HTTP_LINES, draw.choice((0, 0, 1, 2)))
    draw.shuffle(lines)
    if any(b"chunked" in line for line in lines):
        body = draw.choice(CHUNKS)
    whole = b"\r\n".join([status, *lines]) + b"\r\n\r\n" + body
    return bytes_changed(draw, whole) if draw.random() < 0.2 else whole


def changed_toml(text: str, draw: random.Random) -> str:
    """A card with values, lines or characters replaced."""
    for _ in range(draw.randint(1, 3)):
        kind, at = draw.random(), draw.randrange(len(text) + 1)
        values = list(re.finditer(r"= (.*)", text))
        if kind < 0.5 and values:
            value = draw.choice(values)
            text = text[: value.start(1)] + draw.choice(TOML_VALUES) + text[value.end(1) :]
        elif kind < 0.7:
            text = text[:at] + draw.choice(TOML_VALUES) + text[at:]
        elif kind < 0.85:
            text = text[:at] + text[at + draw.randint(1, 30) :]
        else:
            lines = text.split("\n")
            lines.insert(draw.randrange(len(lines)), draw.choice(lines))
            text = "\n".join(lines)
    return text


TOML_VALUES = (
    "1e400", "nan", "-inf", "1e-320", "-1", "0", "2", "9" * 400, "9223372036854775807", "0x" + "f" * 600,
    "true", '""', '"."', '".."', '"a\\u0000b"', '"\\u001b[2J"', '"/dev/zero"', '"NCHW"', '"RGB"', '"image"',
    '"audio"', '"detect"', '"yolov8"', "[]", "[[]]", "[1, 3, 8, 8]", "[1, 3, 99999999, 99999999]",
    "[0.5, 0.5, 0.5]", "{}", "[" * 500, "{ a = 1 }", "1979-05-27", "\\", "\0", "= =", "[task]", "[[inputs]]",
    "[latency]", "\u202e", '["a", "b"]', '{ x = "y" }',
)  # fmt: skip
