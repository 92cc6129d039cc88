"""Runs torchvision's classification recipe, as it is, on a tiny image folder that brimful reads.

torchvision_recipe.py train.py: the script and its neighbours lie in references/classification of torchvision's
repository, github.com/pytorch/vision. Its loaders are torch's, so that one line before it is all that changes:

    torch.utils.data.DataLoader = brimful.DataLoader
"""

import runpy
import sys
import tempfile
from pathlib import Path

import numpy
import torch
from PIL import Image

import brimful

# The recipe counts the five best guesses, so there are as many classes.
CLASSES, IMAGES = 5, 6


class DataLoader(brimful.DataLoader):
    """brimful's own would do; this one tells what runs natively."""

    def __init__(self, *arguments, **keywords) -> None:
        super().__init__(*arguments, **keywords)
        print(self.explain())


def write(folder: Path, seed: int) -> None:
    """Writes a split as torchvision's `ImageFolder` reads it."""
    rng = numpy.random.default_rng(seed)
    for label in range(CLASSES):
        (folder / f"class{label}").mkdir(parents=True)
        for number in range(IMAGES):
            pixels = rng.integers(0, 256, (64, 80, 3), dtype=numpy.uint8)
            Image.fromarray(pixels).save(folder / f"class{label}" / f"{number}.jpg")


def main() -> int:
    if len(sys.argv) < 2:
        print(__doc__)
        return 2
    script = Path(sys.argv[1]).resolve()
    torch.utils.data.DataLoader = DataLoader
    with tempfile.TemporaryDirectory() as folder:
        for seed, split in enumerate(("train", "val")):
            write(Path(folder, split), seed)
        place = ["--data-path", folder, "--output-dir", f"{folder}/out", "--device", "cpu"]
        size = ["--train-crop-size", "32", "--val-crop-size", "32", "--val-resize-size", "40"]
        length = ["--model", "mobilenet_v3_small", "--batch-size", "6", "--epochs", "1", "--workers", "2"]
        sys.argv = [str(script), *place, *size, *length, *sys.argv[2:]]
        sys.path.insert(0, str(script.parent))
        runpy.run_path(str(script), run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
