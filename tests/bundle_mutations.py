"""Bundles that were changed at random, by seed, and all that is done with a bundle from elsewhere.

``kind_of`` says what a seed changes: bytes of the file; values of the manifest, or entries, under a header
that fits again; or the content of an entry under a manifest that fits again. Of each there may be nothing but
an answer or an EdgeKitError. ``outcomes`` tries them in a process of their own; after one that died another
goes on.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import edgekit
from edgekit.bundle import Bundle
from edgekit.errors import EdgeKitError
from edgekit.manifest import aligned
from edgekit.runtime import Session
from tests.bundles import pack, packed_parts
from tests.models import COLOUR_CARD, COLOUR_FINDER, write

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("bytes", "manifest", "entries", "content")
HANG_S = 120
MEMORY_BYTES = 6 << 30
ELEMENTS = 1 << 24
"""Of an input that a session is still run with."""
TEXTS = (
    "", "x", "../x", "/etc/passwd", "C:x", "nul", "\x1b[2J", "\u202e", "a" * 300, "b" * 70_000, "NaN", "ort",
    "tflite", "openvino", "edgekit", "float32", "int64", "object", "verified", "rejected: x", "é", "0" * 64,
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 255, 2**31, 2**53, 2**63 - 1, -(2**63), 2**64, 0.5, -0.0,
    1e-320, 1e308, [], {}, [[]], {"": {}}, [None], [0] * 1000, {"x": [1]}, *TEXTS,
)  # fmt: skip


class Outcome(NamedTuple):
    """Of one seed.

    Attributes:
        seed: Its number.
        kind: What it changed.
        end: What became of it, in a word or two: ``refused``, ``answers`` ..., or the signal that ended it.
        seconds: That it took.
        fault: The traceback of anything that is no EdgeKitError; empty where all is as it should be.
    """

    seed: int
    kind: str
    end: str
    seconds: float
    fault: str = ""


def original(folder: Path) -> Path:
    """A bundle with a card, golden vectors and two variants for ONNX Runtime; of one model."""
    (folder / "card.toml").write_text(COLOUR_CARD, "utf-8")
    model, card = write(folder, COLOUR_FINDER), folder / "card.toml"
    made = edgekit.build(model, targets=["ort"], card=card)
    manifest, entries = (
        made.manifest,
        {e["name"]: bytes(made.read(e["name"])) for e in made.manifest["entries"]},
    )
    again = {**manifest["variants"][0], "name": "again", "status": "verified"}
    kept = {key: value for key, value in manifest.items() if key != "entries"}
    both = Bundle.create({**kept, "variants": [again, *manifest["variants"]]}, entries)
    return both.save(folder / "original.edgekit")


def kind_of(seed: int) -> str:
    return KINDS[seed % len(KINDS)]


def mutated(whole: bytes, manifest: dict[str, Any], data: bytes, seed: int) -> bytes:
    """The file of a seed.

    Args:
        whole: The bundle's bytes.
        manifest: Its manifest, and ``data`` what comes after it, as ``packed_parts`` gives them.
        data: The entries.
        seed: Which change.
    """
    draw = random.Random(seed)
    kind = kind_of(seed)
    if kind == "bytes":
        return _bytes_changed(draw, whole)
    manifest = json.loads(json.dumps(manifest))
    if kind == "manifest":
        for _ in range(draw.randint(1, 3)):
            _value_changed(draw, manifest)
        return _packed(manifest, data)
    parts = {e["name"]: data[e["offset"] : e["offset"] + e["size"]] for e in manifest["entries"]}
    if kind == "entries":
        _entries_changed(draw, parts)
        if draw.random() < 0.5:
            _value_changed(draw, manifest)
    else:
        models = sorted({entry for variant in manifest["variants"] for entry in variant["files"].values()})
        name = draw.choice(models if draw.random() < 0.6 else sorted(parts))
        parts[name] = _bytes_changed(draw, parts[name])
    return _packed(*_laid_out(manifest, parts))


def _bytes_changed(draw: random.Random, whole: bytes) -> bytes:
    content = bytearray(whole)
    for _ in range(draw.choice((1, 1, 1, 2, 5, 40))):
        at = (
            draw.randrange(len(content) + 1)
            if draw.random() < 0.5
            else draw.randrange(min(2000, len(content) + 1))
        )
        size = draw.choice((1, 1, 4, 64, 5000))
        how = draw.randrange(5)
        if how == 0 and at < len(content):
            content[at] ^= 1 << draw.randrange(8)
        elif how == 1:
            content[at : at + size] = draw.randbytes(size)
        elif how == 2:
            content[at : at + size] = b""
        elif how == 3:
            content[at:at] = draw.randbytes(size)
        else:
            content[at : at + size] = bytes([draw.choice((0, 255))]) * len(content[at : at + size])
    return bytes(content)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each list or object of the manifest with each of its keys."""
    todo = [value]
    while todo:
        holder = todo.pop()
        for key in list(holder) if isinstance(holder, dict) else range(len(holder)):
            yield holder, key
            if isinstance(holder[key], (dict, list)):
                todo.append(holder[key])


