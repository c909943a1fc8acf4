"""What is said by a command that was refused."""


def refusal(ended):
    """The one line that it said, of the exit code, stdout and lines of stderr."""
    code, _, lines = ended
    assert (code, len(lines)) == (2, 1), lines
    return lines[0]
