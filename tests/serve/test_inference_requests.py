"""Bodies of requests to arrays and back, against the client's own coding of the same protocol."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.runtime.http_connection import Reply
from edgekit.runtime.remote import inference_protocol as client
from edgekit.serve.inference_requests import (
    KEPT,
    LENGTH,
    AnswerWriter,
    Request,
    RequestError,
    RequestReader,
    answer_of,
    body_limit_bytes,
)
from edgekit.tensor_spec import Array, Signature, TensorSpec

DTYPES = [name for name in client.DATATYPES if name != "float16"]
SPEC = TensorSpec("x", "float32", (1, 3))
INPUTS = (SPEC,)
OUTPUTS = (TensorSpec("y", "float32", (1, 2)), TensorSpec("z", "int64", (1,)))


def body(**changes: Any) -> bytes:
    tensor = {"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2.5, 3], **changes.pop("x", {})}
    return json.dumps({"inputs": [tensor], **changes}).encode()


def test_request_in_json() -> None:
    asked = RequestReader([Signature(INPUTS, OUTPUTS)])(body(id="a", parameters={"timeout": 5000}), None)
    assert asked.feeds["x"].tolist() == [[1, 2.5, 3]]
    assert asked.feeds["x"].dtype == np.float32
    assert (asked.id, asked.timeout_ms, asked.requested_outputs) == ("a", 5.0, {"y": False, "z": False})
    nested = RequestReader([Signature(INPUTS, OUTPUTS)])(body(x={"data": [[1, 2, 3]]}), None)
    assert nested.feeds["x"].shape == (1, 3)


def test_the_same_request_has_the_same_answer() -> None:
    """``binary_data_size: null`` is as good as none, also when the same head comes again."""
    reader, sent = (
        RequestReader([Signature(INPUTS, OUTPUTS)]),
        body(x={"parameters": {"binary_data_size": None}}),
    )
    assert [reader(sent, None).feeds["x"].tolist() for _ in range(3)] == [[[1, 2.5, 3]]] * 3


@given(st.data())
def test_what_the_client_writes_is_read_and_the_answer_too(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=3)))
    dtype = data.draw(st.sampled_from([*DTYPES, "float16"]))
    binary = dtype == "float16" or data.draw(st.booleans())
    seed = data.draw(st.integers(0, 1000))
    array = np.random.default_rng(seed).integers(0, 2 if dtype == "bool" else 100, shape).astype(dtype)
    spec = (TensorSpec("x", dtype, shape),)
    pieces, headers = client.request_of({"x": array}, spec, spec, binary)
    sent = b"".join(pieces)
    assert len(sent) <= body_limit_bytes(spec)
    asked = RequestReader([Signature(spec, spec)])(sent, headers.get(LENGTH.title()))
    assert asked.requested_outputs == {"x": binary}
    assert np.array_equal(asked.feeds["x"], array)
    assert asked.feeds["x"].dtype == array.dtype
    content, headers = answer_of(asked, {"x": array}, "m", "1")
    reply = Reply(200, {name.lower(): value for name, value in headers.items()}, content)
    found = client.answer_of(reply, spec)["x"]
    assert np.array_equal(found, array)
    assert found.dtype == array.dtype


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (b"", "the request is not JSON"),
        (b"[]", "the request is not a JSON object"),
        (b'{"inputs": NaN}', "the request is not JSON: unexpected character, expected a JSON value: line 1"),
        (b"[" * 100_000, "the request is not JSON"),
        (b'{"inputs": 3}', "inputs must be a list of tensors"),
        (b'{"inputs": []}', "inputs are none; the model takes x float32 1x3"),
        (body(x={"name": "q"}), "inputs are 'q'; the model takes x float32 1x3"),
        (body(x={"name": ["x"]}), "the model takes"),
        (body(x={"shape": [3]}), "input x is 'FP32' [3]; the model takes FP32 [1, 3]"),
        (body(x={"datatype": "INT8"}), "input x is 'INT8' [1, 3]"),
        (body(x={"data": [1, 2]}), "the data of input x has 2 whole numbers; the model takes 3 of FP32"),
        (body(x={"data": ["1", 2, 3]}), "the data of input x has 3 texts; the model takes 3 of FP32"),
        (body(x={"data": [[1], [2, 3]]}), "the data of input x is not a tensor of numbers"),
        (
            body(x={"data": [True, False, True]}),
            "the data of input x has 3 booleans; the model takes 3 of FP32",
        ),
        (body(x={"data": [None, 2, 3]}), "the data of input x has 3 mixed values"),
        (body(x={"data": None}), "the data of input x has 1 mixed values"),
        (
            body(x={"parameters": {"binary_data_size": 12}}),
            "input x declares 12 bytes, and the body has 0 for it",
        ),
        (body(x={"parameters": 3}), "parameters must be an object"),
        (body(outputs=[{"name": "q"}]), "there is no output 'q'; the model has y, z"),
        (body(outputs="y"), "outputs must be a list of objects"),
        (body(parameters={"timeout": -1}), "parameters.timeout is -1; it must be a number of microseconds"),
        (body(parameters={"priority": 9}), "parameters.priority is 9; it must be from 1 (first) to"),
        (body(parameters={"priority": -1}), "parameters.priority is -1"),
        (body(parameters={"priority": True}), "parameters.priority is True"),
        (body(id=3), "id must be a string"),
    ],
)
def test_what_is_no_request(sent: bytes, told: str) -> None:
    with pytest.raises(RequestError) as error:
        RequestReader([Signature(INPUTS, OUTPUTS)])(sent, None)
    assert told in str(error.value)
    assert error.value.status == 400


@pytest.mark.parametrize(
    ("head_size", "told"),
    [
        ("x", "inference-header-content-length is 'x'; it must be a number of bytes"),
        ("999", "inference-header-content-length is 999, and the body has"),
        ("-1", "it must be a number of bytes"),
    ],
)
def test_length_of_the_head(head_size: str, told: str) -> None:
    with pytest.raises(RequestError, match="inference-header") as error:
        RequestReader([Signature(INPUTS, OUTPUTS)])(body(), head_size)
    assert told in str(error.value)


def test_an_input_that_is_given_twice() -> None:
    """With another one left out, so that their number is right."""
    tensor = {"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}
    other = TensorSpec("w", "float32", (1, 3))
    with pytest.raises(RequestError, match="input x is given twice"):
        RequestReader([Signature((SPEC, other), OUTPUTS)])(
            json.dumps({"inputs": [tensor, tensor]}).encode(), None
        )


def test_binary_bytes_are_counted() -> None:
    pieces, headers = client.request_of({"x": np.zeros((1, 3), np.float32)}, INPUTS, OUTPUTS, True)
    size = headers[LENGTH.title()]
    with pytest.raises(RequestError, match="4 bytes after the last input"):
        RequestReader([Signature(INPUTS, OUTPUTS)])(b"".join(pieces) + bytes(4), size)
    with pytest.raises(
        RequestError, match="input x declares 12 bytes, and the body has 8 for it; the model takes 12"
    ):
        RequestReader([Signature(INPUTS, OUTPUTS)])(b"".join(pieces)[:-4], size)
    spec = (TensorSpec("b", "bool", (3,)),)
    pieces, headers = client.request_of({"b": np.ones(3, bool)}, spec, spec, True)
    with pytest.raises(RequestError, match="a byte of it is neither 0 nor 1"):
        RequestReader([Signature(spec, spec)])(pieces[0] + b"\1\2\0", headers[LENGTH.title()])


@pytest.mark.parametrize(
    ("dtype", "value"), [("uint8", 256), ("int8", -129), ("uint64", -1), ("int32", 2**31)]
)
def test_whole_numbers_that_do_not_fit(dtype: str, value: int) -> None:
    spec = (TensorSpec("x", dtype, (1,)),)
    tensor = {"name": "x", "shape": [1], "datatype": client.DATATYPES[dtype], "data": [value]}
    with pytest.raises(RequestError, match="a value of input x is out of the range of"):
        RequestReader([Signature(spec, spec)])(json.dumps({"inputs": [tensor]}).encode(), None)


@pytest.mark.parametrize("bad", [np.array([np.nan], np.float32), np.zeros(1, np.float16)])
def test_outputs_that_json_can_not_hold(bad: Array) -> None:
    asked = Request({}, {"y": False}, "", None)
    with pytest.raises(RequestError, match="which JSON can't hold: request it with binary_data"):
        answer_of(asked, {"y": bad}, "m", "1")
    answer_of(asked._replace(requested_outputs={"y": True}), {"y": bad}, "m", "1")


def test_metadata_are_what_the_client_expects() -> None:
    assert client.about_tensors([Signature(INPUTS, OUTPUTS)])["outputs"] == [
        {"name": "y", "datatype": "FP32", "shape": [1, 2]},
        {"name": "z", "datatype": "INT64", "shape": [1]},
    ]


def test_what_is_kept_of_heads_and_answers_changes_nothing() -> None:
    read, write = RequestReader([Signature(INPUTS, OUTPUTS)]), AnswerWriter("m", "1")
    for number in range(3 * KEPT):
        array = np.full((1, 3), number, np.float32)
        pieces, headers = client.request_of({"x": array}, INPUTS, OUTPUTS, True)
        sent, size = b"".join(pieces), headers[LENGTH.title()]
        head, extra = sent[: int(size)], b" " * (number // 2)  # each head twice
        sent, size = extra + sent, str(int(size) + len(extra))
        asked, alone = read(sent, size), RequestReader([Signature(INPUTS, OUTPUTS)])(sent, size)
        assert np.array_equal(asked.feeds["x"], array)
        assert asked.feeds["x"].flags.writeable
        assert asked._replace(feeds={}) == alone._replace(feeds={})
        arrays = {"y": np.full((1, 2), number, np.float32), "z": np.array([number])}
        assert write(asked, arrays) == answer_of(asked, arrays, "m", "1")
        for wrong in (sent[:-4], sent + bytes(4)):
            with pytest.raises(RequestError):
                read(wrong, size)
    named = asked._replace(id="seven", requested_outputs={"z": True})
    for each in (named, named._replace(id=""), asked._replace(requested_outputs={"z": True, "y": True})):
        assert write(each, arrays) == write(each, arrays) == answer_of(each, arrays, "m", "1")
    assert json.loads(head)["inputs"]
