"""The look of a self-contained HTML page.

One column, light or dark as the reader has it, no script, nothing fetched from anywhere. Texts are
escaped here and nowhere else, so that none can be forgotten: only ``body`` of ``page`` is HTML.
"""

import base64
from collections.abc import Iterable, Sequence
from html import escape

_STYLE = """
:root { color-scheme: light dark; --paper: #f6f7f8; --card: #ffffff; --ink: #1f252b;
  --soft: #5b6670; --line: #dfe3e8; --main: #17698c; --alarm: #8a4208; --alarm-paper: #fff4e5;
  --alarm-line: #e0a052; }
@media (prefers-color-scheme: dark) { :root { --paper: #12171c; --card: #1a2027; --ink: #dde3e9;
  --soft: #98a4b0; --line: #303943; --main: #62b6d9; --alarm: #f3c089; --alarm-paper: #2b2116;
  --alarm-line: #8d6130; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--paper); color: var(--ink); line-height: 1.55;
  font: 1.0625rem/1.55 Charter, "Bitstream Charter", "Sitka Text", Cambria, Georgia, serif; }
main { max-width: 43rem; margin: 0 auto; padding: 2.5rem 1.1rem 4rem; }
h1, h2, th, td, figcaption, .eyebrow, aside, footer { font-family: system-ui, -apple-system,
  "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
.eyebrow { margin: 0; color: var(--soft); font-size: .85rem; letter-spacing: .04em; }
h1 { margin: .2rem 0 1rem; font-size: clamp(1.6rem, 6vw, 2.3rem); line-height: 1.15;
  font-weight: 650; letter-spacing: -.015em; text-wrap: balance; }
h2 { margin: 2.6rem 0 .6rem; font-size: 1.15rem; font-weight: 650; }
p { margin: .6rem 0; }
p.lead { font-size: 1.15rem; }
aside { margin: 1.4rem 0; padding: .8rem 1rem; background: var(--alarm-paper); color: var(--alarm);
  border-left: 4px solid var(--alarm-line); border-radius: 4px; font-size: .95rem; }
aside h2 { margin: 0 0 .3rem; font-size: .95rem; color: inherit; }
aside ul { margin: 0; padding-left: 1.1rem; }
aside li + li { margin-top: .45rem; }
li + li { margin-top: .35rem; }
table { width: 100%; border-collapse: collapse; font-size: .95rem; line-height: 1.4; }
th, td { padding: .5rem 0; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: baseline; overflow-wrap: anywhere; }
th { width: 42%; padding-right: 1rem; font-weight: 400; color: var(--soft); }
td { font-variant-numeric: tabular-nums; }
td small { display: block; color: var(--soft); font-size: .85rem; }
figure { margin: 1.2rem 0 2rem; }
figure img { display: block; width: 100%; height: auto; background: var(--card);
  border: 1px solid var(--line); border-radius: 6px; padding: .5rem; }
figcaption { margin-top: .6rem; color: var(--soft); font-size: .9rem; line-height: 1.45; }
code { font-size: .9em; overflow-wrap: anywhere; }
footer { margin-top: 3rem; color: var(--soft); font-size: .85rem; }
@media print { body { background: none; } main { padding: 0; } figure, aside, tr {
  break-inside: avoid; } }
"""

Row = tuple[str, str, str]


def page(name: str, body: Iterable[str]) -> str:
    """A whole document; ``name`` is text, ``body`` is HTML."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(name)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body)
        + "\n</main>\n</body>\n</html>\n"
    )


def title(text: str) -> str:
    """The first heading."""
    return f"<h1>{escape(text)}</h1>"


def footer(text: str) -> str:
    """Small print at the end."""
    return f"<footer>{escape(text)}</footer>"


def heading(text: str) -> str:
    """A section's heading."""
    return f"<h2>{escape(text)}</h2>"


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph, of a class if given."""
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def bullets(texts: Sequence[str]) -> str:
    """A list of texts."""
    return "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in texts) + "</ul>"


def warning_box(title: str, texts: Sequence[str]) -> str:
    """Something that nobody should overlook; nothing at all without texts."""
    return f"<aside><h2>{escape(title)}</h2>{bullets(texts)}</aside>" if texts else ""


def table(rows: Iterable[Row]) -> str:
    """Rows of (name, value, note or ""), all text."""
    cells = []
    for name, value, note in rows:
        small = f"<small>{escape(note)}</small>" if note else ""
        cells.append(f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}{small}</td></tr>')
    return "<table>" + "\n".join(cells) + "</table>"


def figure(light: bytes, dark: bytes, text: str, caption: str) -> str:
    """A PNG for light and one for dark paper, embedded, with alternative text and a caption."""
    return (
        f'<figure><picture><source media="(prefers-color-scheme: dark)" srcset="{_uri(dark)}">'
        f'<img src="{_uri(light)}" alt="{escape(text)}"></picture>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _uri(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")
