import edgekit

bundle = edgekit.Bundle("model.edgekit")
print(bundle.report)
print([variant.name for variant in bundle])
print(bundle["ort-fp32"].verified)
print([path.name for path in bundle.export("ort-fp32", "exported")])
bundle.report("report.html")
