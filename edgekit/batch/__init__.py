"""Many builds as one: ``edgekit build-all``, and ``edgekit rebuild`` of what is there already."""
