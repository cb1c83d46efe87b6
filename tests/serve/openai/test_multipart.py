"""Forms with a file: what clients send, and what is refused."""

from __future__ import annotations

from email.message import EmailMessage

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.child_processes import run_python

pytest.importorskip("starlette", reason="starlette is not installed (the extra serve)")
from edgekit.serve.inference_requests import RequestError
from edgekit.serve.openai.multipart import FIELD_BYTES, PART_HEAD_BYTES, PARTS, boundary_of, read_form

MARK = b"mark"
CLOSED = b"--mark--\r\n"


def part(value: bytes, disposition: bytes = b'form-data; name="model"', more: bytes = b"") -> bytes:
    return b"--mark\r\nContent-Disposition: " + disposition + more + b"\r\n\r\n" + value + b"\r\n"


FILE = part(b"RIFF\r\n--mar\r\n\r\n\0", b'form-data; name="file"; filename="a.wav"')


@pytest.mark.parametrize(
    ("header", "boundary"),
    [
        ("multipart/form-data; boundary=------------------------1f3a", b"------------------------1f3a"),
        ('Multipart/Form-Data; boundary="a b?"', b"a b?"),
        ("multipart/form-data;boundary=x", b"x"),
    ],
)
def test_boundaries(header: str, boundary: bytes) -> None:
    assert boundary_of({b"content-type": header.encode()}) == boundary


@pytest.mark.parametrize(
    "header",
    ["", "application/json", "multipart/form-data", "multipart/form-data; boundary=",
     'multipart/form-data; boundary="x', "multipart/form-data; boundary=" + 71 * "x",
     "multipart/form-data; boundary=a\r\nb", "multipart/mixed; boundary=x",
     'multipart/form-data; boundary="x "'],
)  # fmt: skip
def test_what_is_not_a_form(header: str) -> None:
    with pytest.raises(RequestError, match="the body must be a form") as refused:
        boundary_of({b"content-type": header.encode()})
    assert refused.value.status == 415


@pytest.mark.parametrize(
    "disposition",
    [b'form-data; name="model"', b"form-data; name=model", b'form-data;name="model" ',
     b'FORM-DATA; NAME="model"',
     b'form-data; filename="; name=\\"file\\""; name="model"', b"form-data; name=model; filename*=UTF-8''a"],
)  # fmt: skip
def test_fields_as_clients_write_them(disposition: bytes) -> None:
    found = read_form(part("naïve".encode(), disposition) + FILE + CLOSED, MARK)
    assert found.fields == {"model": ["naïve"]}
    assert found.file is not None
    assert bytes(found.file) == b"RIFF\r\n--mar\r\n\r\n\0"


def test_lists_empty_fields_and_a_missing_last_line_end() -> None:
    times = b'form-data; name="times[]"'
    body = part(b"a", times) + part(b"b", times) + part(b"") + CLOSED[:-2]
    assert read_form(body, MARK).fields == {"times": ["a", "b"], "model": [""]}
    assert read_form(body, MARK).file is None


def test_the_file_is_not_copied() -> None:
    body = part(bytes(1000), b'form-data; name="file"') + CLOSED
    found = read_form(body, MARK).file
    assert found is not None
    assert found.obj is body


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "it does not begin with its boundary"),
        (b"preamble\r\n" + part(b"x") + CLOSED, "it does not begin with its boundary"),
        (part(b"x"), "part 1 has no end"),
        (part(b"x")[:-2], "part 1 has no end"),
        (part(b"x") + CLOSED + b"more", "it does not end after its last part"),
        (part(b"x") + b"--markings--", "it does not end after its last part"),
        (b"--mark\r\n\r\nx\r\n" + CLOSED, "part 1 has no name"),
        (part(b"x", b"attachment; name=a") + CLOSED, "part 1 has no clear Content-Disposition"),
        (part(b"x", b'form-data; name="a"; name="b"') + CLOSED, "part 1 has no name"),
        (part(b"x", b'form-data; name="a') + CLOSED, "part 1 has no name"),
        (part(b"x", b'form-data; filename="name=a"') + CLOSED, "part 1 has no name"),
        (part(b"x") * 2 + CLOSED, "the form has two fields 'model'"),
        (FILE * 2 + CLOSED, "the form has two fields 'file'"),
        (part(b"x", more=b"\r\nContent-Disposition: form-data; name=b") + CLOSED, "no clear"),
        (part(b"x", more=b"\r\nContent-Transfer-Encoding: base64") + CLOSED, "transfer encoding 'base64'"),
        (part(b"\xff") + CLOSED, "'model' is not UTF-8 text"),
        (part(b"x" * (FIELD_BYTES + 1)) + CLOSED, f"{FIELD_BYTES} are allowed"),
        (part(b"x", more=b"; a=" + b"x" * PART_HEAD_BYTES) + CLOSED, "have no end within 4096 bytes"),
        (part(b"x", b'form-data; name="a[]"') * (PARTS + 1) + CLOSED, "more than 32 parts"),
    ],
)  # fmt: skip
def test_malformed_forms_are_refused(body: bytes, message: str) -> None:
    with pytest.raises(RequestError) as refused:
        read_form(body, MARK)
    assert message in str(refused.value)


@given(st.binary(max_size=60), st.integers(0, 200), st.binary(min_size=1, max_size=6))
def test_damaged_forms_are_read_or_refused(value: bytes, at: int, change: bytes) -> None:
    body = bytearray(part(b"x") + part(value, b'form-data; name="file"') + CLOSED)
    body[at : at + len(change)] = change
    try:
        found = read_form(bytes(body), MARK)
    except RequestError:
        return
    assert sum(len(text) for texts in found.fields.values() for text in texts) <= len(body)
    assert found.file is None or len(found.file) <= len(body)


@settings(max_examples=50)
@given(st.dictionaries(st.from_regex(r"[a-z_]{1,20}", fullmatch=True), st.text(max_size=50), min_size=1))
def test_forms_of_the_standard_library_are_read(fields: dict[str, str]) -> None:
    fields = {name: value for name, value in fields.items() if name != "file"} or {"model": ""}
    body = b""
    for name, value in fields.items():
        header = EmailMessage()
        header.add_header("Content-Disposition", "form-data", name=name)
        body += b"--mark\r\n" + header.as_bytes().strip() + b"\r\n\r\n" + value.encode() + b"\r\n"
    assert read_form(body + CLOSED, MARK).fields == {name: [value] for name, value in fields.items()}


HOSTILE = """
from edgekit.serve.inference_requests import RequestError
from edgekit.serve.openai.multipart import read_form

boundary = b"a" * 70
for piece in (b"\\r\\n--" + b"a" * 69 + b"b", b"a", b"\\r\\n--"):
    body = b"--" + boundary + b'\\r\\nContent-Disposition: form-data; name="file"\\r\\n\\r\\n'
    body += piece * ((64 << 20) // len(piece))
    try:
        read_form(body, boundary)
    except RequestError as problem:
        print(problem)
"""


def test_a_hostile_body_is_searched_in_linear_time() -> None:
    """Nearly the boundary again and again, which makes a quadratic search take hours."""
    done = run_python(HOSTILE, check=True)
    assert done.stdout.count("part 1 has no end") == 3
