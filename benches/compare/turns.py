"""One peer in a process of its own, which waits for its turns and measures what it is asked for.

turns.py PEER JOB: JOB is the JSON object that peers.py describes. Each line of standard input is a turn, a JSON object;
each is answered by one line on standard output: `{"measure": "load", "seconds": 3}` counts batches,
`{"measure": "resnet50", ...}` trains that model on resident and on loaded batches. It compares nothing; see compare.py.
"""

import json
import os
import sys
import time

from machine import machine_cpu_s, tree_cpu_s
from peers import PEERS, SIZE

# Bounds of normalised numbers: black and white in the channel where they lie farthest out, and some room.
LOWEST, HIGHEST = -2.13, 2.65


class Turns:
    """A loader that is at work, and the models that train on its batches."""

    def __init__(self, peer: str, job: dict) -> None:
        self.job = job
        start = time.perf_counter()
        self.source = PEERS[peer].make(job)
        self.checks = check_batch(next(self.source.batches), job)
        self.ready = {"first_batch_s": round(time.perf_counter() - start, 2)}
        self.warm = self.source.warm_first
        self.trainees, self.kept = {}, None

    def take(self, turn: dict) -> dict:
        others = machine_cpu_s() - tree_cpu_s()
        start = time.perf_counter()
        result = self.load(turn) if turn["measure"] == "load" else self.train(turn)
        others_s = machine_cpu_s() - tree_cpu_s() - others
        # What else ran on the machine meanwhile, in cores: the reader's measure of trust.
        return {**result, "others_cores": round(max(others_s, 0.0) / (time.perf_counter() - start), 2)}

    def load(self, turn: dict) -> dict:
        """Counts images, and the processor time they took."""
        from brimful.bench_model import cpu_figures, loader_figures

        source, usage = self.source, self.gpu_usage()
        for _ in range(self.take_warm()):
            next(source.batches)
        synchronize(self.job)
        stats_before = source.stats() if source.stats else None
        if usage:
            usage.begin()
        cpu_before, begin = tree_cpu_s(), time.perf_counter()
        images, count, batch = 0, 0, None
        while count == 0 or time.perf_counter() - begin < turn["seconds"] or count % source.cycle:
            batch = None
            batch = next(source.batches)
            images, count = images + len(batch[0]), count + 1
        synchronize(self.job)
        wall_s, cpu_s = time.perf_counter() - begin, tree_cpu_s() - cpu_before
        result = {"images": images, "images_per_s": round(images / wall_s, 1), **cpu_figures(cpu_s, images, wall_s)}
        if usage:
            result |= usage.end()
        if source.stats:
            result |= loader_figures(stats_before, source.stats(), images)
        return {**result, "last_batch": check_batch(batch, self.job)}

    def train(self, turn: dict) -> dict:
        """Trains on resident and on loaded batches, one after the other in the order that the turn says."""
        from brimful.bench_model import Trainee, resident

        name, source = turn["measure"], self.source
        if name not in self.trainees:
            self.trainees[name] = Trainee(name, self.job["device"])
        if self.kept is None:
            self.kept = resident(source.batches)
        trainee, result = self.trainees[name], {}
        for kind in ("resident", "fed") if turn["resident_first"] else ("fed", "resident"):
            if kind == "resident":
                result[kind] = trainee.train(self.kept, seconds=turn["seconds"], cpu_s=tree_cpu_s)
            else:
                result[kind] = trainee.train(
                    source.batches,
                    seconds=turn["seconds"],
                    warm_steps=self.take_warm(),
                    cycle=source.cycle,
                    cpu_s=tree_cpu_s,
                    stats=source.stats,
                )
        release_memory(self.job)
        result["ratio"] = round(result["fed"]["images_per_s"] / result["resident"]["images_per_s"], 4)
        return result

    def take_warm(self) -> int:
        warm, self.warm = self.warm, self.source.warm
        return warm

    def gpu_usage(self):
        if self.job["device"] == "cpu":
            return None
        from brimful.bench_gpu import GpuUsage

        return GpuUsage.of_torch(self.job["device"])


def check_batch(batch, job: dict) -> dict:
    """Refuses what is not the job's batch; returns what a reader may look at."""
    import torch

    images, labels = batch[0], torch.as_tensor(batch[1])
    expected = (job["batch_size"], 3, SIZE, SIZE)
    if tuple(images.shape) != expected or images.dtype != torch.float32 or images.device.type != job["device"]:
        raise SystemExit(
            f"a batch of {tuple(images.shape)} {images.dtype} on {images.device}, not of {expected} float32"
        )
    if labels.device.type != job["device"] or tuple(labels.shape) != expected[:1] or labels.dtype != torch.int64:
        raise SystemExit(f"labels of {tuple(labels.shape)} {labels.dtype} on {labels.device}")
    lowest, highest = images.min().item(), images.max().item()
    # Neither bytes, nor numbers from 0 to 1, nor a resampler's overshoot.
    if not (LOWEST <= lowest < -1 and 1 < highest <= HIGHEST):
        raise SystemExit(f"images from {lowest:.2f} to {highest:.2f}: they are not normalised")
    # A few photos have such corners; an engine that skips images leaves more.
    flat = int((images.std((2, 3)).amax(1) < 1e-4).sum().item())
    if flat > max(1, len(images) // 32):
        raise SystemExit(f"{flat} of {len(images)} images have one colour: they were not decoded")
    if labels.min().item() < 0 or labels.max().item() > 999:
        raise SystemExit(f"labels from {labels.min().item()} to {labels.max().item()}")
    return {
        "mean": round(images.mean().item(), 3),
        "std": round(images.std().item(), 3),
        "classes": labels.unique().numel(),
        "of_one_colour": flat,
    }


def synchronize(job: dict) -> None:
    if job["device"] != "cpu":
        import torch

        torch.cuda.synchronize()


def release_memory(job: dict) -> None:
    """What a model needed is left to the other processes."""
    if job["device"] != "cpu":
        import torch

        torch.cuda.empty_cache()


def main() -> None:
    # Libraries that print must not get between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    turns = Turns(sys.argv[1], json.loads(sys.argv[2]))
    print(json.dumps({**turns.ready, "first_batch": turns.checks}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(turns.take(json.loads(line))), file=answers, flush=True)
    # Workers that would go on for ever are not waited for.
    os._exit(0)


if __name__ == "__main__":
    main()
