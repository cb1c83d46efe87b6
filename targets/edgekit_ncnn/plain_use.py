"""Settings for use of the files without EdgeKit: those that they were verified with.

ncnn reads no such setting from a .param file, so a README states it.
"""

from __future__ import annotations

from collections.abc import Mapping

from edgekit.tensor_spec import Json
from edgekit_ncnn.run import BIN_FILE, PARAM_FILE, SETTINGS


def plain_use(options: Mapping[str, Json], files: Mapping[str, str]) -> str:
    """Return the text of a README next to the exported files: name in the artifact -> exported name."""
    settings = "\n".join(f"    net.opt.{name} = {value}" for name, value in SETTINGS.items())
    blobs = "\n".join(
        f"    input   {name}: blob {blob}, {'x'.join(map(str, stored))}"
        for name, (blob, stored) in options["inputs"].items()
    )
    results = "\n".join(f"    output  {name}: blob {blob}" for name, blob in options["outputs"].items())
    return f"""\
These files were verified with the settings below. Without them ncnn rounds values to float16 and
computes in it where the processor can: its outputs are others than those that were verified.

    import ncnn
    net = ncnn.Net()
{settings}
    net.load_param("{files[PARAM_FILE]}")
    net.load_model("{files[BIN_FILE]}")

Blobs have no batch axis; the outermost axis is first:

{blobs}
{results}

Give ncnn inputs of exactly these shapes: it does not check them.
"""
