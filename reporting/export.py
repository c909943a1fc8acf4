"""A saved model as a folder that is meant to be passed on.

Only files of the model's own kinds are copied, by name: its weights, configuration and tokenizer,
its card, and what says what its users were promised, with the ledgers that this stands on. Whatever
else lies there (``private/``, checkpoints, judgements) stays. Links are not followed. No file
contains a path of this machine: a base in a folder is named by its last name, or by a given name on
a hub.
"""

import dataclasses
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from murmuration.preference.base_names import last_name, without_folders
from murmuration.preference.data.errors import InputError, disk_errors_as, first_line
from murmuration.preference.data.sources import is_hub_name
from murmuration.preference.language.adapter_config import ADAPTER, name_base
from murmuration.preference.language.checkpoint import TOKENIZER_FILES, check_same
from murmuration.preference.language.reward import FILE as ABOUT
from murmuration.preference.language.reward import (
    base_of_adapter,
    is_language_model,
    read_about,
)
from murmuration.preference.model_folder import replace_folder
from murmuration.preference.reward import FORMAT as LINEAR
from murmuration.privacy import attack_bounds
from murmuration.privacy.accounting import second_opinion
from murmuration.privacy.accounting.chained_record import head_path
from murmuration.privacy.accounting.ledger import read_account
from murmuration.privacy.promise import Promise
from murmuration.privacy.strict_json import strict_json
from murmuration.reporting.card_head import amended, hub_name, loading
from murmuration.reporting.facts import sampling
from murmuration.reporting.promise import (
    Details,
    audited,
    details,
    paragraphs,
    table,
)
from murmuration.server.record.lineage import CARD, files_of, lineage_of_saved, result_of_training
from murmuration.server.record.lineage import FILE as PRIVACY
from murmuration.server.record.run_files import read_json

#: What is copied, by pattern; ``privacy.json`` and ledgers are written anew.
SHARED = (
    "model*.safetensors",
    "model.safetensors.index.json",
    "adapter_model.safetensors",
    "config.json",
    "generation_config.json",
    ADAPTER,
    ABOUT,
    *TOKENIZER_FILES,
    "tokenizer.model",
    "sentencepiece.bpe.model",
    "spiece.model",
    "chat_template.jinja",
    "chat_template.json",
    CARD,
)
_WEIGHTS = ("model*.safetensors", "adapter_model.safetensors")


@dataclass(frozen=True, kw_only=True)
class Sharing:
    """The settings of an export.

    Attributes:
        merge: whether an adapter's change is put into the weights of its base.
        base: what the base is called on a hub, or a folder with it, where it is not found by
            itself; empty: as it was trained on, a folder by its last name.
        licence: an identifier for the card's head, as a hub lists them; empty: none is stated.
        privacy: its cost if its folder does not record it: ``public``, or ledgers.
        without_promise: whether it may be exported without a record of its guarantee.
        audit: a file with a line of ``murmuration audit --json``; None: there is none.

    Raises:
        InputError: a base that is neither a folder nor a name on a hub.
    """

    merge: bool = False
    base: str = ""
    licence: str = ""
    privacy: str = ""
    without_promise: bool = False
    audit: Path | None = None

    def __post_init__(self) -> None:
        if self.base and not (self.place or is_hub_name(self.base)):
            raise InputError(
                f"--base {self.base!r}: give its name on a hub, as owner/name, or its folder"
            )

    @property
    def hub(self) -> str:
        """The base's name on a hub; empty: none was given."""
        return "" if self.place else self.base

    @property
    def place(self) -> str:
        """The base's folder; empty: none was given."""
        folder = Path(self.base).expanduser()
        return str(folder.resolve()) if self.base and folder.is_dir() else ""


@dataclass(frozen=True)
class Exported:
    """The files written, by name with sizes in bytes, and those left out."""

    files: Mapping[str, int]
    left_out: tuple[str, ...]


