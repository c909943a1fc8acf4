"""What a client is handed: nothing but what is on the list, whole, and signed by whom they know."""

import os
import shutil
import stat
import subprocess

import pytest
from cryptography import x509

from murmuration.deploy.handed_over import (
    FILES,
    LONGEST,
    OWNERS,
    SIGNATURE,
    SUMS,
    HandedOver,
    fingerprint_of,
)
from murmuration.deploy.init import Deployment, write_deployment
from murmuration.preference.data.errors import InputError


@pytest.fixture(scope="module")
def deployments(tmp_path_factory):
    """Two deployments with a client each."""
    folders = [tmp_path_factory.mktemp("deployments") / name for name in ("d", "other")]
    for port, folder in enumerate(folders, 8100):
        write_deployment(folder, Deployment(("127.0.0.1",), port, ("alice",)))
    return folders


@pytest.fixture
def folder(deployments, tmp_path):
    """A client's folder as it was handed over."""
    return shutil.copytree(deployments[0] / "clients" / "alice", tmp_path / "alice")


@pytest.fixture
def other(deployments, tmp_path):
    """That of a client of somebody else's deployment."""
    return shutil.copytree(deployments[1] / "clients" / "alice", tmp_path / "other" / "alice")


def test_what_init_writes_is_accepted(folder):
    assert {path.name for path in folder.iterdir()} == FILES
    handed_over = HandedOver.examine(folder)
    assert handed_over.changed == ()
    certificate = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
    assert handed_over.fingerprint == fingerprint_of(certificate)
    for path in folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) & 0o111 == 0


ADDED = {
    "typer.py": lambda path: path.write_text("import os"),
    "judgements.jsonl": lambda path: path.write_text("{}"),
    "state": lambda path: path.mkdir(),
    "logs": lambda path: path.mkdir(),
    ".git": lambda path: path.mkdir(),
    "identity.key": lambda path: path.write_text("00" * 32),
    "murmuration-agent.service": lambda path: path.write_text("[Service]\nUser=root"),
    "flwr": lambda path: path.symlink_to("/tmp"),
    "a\x1b[2Jb": lambda path: path.write_text(""),
}
MADE = {
    "a link": lambda path: (path.rename(path.with_name("x")), path.symlink_to("../x")),
    "not a file of its own": lambda path: os.link(path, path.parent.parent / "also"),
    "executable": lambda path: path.chmod(0o755),
    "above": lambda path: path.write_bytes(b"#" * (LONGEST + 1)),
    "not a file": lambda path: (path.unlink(), os.mkfifo(path)),
}


@pytest.mark.parametrize("name", ADDED)
def test_each_other_thing_is_named_and_refused(folder, name):
    ADDED[name](folder / name)
    with pytest.raises(InputError, match="nothing else") as error:
        HandedOver.examine(folder)
    assert f"Take out: {name!a} (" in str(error.value)
    assert "\x1b" not in str(error.value)


def test_all_of_them_are_named(folder):
    for name in ("typer.py", "state"):
        ADDED[name](folder / name)
    with pytest.raises(InputError, match=r"'state' \(not on the list\), 'typer.py' \(not on the"):
        HandedOver.examine(folder)


@pytest.mark.parametrize("why", MADE)
@pytest.mark.parametrize("name", ["policy.toml", "run.toml"])
def test_what_is_on_the_list_is_a_plain_file(folder, name, why):
    MADE[why](folder / name)
    with pytest.raises(InputError, match=rf"'{name}' \({why}"):
        HandedOver.examine(folder)


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_change_by_somebody_on_the_way_is_seen(folder, name):
    (folder / name).write_bytes((folder / name).read_bytes() + b"\n# more\n")
    if name in OWNERS:  # an owner may edit a policy, and make a key of their own
        assert HandedOver.examine(folder).changed == (name,)
        return
    with pytest.raises(InputError, match=name if name not in (SUMS, SIGNATURE) else SUMS):
        HandedOver.examine(folder)


@pytest.mark.parametrize("name", sorted(FILES))
def test_what_lacks_is_seen(folder, name):
    (folder / name).unlink()
    if name in OWNERS:
        assert HandedOver.examine(folder).changed == (name,)
        return
    with pytest.raises(InputError, match=rf"lacks {name}: ask the operator"):
        HandedOver.examine(folder)


def test_a_file_of_another_folder_is_not_of_this_one(folder, other):
    for name in ("ca.crt", SUMS, SIGNATURE):
        shutil.copy(other / name, folder / name)
    with pytest.raises(InputError, match="not as the operator signed it"):
        HandedOver.examine(folder)
    shutil.copy(folder / "README.md", folder / "ca.crt")
    with pytest.raises(InputError, match=r"ca\.crt is no authority's"):
        HandedOver.examine(folder)


def test_another_authority_is_seen_by_who_knows_its_fingerprint(folder, other, tmp_path):
    """A whole folder in the place of another, signed well, by somebody else."""
    state = tmp_path / "state"
    state.mkdir()
    mine, theirs = HandedOver.examine(folder), HandedOver.examine(other)
    assert not theirs.check_authority(state, "")  # who knows nothing sees nothing
    assert mine.check_authority(state, mine.fingerprint)
    pasted = f"sha256 Fingerprint={mine.fingerprint}"  # as openssl prints it
    assert mine.check_authority(state, pasted)
    with pytest.raises(InputError, match="not by --fingerprint"):
        theirs.check_authority(state, mine.fingerprint)
    mine.keep_authority(state)
    assert mine.check_authority(state, "")
    with pytest.raises(InputError, match="not who signed it before"):
        theirs.check_authority(state, "")
    theirs.keep_authority(state)  # what is known stays
    assert mine.check_authority(state, "")


@pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl")
def test_other_programs_check_the_same(folder):
    """What a page says to those who would rather believe sha256sum and openssl."""
    for command in (
        "sha256sum --check --strict SHA256SUMS",
        "openssl x509 -in ca.crt -noout -pubkey > ../public.pem",
        "openssl dgst -sha384 -verify ../public.pem -signature SHA256SUMS.sig SHA256SUMS",
    ):
        subprocess.run(["sh", "-c", command], cwd=folder, check=True, capture_output=True)
    shown = subprocess.run(
        ["openssl", "x509", "-in", "ca.crt", "-noout", "-fingerprint", "-sha256"],
        cwd=folder, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert shown.strip().endswith(f"={HandedOver.examine(folder).fingerprint}")
