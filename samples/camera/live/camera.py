"""One camera: the device, its alerts, its pictures and the switches that everybody tries."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

from edgekit.errors import EdgeKitError
from edgekit.runtime import Bundle, HttpSink, Metrics
from edgekit.runtime.predictor import SessionProtocol
from live.alerts import Alerts
from live.device import Device
from live.pictures import BLURRED, Encoder, Shown, blurred, encoded, marked
from live.receiver import Receiver
from live.sources import Source
from live.speech import Speech
from live.tracks import Box
from live.zones import Zone

STATE_S = 0.1
"""The state is computed at most that often, however many ask."""
SENT_S = 10.0
"""An alert may take so long to be sent."""
JSON = "application/json"


class Camera:
    """Runs until ``close``.

    Args:
        bundle: A detector with a card.
        source: Frames.
        home: A folder for updates, alerts and what was received.
        engine: The one to try first; None: the best.
        backend: URL that takes alerts; None: a receiver on this machine.
        speech: Transcribes sounds on a page beside the camera's; closed with the camera.
    """

    def __init__(
        self,
        bundle: Path,
        source: Source,
        home: Path,
        engine: str | None = None,
        backend: str | None = None,
        speech: Speech | None = None,
    ) -> None:
        self.speech = speech
        home.mkdir(parents=True, exist_ok=True)
        self._home = home
        self._give: Callable[[int, bytes], None] = lambda number, message: None
        self._watched: Callable[[], bool] = lambda: False
        self._blur = False
        self._update_on = False
        self._lock, self._state, self._state_s = threading.Lock(), "{}", 0.0
        self.device = Device(bundle, source, home, engine, self._shown, self._fired)
        source.tell = self.device.tell
        self._receiver = Receiver(home / "received") if backend is None else None
        if self._receiver is not None:
            sink = HttpSink(self._receiver.url, self._receiver.headers, content_type=JSON, timeout_s=SENT_S)
        else:
            sink = HttpSink(backend or "", content_type=JSON, timeout_s=SENT_S)
        self.alerts = Alerts(home / "alerts", sink, self.device.tell)
        self.metrics = Metrics(cast(SessionProtocol, self.device), self.alerts.outbox)
        self.device.metrics = self.metrics
        self._encoder = Encoder(lambda: self.device.newest, self._hidden, self._encoded)
        self.device.start()

    # --- pictures ------------------------------------------------------------------------------------------

    def watch(self, give: Callable[[int, bytes], None], watched: Callable[[], bool]) -> None:
        """Give each encoded frame to the server; ``watched`` says whether some viewer waits."""
        self._give, self._watched = give, watched

    def want(self) -> None:
        """A viewer waits for the next frame."""
        self._encoder.want()

    def _shown(self) -> None:
        if self._watched():
            self._encoder.want()

    def _encoded(self, number: int, message: bytes) -> None:
        self._give(number, message)

    def _hidden(self) -> tuple[str, ...]:
        """The labels to blur now: faces, or persons where the detector finds no faces."""
        if not self._blur:
            return ()
        return next(((label,) for label in BLURRED if label in self.device.labels), ())

    def _fired(self, zone: Zone, box: Box, shown: Shown) -> None:
        hide = self._hidden()
        frame = blurred(shown.frame, shown.boxes, hide) if hide else shown.frame
        self.alerts.add(zone.name, box.label, zone.seconds, encoded(marked(frame, box)))

    # --- switches ------------------------------------------------------------------------------------------

    @property
    def switches(self) -> dict[str, bool]:
        """Every switch and whether it is on."""
        return {
            "blur": self._blur,
            "network": self.alerts.network.pulled,
            "kill": bool(self.device.faults.killed),
            "hang": bool(self.device.faults.hung),
            "load": self.device.faults.busy > 0,
            "budget": self.device.tight,
            "update": self._update_on,
        }

    def switch(self, name: str, on: bool) -> None:
        """Turn a switch. May take a second; not for an event loop."""
        device, faults = self.device, self.device.faults
        if name == "blur":
            self._blur = device.every_frame = on  # what came in unnoticed would be shown
            hidden = self._hidden()
            device.tell(f"blur: {', '.join(hidden) or 'nothing here has a face'}" if on else "blur: off")
        elif name == "network":
            self.alerts.pull(on)
            device.tell("the network was pulled" if on else "the network was plugged in")
        elif name == "kill":
            faults.kill(device.active_target() if on else "")
            device.tell(f"the engine {faults.killed} was killed" if on else "killed engines work again; "
                        "the runtime tries them after its cooldown")  # fmt: skip
        elif name == "hang":
            faults.hang(device.active_target() if on else "")
            device.tell(f"the engine {faults.hung} hangs" if on else "hanging engines return; "
                        "the runtime tries them after its cooldown")  # fmt: skip
        elif name == "load":
            faults.load(on)
            device.tell(f"{faults.busy} processes keep the cores busy, for a minute at most" if on
                        else "the busy processes have ended")  # fmt: skip
        elif name == "budget":
            device.tighten(on)
        else:
            self._update(on)

    def _update(self, on: bool) -> None:
        """Install a damaged bundle, then one that is whole but whose models are not."""
        self._update_on = on
        if not on:
            return
        device, good = self.device, self.device.store.path
        content = bytearray(good.read_bytes())
        content[len(content) // 2] ^= 0xFF
        damaged = self._home / "damaged.edgekit"
        damaged.write_bytes(content)
        try:
            device.store.install(damaged)
        except EdgeKitError as problem:
            why = str(problem).splitlines()[0].replace(str(damaged), "it")
            device.tell(f"a damaged update was refused: {why}")
        with Bundle.open(good) as opened:
            manifest = opened.manifest
            models = {f for variant in opened.variants for f in variant.files.values()}
            entries = {e: bytes(opened.read(e)) for e in (entry["name"] for entry in manifest["entries"])}
        broken = Bundle.create(manifest, {e: b"no model" if e in models else c for e, c in entries.items()})
        path = self._home / "broken.edgekit"
        broken.save(path)
        digest = device.store.install(path)
        device.tell(f"the update {digest[:12]} was installed; no model in it loads")
        device.reopen()

    # --- state ---------------------------------------------------------------------------------------------

    def changed(self) -> None:
        """A wish was taken: the next state is a new one."""
        self._state_s = 0.0

    def state(self) -> str:
        """The state as JSON text (see docs/camera.md). Not for an event loop: it asks the outbox's disk."""
        with self._lock:
            if time.monotonic() - self._state_s >= STATE_S:
                # Results before their causes: a listed alert is in the counts of its network and zone.
                alerts = self.alerts.as_json()
                network = self.alerts.network_json()
                state = {
                    **self.device.as_json(), "network": network,
                    "switches": self.switches, "alerts": alerts, "speech": self.speech is not None,
                }  # fmt: skip
                self._state, self._state_s = json.dumps(state, separators=(",", ":")), time.monotonic()
            return self._state

    def close(self) -> None:
        """Stop everything; the outbox is whole."""
        self._encoder.close()
        self.device.close()
        self.alerts.close()
        if self._receiver is not None:
            self._receiver.close()
        if self.speech is not None:
            self.speech.close()
