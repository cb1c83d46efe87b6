"""The child's end: load a target's script and serve requests. Run by the Python of a toolchain.

    python -I answering.py SCRIPT.py FOLDER

EdgeKit can't be imported here. The script has ``answer(request, folder) -> dict``; it may keep loaded objects
in its own globals. A line on stdin is a request in JSON. A line on stdout reports that the response is in
FOLDER, in answer.json.
"""

import json
import os
import runpy
import sys
import traceback


def main(script: str, folder: str) -> None:
    """Serve requests until stdin ends."""
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what compilers print is no answer
    answer = None
    for line in sys.stdin:
        try:
            if answer is None:
                answer = runpy.run_path(script)["answer"]
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


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # libraries of compilers have crashed when they were unloaded
