from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

import edgekit
from edgekit.processing.predictions import Detections

session = edgekit.Session[Detections]("model.edgekit")
image = Image.open("photo.jpg")
stored = BytesIO()
image.save(stored, "PNG")
pixels = np.asarray(image)
items = ["photo.jpg", Path("photo.jpg"), image, pixels, pixels.tolist(), stored.getvalue()]
boxes = [session.predict(item).boxes for item in items]
print(len(boxes), all(np.array_equal(box, boxes[0]) for box in boxes))
print(np.array_equal(session(pixels[:, :, ::-1], "bgr").boxes, boxes[0]))
