"""Shapes in an image's plane: connected components, smallest rectangles, areas of polygons, warps."""
