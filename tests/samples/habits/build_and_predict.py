import edgekit

bundle = edgekit.build("model.onnx", targets="ort", card="card.toml", samples="photos/", progress=False)
bundle.save("detector.edgekit")

with edgekit.open("detector.edgekit") as session:
    for box in session.predict("photo.jpg"):
        print(box.label, box.score > 0.9, box.box)
