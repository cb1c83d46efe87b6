"""24 builds on a Dask cluster of two workers, one of which is killed in the middle. Each bundle is compared
with one that is built alone.

    python -m tests.benchmarks.dask_catalogue [FOLDER]
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import edgekit
from edgekit.batch.build_job import CatalogueRow
from tests.fixtures import networks

TARGETS, PRECISIONS, MODELS = ("ort", "tflite", "openvino"), ("fp32", "fp16"), 4


def main(folder: Path) -> int:
    from distributed import Client, LocalCluster

    os.environ["EDGEKIT_CACHE"] = str(folder / "cache")
    for number in range(MODELS):
        written = networks.write(folder, (1, 3, 32, 32), networks.scores(4 + number, softmax=True))
        written.rename(folder / f"net{number}.onnx")
    targets = ", ".join(f'"{target}"' for target in TARGETS)
    precisions = ", ".join(f'"{precision}"' for precision in PRECISIONS)
    matrix = folder / "boards.toml"
    matrix.write_text(f'models = ["net*.onnx"]\ntargets = [{targets}]\nprecisions = [{precisions}]\n')
    killed: list[int] = []
    started = time.monotonic()
    with LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, local_directory=str(folder)
    ) as cluster:
        address = cluster.scheduler_address

        def progress(row: CatalogueRow, done: int, count: int) -> None:
            print(f"  {done} of {count}  {row['state']}  {row['name']}  {row['seconds']} s", flush=True)
            if done == count // 2 and not killed:
                with Client(address, set_as_default=False) as client:
                    killed.append(next(iter(client.run(os.getpid).values())))
                os.kill(killed[0], signal.SIGKILL)
                print(f"  killed worker {killed[0]}", flush=True)

        made = edgekit.build_all(matrix, on=f"dask://{address.removeprefix('tcp://')}", progress=progress)
    print(f"  {len(made.rows)} builds in {time.monotonic() - started:.0f} s")
    different = 0
    for row in made.rows:
        model = folder / f"{row['model']}.onnx"
        alone = edgekit.build(model, targets=row["targets"], precision=row["precision"])
        alone.save(folder / "alone.edgekit")
        there = (folder / "boards" / str(row["bundle"])).read_bytes()
        different += there != (folder / "alone.edgekit").read_bytes()
    print(f"  {len(made.rows) - different} of {len(made.rows)} have the bytes of single builds")
    return 0 if killed and not different and made.whole else 1


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(main(Path(sys.argv[1])))
    with tempfile.TemporaryDirectory() as temporary:
        sys.exit(main(Path(temporary)))
