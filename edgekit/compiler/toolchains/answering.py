"""The child's end of a serving process: answer requests until stdin ends.

    python -I answering.py SCRIPT.py FOLDER

So the Python of a toolchain runs it, which can't import EdgeKit. The script has ``answer(request, folder) ->
dict``; it may keep loaded objects in its own globals. A line on stdin is a request in JSON. A line on stdout
reports that the response is in FOLDER, in answer.json.
"""

import json
import os
import runpy
import sys
import traceback
from functools import lru_cache
from typing import Any, Callable  # noqa: UP035 - a toolchain's Python may be older than EdgeKit's


def serve(answer: Callable[[Any, str], Any], folder: str) -> None:
    """Answer requests, each by the dict that ``answer(request, folder)`` returns."""
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what compilers and frameworks print is no answer
    for line in sys.stdin:
        try:
            response = answer(json.loads(line), folder)
        except Exception as problem:  # a compiler may raise anything
            traceback.print_exc()
            response = {"error": f"{type(problem).__name__}: {problem}"}
        sys.stdout.flush()
        sys.stderr.flush()
        with open(os.path.join(folder, "answer.json"), "w", encoding="utf-8") as file:
            json.dump(response, file)
        channel.write("done\n")
        channel.flush()


def main(script: str, folder: str) -> None:
    """Load the script at the first request, so that an error of it is answered."""
    load = lru_cache()(lambda: runpy.run_path(script)["answer"])
    serve(lambda request, folder: load()(request, folder), folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # libraries of compilers have crashed when they were unloaded
