"""Requests to an OpenAI-compatible chat endpoint, by the package `openai`.

What that package does: connections, pauses, further attempts where an endpoint is busy or broken.
What is added here:

- The endpoint is not trusted. A reply has limits of time and bytes; redirects are not followed, and
  the body of an error is not read.
- The key is read from the environment and goes into one header, nowhere else. Errors and logs quote
  neither headers nor bodies, where an endpoint could repeat it. Of proxies and logins
  (`HTTP_PROXY`, `.netrc`) in the environment nothing is taken: what is sent goes to the address
  that was named.
- An error is one line that names the option.
"""

import asyncio
import json
import logging
import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from ipaddress import ip_address
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from murmuration.preference.data.errors import InputError, with_extra

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_MOST_BYTES = 2**20  # of a reply
_HOPELESS = 20  # replies that cannot be read, before there is one that can
_BUSY = (408, 409, 429)  # and what is 500 or above: asked again

Body = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class Role:
    """The purpose of an endpoint: the options that name it, and the variable with its key."""

    option: str
    model_option: str
    key: str


JUDGE = Role("--judge", "--judge-model", "MURMURATION_JUDGE_KEY")
WRITER = Role("--writer", "the model", "MURMURATION_WRITER_KEY")


@dataclass(frozen=True)
class Endpoint:
    """The address and request settings of a model behind an endpoint.

    Attributes:
        url: up to and with ``/v1``.
        model: which of the endpoint's models.
        timeout: the most seconds without data; times ``attempts``, for a whole reply.
        attempts: requests for a reply if the endpoint is busy or fails, before giving up.
        at_once: requests under way together.
        role: its purpose.

    Raises:
        InputError: a value out of range; names the role's option.
    """

    url: str
    model: str
    _: KW_ONLY
    timeout: float = 120.0
    attempts: int = 8
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

    @property
    def is_private(self) -> bool:
        """True if nobody on the way can read what is sent."""
        parts = urlsplit(self.url)
        if parts.scheme == "https" or parts.hostname == "localhost":
            return True
        try:
            return ip_address(parts.hostname or "").is_loopback
        except ValueError:
            return False

    @property
    def named(self) -> str:
        """The option and the address, with which errors begin."""
        return f"{self.role.option} {self.url}"


@dataclass(frozen=True)
class Completion:
    """A model's reply: its text, and whether it was cut off at the most tokens."""

    text: str
    cut_off: bool