def export(model: Path, out: Path, how: Sharing) -> Exported:
    """Write the model that lies in a folder, or in a run's, to ``out``.

    Raises:
        InputError: there is no model of ours, its base is not there to be merged, ``out`` is there
            already, or what its users were promised is not known.
    """
    folder = model_folder(model)
    if how.merge and not (folder / ADAPTER).exists():
        raise InputError(f"--merge: {folder} holds no adapter: it is whole already")
    taken = _taken(folder)

    def write(new: Path) -> None:
        for file in taken:
            shutil.copyfile(file, new / file.name)
        lineage = _lineage(folder, new, how)
        if is_language_model(folder):
            _write_language_model(folder, new, how)
        else:
            _name_encoder(new, how)
        _drop_paths(new)
        promise_details = None if lineage is None else _details(folder, lineage, how.audit)
        _amend_card(
            folder, new, how, promise_details, [] if lineage is None else paragraphs(lineage)
        )
        if lineage is not None:
            for name, content in files_of(lineage, new, promise_details).items():
                (new / name).write_bytes(content)

    with disk_errors_as(f"--out {out} cannot be written"):
        replace_folder(out, write, lambda _: None, overwrite=False)
    files = {file.name: file.stat().st_size for file in sorted(out.iterdir())}
    here = {file.name for file in folder.iterdir()}
    return Exported(files, tuple(sorted(here - files.keys())))


def model_folder(path: Path) -> Path:
    """The folder of a model: itself, or that in a run's.

    Raises:
        InputError: it is none of ours.
    """
    path = path.expanduser()
    for folder in (path / "model", path):
        if is_language_model(folder):
            read_about(folder)  # or says what is wrong with it
            return folder
        try:
            config = read_json(folder / "config.json")
        except InputError:
            continue
        if config.get("format") == LINEAR:
            return folder
    raise InputError(f"{path}: neither a model that Murmuration saved nor the folder of a run")


def _lineage(folder: Path, new: Path, how: Sharing) -> Promise | None:
    """The guarantee for its users; None if it is unknown and the export is allowed all the same.

    If a base is given, it is read from the copy, which has the base's new place: the base has a
    privacy cost, too.
    """
    given = bool(how.place) and (folder / ADAPTER).exists()
    if given:
        for file in (folder / PRIVACY, *folder.glob("ledger-*.jsonl*")):
            if file.is_file() and not file.is_symlink():
                shutil.copyfile(file, new / file.name)
        name_base(new, how.place)
    try:
        place = str(new if given else folder)
        return lineage_of_saved("the model", place, "--privacy", how.privacy)
    except InputError as error:
        if how.without_promise:
            return None
        why = str(error).replace(str(new), str(folder))
        raise InputError(f"{why}; or send it without: --without-promise") from None
    finally:
        for file in (new / PRIVACY, *new.glob("ledger-*.jsonl*")):
            file.unlink(missing_ok=True)


def _taken(folder: Path) -> list[Path]:
    result = {file for pattern in SHARED for file in folder.glob(pattern)}
    result = {file for file in result if file.is_file() and not file.is_symlink()}
    if not any(file.match(pattern) for file in result for pattern in _WEIGHTS):
        raise InputError(f"{folder}: holds no weights (*.safetensors) of its own")
    return sorted(result)


def _write_language_model(folder: Path, new: Path, how: Sharing) -> None:
    about = read_about(folder)
    base = dict(about["base"])
    if how.merge:
        _merge(new, base_of_adapter(folder, base, how.place or how.hub), base.get("digest", ""))
    base["path"] = how.hub or last_name(str(base["path"]))
    if base.get("merged"):
        base["merged"] = last_name(str(base["merged"]))
    name_base(new, base["path"])
    _write_json(new / ABOUT, {**about, "base": base})


def _merge(new: Path, base: str, digest: str) -> None:
    """Replace the adapter in a folder by its base, with the adapter merged into the weights."""
    from murmuration.preference.language.adapters import REWARD, kind_of
    from murmuration.preference.language.loading import contents_of, load_causal, load_with_head

    check_same(base, contents_of(base).digest, digest)
    name_base(new, base)
    reward = kind_of(new) == REWARD
    tokenizer, model, *_ = load_with_head(str(new)) if reward else load_causal(str(new))
    for file in (new / ADAPTER, *new.glob(_WEIGHTS[1])):
        file.unlink()
    model.save_pretrained(new)
    tokenizer.save_pretrained(new)


