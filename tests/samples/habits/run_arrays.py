import numpy as np

import edgekit

with edgekit.open("model.edgekit", engine="ort") as session:
    outputs = session.run({"image": np.ones((1, 3, 32, 32), np.float32)})
    print({name: array.shape for name, array in outputs.items()})
    print(session.active.engine.split()[0], session.fallbacks)
