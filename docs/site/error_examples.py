"""One message of each error class and of each code of a finding, and what to do about it.

Messages are those that the source has: tests/docs/test_site.py looks for their first lines there.
"""

from __future__ import annotations

from typing import NamedTuple

from edgekit.errors import MissingDependency


class Example(NamedTuple):
    """A message as it is printed, and the remedy as Markdown."""

    message: str
    remedy: str


CLASSES = {
    "UsageError": Example(
        "report.pdf must be an HTML page; end its name in .html",
        "Change the option or argument that the message names. [Commands](commands.md) lists them all.",
    ),
    "ContextLengthError": Example(
        "the prompt has 2100 tokens, and the context is 2048: shorten it, or open the session with a larger "
        "context",
        "Shorten the prompt, or open the session (`edgekit serve --context`) with a larger context. "
        "[Language models](language-models.md) says what it costs.",
    ),
    "ModelError": Example(
        "notes.onnx: is not an ONNX model: it is not valid protobuf, or it is truncated (3 bytes): export "
        "or download it again",
        "Export the model again, or give what the message asks for, e.g. `--shape`. "
        "[Other frameworks](importing.md) says which files can be opened.",
    ),
    "CrashError": Example(
        "model.onnx: its process was killed by SIGFPE\n"
        "  at reference, node halves (Div)\n"
        "  the model may be hostile or malformed, or an engine has a bug; this process is unharmed",
        "Do not use a model that you do not trust. If you made it, look at the node and report it: an engine "
        "has a bug. [Security](security.md#containment) has the limits, and how to raise them.",
    ),
    "UnsupportedError": Example(
        "1 of 1 nodes of custom.onnx can't run on tflite\n"
        "  EK1001  Swish2_0  my.ops.Swish2  tflite does not support my.ops.Swish2 at opset 23; build it "
        "for ort, or see docs/add-an-op.md\n"
        "nothing was written",
        "Every node has a code and, where there is one, its own remedy: see [findings](#findings). "
        "Leave the target out, or change the nodes in the model.",
    ),
    "CardError": Example(
        "card.toml has no title; it must be a text",
        "Correct the line of the card that the message names; [Cards](cards.md) lists all keys. "
        "`edgekit model card MODEL -o card.toml` drafts one that fits the model.",
    ),
    "ProfileError": Example(
        "unknown target 'rpi6'; did you mean rpi5 or rpi4? Run edgekit targets for a list",
        "Choose a name that `edgekit targets` lists. A profile of your own: correct the fact that is named.",
    ),
    "SampleError": Example(
        "no samples at photographs: the folder is empty; pass a folder or a glob of .npz, .npy, .jpg, ...",
        "Give samples that the model takes: arrays by the names of its inputs or, with a card, images, "
        "videos, sounds or texts.",
    ),
    "BuildFault": Example(
        "model.onnx could not be built for any target\n"
        "  ort  RuntimeError: boom; traceback: /tmp/edgekit/ort-compile.txt\n"
        "  nothing was written; please report this with the traceback",
        "This is a bug, of EdgeKit or of the engine. Report it with the files that are named; meanwhile try "
        "another target or precision.",
    ),
    "BundleError": Example(
        "detector.edgekit is not a bundle that EdgeKit can open\n"
        "  header: it declares 11344 bytes, and the file has 3000\n"
        "  copy or download it again from where it was built",
        "Copy the bundle again from where it was built. If it was made by a newer EdgeKit, update this one.",
    ),
    "SignatureError": Example(
        "detector.edgekit is not signed: detector.edgekit.sig does not exist",
        "Copy the signature along with the bundle, or sign it with `edgekit release sign`. If the file was "
        "changed since, get it again; do not trust it. [Security](security.md) says how keys are chosen.",
    ),
    "ToolchainError": Example(
        "npm took more than 600 s to fetch onnxruntime-web@1.23.0",
        "Run the npm command that the message names on a machine with a network, and pass the file with "
        "`--npm-package` ([browser](browser.md)).",
    ),
    "UpdateError": Example(
        "the update is refused: a version is older than one that was seen before, or does not belong\n"
        "  New timestamp version 4 must be >= 7",
        "The device goes on with what it has. If the repository was restored from an old copy, publish "
        "again; if not, somebody is tampering. [Updates](publishing.md) has each reason.",
    ),
    "MissingDependency": Example(
        MissingDependency("openvino", "running an OpenVINO variant", extra="openvino").for_bundles,
        "Run the pip line at the end of the message. `edgekit targets` lists what is installed.",
    ),
    "DeviceError": Example(
        "pi@camera-7 can't be reached: nothing listens there: start sshd on the device, or check the port",
        "Do what the message says, then run the same command again: it does not resend what the device has "
        "received. See [figures from a device](devices.md).",
    ),
    "BusyError": Example(
        "the queue is full (32 requests); retry later, or raise limit",
        "Send fewer requests, retry later, or raise `limit` or the deadline: [streams](runtime-latency.md).",
    ),
    "EngineError": Example(
        "output boxes of a golden vector: SNR 3.1 dB; the limit is 40.0 dB",
        "Without `strict` the next variant is used instead. `edgekit doctor` and `edgekit verify` "
        "say whether the engine works on this machine; another version of it may.",
    ),
    "EngineNotReady": Example(
        "its engine is being built on this device",
        "Wait: another variant answers meanwhile, and the `build` of the error reports the progress. "
        "See [TensorRT](tensorrt.md).",
    ),
    "NoVariantError": Example(
        "detector.edgekit has nothing to run: the build rejected all variants\n"
        "  tflite-int8: 1.42x the time of fp32\n"
        "  build it again with another target or precision, or more samples; force ships int8 as it is",
        "Each variant has its reason: install the engine that one of them needs, or build the bundle again "
        "with a target that this device has.",
    ),
    "NonFiniteOutputError": Example(
        "the decoder's logits are NaN or infinite",
        "Check the values of this input: extreme ones are the likely cause, and other inputs still get their "
        "results.",
    ),
    "RejectedInputError": Example(
        "it works on other inputs, so this input is at fault",
        "Check the values of this input, e.g. that indices are in range: other inputs still get their "
        "results.",
    ),
}

