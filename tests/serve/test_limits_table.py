"""The table of limits in docs/security.md has the values of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("httptools", reason="httptools is not installed (the extra serve)")
from edgekit.compiler.hub import client as hub_client
from edgekit.compiler.hub import files as hub_files
from edgekit.processing.picture_files import PIXELS_LIMIT
from edgekit.processing.sound_files import CHUNKS_LIMIT
from edgekit.runtime.traces import trace_context
from edgekit.serve import (
    connection_watch,
    grpc_message_cost,
    grpc_server,
    http_protocol,
    inference_requests,
    pictures,
    request_memory,
    serve_request,
    server,
    service,
    tls,
    websocket_protocol,
)
from edgekit.serve.openai import embeddings, multipart, request_fields, transcriptions
from edgekit.web import browser_device, report_server

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
VALUES: dict[str, list[float]] = {
    "connections, over HTTP and gRPC": [serve_request.CONNECTIONS, connection_watch.FILES, 4],
    "connections of one address": [serve_request.ADDRESS_SHARE],
    "new connections that the system keeps": [server.BACKLOG],
    "size of a request's line and headers, or of a trailer": [http_protocol.HEAD_BYTES >> 10],
    "number of headers": [http_protocol.HEADERS],
    "trace headers": [
        trace_context.TRACEPARENT_CHARS,
        trace_context.TRACESTATE_CHARS,
        trace_context.TRACESTATE_MEMBERS,
    ],
    "pipelined requests that wait": [http_protocol.PIPELINED],
    "time for a handshake of TLS": [tls.HANDSHAKE_SECONDS],
    "time for a head": [http_protocol.HEAD_SECONDS],
    "time of an idle connection": [http_protocol.KEPT_SECONDS],
    "time for a body": [http_protocol.BODY_SECONDS, http_protocol.BYTES_PER_SECOND >> 10],
    "small chunks of a body": [http_protocol.CHUNKS, http_protocol.CHUNK_BYTES],
    "time for the rest of a request that was answered early": [http_protocol.REST_SECONDS],
    "size of the rest of such a request": [request_memory.DISCARDED_BYTES >> 20],
    "time in which a client reads on": [connection_watch.UNREAD_SECONDS, server.USER_TIMEOUT_MS / 1000],
    "last bytes of a connection that is closed": [connection_watch.CLOSING_SECONDS],
    "size of a body": [inference_requests.VALUE_CHARS, inference_requests.HEAD_LIMIT_BYTES >> 10],
    "size of a picture": [pictures.PICTURE_BYTES >> 20, PIXELS_LIMIT // 10**6],
    "memory for requests": [request_memory.LEAST_BYTES >> 20],
    "part of it for one address": [serve_request.ADDRESS_SHARE],
    "part of it for requests below 4 MB alone": [request_memory.SMALL_PART],
    "requests that are answered at once": [service.IN_FLIGHT],
    "requests that wait for a model": [serve_request.QUEUE],
    "time of a request": [serve_request.DEADLINE_MS / 1000],
    "texts that are generated at once": [serve_request.CONVERSATIONS],
    "time of a text": [serve_request.TEXT_DEADLINE_MS / 1000],
    "body of OpenAI's endpoints": [
        request_fields.BODY_BYTES >> 20,
        request_fields.VALUES,
        request_fields.DEPTH,
    ],
    "texts of an embeddings request": [embeddings.TEXTS],
    "body of a transcription": [transcriptions.FILE_BYTES >> 20, multipart.FORM_BYTES >> 10],
    "parts of its form": [multipart.PARTS, multipart.PART_HEAD_BYTES >> 10, multipart.FIELD_BYTES >> 10],
    "sound of a transcription": [transcriptions.SECONDS, transcriptions.LEAST_RATE_HZ, CHUNKS_LIMIT],
    "loads and unloads that wait": [service.CHANGES],
    "listeners to a model's events": [pictures.LISTENERS, pictures.EVENT_SECONDS, pictures.KEPT],
    "frames of a WebSocket message": [websocket_protocol.FRAMES],
    "WebSocket pings": [websocket_protocol.PINGS],
    "WebSocket answers that are not read": [websocket_protocol.UNREAD_BYTES >> 20],
    "compression of bodies and messages": [],
    "calls of gRPC": [grpc_server.RPCS],
    "calls of gRPC that are read": [grpc_server.CALLS],
    "calls of one address that are read": [grpc_server.ADDRESS_CALLS],
    "calls of one connection": [grpc_server.CONNECTION_CALLS],
    "time for the first message": [grpc_server.MESSAGE_SECONDS],
    "time for a further message of a stream": [grpc_server.STREAM_SECONDS],
    "time in which a message of a stream is read": [grpc_server.MESSAGE_SECONDS],
    "size of a message": [grpc_message_cost.LEAST_BYTES >> 20, grpc_message_cost.MESSAGE_BYTES >> 20],
    "fields of a message": [grpc_message_cost.FIELDS],
    "metadata of a call": [grpc_server.METADATA_BYTES >> 10],
    "handshake and settings of a new connection of gRPC": [grpc_server.HANDSHAKE_SECONDS],
    "time of a connection of gRPC without calls": [grpc_server.IDLE_SECONDS],
    "age of a connection of gRPC": [grpc_server.CONNECTION_SECONDS, grpc_server.LAST_SECONDS],
}


def test_the_table_has_every_limit_with_its_value() -> None:
    section = PAGE.read_text("utf-8").partition("## Limits of a server")[2].partition("\n## ")[0]
    table = section.partition("|---|---|---|---|\n")[2].partition("\n\n")[0]
    rows = {cells[1].strip(): cells[2] for cells in (line.split("|") for line in table.splitlines())}
    assert set(rows) == set(VALUES)
    for name, values in VALUES.items():
        words = rows[name].replace(",", "").split()
        assert [f"{value:g}" for value in values if f"{value:g}" not in words] == [], name
    assert request_memory.SMALL_BYTES >> 20 == 4  # in a name


def test_the_table_of_a_phone_s_report_has_the_values() -> None:
    section = PAGE.read_text("utf-8").partition("## A phone's report")[2].partition("\n## ")[0]
    table = section.partition("|---|---|---|\n")[2].partition("\n\n")[0]
    rows = {cells[1].strip(): cells[2].split() for cells in (line.split("|") for line in table.splitlines())}
    values: dict[str, list[float]] = {
        "connections": [report_server.CONNECTIONS],
        "connections of one address": [report_server.ADDRESS_CONNECTIONS],
        "time for a handshake, and then for a request": [report_server.REQUEST_SECONDS],
        "size of a request's line and headers": [report_server.HEAD_BYTES >> 10],
        "size of a report": [report_server.BODY_BYTES >> 10],
        "time for a response": [
            report_server.RESPONSE_SECONDS,
            report_server.RESPONSE_BYTES_PER_SECOND >> 10,
        ],
        "time of the server": [browser_device.WAIT_SECONDS / 60],
        "accepted reports": [1],
    }
    assert set(rows) == set(values)
    for name, limits in values.items():
        assert [f"{value:g}" for value in limits if f"{value:g}" not in rows[name]] == [], name


def test_the_table_of_the_hub_has_the_values() -> None:
    section = PAGE.read_text("utf-8").partition("### The Hugging Face Hub")[2].partition("\n### ")[0]
    table = section.partition("|---|---|---|\n")[2].partition("\n\n")[0]
    rows = {cells[1].strip(): cells[2].split() for cells in (line.split("|") for line in table.splitlines())}
    assert rows["size of a model's files"] == [str(hub_files.TOTAL_BYTES >> 30), "GB"]
    assert rows["files in a repository"] == [f"{hub_client.FILES_LIMIT:,}"]
    assert rows["size of the list of files"] == [str(hub_client.LIST_BYTES >> 20), "MB"]
    assert rows["time for the list of files"] == [f"{hub_client.LIST_SECONDS:g}", "s"]
    file_time = [f"{hub_client.FILE_SECONDS:g}", str(hub_client.BYTES_PER_SECOND >> 10)]
    assert set(file_time) <= set(rows["time for a file"])
    assert rows["requests for a file"][0] == str(hub_client.ATTEMPTS)
    assert f"{hub_client.PAUSE_SECONDS:g}" in rows["requests for a file"]
