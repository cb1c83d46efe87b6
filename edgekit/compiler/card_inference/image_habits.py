"""Image preprocessing of model families, taken from the projects that they come from."""

from __future__ import annotations

from dataclasses import dataclass, replace

Numbers = tuple[float, ...]

IMAGENET_MEAN, IMAGENET_STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
"""ImageNet's pixel statistics, RGB, 0 to 255: torchvision's (.485, .456, .406), (.229, .224, .225) x 255."""
RAW: tuple[Numbers, Numbers] = (0.0,), (1.0,)
ZERO_TO_ONE: tuple[Numbers, Numbers] = (0.0,), (255.0,)
MINUS_ONE_TO_ONE: tuple[Numbers, Numbers] = (127.5,), (127.5,)
IMAGENET: tuple[Numbers, Numbers] = IMAGENET_MEAN, IMAGENET_STD


@dataclass(frozen=True)
class Habits:
    """Image preprocessing of one family of models.

    Attributes:
        origin: Name of the family, for the card's comments, e.g. ``Ultralytics``.
        colour, resize, place, pad, rounding, crop, antialias: Card values; "" and None: the card's default.
        pixels: Mean and std in units of pixels from 0 to 255, in RGB order; one number is for all channels.
        size: Height and width of the picture if the model's are dynamic.
        certain: Whether the model names this family. Otherwise the card's lines are guesses.
        is_stated: Whether a file beside the model states all of it, so that nothing is measured.
        doubt: Behaviour that a card can't describe; the line of ``resize`` is then a guess.
    """

    origin: str
    colour: str = "RGB"
    resize: str = "stretch"
    place: str = ""
    pad: int = 0
    rounding: str = ""
    crop: float = 1.0
    antialias: bool = False
    pixels: tuple[Numbers, Numbers] = ZERO_TO_ONE
    size: tuple[int, int] | None = None
    certain: bool = True
    interpolation: str = "linear"
    is_stated: bool = False
    doubt: str = ""

    @property
    def raw(self) -> bool:
        return self.pixels == RAW


ULTRALYTICS = Habits(
    "Ultralytics", resize="letterbox", place="center", pad=114, rounding="nearest", size=(640, 640)
)
ULTRALYTICS_CLASSIFY = Habits(
    "Ultralytics", resize="resize-crop", rounding="nearest", antialias=True, size=(224, 224)
)
YOLOX = Habits("YOLOX", "BGR", "letterbox", "top-left", 114, pixels=RAW, size=(640, 640))
CENTERFACE = Habits("CenterFace", pixels=RAW, size=(640, 640))
TENSORFLOW_SSD = Habits("TensorFlow's SSD", pixels=MINUS_ONE_TO_ONE, size=(300, 300))
TORCHVISION = Habits(
    "torchvision", resize="resize-crop", rounding="nearest", crop=0.875, antialias=True, pixels=IMAGENET,
    size=(224, 224), certain=False,
)  # fmt: skip
KERAS = Habits("Keras", size=(224, 224), certain=False)
PADDLE_CLAS = replace(TORCHVISION, origin="PaddleClas", rounding="")
PADDLE_TEXT_LINE = Habits("PaddleOCR", "BGR", "fit-height", pad=128, pixels=MINUS_ONE_TO_ONE, size=(48, 192))
PADDLE_TEXT_FINDER = Habits("PaddleOCR", "BGR", "letterbox", "top-left", pixels=IMAGENET, size=(640, 640))
PADDLE_LINE_READER = replace(PADDLE_TEXT_LINE, size=(48, 320))
LINE_READER = replace(PADDLE_LINE_READER, certain=False)
MEDIAPIPE = Habits("MediaPipe", resize="letterbox", place="center", pixels=ZERO_TO_ONE)
MEDIAPIPE_SIGNED = replace(MEDIAPIPE, pixels=MINUS_ONE_TO_ONE)
MAPS = Habits("most networks for masks", size=(256, 256), certain=False)
PICTURES = Habits("most networks from picture to picture", size=(256, 256), certain=False)
SEGMENTERS = Habits("torchvision's segmenters", pixels=IMAGENET, size=(512, 512), certain=False)
MOVENET = Habits("MoveNet", resize="letterbox", place="center", pixels=RAW, size=(192, 192))
DETR = Habits("DETR", pixels=IMAGENET, size=(800, 800), certain=False)
RTDETR = Habits("RT-DETR", pixels=ZERO_TO_ONE, size=(640, 640))
CENTERNET = Habits(
    "CenterNet", "BGR", "letterbox", "center", size=(512, 512), certain=False,
    pixels=((119.85, 113.985, 104.04), (70.89, 69.87, 73.695)),
)  # fmt: skip
NANODET = Habits("NanoDet", "BGR", pixels=IMAGENET, size=(416, 416))
FASTESTDET = Habits("FastestDet", "BGR", pixels=ZERO_TO_ONE, size=(352, 352))
ARCFACE = Habits("ArcFace", pixels=MINUS_ONE_TO_ONE, size=(112, 112), certain=False)
UNKNOWN = Habits("most networks", size=(640, 640), certain=False)
NO_PICTURE = Habits("no picture")
