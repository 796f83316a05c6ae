"""Works for some seconds: in its own functions, and in native code that they call."""

import sys
import time
import zlib


def own_leaf(seed):
    value = seed
    for _ in range(20_000):
        value = (value * 1664525 + 1013904223) & 0xFFFFFFFF
    return value


def own_loop(end):
    total = 0
    while time.monotonic() < end:
        total += own_leaf(total)
    return total


def own_native(end, data):
    total = 0
    while time.monotonic() < end:
        total += len(zlib.compress(data, 9))
    return total


half = float(sys.argv[1]) / 2
data = bytes((i * 2654435761 >> 27) & 31 for i in range(1 << 16))
for _ in range(10):
    own_loop(time.monotonic() + half / 10)
    own_native(time.monotonic() + half / 10, data)
