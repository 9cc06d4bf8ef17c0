"""The methods of both clients that need no network: settings, counters, reports, recording."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from glasscache._near import RequestMethods
from glasscache._suggestions import SuggestsNames

if TYPE_CHECKING:
    import os
    from typing import Unpack

    from glasscache import _native
    from glasscache._report import Explanation, Report
    from glasscache._types import Key
    from glasscache.recording import Recorder
    from glasscache.recording import Settings as RecorderSettings

__all__ = ["LocalMethods"]


class LocalMethods(RequestMethods, SuggestsNames):
    """The base of both clients: what is the same whether a call blocks or is awaited."""

    @property
    def codec(self) -> _native.Codec:
        """The codec that values pass through."""
        return self._state.codec

    def encode(self, value: Any) -> tuple[int, bytes]:
        """Return the flags of a value and the bytes that it would take on the wire."""
        return self._state.encode(value)

    def server_of(self, key: Key) -> str:
        """Return the name of the server that a key belongs to."""
        return self._state.server_of(key)

    @property
    def _has_reservations(self) -> bool:
        """Whether the codec's dialect has a form for reservations."""
        return self._state.reservation_form() is not None

    def _count_unstored(self) -> None:
        """Count a value that was made and not stored, for its key was changed meanwhile."""
        self._state.count_unstored()

    def stats(self) -> dict[str, Any]:
        """Return this client's counters: what its calls cost and how each server is. No network.

        `by_size` has a row for each kind of call and size decade, `by_width` one for each width of
        bulk calls and pipelines; `seconds` gives the parts of their time. `near_hits` are the keys
        that a strategy read without a call. See `server_stats` for the servers' own.

        Of a call of `AsyncClient` that shares its write with others, the part "network+server" is all the
        time from the call to its reply, iterations of the loop included.

        >>> client.stats()["misses_by_error"]
        0
        """
        return self._counters()

    def _counters(self) -> dict[str, Any]:
        return self._state.counters()

    @overload
    def report(self, *, json: Literal[False] = False) -> Report: ...

    @overload
    def report(self, *, json: Literal[True]) -> str: ...

    def report(self, *, json: bool = False) -> Report | str:
        """Return what this client's calls have cost, by kind and size, as a table to print. No network.

        Args:
            json: return a JSON document instead, with the strategy's counters and the two groups of its
                roll-out; `glasscache rollout` compares those of several processes.

        >>> print(client.report())  # doctest: +SKIP
        4,120 calls, 0 misses by error
        <BLANKLINE>
                            calls us a call serial. compr.   wait network decomp. deser.
        read 10+ B          2,050      49.9       -      -      -    39.5     0.2   10.1
        write 10+ B         2,050      79.2    24.3    0.8    0.2    53.9       -      -
        bulk 64+ keys          20       624       -      -      -     212       -    413
        ...

        """
        from glasscache._report import Report, format_json  # noqa: PLC0415 - few programs need it

        if json:
            return format_json(self.stats(), self._state.near_stats(), self._state.rollout_json())
        return Report(self.stats())

    def explain_value(self, value: Any) -> Explanation:
        """Return what storing and reading this value would cost the process. No network.

        >>> client.explain_value([1, 2, 3]).title
        'list: 4 bytes on the wire, flags 0x9c000006'
        """
        from glasscache._report import explain_value  # noqa: PLC0415 - likewise

        return explain_value(self, value)

    def recorder(
        self, folder: str | os.PathLike[str], **settings: Unpack[RecorderSettings]
    ) -> Recorder:
        """Return a recorder of what each request reads, and record this client's calls with it.

        See `glasscache.recording` for the settings and for HTTP middleware.

        >>> recorder = client.recorder("log/", sample=0.5)  # doctest: +SKIP
        >>> with recorder.request(route="front page"):  # doctest: +SKIP
        ...     _ = client.get("headlines")
        """
        from glasscache.recording import Recorder  # noqa: PLC0415 - few programs need it

        recorder = Recorder(folder, **settings)
        recorder.attach(self)
        return recorder
