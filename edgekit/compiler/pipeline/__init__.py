"""The build: from a model to a verified bundle, one line a stage in build_bundle.py."""
