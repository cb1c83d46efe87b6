"""The page at ``/`` of a server: try a model with a photograph, a recording or a text.

One document, whose script and style are allowed by their sha256. It calls the doors of the server like any
other client, and so within their limits. It holds no data of the models: they are asked for with the token.
"""

from __future__ import annotations

import base64
import hashlib
import re
from importlib import resources

from starlette.responses import Response

from edgekit.errors import EdgeKitError
from edgekit.serve.openai.embeddings import embeds_texts
from edgekit.serve.served_model import ServedModel
from edgekit.serve.served_parts import ServedParts, ServedSpeech
from edgekit.serve.served_text import ServedText

PAGE = resources.files("edgekit.serve").joinpath("try.html").read_bytes()


def page() -> Response:
    """Return the page."""
    return Response(PAGE, media_type="text/html; charset=utf-8", headers=HEADERS)


def accepts(model: ServedModel | ServedText) -> str:
    """Return what a model takes on the page: image, audio, text, embed (a text for a vector), or tensors."""
    if isinstance(model, ServedSpeech):
        return "audio"
    if isinstance(model, ServedText | ServedParts):
        return "text"
    if embeds_texts(model):
        return "embed"
    try:
        model.session.card.image_input()
    except EdgeKitError:
        return "tensors"
    return "tensors" if model.session.card.carries or model.session.card.task is None else "image"


def _hashes(tag: bytes) -> str:
    parts = re.findall(b"<%b>(.*?)</%b>" % (tag, tag), PAGE, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(part).digest()).decode() for part in parts]
    return " ".join(f"'sha256-{digest}'" for digest in digests)


HEADERS = {
    "Content-Security-Policy": (
        f"default-src 'none'; script-src {_hashes(b'script')}; style-src {_hashes(b'style')}; "
        "connect-src 'self'; img-src blob: data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-cache",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
