"""How much memory conversions take: catalogues of large sources, planned only, and runs over photos on few and many
threads.

    python benches/compare/convert_memory.py --brimful target/release/brimful --photos FOLDER --out run.json

Anonymous memory is told, which no one else can use; pages of mapped shards are the system's to take back.
"""

from __future__ import annotations

import argparse
import io
import json
import shutil
import struct
import subprocess
import sys
import tarfile
import time
from pathlib import Path

from convert import make_source
from machine import document, save, say

CLASSES = 1000


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brimful", required=True, help="the command, built for release")
    parser.add_argument("--photos", type=Path, required=True, help="folder with JPEG files")
    parser.add_argument("--work", type=Path, default=Path("target/bench/memory"), help="folder for sources and shards")
    parser.add_argument("--samples", type=int, default=1_000_000, help="samples of the large catalogues")
    parser.add_argument("--files", type=int, default=200_000, help="files of the large folder, which exist")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def name_of(number: int) -> str:
    """As long as the names of ImageNet."""
    return f"n{number % CLASSES:08}/n{number % CLASSES:08}_{number // CLASSES:05}.JPEG"


def make_folder(path: Path, count: int) -> None:
    for number in range(min(count, CLASSES)):
        (path / name_of(number)).parent.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        (path / name_of(number)).touch()


def make_list(path: Path, count: int) -> None:
    with open(path, "w") as file:
        file.write("path,label\n")
        file.writelines(f"{name_of(number)},{number % CLASSES}\n" for number in range(count))


def make_zip(path: Path, count: int) -> None:
    """Only the list of an archive: all entries are the same byte."""
    with open(path, "wb") as file:
        for number in range(count):
            name = name_of(number).encode()
            file.write(
                struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\1\2", 45, 45, 0, 0, 0, 0, 0, 1, 1, len(name), *[0] * 6) + name
            )
        end = file.tell()
        file.write(struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, count, count, end, 0))
        file.write(struct.pack("<4sIQI", b"PK\6\7", 0, end, 1))
        file.write(struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0))


def make_shards(path: Path, count: int) -> None:
    path.mkdir()
    for start in range(0, count, 10_000):
        with tarfile.open(path / f"{start:08}.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
            for number in range(start, min(start + 10_000, count)):
                for extension, value in (("cls", b"1"), ("jpg", b"x")):
                    member = tarfile.TarInfo(name_of(number).replace("JPEG", extension))
                    member.size = len(value)
                    archive.addfile(member, io.BytesIO(value))


def peak(*words: object) -> tuple[float, float]:
    """The most anonymous memory that a command has, in MB, looked at every few milliseconds, and its seconds."""
    started, most = time.perf_counter(), 0
    with subprocess.Popen(
        [str(word) for word in words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        while process.poll() is None:
            try:
                text = Path(f"/proc/{process.pid}/status").read_text()
            except (FileNotFoundError, ProcessLookupError):
                break
            most = max(most, *(int(line.split()[1]) for line in text.splitlines() if line.startswith("RssAnon")), 0)
            time.sleep(0.002)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args)
    return most * 1024 / 1e6, time.perf_counter() - started


def main() -> None:
    args = parse()
    shutil.rmtree(args.work, ignore_errors=True)
    args.work.mkdir(parents=True)
    catalogues, runs = {}, {}
    kinds = [
        ("folder", "", make_folder, args.files),
        ("list", ".csv", make_list, args.samples),
        ("zip", ".zip", make_zip, args.samples),
        ("shards", "", make_shards, args.files),
    ]
    for kind, suffix, make, count in kinds:
        peaks = []
        for samples in (count // 10, count):
            source = args.work / f"{kind}-{samples}{suffix}"
            make(source, samples)
            words = [args.brimful, "convert", source, args.work / "out", "--dry-run", "--shuffle", 0]
            peaks.append(peak(*words, "--threads", 2))
            shutil.rmtree(source) if source.is_dir() else source.unlink()
        bytes_ = (peaks[1][0] - peaks[0][0]) * 1e6 / (count - count // 10)
        catalogues[kind] = {"samples": count, "peak_mb": peaks[1][0], "seconds": peaks[1][1], "bytes_a_sample": bytes_}
        say(f"{kind}: {peaks[1][0]:.0f} MB for {count} samples, {bytes_:.1f} bytes each, {peaks[1][1]:.1f} s")
    source = make_source(args.photos, args.work, 3000)
    for threads in (2, 16, 64):
        for flags in ([], ["--shuffle", 0], ["--resize", 256], ["--restart-rows"]):
            out = args.work / "out"
            name = " ".join(map(str, ["convert", *flags, "--threads", threads]))
            megabytes, seconds = peak(
                args.brimful, "convert", source, out, "--samples-per-shard", 100, *flags, "--threads", threads
            )
            shutil.rmtree(out)
            runs[name] = {"peak_mb": megabytes, "seconds": seconds}
            say(f"{name}: {megabytes:.0f} MB, {seconds:.1f} s")
    shutil.rmtree(args.work)
    save(document(catalogues=catalogues, runs=runs), args.out)
    print(json.dumps({"catalogues": catalogues, "runs": runs}, indent=1))


if __name__ == "__main__":
    sys.exit(main())
