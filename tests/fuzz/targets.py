"""What is fuzzed: for each reader what it is given, and what it may do with it."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import random
import re
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from edgekit.bundle import Bundle
from edgekit.bundle.manifest import decode_manifest
from edgekit.errors import BundleError, CardError, EdgeKitError, SignatureError, printable
from edgekit.processing import load_card
from edgekit.processing.card import parse_card
from edgekit.release.provenance import bill_of_materials, provenance_of
from edgekit.runtime.http_connection import ConnectionFailedError, HttpConnection, Reply
from edgekit.runtime.remote.inference_protocol import LENGTH, AnswerError, answer_of
from edgekit.runtime.store.bundle_store import Store
from edgekit.signing import TrustedKeys
from edgekit.signing.signing_keys import load_private_key
from edgekit.signing.trusted_keys import sign_file
from edgekit.system.formats.json_schema import ManifestError
from tests.fixtures.bundle_mutations import bytes_changed, mutated
from tests.fixtures.bundles import packed_parts, small_bundle, variant
from tests.fixtures.keys import KINDS, key_files
from tests.fuzz import mutations
from tests.fuzz.folder_targets import model_folders
from tests.fuzz.grpc_targets import grpc_messages
from tests.fuzz.language_targets import language_models
from tests.fuzz.model_targets import models
from tests.fuzz.sample_targets import arrays, media
from tests.fuzz.target import READ, REFUSED, SPECS, Target, refused
from tests.fuzz.update_targets import updates
from tests.release.provenance.described import described_bundle

CARDS = sorted((Path(__file__).resolve().parents[2] / "samples" / "cards").glob("*.toml"))


def targets(folder: Path) -> dict[str, Target]:
    """All of them; what they write, they write into ``folder``."""
    folder.mkdir(exist_ok=True)
    made = (
        _bundles, _manifests, _cards, arrays, _answers, _wire, _signatures, _states, media, updates,
        language_models, grpc_messages, model_folders, models,
    )  # fmt: skip
    return {name: target for make in made for name, target in make(folder).items()}


def _bundles(folder: Path) -> dict[str, Target]:
    original = described_bundle(folder)
    whole, path = original.read_bytes(), folder / "case.edgekit"
    with Bundle.open(original) as bundle:
        manifest, data = packed_parts(bundle)

    def make(draw: random.Random) -> bytes:
        return mutated(whole, manifest, data, draw.randrange(1 << 60))

    def read(content: bytes) -> str:
        path.write_bytes(content)
        try:
            opened = Bundle.open(path)
        except BundleError as problem:
            return refused(problem, path)
        with opened as bundle:
            _ = bundle.variants, bundle.inputs, bundle.outputs, bundle.stages
            uses: list[Callable[[], object]] = [
                bundle.verify_entries,
                lambda: bundle.report,
                bundle._repr_html_,
                lambda: provenance_of(bundle, path.name, "0" * 64),
                lambda: bill_of_materials(bundle, path.name, "0" * 64),
                lambda: parse_card(bundle.card or {}, bundle.inputs, bundle.outputs),
                *(partial(bundle.stage, name) for name in bundle.stages),
            ]
            for use in uses:
                with contextlib.suppress(EdgeKitError):
                    use()
        return READ

    return {"bundle": Target(20, make, read)}


def _manifests(folder: Path) -> dict[str, Target]:
    with Bundle.open(described_bundle(folder)) as bundle:
        manifest = json.loads(json.dumps(bundle.manifest))

    def read(content: bytes) -> str:
        try:
            decode_manifest(content)
        except ManifestError as problem:
            return refused(problem)
        return READ

    return {"manifest": Target(20, lambda draw: mutations.changed_json(draw, manifest), read)}


def _cards(folder: Path) -> dict[str, Target]:
    texts = [path.read_text("utf-8") for path in CARDS]
    tables = []
    for card in CARDS:
        with contextlib.suppress(CardError):  # it names a tokenizer that is not there
            tables.append(load_card(card).as_json())
    for beside in CARDS[0].parent.iterdir():
        if beside.suffix != ".toml" and beside.is_file():  # labels and tokenizers that cards name
            (folder / beside.name).write_bytes(beside.read_bytes())
    path = folder / "card.toml"

    def make(draw: random.Random) -> bytes:
        return mutations.changed_toml(draw.choice(texts), draw).encode("utf-8", "surrogatepass")

    def read(content: bytes) -> str:
        path.write_bytes(content)
        try:
            card = load_card(path)
        except CardError as problem:
            return refused(problem, folder)
        assert parse_card(card.as_json()) == replace(card, files={})
        return READ

    def read_json(content: bytes) -> str:
        try:
            table = json.loads(content)
        except ValueError:
            return REFUSED  # of a bundle; the manifest's reader has refused it
        try:
            card = parse_card(table if isinstance(table, dict) else {})
            _ = card.shapes(), card.ranges(), card.constants()
        except CardError as problem:
            return refused(problem)
        return READ

    changed = mutations.changed_json
    return {
        "card.toml": Target(6, make, read),
        "card of a bundle": Target(6, lambda draw: changed(draw, draw.choice(tables)), read_json),
    }


def _answer(draw: random.Random) -> tuple[bytes, dict[str, str]]:
    """The body of an answer, plain or binary, and its headers."""
    binary = draw.random() < 0.5
    head: dict[str, Any] = {"model_name": "m", "outputs": []}
    tail = b""
    for spec in SPECS:
        entry: dict[str, Any] = {"name": spec.name, "shape": list(spec.shape)}
        entry["datatype"] = {"float32": "FP32", "int64": "INT64"}[spec.dtype]
        if binary:
            content = spec.zeros().tobytes()
            entry["parameters"], tail = {"binary_data_size": len(content)}, tail + content
        else:
            entry["data"] = spec.zeros().reshape(-1).tolist()
        head["outputs"].append(entry)
    body = mutations.changed_json(draw, head)
    length = len(body) if draw.random() < 0.9 else draw.choice((0, -1, 10**30, len(body) - 3, "x", "²"))
    if binary and draw.random() < 0.2:
        tail = bytes_changed(draw, tail)
    return body + tail, {LENGTH: str(length)} if binary else {}


def _answers(folder: Path) -> dict[str, Target]:
    def make(draw: random.Random) -> bytes:
        body, headers = _answer(draw)
        return json.dumps(headers).encode() + b"\n" + body

    def read(content: bytes) -> str:
        headers, _, body = content.partition(b"\n")
        try:
            found = answer_of(Reply(200, json.loads(headers), body), SPECS)
        except AnswerError as problem:
            return refused(problem)
        assert [(a.shape, str(a.dtype)) for a in found.values()] == [(s.shape, s.dtype) for s in SPECS]
        return READ

    return {"answer of a server": Target(12, make, read)}


def _wire(folder: Path) -> dict[str, Target]:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    sent: list[bytes] = []

    def serve() -> None:
        while True:
            peer, _ = listener.accept()
            with contextlib.suppress(OSError), peer:
                peer.recv(1 << 16)
                peer.sendall(sent[0])
                peer.shutdown(socket.SHUT_WR)
                peer.settimeout(0.5)
                peer.recv(1)

    threading.Thread(target=serve, daemon=True).start()

    def read(content: bytes) -> str:
        sent[:] = [content]
        connection = HttpConnection(f"http://127.0.0.1:{port}")
        try:
            reply = connection.exchange("GET", "/v2", time.monotonic() + 5, 4096)
            _ = reply.retry_after_s
            answer_of(reply, SPECS)
        except (ConnectionFailedError, AnswerError) as problem:
            return refused(problem)
        finally:
            connection.close()
        return READ

    return {"HTTP": Target(2, lambda draw: mutations.changed_reply(draw, _answer(draw)[0]), read)}


def _signatures(folder: Path) -> dict[str, Target]:
    signed = folder / "signed.bin"
    signed.write_bytes(b"signed")
    private, public = key_files(folder, "key", KINDS["Ed25519"]())
    key, keys = load_private_key(private), TrustedKeys([public])
    original = json.loads(sign_file(signed, key))
    statement = json.loads(base64.b64decode(original["dsseEnvelope"]["payload"]))

    def make(draw: random.Random) -> bytes:
        if draw.random() < 0.5:
            return mutations.changed_json(draw, original)
        # A holder of the key signs what is no statement: the statement's reader sees it.
        from edgekit.signing.signature_file import SignatureFile, message_of

        payload = mutations.changed_json(draw, statement)
        return SignatureFile(payload, key.sign(message_of(payload)), key.public.hint).encode()

    def read(content: bytes) -> str:
        for check in (keys.check_content, keys.check_payload):
            try:
                check(signed if check == keys.check_content else b"signed", content, "case.sig")  # type: ignore[arg-type]
            except SignatureError as problem:
                return refused(problem)
        return READ

    return {"signature": Target(10, make, read)}


def _states(folder: Path) -> dict[str, Target]:
    """The files of a store's state, of which both may be changed."""
    root = folder / "store"
    factory = small_bundle([variant("factory", "ort")]).save(folder / "factory.edgekit")
    store = Store(root, factory)
    store.install(small_bundle([variant("new", "ort")]).save(folder / "new.edgekit"))
    store.begin()
    store.confirm()
    files = sorted(path for path in root.rglob("*.json") if path.is_file())
    contents = [path.read_bytes() for path in files]
    slots = {str(path) for path in (root / "slots").iterdir()}

    def changed(draw: random.Random, content: bytes) -> bytes:
        digest, line, text = content.partition(b"\n")
        if draw.random() < 0.2 or digest != hashlib.sha256(text).hexdigest().encode():
            return bytes_changed(draw, content)
        text = mutations.changed_json(draw, json.loads(text))
        return hashlib.sha256(text).hexdigest().encode() + line + text

    def make(draw: random.Random) -> bytes:
        new = [changed(draw, each) if draw.random() < 0.8 else each for each in contents]
        return json.dumps([base64.b64encode(each).decode() for each in new]).encode()

    def read(content: bytes) -> str:
        for path, text in zip(files, json.loads(content), strict=True):
            path.write_bytes(base64.b64decode(text))
        found = Store(root, factory)
        path = found.path
        inside = path.parent == root / "slots" and re.fullmatch(r"[0-9a-f]{64}\.edgekit", path.name)
        assert path == factory or inside, path
        if len(content) % 4 == 0:
            started = found.begin()
            assert started == factory or str(started) in slots, started
        assert all(printable(note) == note for note in found.notes)
        return REFUSED if path == factory else READ

    return {"state of a store": Target(4, make, read)}
