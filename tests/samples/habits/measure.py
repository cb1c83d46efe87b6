import edgekit

rows = edgekit.bench("model.edgekit", seconds=0.1)
print(rows[0]["variant"], rows[0]["p50_ms"] > 0)
print(rows)
checks = edgekit.verify("model.edgekit")
print(any(check.failed for check in checks))
print(checks)
