"""The live camera: frames in, boxes, tracks, alerts and a page out. ``watch.py`` puts the parts together."""
