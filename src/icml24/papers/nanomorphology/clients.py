r"""Prompts, and who answers them: a chat server, or the nearest example without any model."""

from __future__ import annotations

import http.client
import json
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Protocol

import numpy as np

__all__ = ["ChatClient", "NearestExampleClient", "OpenAIChatClient", "build_messages"]

#: The instruction used when none is given; our wording.
SYSTEM = (
    "You know how calcium carbonate nanoparticles are made. You are given a synthesis procedure. Name the shapes "
    "that the particles will have: Cube, Stick, Sphere, Flat, Amorphous. Several may occur together; separate them "
    "by commas. When in doubt, name the most probable ones. Answer with the names only."
)

DELAYS = (1.0, 2.0, 4.0)
LONGEST_WAIT = 30.0

Message = Mapping[str, str]


def build_messages(
    examples: Sequence[tuple[str, str]], query: str, *, system: str | None = None
) -> list[dict[str, str]]:
    """Messages of one few-shot request.

    Parameters
    ----------
    examples : sequence of (text, answer)
        Procedure text and comma-separated shapes; may be empty.
    query : str
        The procedure to be judged.
    system : str, optional
        Instruction; ours by default.

    Returns
    -------
    list of dict
        ``role`` and ``content``: system, then user and assistant in turn, then the query as user.
    """
    messages = [{"role": "system", "content": SYSTEM if system is None else system}]
    for text, answer in examples:
        messages.append({"role": "user", "content": text})
        messages.append({"role": "assistant", "content": answer})
    messages.append({"role": "user", "content": query})
    return messages


class ChatClient(Protocol):
    """Whatever answers a list of messages with one text."""

    def complete(self, messages: Sequence[Message], *, temperature: float = 0.0, max_tokens: int = 16) -> str:
        """Reply to the last message."""
        ...


class NearestExampleClient:
    """Offline stand-in; no language model is involved.

    It reads the numbers of the query and of each example, standardises them over the examples and
    answers what the nearest example (Euclidean, the first on a tie) answers. Digits inside names
    ("CaCl2", "X-100", "1-Hexanol") are not numbers. Where texts hold different counts of numbers,
    the leading ones that all of them have are compared.
    """

    name = "nearest-example (no LLM)"
    _number = re.compile(r"(?<![\w.-])\d+(?:\.\d+)?(?![\w-])")

    def complete(self, messages: Sequence[Message], *, temperature: float = 0.0, max_tokens: int = 16) -> str:
        """Answer of the nearest example.

        Parameters
        ----------
        messages : sequence of mapping
            As made by `build_messages`, with at least one example.
        temperature, max_tokens
            Ignored; there is no sampling and no model.

        Returns
        -------
        str

        Raises
        ------
        ValueError
            No example, or the last message is not the user's.
        """
        turns = [message for message in messages if message["role"] != "system"]
        if not turns or turns[-1]["role"] != "user":
            raise ValueError("the last message must be the user's query")
        pairs = [
            (first["content"], second["content"])
            for first, second in pairwise(turns)
            if first["role"] == "user" and second["role"] == "assistant"
        ]
        if not pairs:
            raise ValueError("nearest-example needs at least one example (user and assistant message)")
        numbers = [
            [float(n) for n in self._number.findall(text)]
            for text in (*(text for text, _ in pairs), turns[-1]["content"])
        ]
        shared = min(map(len, numbers))
        table = np.array([row[:shared] for row in numbers], dtype=float).reshape(len(numbers), shared)
        examples, query = table[:-1], table[-1]
        spread = examples.std(axis=0)
        scale = np.where(spread > 0, spread, 1.0)
        distance = (((examples - query) / scale) ** 2).sum(axis=1)
        return pairs[int(np.argmin(distance))][1]


