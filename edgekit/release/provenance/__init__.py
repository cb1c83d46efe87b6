"""What is told of a bundle to tools that know no bundles: where it is from, and what is in it.

slsa                 an in-toto statement with SLSA's build provenance, version 1
bill_of_materials    a CycloneDX 1.6 bill of materials with model cards (ML-BOM)
attestation          both signed with the keys of ``edgekit sign``, and that checked

All is from the manifest, so the same bundle gives the same bytes, and no clock and no machine is in it.
"""
