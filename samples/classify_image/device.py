"""Device side: python samples/classify_image/device.py classifier.edgekit photo.jpg"""

import sys

import cv2

from edgekit.runtime import Session

bundle, photo = sys.argv[1:]
frame = cv2.imread(photo)
if frame is None:
    sys.exit(f"error: {photo} can't be read as an image")
with Session(bundle) as session:
    print(session.predict(frame, order="bgr"))
    print(session.active.variant, "on", session.active.engine)
