"""Where tests find files: the repository, and others' data beside it, which may be absent."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
DOCS = ROOT / "docs"
SHARED = ROOT.parent / "shared"
SUPPORT = ROOT / "tests" / "support"
