"""Address of a model in a repository of the Hugging Face Hub, as a user writes it."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from urllib.parse import unquote

from edgekit.errors import UsageError

SCHEME = "hf://"
_FORM = re.compile(r"hf://([\w.-]+)/([\w.-]+)(?:@([\w.%-]+))?(?:/([^\s\\]+))?", re.ASCII)
COMMIT = re.compile(r"[0-9a-f]{40}")
"""Form of a commit's sha."""
NAME_CHARS_LIMIT = 96


class HubAddress(str):
    """``hf://OWNER/NAME``, ``hf://OWNER/NAME@REVISION``, and each with ``/FILE.onnx`` behind it.

    The revision is a branch, a tag or a commit; ``%2F`` stands for a slash in it. An address has ``name`` and
    ``stem``, as a path does.

    Raises:
        UsageError: the text has another form.

    >>> address = HubAddress("hf://acme/cats@v1.2/onnx/model_quantized.onnx")
    >>> address.repository, address.revision, address.file, address.stem
    ('acme/cats', 'v1.2', 'onnx/model_quantized.onnx', 'model_quantized')
    """

    repository: str
    revision: str
    file: str

    def __new__(cls, text: str) -> HubAddress:
        address = super().__new__(cls, text)
        match = _FORM.fullmatch(text)
        owner, name, revision, file = match.groups(default="") if match else ("", "", "", "")
        names = [owner, name, *([unquote(revision)] if revision else []), *file.split("/")]
        if not match or any(_is_odd(part) for part in names if part or file) or file.endswith("/"):
            raise UsageError(
                f"{text[:200]} is not an address of a model; write hf://OWNER/NAME, "
                "hf://OWNER/NAME@REVISION or hf://OWNER/NAME/onnx/FILE.onnx"
            )
        address.repository, address.revision, address.file = f"{owner}/{name}", unquote(revision), file
        return address

    @property
    def name(self) -> str:
        return PurePosixPath(self.file or self.repository).name

    @property
    def stem(self) -> str:
        return PurePosixPath(self.file).stem if self.file else self.name

    @property
    def is_pinned(self) -> bool:
        """Return whether the revision is a commit's sha, which always has the same files."""
        return COMMIT.fullmatch(self.revision) is not None

    def at(self, commit: str) -> HubAddress:
        """Return the address of the same files in a commit."""
        return HubAddress(f"{SCHEME}{self.repository}@{commit}{'/' if self.file else ''}{self.file}")


def _is_odd(part: str) -> bool:
    return part in ("", ".", "..") or part[0] == "-" or len(part) > NAME_CHARS_LIMIT or not part.isprintable()


def is_hub_address(model: object) -> bool:
    """Return whether it is text that begins with ``hf://``. Never raises."""
    return isinstance(model, str) and model.startswith(SCHEME)
