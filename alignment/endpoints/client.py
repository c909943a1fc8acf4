"""Requests to an OpenAI-compatible chat endpoint, each bounded in time, bytes and attempts.

Decisions:
- The endpoint is not trusted. It has so long for a reply and so many bytes; redirects are not
  followed.
- The key is read from the environment and goes into one header, nowhere else. Errors quote neither
  headers nor bodies, where an endpoint could repeat it. Of proxies and logins (`HTTP_PROXY`,
  `.netrc`) in the environment nothing is taken: what is sent goes to the address that was named.
"""

import asyncio
import json
import logging
import math
import os
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx

from murmuration.preference.data.rows import InputError

_MOST_BYTES = 2**20  # of a reply
_MOST_COUNTED = 10**9  # a count of tokens beyond is none
_LONGEST_PAUSE = 60.0
_HOPELESS = 20  # replies that cannot be read, before there is one that can

Body = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class Role:
    """What an endpoint is for: the options that name it, and the variable with its key."""

    option: str
    model_option: str
    key: str


JUDGE = Role("--judge", "--judge-model", "MURMURATION_JUDGE_KEY")
WRITER = Role("--writer", "the model", "MURMURATION_WRITER_KEY")


@dataclass(frozen=True)
class Endpoint:
    """Where a model answers, and how it is asked.

    Attributes:
        url: up to and with ``/v1``.
        model: which of the endpoint's models.
        price: of a million tokens in and out, in any currency; None if not known.
        timeout: seconds for a whole reply.
        attempts: requests for a reply where the endpoint is busy or broken, before giving up.
        pause: seconds before the second; each further pause is twice as long.
        at_once: requests under way together.
        role: what it is for.

    Raises:
        InputError: a value out of range; names the role's option.
    """

    url: str
    model: str
    price: tuple[float, float] | None = None
    timeout: float = 120.0
    attempts: int = 6
    pause: float = 1.0
    at_once: int = 8
    role: Role = JUDGE

    def __post_init__(self) -> None:
        option = self.role.option
        try:
            parts = urlsplit(self.url)
            secret, host, _ = parts.username or parts.password, parts.hostname, parts.port
        except ValueError:
            raise InputError(f"{option}: that is not an address") from None
        if secret or parts.query or parts.fragment:  # and would stand in results; not quoted here
            raise InputError(
                f"{option}: the address holds more than a place; a key belongs into {self.role.key}"
            )
        if parts.scheme not in ("http", "https") or not host or not self.url.isprintable():
            raise InputError(
                f"{option} {self.url!r}: that is not an address such as http://HOST/v1"
            )
        if not self.model.strip():
            raise InputError(f"{self.role.model_option} names which of the endpoint's models it is")
        if self.price and not all(math.isfinite(each) and each >= 0 for each in self.price):
            raise InputError("--judge-price must not be negative")

    @property
    def is_private(self) -> bool:
        """Return whether nobody on the way can read what is sent."""
        parts = urlsplit(self.url)
        if parts.scheme == "https" or parts.hostname == "localhost":
            return True
        try:
            return ip_address(parts.hostname or "").is_loopback
        except ValueError:
            return False

    @property
    def named(self) -> str:
        """Return the option and the address, which errors begin with."""
        return f"{self.role.option} {self.url}"


@dataclass(frozen=True)
class Completion:
    """A model's reply: its text, the tokens in and out if it counted them, and whether it was cut
    off at the most tokens."""

    text: str
    tokens: tuple[int, int] | None
    cut_off: bool


