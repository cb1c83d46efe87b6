"""A server of the Open Inference Protocol v2 whose model triples x, and that misbehaves as it is told.

python oip_server.py SEED FAULT[,FAULT...] [json] [port=PORT] [--tls CERT KEY]

Prints its port. Each request draws one of the faults, equally often; ``fine`` is one of them. ``vanish``
closes the listening socket for a while.
"""

from __future__ import annotations

import json
import random
import socket
import ssl
import struct
import sys
import threading
import time
from typing import Any

import numpy as np

TRIPLES = 3.0


def read_request(plain: socket.socket, rest: bytes) -> tuple[str, str, dict[str, str], bytes, bytes] | None:
    """Method, path, headers, body, what came after it; None: the client is gone."""
    while b"\r\n\r\n" not in rest:
        if not (more := plain.recv(65536)):
            return None
        rest += more
    head, _, rest = rest.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
    length = int(headers.get("content-length", "0"))
    while len(rest) < length:
        if not (more := plain.recv(65536)):
            return None
        rest += more
    method, path, _ = first.split(" ")
    return method, path, headers, rest[:length], rest[length:]


def inputs_of(headers: dict[str, str], body: bytes) -> tuple[np.ndarray[Any, Any], bool]:
    """Of one float32 tensor, as the protocol says it; whether it wants its answer in the binary form."""
    size = headers.get("inference-header-content-length")
    head = json.loads(body[: int(size)] if size else body)
    (tensor,) = head["inputs"]
    assert tensor["datatype"] == "FP32"
    binary = head["outputs"][0].get("parameters", {}).get("binary_data", False)
    if size:
        assert tensor["parameters"]["binary_data_size"] == len(body) - int(size)
        values = np.frombuffer(body[int(size) :], "<f4")
    else:
        values = np.array(tensor["data"], np.float32)
    return values.reshape(tensor["shape"]), binary


def answer(headers: dict[str, str], body: bytes, fault: str) -> bytes:
    """The whole answer, status line and all."""
    x, binary = inputs_of(headers, body)
    y = (TRIPLES * x).astype(np.float32)
    if fault == "nan":
        y[:] = np.nan
        binary = True
    if fault == "shape":
        y = y.reshape(-1)[:-1]
    output: dict[str, Any] = {
        "name": "z" if fault == "name" else "y",
        "datatype": "FP32",
        "shape": list(y.shape),
    }
    if binary:
        output["parameters"] = {"binary_data_size": y.nbytes}
    else:
        output["data"] = y.reshape(-1).tolist()
    head = json.dumps({"model_name": "m", "outputs": [output]}).encode()
    extra = f"Inference-Header-Content-Length: {len(head)}\r\n" if binary else ""
    content = head + (y.tobytes() if binary else b"")
    return f"HTTP/1.1 200 OK\r\n{extra}Content-Length: {len(content)}\r\n\r\n".encode() + content


def plain_answer(status: int, value: Any = None, extra: str = "") -> bytes:
    content = b"" if value is None else json.dumps(value).encode()
    return f"HTTP/1.1 {status} X\r\n{extra}Content-Length: {len(content)}\r\n\r\n".encode() + content


METADATA = {
    "name": "m",
    "platform": "test",
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 6]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 6]}],
}


class Server:
    def __init__(
        self, seed: int, faults: list[str], binary: bool, tls: ssl.SSLContext | None, port: int
    ) -> None:
        self._draw, self._faults, self._tls = random.Random(seed), faults, tls
        self._extensions = ["binary_tensor_data"] if binary else []
        self._lock = threading.Lock()
        self._listen(port)

    def _listen(self, port: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]

    def serve(self) -> None:
        while True:
            try:
                plain, _ = self._listener.accept()
            except OSError:  # it vanished
                time.sleep(0.1)
                self._listen(self.port)
                continue
            threading.Thread(target=self._talk, args=(plain,), daemon=True).start()

    def _talk(self, plain: socket.socket) -> None:
        rest = b""
        try:
            if self._tls is not None:
                plain = self._tls.wrap_socket(plain, server_side=True)
            while (request := read_request(plain, rest)) is not None:
                method, path, headers, body, rest = request
                if not self._reply(plain, method, path, headers, body):
                    break
        except OSError:
            pass
        finally:
            plain.close()

    def _reply(
        self, plain: socket.socket, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> bool:
        """False: the connection ends."""
        if method == "GET":
            about: dict[str, Any] = {
                "/v2": {"name": "s", "extensions": self._extensions},
                "/v2/models/m": METADATA,
            }
            status = 200 if path in about or path == "/v2/models/m/ready" else 404
            plain.sendall(plain_answer(status, about.get(path)))
            return True
        with self._lock:
            fault, long = self._draw.choice(self._faults), self._draw.random()
        whole = answer(headers, body, fault)
        if fault == "late":
            time.sleep(0.08 * long)
        elif fault == "hang":
            time.sleep(0.3)
        elif fault == "reset":
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
        elif fault == "gone":
            return False
        elif fault == "garbage":
            whole = random.Random(long).randbytes(400)
        elif fault == "cut":
            plain.sendall(whole[: int(len(whole) * long)])
            return False
        elif fault == "drip":
            for place in range(len(whole)):
                plain.sendall(whole[place : place + 1])
                time.sleep(0.005)
        elif fault == "endless":
            plain.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            for _ in range(100):
                plain.sendall(bytes(1 << 20))
            return False
        elif fault == "busy":
            whole = plain_answer(503, None, "Retry-After: 1\r\n")
        elif fault == "error":
            whole = plain_answer(500, {"error": "it broke"})
        elif fault == "vanish":
            self._listener.close()
            with socket.socket() as wake:  # accept() does not notice by itself
                wake.settimeout(0.05)
                wake.connect_ex(("127.0.0.1", self.port))
            return False
        plain.sendall(whole)
        return True


def main() -> None:
    tls = None
    if "--tls" in sys.argv:
        certificate, key = sys.argv[sys.argv.index("--tls") + 1 :][:2]
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate, key)
    port = next((int(text[5:]) for text in sys.argv if text.startswith("port=")), 0)
    server = Server(int(sys.argv[1]), sys.argv[2].split(","), "json" not in sys.argv, tls, port)
    print(server.port, flush=True)
    server.serve()


if __name__ == "__main__":
    main()
