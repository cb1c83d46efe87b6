import edgekit

draft = edgekit.draft_card("model.onnx")
print(draft.card.inputs.keys())
bundle = edgekit.build("model.onnx", targets=["ort"], card=draft)
print(bundle.card is not None, [finding.code for finding in edgekit.check("model.onnx", "ort")])
