"""What a stress test found: a document for programs, and a page for people."""

from __future__ import annotations

import json
from typing import Any

from .. import _native


class Outcome(dict):
    """The document of `brimful tune`: `recommended`, `bottleneck`, `findings`, `curve` and the three stages.

    Printed, it is a text; `html()` is a page that loads nothing.
    """

    def __str__(self) -> str:
        return _native.page_text(json.dumps(page(self)))

    def html(self) -> str:
        """The page as one HTML document."""
        return _native.page_html(json.dumps(page(self)))


def page(document: dict[str, Any]) -> dict[str, Any]:
    """The page of a document, as the library's pages are written."""
    recommended = document["recommended"]
    sections = [_findings(document["findings"]), _curve(document), _stages(document)]
    sections += [_tries(document)] if document.get("tried") or document.get("allreduce") else []
    if document.get("commands"):
        blocks = [{"text": command} for command in document["commands"]]
        sections.append({"heading": "Profiling this run", "blocks": blocks})
    facts = [[str(name), str(value)] for name, value in document["machine"].items()]
    facts += [["device", document["health"].get("gpu") or document["health"]["device"]], ["model", document["model"]]]
    lead = (
        f"Take batches of {recommended['batch_size']}"
        + (f" with {recommended['accumulation']} accumulation steps" if recommended["accumulation"] > 1 else "")
        + f": {recommended['images_per_s']:,.0f} samples a second. What holds the run back: {document['bottleneck']}."
    )
    return {"title": "How full is the GPU?", "lead": lead, "facts": facts, "sections": sections}


def _findings(findings: list[dict[str, Any]]) -> dict[str, Any]:
    blocks: list[dict[str, Any]] = []
    for finding in findings:
        gain = f" Mending it gains up to {finding['gain']:.0%}." if finding["gain"] > 0 else ""
        text = f"{finding['kind']}: {finding['evidence']}.{gain} To do: {finding['advice']}."
        blocks.append({"note": {"level": "warning" if finding["gain"] > 0.03 else "info", "text": text}})
    if not blocks:
        blocks.append({"note": {"level": "good", "text": "Nothing was found that holds this run back."}})
    return {"heading": "Findings", "blocks": blocks}


def _curve(document: dict[str, Any]) -> dict[str, Any]:
    rows = [row for row in document["curve"] if not row.get("out_of_memory")]
    marks = [{"axis": "x", "value": document["recommended"]["batch_size"], "label": "recommended"}]
    axis = {"label": "batch size", "scale": "log2"}
    points = [{"x": row["batch_size"], "y": row["per_s"]} for row in rows]
    blocks: list[dict[str, Any]] = [
        {
            "chart": {
                "title": "Rate, data on the device",
                "x": axis,
                "y": {"label": "samples/s"},
                "series": [{"name": document["model"], "points": points}],
                "marks": marks,
            }
        }
    ]
    shares = [("sm_active", "SM activity"), ("dram", "memory bandwidth"), ("gpu_busy", "GPU-util")]
    series = [
        {"name": name, "points": [{"x": row["batch_size"], "y": 100 * row[key]} for row in rows if key in row]}
        for key, name in shares
    ]
    series = [row for row in series if row["points"]]
    if series:
        chart = {"title": "Activity", "x": axis, "y": {"label": "%", "max": 100}, "series": series}
        blocks.append({"chart": chart})
    columns = [("batch_size", "batch size", 0), ("per_s", "samples/s", 0), ("step_ms", "step ms", 2)]
    columns += [("memory_gb", "memory GB", 1)] if any("memory_bytes" in row for row in rows) else []
    cells = []
    for row in document["curve"]:
        told = {**row, "step_ms": row["step_s"] * 1e3 if "step_s" in row else None}
        told["memory_gb"] = row["memory_bytes"] / 1e9 if "memory_bytes" in row else None
        cells.append([told.get(key) for key, *_ in columns])
    if document["curve"][-1].get("out_of_memory"):
        blocks.append(
            {"note": {"level": "info", "text": f"Batches of {document['curve'][-1]['batch_size']} ran out of memory."}}
        )
    blocks.append({"table": _table("", [(name, digits) for _, name, digits in columns], cells)})
    knees = document.get("knees") or {}
    if len(knees) > 1:
        text = ", ".join(f"{name}: {row['batch_size']} ({row['per_s']:,.0f} samples/s)" for name, row in knees.items())
        blocks.append({"text": f"The smallest size that is fast enough, by precision: {text}."})
    if document.get("roofline"):
        roof = document["roofline"]
        text = (
            f"By its data sheet a {roof['gpu']['name']} does {roof['per_s']:,.0f} samples a second at most, "
            f"bound by {roof['lowest']}; this run is at {roof['share']:.0%} of it ({roof['gpu']['citation']})."
        )
        blocks.append({"text": text})
    return {"heading": "Batch size", "blocks": blocks}


def _stages(document: dict[str, Any]) -> dict[str, Any]:
    health, data, run = document["health"], document["data_path"], document["end_to_end"]
    rows: list[list[Any]] = [
        [f"matrix products, {name}", value / 1e12, "TFLOP/s"] for name, value in health["flops"].items()
    ]
    rows += [[name.replace("_bytes_per_s", " copies"), value / 1e9, "GB/s"] for name, value in health["copies"].items()]
    named = [
        ("storage_per_s", "storage"),
        ("decode_per_s", "decoding"),
        ("loader_per_s", "loader"),
        ("torch_per_s", "torch"),
    ]
    rows += [[name, data[key], "samples/s"] for key, name in named if data.get(key)]
    rows += [["model alone", document["device_per_s"], "samples/s"], ["model and loader", run["per_s"], "samples/s"]]
    rows.append(["waiting for batches", 100 * run["wait_share"], "% of a step"])
    rows += [[f"step: {name}", seconds * 1e3, "ms"] for name, seconds in (document.get("parts") or {}).items()]
    blocks: list[dict[str, Any]] = [{"table": _table("", [("what", None), ("value", 2), ("unit", None)], rows)}]
    if data.get("threads"):
        points = [{"x": row["threads"], "y": row["per_s"]} for row in data["threads"]]
        blocks.append(
            {
                "chart": {
                    "title": "The loader alone over its threads",
                    "x": {"label": "threads", "scale": "log2"},
                    "y": {"label": "samples/s"},
                    "series": [{"name": "brimful", "points": points}],
                }
            }
        )
    notes = [text for text in (health.get("note"), data.get("note")) if text]
    blocks += [{"note": {"level": "info", "text": text}} for text in notes]
    return {"heading": "Stages", "blocks": blocks}


def _tries(document: dict[str, Any]) -> dict[str, Any]:
    rows = [
        [name, 100 * row["gain"] if "gain" in row else None, row.get("note", "")]
        for name, row in (document.get("tried") or {}).items()
    ]
    ranks = document.get("allreduce") or {}
    rows += [[row["change"], 100 * row["gain"], row["caveat"]] for row in ranks.get("tried", [])]
    columns = [("change", None), ("gain %", 1), ("to know", None)]
    return {"heading": "What was tried", "blocks": [{"table": _table("", columns, rows)}]}


def _table(title: str, columns: list[tuple[str, int | None]], rows: list[list[Any]]) -> dict[str, Any]:
    kinds = [{"name": name, **({} if digits is None else {"kind": {"number": digits}})} for name, digits in columns]
    return {"title": title, "columns": kinds, "rows": rows}
