"""Clients whose connections are cut, and the check of what came out: cut.py MILLPOND TOXIPROXY FOLDER INPUT SECONDS KILLS SEED.

Clients send numbered events to the input through a toxiproxy that cuts connections at random bytes, and send again what was not
answered. They keep for each number how often it was sent. Each event carries its number, and Millpond writes its id beside it.
"""

import base64
import collections
import gzip
import http.client
import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import zlib

millpond, toxiproxy, folder, kind = sys.argv[1:5]
seconds, kills, seed = (int(text) for text in sys.argv[5:8])
PORT, PROXY, API = 21044, 21045, 21046
CLIENTS = 4
# How long a client waits for an answer before it sends again.
PATIENCE = 5

over = threading.Event()
# By number: how often it was sent. Each client has numbers of its own.
sent = collections.Counter()
answered = set()
lock = threading.Lock()
faults = collections.Counter()


class Client(threading.Thread):
    """Numbers of its own, from `first` on. A number goes back to `left` when it was not answered."""

    def __init__(self, index):
        super().__init__()
        self.next = index * 10_000_000
        self.random = random.Random(seed * 100 + index)
        self.error = None
        self.left = []

    def take(self, count):
        numbers, self.left = self.left[:count], self.left[count:]
        while len(numbers) < count and not over.is_set():
            numbers.append(self.next)
            self.next += 1
        return numbers

    def sending(self, numbers):
        with lock:
            sent.update(numbers)

    def answer(self, numbers):
        with lock:
            answered.update(numbers)

    def has_more(self):
        return bool(self.left)

    def run(self):
        while not over.is_set() or self.has_more():
            self.in_flight = []
            try:
                self.talk()
            except (OSError, EOFError, http.client.HTTPException):
                pass
            except Exception as error:
                self.error = error
                raise
            self.left = [number for numbers in self.in_flight for number in numbers] + self.left
            time.sleep(0.01)

    def text(self, number):
        return "x" * (number * 7919 % 900)

    def connect(self):
        stream = socket.create_connection(("127.0.0.1", PROXY), PATIENCE)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return stream


def exactly(stream, count):
    got = b""
    while len(got) < count:
        piece = stream.recv(count - len(got))
        if not piece:
            raise EOFError
        got += piece
    return got


class Beats(Client):
    """Windows, up to two in flight; events with odd numbers bring an id. A partial answer counts."""

    def talk(self):
        with self.connect() as stream:
            while True:
                while len(self.in_flight) < 2:
                    numbers = self.take(self.random.choice((1, 50, 500, 2048)))
                    if not numbers:
                        break
                    self.in_flight.append(numbers)
                    self.sending(numbers)
                    stream.sendall(self.window(numbers))
                if not self.in_flight:
                    return
                self.acknowledged(stream)

    def window(self, numbers):
        events = b""
        for sequence, number in enumerate(numbers, 1):
            metadata = {"beat": "test", "_id": f"own-{number}"} if number % 2 else {"beat": "test"}
            event = json.dumps({"@metadata": metadata, "n": number, "text": self.text(number)}).encode()
            events += b"2J" + struct.pack(">II", sequence, len(event)) + event
        if len(numbers) != 50:
            events = zlib.compress(events, 3)
            events = b"2C" + struct.pack(">I", len(events)) + events
        return b"2W" + struct.pack(">I", len(numbers)) + events

    def acknowledged(self, stream):
        window, done = self.in_flight[0], 0
        while done < len(window):
            frame = exactly(stream, 6)
            sequence = struct.unpack(">I", frame[2:])[0]
            assert frame[:2] == b"2A" and (sequence == 0 or done < sequence <= len(window)), (frame, done, len(window))
            if sequence:
                self.answer(window[done:sequence])
                done = sequence
                self.in_flight[0] = window[done:]
        self.in_flight.pop(0)

    def is_named(self, number):
        return number % 2 == 1


def packed(value):
    """MessagePack of what the messages have; their text is ASCII."""
    if isinstance(value, int):
        return b"\xd3" + struct.pack(">q", value)
    if isinstance(value, str) and len(value) < 32:
        return bytes([0xA0 + len(value)]) + value.encode()
    if isinstance(value, str):
        return b"\xdb" + struct.pack(">I", len(value)) + value.encode()
    if isinstance(value, bytes):
        return b"\xc6" + struct.pack(">I", len(value)) + value
    if isinstance(value, dict):
        return b"\xdf" + struct.pack(">I", len(value)) + b"".join(packed(k) + packed(v) for k, v in value.items())
    return b"\xdd" + struct.pack(">I", len(value)) + b"".join(packed(each) for each in value)


