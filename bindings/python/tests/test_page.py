"""Result pages from Python: JSON in, text and HTML out."""

from __future__ import annotations

import json

import pytest

import brimful
from brimful import _native

CHART = {
    "title": "Rate",
    "x": {"label": "batch size", "scale": "log2"},
    "y": {"label": "images/s"},
    "series": [{"name": "ResNet-50", "points": [{"x": 128, "y": 4278.0}, {"x": 256, "y": None}]}],
    "marks": [{"axis": "x", "value": 256, "label": "chosen"}],
}
TABLE = {
    "columns": [{"name": "stage"}, {"name": "busy %", "kind": {"number": 1}}],
    "rows": [["decode", 97.25], ["copy", None]],
}
PAGE = {
    "title": "A & B",
    "facts": [["GPU", "H200"]],
    "sections": [
        {"heading": "Rates", "blocks": [{"chart": CHART}, {"table": TABLE}]},
        {"heading": "Advice", "blocks": [{"note": {"level": "good", "text": "Take 256."}}, {"text": "That is all."}]},
    ],
}


def test_a_page_is_html_and_text():
    html = _native.page_html(json.dumps(PAGE))
    assert html.startswith("<!doctype html>") and "A &amp; B" in html and "<script" not in html
    text = _native.page_text(json.dumps(PAGE))
    for part in ("decode    97.2", "4,278", "chosen", "Take 256.", "GPU: H200"):
        assert part in text, text


def test_what_is_no_page_is_an_error():
    bad = {**PAGE, "sections": [{"blocks": [{"table": {**TABLE, "rows": [["decode"]]}}]}]}
    for text in ("[", '{"titel": "x"}', json.dumps(bad)):
        with pytest.raises(brimful.errors.InvalidOptionError):
            _native.page_html(text)
