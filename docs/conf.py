"""How Sphinx builds the site: ``make docs``."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

project = "Murmuration"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
source_suffix = {".md": "markdown"}

html_theme = "furo"
html_title = "Murmuration"
html_copy_source = False
html_show_sphinx = False

# Links of pages go to headings, named as code hosts name them, so they work there and here.
myst_heading_anchors = 4
myst_enable_extensions = ["deflist", "fieldlist"]

# A name of ours that leads nowhere is an error; names of other libraries have no page here.
nitpicky = True
nitpick_ignore_regex = [("py:.*", r"(?!murmuration\b).*")]
suppress_warnings = ["misc.highlighting_failure"]

autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
