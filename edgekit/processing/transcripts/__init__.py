"""Words of transcripts: their comparison, and which of a running transcript are settled."""
