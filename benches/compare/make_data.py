"""Makes the data of a comparison: distinct JPEG files as tar shards with DALI's indexes, and as an image folder.

make_data.py SOURCE OUT: SOURCE is a folder of photos or of tar shards (`brimful demo` makes some). Each file is a
seeded crop of a photo, written again at about the photo's own quality with Huffman tables of its own: repeated files
would flatter caches of tables and the predictors of branches. Every member of a shard has a PAX header, as webdataset
writes it. It decides nothing about loaders; see compare.py.
"""

import argparse
import hashlib
import io
import itertools
import json
import multiprocessing
import os
import random
import sys
import tarfile
from pathlib import Path

import dali_peer
from PIL import Image, JpegImagePlugin

CLASSES = 10
SUFFIXES = (".jpg", ".jpeg")
# The sum of the luma table that quality 50 stands for.
LUMA_SUM = 3688

_photos: list[bytes] = []


def main() -> None:
    arguments = parse()
    photos = list(read_photos(arguments.source))
    if not photos:
        sys.exit(f"error: no JPEG files in {arguments.source}")
    jobs = [(number, arguments.seed) for number in range(arguments.count)]
    out = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    with multiprocessing.Pool(len(os.sched_getaffinity(0)), keep_photos, (photos,)) as pool:
        total = write(out, pool.imap(make_file, jobs, chunksize=16), arguments.samples_a_shard)
    document = {
        "source": str(arguments.source),
        "photos": len(photos),
        "files": arguments.count,
        "bytes_mean": total // arguments.count,
        "seed": arguments.seed,
    }
    (out / "data.json").write_text(json.dumps(document, indent=2) + "\n")
    print(
        f"{arguments.count} files of {total // arguments.count} bytes on average, from {len(photos)} photos, in {out}"
    )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Makes distinct JPEG files as tar shards and as an image folder.")
    parser.add_argument("source", type=Path, help="a folder of photos or of tar shards")
    parser.add_argument("out", type=Path, help="the folder to make: OUT/shards and OUT/folder")
    parser.add_argument("--count", type=int, default=6000, help="files to make (%(default)s)")
    parser.add_argument("--samples-a-shard", type=int, default=1000, help="(%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="(%(default)s)")
    arguments = parser.parse_args()
    if arguments.count < 1 or arguments.samples_a_shard < 1:
        parser.error("--count and --samples-a-shard must be at least 1")
    return arguments


def read_photos(source: Path):
    """The bytes of every JPEG file below `source`, in the order of their names."""
    for path in sorted(source.rglob("*")):
        if path.suffix.lower() in SUFFIXES:
            yield path.read_bytes()
        elif path.suffix == ".tar":
            with tarfile.open(path) as shard:
                for member in shard:
                    if member.isfile() and member.name.lower().endswith(SUFFIXES):
                        yield shard.extractfile(member).read()


def keep_photos(photos: list[bytes]) -> None:
    _photos.extend(photos)


def make_file(job: tuple[int, int]) -> bytes:
    """The file of one number: a function of the number and the seed alone."""
    number, seed = job
    draw = random.Random(f"{seed}:{number}")
    photo = Image.open(io.BytesIO(_photos[number % len(_photos)]))
    quality = estimate_quality(photo) + draw.choice((-1, 0, 1))
    sampling = JpegImagePlugin.get_sampling(photo)
    if photo.mode not in ("RGB", "L"):
        photo = photo.convert("RGB")
    width, height = (max(1, round(side * draw.uniform(0.93, 1.0))) for side in photo.size)
    left, top = draw.randint(0, photo.width - width), draw.randint(0, photo.height - height)
    file = io.BytesIO()
    photo.crop((left, top, left + width, top + height)).save(
        file,
        "JPEG",
        quality=min(max(quality, 30), 98),
        subsampling=sampling if sampling >= 0 else 0,
        optimize=True,
        # Of a small photo there are few crops: its number keeps two files from being the same all the same.
        comment=f"{seed}:{number}".encode(),
    )
    return file.getvalue()


def estimate_quality(photo: Image.Image) -> int:
    """The quality that a photo's quantisation table is closest to, on libjpeg's scale."""
    scale = 100 * sum(photo.quantization[0]) / LUMA_SUM
    return round((200 - scale) / 2 if scale <= 100 else 5000 / scale)


def write(out: Path, files, samples_a_shard: int) -> int:
    """Writes both layouts and returns the bytes of all files."""
    for folder in [out / "shards", *(out / "folder" / f"class{label}" for label in range(CLASSES))]:
        folder.mkdir(parents=True, exist_ok=True)
    seen, total = set(), 0
    numbered = enumerate(files)
    for first in itertools.count(0, samples_a_shard):
        of_shard = list(itertools.islice(numbered, samples_a_shard))
        if not of_shard:
            return total
        path = out / "shards" / f"train-{first // samples_a_shard:06d}.tar"
        with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as shard:
            for number, file in of_shard:
                digest = hashlib.sha256(file).digest()
                if digest in seen:
                    sys.exit(f"error: file {number} is a copy of another one: take more photos or make fewer files")
                seen.add(digest)
                total += len(file)
                (out / "folder" / f"class{number % CLASSES}" / f"{number:08d}.jpg").write_bytes(file)
                add_sample(shard, number, file)
        dali_peer.write_index(path, out / "dali" / f"{path.stem}.idx")


def add_sample(shard: tarfile.TarFile, number: int, file: bytes) -> None:
    for field, data in (("cls", str(number % CLASSES).encode()), ("jpg", file)):
        member = tarfile.TarInfo(f"{number:08d}.{field}")
        # A time that is no whole number is what makes tarfile write a PAX header, as it does for webdataset.
        member.size, member.mtime = len(data), 1_700_000_000.25 + number
        shard.addfile(member, io.BytesIO(data))


if __name__ == "__main__":
    main()
