"""Runs timm's train.py, as it is, on a tiny shard set that brimful has written and reads.

timm_train.py train.py: the script comes from timm's repository, github.com/huggingface/pytorch-image-models, and
its library from `pip install timm`. What stands before the script on the command line is all that changes:

    python -m brimful.webdataset train.py --data-dir DIR --dataset wds/NAME ...
"""

import json
import subprocess
import sys
import tempfile

import numpy

import brimful.webdataset as wds

SHARDS, SAMPLES, CLASSES = 4, 16, 10


def write(folder: str, split: str, seed: int) -> dict:
    """Writes the shards of a split; what timm wants to know of them."""
    rng = numpy.random.default_rng(seed)
    with wds.ShardWriter(f"{folder}/{split}-%04d.tar", maxcount=SAMPLES, verbose=0) as sink:
        for number in range(SHARDS * SAMPLES):
            image = rng.integers(0, 256, (64, 80, 3), dtype=numpy.uint8)
            sink.write({"__key__": f"{number:06d}", "jpg": image, "cls": number % CLASSES})
    names = [f"{split}-{shard:04d}.tar" for shard in range(SHARDS)]
    count = SHARDS * SAMPLES
    return {"name": split, "num_samples": count, "filenames": names, "shard_lengths": [SAMPLES] * SHARDS}


def main() -> int:
    if len(sys.argv) < 2:
        print(__doc__)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        splits = {split: write(folder, split, seed) for seed, split in enumerate(("train", "validation"))}
        with open(f"{folder}/_info.json", "w") as stream:
            json.dump({"splits": splits}, stream)
        data = ["--data-dir", folder, "--dataset", "wds/tiny", "--train-split", "train", "--val-split", "validation"]
        model = ["--model", "resnet10t", "--num-classes", str(CLASSES), "--img-size", "32", "--no-prefetcher"]
        length = ["--batch-size", "8", "--epochs", "1", "--warmup-epochs", "0", "--workers", "2"]
        place = ["--device", "cpu", "--output", f"{folder}/out"]
        command = [sys.executable, "-m", "brimful.webdataset", sys.argv[1], *data, *model, *length, *place]
        return subprocess.run([*command, *sys.argv[2:]]).returncode


if __name__ == "__main__":
    sys.exit(main())
