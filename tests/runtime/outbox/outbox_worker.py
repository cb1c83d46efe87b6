"""An app with an outbox, to be killed: tells on stdout which rows it was told to be stored.

python outbox_worker.py FOLDER DELIVERED ROWS WAIT

Rows go to the file DELIVERED, a line each: key, body. Bodies are unique, so that a row that came twice under
two keys is seen. ROWS 0: until it is killed. WAIT: seconds for the disk, for each row. Ends with 0, also
where the disk took nothing; with 3 where the outbox could not be opened and said so.
"""

from __future__ import annotations

import os
import sys
from itertools import count
from pathlib import Path

from edgekit.errors import EdgeKitError
from edgekit.runtime.outbox.outbox import Outbox
from edgekit.runtime.outbox.rows import Parcel


class LineSink:
    """Appends a line in one write: whole or absent."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def send(self, parcel: Parcel) -> None:
        os.write(self._file, f"{parcel.key} {parcel.body.decode()}\n".encode())

    def close(self) -> None:
        os.close(self._file)


def main(folder: str, delivered: str, rows: int, wait_s: float) -> None:
    origin = os.urandom(6).hex()
    with Outbox(Path(folder), LineSink(delivered), commit_s=0.001) as outbox:
        for number in count() if rows == 0 else range(rows):
            key = f"{origin}-{number}"
            if outbox.put(f"{key}{'.' * (number % 7 * 300)}".encode(), "result", key).wait(wait_s):
                os.write(1, f"{key}\n".encode())


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
    except EdgeKitError as problem:
        print(problem, file=sys.stderr)
        sys.exit(3)
