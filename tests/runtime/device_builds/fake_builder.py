"""A builder that does as it is told: ``fake_builder.py HOW FOLDER``. Standard library only, to start fast."""

import hashlib
import json
import os
import signal
import sys
import time

CONTENT = b"engine " * 5000


def main(how: str, folder: str) -> None:
    if how == "crashes":
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "hangs":
        time.sleep(600)
    if how == "eats":
        eaten = []
        while True:
            eaten.append(bytearray(os.urandom(1 << 20)))
    if how == "fills the disk":
        sys.exit(75)
    if how == "fails":
        print("the parser refused Conv_3", file=sys.stderr)
        sys.exit(2)
    with open(os.path.join(folder, "stage"), "w") as file:
        file.write("verifying" if how == "verifies" else "building")
    if how == "verifies":
        time.sleep(0.5)
    pieces = 20 if how == "slowly" else 1
    step = len(CONTENT) // pieces
    with open(os.path.join(folder, "engine.bin"), "wb") as file:
        for at in range(0, len(CONTENT), step):
            file.write(CONTENT[at : at + step])
            file.flush()
            if how == "slowly":
                time.sleep(0.0005)
        if how == "writes short":
            file.truncate(100)
    if how == "says nothing":
        return
    result = {"sha256": hashlib.sha256(CONTENT).hexdigest(), "golden_db": 42.0}
    if how == "computes wrong numbers":
        result = {"failed": "output y: SNR -3.0 dB; fp16 needs 20 dB"}
    with open(os.path.join(folder, "result.json"), "w") as file:
        file.write(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
