"""Calls of language models, each paid once: an exact-match cache that counts what it saves.

Usage: python examples/language_models.py [HOST:PORT]; without an address it starts a server of its own. It
costs nothing: with litellm installed it requests a mock response of litellm, else one made here.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from contextlib import ExitStack
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from glasscache import Client, Server

if TYPE_CHECKING:
    from collections.abc import Callable

TTL_S = 7 * 86400
LEASE_S = 60
"""Longer than a model takes: meanwhile other processes wait for its reply instead of paying for their own."""


class Completion(NamedTuple):
    """What a model replied; `cost_usd` is what this call cost, 0 if the reply was stored."""

    text: str
    price_usd: float
    cost_usd: float


class CompletionCache:
    """Completions under everything that decides them: model, messages and parameters.

    `call_model` takes a request as keywords and returns the text and its price in dollars.
    """

    def __init__(self, client: Client, call_model: Callable[..., tuple[str, float]]) -> None:
        """Bind to a cache and a model."""
        self._client, self._call_model = client, call_model

    def complete(self, **request: Any) -> Completion:
        """Call the model, or return the stored reply to the same request."""
        was_called = False

        def call_and_list() -> list[Any]:
            nonlocal was_called
            was_called = True
            return list(self._call_model(**request))

        text, price_usd = self._client.get_or_set(
            key_of(request), call_and_list, ttl=TTL_S, lease=LEASE_S, split=True
        )
        if was_called:
            self._add_to_total("paid", price_usd)
        else:
            self._add_to_total("saved", price_usd)
        return Completion(text, price_usd, price_usd if was_called else 0.0)

    def microdollars(self, counter: str) -> int:
        """Return what all processes have "paid" or "saved", in millionths of a dollar."""
        return int(self._client.get(f"llm:1:{counter}_microdollars") or 0)

    def _add_to_total(self, counter: str, price_usd: float) -> None:
        amount = round(price_usd * 1e6)
        self._client.incr(f"llm:1:{counter}_microdollars", amount, initial=amount, ttl=0)


def key_of(request: dict[str, Any]) -> str:
    """Return the key of a request; raise the number in it when the form of the stored reply changes."""
    # Sorted, so that the same request gives the same text in every process.
    request_text = json.dumps(request, sort_keys=True)
    return f"llm:1:{hashlib.sha256(request_text.encode()).hexdigest()}"


def call_litellm(**request: Any) -> tuple[str, float]:
    """Call a model by litellm, which knows what the providers charge."""
    # The prices that the package brings: without this, importing it loads a newer list.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm  # noqa: PLC0415 - optional: pip install litellm

    response = litellm.completion(**request)
    return response.choices[0].message.content, litellm.completion_cost(response)


def reply_without_a_model(**request: Any) -> tuple[str, float]:
    """Reply as a model would, at a price per character."""
    time.sleep(0.05)
    prompt = request["messages"][-1]["content"]
    return f"A reply to {prompt!r}", 1e-6 * len(prompt)


def main() -> None:
    """Send two prompts, one of them three times, and print what that cost."""
    with ExitStack() as stack:
        address = sys.argv[1] if len(sys.argv) > 1 else stack.enter_context(Server()).address
        client = stack.enter_context(Client(address, timeout=1, on_error="miss"))
        has_litellm = find_spec("litellm") is not None
        cache = CompletionCache(client, call_litellm if has_litellm else reply_without_a_model)
        mock_arguments = {"mock_response": "A bankers lamp."} if has_litellm else {}
        prompts = ["Name a lamp.", "Name a lamp.", "Name a chair.", "Name a lamp."]
        for prompt in prompts:
            message = {"role": "user", "content": prompt}
            completion = cache.complete(
                model="gpt-4o-mini", temperature=0, messages=[message], **mock_arguments
            )
            print(
                f"{prompt:<14} {completion.text:<28} {completion.cost_usd * 1e6:6.1f} microdollars"
            )
        paid, saved = cache.microdollars("paid"), cache.microdollars("saved")
        print(f"{len(prompts)} calls: {paid} microdollars paid, {saved} microdollars saved")


if __name__ == "__main__":
    main()
