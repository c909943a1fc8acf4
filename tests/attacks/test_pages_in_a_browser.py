"""Every HTML page, in Chromium, with hostile texts wherever a text of others can stand.

Needs Chromium (``apt-get install chromium``); skips where it is missing.
"""

import shutil
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from cards import RESULT

from murmuration.alignment.comparisons import comparison as winrates
from murmuration.alignment.comparisons.page import page as winrate_page
from murmuration.reporting.comparison import RunSeen, comparison_page
from murmuration.reporting.report import page as report_page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.slow,  # a browser starts for each page
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]
OPTIONS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync "
    "--disable-background-networking --disable-component-update --virtual-time-budget=4000 "
    "--dump-dom"
)
IMAGES = dict.fromkeys(("accuracy", "noise", "users"), (b"", b""))


@pytest.fixture
def visited():
    """Addresses that pages asked for, and the port at which they are counted."""
    paths: list[str] = []

    class Counting(BaseHTTPRequestHandler):
        def do_GET(self):
            paths.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Counting)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield paths, server.server_port
    server.shutdown()
    server.server_close()


def payloads(port: int) -> list[str]:
    """Texts that set the title and fetch an address, if anything of them is more than text."""
    do = f"document.title='owned';fetch('http://127.0.0.1:{port}/js')"
    url = f"http://127.0.0.1:{port}/"
    return [
        f"<script>{do}</script>",
        f'"><img src={url}img onerror="{do}">',
        f"</title></style></script><script>{do}</script>",
        f"<svg onload={do}>",
        f'<iframe src="{url}frame"></iframe><link rel=stylesheet href={url}css>',
        f"javascript:{do}",
        f"' onmouseover='{do}' style='background:url({url}background)",
        f"--><script>{do}</script><!--",
        "{{ 7 * 7 }}{% import os %}",
        f"<meta http-equiv=refresh content='0;url={url}refresh'>",
        f"\u202e</p><base href={url}><script src=a.js></script>",
    ]


def opened(html: str, folder) -> str:
    """What a browser makes of a page."""
    file = folder / "page.html"
    file.write_text(html, encoding="utf-8")
    profile = folder / "profile"
    command = [CHROMIUM, *OPTIONS.split(), f"--user-data-dir={profile}", file.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "</html>" in done.stdout
    return done.stdout


def owned(html: str, folder, paths: list[str]) -> bool:
    """Whether a text of a page was run, or made the browser ask for something."""
    dom = opened(html, folder)
    return bool(paths) or "<title>owned</title>" in dom


def test_a_page_that_does_not_escape_is_caught(tmp_path, visited):
    paths, port = visited
    assert owned(f"<title>t</title><p>{payloads(port)[0]}</p>", tmp_path, paths)
    assert "/js" in paths


@pytest.mark.parametrize("number", range(11))
def test_reports(tmp_path, visited, number):
    paths, port = visited
    evil = payloads(port)[number]
    result = RESULT | dict.fromkeys(("strategy", "stopped"), evil)
    result |= {"warnings": [evil], "features": {"kind": "encoder", "path": evil}, "model": evil}
    assert not owned(report_page(result, IMAGES), tmp_path, paths), paths


def test_comparisons_of_runs(tmp_path, visited):
    paths, port = visited
    runs = [
        RunSeen(
            name=evil,
            result=RESULT | {"strategy": evil, "model": evil},
            settings={"strategy": evil, "data": evil},
            epsilon=3.0,
            rounds=5,
            missing=(evil,),
        )
        for evil in payloads(port)
    ]
    assert not owned(comparison_page(runs), tmp_path, paths), paths


class HostileJudge:
    """A judge whose name and words are hostile too."""

    def __init__(self, evil: str) -> None:
        self.evil = evil

    def preferred(self, prompts, first, second):
        return np.array([float(len(a) > len(b)) for a, b in zip(first, second, strict=True)])

    def figures(self, prompts, answers):
        return {}

    def about(self):
        return {"kind": "length", "name": self.evil, "how": self.evil, "caveats": [self.evil]}


def test_pages_of_win_rates(tmp_path, visited):
    paths, port = visited
    texts = payloads(port)
    for evil in (texts[0], texts[1], texts[6]):
        sides = [winrates.Side(evil, [[text] for text in texts])]
        against = winrates.Side("runs/o/model", [["o"] for _ in texts])
        request = winrates.ComparisonRequest(
            models=[evil], against=against.model, prompts=texts, source=evil
        )
        compared = winrates.compare(request, sides, against, HostileJudge(evil))
        assert not owned(winrate_page(compared), tmp_path, paths), paths
