"""The protocol between server and nodes."""
