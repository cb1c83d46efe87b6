"""Host side: one model becomes one bundle for three engines.

python samples/classify_image/host.py model.onnx card.toml photos/     # writes classifier.edgekit
"""

import sys

import edgekit

if len(sys.argv) != 4:
    sys.exit(__doc__)
model, card, photos = sys.argv[1:]
try:
    bundle = edgekit.build(model, targets=["ort", "openvino", "tflite"], card=card, samples=photos)
    print(bundle.report)
    bundle.save("classifier.edgekit")
except edgekit.EdgeKitError as error:
    sys.exit(f"error: {error}")
