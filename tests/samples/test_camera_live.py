"""The live camera's backend: what it serves, what its switches do, and who gets nothing."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

import edgekit
from edgekit.runtime import Outbox
from tests.fixtures.models import COLOUR_CARD, COLOUR_FINDER, write
from tests.samples.live_camera import EVERYWHERE, SAMPLE, SLOW, LiveCamera, used, write_video

pytestmark = [pytest.mark.needs_ort, pytest.mark.needs_tflite, pytest.mark.needs_openvino]
pytest.importorskip("cv2")
pytest.importorskip("aiohttp")


@pytest.fixture(scope="module")
def street(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A bundle for three engines, and a video."""
    folder = tmp_path_factory.mktemp("street")
    (folder / "card.toml").write_text(COLOUR_CARD, "utf-8")
    model = write(folder, COLOUR_FINDER)
    targets = ("ort", "tflite", "openvino")
    edgekit.build(model, targets=targets, card=folder / "card.toml").save(folder / "blue.edgekit")
    return folder / "blue.edgekit", write_video(folder / "street.avi")


@pytest.fixture(scope="module")
def camera(street: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCamera]:
    with LiveCamera(*street, tmp_path_factory.mktemp("home") / "camera") as running:
        running.wait(lambda state: state["frames"] > 5, 10)
        yield running


def test_frames_come_with_boxes_and_ids(camera: LiveCamera) -> None:
    taken = camera.frames(8)
    numbers = [head["frame"] for head, _ in taken]
    assert numbers == sorted(set(numbers))
    head, picture = taken[-1]
    assert picture.shape == (head["height"], head["width"], 3) == (96, 128, 3)
    (box,) = head["boxes"]
    assert box["label"] == "blue"
    assert isinstance(box["id"], int)
    assert box["box"] == pytest.approx([32, 24, 96, 72], abs=1)
    assert len({head["boxes"][0]["id"] for head, _ in taken[3:]}) == 1  # one thing, one number


def test_the_state_has_all_of_the_contract(camera: LiveCamera) -> None:
    state = camera.wait(lambda state: state["frames"] > 20)
    assert set(state) == {
        "source", "fps", "frames", "dropped", "stages", "active", "model", "temperature_c", "fallbacks",
        "events", "network", "power", "switches", "zones", "labels", "alerts", "speech",
    }  # fmt: skip
    assert state["source"] == {"name": "street.avi", "rate": 25.0, "live": False, "ended": False}
    assert set(state["stages"]) == {"prepare", "infer", "decode", "track", "total"}
    assert all(0 < times["p50"] <= times["p95"] <= times["p99"] for times in state["stages"].values())
    assert state["labels"] == ["red", "green", "blue"]
    assert set(state["switches"]) == {"blur", "network", "kill", "hang", "load", "budget", "update"}
    status, text = camera.ask("GET", "/metrics")
    assert status == 200
    assert b"edgekit_stage_duration_seconds_bucket" in text


def test_the_states_come_by_themselves(camera: LiveCamera) -> None:
    async def taken(session: aiohttp.ClientSession) -> list[dict[str, Any]]:
        async with session.ws_connect(camera.url + "/events") as socket:
            return [json.loads(await socket.receive_str(timeout=60)) for _ in range(3)]

    states = camera.in_session(taken)
    assert states[0]["frames"] < states[2]["frames"]


def test_alerts_of_an_offline_camera_arrive_once_each(camera: LiveCamera) -> None:
    camera.switch("network", True)
    before = camera.state()["network"]["sent"]
    status, zone = camera.ask("POST", "/api/zones", json=EVERYWHERE)
    assert status == 201
    state = camera.wait(lambda state: state["alerts"] and not state["network"]["online"])
    alert = state["alerts"][0]
    assert (alert["zone"], alert["label"], alert["state"]) == ("all of it", "blue", "queued")
    assert state["network"]["queued"] >= 1
    assert state["network"]["sent"] == before
    assert state["zones"][0]["count"] == 1
    assert state["zones"][0]["firing"]
    status, picture = camera.ask("GET", alert["picture"])
    assert (status, picture[:2]) == (200, b"\xff\xd8")
    camera.switch("network", False)
    assert camera.ask("DELETE", f"/api/zones/{zone['id']}")[0] == 204  # no alert follows
    state = camera.wait(lambda state: all(alert["state"] == "sent" for alert in state["alerts"]))
    received = list((camera.log.with_suffix("") / "received").iterdir())
    assert len(received) == state["network"]["sent"] - before == len(state["alerts"])
    assert state["network"]["queued"] == 0