CODES = {
    "EK1001": Example(
        "tflite does not support my.ops.Swish2 at opset 23; it is in the private domain my.ops; export the "
        "model without it, or with its definition as an ONNX function in the file",
        "Build for a target that has the operator ([Operators](ops.md)), replace it in the model, or "
        "[add it](add-an-op.md).",
    ),
    "EK1002": Example(
        "attribute beta is not supported; build it for ort, or see docs/add-an-op.md",
        "Export the model without what is named, or build for a target that takes it.",
    ),
    "EK1003": Example(
        "the shape of image is [1,3,?,?], not static; set it with --shape image=...",
        "Give the shape with `--shape`. If it depends on the data, cut the model before that node, or build "
        "it for ort.",
    ),
    "EK1004": Example(
        "x is BFLOAT16, which TFLite does not support; export the model in float32",
        "Cast it in the model, or export the model in float32.",
    ),
    "EK1005": Example(
        "with them, model.onnx: output y has no fixed shape: the output shape of node mine (Mine) cannot be "
        "inferred; cut the model before that node",
        "Give your own shapes with `--shape`. If the message names another cause, remove it first.",
    ),
    "EK1099": Example(
        "RuntimeError: boom; traceback: /tmp/edgekit/ort-check.txt",
        "This is a bug; report it with the file that is named. The other targets are checked all the same.",
    ),
    "EK1101": Example(
        "XNNPACK does not support MAXIMUM of int8; a plain kernel runs it",
        "Nothing, if the time is short: `edgekit explain` says what the node costs. Otherwise replace the "
        "operator in the model.",
    ),
    "EK1102": Example(
        "0.8 kB are transposed: Conv takes its data channels last, and it is stored as in the source",
        "Nothing, if the time is short: `edgekit explain` says what it costs. Otherwise move the reshape or "
        "transpose in the model.",
    ),
    "EK1103": Example(
        "quantize and dequantize need iOS 17; coreml is iOS 16; the package is for iOS 17",
        "Nothing, if your devices have that version; otherwise build in fp16.",
    ),
    "EK1104": Example(
        "not checked: " + MissingDependency("coremltools", "Core ML", extra="coreml").for_bundles,
        "Run the pip line at the end of the message, then check again.",
    ),
    "EK1105": Example(
        "it is computed in float between integers: EdgeKit has no integer kernel for Softplus",
        "Replace the operator by one with an integer kernel, or keep the region in float on purpose: "
        "see [int8](quantization.md).",
    ),
    "EK1106": Example(
        "integers are given another scale, by a QUANTIZE of their own: "
        "scale 0.0503, zero point 3 to scale 0.1, zero point 3",
        "Nothing, mostly: the report has its price. It goes away when the inputs of the node have one range.",
    ),
    "EK1107": Example(
        "not fixed in the model, so these were assumed: batch 1 of image; to choose them: --shape "
        "image=1x3x8x8",
        "Give `--shape` if another size is wanted.",
    ),
    "EK1108": Example(
        "it is float64, but computed in float32; so are 1 more; export the model in float32",
        "Export the model in float32. Check the SNR of the variant in the report if it must stay as it is.",
    ),
}
