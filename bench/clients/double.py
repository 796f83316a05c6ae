"""Strict doubles of servers, after their documentation: double.py KIND PORT FILE [NAME=VALUE ...].

KIND is splunk_hec, loki, clickhouse or tcp. What is accepted goes into FILE before it is answered, in one write that outlives the process:
an id, a tab and a message in each line; of loki also the stream and the time behind another tab; of clickhouse a line `=TOKEN` behind the rows
of an insert, without which they do not count. What a client must never do is noted in FILE.violations.

  delay=MS     milliseconds before each answer
  busy=N       every N-th request is answered with 503 or 429 by turns, and must not come again within the second that `Retry-After` names
  lose=N       every N-th request is stored, and then its connection closed, or 500 answered, by turns
  refuse=N     events whose number is a multiple are refused as the server refuses them
  acknowledge=MS   of splunk_hec: indexer acknowledgement, that many milliseconds after a request
  known=FILES  of clickhouse: files of earlier processes, whose tokens are known

Sources: <https://docs.splunk.com/Documentation/Splunk/latest/Data/TroubleshootHTTPEventCollector>,
<https://docs.splunk.com/Documentation/Splunk/latest/Data/AboutHECIDXAck>, <https://grafana.com/docs/loki/latest/reference/loki-http-api/>,
<https://clickhouse.com/docs/interfaces/http>.
"""

import glob
import gzip
import hashlib
import json
import re
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

kind, port, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
options = dict(option.split("=", 1) for option in sys.argv[4:])
number_of = {name: int(options.get(name, 0)) for name in ("delay", "busy", "lose", "refuse", "acknowledge")}
RETRY_AFTER = 1
TOKEN = "11111111-2222-3333-4444-555555555555"

out = open(path, "ab", buffering=0)
lock = threading.Lock()
requests = 0
# How many events the last request had that were stored.
stored = 0
# By what a busy server refused: since when it may come again.
refused_until = {}


def violated(what):
    with open(path + ".violations", "a", encoding="utf-8") as notes:
        notes.write(what + "\n")


def store(lines):
    global stored
    stored = sum(not line.startswith("=") for line in lines)
    data = "".join(lines).encode()
    while data:
        data = data[out.write(data):]


def is_refused(message):
    return number_of["refuse"] and int(message.rsplit("#", 1)[1]) % number_of["refuse"] == 0


def count(what):
    """Says on standard output what happened; the caller of this program counts it."""
    print(what, flush=True)


