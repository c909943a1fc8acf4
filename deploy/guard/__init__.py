"""Protection of a SuperLink against strangers: limits on connections, keys, accounts, erased
files."""
