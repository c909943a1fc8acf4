"""Write the folder of which an sdist and a wheel are built: the package as it is committed, and a
README that leads somewhere where a package index shows it.

    python .ci/dist_source.py FOLDER [REPOSITORY]

Links to files of this repository become links into REPOSITORY, at the tag of this version; without
one they become plain text. The sdist holds this README, so a wheel that is built of it is the same
as one that is built of the folder.
"""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: A link or picture of Markdown whose target is a file of this repository.
LINK = re.compile(
    r"(!?)\[((?:[^\[\]]|!?\[[^\[\]]*\]\([^)]*\))*)\]\((?!https?:|mailto:|#)([^)\s]+)\)"
)
#: The same of HTML.
ATTRIBUTE = re.compile(r'\b(src|srcset|href)="(?!https?:|mailto:|#)([^"]+)"')
FENCE = re.compile(r"(^```.*?^```\s*?$)", re.MULTILINE | re.DOTALL)
PICTURES = (".png", ".svg", ".jpg", ".gif")


def absolute(markdown: str, repository: str, ref: str) -> str:
    """Return a page whose links to files lead into a repository, or without one nowhere.

    Args:
        markdown: the page; what it shows as code stays as it is.
        repository: address of the repository, as of GitHub or GitLab; may be empty.
        ref: tag or branch.
    """

    def place(path: str) -> str:
        name = path.partition("#")[0].lower()
        kind = "raw" if name.endswith(PICTURES) else "blob"
        return f"{repository.rstrip('/')}/{kind}/{ref}/{path.removeprefix('./')}"

    def link(match: re.Match[str]) -> str:
        mark, text, path = match.groups()
        text = LINK.sub(link, text)  # a picture that is a link
        return f"{mark}[{text}]({place(path)})" if repository else text

    def attribute(match: re.Match[str]) -> str:
        return f'{match[1]}="{place(match[2])}"' if repository else ""

    parts = FENCE.split(markdown)
    parts[::2] = [ATTRIBUTE.sub(attribute, LINK.sub(link, text)) for text in parts[::2]]
    return "".join(parts)


def write(folder: Path, repository: str = "") -> None:
    """Write what is to be built into a folder, which must not be there."""
    names = ("murmuration", "LICENSE", "README.md")
    rooms = sorted(link.name for link in (ROOT / "murmuration").iterdir() if link.is_symlink())
    listed = ["git", "ls-files", "-z", *names, "pyproject.toml", *rooms]
    files = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, files.split("\0")):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target, follow_symlinks=False)
    project = (folder / "pyproject.toml").read_text(encoding="utf-8")
    version = tomllib.loads(project)["project"]["version"]
    readme = folder / "README.md"
    page = absolute(readme.read_text(encoding="utf-8"), repository, f"v{version}")
    readme.write_text(page, encoding="utf-8")
    if repository:
        urls = f'\n[project.urls]\nRepository = "{repository}"\n'
        (folder / "pyproject.toml").write_text(project + urls, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]), *sys.argv[2:3])
