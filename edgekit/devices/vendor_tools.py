"""benchmark_model and trtexec, if a device has no Python: they time the bare engine on random inputs.

``benchmark_model`` is TensorFlow Lite's, https://ai.google.dev/edge/litert/models/measurement; ``trtexec``
NVIDIA's, https://docs.nvidia.com/deeplearning/tensorrt/latest/reference/command-line-programs.html. Neither
is brought: a tool is found on the device, on its PATH or where it is usually put. What is run, and how its
output is read, was checked against programs in their place: the tools, a phone and a Jetson were not run.
"""

from __future__ import annotations

import contextlib
import math
import re
import shlex
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from edgekit.bundle.bundle import Bundle
from edgekit.bundle.variant import Variant
from edgekit.devices import transport
from edgekit.devices.connection import end, keep_the_end
from edgekit.devices.inventory import Inventory
from edgekit.devices.transport import DeviceAddress
from edgekit.errors import DeviceError, printable
from edgekit.system import cpu
from edgekit.system.formats.plain_text import milliseconds, table

ROOTS = {"ssh": ".cache/edgekit-device/tools", "adb": "/data/local/tmp/edgekit-device"}
"""Where files are put: in the home folder, or where Android lets the shell's user write and run."""
OUTPUT_LIMIT_BYTES = 16 << 20
WARMUP_RUNS = 3


@dataclass(frozen=True)
class VendorTool:
    """Vendor's tool that runs a target's files.

    Attributes:
        target: Target whose artifacts it runs.
        file: Suffix of the artifact's file that it runs.
        default_path: Usual path, if it is not on the PATH.
        arguments: Function from ``(path, threads, seconds)`` to its arguments.
        times: Function from its output to ``p50_ms`` and others, or None if the output has no times.
    """

    name: str
    target: str
    file: str
    default_path: str
    arguments: Callable[[str, int, float], list[str]]
    times: Callable[[str], dict[str, Any] | None]


def benchmark_model_times(output: str) -> dict[str, Any] | None:
    """Parse the times of a run of benchmark_model.

    Its last line of times has averages in us: ``Inference timings in us: Init: 5685, First inference: 18535,
    Warmup (avg): 14462.3, Inference (avg): 14575.2``. Newer ones print ``median=`` and ``p95=`` as well, in
    the last line that has ``count=``; without a median ``p50_ms`` is the average, and ``p50_is`` says so.

    >>> benchmark_model_times("Init: 2000, First inference: 9000, Warmup (avg): 8e3, Inference (avg): 7500.5")
    {'load_ms': 2.0, 'first_ms': 9.0, 'p50_ms': 7.5005, 'p50_is': 'average'}
    """
    number = r"([0-9.e+]+)"
    match = re.search(rf"Init: {number}, First inference: {number}, .*Inference \(avg\): {number}", output)
    if match is None:
        return None
    load_ms, first_ms, average_ms = (float(text) / 1000 for text in match.groups())
    times: dict[str, Any] = {"load_ms": load_ms, "first_ms": first_ms}
    times |= {"p50_ms": average_ms, "p50_is": "average"}
    counts = [line for line in output.splitlines() if "count=" in line]
    for name, key in (("median", "p50_ms"), ("p95", "p95_ms"), ("count", "runs")):
        figure = re.search(rf"\b{name}={number}", counts[-1]) if counts else None
        if figure is not None:
            times[key] = int(figure[1]) if key == "runs" else float(figure[1]) / 1000
            if name == "median":
                del times["p50_is"]
    return times


