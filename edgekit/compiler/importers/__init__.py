"""Models of other frameworks -> ONNX: one importer a framework, found by entry point (docs/importing.md)."""
