"""A server beside the session: who answers, why, when the server is bad, and that the device always can."""

from __future__ import annotations

import contextlib
import shutil
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.errors import EdgeKitError, NonFiniteOutputError, UsageError
from edgekit.runtime import Session
from edgekit.runtime.remote.remote_session import RemoteSession
from edgekit.tensor_spec import Array, Signature, TensorSpec
from tests.fixtures.bundles import X, small_bundle, variant
from tests.fixtures.fake_engines import Engines, change, doubled, throws
from tests.fixtures.ports import unused_port
from tests.fixtures.remote_servers import known, remote_first, serving, storm


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    monkeypatch.setattr("edgekit.target.registry.engine", Engines("ort"))
    with Session(small_bundle([variant("onnx", "ort")])) as session:
        yield session


def nowhere() -> str:
    """Where nobody listens."""
    return f"http://127.0.0.1:{unused_port()}"


@pytest.mark.parametrize("options", [(), ("json",)])
def test_the_server_answers_in_both_forms(session: Session, options: tuple[str, ...]) -> None:
    x = np.array([[0.1, -1e-30, 3.4e38 / 3, 0.0, 1.0, 1 / 3]], np.float32)
    with serving("fine", *options) as url, remote_first(session, url) as both:
        assert both.status()["server"] == "half-open"
        for _ in range(3):
            answer = both.run({"x": x})
            assert (answer.path, answer.reason) == ("remote", "the server first")
            np.testing.assert_array_equal(answer["y"], np.float32(3) * x)
            assert answer.took_ms > 0
        status = both.status()
        assert (status["server"], status["remote"], status["local"], status["late"]) == ("closed", 3, 0, 0)


def test_nobody_there_means_the_device_and_says_so(session: Session) -> None:
    with remote_first(session, nowhere()) as both:
        answer = both.run({"x": X})
        assert answer.path == "local"
        assert answer.reason.startswith("the server is not used: ConnectionRefusedError: ")
        assert set(answer) == {"y"}
        np.testing.assert_array_equal(answer["y"], session.run({"x": X})["y"])


BAD = {
    "gone": "the server failed: ",
    "reset": "the server failed: ",
    "garbage": "the server ",  # it may hold no end of a line
    "cut": "the server failed: ",
    "endless": "the server failed: the response exceeds 1048768 bytes",
    "error": "the server failed: the server answered 500",
    "busy": "the server failed: the server answered 503",
    "shape": "the server failed: output y differs there; expected y float32 1x6",
    "name": "the server failed: its outputs are 'z'; expected y float32 1x6",
    "nan": "the server failed: 6 of 6 values of output y are NaN or infinite",
    "hang": "the server ",
    "drip": "the server ",
}


@pytest.mark.parametrize("fault", BAD)
def test_a_bad_answer_is_the_devices(session: Session, fault: str) -> None:
    # The others are heard within any deadline; a busy machine may need more than this one.
    deadline_ms = 200.0 if BAD[fault] == "the server " else 20_000.0
    with serving(fault) as url, remote_first(session, url, deadline_ms) as both:
        answer = both.run({"x": X})
        assert answer.path == "local"
        assert answer.reason.startswith(BAD[fault])
        np.testing.assert_array_equal(answer["y"], 2 * X)
        end_s = time.monotonic() + 20
        while both.status()["server"] == "half-open" and time.monotonic() < end_s:
            time.sleep(0.01)
        assert both.status()["server"] == "open"  # the first one decides
        assert both.run({"x": X}).reason.startswith("the server is not used: ")


def test_local_only_opens_nothing(session: Session) -> None:
    before = set(threading.enumerate())
    with RemoteSession(session, nowhere(), "m", policy="local-only") as both:
        answer = both.run({"x": X})
        assert (answer.path, answer.reason) == ("local", "local-only")
        assert set(threading.enumerate()) <= before


def test_local_first_asks_the_server_where_the_device_fails(session: Session) -> None:
    with serving() as url, RemoteSession(session, url, "m", deadline_ms=5000) as both:
        known(both)
        answer = both.run({"x": X})
        assert (answer.path, answer.reason) == ("local", "the device first")
        change(session, throws)
        answer = both.run({"x": X})
        assert answer.path == "remote"
        assert "the device failed: no variant of" in answer.reason
        np.testing.assert_array_equal(answer["y"], 3 * X)


@pytest.mark.parametrize("policy", ["local-only", "local-first", "remote-first"])
def test_both_fail_and_the_devices_error_is_told(session: Session, policy: str) -> None:
    change(session, throws)
    both = known(RemoteSession(session, nowhere(), "m", policy=policy, deadline_ms=100))
    with both, pytest.raises(EdgeKitError, match="no variant of"):
        both.run({"x": X})


