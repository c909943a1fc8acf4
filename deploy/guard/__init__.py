"""What keeps strangers from a SuperLink: bounds of connections, keys, accounts, erased files."""
