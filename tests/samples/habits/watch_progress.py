import edgekit
from edgekit.system.progress import Stage

stages: list[str] = []


def watch(stage: Stage) -> None:
    if stage.seconds is not None and stage.detail:
        stages.append(str(stage).split()[0])


edgekit.build("model.onnx", targets="ort", progress=watch)
print(stages)
