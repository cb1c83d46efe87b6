"""``/v1/embeddings``: vectors of texts, by bundles whose card has the task ``embed``."""

from __future__ import annotations

import base64
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson
from starlette.concurrency import run_in_threadpool

from edgekit.errors import CardError, EdgeKitError
from edgekit.serve.inference_requests import Request
from edgekit.serve.openai.api_errors import ApiError
from edgekit.serve.openai.request_fields import check_fields, text_of, whole_of
from edgekit.serve.request_memory import Lease
from edgekit.serve.request_traces import traced
from edgekit.serve.served_model import ServedModel
from edgekit.serve.served_text import ServedText
from edgekit.serve.service import Service

FIELDS = ("model", "input", "encoding_format", "dimensions", "user")
TEXTS = 2048
"""Maximum number of texts of a request, as in the API."""
TEXT_CHARS = 128 << 10
"""Maximum characters of a text."""
VALUE_BYTES, ROW_BYTES = 36, 512
"""Memory of a vector's value (the number, and its text in the response twice) and of the rest of its row."""


def embeds_texts(model: ServedModel | ServedText) -> bool:
    """Return whether a model makes vectors of texts."""
    if not isinstance(model, ServedModel):
        return False
    try:
        card = model.session.card
        task = card.task
    except EdgeKitError:
        return False
    kinds = {getattr(spec, "kind", "") for spec in card.inputs.values()}
    return task is not None and task.kind == "embed" and "text" in kinds and not card.carries


async def embeddings(service: Service, model: ServedModel, body: Mapping[str, Any], lease: Lease) -> bytes:
    """Return the body of the response to a request.

    Raises:
        ApiError: a field is malformed or not supported. As ``Service.run``.
    """
    check_fields(body, FIELDS, ())
    text_of(body, "user", "")
    form = text_of(body, "encoding_format", "float")
    if form not in ("float", "base64"):
        raise ApiError("encoding_format must be float or base64", "encoding_format")
    dimensions = whole_of(body, "dimensions", 1, 1 << 20, 0)
    rows: list[dict[str, Any]] = []
    tokens, texts = 0, _texts(body.get("input"))
    for index, text in enumerate(texts):
        vector, count = await _vector(service, model, text)
        if index == 0:
            lease.hold(lease.size_bytes + len(texts) * (vector.size * VALUE_BYTES + ROW_BYTES))
        tokens += count
        if dimensions and dimensions != vector.size:
            raise ApiError(
                f"dimensions is {dimensions}, but the model's vectors have {vector.size} values",
                "dimensions",
            )
        data: Any = np.ascontiguousarray(vector, "<f4")
        if form == "base64":
            data = base64.b64encode(data.tobytes()).decode("ascii")
        rows.append({"object": "embedding", "index": index, "embedding": data})
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    response = {"object": "list", "model": body["model"], "data": rows, "usage": usage}
    return await run_in_threadpool(orjson.dumps, response, None, orjson.OPT_SERIALIZE_NUMPY)


async def _vector(service: Service, model: ServedModel, text: str) -> tuple[np.ndarray[Any, Any], int]:
    began_s = time.monotonic()
    try:
        with traced("prepare"):
            feeds, placed = await run_in_threadpool(model.session.prepare, text)
    except CardError as problem:
        raise ApiError(str(problem), "input") from None
    arrays = await service.run(model, Request(feeds, {}, "", None), began_s)
    with traced("decode_outputs"):
        prediction = await run_in_threadpool(model.session.decode, arrays, placed)
    mask = getattr(placed, "mask", None)
    return prediction.vector, 0 if mask is None else int(np.count_nonzero(mask))


def _texts(value: Any) -> list[str]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not 0 < len(texts) <= TEXTS:
        raise ApiError(f"input is a text or a list of at most {TEXTS} texts", "input")
    for text in texts:
        if not isinstance(text, str):
            raise ApiError("input has something that is not a text; send texts instead of tokens", "input")
        if not text or len(text) > TEXT_CHARS:
            raise ApiError(f"each text of input has 1 to {TEXT_CHARS} characters", "input")
    return texts
