import numpy as np

import edgekit

rng = np.random.default_rng(0)
images = rng.random((24, 3, 32, 32))
bundle = edgekit.build("model.onnx", targets=["ort"], samples=images)
print(bundle.manifest["samples"]["origin"])
one = edgekit.build("model.onnx", targets="ort", samples=images[:1].astype(np.float32))
print(one.manifest["samples"]["origin"])