class OpenAIChatClient:
    """Client of any server that speaks the ``/chat/completions`` dialect.

    Parameters
    ----------
    model : str
        Name that the server knows.
    base_url : str
        Up to and without ``/chat/completions``, for instance ``http://localhost:8000/v1``.
    api_key : str, optional
        Default: the environment variable ``OPENAI_API_KEY``; without either, no key is sent. White
        space around it is dropped.
    timeout : float, default 60.0
        Seconds a request.
    max_retries : int, default 3
        Further attempts after 429, 5xx and network errors, waiting 1, 2, 4 seconds (or what
        ``Retry-After`` asks for, up to 30).

    Raises
    ------
    ValueError
        A `base_url` that is no web address, a `timeout` or `max_retries` out of range, or a key that
        no header can carry.

    Notes
    -----
    Redirects are refused, so that the key goes nowhere else; the key never enters a message.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str,
        api_key: str | None = None,
        timeout: float = 60.0,
        max_retries: int = 3,
    ) -> None:
        if not base_url.startswith(("http://", "https://")):
            raise ValueError(f"base_url must start with http:// or https://; got {base_url!r}")
        if timeout <= 0 or max_retries < 0:
            raise ValueError(f"expected timeout > 0 and max_retries >= 0; got {timeout}, {max_retries}")
        self.name = self.model = model
        self.url = base_url.rstrip("/") + "/chat/completions"
        self.timeout = timeout
        self.max_retries = max_retries
        self._key = _clean(api_key if api_key is not None else os.environ.get("OPENAI_API_KEY"))
        self._opener = urllib.request.build_opener(_NoRedirect)

    def complete(self, messages: Sequence[Message], *, temperature: float = 0.0, max_tokens: int = 16) -> str:
        """Reply of the server.

        Parameters
        ----------
        messages : sequence of mapping
            ``role`` and ``content`` each.
        temperature : float, default 0.0
        max_tokens : int, default 16

        Returns
        -------
        str

        Raises
        ------
        RuntimeError
            Any other status (with the status and the start of the body), an answer that is not
            what the dialect promises, or retries used up.
        """
        body = json.dumps(
            {
                "model": self.model,
                "messages": [dict(message) for message in messages],
                "temperature": temperature,
                "max_tokens": max_tokens,
            }
        ).encode()
        headers = {"Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        for attempt in range(self.max_retries + 1):
            wait = DELAYS[min(attempt, len(DELAYS) - 1)]
            try:
                request = urllib.request.Request(self.url, data=body, headers=headers, method="POST")
                with self._opener.open(request, timeout=self.timeout) as answer:
                    return self._content(answer.read())
            except urllib.error.HTTPError as error:
                text = self._excerpt(_body(error))
                problem = f"the chat server answered status {error.code}: {text}"
                if error.code != 429 and error.code < 500:
                    raise RuntimeError(problem) from None
                wait = _retry_after(error.headers.get("Retry-After"), wait)
            except (OSError, http.client.HTTPException) as error:  # refused, cut off, timed out, unknown name
                reason = getattr(error, "reason", None) or error
                problem = f"no answer from the chat server at {self.url}: {reason}"
            if attempt < self.max_retries:
                time.sleep(wait)
        raise RuntimeError(self._hide(f"{problem} (after {self.max_retries + 1} attempts)"))

    def _content(self, raw: bytes) -> str:
        try:
            content = json.loads(raw)["choices"][0]["message"]["content"]
        except (ValueError, KeyError, IndexError, TypeError):
            content = None
        if not isinstance(content, str):
            raise RuntimeError(
                f"the chat server's answer holds no choices[0].message.content: {self._excerpt(raw)}"
            ) from None
        return content

    def _excerpt(self, raw: bytes) -> str:
        return self._hide(raw.decode("utf-8", "replace"))[:200]

    def _hide(self, text: str) -> str:
        return text.replace(self._key, "[key]") if self._key else text

    def __repr__(self) -> str:
        return f"OpenAIChatClient({self.model!r}, url={self.url!r})"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req, fp, code, msg, headers, newurl):
        return None


def _clean(key: str | None) -> str | None:
    """The key without white space around it (a file's last newline); what no header can carry is refused."""
    key = (key or "").strip()
    if not all(" " <= character <= "~" for character in key):
        raise ValueError("api_key must consist of printable ASCII characters only (it is not shown)")
    return key or None


def _body(error: urllib.error.HTTPError) -> bytes:
    """What the server wrote beside an error status; nothing where it cannot be read."""
    try:
        with error:
            return error.read()
    except (OSError, http.client.HTTPException):
        return b"(no readable body)"


def _retry_after(header: str | None, default: float) -> float:
    try:
        asked = float(header) if header is not None else default
    except ValueError:
        return default
    return min(asked, LONGEST_WAIT) if asked >= 0 else default
