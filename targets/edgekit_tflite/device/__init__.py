"""Device side of TFLite's external delegates; see accelerators.py."""
