"""Time and memory of ``murmuration rank`` as voters grow.

Votes are those of a synthetic arena: ten a voter in the middle, written as an arena's export
(``user, model_a, model_b, winner``) and as rows in this library's own form. The whole command runs,
from the file to the page, in a process of its own; ``floor_seconds`` is what reading the same file
into dictionaries takes, by the standard library's readers, and nothing else.
"""

import csv
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from murmuration.ranking.arena import Arena
from murmuration.research.bench.setting import timed

#: Voters; each gives ten votes or so.
VOTERS = (10_000, 100_000)
ITEMS = 50
FORMS = ("export", "rows")


def arena(voters: int) -> Arena:
    """Voters with ten votes on average, between fifty items."""
    return Arena(voters=voters, items=ITEMS, median_votes=9.0, votes_spread=0.5)


def write_votes(place: Path, voters: int, form: str) -> int:
    """Write the votes of an arena, by ``form`` as CSV of an export or as JSON lines.

    Returns their number.
    """
    votes = 0
    with place.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        if form == "export":
            writer.writerow(("user", "model_a", "model_b", "winner"))
        for row in arena(voters).rows():
            votes += 1
            if form == "rows":
                file.write(json.dumps(row) + "\n")
                continue
            winner = "tie" if row["tie"] else "model_a"
            writer.writerow((row["user_id"], row["chosen"], row["rejected"], winner))
    return votes


def measure(voters: int, form: str) -> dict[str, Any]:
    """The row of one run of the command.

    Raises:
        RuntimeError: the command failed.
    """
    with tempfile.TemporaryDirectory(prefix="bench-", dir=Path.cwd()) as folder:
        place = Path(folder) / ("votes.csv" if form == "export" else "votes.jsonl")
        votes = write_votes(place, voters, form)
        items = Path(folder) / "items.txt"
        items.write_text("\n".join(arena(voters).names) + "\n", encoding="utf-8")
        _, floor = timed(lambda: sum(1 for _ in _plainly_read(place)))
        arguments = ["--data", place, "--items", items, "--users", voters, "--epsilon", 1]
        arguments += ["--delta", 0.1 / max(voters, 1), "--seed", 0, "--out", Path(folder) / "board"]
        done = subprocess.run(
            [sys.executable, "-P", "-m", "murmuration.research.bench.board", *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
        )
    with suppress(ValueError, IndexError):
        usage = json.loads(done.stdout.splitlines()[-1])
        return {
            "form": form,
            "voters": voters,
            "votes": votes,
            "items": ITEMS,
            **usage,
            "floor_seconds": floor,
            "over_floor": usage["seconds"] / floor,
        }
    raise RuntimeError(f"{voters} voters failed: {done.stderr.strip()[-300:]}")


def _plainly_read(place: Path) -> Iterator[Any]:
    with place.open(newline="", encoding="utf-8") as file:
        yield from csv.DictReader(file) if place.suffix == ".csv" else map(json.loads, file)


def main(arguments: list[str], begun: float) -> None:
    """Run the command here, and print what it took as a JSON line."""
    from murmuration.cli.main import main as command

    sys.argv = ["murmuration", "rank", *arguments]
    try:
        command()
    except SystemExit as ended:
        if ended.code:
            raise
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = time.perf_counter() - begun
    figures = {"seconds": seconds, "cpu_seconds": used.ru_utime + used.ru_stime}
    print("\n" + json.dumps({**figures, "peak_mib": used.ru_maxrss / 1024}))


if __name__ == "__main__":
    main(sys.argv[1:], time.perf_counter())
