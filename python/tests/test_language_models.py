"""The example of a cache for language models: paid calls, counters, and the same with litellm."""

from __future__ import annotations

import importlib.util
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from glasscache import Client

EXAMPLE = Path(__file__).parents[2] / "examples" / "language_models.py"


@pytest.fixture(scope="module")
def example() -> Any:
    spec = importlib.util.spec_from_file_location("language_models", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["language_models"] = module
    spec.loader.exec_module(module)
    return module


class CountingModel:
    """A completion function in place of a paid one."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.may_reply = threading.Event()
        self.may_reply.set()

    def __call__(self, **request: Any) -> tuple[str, float]:
        self.requests.append(request)
        self.may_reply.wait(10)
        return f"reply {len(self.requests)}", 0.000_25


def request_of(text: str, **parameters: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], **parameters}


def test_a_repeated_request_is_computed_once_and_its_price_is_counted(
    example: Any, client: Client
) -> None:
    model = CountingModel()
    cache = example.CompletionCache(client, model)
    first_completion, second_completion = (
        cache.complete(**request_of("a")),
        cache.complete(**request_of("a")),
    )
    assert (first_completion.text, first_completion.cost_usd) == ("reply 1", 0.000_25)
    assert (second_completion.text, second_completion.price_usd, second_completion.cost_usd) == (
        "reply 1",
        0.000_25,
        0.0,
    )
    assert (cache.microdollars("paid"), cache.microdollars("saved")) == (250, 250)


@pytest.mark.parametrize(
    "other_request",
    [request_of("b"), request_of("a", temperature=0.5), {**request_of("a"), "model": "n"}],
)
def test_another_request_is_another_call(
    example: Any, client: Client, other_request: dict[str, Any]
) -> None:
    model = CountingModel()
    cache = example.CompletionCache(client, model)
    texts = {cache.complete(**request).text for request in (request_of("a"), other_request)}
    assert texts == {"reply 1", "reply 2"}


def test_requests_at_the_same_time_wait_for_one_call(example: Any, client: Client) -> None:
    model = CountingModel()
    model.may_reply.clear()
    cache = example.CompletionCache(client, model)
    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(cache.complete, **request_of("a")) for _ in range(8)]
        model.may_reply.set()
        texts = {future.result(timeout=10).text for future in futures}
    assert (texts, len(model.requests)) == ({"reply 1"}, 1)


def test_a_model_that_fails_is_not_cached(example: Any, client: Client) -> None:
    def fail(**_: Any) -> tuple[str, float]:
        raise ConnectionError("no credit")

    with pytest.raises(ConnectionError, match="no credit"):
        example.CompletionCache(client, fail).complete(**request_of("a"))
    cache = example.CompletionCache(client, CountingModel())
    assert cache.complete(**request_of("a")).text == "reply 1"


@pytest.mark.filterwarnings("ignore")  # of litellm itself
def test_litellm_replies_and_prices_come_from_the_store(
    example: Any, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Importing it would load a newer list of prices from the network.
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    pytest.importorskip("litellm", reason="litellm is not installed")
    cache = example.CompletionCache(client, example.call_litellm)
    message = {"role": "user", "content": "Name a lamp."}
    request = {"model": "gpt-4o-mini", "messages": [message], "mock_response": "A bankers lamp."}
    first_completion, second_completion = cache.complete(**request), cache.complete(**request)
    assert first_completion.text == second_completion.text == "A bankers lamp."
    assert first_completion.cost_usd > 0
    assert (second_completion.price_usd, second_completion.cost_usd) == (
        first_completion.price_usd,
        0.0,
    )
