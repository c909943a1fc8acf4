"""Rows of JSON: what is written is what is read."""

from murmuration.alignment.writing import read_lines
from murmuration.privacy.strict_json import json_lines


def test_a_text_may_have_what_ends_lines_elsewhere(tmp_path):
    rows = [{"response": "one\u2028two\x85three\x1cfour\r\nfive"}, {"response": "", "words": 0}]
    (tmp_path / "rows.jsonl").write_bytes(json_lines(rows))
    assert read_lines(tmp_path / "rows.jsonl") == rows
