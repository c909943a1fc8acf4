"""Learn what a crowd prefers without learning what anyone in it prefers."""

from pathlib import Path

# Installed, the rooms (client, server, strategies, …) lie in this folder. In a checkout, and in an
# app bundle that Flower makes of one, they lie beside it.
_HERE = Path(__file__).resolve().parent
if not (_HERE / "privacy").is_dir():
    __path__.append(str(_HERE.parent))
