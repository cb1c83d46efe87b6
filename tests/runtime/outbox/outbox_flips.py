"""An outbox at rest, one bit of its file or its log flipped, and what must be true of every row after it."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from edgekit.runtime.outbox.rows import OutboxLimits
from edgekit.runtime.outbox.sinks import RowRefusedError
from tests.runtime.outbox.outbox_parts import ListSink, put_all, quick

FILES = ("rows-1.db", "rows-1.db-wal")


class AtRest(NamedTuple):
    """What a power cut left: the folder, the rows that wait by key, those that were delivered."""

    folder: Path
    waiting: dict[str, bytes]
    delivered: set[str]


def at_rest(place: Path) -> AtRest:
    """Rows of all kinds and sizes, in the file and in the log; some delivered, one quarantined."""
    draw = random.Random(0)
    bodies: dict[str, bytes] = {}
    sink = ListSink()
    with quick(place / "made", OutboxLimits(tries=1)) as outbox:

        def put(numbers: range) -> None:
            for number in numbers:
                key = f"key-{number:04}-"
                bodies[key] = key.encode() + draw.randbytes(draw.choice((0, 60, 300, 900, 6000)))
                put_all(outbox, key, kind=("result", "metric", "log")[number % 3], body=bodies[key])

        def refuse(parcel: object) -> None:
            raise RowRefusedError("no")

        put(range(150))
        sink.fails = refuse
        put_all(outbox, "refused", body=b"refused")
        bodies["refused"] = b"refused"
        outbox._store.record_results([], [(outbox._store.waiting(1, 1)[0], "no")])
        sink.fails = lambda parcel: None
        outbox.deliver(sink)
        outbox._store.reopen()  # all of it is in the file
        put(range(150, 200))
        outbox.deliver(sink)  # some of the file and of the log goes again
        put(range(200, 205))
        shutil.copytree(place / "made", place / "at-rest")
    assert (place / "at-rest" / FILES[1]).stat().st_size > 100_000
    delivered = set(sink.keys)
    return AtRest(place / "at-rest", {k: b for k, b in bodies.items() if k not in delivered}, delivered)


def flip(folder: Path, draw: random.Random) -> tuple[str, int]:
    """Flip one bit of the file, of its two first pages (the schema, the table's root) or of the log. Return
    the file and the bit's number."""
    name = FILES[draw.randrange(2)]
    size_bytes = (folder / name).stat().st_size if draw.random() < 0.8 or name == FILES[1] else 2 * 4096
    bit = draw.randrange(8 * size_bytes)
    content = bytearray((folder / name).read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    (folder / name).write_bytes(content)
    return name, bit


def after_a_flip(made: AtRest, place: Path, seed: int) -> Counter[str]:
    """Flip a bit, open, deliver all, and that twice.

    Returns:
        What happened: ``rebuilt``, ``damaged``, ``missing`` and ``again`` count rows or files.

    Raises:
        AssertionError: a row is lost without a count, sent again at each start, or is not what was put in.
    """
    folder = place / "flipped"
    shutil.copytree(made.folder, folder)
    name, bit = flip(folder, random.Random(seed))
    where = f"seed {seed}: bit {bit} of {name}"
    sent: list[list[str]] = []
    for _ in range(2):
        sink = ListSink()
        with quick(folder) as outbox:
            outbox.release()
            while (delivery := outbox.deliver(sink)).delivered:
                pass
            assert not delivery.down, f"{where}: {delivery.down}"
            counts = outbox.counts()
            assert counts["waiting"] == counts["disk_errors"] == 0, f"{where}: {counts}"
            put_all(outbox, f"new{len(sent)}")
            outbox.deliver(new := ListSink())
            assert new.keys == [f"new{len(sent)}"], where
        for parcel in sink.parcels:
            assert made.waiting.get(parcel.key, parcel.body) == parcel.body, f"{where}: {parcel.key}"
        sent.append(sink.keys)
    assert sent[1] == [], f"{where}: {len(sent[1])} rows sent again at the second start"
    assert len(sent[0]) == len(set(sent[0])), where
    assert set(sent[0]) <= set(made.waiting) | made.delivered, where
    missing = set(made.waiting) - set(sent[0])
    assert not missing or counts["rebuilt"] or counts["damaged"], f"{where}: {missing} not counted"
    shutil.rmtree(folder)
    return Counter(
        rebuilt=counts["rebuilt"],
        damaged=counts["damaged"],
        missing=len(missing),
        again=len(made.delivered & set(sent[0])),
    )
