"""Implements `await work`."""

import asyncio
import collections.abc

from ._core import Work


def until_done(work: Work) -> collections.abc.Generator[object, None, tuple[int, int, int] | None]:
    """Waits for the call without blocking the event loop, and raises its error."""
    loop = asyncio.get_running_loop()
    ended = loop.create_future()

    def tell() -> None:
        if not ended.done():
            ended.set_result(None)

    def end() -> None:
        try:
            loop.call_soon_threadsafe(tell)
        except RuntimeError:  # the loop was closed: nobody waits any more
            pass

    work._then(end)
    yield from ended
    work.wait()
    return work.received
