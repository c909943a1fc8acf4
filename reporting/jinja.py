"""Pages and cards from templates, which are files beside the code that fills them in.

Every value that is put in is made harmless, so that none can be forgotten: escaped in HTML, and in
Markdown on one line that can start nothing. What is to stand as it is, a template declares
``safe``. The templates of this folder are named .md, those of HTML too: a ServerApp writes with
them, and Flower carries no .html file in an app bundle.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

#: The folder of this room's templates.
TEMPLATES = Path(__file__).with_name("templates")

Filters = Mapping[str, Callable[..., str]]


def html_templates(folder: Path, filters: Filters | None = None) -> Environment:
    """The HTML templates in a folder; every value is escaped.

    They may extend those of this package.
    """
    return _environment(folder, filters, autoescape=True)


def markdown_templates(folder: Path, filters: Filters | None = None) -> Environment:
    """The Markdown templates in a folder; every value is one plain line."""
    return _environment(folder, filters, finalize=_plain, keep_trailing_newline=True)


def joined_lines(template: Template, *values: Mapping[str, Any], **more: Any) -> str:
    """The template filled in, with indented lines joined to the line before."""
    return re.sub(r"\s*\n +", " ", template.render(*values, **more))


def _environment(folder: Path, filters: Filters | None, **options: Any) -> Environment:
    environment = Environment(
        loader=FileSystemLoader([folder, TEMPLATES]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        **options,
    )
    environment.filters |= {"count": "{:,}".format, **(filters or {})}
    return environment


def _plain(value: object) -> str:
    """A text on one line that cannot start other Markdown or HTML."""
    if hasattr(value, "__html__"):  # declared `safe` in the template
        return str(value)
    return " ".join(str(value).split()).replace("`", "'").replace("<", "&lt;")
