"""What a comparison comes to: medians with their spread, ratios taken round by round, and the goals of the GPU path.

It reads results and prints tables; it runs nothing.
"""

import statistics
from collections.abc import Callable
from dataclasses import dataclass

LOAD = "load"
NO_LOADER = "no loader"
# The rows that others are compared with, the first that was measured.
US = ("brimful auto", "brimful", "brimful cpu")
Rows = dict[str, dict]


def summarise(measured: list[dict]) -> dict:
    """By what was measured and by peer; and how the goals fared."""
    rounds = by_round(measured)
    summary = {job: {} for job in rounds}
    for job, of_job in rounds.items():
        peers = list(dict.fromkeys(peer for rows in of_job for peer in rows))
        us = next((peer for peer in US if peer in peers), None)
        for peer in peers:
            rows = [rows[peer] for rows in of_job if peer in rows]
            summary[job][peer] = figures(rows)
            ratios = [
                rows[us]["images_per_s"] / rows[peer]["images_per_s"] for rows in of_job if {us, peer} <= rows.keys()
            ]
            if job == LOAD and ratios and peer not in (*US, NO_LOADER):
                summary[job][peer]["times_slower_than_us"] = spread(ratios)
    return {"rows": summary, "goals": [found for goal in GOALS if (found := goal.check(rounds))]}


def by_round(measured: list[dict]) -> dict[str, list[Rows]]:
    """The good results: for each job a list of rounds, each with its rows by peer; what was fed stands in front."""
    rounds: dict[str, dict[int, Rows]] = {}
    for result in measured:
        if "error" not in result:
            row = {**result, **result["fed"]} if "fed" in result else result
            rounds.setdefault(result["job"], {}).setdefault(result["round"], {})[result["peer"]] = row
    return {job: [of_job[number] for number in sorted(of_job)] for job, of_job in rounds.items()}


def figures(rows: list[dict]) -> dict:
    names = ("images_per_s", "ratio", "steps_waiting_share", "wait_share", "tensors_early_share", "cpu_s_per_1000")
    names += ("cpu_percent", "sm_percent", "jpeg_percent", "engine_images_share", "first_batch_s")
    known = {name: [row[name] for row in rows if row.get(name) is not None] for name in names}
    found = {name: spread(values) for name, values in known.items() if values}
    if all("resident" in row for row in rows):
        found["resident_images_per_s"] = spread([row["resident"]["images_per_s"] for row in rows])
        found["resident_cpu_s_per_1000"] = spread([row["resident"]["cpu_s_per_1000"] for row in rows])
    return found


def spread(values: list[float]) -> dict:
    return {"median": round(statistics.median(values), 4), "min": round(min(values), 4), "max": round(max(values), 4)}


@dataclass(frozen=True)
class Goal:
    """A bound for the median of a figure that each round gives."""

    name: str
    job: str
    figure: Callable[[Rows], float]
    bound: float
    is_ceiling: bool = False

    def check(self, rounds: dict[str, list[Rows]]) -> dict | None:
        """None where what it takes was not measured."""
        values = []
        for rows in rounds.get(self.job, []):
            try:
                values.append(self.figure(rows))
            except KeyError:
                continue
        if not values:
            return None
        found = spread(values)
        met = found["median"] <= self.bound if self.is_ceiling else found["median"] >= self.bound
        word = "<=" if self.is_ceiling else ">="
        return {"goal": self.name, "bound": f"{word} {self.bound}", **found, "rounds": len(values), "met": met}


def rate(rows: Rows, peer: str) -> float:
    return rows[peer]["images_per_s"]


def best_dali(rows: Rows) -> float:
    rates = [row["images_per_s"] for peer, row in rows.items() if peer.startswith("DALI")]
    if not rates:
        raise KeyError("DALI")
    return max(rates)


def cpu_over_cpu_decoding(rows: Rows, peer: str) -> float:
    return rows[peer]["cpu_s_per_1000"] / rows["brimful cpu"]["cpu_s_per_1000"]


