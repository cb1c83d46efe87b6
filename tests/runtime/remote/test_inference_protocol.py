"""The bytes of the protocol: what is sent is what the specification says, what comes is taken or refused."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.runtime.http_connection import Reply
from edgekit.runtime.remote.inference_protocol import DATATYPES, AnswerError, answer_of, request_of
from edgekit.tensor_spec import TensorSpec

Y = (TensorSpec("y", "float32", (1, 2)),)


def reply(value: Any, tail: bytes = b"", **headers: str) -> Reply:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return Reply(200, {name.replace("_", "-"): text for name, text in headers.items()}, body + tail)


def output(**changes: Any) -> dict[str, Any]:
    return {"outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [1.5, 2.0], **changes}]}


@pytest.mark.parametrize("dtype", DATATYPES)
@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("shape", [(2, 3), (), (5000,), (0, 3)])
def test_values_survive_bit_by_bit(dtype: str, binary: bool, shape: tuple[int, ...]) -> None:
    draw = np.random.default_rng(0)
    kind = np.dtype(dtype).kind
    array = (
        np.array(draw.standard_normal(shape) * 100).astype(dtype) if kind in "bf" else np.zeros(shape, dtype)
    )
    if kind in "iu":
        limits = np.iinfo(np.dtype(dtype))
        array = draw.integers(limits.min, limits.max, shape, np.dtype(dtype), endpoint=True)
        array = np.asarray(array, dtype)
    spec = TensorSpec("x", dtype, shape)
    if dtype == "float16" and not binary:
        with pytest.raises(AnswerError, match="input x is float16, which JSON cannot encode"):
            request_of({"x": array}, [spec], [spec], binary)
        return
    pieces, headers = request_of({"x": array}, [spec], [spec], binary)
    body = b"".join(pieces)
    size = int(headers.get("Inference-Header-Content-Length", len(body)))
    head = json.loads(body[:size])
    assert head["inputs"][0]["datatype"] == DATATYPES[dtype]
    assert head["inputs"][0]["shape"] == list(shape)
    assert (len(body) - size) == (array.nbytes if binary else 0)
    back = json.dumps({"outputs": head["inputs"]}).encode()
    sizes = {"inference_header_content_length": str(len(back))} if binary else {}
    answer = answer_of(reply(back, body[size:], **sizes), [spec])["x"]
    assert (answer.dtype, answer.shape) == (array.dtype, array.shape)
    assert answer.tobytes() == array.tobytes()
    assert answer.flags.writeable


def test_a_number_that_json_has_no_form_for_is_not_sent() -> None:
    spec = TensorSpec("x", "float32", (2,))
    with pytest.raises(AnswerError, match="an input holds NaN or an infinity, which JSON cannot encode"):
        request_of({"x": np.array([1, np.nan], np.float32)}, [spec], Y, False)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (
            reply(b"<html>"),
            "its response is not JSON: its response: character 0 is not JSON: Expecting value",
        ),
        (reply([]), "its response is not a JSON object"),
        (reply({}), "its response has no list of outputs"),
        (reply({"outputs": []}), "its outputs are none; expected y float32 1x2"),
        (reply({"outputs": [3]}), "its outputs are None; expected y float32 1x2"),
        (reply(output(name="z")), "its outputs are 'z'; expected y float32 1x2"),
        (reply(output(shape=[2])), "output y differs there; expected y float32 1x2"),
        (reply(output(datatype="FP64")), "output y differs there; expected y float32 1x2"),
        (reply(output(data=[1])), "output y is not y float32 1x2"),
        (reply(output(data=[[1], [2, 3]])), "output y is not y float32 1x2"),
        (reply(output(data=["1", "2"])), "output y is not y float32 1x2"),
        (reply(output(data=[True, 2])), "output y is not y float32 1x2"),
        (reply(output(data=[10**400, 2])), "its response is not JSON: its response: a number of 401 digits"),
        (reply(output(data=None)), "output y is not y float32 1x2"),
        (reply(output(parameters={"binary_data_size": 8})), "output y has 8 bytes"),
        (reply(output(parameters={"binary_data_size": -8})), "output y has -8 bytes"),
        (reply(output(parameters={"binary_data_size": "8"})), "output y has '8' bytes"),
        (
            reply(output(), inference_header_content_length="999"),
            "its header length '999' does not fit the response",
        ),
        (
            reply(output(), inference_header_content_length="-1"),
            "its header length '-1' does not fit the response",
        ),
        (reply(b"{}", b"12345", inference_header_content_length="2"), "its response has no list of outputs"),
    ],
)
def test_what_is_no_answer_is_refused_in_words(answer: Reply, text: str) -> None:
    with pytest.raises(AnswerError) as error:
        answer_of(answer, Y)
    assert str(error.value).startswith(text)


def test_bytes_after_the_last_output_are_refused() -> None:
    body = json.dumps(output()).encode()
    with pytest.raises(AnswerError, match="3 bytes after its last output"):
        answer_of(reply(body, b"abc", inference_header_content_length=str(len(body))), Y)


@settings(max_examples=300)
@given(st.data())
def test_no_bytes_give_anything_but_outputs_or_a_refusal(data: st.DataObject) -> None:
    body = bytearray(json.dumps(output()).encode())
    if data.draw(st.booleans()):
        for _ in range(data.draw(st.integers(1, 4))):
            body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    else:
        body = bytearray(data.draw(st.binary(max_size=200)))
    length = data.draw(st.none() | st.integers(-5, 300).map(str) | st.text(max_size=5))
    headers = {} if length is None else {"inference-header-content-length": length}
    with contextlib.suppress(AnswerError):
        (answer,) = answer_of(Reply(200, headers, bytes(body)), Y).values()
        assert (str(answer.dtype), answer.shape) == ("float32", (1, 2))