class Splunk:
    """The HTTP Event Collector."""

    pending = {}
    channels = {}

    def answer(self, request, body):
        credentials = request.headers.get("Authorization", "")
        if credentials != f"Splunk {TOKEN}":
            violated(f"credentials `{credentials}`")
            return self.reply(403, 4, "Invalid token")
        channel = request.headers.get("X-Splunk-Request-Channel", "")
        if number_of["acknowledge"] and not re.fullmatch(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", channel):
            return self.reply(400, 10, "Data channel is missing")
        where = urlsplit(request.path).path
        if where == "/services/collector/ack" and number_of["acknowledge"]:
            return self.acknowledgements(channel, json.loads(body)["acks"])
        if where == "/services/collector/event":
            return self.events(request, body, channel)
        if not where.startswith("/services/collector"):
            violated(f"path {where}")
        return self.reply(404, 404, "The requested URL was not found on this server.")

    def events(self, request, body, channel):
        if request.headers.get("Content-Type") != "application/json":
            violated(f"content type {request.headers.get('Content-Type')}")
        text, at, lines, problem = body.decode(), 0, [], None
        decoder = json.JSONDecoder()
        while at < len(text):
            if text[at].isspace():
                at += 1
                continue
            try:
                envelope, at = decoder.raw_decode(text, at)
            except json.JSONDecodeError:
                violated("no JSON")
                problem = (6, "Invalid data format")
                break
            if problem := self.problem(envelope):
                break
            lines.append(f"{envelope['fields']['id']}\t{envelope['event']}\n")
        if not lines and not problem:
            return self.reply(400, 5, "No data")
        if problem:
            store(lines)
            count("refused")
            return 400, {}, json.dumps({"text": problem[1], "code": problem[0], "invalid-event-number": len(lines)})
        if not number_of["acknowledge"]:
            store(lines)
            return self.reply(200, 0, "Success")
        number = self.channels[channel] = self.channels.get(channel, -1) + 1
        self.pending[channel, number] = [time.monotonic() + number_of["acknowledge"] / 1000, lines]
        return 200, {}, json.dumps({"text": "Success", "code": 0, "ackId": number})

    def problem(self, envelope):
        unknown = set(envelope) - {"time", "host", "source", "sourcetype", "index", "event", "fields"}
        if unknown or not isinstance(envelope.get("time", 0), (int, float)):
            violated(f"an envelope with {envelope}")
            return 6, "Invalid data format"
        event = envelope.get("event")
        if event is None or event == "":
            return (12, "Event field is required") if event is None else (13, "Event field cannot be blank")
        if any(isinstance(value, (dict, type(None))) for value in envelope["fields"].values()):
            return 15, "Error in handling indexed fields"
        return (6, "Invalid data format") if is_refused(event) else None

    def acknowledgements(self, channel, numbers):
        now, acks = time.monotonic(), {}
        for number in numbers:
            waits = self.pending.get((channel, number))
            acks[str(number)] = bool(waits) and waits[0] <= now
            if acks[str(number)]:
                # It says so once.
                store(self.pending.pop((channel, number))[1])
        return 200, {}, json.dumps({"acks": acks})

    def reply(self, status, code, text):
        return status, {}, json.dumps({"text": text, "code": code})

    def busy(self, status):
        return self.reply(status, 9, "Server is busy")


class Loki:
    """The push endpoint. It stores what is fine of a request that it answers with 400."""

    def answer(self, request, body):
        if request.path != "/loki/api/v1/push":
            violated(f"path {request.path}")
            return 404, {}, "404 page not found"
        if request.headers.get("Content-Type") != "application/json":
            violated(f"content type {request.headers.get('Content-Type')}")
        lines, rejected = [], None
        for stream in json.loads(body)["streams"]:
            labels = stream["stream"]
            if not labels or not all(re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", name) and value for name, value in labels.items()):
                violated(f"labels {labels}")
                return 400, {}, "error at least one label pair is required per stream"
            labels = json.dumps(labels, sort_keys=True)
            for value in stream["values"]:
                if not (2 <= len(value) <= 3 and isinstance(value[0], str) and value[0].isdigit() and isinstance(value[1], str)):
                    violated(f"an entry {value}")
                    return 400, {}, "couldn't parse push request"
                if is_refused(value[1]):
                    rejected = f"entry for stream '{labels}' has timestamp too old: {value[0]}"
                else:
                    lines.append(f"{value[2]['id']}\t{value[1]}\t{labels} {value[0]}\n")
        store(lines)
        if rejected:
            count("refused")
            return 400, {}, rejected
        return 204, {}, ""

    def busy(self, status):
        return status, {}, "Ingestion rate limit exceeded for user"


class ClickHouse:
    """Inserts, stored as a whole or not at all. One whose token is known is ignored."""

    def __init__(self):
        self.tokens = set()
        for name in glob.glob(options["known"]) if "known" in options else []:
            with open(name, encoding="utf-8", errors="replace") as file:
                self.tokens.update(line[1:-1] for line in file if line.startswith("=") and line.endswith("\n"))

    def answer(self, request, body):
        parameters = dict(parse_qsl(urlsplit(request.path).query))
        for name, value in (("wait_end_of_query", "1"), ("date_time_input_format", "best_effort")):
            if parameters.get(name) != value:
                violated(f"{name} is {parameters.get(name)}")
        if parameters.get("query") != "INSERT INTO `logs` FORMAT JSONEachRow":
            violated(f"the statement {parameters.get('query')}")
            return self.exception(400, 62, "Syntax error")
        rows = [json.loads(line) for line in body.decode().splitlines()]
        token = parameters.get("insert_deduplication_token")
        if not token:
            violated("no token")
        if any(is_refused(row["message"]) for row in rows):
            count("refused")
            return self.exception(400, 27, "Cannot parse input: expected a number: (while reading the value of key n): (at row 1)")
        if token in self.tokens:
            count("ignored")
            return 200, {}, ""
        store([f"{row['id']}\t{row['message']}\n" for row in rows] + [f"={token}\n"])
        self.tokens.add(token)
        return 200, {}, ""

    def exception(self, status, code, text):
        return status, {"X-ClickHouse-Exception-Code": str(code)}, f"Code: {code}. DB::Exception: {text}. (NAME) (version 26.9.2.1)"

    def busy(self, status):
        return self.exception(status, 202, "Too many simultaneous queries")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        global requests
        body = self.body()
        encoding = self.headers.get("Content-Encoding", "identity")
        if encoding == "gzip":
            body = gzip.decompress(body)
        elif encoding != "identity":
            violated(f"encoding {encoding}")
        if number_of["delay"]:
            time.sleep(number_of["delay"] / 1000)
        with lock:
            requests += "/ack" not in self.path
            is_turn = lambda name: "/ack" not in self.path and number_of[name] and requests % number_of[name] == 0
            came = hashlib.sha1(body).digest()
            # Other requests in between are not looked at, only the one that was refused.
            if time.monotonic() < refused_until.pop(came, 0):
                violated("a request came again before the time in Retry-After")
            if is_turn("busy"):
                status = 503 if requests // number_of["busy"] % 2 else 429
                refused_until[came] = time.monotonic() + RETRY_AFTER - 0.02
                count(f"busy {status}")
                status, headers, text = double.busy(status)
                return self.say(status, headers | {"Retry-After": str(RETRY_AFTER)}, text)
            status, headers, text = double.answer(self, body)
            if status < 300 and is_turn("lose"):
                # How many events it had.
                count(f"lost {stored}")
                if requests // number_of["lose"] % 2:
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return None
                status, headers, text = 500, {}, "the answer is lost"
        return self.say(status, headers, text)

    def body(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            pieces = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(pieces)
        size = int(self.headers["Content-Length"])
        body = self.rfile.read(size)
        if len(body) < size:
            raise ConnectionResetError
        return body

    def say(self, status, headers, text):
        body = text.encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_):
        error = sys.exc_info()[1]
        # What a cut left of the size of a chunk is none.
        if not isinstance(error, (ConnectionError, ValueError)):
            violated(f"{type(error).__name__}: {error}")


def take_lines(connection):
    """Documents in lines, until the connection ends. What is no whole line is not one."""
    rest = b""
    try:
        while data := connection.recv(256 * 1024):
            if number_of["delay"]:
                time.sleep(number_of["delay"] / 1000)
            *lines, rest = (rest + data).split(b"\n")
            events = [json.loads(line) for line in lines]
            with lock:
                store([f"{event['id']}\t{event['message']}\n" for event in events])
    except ConnectionError:
        pass
    connection.close()


if kind == "tcp":
    listener = socket.create_server(("127.0.0.1", port))
    while True:
        threading.Thread(target=take_lines, args=(listener.accept()[0],), daemon=True).start()
double = {"splunk_hec": Splunk, "loki": Loki, "clickhouse": ClickHouse}[kind]()
Server(("127.0.0.1", port), Handler).serve_forever()