def trtexec_times(output: str) -> dict[str, Any] | None:
    """Parse the times of a run of trtexec, host to host.

    >>> trtexec_times("[I] Latency: min = 1 ms, max = 3 ms, mean = 1.5 ms, median = 1.4 ms, "
    ...     "percentile(90%) = 1.8 ms, percentile(95%) = 2 ms, percentile(99%) = 2.5 ms")
    {'p50_ms': 1.4, 'p95_ms': 2.0, 'p99_ms': 2.5}
    """
    line = next((line for line in output.splitlines() if re.search(r"\bLatency: min", line)), None)
    if line is None:
        return None
    times = {}
    for name, key in (("median", "p50_ms"), ("percentile(95%)", "p95_ms"), ("percentile(99%)", "p99_ms")):
        figure = re.search(rf"{re.escape(name)} = ([0-9.e+-]+) ms", line)
        if figure is not None:
            times[key] = float(figure[1])
    return times if "p50_ms" in times else None


TOOLS = (
    VendorTool(
        "benchmark_model",
        "tflite",
        ".tflite",
        "/data/local/tmp/benchmark_model",
        lambda path, threads, seconds: [
            f"--graph={path}",
            f"--num_threads={threads}",
            f"--warmup_runs={WARMUP_RUNS}",
            "--num_runs=10",
            f"--min_secs={seconds:g}",
            f"--max_secs={10 * seconds + 60:g}",
        ],
        benchmark_model_times,
    ),
    VendorTool(
        "trtexec",
        "tensorrt",
        ".onnx",
        "/usr/src/tensorrt/bin/trtexec",
        lambda path, threads, seconds: [
            f"--onnx={path}",
            "--stronglyTyped",
            f"--duration={max(1, math.ceil(seconds))}",
        ],
        trtexec_times,
    ),
)


def look_for_tools(address: DeviceAddress) -> Inventory:
    """Return the inventory of a device without Python, from its shell."""
    search = "; ".join(
        f'p=$(command -v {t.name}) || p={t.default_path}; [ -x "$p" ] && echo "tool {t.name} $p"'
        for t in TOOLS
    )
    output = _shell(address, f"uname -sr; uname -m; {search}; echo; head -c 16384 /proc/cpuinfo; true")
    head, _, cpuinfo = output.partition("\n\n")
    system, machine, *tool_lines = [*head.splitlines(), "", ""]
    facts = cpu.parse_cpuinfo(cpuinfo)
    tools = dict(line.split(" ", 2)[1:] for line in tool_lines if line.startswith("tool "))
    return Inventory(
        machine=cpu.processor_kind(machine.strip() or "unknown"),
        cpu=cpu.name_in(facts),
        isa=cpu.extensions_in(facts),
        system=system.strip(),
        tools={tool.name: tools[tool.name] for tool in TOOLS if tool.name in tools},
    )


def bench_by_tools(
    bundle: Bundle,
    variants: Sequence[Variant],
    address: DeviceAddress,
    inventory: Inventory,
    threads: int,
    seconds: float,
    notify: Callable[[str], None],
) -> dict[str, list[dict[str, Any]]]:
    """Time variants with the vendors' tools that the device has.

    Args:
        threads: Number of threads of a run; trtexec has no such option.

    Returns:
        Tool -> rows ``{variant, engine, threads, p50_ms, ...}``.

    Raises:
        DeviceError: the device has no tool for these variants, or a tool failed; nothing is kept of it.
    """
    rows: dict[str, list[dict[str, Any]]] = {}
    for tool in TOOLS:
        path = inventory.tools.get(tool.name)
        for variant in variants if path is not None else ():
            if variant.target == tool.target:
                assert path is not None
                notify(f"{address.text}: {variant.name} by {tool.name}")
                row = _timed(bundle, variant, tool, path, address, threads, seconds)
                rows.setdefault(tool.name, []).append(row)
    if not rows:
        tool_names = {t.name for t in TOOLS for v in variants if v.target == t.target}
        has = ", ".join(sorted(tool_names)) or "a tool for these variants"
        raise DeviceError(
            f"{address.text} has neither Python 3.10 or newer nor {has}: install one of them there; tools "
            "are searched on the PATH and in their usual folders"
        )
    return rows


