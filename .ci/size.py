"""What ``make size`` prints: how much there is to read, of the core, beside it and in research/.

Code lines have code on them: no blank, comment or docstring. Templates and tables that are shipped
are counted beside, so that nothing is won by moving lines into them.
"""

import ast
import io
import subprocess
import sys
import tokenize
from collections import Counter
from pathlib import Path

_TEXTS = (".md", ".txt", ".toml", ".json", ".sh")
CORE = ("privacy", "preference", "strategies", "server", "client", "sims", "murmuration")
SATELLITES = ("alignment", "ranking", "tuning", "surveying", "audits", "deploy", "reporting", "cli")
_NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENDMARKER, tokenize.ENCODING,
}  # fmt: skip
_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def code_lines(source: str) -> int:
    """Return how many lines have code on them."""
    documented: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            docstring = node.body[0]
            documented |= set(range(docstring.lineno, (docstring.end_lineno or 0) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - documented)


def main() -> None:
    """Print the figures of the files that git knows."""
    listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True)
    files = [Path(name) for name in listed.stdout.splitlines() if not Path(name).is_symlink()]
    lines, python, others, words = (Counter[str]() for _ in range(4))
    for file in files:
        room = file.parts[0]
        if file.suffix == ".py":
            lines[room] += code_lines(file.read_text(encoding="utf-8"))
            python[room] += 1
        elif room in (*CORE, *SATELLITES) and file.suffix in _TEXTS:
            others[file.suffix] += len(file.read_text(encoding="utf-8").splitlines())
        if file.suffix == ".md" and (room == "docs" or len(file.parts) == 1):
            words["docs"] += len(file.read_text(encoding="utf-8").split())
    shipped = (*CORE, *SATELLITES)
    core = sum(lines[room] for room in CORE)
    whole = sum(lines[room] for room in shipped)
    print(f"shipped code lines       {whole:>8,}   core {core:,}, beside it {whole - core:,}")
    print("  by room                " + ", ".join(f"{r} {lines[r]:,}" for r in shipped if lines[r]))
    print(f"shipped files            {sum(python[room] for room in shipped):>8,}")
    beside = ", ".join(f"{ending} {count:,}" for ending, count in sorted(others.items()))
    print(f"lines that are not code  {sum(others.values()):>8,}   {beside}")
    print(f"research/                {lines['research']:>8,}")
    print(f"tests/                   {lines['tests']:>8,}")
    print(f"words of docs            {words['docs']:>8,}")
    _print_interface()


def _print_interface() -> None:
    import murmuration
    from murmuration import flower
    from murmuration.strategies.config import SETTINGS

    sys.path.insert(0, "docs")
    import write_commands

    options = sum(line.startswith("| `--") for line in write_commands.page().splitlines())
    print(f"settings of a run        {len(SETTINGS):>8,}")
    print(f"options of all commands  {options:>8,}")
    own = len(murmuration.__all__)
    print(f"public names             {own:>8,}   and {len(flower.__all__)} of murmuration.flower")


if __name__ == "__main__":
    main()
