"""Estimated cycles of one run on an ARM processor: counted instructions, weighed by its pipelines.

Each function is bounded by the pipelines that its instructions need most (``Processor.cycles``): blocks of
one function overlap in an out-of-order core. Caches, memory and latencies are left out, so two files are
compared and no time is claimed.
"""

from __future__ import annotations

import re
import struct
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgekit.compiler.evaluate.arm.emulator import BasicBlock, EmulatedEngine
from edgekit.compiler.evaluate.arm.emulator_folder import emulator_folder
from edgekit.compiler.evaluate.arm.instructions import class_of
from edgekit.compiler.evaluate.arm.processors import PROCESSORS, Processor
from edgekit.compiler.evaluate.samples import Sample
from edgekit.errors import EngineError, reason_of
from edgekit.target.contract import Artifact
from edgekit.target.profile import Profile
from edgekit.tensor_spec import TensorSpec

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


MICROKERNEL = re.compile(r"xnn_(?P<family>\w+?)(?:_minmax\w*?)?_ukernel_")
"""XNNPACK's names: data types and operator, then the tile and the instructions."""
REST = "rest"


@dataclass(frozen=True)
class Estimate:
    """One run, estimated.

    Attributes:
        processor: Its title.
        instructions: Number that ran.
        cycles: Estimated.
        families: Microkernel family -> instructions and estimated cycles, the most cycles first.
        classes: Class of instructions -> number that ran.
    """

    processor: str
    instructions: int
    cycles: float
    families: dict[str, tuple[int, float]]
    classes: dict[str, int]


class Estimator:
    """Estimates artifacts of one network. Close it after use.

    Args:
        engine: Runs them.
        processor: The one that it emulates.
    """

    def __init__(self, engine: EmulatedEngine, processor: Processor) -> None:
        self.processor = processor
        self._engine = engine
        self._names: dict[str, FunctionNames] = {}

    def close(self) -> None:
        self._engine.close()

    def estimate(self, artifact: Artifact, timeout_seconds: float) -> Estimate:
        """Run an artifact under qemu and estimate its cycles.

        Raises:
            EngineError: it did not run, or not in time.
        """
        blocks = self._engine.count_blocks(artifact, timeout_seconds)
        return estimated(self.processor, ((self._function(block), block) for block in blocks))

    def _function(self, block: BasicBlock) -> str:
        """Return the name of a block's function, or the library's path if it has no name."""
        if not block.library:
            return ""
        if block.library not in self._names:
            self._names[block.library] = FunctionNames(Path(block.library))
        return self._names[block.library].name_at(block.address) or block.library


class RatioEstimator:
    """Estimates the cycles of candidates relative to their float parent, within a time limit.

    Args:
        estimator: Estimates one artifact.
        parent: The float parent's artifact; it runs before the first candidate.
        seconds: Time limit of all runs together.

    Attributes:
        failure: Why there are no more estimates; "" if there is nothing wrong.
        out_of_time: Whether the time limit was the reason.
    """

    def __init__(self, estimator: Estimator, parent: Artifact, seconds: float) -> None:
        self.failure, self.out_of_time = "", False
        self._estimator, self._parent, self._left = estimator, parent, seconds
        self._parent_cycles = 0.0

    @property
    def processor(self) -> str:
        return self._estimator.processor.title

    def close(self) -> None:
        self._estimator.close()

    def ratio(self, artifact: Artifact) -> float | None:
        """Estimate the ratio of cycles to the parent's, to 3 digits, or return None after a failure."""
        try:
            if not self._parent_cycles:
                self._parent_cycles = self._cycles(self._parent)
            return round(self._cycles(artifact) / self._parent_cycles, 3)
        except EngineError as problem:
            self.failure = self.failure or reason_of(problem, for_bundles=True)
            return None

    def _cycles(self, artifact: Artifact) -> float:
        if self.failure:
            raise EngineError(self.failure)
        end = time.monotonic() + self._left
        try:
            return self._estimator.estimate(artifact, self._left).cycles
        finally:
            self._left = end - time.monotonic()
            self.out_of_time = self._left <= 0


def ratio_estimator(
    profile: Profile,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    sample: Sample,
    parent: Artifact,
    seconds: float,
) -> RatioEstimator | None:
    """Return an estimator for a profile that names a known processor, or None if it names none or the
    emulator is not installed."""
    fact, folder = profile.facts.get("cpu"), emulator_folder()
    if fact is None or folder is None or fact.value not in PROCESSORS:
        return None
    processor = PROCESSORS[fact.value]
    engine = EmulatedEngine(folder, processor, profile.target, inputs, outputs, sample)
    return RatioEstimator(Estimator(engine, processor), parent, seconds)


def estimated(processor: Processor, blocks: Iterable[tuple[str, BasicBlock]]) -> Estimate:
    """Estimate the cycles of blocks of functions."""
    functions: dict[str, Counter[str]] = {}
    for function, block in blocks:
        counts = functions.setdefault(function, Counter())
        for word in block.words:
            counts[class_of(word)] += block.runs
    families: dict[str, tuple[int, float]] = {}
    classes: Counter[str] = Counter()
    for function, counts in functions.items():
        family = family_of(function)
        ran, cycles = families.get(family, (0, 0.0))
        families[family] = ran + counts.total(), cycles + processor.cycles(counts)
        classes += counts
    return Estimate(
        processor.title,
        classes.total(),
        sum(cycles for _, cycles in families.values()),
        dict(sorted(families.items(), key=lambda item: -item[1][1])),
        dict(classes.most_common()),
    )


def family_of(function: str) -> str:
    """XNNPACK's family of microkernels that a function belongs to.

    >>> family_of("xnn_qs8_qc8w_igemm_minmax_fp32_ukernel_4x16c4__asm_aarch64_neondot_ld128")
    'qs8_qc8w_igemm'
    >>> family_of("memcpy")
    'rest'
    """
    match = MICROKERNEL.match(function)
    return match["family"] if match else REST
