"""Many builds as one: ``edgekit batch build``, and ``edgekit bundle rebuild`` of what is there already."""