def test_confidence(session: Session) -> None:
    def sure(outputs: Mapping[str, Array]) -> float:
        return float(outputs["y"].max()) / 10

    with (
        serving() as url,
        RemoteSession(
            session, url, "m", policy="confidence", confidence=sure, threshold=0.5, deadline_ms=5000
        ) as both,
    ):
        known(both)
        answer = both.run({"x": X})  # 2 * 5 / 10
        assert (answer.path, answer.reason) == ("local", "confidence 1 of at least 0.5")
        answer = both.run({"x": X / 4})
        assert (answer.path, answer.reason) == ("remote", "confidence 0.25 of the device")
        np.testing.assert_array_equal(answer["y"], 3 * (X / 4))
    answer = both.run({"x": X / 4})
    assert (answer.path, answer.reason) == ("local", "confidence 0.25, but all connections are in use")


def slow(feeds: Mapping[str, Array]) -> dict[str, Array]:
    """A device that a server overtakes, even on a busy machine."""
    time.sleep(0.3)
    return doubled(feeds)


def test_a_slow_device_is_not_waited_for_where_the_server_is_quick(session: Session) -> None:
    change(session, slow)
    with serving() as url, remote_first(session, url) as both:
        assert both.run({"x": X}).path == "remote"


def test_the_callers_arrays_are_its_own_after_the_answer(session: Session) -> None:
    with serving("late") as url, remote_first(session, url, deadline_ms=400) as both:
        for _ in range(5):
            x = X.copy()
            answer = both.run({"x": x})
            expected = (3 if answer.path == "remote" else 2) * X
            x[:] = 99
            np.testing.assert_array_equal(answer["y"], expected)


