"""Idle connections and what they cost: idle.py MILLPOND FOLDER INPUT CONNECTIONS [CERTIFICATE KEY].

Opens connections that send nothing, then has each send one event and read its answer, and measures resident memory and CPU time of
Millpond while they are silent each time. Another client must be served meanwhile.
"""

import os
import resource
import socket
import ssl
import subprocess
import sys
import time

millpond, folder, kind, count, *tls = sys.argv[1:]
count = int(count)
PORT = 21050
# By input: what a client sends, and how the answer begins.
BULK = b'{"create":{}}\n{"n":1}\n'
HTTP = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
EVENTS = {
    "beats": (b'2W\0\0\0\x012J\0\0\0\x01\0\0\0\x07{"n":1}', b"2A\0\0\0\x01"),
    "forward": (b"\x94\xa1t\x01\x81\xa1n\x01\x81\xa5chunk\xa1c", b"\x81\xa3ack\xa1c"),
    "elasticsearch": (HTTP % (b"/l/_bulk", len(BULK), BULK), b"HTTP/1.1 200"),
    "http": (HTTP % (b"/", 7, b'{"n":1}'), b"HTTP/1.1 200"),
    "tcp": (b"line\n", b""),
}
event, answer = EVENTS[kind]
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE


def connect():
    stream = socket.create_connection(("127.0.0.1", PORT), 60)
    return context.wrap_socket(stream) if tls else stream


def hear(stream):
    got = b""
    while len(got) < len(answer):
        piece = stream.recv(4096)
        assert piece, "the connection was closed"
        got += piece
    assert got.startswith(answer), got


def speak(stream):
    stream.sendall(event)
    hear(stream)


def resident():
    with open(f"/proc/{service.pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024


def descriptors():
    return len(os.listdir(f"/proc/{service.pid}/fd"))


def measured(what):
    """Memory, and CPU time while nothing happens."""
    time.sleep(2)
    times = lambda: sum(int(word) for word in open(f"/proc/{service.pid}/stat").read().rsplit(")", 1)[1].split()[11:13])
    before = times()
    time.sleep(5)
    busy = (times() - before) * 1000 / os.sysconf("SC_CLK_TCK") / 5
    mib = resident()
    print(f"{kind}{', TLS' if tls else ''}: {count} connections {what}: {mib:.0f} MiB resident, "
          f"{(mib - base) * 1024 / count:.1f} KiB for each; {busy:.0f} ms of CPU a second", flush=True)
    return mib


settings = f"max_connections={count + 100} idle_timeout=30m"
if tls:
    settings += f" tls.cert={tls[0]} tls.key={tls[1]}"
with open(f"{folder}/log", "wb") as log:
    service = subprocess.Popen([millpond, "run", f"{kind} {PORT} {settings} | file {folder}/out"], stderr=log)
try:
    for _ in range(200):
        try:
            speak(connect())
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
    time.sleep(1)
    base, files = resident(), descriptors()
    print(f"{kind}{', TLS' if tls else ''}: none: {base:.0f} MiB resident")
    streams = [connect() for _ in range(count)]
    begin = time.monotonic()
    while descriptors() < files + count:
        assert time.monotonic() - begin < 60, "connections are not accepted"
        time.sleep(0.1)
    silent = measured("that sent nothing")
    for stream in streams:
        stream.sendall(event)
    for stream in streams:
        hear(stream)
    peak = measured("after an event each")
    begin = time.monotonic()
    speak(connect())
    assert time.monotonic() - begin < 1, "another client waits"
    assert descriptors() >= files + count, "connections were closed"
    # The allocator keeps some of what 10,000 requests at the same moment took.
    is_fine = tls or silent <= 200 and peak <= 250
    sys.exit(0 if is_fine else f"{kind}: more than 200 MiB while silent, or 250 after an event each")
finally:
    service.kill()
