"""The page of ``edgekit export BUNDLE --web DIR``, and ``edgekit.js`` for other pages; README.md lists it."""