def test_what_is_asked_is_what_the_arrays_held_then(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However late a connection gets to it: the caller may have filled them anew."""
    with serving() as url, remote_first(session, url) as both:
        (server,) = both._servers
        monkeypatch.setattr(server._calls, "begin", lambda call: None)
        x = X.copy()
        call = server.send({"x": x}, time.monotonic() + 20, None)
        x[:] = 99
        call.serve(server._calls._client())
        assert call.outputs is not None
        np.testing.assert_array_equal(call.outputs["y"], 3 * X)


def test_a_model_that_is_another_there_is_never_asked(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Signature((TensorSpec("x", "int8", (1, 6)),), session.outputs)
    monkeypatch.setattr(session.bundle, "shapes", (other,))
    with serving() as url, remote_first(session, url) as both:
        assert both.status()["why"] == "input x differs there; expected x int8 1x6"
        assert both.status()["server"] == "open"


def test_a_model_that_is_not_there(session: Session) -> None:
    with serving() as url:
        both = RemoteSession(session, url, "other", policy="remote-first")
        assert known(both).run({"x": X}).reason == (
            "the server is not used: /v2/models/other/ready answered 404"
        )
        both.close()


def test_a_server_that_comes_back_is_used_again(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgekit.runtime.remote.policy.FIRST_PAUSE_S", 0.02)
    url = nowhere()
    port = url.rpartition(":")[2]
    with remote_first(session, url) as both:
        assert both.run({"x": X}).path == "local"
        with serving("fine", f"port={port}"):
            end_s = time.monotonic() + 20
            while both.run({"x": X}).path == "local":
                assert time.monotonic() < end_s
                time.sleep(0.01)


@pytest.mark.parametrize("fault", ["gone", "error", "shape"])
def test_a_request_that_one_server_fails_is_answered_by_the_other(session: Session, fault: str) -> None:
    change(session, slow)
    with serving(fault) as bad, serving() as good, remote_first(session, [bad, good], 20_000.0) as both:
        paths = [both.run({"x": X}).path for _ in range(8)]  # as long as no p95 sends the device off
        assert paths == ["remote"] * 8
        status = both.status()
        assert status["servers"][good]["server"] == "closed"
        assert status["servers"][bad] == {key: status[key] for key in ("server", "why", "p95_ms")}
        assert status["server"] == "open"


def test_requests_go_to_the_quicker_server(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as quick, serving("late") as slow, remote_first(session, [slow, quick]) as both:
        servers = {server.url: server for server in both._servers}
        for server in both._servers:  # as if both had answered before
            server._times._seconds.extend([0.01 if server.url == quick else 0.5] * 8)
        sent = dict.fromkeys(servers, 0)
        for url, server in servers.items():
            real = server.send

            def counted(*request: Any, url: str = url, real: Any = real) -> Any:
                sent[url] += 1
                return real(*request)

            monkeypatch.setattr(server, "send", counted)
        monkeypatch.setattr("edgekit.runtime.remote.remote_session.EXPLORED", 0.0)
        for _ in range(20):
            both.run({"x": X})
        assert sent == {slow: 0, quick: 20}
        monkeypatch.setattr("edgekit.runtime.remote.remote_session.EXPLORED", 1.0)  # any of the two
        for _ in range(20):
            both.run({"x": X})
        assert sent[slow] > 0


def test_requests_are_answered_while_one_of_two_servers_is_killed(session: Session) -> None:
    change(session, slow)
    with contextlib.ExitStack() as first, serving() as staying:
        dying = first.enter_context(serving())
        with remote_first(session, [dying, staying]) as both:
            paths = []
            for number in range(60):
                if number == 20:
                    first.close()
                paths.append(both.run({"x": X}).path)
            # The device answers if the dying one is later than its p95.
            assert paths.count("remote") >= 50
            assert paths[-20:] == ["remote"] * 20


def test_no_server_is_an_error(session: Session) -> None:
    with pytest.raises(UsageError, match="url must name at least one server"):
        RemoteSession(session, [], "m")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_over_tls_and_not_to_a_stranger(session: Session, tmp_path: Path) -> None:
    key, certificate = str(tmp_path / "key"), str(tmp_path / "certificate")
    make = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=test -addext subjectAltName=IP:127.0.0.1"
    )
    subprocess.run([*make.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True)
    context = ssl.create_default_context(cafile=certificate)
    with serving("fine", "--tls", certificate, key) as url:
        with remote_first(session, url, context=context) as both:
            assert both.run({"x": X}).path == "remote"
        with remote_first(session, url) as both:  # the system does not know that certificate
            answer = both.run({"x": X})
            assert answer.path == "local"
            assert "certificate verify failed" in answer.reason


def test_a_thousand_requests_under_faults(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """0 unanswered, local answers bit by bit those of the session alone."""
    monkeypatch.setattr("edgekit.runtime.remote.policy.FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr("edgekit.runtime.remote.policy.LONGEST_PAUSE_S", 0.03)
    paths, _ = storm(session, 1000)
    assert paths["local"] + paths["remote"] == 1000
    assert paths["local"] >= 50


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"policy": "cloud"},
            "unknown policy 'cloud'; available: local-only, local-first, remote-first, confidence",
        ),
        ({"deadline_ms": 0}, "deadline_ms must be a positive number, not 0"),
        (
            {"policy": "confidence"},
            "policy 'confidence', and only that, needs both confidence and threshold",
        ),
        ({"threshold": 0.5}, "policy 'confidence', and only that, needs both confidence and threshold"),
        ({"headers": {"A": "b\r\nC: d"}}, "header 'A' is not one line of ASCII"),
    ],
)
def test_what_does_not_fit_is_told(session: Session, options: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError) as error:
        RemoteSession(session, "http://127.0.0.1:1", "m", **options)
    assert str(error.value) == text


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("10.0.0.1:80", "'10.0.0.1:80' is not a server URL; expected http://host:port or https://host"),
        ("ftp://a", "'ftp://a' is not a server URL; expected http://host:port or https://host"),
        ("http://a:b", "'http://a:b' is not a URL"),
        ("http://me:secret@a", "a URL with a user name is not used; pass an authorization as a header"),
    ],
)
def test_a_url_that_is_none(session: Session, url: str, text: str) -> None:
    with pytest.raises(UsageError) as error:
        RemoteSession(session, url, "m")
    assert str(error.value) == text


def test_feeds_that_do_not_fit_reach_nobody(session: Session) -> None:
    with serving() as url, remote_first(session, url) as both:
        with pytest.raises(UsageError, match="input x is float64; float32 1x6 is expected"):
            both.run({"x": X.astype(np.float64)})
        with pytest.raises(UsageError, match="input x is missing"):
            both.run({})
        assert both.status()["server"] == "half-open"


def test_an_input_that_is_not_finite_stays_on_the_device(session: Session) -> None:
    """The server would refuse it, and its breaker would open."""
    with serving("nan") as url, remote_first(session, url) as both:
        for _ in range(30):
            with pytest.raises(NonFiniteOutputError):
                both.run({"x": X * np.float32(np.nan)})
        assert both.status()["server"] in ("half-open", "closed")
        assert both.status()["remote"] == 0
