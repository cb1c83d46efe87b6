"""Device side, live: a camera with a page, on this machine's port 8787.

python watch.py out/persons.edgekit bikes.mp4           # a video in a loop; open http://127.0.0.1:8787
python watch.py out/persons.edgekit 0                   # a webcam
python watch.py out/persons.edgekit rtsp://camera/live --backend https://backend.example/alerts
python watch.py out/persons.edgekit photos/ --listen 0.0.0.0    # for others too, who have the printed token
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from aiohttp import web
from live.access import Access
from live.camera import Camera
from live.server import Server, new_token
from live.sources import SourceError, open_source
from live.speech import Speech

LOOPBACK = "127.0.0.1"
PORT = 8787
END_S = 1.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve the page until Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bundle", type=Path)
    parser.add_argument("source", help="a video, a picture, a folder, a webcam's number or an RTSP address")
    parser.add_argument("--home", type=Path, default=Path("out/camera"), help="for alerts and updates")
    parser.add_argument("--engine", help="ort, openvino or tflite; default: the best one available")
    parser.add_argument("--backend", help="URL that takes alerts; default: a receiver on this machine")
    parser.add_argument("--speech", type=Path, help="speech model: adds a page that transcribes a microphone")
    parser.add_argument("--voice-activity", type=Path, help="model that finds the speaker's pauses")
    parser.add_argument("--listen", metavar="HOST", help="serve others too, who need the printed token")
    parser.add_argument("--port", type=int, default=PORT, help="0: any free one")
    parser.add_argument("--no-browser", action="store_true", help="open none")
    options = parser.parse_args(arguments)
    try:
        source = open_source(options.source)
    except SourceError as problem:
        raise SystemExit(f"error: {problem}") from None
    speech = Speech(options.speech, options.voice_activity, options.engine) if options.speech else None
    camera = Camera(options.bundle, source, options.home, options.engine, options.backend, speech)
    try:
        asyncio.run(serve(camera, options.listen, options.port, not options.no_browser))
    except OSError as problem:
        raise SystemExit(f"error: port {options.port}: {problem.strerror}; --port takes another") from None
    finally:
        camera.close()


async def serve(camera: Camera, listen: str | None, port: int, browser: bool) -> None:
    """Serve a camera until SIGTERM or Ctrl-C.

    Args:
        camera: What is served.
        listen: The address to listen on besides loopback's; then a token is needed.
        port: 0: any free one.
        browser: Open one, where there is a display.
    """
    token = new_token() if listen is not None else None
    host = listen or LOOPBACK
    listener = socket.create_server((host, port), backlog=64)
    port = listener.getsockname()[1]
    server = Server(camera, Access(port, token))
    runner = web.AppRunner(server.app, access_log=None, shutdown_timeout=END_S, keepalive_timeout=15.0)
    await runner.setup()
    await web.SockSite(runner, listener).start()
    shown = LOOPBACK if host in ("0.0.0.0", "::") else host
    url = f"http://{shown}:{port}" + (f"/#token={token}" if token else "")
    print(f"  page       {url}", flush=True)
    if browser and has_display():
        webbrowser.open(url)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, ended.set)
    await ended.wait()
    await runner.cleanup()


def has_display() -> bool:
    """Whether a browser could be seen here."""
    linux = sys.platform.startswith("linux")
    return not linux or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


if __name__ == "__main__":
    try:
        main()
        sys.stdout.flush()
        os._exit(0)  # all is closed; a thread in a hanging engine would keep the interpreter from ending
    except Exception as error:
        if type(error).__module__ != "edgekit.errors":
            raise
        sys.exit(f"error: {error}")
