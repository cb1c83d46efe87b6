"""Bundle metadata in standard formats (SLSA, CycloneDX): its origin and its contents.

slsa                 an in-toto statement with SLSA's build provenance, version 1
bill_of_materials    a CycloneDX 1.6 bill of materials with model cards (ML-BOM)
attestation          signs both with the keys of ``edgekit release sign``, and checks the signatures

All data is from the manifest, without timestamps or machine names, so the same bundle gives the same bytes.
"""
