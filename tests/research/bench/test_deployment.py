"""The relay that counts; the measurement itself is run by hand (docs/research/attacks.md)."""

import socket
import threading

from murmuration.research.bench.deployment import Relay


def test_the_relay_passes_everything_on_and_counts_it():
    server = socket.create_server(("127.0.0.1", 0))

    def answer():
        connection, _ = server.accept()
        with connection:
            got = b""
            while len(got) < 100_000:
                got += connection.recv(1 << 16)
            connection.sendall(got[::-1] + b"end")

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    relay = Relay(server.getsockname()[1])
    sent = bytes(range(250)) * 400
    with socket.create_connection(("127.0.0.1", relay.port), timeout=30) as client:
        client.sendall(sent)
        got = b""
        while part := client.recv(1 << 16):
            got += part
    thread.join(30)
    assert got == sent[::-1] + b"end"
    assert (relay.up, relay.down) == (100_000, 100_003)
    relay.close()
    server.close()
