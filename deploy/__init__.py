"""The same apps on separate machines: keys, commands, clients, runs."""
