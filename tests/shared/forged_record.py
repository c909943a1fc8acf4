"""Another history in the place of a chained record, its head with it."""

from murmuration.privacy.accounting.chained_record import ChainedRecord, head_path


def rewrite(path, payloads):
    """Put a record of these lines, the first one first, in the place of whatever is there."""
    first, *others = payloads
    path.unlink(missing_ok=True)
    head_path(path).unlink(missing_ok=True)
    record = ChainedRecord(path, first)
    for payload in others:
        record.append(payload)
    record.close()
