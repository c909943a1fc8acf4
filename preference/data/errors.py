"""What is wrong with what somebody gave: light to import, for whoever only passes it on."""


class InputError(ValueError):
    """Input that a user can correct: one line that names the file, row or option and says what to
    do."""


class BadRow(ValueError):
    """Why one row cannot be used; whoever knows the row's place adds it."""
