"""Shapes in a picture's plane: connected components, smallest rectangles, areas of polygons, warps."""