class Forward(Client):
    """Chunks in every mode, up to three in flight. A chunk is sent again as it was."""

    def __init__(self, index):
        super().__init__(index)
        self.chunks = []

    def talk(self):
        with self.connect() as stream:
            flying = []
            while True:
                while len(flying) < 3:
                    if len(self.chunks) == len(flying):
                        if not (numbers := self.take(self.random.choice((1, 30, 300, 1500)))):
                            break
                        self.chunks.append(self.chunk(numbers))
                    flying.append(self.chunks[len(flying)])
                    self.sending(flying[-1][1])
                    stream.sendall(flying[-1][2])
                if not flying:
                    return
                # The answer is the same number of bytes for every chunk.
                expected = b"\x81\xa3ack" + packed(flying[0][0])
                reply = exactly(stream, len(expected))
                assert reply == expected, (reply, expected)
                self.answer(flying.pop(0)[1])
                self.chunks.pop(0)

    def has_more(self):
        return bool(self.chunks)

    def chunk(self, numbers):
        name = base64.b64encode(self.random.randbytes(16)).decode()
        records = [[1700000000 + number, {"n": number, "text": self.text(number)}] for number in numbers]
        if len(numbers) == 1:
            message = ["tag", *records[0], {"chunk": name}]
        elif len(numbers) == 30:
            message = ["tag", records, {"chunk": name}]
        else:
            entries = b"".join(packed(record) for record in records)
            option = {"chunk": name, "size": len(records)}
            if len(numbers) == 1500:
                entries, option["compressed"] = gzip.compress(entries, 3), "gzip"
            message = ["tag", entries, option]
        return name, numbers, packed(message)

    def is_named(self, number):
        return True


class Elasticsearch(Client):
    """Bulk requests over connections that are kept; documents with odd numbers bring an id."""

    def talk(self):
        connection = http.client.HTTPConnection("127.0.0.1", PROXY, timeout=PATIENCE)
        try:
            while numbers := self.take(self.random.choice((1, 50, 500, 2000))):
                self.in_flight = [numbers]
                self.sending(numbers)
                self.post(connection, numbers)
                self.answer(numbers)
                self.in_flight = []
        finally:
            connection.close()

    def post(self, connection, numbers):
        lines = []
        for number in numbers:
            lines.append({"create": {"_id": f"own-{number}"} if number % 2 else {}})
            lines.append({"n": number, "text": self.text(number)})
        body = "".join(json.dumps(line) + "\n" for line in lines).encode()
        headers = {"Content-Type": "application/x-ndjson"}
        if len(numbers) != 50:
            body, headers["Content-Encoding"] = gzip.compress(body, 3), "gzip"
        connection.request("POST", "/logs/_bulk", body, headers)
        reply = connection.getresponse()
        text = reply.read()
        if reply.getheader("content-length") is None:
            # Headers that were cut look as if they were all.
            raise EOFError
        if reply.status in (408, 429, 503):
            raise EOFError
        assert reply.status == 200, (reply.status, text)
        items = json.loads(text)
        assert not items["errors"] and len(items["items"]) == len(numbers), text

    def is_named(self, number):
        return number % 2 == 1


def ask(method, path, body=None):
    request = urllib.request.Request(f"http://127.0.0.1:{API}/{path}", body and json.dumps(body).encode(), method=method)
    with urllib.request.urlopen(request, timeout=5) as reply:
        reply.read()


def reachable(port):
    try:
        socket.create_connection(("127.0.0.1", port)).close()
        return True
    except ConnectionRefusedError:
        return False


def until(what, holds, patience=60):
    begin = time.monotonic()
    while not holds():
        assert time.monotonic() - begin < patience, what
        time.sleep(0.05)


def start():
    log = open(f"{folder}/log", "ab")
    child = subprocess.Popen([millpond, "run", f"{folder}/service.yaml"], stderr=log)
    until("Millpond listens", lambda: child.poll() is not None or reachable(PORT))
    assert child.poll() is None, "Millpond ended: see " + log.name
    return child


