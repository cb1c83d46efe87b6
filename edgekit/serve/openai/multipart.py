"""Forms with a file: ``multipart/form-data`` (RFC 7578), read strictly and within bounds.

Nothing is copied but the short fields; the file is a view of the body. Clients write no text before the first
part, none after the last one, and no transfer encoding, so these are refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from edgekit.serve.openai.api_errors import ApiError

PARTS = 32
"""Maximum number of parts of a form."""
PART_HEAD_BYTES = 4 << 10
"""Maximum size of a part's headers."""
FIELD_BYTES = 8 << 10
"""Maximum size of a field that is not the file."""
FORM_BYTES = 256 << 10
"""Size of a body beside its file: PARTS fields of a usual size."""
FORM = re.compile(rb'multipart/form-data *; *boundary=("?)([\w\'()+,./:=? -]{1,70})\1', re.I)
DISPOSITION = re.compile(r"form-data *(?:;|$)", re.I)
PARAMETER = re.compile(r' *([\w*!#$%&+.^`|~-]+) *= *(?:"((?:[^"\\]|\\.)*)"|([^\s;"]*)) *(?:;|$)')


class MultipartForm(NamedTuple):
    """Content of a form.

    Attributes:
        fields: Texts by name, each in order; a ``[]`` at the end of a name is dropped.
    """

    fields: Mapping[str, Sequence[str]]
    file: memoryview | None


def boundary_of(headers: Mapping[bytes, bytes]) -> bytes:
    """Return the boundary of a form's parts.

    Raises:
        ApiError: 415: the body is not a form.
    """
    match = FORM.fullmatch(headers.get(b"content-type", b"").strip())
    if match is None or match[2].endswith(b" "):
        raise ApiError("the body must be a form: Content-Type: multipart/form-data; boundary=...", status=415)
    return match[2]


def read_form(body: bytes, boundary: bytes) -> MultipartForm:
    """Read the parts of a form.

    Raises:
        ApiError: the form is malformed or exceeds a limit.
    """
    view, mark = memoryview(body), b"\r\n--" + boundary
    fields: dict[str, list[str]] = {}
    file: memoryview | None = None
    if not body.startswith(mark[2:]):
        raise _malformed("it does not begin with its boundary")
    position, parts = len(mark) - 2, 0
    while body[position : position + 2] == b"\r\n":
        if (parts := parts + 1) > PARTS:
            raise ApiError(f"the form has more than {PARTS} parts")
        start = body.find(b"\r\n\r\n", position, position + PART_HEAD_BYTES)
        if start < 0:
            raise ApiError(f"the headers of part {parts} have no end within {PART_HEAD_BYTES} bytes")
        name, is_list = _name_of(body[position + 2 : start], parts)
        start += 4
        end = body.find(mark, start)
        if end < 0:
            raise _malformed(f"part {parts} has no end")
        position = end + len(mark)
        if (name == "file" and file is not None) or (name in fields and not is_list):
            raise ApiError(f"the form has two fields {name[:64]!r}", name[:64])
        if name == "file":
            file = view[start:end]
        else:
            fields.setdefault(name, []).append(_text_of(view[start:end], name))
    if body[position : position + 5] not in (b"--", b"--\r\n"):
        raise _malformed("it does not end after its last part")
    return MultipartForm(fields, file)


def _text_of(content: memoryview, name: str) -> str:
    if len(content) > FIELD_BYTES:
        raise ApiError(f"{name[:64]!r} has {len(content)} bytes; {FIELD_BYTES} are allowed", name[:64])
    try:
        return bytes(content).decode()
    except UnicodeDecodeError:
        raise ApiError(f"{name[:64]!r} is not UTF-8 text", name[:64]) from None


def _name_of(head: bytes, part: int) -> tuple[str, bool]:
    field_name = ""
    for line in head.decode("utf-8", "replace").split("\r\n"):
        key, _, value = line.partition(":")
        key, value = key.strip().lower(), value.strip()
        if key == "content-transfer-encoding" and value.lower() not in ("binary", "8bit", "7bit"):
            raise ApiError(f"part {part} has the transfer encoding {value[:32]!r}; send it as it is")
        if key == "content-disposition":
            if field_name or DISPOSITION.match(value) is None:
                raise _malformed(f"part {part} has no clear Content-Disposition")
            field_name = _parameter(value.partition(";")[2], "name")
    if not field_name:
        raise _malformed(f"part {part} has no name")
    return field_name.removesuffix("[]"), field_name.endswith("[]")


def _parameter(text: str, name: str) -> str:
    """Return a parameter of a header; "" if it is absent or the header malformed.

    >>> _parameter(' name="a"; filename="; name=b"', "name"), _parameter(" filename=x; name=file", "name")
    ('a', 'file')
    """
    position, values = 0, dict[str, str]()
    while position < len(text):
        match = PARAMETER.match(text, position)
        if match is None or match[1].lower() in values:
            return ""
        values[match[1].lower()] = match[2] if match[2] is not None else match[3]
        position = match.end()
    return values.get(name, "")


def _malformed(reason: str) -> ApiError:
    return ApiError(f"the form is malformed: {reason}")
