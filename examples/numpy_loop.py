"""Reads batches as NumPy arrays, without torch.

numpy_loop.py [SHARDS]: the mean and the standard deviation of each channel, over every picture once.
"""

import numpy
import tiny

import brimful
from brimful import transforms as T


def main() -> None:
    shards = tiny.shards()
    dataset = brimful.ShardDataset(shards, fields=tiny.FIELDS, transform=T.Compose([T.Resize(32), T.CenterCrop(32)]))
    loader = brimful.Loader(dataset, batch_size=32, dtype="float32", layout="NHWC")
    total, squares, count = numpy.zeros(3), numpy.zeros(3), 0
    for images, _ in loader:  # float32 [32, 32, 32, 3], 0 to 255
        total += images.sum((0, 1, 2), dtype=numpy.float64)
        squares += numpy.square(images).sum((0, 1, 2), dtype=numpy.float64)
        count += images[..., 0].size
    mean = total / count
    deviation = numpy.sqrt(squares / count - mean**2)
    print("mean", numpy.round(mean / 255, 3), "deviation", numpy.round(deviation / 255, 3))
    print(loader.explain())
    tiny.remove(shards)


if __name__ == "__main__":
    main()
