"""How Sphinx builds the site: ``make docs``."""

import inspect
import sys
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.ext.napoleon.docstring import GoogleDocstring

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

import write_commands  # noqa: E402
import write_settings  # noqa: E402

import murmuration  # noqa: E402

#: Pages that are written from the code when the site is built; the repository has their heading.
WRITTEN = {"reference/commands": write_commands.page, "reference/settings": write_settings.page}

# What each setting does has a page of its own, and is not listed with each function that takes it.
for _name in murmuration.__all__:
    setattr(murmuration, _name, inspect.unwrap(getattr(murmuration, _name)))

project = "Murmuration"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
source_suffix = {".md": "markdown"}

html_theme = "furo"
html_title = "Murmuration"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
# Two hyphens are two hyphens: they begin options.
smartquotes = False

# Links of pages go to headings, named as code hosts name them, so they work there and here.
myst_heading_anchors = 4
myst_enable_extensions = ["deflist", "fieldlist"]

# A name of ours that leads nowhere is an error; names of other libraries have no page here.
nitpicky = True
nitpick_ignore_regex = [("py:.*", r"(?!murmuration\b).*")]
# Types of attributes; who looks at data reads what the summary says of them.
nitpick_ignore = [
    ("py:class", "murmuration.preference.data.judgements.Judgements"),
    ("py:class", "murmuration.preference.data.schema.Schema"),
    ("py:class", "murmuration.privacy.promise.Promise"),
    ("py:class", "murmuration.privacy.theorems.Status"),
]
suppress_warnings = ["misc.highlighting_failure"]

autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True


def _described(self: GoogleDocstring) -> tuple[str, list[str]]:
    """A property's docstring: what stands before a colon is no type, but part of the sentence."""
    lines = self._dedent(self._consume_to_end())
    return "", self.__class__(lines, self._config).lines()


GoogleDocstring._consume_inline_attribute = _described


def _write(_: Sphinx, page: str, source: list[str]) -> None:
    """Put what the code says in a page's place."""
    if page in WRITTEN:
        source[0] = WRITTEN[page]()


def _outdated(_: Sphinx, env: BuildEnvironment, *__: set[str]) -> set[str]:
    """Pages that are read again whenever the site is built."""
    return WRITTEN.keys() & env.found_docs


def setup(app: Sphinx) -> None:
    """Have these called by Sphinx."""
    app.connect("source-read", _write)
    app.connect("env-get-outdated", _outdated)
