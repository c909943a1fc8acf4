"""What several commands are asked."""

import pytest


@pytest.fixture
def refusal(cli):
    """A function: the one line with which a command line is refused."""

    def call(*arguments):
        code, stdout, lines = cli(*arguments)
        assert (code, stdout, len(lines)) == (2, "", 1), (code, stdout, lines)
        return lines[0]

    return call
