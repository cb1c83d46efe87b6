"""Known families of TFLite external delegates. None was run on its device: no NPU was available.

Install lines, options and faults are read from the vendors' pages and issue trackers. Only Teflon's library
was loaded (on emulated arm64, without its device).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath

from edgekit.target.accelerators import Interface

PREFIXES = WORKER, IN_PROCESS = "delegate", "delegate-in-process"


@dataclass(frozen=True)
class Family(Interface):
    """The delegates of one vendor.

    Attributes:
        file: Name of the shared library, or its path.
        settings: Options that it takes.
        modules: Kernel modules whose versions are part of a verdict's key.
        faults: Known faults, by the repositories' issue numbers.
    """

    file: str = ""
    settings: str = ""
    modules: tuple[str, ...] = ()
    faults: str = ""

    def is_meant_by(self, device: str) -> bool:
        """Return whether a device means it, also as ``delegate:`` with its name or its file."""
        prefix, sign, rest = device.partition(":")
        if sign and self.file and prefix in PREFIXES:
            file = rest.partition(",")[0]
            return file == self.name or PurePath(file).name == PurePath(self.file).name
        return super().is_meant_by(device)


LINUX = ("linux",)
GUIDE = "https://developers.google.com/edge/litert/performance/implementing_delegate"
TESTED = "delegates compiled by the tests"
# fmt: off
FAMILIES = (
    Family("edgetpu", "npu", "Coral Edge TPU", LINUX,
           "libedgetpu 16.0TF2.19.1-1 of github.com/feranick/libedgetpu; Google's is built for TFLite 2.5",
           "int8; only files that edgetpu_compiler has compiled",
           "https://github.com/feranick/libedgetpu/releases", takes=("int8",),
           file="libedgetpu.so.1", settings="device=usb, pci or :N", modules=("apex", "gasket"),
           faults="edgetpu#332, #766, libedgetpu#36: a killed process can leave the device dead until "
                  "it is replugged"),
    Family("vx", "npu", "VeriSilicon (i.MX 8M Plus, Amlogic)", LINUX,
           "NXP's Linux image for i.MX 8M Plus", "int8 or float",
           "https://github.com/nxp-imx/tflite-vx-delegate-imx", file="libvx_delegate.so",
           settings="device_id, allowed_cache_mode, cache_file_path", modules=("galcore",),
           faults="tflite-vx-delegate#22 (a second model in one process crashes), #35, #210, TIM-VX#604"),
    Family("teflon", "npu", "Mesa Teflon (Vivante, Rockchip)", LINUX,
           "apt install mesa-teflon-delegate (arm64)", "int8",
           "https://docs.mesa3d.org/teflon.html", takes=("int8",),
           file="/usr/lib/teflon/libteflon.so", settings="none; TEFLON_DEBUG=verbose in the environment",
           modules=("etnaviv", "rocket"), faults="26.1.6 of Debian is built for TFLite before 2.14"),
    Family("tidl", "npu", "Texas Instruments TIDL", LINUX,
           "TI's Linux image", "int8; only with the artifacts that TI's tools have compiled for the file",
           "https://github.com/TexasInstruments/edgeai-tidl-tools", takes=("int8",),
           file="libtidl_tfl_delegate.so", settings="artifacts_folder"),
    Family("ethosu", "npu", "Arm Ethos-U65 (i.MX 93)", LINUX,
           "NXP's Linux image for i.MX 93", "int8; Vela's file, or one that it compiles itself",
           "https://github.com/nxp-imx/tflite-ethosu-delegate-imx", takes=("int8",),
           file="libethosu_delegate.so", settings="device_name, timeout", modules=("ethosu",)),
    Family("qnn", "npu", "Qualcomm Hexagon", LINUX,
           "Qualcomm's AI Engine Direct SDK", "int8",
           "https://docs.qualcomm.com/bundle/publicresource/80-63442-10/topics/overview.md",
           takes=("int8",), file="libQnnTFLiteDelegate.so", options={"backend_type": "htp"},
           settings="backend_type=htp or gpu, library_path, skel_library_dir",
           faults="tensorflow#39907, #54481"),
    Family("armnn", "any", "Arm NN (Mali, Cortex-A)", LINUX,
           "the archives of github.com/ARM-software/armnn/releases", "float or int8",
           "https://github.com/ARM-software/armnn", file="libarmnnDelegate.so",
           settings="backends=GpuAcc,CpuAcc; logging-severity", faults="armnn#656, #658"),
    Family("delegate:FILE", "any", "TFLite external delegate", LINUX,
           "any library with tflite_plugin_create_delegate, by its name or path", "of the delegate",
           GUIDE, TESTED),
    Family("delegate-in-process:FILE", "any", "TFLite external delegate, in the app's process", LINUX,
           "the same, without a worker process: a crash or a hang is the app's", "of the delegate",
           GUIDE, TESTED),
)
# fmt: on
