"""Image folder to shards: brimful against a script around webdataset's ShardWriter, GNU tar and Pillow, and verify
against reading the same shards, warm and cold. Sides take turns; figures are medians of ratios, each with its range.

    python benches/compare/convert.py --brimful target/release/brimful --photos FOLDER --out run.json

What was written before is written back before anything is timed. Cold shards have no page in memory: the system is
asked to drop them, which needs no rights.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

from machine import document, save, say

CLASSES = 20


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brimful", required=True, help="the command, built for release")
    parser.add_argument("--photos", type=Path, required=True, help="folder with JPEG files")
    parser.add_argument("--work", type=Path, default=Path("target/bench/convert"), help="folder for sources and shards")
    parser.add_argument("--count", type=int, default=3000, help="files of the source")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def make_source(photos: Path, work: Path, count: int) -> Path:
    """`count` files in folders that are classes: photos over and over, each with a comment of its own."""
    source = work / "source"
    if len(list(source.glob("*/*.jpg"))) == count:
        return source
    shutil.rmtree(source, ignore_errors=True)
    files = sorted(path for path in photos.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    for number in range(count):
        bytes_ = files[number % len(files)].read_bytes()
        comment = f"{number:08}".encode()
        path = source / f"class{number % CLASSES:03}" / f"{number:08}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes_[:2] + b"\xff\xfe" + (len(comment) + 2).to_bytes(2, "big") + comment + bytes_[2:])
    return source


def webdataset_writer(source: Path, out: Path) -> None:
    """What webdataset's documentation shows, in a process of its own so that imports are not measured."""
    import webdataset

    classes = {name: number for number, name in enumerate(sorted(entry.name for entry in os.scandir(source)))}
    out.mkdir(parents=True)
    with webdataset.ShardWriter(str(out / "train-%06d.tar"), maxcount=1000, verbose=0) as sink:
        for folder, number in classes.items():
            for name in sorted(os.listdir(source / folder)):
                data = (source / folder / name).read_bytes()
                sink.write({"__key__": f"{folder}/{name.removesuffix('.jpg')}", "jpg": data, "cls": number})


def pillow_resize(job: tuple[str, str]) -> None:
    """One file made smaller as `convert --resize 256` does it: both sides at most 256, bicubic, quality 90."""
    from PIL import Image

    path, out = job
    image = Image.open(path)
    width, height = image.size
    scale = 256 / max(width, height)
    if scale < 1:
        image = image.resize((round(width * scale), round(height * scale)), Image.Resampling.BICUBIC)
    image.save(out, "JPEG", quality=90, optimize=True)


def seconds(work, out: Path | None = None) -> float:
    if out is not None:
        shutil.rmtree(out, ignore_errors=True)
        if out.is_file():
            out.unlink()
    os.sync()
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def command(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def read_all(paths: list[Path]) -> None:
    """Every byte of the shards, by as many processes as there are cores."""
    buffer = bytearray(1 << 20)
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def drop(paths: list[Path]) -> None:
    """Takes the files out of the page cache."""
    os.sync()
    for path in paths:
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def compare(name: str, ours, theirs, rounds: int) -> dict[str, object]:
    """Times of two sides that take turns, and how many times faster the first is. The first pair does not count."""
    pairs = [(ours(), theirs()) for _ in range(rounds + 1)][1:]
    ratios = sorted(their / our for our, their in pairs)
    median = statistics.median
    say(f"{name}: {median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f}) times as fast")
    return {
        "seconds": median(our for our, _ in pairs),
        "seconds_peer": median(their for _, their in pairs),
        "faster": median(ratios),
        "faster_min": ratios[0],
        "faster_max": ratios[-1],
        "pairs": pairs,
    }


def main() -> None:
    args = parse()
    args.work.mkdir(parents=True, exist_ok=True)
    source = make_source(args.photos, args.work, args.count)
    cores = len(os.sched_getaffinity(0))
    results: dict[str, object] = {}
    out, peer, peer_tar = args.work / "out", args.work / "peer", args.work / "peer.tar"

    def against(name: str, ours, theirs, rounds: int = args.rounds) -> None:
        results[name] = compare(name, ours, theirs, rounds)

    brimful = [args.brimful, "convert", source, out, "--threads", cores, "--samples-per-shard", 1000]
    convert = lambda *more: seconds(lambda: command(*brimful, *more), out)  # noqa: E731
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        writer = lambda: seconds(lambda: pool.apply(webdataset_writer, (source, peer)), peer)  # noqa: E731
        against("copy against webdataset.ShardWriter", convert, writer)
    tar = lambda: seconds(lambda: command("tar", "cf", peer_tar, "-C", source, "."), peer_tar)  # noqa: E731
    against("copy against tar cf", convert, tar)
    peer_tar.unlink()

    files = sorted(source.glob("*/*.jpg"))[: max(args.count // 3, 1)]
    small = args.work / "small"
    if not small.exists():
        for path in files:
            target = small / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(path, target)
    resize = [args.brimful, "convert", small, out, "--threads", cores, "--resize", 256]
    with multiprocessing.get_context("spawn").Pool(cores) as pool:
        jobs = [(str(path), str(peer / path.name)) for path in files]

        def pillow() -> float:
            shutil.rmtree(peer, ignore_errors=True)
            peer.mkdir()
            return seconds(lambda: pool.map(pillow_resize, jobs, chunksize=16))

        against("--resize 256 against Pillow", lambda: seconds(lambda: command(*resize), out), pillow, args.rounds)

    shutil.rmtree(out)
    command(*brimful)
    shards = sorted(out.glob("*.tar"))
    with multiprocessing.get_context("spawn").Pool(cores) as pool:
        shares = [shards[number::cores] for number in range(cores)]

        def read(is_cold: bool) -> float:
            if is_cold:
                drop(shards)
            return seconds(lambda: pool.map(read_all, shares, chunksize=1))

        def verify(is_cold: bool, *flags: str) -> float:
            if is_cold:
                drop(shards)
            return seconds(lambda: command(args.brimful, "verify", *flags, out))

        for cache, is_cold in (("warm", False), ("cold", True)):
            for flags in ((), ("--hash",)):
                name = " ".join(("verify", *flags, "against reading,", cache))
                against(name, lambda: verify(is_cold, *flags), lambda: read(is_cold))  # noqa: B023
    shutil.rmtree(out)
    shutil.rmtree(peer, ignore_errors=True)
    size = sum(path.stat().st_size for path in source.glob("*/*.jpg"))
    made = document(files=args.count, bytes=size, threads=cores, results=results)
    save(made, args.out)
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    sys.exit(main())
