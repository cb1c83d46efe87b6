"""A runner whose outputs are compared with known ones, before it is used and from time to time.

Some accelerators are right at first and wrong later, or give wrong outputs in every other run. Golden vectors
detect what is wrong for all inputs, and cost one run. Inputs that only some values of break need the CPU.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from edgekit.errors import EngineError
from edgekit.runtime import local_timings
from edgekit.runtime.loading import golden_check
from edgekit.target import registry
from edgekit.tensor_spec import Array, Json

if TYPE_CHECKING:
    from edgekit.runtime.loading.output_checks import Golden, OutputChecks
    from edgekit.target.contract import Runner

ROUNDS = 4
"""Runs of each golden vector, in turns, before the runner is used."""
GOLDEN_EVERY, CPU_EVERY = 1000, 500
"""Runs after which a golden vector runs, and after which an input runs on the CPU too."""


class CheckedRunner:
    """Runs a variant on an accelerator.

    Args:
        runner: The variant on the accelerator.
        on_cpu: The same variant on the CPU. None if it can't run there, then only golden vectors are used.
        limits_db: Lowest SNR of each output on golden vectors. Half of it is enough on other inputs, whose
            outputs on the CPU are not exact either.

    Raises:
        EngineError: it does not reproduce the golden vectors.
    """

    def __init__(
        self,
        runner: Runner,
        on_cpu: Runner | None,
        golden: Golden,
        checks: OutputChecks,
        limits_db: Mapping[str, float],
    ) -> None:
        self.device, self.precision = runner.device, runner.precision
        self._runner, self._on_cpu = runner, on_cpu
        self._golden, self._checks, self._limits_db = golden, checks, limits_db
        self._runs, self._failed = 0, False
        if not golden:
            raise EngineError("the bundle has no golden vector that it could be compared with")
        for _ in range(ROUNDS):
            golden_check.check_golden(runner, golden, checks, limits_db)
        runners = [runner] if on_cpu is None else [runner, on_cpu]
        self.times_ms = local_timings.compare(runners, golden[0][0])

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run once.

        Raises:
            EngineError: it failed, or a check that was due did.
        """
        self._runs += 1
        if self._failed or self._runs % GOLDEN_EVERY == 0:
            vector = self._golden[self._runs // GOLDEN_EVERY % len(self._golden)]
            golden_check.check_golden(self._runner, [vector], self._checks, self._limits_db)
            self._failed = False
        try:
            outputs = self._runner.run(feeds)
            if self._on_cpu is not None and self._runs % CPU_EVERY == 0:
                self._compare(outputs, self._on_cpu.run(feeds))
        except Exception:
            self._failed = True
            raise
        return outputs

    def _compare(self, outputs: Mapping[str, Array], expected: Mapping[str, Array]) -> None:
        for name, limit_db in self._limits_db.items():
            if not np.any(expected[name]):  # no signal
                continue
            snr = golden_check.snr_db(expected[name], outputs[name])
            least_db = golden_check.GARBAGE_SHARE * limit_db
            if snr is not None and snr < least_db:
                raise EngineError(
                    f"output {name} differs from the CPU's after {self._runs} runs: SNR {snr:.1f} dB; "
                    f"the limit is {least_db:.1f} dB"
                )

    def facts(self) -> dict[str, Json]:
        """Return the facts of the runner, with the times of a run on the accelerator and on the CPU."""
        names = ("run_ms", "cpu_run_ms")
        return {**self._runner.facts(), **dict(zip(names, self.times_ms, strict=False))}

    def close(self) -> None:
        self._runner.close()
        if self._on_cpu is not None:
            self._on_cpu.close()


def checked(
    runner: Runner,
    open_runner: Callable[..., Runner],
    options: Mapping[str, Json],
    golden: Golden,
    checks: OutputChecks,
    limits_db: Mapping[str, float],
) -> CheckedRunner:
    """Return an accelerated copy that is compared with golden vectors and, if it loads there, with the CPU.

    Args:
        open_runner: Opens a variant by its ``options``.

    Raises:
        EngineError: the copy does not reproduce the golden vectors.
    """
    on_cpu = None
    plain = {name: value for name, value in options.items() if name != registry.ACCELERATOR}
    with contextlib.suppress(EngineError):  # a vendor's compiled file can't run there
        on_cpu = open_runner(options=plain)
    return CheckedRunner(runner, on_cpu, golden, checks, limits_db)
