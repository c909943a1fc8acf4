"""The folders of code: murmuration/, and those beside it to which it has a link."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
TOP = "murmuration"
BESIDE = tuple(sorted(link.name for link in (ROOT / TOP).iterdir() if link.is_symlink()))
ROOMS = (TOP, *BESIDE)
#: What only a checkout has: in neither wheel nor app bundle.
UNSHIPPED = ("research",)
SHIPPED = tuple(room for room in BESIDE if room not in UNSHIPPED)
