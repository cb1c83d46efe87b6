"""Between a frame and an answer: pictures prepared, outputs decoded, as the card says."""