def _name_encoder(new: Path, how: Sharing) -> None:
    config = json.loads((new / "config.json").read_text(encoding="utf-8"))
    features = _named_last(config["features"])
    if "path" in features:
        features["path"] = how.hub or features["path"]
    elif how.base:
        raise InputError("--base: this reward is over hashed words, which have no base")
    _write_json(new / "config.json", {**config, "features": features})


def _named_last(features: Mapping[str, Any]) -> dict[str, Any]:
    """Features with the last names of the models' folders."""
    named = {
        name: _named_last(value) if isinstance(value, Mapping) else value
        for name, value in features.items()
    }
    return named | ({"path": last_name(str(named["path"]))} if "path" in named else {})


def _drop_paths(new: Path) -> None:
    """Leave out absolute paths that libraries put into configurations."""
    for file in new.glob("*config.json"):
        content = json.loads(file.read_text(encoding="utf-8"))
        names = [key for key in ("_name_or_path", "name_or_path") if content.get(key)]
        changed = content | {key: last_name(str(content[key])) for key in names}
        if changed != content:
            _write_json(file, changed)


def _details(folder: Path, promise: Promise, audit: Path | None) -> Details:
    """The details of the guarantee, with the description of a round as recorded with the model or
    its run, and an audit of its mechanism.
    """
    stated = (read_json(folder / PRIVACY).get("promise") or {}).get("sampling")
    if not stated and folder.name == "model" and (run := result_of_training(folder.parent)):
        stated = sampling(run.to_json())
    evidence = _evidence(promise)
    if audit is None:
        return details(promise, result=evidence, sampling=stated)
    if not (row := read_json(audit.expanduser())):
        raise InputError(f"--audit {audit}: no such file")
    try:
        return details(promise, result=evidence, sampling=stated, audit=audited(row))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"--audit {audit}: no line of `murmuration audit TARGET --json`: {first_line(error)}"
        ) from None


def _evidence(promise: Promise) -> dict[str, Any] | None:
    """The bounds on attacks from the ledger of a single run, and dp-accounting's epsilon of its
    training.

    None if several runs are behind a model, or none with a guarantee: no curve is known then, and
    bounds follow from (ε, δ).
    """
    if len(promise.counted) != 1:
        return None
    (run,) = promise.counted
    if run.epsilon is None:
        return None
    with TemporaryDirectory() as folder:
        ledger = Path(folder) / "ledger.jsonl"
        ledger.write_bytes(run.ledger[0])
        head_path(ledger).write_bytes(run.ledger[1])
        account, _ = read_account(ledger)
    charges = list(account.spent.items())
    terms = {"adjacency": run.adjacency, "delta": run.delta}
    attack = attack_bounds.of_run(charges, epsilon=run.epsilon, **terms)
    opinion = second_opinion.of_run(charges, **terms)
    checked = {"attack": dataclasses.asdict(attack), "second_opinion": opinion.to_json()}
    return {"epsilon": run.epsilon, **checked}


def _amend_card(
    folder: Path, new: Path, how: Sharing, promise_details: Details | None, sentences: Sequence[str]
) -> None:
    place = new / CARD
    card = place.read_text(encoding="utf-8") if place.exists() else ""
    changes: dict[str, Any] = {"license": how.licence} if how.licence else {}
    passage = ""
    if is_language_model(folder):
        base = read_about(new)["base"]
        adapter = (new / ADAPTER).exists()
        changes["library_name"] = "peft" if adapter else "transformers"
        named = how.hub or hub_name(str(base["path"]))
        if named:
            relation = "adapter" if adapter else "finetune"
            changes |= {"base_model_relation": relation, "base_model": named}
        writes = base.get("task", "reward") != "reward"
        passage = loading(writes, base=named, adapter=adapter)
    elif how.hub:
        changes["base_model"] = how.hub
    entry = {name: value for name, value in (promise_details or {}).items() if value is not None}
    changes["differential_privacy"] = entry or None
    text = amended(
        without_folders(card),
        changes,
        passage,
        table(promise_details) if promise_details else "",
        sentences,
    )
    if how.merge:
        text = text.replace(_NOT_WHOLE, "its change is in the weights: this folder is whole", 1)
    place.write_text(text, encoding="utf-8")


_NOT_WHOLE = "this folder holds these, and needs the base"


def _write_json(file: Path, content: Mapping[str, Any]) -> None:
    file.write_text(strict_json(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
