"""A webdataset script on brimful: only the import is another one. webdataset_script.py 'train-{000000..000146}.tar'

Shards with the fields jpg and cls. It prints what runs natively, and the rate of an epoch.
"""

import sys
import time

from torchvision import transforms

import brimful.webdataset as wds

BATCH, WORKERS = 64, 4


def main() -> None:
    augment = transforms.Compose(
        [
            transforms.RandomResizedCrop(224),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ]
    )
    dataset = (
        wds.WebDataset(sys.argv[1], shardshuffle=100, nodesplitter=wds.split_by_node)
        .shuffle(1000)
        .decode("pil")
        .to_tuple("jpg;png", "cls")
        .map_tuple(augment, None)
        .batched(BATCH)
    )
    loader = wds.WebLoader(dataset, batch_size=None, num_workers=WORKERS)
    print(loader.explain())
    for epoch in range(2):
        begin, count = time.perf_counter(), 0
        for _images, labels in loader:
            count += len(labels)
        print(f"epoch {epoch}: {count} images, {count / (time.perf_counter() - begin):.0f} images/s")


if __name__ == "__main__":
    main()
