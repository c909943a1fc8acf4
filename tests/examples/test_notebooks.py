"""Notebooks of examples/: their cells run in order, in one namespace and an empty folder."""

import ast
import json
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run_cells(notebook: Path) -> list[object]:
    """Return what the last expression of each cell of code gives, None where there is none."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    namespace: dict[str, object] = {}
    shown = []
    for number, cell in enumerate(c for c in cells if c["cell_type"] == "code"):
        assert not cell["outputs"], "a notebook is committed without what its cells gave"
        tree = ast.parse("".join(cell["source"]), f"{notebook.name}, cell {number}")
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, f"{notebook.name}, cell {number}", "exec"), namespace)
        value = None
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), notebook.name, "eval"), namespace)
        shown.append(value)
    return shown


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_first_look(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    _, _, summary, _, run, figure, ledger, learnt, comparison, _ = run_cells(
        EXAMPLES / "first_look.ipynb"
    )
    assert "400 judgements by 400 users" in summary._repr_html_()
    assert "<table>" in run._repr_html_()
    assert figure.axes
    assert ledger[0] > 20
    prefers_saving, by_user = learnt
    assert prefers_saving and by_user == 1.0
    assert "<td>nonprivate</td>" in comparison._repr_html_()
    out = capsys.readouterr().out
    assert out.startswith("User-level DP: ε = 3.00, δ = 1e-5")
    assert "no column says who judged" in out.splitlines()[-1]