def test_an_alert_is_sent_once_the_outbox_counts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SAMPLE))
    from live.alerts import Alerts

    counts: list[tuple[int, int]] = []

    class Backend:
        def send(self, _: object) -> None:
            states = [alert["state"] for alert in alerts.as_json()]
            counts.append((states.count("queued"), alerts.network_json()["queued"]))

        def close(self) -> None: ...

    alerts = Alerts(tmp_path / "alerts", Backend(), lambda _: None)
    alerts.pull(True)
    for _ in range(2):
        alerts.add("door", "blue", 1.0, b"picture")
    end = time.monotonic() + 5 * SLOW
    while alerts.outbox.counts()["waiting"] < 2:
        assert time.monotonic() < end
        time.sleep(0.01)
    alerts.pull(False)  # both leave in one round
    while alerts.network_json()["sent"] < 2:
        assert time.monotonic() < end
        time.sleep(0.01)
    alerts.close()
    assert [listed for listed, _ in counts] == [waiting for _, waiting in counts]
    assert [alert["state"] for alert in alerts.as_json()] == ["sent", "sent"]


def test_a_killed_engine_is_replaced(camera: LiveCamera) -> None:
    engine = camera.state()["active"]["engine"]
    camera.switch("kill", True)
    state = camera.wait(
        lambda state: any("the engine was killed" in hop["text"] for hop in state["fallbacks"])
    )
    assert state["active"]["engine"] != engine
    frames = state["frames"]
    camera.wait(lambda state: state["frames"] > frames + 5)
    camera.switch("kill", False)
    assert not camera.state()["switches"]["kill"]


def test_a_hanging_engine_is_replaced(camera: LiveCamera) -> None:
    engine = camera.state()["active"]["engine"]
    camera.switch("hang", True)
    state = camera.wait(lambda state: any("no result after" in hop["text"] for hop in state["fallbacks"]))
    assert state["active"]["engine"] != engine
    frames = state["frames"]
    camera.wait(lambda state: state["frames"] > frames + 5)
    camera.switch("hang", False)


def test_a_bad_update_is_refused_and_a_worse_one_rolled_back(camera: LiveCamera) -> None:
    camera.switch("update", True)
    camera.says("a damaged update was refused: .* is damaged")
    state = camera.says("was rolled back: ", 10)
    frames = state["frames"]
    camera.wait(lambda state: state["frames"] > frames + 5)
    camera.switch("update", False)


def test_a_tight_budget_is_answered(camera: LiveCamera) -> None:
    camera.switch("budget", True)
    camera.says("budget: end_to_end takes .* the contract allows")
    camera.says("is the fastest variant here; 10 frames a second|runs on")
    camera.switch("budget", False)


def test_busy_cores(camera: LiveCamera) -> None:
    camera.switch("load", True)
    assert camera.state()["switches"]["load"]
    camera.says("processes keep the cores busy")
    camera.switch("load", False)
    assert not camera.state()["switches"]["load"]


def test_saving_power_lowers_the_rate(camera: LiveCamera) -> None:
    assert camera.ask("POST", "/api/power", json={"mode": "battery"})[0] == 200
    state = camera.wait(lambda state: state["power"] == "battery" and 0 < state["fps"] <= 4, 6)
    assert any("power: battery; at most 2 frames a second" in event["text"] for event in state["events"])
    camera.ask("POST", "/api/power", json={"mode": "interactive"})
    camera.wait(lambda state: state["fps"] > 4, 6)