class Client:
    """Asks one endpoint, several requests at once."""

    def __init__(self, endpoint: Endpoint) -> None:
        """Read the key from the environment.

        Raises:
            InputError: the key is none, or it would be sent in the clear.
        """
        self.endpoint = endpoint
        name = endpoint.role.key
        key = os.environ.get(name, "").strip()
        if key and not (key.isascii() and key.isprintable() and " " not in key):
            raise InputError(f"{name}: holds characters that no key has")
        if key and not endpoint.is_private:
            raise InputError(
                f"{endpoint.named}: the key in {name} would be sent in the clear; "
                "take https, or unset it"
            )
        for logger in ("httpx", "httpcore"):  # which log a reply's headers, where somebody debugs
            logging.getLogger(logger).setLevel(logging.WARNING)
        self._headers = {"Accept-Encoding": "identity"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"

    def ask(
        self,
        bodies: Mapping[str, Body],
        read: Callable[[Completion], T | None],
        keep: Callable[[str, T], None],
        progress: Callable[[int, int], None],
        afterwards: str = "",
    ) -> set[str]:
        """Send requests; return the keys of those whose replies could not be read.

        Args:
            bodies: what is sent, by a key of the caller's.
            read: what a completion comes to; None if it is none that can be used.
            keep: is given each result as soon as it is there, with its key.
            progress: is told how many of how many replies there are.
            afterwards: what an error says of those that are there.

        Raises:
            InputError: the endpoint refuses, cannot be reached, or gives no completions at all.
        """
        return asyncio.run(self._ask_all(bodies, read, keep, progress, afterwards))

    async def _ask_all(
        self,
        bodies: Mapping[str, Body],
        read: Callable[[Completion], T | None],
        keep: Callable[[str, T], None],
        progress: Callable[[int, int], None],
        afterwards: str,
    ) -> set[str]:
        unreadable: set[str] = set()
        failed: list[InputError] = []
        waiting = iter(bodies.items())
        done = 0

        async def work(client: httpx.AsyncClient) -> None:
            nonlocal done
            for key, body in waiting:  # which all workers share
                if failed:
                    return
                try:
                    completion = completion_of(await self._content(client, body, afterwards))
                    result = None if completion is None else read(completion)
                    if result is None:
                        unreadable.add(key)
                    else:
                        keep(key, result)
                except InputError as error:  # others end what they have begun, which is paid for
                    failed.append(error)
                    return
                done += 1
                if _HOPELESS <= len(unreadable) == done:
                    failed.append(
                        InputError(f"{self.endpoint.named}: it gives no chat completions")
                    )
                progress(done, len(bodies))

        limits = httpx.Limits(max_connections=self.endpoint.at_once)
        async with httpx.AsyncClient(
            headers=self._headers,
            limits=limits,
            timeout=None,
            follow_redirects=False,
            trust_env=False,  # no proxy and no .netrc; whose certificates count may be said there
            verify=httpx.create_ssl_context(),
        ) as client:
            await asyncio.gather(*(work(client) for _ in range(self.endpoint.at_once)))
        if failed:
            raise failed[0]
        return unreadable

    async def _content(
        self, client: httpx.AsyncClient, body: Body, afterwards: str
    ) -> bytes | None:
        """A reply's body; None for one that is too large, or packed."""
        endpoint, why = self.endpoint, ""
        for attempt in range(endpoint.attempts):
            pause = endpoint.pause * 2**attempt * random.uniform(0.75, 1.25)  # not in step
            try:
                async with asyncio.timeout(endpoint.timeout):
                    status, content, asked_pause = await self._sent(client, body)
            except (TimeoutError, httpx.TimeoutException):
                why = f"no reply within {endpoint.timeout:g} s"
            except httpx.ConnectError:
                why = "it cannot be reached"
            except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
                why = f"the connection broke ({type(error).__name__})"
            else:
                if status == 200:
                    return content
                if 300 <= status < 400:
                    raise InputError(f"{endpoint.named}: it redirects; name the final address")
                if status not in (408, 425, 429) and status < 500:
                    more = f", the key in {endpoint.role.key}" if status in (401, 403) else ""
                    raise InputError(
                        f"{endpoint.named}: refused (HTTP {status}): check the address{more} and "
                        f"{endpoint.role.model_option} {endpoint.model}"
                    )
                why, pause = f"HTTP {status}", max(pause, asked_pause)
            if attempt + 1 < endpoint.attempts:
                await asyncio.sleep(min(pause, _LONGEST_PAUSE))
        raise InputError(f"{endpoint.named}: {why}, {endpoint.attempts} times{afterwards}")

    async def _sent(self, client: httpx.AsyncClient, body: Body) -> tuple[int, bytes | None, float]:
        """Status, body (None: too large or packed) and the pause that is asked for."""
        url = f"{self.endpoint.url.rstrip('/')}/chat/completions"
        async with client.stream("POST", url, json=body) as reply:
            pause = _seconds(reply.headers.get("retry-after", ""))
            packed = reply.headers.get("content-encoding", "identity") not in ("", "identity")
            if reply.status_code != 200 or packed:
                return reply.status_code, None, pause
            content = bytearray()
            async for part in reply.aiter_raw():
                content += part
                if len(content) > _MOST_BYTES:
                    return reply.status_code, None, pause
            return reply.status_code, bytes(content), pause


def completion_of(content: bytes | None) -> Completion | None:
    """Return what a reply says; None if it is no chat completion."""
    try:
        reply = json.loads(content or b"")
        choice = reply["choices"][0]
        text = choice["message"]["content"]
    except (ValueError, RecursionError, KeyError, IndexError, TypeError):
        return None
    if not isinstance(text, str | None):
        return None
    usage = reply.get("usage")
    counts = [
        usage.get(name) if isinstance(usage, dict) else None
        for name in ("prompt_tokens", "completion_tokens")
    ]
    return Completion(text or "", token_counts(counts), choice.get("finish_reason") == "length")


def token_counts(counts: Any) -> tuple[int, int] | None:
    """Return two counts of tokens, or None for what is none."""
    if not isinstance(counts, list) or len(counts) != 2:
        return None
    if any(type(each) is not int or not 0 <= each <= _MOST_COUNTED for each in counts):
        return None
    return counts[0], counts[1]


def _seconds(header: str) -> float:
    try:
        seconds = float(header)
    except ValueError:
        return 0.0
    return seconds if math.isfinite(seconds) else 0.0