def _value_changed(draw: random.Random, manifest: dict[str, Any]) -> None:
    # A part first, so that the many numbers of the evidence are not nearly all that is changed.
    open_parts = [key for key in ("card", "options", "profiles", "samples", "variants") if key in manifest]
    part = draw.choice(open_parts if open_parts and draw.random() < 0.5 else sorted(manifest))
    inner = list(_places(manifest[part])) if isinstance(manifest[part], (dict, list)) else []
    holder, key = draw.choice(inner) if inner and draw.random() < 0.9 else (manifest, part)
    how, old = draw.randrange(7), holder[key]
    if how == 0:
        del holder[key]
    elif how == 1 and isinstance(holder, dict):
        holder[draw.choice(TEXTS)] = old
    elif how == 2 and isinstance(holder, list):
        holder.insert(draw.randrange(len(holder) + 1), json.loads(json.dumps(old)))
    elif how == 3 and isinstance(old, (int, float)):
        holder[key] = draw.choice((old + 1, old - 1, -old, old * 2, old * 1e6, old / 3))
    elif how == 4 and isinstance(old, str) and old:
        at = draw.randrange(len(old))
        holder[key] = old[:at] + draw.choice((*TEXTS[:14], chr(draw.randrange(1, 0x250)))) + old[at + 1 :]
    elif how == 5:
        other, place = draw.choice(list(_places(manifest)))
        holder[key] = json.loads(json.dumps(other[place]))
    else:
        holder[key] = draw.choice(VALUES)


def _entries_changed(draw: random.Random, parts: dict[str, bytes]) -> None:
    for _ in range(draw.randint(1, 2)):
        name, other = draw.choice(sorted(parts)), draw.choice(sorted(parts))
        how = draw.randrange(5)
        if how == 0 and len(parts) > 1:
            del parts[name]
        elif how == 1:
            parts[name], parts[other] = parts[other], parts[name]
        elif how == 2:
            parts[name + draw.choice(("x", "/x", ".", " ", "X"))] = parts[name]
        elif how == 3:
            parts[name] = b""
        else:
            parts[name] = parts[name][: draw.randrange(len(parts[name]) + 1)]


def _laid_out(manifest: dict[str, Any], parts: dict[str, bytes]) -> tuple[dict[str, Any], bytes]:
    """The manifest with a table of entries that fits, and the entries."""
    table, data = [], bytearray()
    for name in sorted(parts):
        data += bytes(aligned(len(data)) - len(data))
        digest = hashlib.sha256(parts[name]).hexdigest()
        table.append({"name": name, "offset": len(data), "size": len(parts[name]), "sha256": digest})
        data += parts[name]
    return ({**manifest, "entries": table} if "entries" in manifest else manifest), bytes(data)


def _packed(manifest: dict[str, Any], data: bytes) -> bytes:
    return pack(json.dumps(manifest, ensure_ascii=False).encode("utf-8", "surrogatepass"), data)


# --- trying ----------------------------------------------------------------------------------------------


def used(path: Path) -> str:
    """Do all that is done with a bundle from elsewhere; how far it came. Raises what is no EdgeKitError."""
    from click.testing import CliRunner

    from edgekit.cli import main

    for verb in (["inspect"], ["inspect", "--json"], ["verify"], ["verify", "--json"]):
        result = CliRunner().invoke(main, [verb[0], str(path), *verb[1:]])
        if not isinstance(result.exception, (SystemExit, type(None))):
            raise result.exception
        assert result.exit_code in (0, 1, 2, 3), result.exit_code
        assert "Traceback" not in result.output
        assert all(c == "\n" or c.isprintable() for c in result.output), "a control character is printed"
    try:
        bundle = Bundle.open(path)
    except EdgeKitError:
        return "refused when opened"
    with bundle:
        end = "answers"
        try:
            bundle.verify_entries()
        except EdgeKitError:
            end = "found by verify"
        for shown in ("report", "html"):
            with contextlib.suppress(EdgeKitError):
                _ = bundle.report if shown == "report" else bundle._repr_html_()
        try:
            with Session(bundle, threads=1) as session:
                if bundle.card is not None:
                    with contextlib.suppress(EdgeKitError):
                        session.card  # noqa: B018
                if sum(abs(int(np.prod(spec.shape, dtype=object))) for spec in session.inputs) < ELEMENTS:
                    feeds = {spec.name: spec.zeros() for spec in session.inputs}
                    with contextlib.suppress(EdgeKitError):
                        session.predict(np.zeros((40, 30, 3), np.uint8))
                    session.run(feeds)
        except EdgeKitError as problem:
            end = f"{end}, {type(problem).__name__} of the session"
    return end


def outcomes(path: Path, seeds: range) -> Iterator[Outcome]:
    """Try the seeds in a process; when it dies, that is the outcome of one, and another one goes on."""
    at = seeds.start
    while at < seeds.stop:
        command = [sys.executable, "-m", "tests.bundle_mutations", str(path), str(at), str(seeds.stop)]
        worker = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert worker.stdout is not None
        for line in worker.stdout:
            yield Outcome(*json.loads(line))
            at += 1
        if worker.wait():
            end = signal.Signals(-worker.returncode).name if worker.returncode < 0 else str(worker.returncode)
            yield Outcome(at, kind_of(at), end, 0.0, f"the process ended with {end}")
            at += 1


def _work(path: Path, seeds: range) -> None:
    told = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # an engine writes to it too
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    whole = path.read_bytes()
    with Bundle.open(path) as bundle:
        manifest, data = packed_parts(bundle)
    for seed in seeds:
        signal.alarm(HANG_S)  # one that hangs dies of it
        mutation = path.parent / f"{seed}.edgekit"
        mutation.write_bytes(mutated(whole, manifest, data, seed))
        began, fault = time.perf_counter(), ""
        try:
            end = used(mutation)
        except BaseException as problem:
            end, fault = type(problem).__name__, traceback.format_exc()
        outcome = Outcome(seed, kind_of(seed), end, time.perf_counter() - began, fault)
        print(json.dumps(outcome), file=told, flush=True)
        mutation.unlink()


if __name__ == "__main__":
    _work(Path(sys.argv[1]), range(int(sys.argv[2]), int(sys.argv[3])))
    os._exit(0)  # an engine may have threads that a mutated model left hanging
