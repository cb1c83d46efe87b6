"""C files for a microcontroller's app: the model as an array, and a header with its arena and kernels.

model.c   the bytes of model.tflite; C, without dependencies
model.h   sizes and scales, C; in C++ also the resolver with this model's kernels
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from edgekit.tensor_spec import Json
from edgekit_tflm.kernels import KERNELS
from edgekit_tflm.run import FILE

IN_A_ROW = 16
ALIGNMENT_BYTES = 16
"""What TFLM aligns a model and an arena to: tensorflow/lite/micro/micro_arena_constants.h."""


def export_files(
    files: Mapping[str, bytes], options: Mapping[str, Json], evidence: Mapping[str, Json], title: str
) -> dict[str, bytes]:
    """Write ``model.c`` and ``model.h``, for ``edgekit export``."""
    name = identifier(title)
    arena = (evidence.get("runner") or {}).get("arena") or {}
    header = "\n".join(_header(name, options, int(arena.get("bytes", 0)), len(files[FILE])))
    return {"model.c": _array(name, files[FILE]).encode(), "model.h": header.encode()}


def identifier(title: str) -> str:
    """Convert a title to a C identifier.

    >>> identifier("vww_96-tflm-int8"), identifier("8bit")
    ('vww_96_tflm_int8', 'model_8bit')
    """
    name = re.sub(r"\W", "_", title, flags=re.ASCII)
    return name if name[:1].isalpha() else f"model_{name}"


def _array(name: str, content: bytes) -> str:
    rows = [content[start : start + IN_A_ROW] for start in range(0, len(content), IN_A_ROW)]
    lines = [f"  {', '.join(f'0x{byte:02x}' for byte in row)}," for row in rows]
    return "\n".join(
        [
            f"/* {FILE} as an array; the model is in flash as long as this is constant. */",
            f"_Alignas({ALIGNMENT_BYTES}) const unsigned char {name}[{len(content)}] = {{",
            *lines,
            "};",
            "",
        ]
    )


def _header(name: str, options: Mapping[str, Json], arena: int, size: int) -> Iterator[str]:
    guard, upper = f"{name.upper()}_H_", name.upper()
    kernels = [KERNELS[code] for code in options["kernels"]]
    yield f"#ifndef {guard}\n#define {guard}\n"
    yield '#ifdef __cplusplus\nextern "C" {\n#endif'
    yield f"extern const unsigned char {name}[{size}];"
    yield "#ifdef __cplusplus\n}\n#endif\n"
    if arena:
        yield f"/* Bytes of the tensor arena that TFLite Micro recorded; align it to {ALIGNMENT_BYTES}. */"
        yield f"#define {upper}_ARENA_BYTES {arena}"
    else:
        yield "/* The arena was not recorded: TFLite Micro was not installed where this was built. */"
    for kind in ("inputs", "outputs"):
        for index, end in enumerate(options[kind]):
            yield from _end(f"{upper}_{kind[:-1].upper()}_{index}", end)
    yield "\n#ifdef __cplusplus"
    yield '#include "tensorflow/lite/micro/micro_mutable_op_resolver.h"\n'
    yield "/* The kernels of this model: others need not be linked. */"
    yield f"inline tflite::MicroMutableOpResolver<{len(kernels)}> {name}_resolver() {{"
    yield f"  tflite::MicroMutableOpResolver<{len(kernels)}> resolver;"
    yield from (f"  resolver.{call}();" for call in kernels)
    yield "  return resolver;\n}\n#endif"
    yield f"\n#endif  /* {guard} */\n"


def _end(prefix: str, end: Mapping[str, Json]) -> Iterator[str]:
    shape = " x ".join(str(n) for n in end["shape"])
    called = re.sub(r"[^\x20-\x7e]|[*/\\?]", "_", str(end["name"]))  # nothing that ends a comment
    yield f"\n/* {called}: {end['dtype']}, {shape} */"
    if "scale" in end:
        yield "/* real = scale * (stored - zero point) */"
        yield f"#define {prefix}_SCALE {end['scale']!r}f"
        yield f"#define {prefix}_ZERO_POINT ({end['zero_point']})"
