"""Find the account behind a TCP connection on this machine, by the kernel's tables (Linux).

The kernel lists this machine's sockets with their owners. A connection from another machine, or
from another network namespace of this one (a container), has its other end in no list of ours.
"""

import ipaddress
import sys
from pathlib import Path

SOCKETS = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED = "01"
Address = tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]


def can_tell() -> bool:
    """True if this system shows the account behind a connection."""
    return SOCKETS[0].exists()


def account_of(peer: tuple[str, int], here: tuple[str, int]) -> int | None:
    """The user id of the process at the other end of a connection; None if it is not of here.

    ``peer`` and ``here`` are address and port of the two ends, as a server sees them. A socket that
    its process has closed has no owner any more (the kernel says 0 for it): it is none of anybody.
    """
    wanted = (_address(peer), _address(here))
    for path in SOCKETS:
        try:
            lines = path.read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] != _ESTABLISHED or fields[9] == "0":
                continue
            if (_listed(fields[1]), _listed(fields[2])) == wanted:
                return int(fields[7])
    return None


def _address(end: tuple[str, int]) -> Address:
    return _plain(ipaddress.ip_address(end[0].partition("%")[0])), end[1]


def _listed(text: str) -> Address:
    """An address as the kernel writes it: 32-bit words in the machine's order, in hexadecimal."""
    host, _, port = text.partition(":")
    words = [bytes.fromhex(host[i : i + 8]) for i in range(0, len(host), 8)]
    packed = b"".join(word[::-1] if sys.byteorder == "little" else word for word in words)
    return _plain(ipaddress.ip_address(packed)), int(port, 16)


def _plain(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An IPv4 address that is written as an IPv6 one is the IPv4 one."""
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address
