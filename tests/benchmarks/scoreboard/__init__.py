"""Scoreboard: EdgeKit's variants beside those of other tools, network by network and engine by engine.

    python -m tests.benchmarks.scoreboard all          # every cell that has no result yet, then the page
    python -m tests.benchmarks.scoreboard cell YOLOX-nano ort
    python -m tests.benchmarks.scoreboard page         # docs/scoreboard.md again, from the results
    python -m tests.benchmarks.scoreboard all --retime   # times anew; what is made and scored is kept

A cell is one network on one engine. Its entries are made by the makers of ``makers.py``, each in a process
and an environment of its own, from the same 64 calibration samples. Then every entry is loaded in a process
of its own, scored on 64 to 200 other samples, and timed in turns with the others. The results are one JSON
file, a line a cell, so that a run resumes. A maker that fails is a result with its reason. A score is kept
beside its artifact, with the versions of engine and EdgeKit that it belongs to; delete ``score.json`` after a
change of a metric.

A language model is a network of another kind: its entries are of other runtimes, too, which run in
environments of their own.

networks.py      the registry: networks, cards, samples; six networks are drawn by a seed
samples.py       the sample sets
makers.py        who makes what in which environment
maker_child.py   the other tools' calls, run in their environments
judges.py        accuracy of an entry's outputs or logits
cell.py          make, score and time the entries of a cell
entry_child.py   the process of one entry
results.py       the file of results
verdict.py       ahead, front, behind
page.py          the page and its charts
"""
