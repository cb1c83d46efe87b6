"""Cost of instructions on Cortex-A72, Cortex-A76 and Cortex-X1: the pipelines that they need.

From LLVM's scheduling models (llvm/lib/Target/AArch64), which name the section of Arm's Software Optimization
Guide that each row was taken from:

    Cortex-A72   AArch64SchedA57.td, "Cortex A57 Software Optimization Guide" (UAN 0015); LLVM uses it for
                 cortex-a72 (AArch64Processors.td). 64-bit vector pipelines: 128 bits of float take both
    Cortex-A76   AArch64SchedNeoverseN1.td, "Arm Neoverse N1 Software Optimization Guide": the server form of
                 this core, two vector pipelines of 128 bits
    Cortex-X1    AArch64SchedNeoverseV1.td, "Arm Neoverse V1 Software Optimization Guide": the server form of
                 this core, four vector pipelines of 128 bits; its SVE and i8mm are not on Cortex-X1

Pipelines by letter: ``V`` any vector pipeline; ``W`` those that multiply integers, convert and divide; ``X``
those that shift; ``L`` load; ``S`` store; ``I`` integer; ``M`` integer multiply; ``B`` branch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edgekit.compiler.evaluate.arm import instructions as a64

WITHIN = {"W": "V", "X": "V", "M": "I"}
"""Pipelines that are part of a group: what needs them takes a turn of the group."""


@dataclass(frozen=True)
class Processor:
    """Processor whose cycles can be estimated.

    Attributes:
        title: Name in Arm's spelling.
        qemu: Name of the processor that qemu emulates: one with the same instruction sets.
        part: Part number in the register MIDR_EL1, by which XNNPACK selects kernels.
        variant: Variant and revision in the same register.
        features: Instruction sets, by their names in Linux's /proc/cpuinfo.
        decoded: Instructions decoded per cycle.
        pipelines: Letter -> number of pipelines.
        costs: Class of instructions -> a letter for each micro-operation.
    """

    title: str
    qemu: str
    part: int
    variant: tuple[int, int]
    features: str
    decoded: int
    pipelines: Mapping[str, int]
    costs: Mapping[str, str]

    def cycles(self, counts: Mapping[str, float]) -> float:
        """Return a lower bound of cycles for instruction counts by class, from the busiest pipelines.

        Latencies, mispredicted branches and misses of the caches are left out.
        """
        turns = dict.fromkeys(self.pipelines, 0.0)
        for name, count in counts.items():
            for letter in self.costs[name]:
                turns[letter] += count
        for part, group in WITHIN.items():
            turns[group] += turns[part]
        busiest = max(turns[letter] / number for letter, number in self.pipelines.items())
        return max(busiest, sum(counts.values()) / self.decoded)


_SCALAR = {a64.BRANCH: "B", a64.INTEGER: "I", a64.INTEGER_MULTIPLY: "M", a64.LOAD: "L"}
_LOADS = {a64.LOAD_2: "LL", a64.LOAD_3: "LLL", a64.LOAD_4: "LLLL", a64.LOAD_LANE: "LV"}
_ARMV8_0 = "fp asimd evtstrm crc32 cpuid"
_ARMV8_2 = (
    "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp"
)

_A72 = {
    **_SCALAR,
    **_LOADS,
    a64.FMA_Q: "VV",
    a64.FMA_D: "V",
    a64.FLOAT_Q: "VV",
    a64.FLOAT_D: "V",
    a64.CONVERT_Q: "VV",
    a64.CONVERT_D: "V",
    a64.DIVIDE_Q: 34 * "W",  # taken as not pipelined: 34 cycles of latency
    a64.DIVIDE_D: 17 * "W",
    a64.WIDENING: "W",
    a64.MULTIPLY_Q: "WW",
    a64.MULTIPLY_D: "W",
    a64.SHIFT: "X",
    a64.PERMUTE: "VVV",
    a64.FROM_GENERAL: "LV",
    a64.TO_GENERAL: "IL",
    a64.VECTOR: "V",
    a64.STORE: "S",
    a64.STORE_VECTOR: "S",
    a64.STORE_Q: "ISS",
    a64.STORE_2Q: "ISSSS",
}
_A76 = {
    **_SCALAR,
    **_LOADS,
    a64.DOT: "V",
    a64.FMA_Q: "V",
    a64.FMA_D: "V",
    a64.FLOAT_Q: "V",
    a64.FLOAT_D: "V",
    a64.CONVERT_Q: "WW",
    a64.CONVERT_D: "W",
    a64.DIVIDE_Q: 7 * "W",
    a64.DIVIDE_D: 7 * "W",
    a64.WIDENING: "W",
    a64.MULTIPLY_Q: "WW",
    a64.MULTIPLY_D: "W",
    a64.SHIFT: "X",
    a64.PERMUTE: "V",
    a64.FROM_GENERAL: "M",
    a64.TO_GENERAL: "X",
    a64.VECTOR: "V",
    # Stores take a load pipeline for the address.
    a64.STORE: "L",
    a64.STORE_VECTOR: "LV",
    a64.STORE_Q: "LLVV",
    a64.STORE_2Q: "LLLLVV",
}
_X1 = {
    **_A76,
    a64.MULTIPLY_Q: "W",
    # Two of the three load pipelines take stores.
    a64.STORE: "S",
    a64.STORE_VECTOR: "SV",
    a64.STORE_Q: "SV",
    a64.STORE_2Q: "SSV",
}

PROCESSORS: Mapping[str, Processor] = {
    "cortex-a72": Processor(
        "Cortex-A72",
        "cortex-a72",
        0xD08,
        (0, 3),
        _ARMV8_0,
        3,
        {"V": 2, "W": 1, "X": 1, "L": 1, "S": 1, "I": 2, "M": 1, "B": 1},
        _A72,
    ),
    "cortex-a76": Processor(
        "Cortex-A76",
        "cortex-a76",
        0xD0B,
        (4, 1),
        _ARMV8_2,
        4,
        {"V": 2, "W": 1, "X": 1, "L": 2, "I": 3, "M": 1, "B": 1},
        _A76,
    ),
    "cortex-x1": Processor(
        "Cortex-X1",
        "cortex-a76",
        0xD44,
        (1, 0),
        _ARMV8_2,
        8,
        {"V": 4, "W": 2, "X": 2, "L": 3, "S": 2, "I": 4, "M": 2, "B": 2},
        _X1,
    ),
}
"""Name, as in a profile's fact ``cpu`` -> processor. Instructions decoded: A57 "3-way decode and dispatch"
(its model's comment); A76 4 (https://en.wikichip.org/wiki/arm_holdings/microarchitectures/neoverse_n1, which
the model refers to); X1 8 (IssueWidth of the V1's model: macro-operations from its cache)."""
