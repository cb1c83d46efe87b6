"""rknn-toolkit2 in an environment of its own: it asks for numpy 1, onnx 1.18 and protobuf 4."""

from __future__ import annotations

from pathlib import Path

from edgekit.compiler.toolchains.declaration import Toolchain

VERSION = "rknn-toolkit2 2.5.0"
TERMS = """\
rknn-toolkit2 2.5.0 is Rockchip's, under the RKNN SDK licence:
- use is limited to applications that are compatible with Rockchip's products;
- it must not be decompiled, reverse engineered, or passed on;
- the licence is governed by the law of the People's Republic of China, and Rockchip can end it at any time.
This is a summary. The licence is LICENSE in github.com/airockchip/rknn-toolkit2. The packages that it needs
are under licences of their own.
"""
TOOLCHAIN = Toolchain(
    name="rknn",
    purpose="compiles for Rockchip's NPUs, and simulates them",
    python="3.11",
    platform="linux-x86_64",
    lock=Path(__file__).with_name("toolchain.lock"),
    imports=("rknn.api",),
    terms=TERMS,
    size_mb=1500,
    memory_mb=6000,
    hint="torch's CPU builds are on PyTorch's own index (https://pytorch.org/get-started/locally/): name it"
    " in PIP_EXTRA_INDEX_URL",
)