GOALS = [
    Goal(
        "CPU decode / the same work without a loader",
        LOAD,
        lambda r: rate(r, "brimful cpu") / rate(r, NO_LOADER),
        0.92,
    ),
    Goal("CPU decode / DALI's CPU path", LOAD, lambda r: rate(r, "brimful cpu") / rate(r, "DALI cpu"), 1.6),
    Goal(
        "auto / (engines alone + CPU alone)",
        LOAD,
        lambda r: rate(r, "brimful auto") / (rate(r, "brimful gpu") + rate(r, "brimful cpu")),
        0.85,
    ),
    Goal("auto / DALI's best", LOAD, lambda r: rate(r, "brimful auto") / best_dali(r), 1.0),
    Goal("ResNet-50 fed / resident", "resnet50", lambda r: r["brimful auto"]["ratio"], 0.99),
    Goal("ResNet-18 fed / resident", "resnet18", lambda r: r["brimful auto"]["ratio"], 0.92),
    Goal(
        "ResNet-50: share of steps that wait",
        "resnet50",
        lambda r: r["brimful auto"]["steps_waiting_share"],
        0.01,
        True,
    ),
    Goal(
        "ResNet-18: share of steps that wait",
        "resnet18",
        lambda r: r["brimful auto"]["steps_waiting_share"],
        0.01,
        True,
    ),
    Goal("ResNet-50: CPU s, auto / cpu", "resnet50", lambda r: cpu_over_cpu_decoding(r, "brimful auto"), 1.15, True),
    Goal("ResNet-50: CPU s, gpu / cpu", "resnet50", lambda r: cpu_over_cpu_decoding(r, "brimful gpu"), 0.6, True),
]

LOAD_COLUMNS = (
    ("images/s", "images_per_s", 0),
    ("CPU s per 1,000", "cpu_s_per_1000", 2),
    ("CPU %", "cpu_percent", 0),
    ("SM %", "sm_percent", 0),
    ("JPEG %", "jpeg_percent", 0),
    ("by engines", "engine_images_share", 2),
    ("slower by", "times_slower_than_us", 2),
)
TRAIN_COLUMNS = (
    ("images/s", "images_per_s", 0),
    ("resident", "resident_images_per_s", 0),
    ("fed / resident", "ratio", 3),
    ("steps waiting", "steps_waiting_share", 3),
    ("time waiting", "wait_share", 3),
    ("early tensors", "tensors_early_share", 3),
    ("CPU s per 1,000", "cpu_s_per_1000", 2),
    ("CPU %", "cpu_percent", 0),
    ("SM %", "sm_percent", 0),
    ("JPEG %", "jpeg_percent", 0),
    ("by engines", "engine_images_share", 2),
)


def print_summary(results: dict) -> None:
    facts, job = results["machine"], results["job"]
    print(f"\n{facts['cpu']}, {facts['cores']} cores; {facts.get('gpu', 'no GPU')};", end=" ")
    print(f"{job['workers']} workers, batches of {job['batch_size']} on {job['device']};", end=" ")
    print(f"{results['data']['files']} files of {results['data']['bytes_mean'] / 1000:.0f} KB in page cache")
    for name, rows in results["summary"]["rows"].items():
        print(f"\n{name}: medians, and in brackets the range of the rounds")
        print_table(rows, LOAD_COLUMNS if name == LOAD else TRAIN_COLUMNS)
    if results["summary"]["goals"]:
        print()
    for goal in results["summary"]["goals"]:
        verdict = "met" if goal["met"] else "NOT MET"
        values = f"{goal['median']:.3f} ({goal['min']:.3f} to {goal['max']:.3f})"
        print(f"{goal['goal']:<46} {values:<28} {goal['bound']:<8} {verdict}")


def print_table(rows: dict[str, dict], columns: tuple) -> None:
    shown = [column for column in columns if any(column[1] in row for row in rows.values())]
    table = [["", *(title for title, _, _ in shown)]]
    for peer, row in rows.items():
        table.append([peer, *(cell(row.get(name), digits) for _, name, digits in shown)])
    widths = [max(len(line[place]) for line in table) for place in range(len(shown) + 1)]
    for line in table:
        cells = [f"{text:>{width}}" for text, width in zip(line[1:], widths[1:], strict=True)]
        print("  ".join([f"{line[0]:<{widths[0]}}", *cells]))


def cell(value: dict | None, digits: int) -> str:
    if value is None:
        return ""
    median, low, high = (f"{value[key]:,.{digits}f}" for key in ("median", "min", "max"))
    return f"{median} ({low}-{high})"
