"""A proxy of the environment that takes what is meant for a deployment's own server."""

from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass


def proxy_for(address: str) -> str:
    """Return the proxy that would be asked for ``HOST:PORT`` over TLS, and "" where none would be.

    It is what ``https_proxy``, ``all_proxy`` and ``no_proxy`` say, in either case.
    """
    host = urlsplit(f"//{address}").hostname or ""
    proxies = getproxies()
    proxy = proxies.get("https") or proxies.get("all") or ""
    return "" if proxy_bypass(host) else proxy


def way_around(address: str) -> str:
    """Advice where a proxy would take connections to ``address``; "" where none does."""
    if not proxy_for(address):
        return ""
    host = urlsplit(f"//{address}").hostname
    return f"a proxy of the environment stands before {address}: set NO_PROXY={host}"
