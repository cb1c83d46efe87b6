"""The directory of an untrusted TIFF file, checked before Pillow reads it.

Its entries say where their data are, so that a thousand entries can name the same megabytes, and a reader
that copies each fills the memory. Older releases of Pillow do. The format: TIFF revision 6.0, section 2.
"""

from __future__ import annotations

import struct

ENTRIES_LIMIT = 1000
"""Most entries of all directories together; a scan with all its metadata has 100."""
DIRECTORIES = {34665, 34853, 40965}
"""Tags that name a directory: EXIF, GPS and interoperability."""
SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4}
"""Type of a value -> its size in bytes; readers skip other types."""
TILE_WIDTH, TILE_LENGTH = 322, 323


def check_directory(content: bytes, pixels_limit: int) -> None:
    """Check that the directory of a TIFF file is valid.

    Args:
        content: The file.
        pixels_limit: Most pixels of a tile, which is decoded as a whole.

    Raises:
        ValueError: it is a BigTIFF, is cut short, or names more data than it has; the text says which.
    """
    order = {b"II": "<", b"MM": ">"}.get(content[:2])
    if order is None or len(content) < 8 or struct.unpack_from(f"{order}H", content, 2)[0] != 42:
        raise ValueError("it is not a plain TIFF (a BigTIFF?); save it again as TIFF or PNG")
    waiting, entries, total = [struct.unpack_from(f"{order}I", content, 4)[0]], 0, 0
    tile = [0, 0]
    while waiting:
        offset = waiting.pop()
        if offset + 2 > len(content):
            raise ValueError("its directory is truncated")
        (count,) = struct.unpack_from(f"{order}H", content, offset)
        entries += count
        if entries > ENTRIES_LIMIT or offset + 2 + 12 * count > len(content):
            raise ValueError(f"its directory is truncated, or has more than {ENTRIES_LIMIT} entries")
        for place in range(offset + 2, offset + 2 + 12 * count, 12):
            tag, kind, length, value = struct.unpack_from(f"{order}HHII", content, place)
            size = SIZES.get(kind, 0) * length
            total += size if size > 4 else 0
            if tag in DIRECTORIES:
                waiting.append(value)
            if tag in (TILE_WIDTH, TILE_LENGTH):
                short = struct.unpack_from(f"{order}H", content, place + 8)[0]
                tile[tag - TILE_WIDTH] = short if kind == 3 else value
    if total > len(content):
        raise ValueError("its directory names more data than the file has")
    if tile[0] * tile[1] > pixels_limit:
        raise ValueError(f"its tiles have {tile[0]} x {tile[1]} pixels; save it with smaller ones")
