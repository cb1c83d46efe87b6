"""Device side of models that write tokens: sessions, the decode loop, and the contract with decoders."""
