"""The documentation site: pages written by hand, and pages generated from the package, its papers and its results."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from generating import write_pages  # noqa: E402

import isthmus  # noqa: E402

project = "Isthmus"
author = "The Isthmus authors"
release = version = isthmus.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "Isthmus"
html_static_path = ["wide.css"]
html_css_files = ["wide.css"]
html_show_copyright = False
myst_enable_extensions = ["colon_fence"]  # formulas are plain text: they need no script from elsewhere
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
suppress_warnings = ["config.cache"]

write_pages(HERE / "generated", HERE.parent / "results" / "reproductions")