HOSTILE: dict[str, tuple[str, str, dict[str, Any]]] = {
    "outside the page": ("GET", "/page/..%2fwatch.py", {}),
    "outside the page, backslash": ("GET", "/page/..%5c..%5csetup.cfg", {}),
    "an absolute path": ("GET", "/page/%2fetc%2fpasswd", {}),
    "a null byte": ("GET", "/page/%00", {}),
    "a long path": ("GET", "/page/" + 7000 * "a", {}),
    "a deep path": ("GET", "/page/a/b/c/../../../../../etc/passwd", {}),
    "an unknown path": ("GET", "/admin", {}),
    "a wrong method": ("PUT", "/api/state", {}),
    "another host": ("GET", "/api/state", {"headers": {"Host": "evil.example"}}),
    "another port": ("GET", "/api/state", {"headers": {"Host": "127.0.0.1:1"}}),
    "another origin": ("POST", "/api/power", {"headers": {"Origin": "http://evil.example"}, "json": {}}),
    "a null origin": ("POST", "/api/power", {"headers": {"Origin": "null"}, "json": {}}),
    "a form": ("POST", "/api/power", {"data": {"mode": "battery"}}),
    "no JSON": ("POST", "/api/power", {"data": b"{", "headers": {"Content-Type": "application/json"}}),
    "deep JSON": (
        "POST", "/api/zones", {"data": 8000 * b"[", "headers": {"Content-Type": "application/json"}},
    ),
    "a large body": (
        "POST", "/api/zones", {"data": 1_000_000 * b" ", "headers": {"Content-Type": "application/json"}},
    ),
    "a list": ("POST", "/api/switches/blur", {"json": [1]}),
    "an unknown switch": ("POST", "/api/switches/__class__", {"json": {"on": True}}),
    "a truthy text": ("POST", "/api/switches/blur", {"json": {"on": "yes"}}),
    "an unknown mode": ("POST", "/api/power", {"json": {"mode": ["battery"]}}),
    "a zone of NaN": (
        "POST", "/api/zones",
        {"data": b'{"name":"a","label":"blue","seconds":NaN,"points":[[0,0],[1,0],[1,1]]}',
         "headers": {"Content-Type": "application/json"}},
    ),
    "a zone of many corners": ("POST", "/api/zones", {"json": {**EVERYWHERE, "points": 100 * [[0, 0]]}}),
    "a zone of nothing known": ("POST", "/api/zones", {"json": {**EVERYWHERE, "label": "<script>"}}),
    "a zone that is not there": ("DELETE", "/api/zones/999999999", {}),
    "an alert that is not there": ("GET", "/api/alerts/123456789.jpg", {}),
    "a socket's address without one": ("GET", "/frames", {}),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_requests_get_a_plain_refusal(camera: LiveCamera, name: str) -> None:
    method, path, options = HOSTILE[name]
    status, answer = camera.ask(method, path, **options)
    assert 400 <= status < 500, answer
    assert "Traceback" not in str(answer)
    if isinstance(answer, dict):
        assert set(answer) == {"error"}
    assert camera.state()["frames"] > 0
    assert "Traceback" not in camera.log.read_text("utf-8")


def test_a_slow_body_is_ended_and_holds_nobody_up(camera: LiveCamera) -> None:
    address = urlsplit(camera.url)
    assert address.hostname is not None
    with socket.create_connection((address.hostname, address.port or 0)) as slow:
        head = f"POST /api/power HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json\r\n"
        slow.sendall((head + "Content-Length: 1000\r\n\r\n{").encode())
        camera.state()
        slow.settimeout(8 * SLOW)
        assert b" 408 " in slow.recv(100)


def test_a_socket_from_elsewhere_gets_no_frame(camera: LiveCamera) -> None:
    async def opened(session: aiohttp.ClientSession) -> int:
        try:
            async with session.ws_connect(camera.url + "/frames", origin="http://evil.example"):
                return 101
        except aiohttp.WSServerHandshakeError as refused:
            return refused.status

    assert camera.in_session(opened) == 403


def test_a_flood_of_messages_ends_its_socket_only(camera: LiveCamera) -> None:
    async def flooded(session: aiohttp.ClientSession) -> bool:
        async with session.ws_connect(camera.url + "/events") as socket:
            try:
                for _ in range(50_000):
                    await socket.send_str("next")
                    if socket.closed:
                        return True
            except (ConnectionError, aiohttp.ClientError):
                return True
            states = 0  # those on their way, but not half a minute's: the sender of states has ended too
            while (await socket.receive(timeout=60)).type == aiohttp.WSMsgType.TEXT:
                states += 1
            return socket.closed and states < 30

    assert camera.in_session(flooded)
    assert camera.frames(2)


def test_a_viewer_that_stalls_costs_the_others_nothing(camera: LiveCamera) -> None:
    async def rates(session: aiohttp.ClientSession) -> tuple[int, int]:
        async def count(seconds: float) -> int:
            taken, end = 0, time.monotonic() + seconds
            async with session.ws_connect(camera.url + "/frames") as socket:
                while time.monotonic() < end:
                    await socket.receive_bytes(timeout=60)
                    await socket.send_str("next")
                    taken += 1
            return taken

        alone = await count(3)
        stalled = [await session.ws_connect(camera.url + "/frames") for _ in range(4)]  # and read nothing
        beside = await count(3)
        for each in stalled:
            await each.close()
        return alone, beside

    alone, beside = camera.in_session(rates)
    assert beside > 0.6 * alone, (alone, beside)


def test_a_token_is_needed_where_others_may_come(street: tuple[Path, Path], tmp_path: Path) -> None:
    with LiveCamera(*street, tmp_path / "home", "--listen", "127.0.0.1") as camera:
        assert camera.token is not None
        assert camera.frames_with_token(camera.token) > 0
        assert camera.state()["frames"] >= 0
        assert camera.ask("GET", "/")[0] in (200, 404)  # open: it holds nothing secret
        for token in ("", "x" * len(camera.token)):
            headers = {"Authorization": f"Bearer {token}"}
            assert camera.ask("GET", "/api/state", headers=headers)[0] == 401
            assert camera.ask("GET", "/metrics", headers=headers)[0] == 401
            assert camera.frames_with_token(token) == 0


def test_sigterm_leaves_soon_with_the_outbox_whole(street: tuple[Path, Path], tmp_path: Path) -> None:
    home = tmp_path / "home"
    with LiveCamera(*street, home) as camera:
        camera.switch("network", True)
        camera.ask("POST", "/api/zones", json=EVERYWHERE)
        alerts = camera.wait(lambda state: state["alerts"])["alerts"]
        camera.switch("hang", True)  # even then
        time.sleep(0.3)
        camera.stop()
        assert camera.process.returncode == 0, camera.log.read_text("utf-8")
    with Outbox(home / "alerts") as outbox:
        assert outbox.counts()["waiting"] >= len(alerts)
        waiting = outbox.counts()["waiting"]
    with LiveCamera(*street, home) as camera:  # the next run delivers them
        camera.wait(lambda state: state["network"]["sent"] == waiting, 5)
    assert len(list((home / "received").iterdir())) == waiting


def test_without_a_backend_it_says_offline_and_goes_on(street: tuple[Path, Path], tmp_path: Path) -> None:
    with LiveCamera(*street, tmp_path / "home", "--backend", "http://127.0.0.1:9/alerts") as camera:
        camera.ask("POST", "/api/zones", json=EVERYWHERE)
        state = camera.wait(lambda state: state["alerts"] and not state["network"]["online"])
        camera.says("^offline: ")
        frames = state["frames"]
        camera.wait(lambda state: state["frames"] > frames + 5)


def test_memory_and_threads_stay(street: tuple[Path, Path], tmp_path: Path) -> None:
    if not Path("/proc/self/status").exists():
        pytest.skip("/proc is Linux's")
    fast = write_video(tmp_path / "fast.avi", rate=240.0)
    with LiveCamera(street[0], fast, tmp_path / "home") as camera:
        camera.wait(lambda state: state["frames"] > 1000, 40)  # what is loaded once is by then
        camera.frames(20)
        before = used(camera.process.pid)
        last = camera.state()["frames"]
        camera.wait(lambda state: state["frames"] > last + 500, 60)
        camera.frames(400)  # more a second than a flood has messages: a viewer that keeps up is none
        after = used(camera.process.pid)
    assert after["mb"] < before["mb"] + 10
    assert after["threads"] <= before["threads"] + 1
    assert after["descriptors"] <= before["descriptors"] + 2


def test_a_source_that_is_not_there(street: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"error: absent\.mp4 can't be read as a video"):
        LiveCamera(street[0], "absent.mp4", tmp_path / "home")
