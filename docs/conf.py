"""Settings of the documentation."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from ipot.version import __version__ as release

project = "ipot"
author = "The ipot developers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
html_theme = "furo"
html_title = f"ipot {release}"
exclude_patterns = ["_build", "house"]
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
# Shape annotations of jaxtyping read as they are written.
autodoc_type_aliases = {"Tensor": "torch.Tensor"}
