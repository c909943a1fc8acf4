"""A message's record by name, of the kind that is expected there.

Flower's own ``content.config_records`` copies all records of that kind, at every look.
"""

from flwr.app import ArrayRecord, ConfigRecord, RecordDict


def config_of(content: RecordDict, name: str) -> ConfigRecord:
    """A record of single values; KeyError if there is none of that name."""
    record = content[name]
    if not isinstance(record, ConfigRecord):
        raise KeyError(name)
    return record


def arrays_of(content: RecordDict, name: str) -> ArrayRecord:
    """A record of arrays; KeyError if there is none of that name."""
    record = content[name]
    if not isinstance(record, ArrayRecord):
        raise KeyError(name)
    return record
