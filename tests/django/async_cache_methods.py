"""Every `a*` method of `GlassCache` on a live server, two hundred at once, and no thread for any of it."""

import asyncio
import os
import sys
import threading
import unittest

from django.conf import settings

OPTIONS = {"timeout": 5, "stale": 5, "connections_max": 8}
CACHES = {
    "default": {
        "BACKEND": "glasscache.contrib.django.GlassCache",
        "LOCATION": sys.argv.pop(),
        "OPTIONS": OPTIONS,
    }
}
settings.configure(CACHES=CACHES)

from django.core.cache import cache  # noqa: E402


class AsyncCacheMethodsTests(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        await cache.aclear()

    async def test_set_get_delete_and_a_default(self) -> None:
        await cache.aset("k", {"a": (1, 2)})
        self.assertEqual(await cache.aget("k"), {"a": (1, 2)})
        self.assertTrue(await cache.adelete("k"))
        self.assertFalse(await cache.adelete("k"))
        self.assertEqual(await cache.aget("k", "default"), "default")

    async def test_a_stored_none_is_no_miss(self) -> None:
        await cache.aset("none", None)
        self.assertIsNone(await cache.aget("none", "default"))
        self.assertTrue(await cache.ahas_key("none"))
        self.assertIsNone(await cache.aget_or_set("none", lambda: 1))

    async def test_add_touch_and_timeouts(self) -> None:
        self.assertTrue(await cache.aadd("k", 1))
        self.assertFalse(await cache.aadd("k", 2))
        self.assertTrue(await cache.atouch("k", 100))
        self.assertFalse(await cache.atouch("absent", 100))
        await cache.aset("gone", 1, timeout=0)
        self.assertFalse(await cache.ahas_key("gone"))
        await cache.aset("far", 1, timeout=60 * 60 * 24 * 90)
        self.assertTrue(await cache.ahas_key("far"))

    async def test_many_keys_in_one_call(self) -> None:
        data = {f"k{number}": number for number in range(2000)}
        self.assertEqual(await cache.aset_many(data), [])
        self.assertEqual(await cache.aget_many([*data, "absent"]), data)
        await cache.adelete_many(list(data))
        self.assertEqual(await cache.aget_many(list(data)), {})

    async def test_numbers_and_versions(self) -> None:
        await cache.aset("n", 10)
        self.assertEqual(await cache.aincr("n", 5), 15)
        self.assertEqual(await cache.adecr("n"), 14)
        with self.assertRaises(ValueError):
            await cache.aincr("absent")
        await cache.aset("v", "x")
        self.assertEqual(await cache.aincr_version("v"), 2)
        self.assertIsNone(await cache.aget("v"))
        self.assertEqual(await cache.aget("v", version=2), "x")
        self.assertEqual(await cache.adecr_version("v", version=2), 1)

    async def test_get_or_set_fills_once(self) -> None:
        fill_count = 0

        async def fill() -> str:
            nonlocal fill_count
            fill_count += 1
            await asyncio.sleep(0.05)
            return "made"

        values = await asyncio.gather(*(cache.aget_or_set("cold", fill) for _ in range(50)))
        self.assertEqual((set(values), fill_count), ({"made"}, 1))

    async def test_two_hundred_gets_at_once_use_no_thread(self) -> None:
        await cache.aset_many({f"k{number}": number for number in range(200)})
        thread_count_before = threading.active_count()
        thread_count_peak = thread_count_before

        async def get(number: int) -> int:
            nonlocal thread_count_peak
            value = await cache.aget(f"k{number}")
            thread_count_peak = max(thread_count_peak, threading.active_count())
            return int(value)

        self.assertEqual(await asyncio.gather(*map(get, range(200))), list(range(200)))
        self.assertEqual(thread_count_peak, thread_count_before)

    async def test_a_cancelled_get_leaves_the_next_right(self) -> None:
        await cache.aset_many({"a": "a", "b": "b"})
        for _ in range(50):
            task = asyncio.create_task(cache.aget("a"))
            await asyncio.sleep(0)
            task.cancel()
            self.assertEqual(await cache.aget("b"), "b")

    async def test_a_value_over_the_limit_leaves_nothing_behind(self) -> None:
        await cache.aset("k", "old")
        with self.assertLogs("glasscache.django", "WARNING"):
            await cache.aset("k", os.urandom(3 << 20))
        self.assertIsNone(await cache.aget("k"))

    async def test_an_invalid_key_never_reaches_the_wire(self) -> None:
        from django.core.cache import InvalidCacheKey

        with self.assertRaises(InvalidCacheKey):
            await cache.aget("key with spaces")


unittest.main()
