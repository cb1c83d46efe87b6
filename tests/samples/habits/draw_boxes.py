import edgekit
from edgekit.processing.predictions import Detections


def count(detections: Detections) -> int:
    return len([one for one in detections if one.score > 0.5])


session = edgekit.Session[Detections]("model.edgekit", threads=1)
result = session.predict("photo.jpg", score=0.4)
result.draw("photo.jpg").save("drawn.png")
print(count(result), result)
print(repr(result), result.as_json()[0]["label"])
