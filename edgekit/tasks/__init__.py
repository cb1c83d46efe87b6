"""Tasks: the meanings of a model's outputs, a folder each.

A folder holds all of a task but the class of its predictions (``processing/predictions``), and lists it in
its ``TASK``. ``processing/task_table.py`` finds it by the name in a card.
"""
