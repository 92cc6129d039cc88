"""DALI's pipelines for the job: decoded by the CPU, or "mixed" by CUDA and the JPEG engines; and its index files.

`load` is the part of the images that go to the engines, DALI's hw_decoder_load.
"""

import tarfile
from pathlib import Path

SIZE = 224
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
QUEUE = 3
# Samples that DALI shuffles among.
SHUFFLED = 2048
# Labels are one digit, see make_data.py; DALI hands out the bytes of the field.
ZERO = ord("0")


def write_index(shard: Path, index: Path) -> None:
    """The index of a shard as DALI 1.2 and later read it: one line a sample, of extension, offset, size and name."""
    samples: dict[str, list[str]] = {}
    with tarfile.open(shard) as tar:
        for member in tar:
            if member.isfile():
                key, _, extension = member.name.partition(".")
                samples.setdefault(key, []).append(f"{extension} {member.offset_data} {member.size} {member.name}")
    lines = [f"v1.2 {len(samples)}", *(" ".join(fields) for fields in samples.values())]
    index.parent.mkdir(parents=True, exist_ok=True)
    index.write_text("\n".join(lines) + "\n")


def indexes(data: Path, shards: list[Path]) -> list[Path]:
    """One index a shard; those that are missing are made."""
    paths = [data / "dali" / f"{shard.stem}.idx" for shard in shards]
    for shard, path in zip(shards, paths, strict=True):
        if not path.exists():
            write_index(shard, path)
    return paths


def batches(job: dict, decoder: str, load: float = 0.0):
    """Batches of images and labels without end; on the GPU for a job with device "cuda"."""
    from nvidia.dali.plugin.base_iterator import LastBatchPolicy
    from nvidia.dali.plugin.pytorch import DALIGenericIterator

    pipeline = build(job, decoder, load)
    iterator = DALIGenericIterator(
        [pipeline],
        ["images", "labels"],
        reader_name="reader",
        auto_reset=True,
        last_batch_policy=LastBatchPolicy.DROP,
    )
    while True:
        for [columns] in iterator:
            yield columns["images"], columns["labels"].flatten() - ZERO


def build(job: dict, decoder: str, load: float):
    from nvidia.dali import fn, pipeline_def, types

    data = Path(job["data"])
    shards = sorted((data / "shards").glob("*.tar"))
    on_gpu = job["device"] == "cuda"
    crop = {"output_type": types.RGB, "random_area": [0.08, 1.0], "random_aspect_ratio": [3 / 4, 4 / 3]}

    @pipeline_def(
        batch_size=job["batch_size"],
        num_threads=job["workers"],
        device_id=0 if on_gpu else None,
        prefetch_queue_depth=QUEUE,
        seed=1,
    )
    def pipeline():
        files, labels = fn.readers.webdataset(
            paths=[str(shard) for shard in shards],
            index_paths=[str(index) for index in indexes(data, shards)],
            ext=["jpg", "cls"],
            random_shuffle=True,
            initial_fill=SHUFFLED,
            missing_component_behavior="error",
            name="reader",
        )
        if decoder == "mixed":
            hints = {"preallocate_width_hint": 1024, "preallocate_height_hint": 1024}
            images = fn.decoders.image_random_crop(files, device="mixed", hw_decoder_load=load, **crop, **hints)
        else:
            images = fn.decoders.image_random_crop(files, device="cpu", **crop)
        images = fn.resize(images, resize_x=SIZE, resize_y=SIZE, interp_type=types.INTERP_TRIANGULAR)
        labels = fn.cast(labels, dtype=types.INT64)
        if on_gpu:
            labels = labels.gpu()
            images = images if decoder == "mixed" else images.gpu()
        images = fn.crop_mirror_normalize(
            images,
            dtype=types.FLOAT,
            output_layout="CHW",
            mean=[255 * mean for mean in MEAN],
            std=[255 * std for std in STD],
            mirror=fn.random.coin_flip(),
        )
        return images, labels

    made = pipeline()
    made.build()
    return made