class Client:
    """Asks one endpoint, several requests at once."""

    def __init__(self, endpoint: Endpoint) -> None:
        """Read the key from the environment.

        Raises:
            InputError: the key is none, or it would be sent in the clear; `openai` is not here.
        """
        self.endpoint, self._openai = endpoint, _openai(endpoint.role.option)
        name = endpoint.role.key
        self._key = os.environ.get(name, "").strip()
        if not (self._key.isascii() and self._key.isprintable() and " " not in self._key):
            raise InputError(f"{name}: holds characters that no key has")
        if self._key and not endpoint.is_private:
            raise InputError(
                f"{endpoint.named}: the key in {name} would be sent in the clear; "
                "take https, or unset it"
            )
        omitted = self._openai.Omit()
        self._headers: dict[str, Any] = {"Accept-Encoding": "identity"}
        # What `openai` would take from the environment is about another endpoint.
        self._headers |= {"OpenAI-Organization": omitted, "OpenAI-Project": omitted}
        self._headers |= {} if self._key else {"Authorization": omitted}

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
            bodies: the requests, by a key of the caller's.
            read: from a completion to a result; None if it cannot be used.
            keep: is called with each result at once, and its key.
            progress: is called with the number of replies so far, and of all.
            afterwards: an error's sentence about the results so far.

        Raises:
            InputError: the endpoint refuses, cannot be reached, or gives no completions at all.
        """
        unreadable: set[str] = set()
        done = 0

        async def one(client: "AsyncOpenAI", free: asyncio.Semaphore, key: str) -> None:
            nonlocal done
            async with free:
                completion = completion_of(await self._reply(client, bodies[key], afterwards))
            result = None if completion is None else read(completion)
            if result is None:
                unreadable.add(key)
            else:
                keep(key, result)
            done += 1
            if _HOPELESS <= len(unreadable) == done:
                raise InputError(f"{self.endpoint.named}: it gives no chat completions")
            progress(done, len(bodies))

        async def all_of_them() -> None:
            free = asyncio.Semaphore(self.endpoint.at_once)
            async with self._client() as client, asyncio.TaskGroup() as tasks:
                for key in bodies:
                    tasks.create_task(one(client, free, key))

        try:
            asyncio.run(all_of_them())
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return unreadable

    def _client(self) -> "AsyncOpenAI":
        # Of the environment nothing counts but whose certificates do.
        named = {"SSL_CERT_FILE", "SSL_CERT_DIR"} & set(os.environ)
        return self._openai.AsyncOpenAI(
            api_key=self._key or "none",
            base_url=self.endpoint.url,
            timeout=self.endpoint.timeout,
            max_retries=self.endpoint.attempts - 1,
            http_client=self._openai.DefaultAsyncHttpxClient(
                trust_env=False,
                verify=ssl.create_default_context() if named else True,
                follow_redirects=False,
                event_hooks={"response": [_close_unless_good]},
            ),
        )

    async def _reply(self, client: "AsyncOpenAI", body: Body, afterwards: str) -> bytes | None:
        """A reply's body; None for one that is too large or packed, or that broke off."""
        endpoint, openai = self.endpoint, self._openai
        longest = endpoint.timeout * endpoint.attempts
        create = client.chat.completions.with_streaming_response.create
        try:
            call = create(**body, extra_headers=self._headers)
            async with asyncio.timeout(longest), call as reply:
                return await _bounded(reply)
        except TimeoutError:
            why = f"no whole reply within {longest:g} s"
        except openai.APIConnectionError as error:
            why = f"no reply ({type(error.__cause__).__name__})"
        except openai.APIStatusError as error:
            status, why = error.status_code, f"HTTP {error.status_code}"
            if status not in _BUSY and status < 500:
                raise InputError(
                    f"{endpoint.named}: refused (HTTP {status}): check the address, which must not "
                    f"redirect, {endpoint.role.model_option} {endpoint.model} and the key in "
                    f"{endpoint.role.key}"
                ) from None
        raise InputError(
            f"{endpoint.named}: {why}, after up to {endpoint.attempts} attempts{afterwards}"
        )


def _openai(option: str) -> ModuleType:
    """The openai package with its loggers disabled: at some levels they log a reply's headers."""
    with with_extra("endpoints", f"{option} with an address needs openai"):
        import openai
    for logger in ("openai", "httpx", "httpx2", "httpcore", "httpcore2"):
        logging.getLogger(logger).setLevel(logging.WARNING)
    return openai


async def _close_unless_good(response: Any) -> None:
    """Leave the body of an error unread, which may be of any size."""
    if response.status_code != 200:
        await response.aclose()


async def _bounded(reply: Any) -> bytes | None:
    """The reply's body; None if it is too large, compressed, or incomplete."""
    if reply.headers.get("content-encoding", "identity") not in ("", "identity"):
        return None
    content = bytearray()
    try:
        async for part in reply.iter_bytes():
            content += part
            if len(content) > _MOST_BYTES:
                return None
    except Exception:
        return None
    return bytes(content)


def completion_of(content: bytes | None) -> Completion | None:
    """The completion in a reply; None if it is not a chat completion."""
    try:
        reply = json.loads(content or b"")
        choice = reply["choices"][0]
        text = choice["message"]["content"]
    except (ValueError, RecursionError, KeyError, IndexError, TypeError):
        return None
    if not isinstance(text, str | None):
        return None
    return Completion(text or "", choice.get("finish_reason") == "length")