def fault(chance):
    """A toxic; most of them cut every connection after a number of bytes, anything from one to some megabytes."""
    size = int(2 ** chance.uniform(0, 22))
    return chance.choice((
        ("cut upstream", {"type": "limit_data", "stream": "upstream", "attributes": {"bytes": size}}),
        ("cut upstream", {"type": "limit_data", "stream": "upstream", "attributes": {"bytes": size}}),
        ("cut downstream", {"type": "limit_data", "stream": "downstream", "attributes": {"bytes": size % 400 + 1}}),
        ("cut downstream", {"type": "limit_data", "stream": "downstream", "attributes": {"bytes": size % 30 + 1}}),
        ("reset", {"type": "reset_peer", "attributes": {"timeout": chance.randrange(200)}}),
        ("black hole", {"type": "timeout", "stream": chance.choice(("upstream", "downstream")), "attributes": {"timeout": 0}}),
        ("slices", {"type": "slicer", "attributes": {"average_size": 900, "size_variation": 800, "delay": 10}}),
        ("none", None),
    ))


def disturb(chance):
    """One fault for a moment."""
    name, toxic = fault(chance)
    faults[name] += 1
    if toxic:
        ask("POST", "proxies/p/toxics", {"name": "fault", **toxic})
    time.sleep(chance.uniform(0.05, 0.6))
    if toxic:
        ask("DELETE", "proxies/p/toxics/fault")


def came_out():
    """By number: the ids, and how often it came."""
    ids, copies = collections.defaultdict(set), collections.Counter()
    with open(f"{folder}/out", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                event = json.loads(line)
            except json.JSONDecodeError:
                # A kill may have torn the last line that its run wrote.
                assert kills or not line.endswith("\n"), line
                continue
            ids[event["n"]].add(event["id"])
            copies[event["n"]] += 1
    return ids, copies


def check(clients):
    until("every number to come out", lambda: len(came_out()[0]) >= len(answered))
    service.send_signal(signal.SIGTERM)
    assert service.wait(60) == 0
    ids, copies = came_out()
    assert answered == set(sent), "every number was answered in the end"
    missing = set(sent) - set(ids)
    assert not missing, f"{len(missing)} numbers are missing, such as {sorted(missing)[:5]}"
    strangers = set(ids) - set(sent)
    assert not strangers, sorted(strangers)[:5]
    named = clients[0].is_named
    for number, of in ids.items():
        most = 1 if named(number) else sent[number]
        assert len(of) <= most, f"{number} was sent {sent[number]} times and has the ids {of}"
        # After a kill the output may repeat what it wrote last, under the same ids.
        assert kills or copies[number] <= sent[number], f"{number} was sent {sent[number]} times and came {copies[number]} times"
    again = sum(1 for count in sent.values() if count > 1)
    under = sum(1 for of in ids.values() if len(of) > 1)
    assert again, "nothing was sent again: no fault hit"
    print(f"{kind}: {len(sent)} events, each arrived; {again} were sent more than once, {sum(n > 1 for n in copies.values())} came more "
          f"than once, {under} of them under another id ({sum(map(named, sent))} had an id of the sender); Millpond was killed {kills} times; "
          + ", ".join(f"{name} {count}" for name, count in sorted(faults.items())))


with open(f"{folder}/service.yaml", "w", encoding="utf-8") as file:
    json.dump({"data_dir": f"{folder}/state", "pipelines": {"p": {
        "input": {kind: {"address": PORT}},
        "queue": {"disk": {"min_free_bytes": 0}},
        "processors": ["set id = @metadata.id", "remove text"],
        "output": {"file": {"path": f"{folder}/out"}},
    }}}, file)
open(f"{folder}/out", "w").close()
proxy = subprocess.Popen([toxiproxy, "-host", "127.0.0.1", "-port", str(API)], stdout=open(f"{folder}/proxy", "wb"), stderr=subprocess.STDOUT)
service = None
try:
    service = start()
    until("the proxy listens", lambda: reachable(API))
    ask("POST", "proxies", {"name": "p", "listen": f"127.0.0.1:{PROXY}", "upstream": f"127.0.0.1:{PORT}", "enabled": True})
    clients = [{"beats": Beats, "forward": Forward, "elasticsearch": Elasticsearch}[kind](index) for index in range(CLIENTS)]
    for client in clients:
        client.daemon = True
        client.start()
    chance = random.Random(seed)
    begin = time.monotonic()
    for turn in range(kills + 1):
        while time.monotonic() - begin < seconds * (turn + 1) / (kills + 1):
            disturb(chance)
            assert service.poll() is None, "Millpond ended"
        if turn < kills:
            service.kill()
            service.wait()
            service = start()
    over.set()
    for client in clients:
        client.join(120)
        assert not client.is_alive() and client.error is None, client.error or "a client does not end"
    check(clients)
finally:
    for child in (service, proxy):
        if child and child.poll() is None:
            child.kill()
