"""Sphinx's configuration of the site, for the sources that ``python -m tutorials.site`` makes."""

from __future__ import annotations

import warploom

project = "warploom"
author = "the warploom contributors"
copyright = author
version = release = warploom.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
root_doc = "index"
myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 4
#: Text after a language is no lexer's name on GitHub, either.
highlight_language = "none"

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # numpydoc's sections have the types, in words
autodoc_preserve_defaults = True
autodoc_inherit_docstrings = False
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_param = True
napoleon_use_ivar = True

html_theme = "furo"
html_title = "warploom"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#1c6b87",
        "color-brand-content": "#1c6b87",
        "font-stack": "system-ui, -apple-system, Segoe UI, Roboto, sans-serif",
    },
    "dark_css_variables": {
        "color-brand-primary": "#67bcd8",
        "color-brand-content": "#67bcd8",
    },
}
linkcheck_timeout = 15
linkcheck_retries = 2
