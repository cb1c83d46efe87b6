"""Everything between a finished bundle and the devices that run it.

updates     signed update channels, and the device's side of them
fleet       rollouts judged by the reports of devices
provenance  SLSA provenance and CycloneDX bills of materials
export      plain engine files, Triton
"""
