"""Makes open_clip's data loader, as it is, read a tiny shard set: one line before its import is all that changes.

Needs `pip install open_clip_torch pandas`; webdataset need not be there.
"""

import sys
import tempfile
from types import SimpleNamespace

import numpy

import brimful.webdataset

brimful.webdataset.install()

try:
    import open_clip
    from open_clip_train.data import get_wds_dataset
except ImportError as error:
    sys.exit(f"{error}: pip install open_clip_torch pandas")

SHARDS, SAMPLES, BATCH = 4, 16, 8


def main() -> None:
    rng = numpy.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        pattern = f"{folder}/pairs-%04d.tar"
        with brimful.webdataset.ShardWriter(pattern, maxcount=SAMPLES, verbose=0) as sink:
            for number in range(SHARDS * SAMPLES):
                image = rng.integers(0, 256, (64, 80, 3), dtype=numpy.uint8)
                sink.write({"__key__": f"{number:06d}", "jpg": image, "txt": f"picture number {number}"})
        shards = f"{folder}/pairs-{{0000..{SHARDS - 1:04d}}}.tar"
        arguments = SimpleNamespace(
            train_data=shards,
            val_data=shards,
            train_num_samples=SHARDS * SAMPLES,
            val_num_samples=SHARDS * SAMPLES,
            train_data_upsampling_factors=None,
            dataset_resampled=False,
            batch_size=BATCH,
            workers=2,
            world_size=1,
            seed=0,
        )
        tokenizer = open_clip.get_tokenizer("RN50")
        for is_train in (True, False):
            preprocess = open_clip.image_transform(32, is_train=is_train)
            data = get_wds_dataset(arguments, preprocess, is_train, tokenizer=tokenizer)
            for epoch in range(2):
                data.set_epoch(epoch)
                shapes = [tuple(images.shape) for images, texts in data.dataloader]
                print(
                    f"{'training' if is_train else 'validation'}, epoch {epoch}: {len(shapes)} batches of {shapes[0]}"
                )


if __name__ == "__main__":
    main()