def render(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Format the measurements of the tools as a table."""
    cells = [
        (row["variant"], *(_time(row, key) for key in ("load_ms", "first_ms", "p50_ms", "p95_ms")), tool)
        for tool, tool_rows in rows.items()
        for row in tool_rows
    ]
    lines = table(("variant", "load", "first", "p50", "p95", "by"), cells)
    if any(row.get("p50_is") for tool_rows in rows.values() for row in tool_rows):
        lines += ["", "  note      this benchmark_model prints no median: p50 is the average"]
    return "\n".join(lines)


def _time(row: Mapping[str, Any], key: str) -> str:
    return milliseconds(row[key]) if key in row else "-"


def _timed(
    bundle: Bundle,
    variant: Variant,
    tool: VendorTool,
    path: str,
    address: DeviceAddress,
    threads: int,
    seconds: float,
) -> dict[str, Any]:
    file, entry = next((f, e) for f, e in variant.files.items() if f.endswith(tool.file))
    root = ROOTS[address.kind]
    remote_path = f"{root}/{bundle.sha256(entry)}{tool.file}"
    draft, whole = shlex.quote(f"{remote_path}.part"), shlex.quote(remote_path)
    stored_size = _shell(address, f"[ -e {whole} ] && wc -c <{whole} || echo 0")
    if stored_size.strip() != str(bundle.size_bytes(entry)):
        content = bytes(bundle.read(entry))
        written_size = _shell(
            address,
            f"umask 077; mkdir -p {shlex.quote(root)} && "
            f"cat >{draft} && wc -c <{draft} && mv {draft} {whole}",
            content,
        )
        if written_size.strip() != str(len(content)):
            raise DeviceError(f"{address.text}: {file} did not arrive whole; run the same command again")
    words = [path, *tool.arguments(remote_path, threads, seconds)]
    output = _shell(address, f"{' '.join(map(shlex.quote, words))} 2>&1")
    times = tool.times(output)
    if times is None:
        last = next((line for line in reversed(output.splitlines()) if line.strip()), "nothing")
        raise DeviceError(
            f"{address.text}: {tool.name} returned no times for {variant.name}; it printed: {last[:300]}"
        )
    executed = {"variant": variant.name, "engine": tool.name, "precision": variant.precision}
    return {**executed, "threads": threads if tool.name == "benchmark_model" else 1, **times}


def _shell(address: DeviceAddress, command: str, content: bytes = b"") -> str:
    process = transport.start(address, f"exec sh -c {shlex.quote(command)}")
    assert process.stdin is not None
    assert process.stdout is not None
    err = bytearray()
    threads = [
        threading.Thread(target=keep_the_end, args=(process.stderr, err), daemon=True),
        threading.Thread(target=_give, args=(process.stdin, content), daemon=True),
    ]
    with process:
        try:
            for thread in threads:
                thread.start()
            out = process.stdout.read(OUTPUT_LIMIT_BYTES + 1)
            if len(out) > OUTPUT_LIMIT_BYTES:
                raise DeviceError(
                    f"{address.text}: a command there prints more than {OUTPUT_LIMIT_BYTES >> 20} MB"
                )
            end(process)
        except BaseException:
            process.kill()
            raise
    for thread in threads:
        thread.join(timeout=5)
    text = printable(out.decode("utf-8", errors="replace"))
    if process.returncode == 0:
        return text
    message = printable(bytes(err).decode("utf-8", errors="replace"))
    lost = process.returncode == 255 if address.kind == "ssh" else message.startswith(("adb:", "error:"))
    if not lost:
        last = next((line for line in reversed((text + message).splitlines()) if line.strip()), "no reason")
        raise DeviceError(f"{address.text}: a command there ended with {process.returncode}: {last[:300]}")
    raise DeviceError(f"{address.text} can't be reached: {transport.why_unreachable(address, message)}")


def _give(stdin: IO[bytes], content: bytes) -> None:
    with contextlib.suppress(OSError):  # it ended; its exit code tells why
        stdin.write(content)
        stdin.close()
