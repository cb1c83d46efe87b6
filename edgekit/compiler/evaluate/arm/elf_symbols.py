"""Function names of a shared library, by address: its symbol table, as the ELF specification has it."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

SYMTAB, DYNSYM = 2, 11
FUNCTION = 2


class FunctionNames:
    """Names of the functions of a 64-bit little-endian ELF file.

    Without a symbol table, as in a stripped library, the exported names are used.
    """

    def __init__(self, path: Path) -> None:
        functions = sorted(_functions(path.read_bytes()))
        self._starts = [start for start, _, _ in functions]
        self._symbols = functions

    def name_at(self, address: int) -> str:
        """Return the name of the function at an address of the file's own address space, or "" if it is
        unknown."""
        index = bisect_right(self._starts, address) - 1
        if index < 0:
            return ""
        start, size, name = self._symbols[index]
        return name if not size or address < start + size else ""


def _functions(elf: bytes) -> Iterator[tuple[int, int, str]]:
    """Yield the address, size and name of each function; none if the content is not a 64-bit little-endian
    ELF file."""
    if elf[:6] != b"\x7fELF\x02\x01":
        return
    (table,) = struct.unpack_from("<Q", elf, 40)
    entry_size, count = struct.unpack_from("<HH", elf, 58)
    # name, type, flags, address, offset, size, link, info, alignment, entry size
    sections = [struct.unpack_from("<IIQQQQIIQQ", elf, table + i * entry_size) for i in range(count)]
    kinds = {section[1] for section in sections}
    table_kind = SYMTAB if SYMTAB in kinds else DYNSYM
    for section in sections:
        if section[1] != table_kind:
            continue
        names = sections[section[6]][4]
        for offset in range(section[4], section[4] + section[5], 24):
            name, info, _, _, value, size = struct.unpack_from("<IBBHQQ", elf, offset)
            if info & 0xF == FUNCTION and value:
                end = elf.index(b"\0", names + name)
                yield value, size, elf[names + name : end].decode("ascii", "replace")
