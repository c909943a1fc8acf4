"""An agent is who it was before, and says so in every session."""

import stat

import pytest

from murmuration.client.agent.identity import Identity
from murmuration.preference.data.errors import InputError
from murmuration.privacy.secure_aggregation.party import Party
from murmuration.strategies.protocol import secure_messages as wire


def test_a_key_is_made_once_and_is_its_owners_only(tmp_path):
    path = tmp_path / "identity.key"
    made = Identity.at(path)
    assert Identity.at(path) == made
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert made.private.hex() not in repr(made)
    assert Identity.at(tmp_path / "other.key").public != made.public
    assert [file.name for file in tmp_path.iterdir()].count("identity.key") == 1


@pytest.mark.parametrize("text", ["", "no key", "ab", "ab" * 33])
def test_what_is_no_key_is_not_replaced(tmp_path, text):
    path = tmp_path / "identity.key"
    path.write_text(text)
    with pytest.raises(InputError, match=r"identity\.key cannot be used"):
        Identity.at(path)
    assert path.read_text() == text


def test_its_keys_of_a_session_are_signed(tmp_path):
    identity, party = Identity.at(tmp_path / "identity.key"), Party.begin(b"s" * 16)
    assert identity.entry(party).signed_by(b"s" * 16) == identity.public
    assert identity.entry(party).keys == party.public
    assert Identity().entry(party) == wire.Entry(party.public)
    assert Identity().public == b""
