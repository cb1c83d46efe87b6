"""Text in pictures: where it is, and what it says."""
