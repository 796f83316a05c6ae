"""The engine of ClickHouse, as the package chdb has it, behind the part of the HTTP interface that inserts need.

`PUT /lose/N` has every Nth insert answered with 500 after it was stored; `GET /lost` says how many there were.
"""

import gzip
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

from chdb.session import Session

session = Session(sys.argv[1])
session.query("CREATE DATABASE IF NOT EXISTS work")
session.query("USE work")
lock = threading.Lock()
lose, inserts, lost = 0, 0, 0
NOT_SETTINGS = {"query", "wait_end_of_query"}


def run(parameters, body):
    """The answer to a statement: status, code of the exception, text."""
    statement = parameters.get("query")
    try:
        if statement is None:
            return 200, 0, str(session.query(body.decode(), "TSV"))
        settings = ", ".join(
            f"{name} = '{value}'" for name, value in parameters.items() if name not in NOT_SETTINGS
        )
        head, form = statement.rsplit(" FORMAT ", 1)
        session.query(f"{head} SETTINGS {settings} FORMAT {form} {body.decode()}")
        return 200, 0, ""
    except Exception as error:
        code = re.search(r"Code: (\d+)", str(error))
        return 500, int(code.group(1)) if code else 1002, str(error)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, code, text):
        body = text.encode()
        self.send_response(status)
        if code:
            self.send_header("X-ClickHouse-Exception-Code", str(code))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_PUT(self):
        global lose
        lose = int(self.path.rsplit("/", 1)[1])
        self.answer(200, 0, "")

    def do_GET(self):
        self.answer(200, 0, f"{lost}\n")

    def do_POST(self):
        global inserts, lost
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        parameters = dict(parse_qsl(urlsplit(self.path).query))
        with lock:
            status, code, text = run(parameters, body)
            if "query" in parameters and status == 200:
                inserts += 1
                if lose and inserts % lose == 0:
                    lost += 1
                    status, code, text = 500, 0, "the answer is lost"
        self.answer(status, code, text)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(f"127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
