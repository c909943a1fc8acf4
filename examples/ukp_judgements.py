"""From the public UKPConvArg1 corpus to files of judgements of arguments.

    git clone --depth 1 https://github.com/UKPLab/acl2016-convincing-arguments
    python examples/ukp_judgements.py acl2016-convincing-arguments --out ukp

The first argument is a clone of the authors' repository, or its zip. The corpus is of Habernal and
Gurevych (ACL 2016), CC BY 4.0: crowd workers compared arguments for one side of 32 debates. The
texts are opinions on contested questions; they may offend.

Workers are put into groups by a hash of their ids, so that the files are the same for everybody:

    train.jsonl    seven tenths of the workers, 12 debates
    test.jsonl     a tenth of the workers, the same debates
    gold.jsonl     two tenths more, the same debates: for a reward that judges, without privacy
    unseen.jsonl   judgements by the workers of test.jsonl of four more debates

Rows are `user_id, prompt, chosen, rejected` and, of two that are equally convincing, `tie`. Worker
ids are replaced by numbers; reasons and times are left out.
"""

import argparse
import json
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from xml.etree import ElementTree

FOLDER = "UKPConvArg1-full-XML"
#: Debates of unseen.jsonl, by how their files' names begin.
UNSEEN = (
    "ban-plastic-water-bottles",
    "personal-pursuit-or-advancing-the-common-good",
    "should-physical-education-be-mandatory",
    "william-farquhar-ought",
)
GROUPS = {0: "test", 1: "gold", 2: "gold"}  # of a worker's hash modulo 10; others train
FILES = ("train", "test", "gold", "unseen")

Row = dict[str, object]


def xml_files(source: Path) -> dict[str, bytes]:
    """The corpus's files by name, from a clone or a zip of the repository."""
    if source.is_dir():
        files = sorted(source.glob(f"**/{FOLDER}/*.xml"))
        return {file.name: file.read_bytes() for file in files}
    with zipfile.ZipFile(source) as archive:
        names = sorted(name for name in archive.namelist() if name.endswith(".xml"))
        return {
            Path(name).name: archive.read(name)
            for name in names
            if Path(name).parent.name == FOLDER
        }


def judgements(name: str, content: bytes) -> Iterator[tuple[str, Row | None]]:
    """Yield each worker's id and judgement; None for texts that are empty or equal.

    Raises:
        ValueError: the file is not as the corpus's files are.
    """
    for pair in ElementTree.fromstring(content).iter("annotatedArgumentPair"):
        title, stance, first, second = (
            " ".join((pair.findtext(path) or "").split())
            for path in ("debateMetaData/title", "arg1/stance", "arg1/text", "arg2/text")
        )
        if (
            not title
            or not stance
            or " ".join((pair.findtext("arg2/stance") or "").split()) != stance
        ):
            raise ValueError(f"{name}: pair {pair.findtext('id')} has no title, or two stances")
        for assignment in pair.iter("mTurkAssignment"):
            worker, value = assignment.findtext("turkID"), assignment.findtext("value")
            if not worker or value not in ("a1", "a2", "equal"):
                raise ValueError(f"{name}: pair {pair.findtext('id')}: worker or value is missing")
            if not first or not second or first == second:
                yield worker, None
                continue
            chosen, rejected = (second, first) if value == "a2" else (first, second)
            row: Row = {
                "prompt": f"{title} Argue: {stance}",
                "chosen": chosen,
                "rejected": rejected,
            }
            yield worker, row | {"tie": True} if value == "equal" else row


def group_of(worker: str) -> str:
    """The file for a worker's judgements of the twelve debates."""
    return GROUPS.get(int(sha256(worker.encode()).hexdigest(), 16) % 10, "train")


def files_of(corpus: dict[str, bytes]) -> tuple[dict[str, list[Row]], int]:
    """Rows by file, and the number of judgements left out."""
    rows: dict[str, list[tuple[str, Row]]] = {name: [] for name in FILES}
    left_out = 0
    for name, content in corpus.items():
        for worker, row in judgements(name, content):
            group = group_of(worker)
            if name.startswith(UNSEEN):
                group = "unseen" if group == "test" else ""
            if row is None:
                left_out += 1
            elif group:
                rows[group].append((worker, row))
    workers = {worker for part in rows.values() for worker, _ in part}
    ordered = sorted(workers, key=lambda worker: sha256(worker.encode()).hexdigest())
    numbers = {worker: f"u{number:05d}" for number, worker in enumerate(ordered)}
    return {
        name: [{"user_id": numbers[worker], **row} for worker, row in part]
        for name, part in rows.items()
    }, left_out


def main() -> None:
    """Write the files, and say what is in them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("source", type=Path, help="a clone of the repository, or its zip")
    parser.add_argument("--out", type=Path, default=Path("ukp"), help="a new folder")
    given = parser.parse_args()
    if given.out.exists():
        sys.exit(f"--out {given.out} is there already; choose another folder")
    try:
        corpus = xml_files(given.source)
        if not corpus:
            sys.exit(f"{given.source}: holds no {FOLDER}/*.xml; is it the authors' repository?")
        files, left_out = files_of(corpus)
    except (OSError, ValueError, zipfile.BadZipFile, ElementTree.ParseError) as error:
        sys.exit(f"{given.source}: {error}")
    given.out.mkdir(parents=True)
    for name, rows in files.items():
        content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
        (given.out / f"{name}.jsonl").write_bytes(content)
        users, ties = Counter(row["user_id"] for row in rows), sum("tie" in row for row in rows)
        print(
            f"{name}.jsonl: {len(rows):,} judgements ({ties:,} ties) of {len(users):,} users, "
            f"sha256 {sha256(content).hexdigest()[:16]}"
        )
    print(f"{len(corpus)} files of debates; left out: {left_out:,} judgements of equal texts")


if __name__ == "__main__":
    main()
