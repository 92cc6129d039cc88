"""One job on brimful and its peers, in rounds that take turns, on the same cores and the same GPU.

compare.py DATA: DATA comes from make_data.py. Every peer has a process of its own, which idles between its turns with
full queues; what was made ahead is taken before each measurement. The first of a round changes from round to round, so
that whatever else the machine does meets all of them. Prints medians with their spread, and ratios taken round by
round; --out keeps every number with the command and the machine. --train also trains models on what the loaders bring.
"""

import argparse
import json
import signal
import sys
import time
from pathlib import Path

import machine
from machine import say
from peers import PEERS
from processes import NoLoader, PeerProcess
from summary import LOAD, NO_LOADER, print_summary, summarise


def main() -> None:
    arguments = parse()
    results = machine.document(
        data=json.loads((arguments.data / "data.json").read_text()),
        job={
            "data": str(arguments.data),
            "device": arguments.device,
            "batch_size": arguments.batch_size,
            "workers": arguments.workers,
        },
        seconds=arguments.seconds,
        rounds=arguments.rounds,
        measured=[],
    )
    read_through(arguments.data)
    # Whoever sets a limit to the time must not leave peers behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped: the results so far are kept"))
    processes = {peer: process_of(peer, results["job"]) for peer in arguments.peers}
    try:
        start(processes, arguments.start_together)
        measure(processes, arguments, results)
    finally:
        for process in processes.values():
            process.close()
    print_summary(results)
    if any("error" in result for result in results["measured"]):
        sys.exit(1)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compares whole loaders on the same data, cores and GPU.")
    parser.add_argument("data", type=Path, help="a folder that make_data.py made")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where batches go (%(default)s)")
    parser.add_argument("--train", nargs="+", default=[], metavar="MODEL", help="also train: resnet50, resnet18, ...")
    parser.add_argument("--only-train", action="store_true", help="do not measure the loaders alone")
    parser.add_argument("--rounds", type=int, default=5, help="(%(default)s)")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement (%(default)s)")
    parser.add_argument("--workers", type=int, default=machine.cores(), help="threads or processes (%(default)s)")
    parser.add_argument("--batch-size", type=int, default=256, help="(%(default)s)")
    parser.add_argument("--peers", nargs="+", metavar="PEER", help="all that are installed, unless given")
    parser.add_argument("--list-peers", action="store_true", help="print the names of the device's peers, and end")
    parser.add_argument(
        "--start-together", action="store_true", help="saves a minute, and tells nothing of first batches"
    )
    parser.add_argument("--out", type=Path, help="write every number as JSON to this file")
    arguments = parser.parse_args()
    known = [peer for peer, made in PEERS.items() if arguments.device in made.devices]
    known += [NO_LOADER]
    if arguments.list_peers:
        print("\n".join(known))
        sys.exit(0)
    if not (arguments.data / "data.json").exists():
        parser.error(f"{arguments.data} has no data.json: make it with make_data.py")
    if arguments.only_train and not arguments.train:
        parser.error("--only-train without --train MODEL leaves nothing to measure")
    if arguments.peers is None:
        arguments.peers = [peer for peer in known if peer == NO_LOADER or PEERS[peer].is_there()]
        for peer in [peer for peer in known if peer not in arguments.peers]:
            say(f"{peer} is left out: {PEERS[peer].module} cannot be imported")
    unknown = [peer for peer in arguments.peers if peer not in known]
    if unknown:
        parser.error(f"no such peer for {arguments.device}: {', '.join(unknown)}; there are: {', '.join(known)}")
    if arguments.only_train:
        arguments.peers = [peer for peer in arguments.peers if peer != NO_LOADER]
    return arguments


def process_of(peer: str, job: dict) -> PeerProcess | NoLoader:
    return NoLoader(job) if peer == NO_LOADER else PeerProcess(peer, job)


def start(processes: dict, together: bool) -> None:
    if together:
        for process in processes.values():
            process.start()
    for peer, process in processes.items():
        begin = time.perf_counter()
        started = process.wait_until_ready()
        word = (
            f"failed: {started['error']}" if "error" in started else f"ready after {time.perf_counter() - begin:.1f} s"
        )
        say(f"{peer}: {word}")
        if not together and "first_batch_s" in started:
            process.first_batch_s = started["first_batch_s"]


def measure(processes: dict, arguments: argparse.Namespace, results: dict) -> None:
    jobs = [*([] if arguments.only_train else [LOAD]), *arguments.train]
    peers = list(processes)
    for number in range(arguments.rounds):
        for job in jobs:
            shift = number % len(peers)
            for peer in peers[shift:] + peers[:shift]:
                if job != LOAD and peer == NO_LOADER:
                    continue
                turn = {"measure": job, "seconds": arguments.seconds, "resident_first": number % 2 == 0}
                result = {"round": number, "job": job, "peer": peer, **processes[peer].ask(turn)}
                if number == 0 and hasattr(processes[peer], "first_batch_s"):
                    result["first_batch_s"] = processes[peer].first_batch_s
                results["measured"].append(result)
                results["summary"] = summarise(results["measured"])
                say_result(result)
                # Kept after every turn: a failure later on loses nothing.
                machine.save(results, arguments.out)


def read_through(data: Path) -> None:
    """Brings the data into the page cache: storage is measured elsewhere."""
    for path in data.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                while file.read(1 << 22):
                    pass


def say_result(result: dict) -> None:
    if "error" in result:
        line = f"failed: {result['error']}"
    elif "fed" in result:
        fed = result["fed"]
        line = f"{fed['images_per_s']:>9.1f} images/s, {result['ratio']:.3f} of resident"
        line += f" {result['resident']['images_per_s']:.0f}, {fed['steps_waiting_share']:.1%} of steps waited"
    else:
        line = f"{result['images_per_s']:>9.1f} images/s"
    for name, title in (("cpu_s_per_1000", "CPU s per 1,000"), ("sm_percent", "SM %"), ("jpeg_percent", "JPEG %")):
        value = result.get("fed", result).get(name)
        line += f", {title} {value}" if value is not None else ""
    if result.get("others_cores", 0) >= 0.05:
        line += f", others used {result['others_cores']:.2f} cores"
    if result["round"] == 0 and (engines := engines_of(result)):
        line += f", JPEG engines: {engines}"
    say(f"round {result['round'] + 1} {result['job']:<9} {result['peer']:<34} {line}")


def engines_of(result: dict) -> str | None:
    """What a brimful loader says of the engines, or why it does without."""
    stats = result.get("fed", result).get("loader_stats") or {}
    return (stats.get("device") or {}).get("engines")


if __name__ == "__main__":
    main()
