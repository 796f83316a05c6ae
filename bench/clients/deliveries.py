"""Outputs, their servers, and faults between them: deliveries.py MILLPOND TOOLS FOLDER LOG OUTPUT [CASE ...].

TOOLS has the programs `counting` and `otlplogs`; LOG has lines of text, which become EVENTS events, each with a number behind it. Servers note
the id and the message of what they accept before they say so. Afterwards every message must be there, nothing else, each under
one id, and once, except where the case lets repeats be. Prints a line for each case, and exits with 1 if one fails.
"""

import collections
import glob
import json
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

millpond, tools, folder, log, output = sys.argv[1:6]
EVENTS = int(os.environ.get("EVENTS", 100_000))
SEED = int(os.environ.get("SEED", 1))
here = os.path.dirname(os.path.abspath(__file__))
# How long nothing may arrive while events are awaited.
PATIENCE = 90
# Events whose number is a multiple are refused, where a case refuses some.
REFUSED = 9973
TOKEN = "11111111-2222-3333-4444-555555555555"


class Failed(Exception):
    pass


def expect(holds, what):
    if not holds:
        raise Failed(what)


def until(what, holds, patience=60):
    begin = time.monotonic()
    while not holds():
        expect(time.monotonic() - begin < patience, f"waited {patience} s for {what}")
        time.sleep(0.05)


taken_ports = set()


def free_port():
    """A port that the system does not give to clients by itself."""
    while True:
        port = random.randrange(15000, 30000)
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        if port not in taken_ports:
            taken_ports.add(port)
            return port


def reachable(port):
    try:
        socket.create_connection(("127.0.0.1", port)).close()
        return True
    except ConnectionRefusedError:
        return False


def messages(pad=0):
    """Lines, each with its number. With `pad`, those that are refused are longer by that much."""
    with open(log, encoding="utf-8", errors="replace") as file:
        lines = [line.rstrip("\n").replace("\t", " ") for line in file]
    expect(lines, f"{log} is empty")
    return [lines[number % len(lines)] + "x" * (pad if number % REFUSED == 0 else 0) + f" #{number}" for number in range(EVENTS)]


class Cutter:
    """A proxy that cuts each connection at a random byte of either direction, the same ones for the same seed."""

    def __init__(self, server, up, down):
        self.server, self.up, self.down = server, up, down
        self.random = random.Random(SEED)
        self.cuts = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            self.begin(self.listener.accept()[0])

    def begin(self, client):
        """Carries both directions. Nothing else keeps the sockets, so that they close when both have ended."""
        # Most are cut in what is sent, some of them at once; the others in the answers.
        room = {True: self.random.randrange(*self.up), False: 1 << 60}
        draw = self.random.random()
        if draw < 0.2:
            room[True] = self.random.randrange(1, 3000)
        elif draw < 0.5:
            room[False] = self.random.randrange(*self.down)
        try:
            server = socket.create_connection(("127.0.0.1", self.server))
        except OSError:
            client.close()
            return
        for is_up, ends in ((True, (client, server)), (False, (server, client))):
            threading.Thread(target=self.carry, args=(*ends, room[is_up]), daemon=True).start()

    def carry(self, source, target, room):
        try:
            while data := source.recv(64 * 1024):
                target.sendall(data[:room])
                room -= len(data)
                if room <= 0:
                    self.cuts += 1
                    break
        except OSError:
            pass
        for end in (source, target):
            # A reset, so that what is on its way is lost too.
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)) if room <= 0 else None
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class Place:
    """A folder, the processes of a case, and what arrived."""

    def __init__(self, case):
        self.folder = f"{folder}/{output}-{case}"
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder)
        self.children = []
        self.kills = 0
        # By name of a file: how far it was read, what is not taken over yet.
        self.read = {}
        self.arrived = collections.Counter()
        self.ids = collections.defaultdict(set)
        self.seen = set()
        self.repeats_seen = 0
        self.by_server = collections.Counter()

    def spawn(self, command, **more):
        errors = open(f"{self.folder}/errors", "ab")
        child = subprocess.Popen(command, stderr=errors, **more)
        self.children.append(child)
        return child

    def end(self):
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.wait()

    def write(self, name, content):
        with open(f"{self.folder}/{name}", "w", encoding="utf-8") as file:
            file.write(content)
        return f"{self.folder}/{name}"

    def count(self):
        """Takes over what the servers have noted; how many different messages there are."""
        for name in glob.glob(f"{self.folder}/arrived-*"):
            if name.endswith(".violations"):
                continue
            at, held = self.read.get(name, (0, []))
            with open(name, "rb") as file:
                file.seek(at)
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            for line in whole.decode("utf-8", "replace").splitlines():
                held.append(line)
                if line.startswith("=") or output != "clickhouse" or "-own" in name:
                    self.take(held, name)
                    held = []
            self.read[name] = (at + len(whole), held)
        return len(self.arrived)

    def take(self, lines, name):
        for line in lines:
            if line.startswith("="):
                continue
            event, message, *place = line.split("\t")
            self.arrived[message] += 1
            self.ids[message].add(event)
            self.by_server[os.path.basename(name).split("-")[1]] += 1
            if place:
                # What makes an entry of Loki the same.
                self.repeats_seen += (message, place[0]) not in self.seen and self.arrived[message] > 1
                self.seen.add((message, place[0]))

    def await_all(self, expected):
        least, since = -1, time.monotonic()
        while (now := self.count()) < expected:
            if now > least:
                least, since = now, time.monotonic()
            expect(time.monotonic() - since < PATIENCE, f"{now} of {expected} events have arrived, and no more of them for {PATIENCE} s")
            time.sleep(0.2)

    def check(self, wanted, repeats, has_ids=True):
        """That what arrived is what is wanted; repeats is `none`, `seen once` or `some`."""
        self.count()
        wanted = set(wanted)
        missing = wanted - set(self.arrived)
        strangers = set(self.arrived) - wanted
        total = self.arrived.total()
        again = total - len(self.arrived)
        text = f"{len(wanted)} events, {total} arrived, {len(self.arrived)} different, {again} repeats"
        expect(not missing, f"{text}: {len(missing)} are missing, such as {sorted(missing)[:2]}")
        expect(not strangers, f"{text}: {len(strangers)} are none of them, such as {sorted(strangers)[:2]}")
        expect(again == 0 or repeats != "none", f"{text}: there may be no repeats")
        expect(repeats != "seen once" or self.repeats_seen == 0, f"{text}: {self.repeats_seen} would be seen twice")
        if has_ids:
            several = [message for message, ids in self.ids.items() if len(ids) > 1]
            expect(not several, f"{text}: {len(several)} have several ids, such as {[self.ids[message] for message in several[:1]]}")
            expect(len(set().union(*self.ids.values())) == len(self.arrived), f"{text}: events share an id")
        for name in glob.glob(f"{self.folder}/*.violations"):
            with open(name, encoding="utf-8") as file:
                found = collections.Counter(file.read().splitlines())
            raise Failed(f"{text}: the client broke the rules of the server: {found.most_common(3)}")
        return text


class Server:
    """What receives, under a name, on one port in all of its lives."""

    def __init__(self, place, name="a", **options):
        self.place, self.name, self.options = place, name, options
        self.port = free_port()
        self.second = free_port()
        self.lives = 0
        self.start()

    def command(self, file):
        delay = self.options.get("delay", 0)
        plain = [f"{name}={value}" for name, value in self.options.items()]
        flags = [text for name, value in self.options.items() for text in (f"-{name}", str(value))]
        at = f"127.0.0.1:{self.port}"
        if output == "logstash":
            return [f"{tools}/counting", at, file, str(delay)]
        if output == "forward":
            return [f"{tools}/otlplogs", "collect", *flags, file, "forward", at]
        if output == "otlp":
            return [f"{tools}/otlplogs", "collect", *flags, file, "otlp", at, f"127.0.0.1:{self.second}"]
        if output == "syslog":
            return self.rsyslog(file)
        known = [f"known={self.place.folder}/arrived-{self.name}-*"] if output == "clickhouse" else []
        return [sys.executable, f"{here}/double.py", output, str(self.port), file, *plain, *known]

    def rsyslog(self, file):
        """Each message is written before the next one is read."""
        conf = self.place.write("rsyslog.conf", f"""
global(workDirectory="{self.place.folder}" maxMessageSize="64k")
module(load="imtcp") input(type="imtcp" port="{self.port}" address="127.0.0.1")
template(name="noted" type="string" string="%structured-data%\\t%msg%\\n")
main_queue(queue.type="Direct")
action(type="omfile" file="{file}.raw" template="noted" asyncWriting="off" flushOnTXEnd="on")
""")
        return [os.environ.get("RSYSLOGD") or shutil.which("rsyslogd") or "/usr/sbin/rsyslogd", "-n", "-f", conf, "-i", f"{self.place.folder}/pid"]

    def start(self):
        self.lives += 1
        self.file = f"{self.place.folder}/arrived-{self.name}-{self.lives}"
        if output == "syslog" and not isinstance(self, Own):
            # A name without `arrived`, because it is written in another form; see `Syslog.count`.
            self.file = f"{self.place.folder}/syslog-{self.name}-{self.lives}"
            pid = f"{self.place.folder}/pid"
            if os.path.exists(pid):
                os.remove(pid)
        self.said = f"{self.place.folder}/said-{self.name}-{self.lives}"
        self.child = self.place.spawn(self.command(self.file), stdout=open(self.said, "wb"))
        until(f"the server of {output}", lambda: self.child.poll() is not None or reachable(self.port))
        expect(self.child.poll() is None, f"the server ended: see {self.place.folder}/errors")

    def kill(self):
        self.child.kill()
        self.child.wait()

    def has_said(self):
        said = collections.Counter()
        for life in range(1, self.lives + 1):
            with open(f"{self.place.folder}/said-{self.name}-{life}", encoding="utf-8") as file:
                said.update(file.read().splitlines())
        return said


class Own(Server):
    """Another Millpond, which writes the id and the message of each event."""

    def command(self, file):
        # The ids of events that came by a protocol without ids are in the documents.
        event = "id" if output in ("tcp", "syslog") else "@metadata.id"
        settings = {"address": self.port}
        if output in ("splunk_hec", "loki"):
            settings["id_field"] = "id"
        if output == "splunk_hec":
            settings["tokens"] = [TOKEN]
        if output == "syslog":
            settings = {"transport": "tcp", "address": self.port}
        if output == "tcp":
            settings["codec"] = "json"
        path = self.place.write(f"own-{self.name}.yaml", json.dumps({"data_dir": f"{self.place.folder}/own-{self.name}", "pipelines": {"p": {
            "input": {{"logstash": "beats"}.get(output, output): settings},
            "queue": {"disk": {"min_free_bytes": 0}},
            "processors": [{"json": {"field": "message"}}] if output == "syslog" else [],
            "output": {"file": {"path": file + "-own", "codec": "template", "template": f"%{{{event}}}\t%{{message}}"}},
        }}}))
        return [millpond, "run", path]

    def stop(self):
        self.child.send_signal(signal.SIGTERM)
        expect(self.child.wait(60) == 0, f"the receiving Millpond ended with {self.child.returncode}: see {self.place.folder}/errors")


def settings_for(ports, more, is_own=False):
    """Settings of the output, for servers on these ports."""
    addresses = [f"127.0.0.1:{port}" for port in ports]
    urls = [f"http://{address}" for address in addresses]
    settings = {
        "logstash": {"hosts": addresses},
        "forward": {"hosts": addresses} | ({"event_ids": True} if is_own else {}),
        "otlp": {"url": urls[0]},
        "splunk_hec": {"hosts": urls, "token": TOKEN, "template": "%{message}", "fields": {"id": "%{@metadata.id}"}},
        "loki": {"hosts": urls, "labels": {"job": "web"}, "template": "%{message}", "structured_metadata": {"id": "%{@metadata.id}"}},
        "clickhouse": {"hosts": urls, "table": "logs"},
        "syslog": {"transport": "tcp", "address": addresses, "structured_data": {"event@32473.id": "%{@metadata.id}"}} | (
            {"codec": "json"} if is_own else {}),
        "tcp": {"address": addresses, "codec": "json"},
    }[output]
    return {output: settings | more}


# What the events go through beside getting a field with their id.
PROCESSORS = collections.defaultdict(list)
# The time of the line is that of the event, without which an entry that is sent again after a crash is another one.
PROCESSORS["loki"] = ["grok '%{COMMONAPACHELOG}'", "date timestamp 'dd/MMM/yyyy:HH:mm:ss Z'"]
# The Collector's receiver takes a field `log` for the message, and the last of both counts.
PROCESSORS["forward"] = ["remove log"]


class Sender:
    """A Millpond that reads the log and has the output."""

    def __init__(self, place, output_settings, is_service=True, **pipeline):
        self.place = place
        self.log = f"{place.folder}/access.log"
        open(self.log, "w").close() if is_service else None
        self.path = place.write("sender.yaml", json.dumps({"data_dir": f"{place.folder}/state", "pipelines": {"p": {
            "input": {"file": {"paths": [self.log], "follow": is_service}},
            "queue": {"disk": {"min_free_bytes": 0}},
            "processors": ["set id = @metadata.id", *PROCESSORS[output]],
            "output": output_settings,
            "retry": {"initial": "50ms", "max": "1s"},
        } | pipeline}}))
        self.start()

    def start(self):
        self.child = self.place.spawn([millpond, "run", self.path])

    def kill(self):
        self.child.kill()
        self.child.wait()

    def stop(self):
        expect(self.child.poll() is None, f"Millpond ended: see {self.place.folder}/errors")
        self.child.send_signal(signal.SIGTERM)
        expect(self.child.wait(60) == 0, f"Millpond ended with {self.child.returncode}: see {self.place.folder}/errors")

    def ends(self):
        expect(self.child.wait(300) == 0, f"Millpond ended with {self.child.returncode}: see {self.place.folder}/errors")


def flow(place, sender, lines, seconds, faults=()):
    """Appends the lines over some seconds; each fault, a function, is called at a random moment meanwhile."""
    chance = random.Random(SEED)
    moments = sorted(chance.uniform(0.1, 1) * seconds for _ in faults)
    begin = time.monotonic()
    pieces = 50
    with open(sender.log, "a", encoding="utf-8") as file:
        for piece in range(pieces):
            part = lines[piece * len(lines) // pieces : (piece + 1) * len(lines) // pieces]
            file.write("".join(line + "\n" for line in part))
            file.flush()
            while time.monotonic() - begin < seconds * (piece + 1) / pieces:
                if moments and time.monotonic() - begin >= moments[0]:
                    moments.pop(0)
                    faults[len(faults) - len(moments) - 1]()
                time.sleep(0.01)
    for fault in faults[len(faults) - len(moments):]:
        fault()


def settle(place):
    """Waits until no more repeats come."""
    before = -1
    while before != (before := (place.count(), place.arrived.total())):
        time.sleep(1)


def service(place, servers, settings, faults=lambda sender: (), seconds=0, lines=None, wanted=None, repeats="none", has_ids=True):
    lines = lines or messages()
    sender = Sender(place, settings)
    flow(place, sender, lines, seconds, faults(sender))
    place.await_all(len(wanted or lines))
    # Requests whose answers were lost may still have to be sent again.
    time.sleep(3)
    sender.stop()
    settle(place)
    for server in servers:
        if isinstance(server, Own):
            server.stop()
    return place.check(wanted or lines, repeats, has_ids)


# Cases: each gets a place and gives what it found.
VARIANTS = {
    "logstash": [{}, {"compression_level": 0}, {"connections": 1, "pipelining": 1}, {"connections": 4, "pipelining": 32, "batch": {"max_events": 300}}],
    "forward": [{}, {"compression": "gzip"}, {"connections": 1, "pipelining": 1}, {"connections": 4, "pipelining": 32, "batch": {"max_events": 300}}],
    "otlp": [{}, {"protocol": "grpc"}, {"compression": "none"}, {"protocol": "grpc", "compression": "none", "batch": {"max_events": 300}}],
    "splunk_hec": [{}, {"compression": "gzip"}, {"acknowledge": True, "acknowledge_interval": "100ms"}],
    "loki": [{}, {"compression": "none"}, {"labels": {"job": "web", "status": "%{response}"}}],
    "clickhouse": [{}, {"compression": "gzip"}, {"batch": {"max_events": 2000}}],
    "syslog": [{}, {"framing": "lf"}],
    "tcp": [{}],
}
ACKNOWLEDGED = ("logstash", "forward", "otlp", "splunk_hec", "loki", "clickhouse")
HTTP = ("otlp", "splunk_hec", "loki", "clickhouse")
# What a repeat looks like at the server, where nobody was killed and where the sender was.
REPEATS = collections.defaultdict(lambda: "some", loki="seen once")
REPEATS_IN_A_RUN = collections.defaultdict(lambda: "some", loki="seen once", clickhouse="none")


def port_for(server, settings):
    return server.second if settings.get("protocol") == "grpc" else server.port


def once(settings):
    def case(place):
        server = Server(place, **({"acknowledge": 300} if "acknowledge" in settings else {}))
        lines = messages()
        place.write("access.log", "".join(line + "\n" for line in lines))
        Sender(place, settings_for([port_for(server, settings)], settings), is_service=False).ends()
        if output in ("syslog", "tcp"):
            place.await_all(len(lines))
        return place.check(lines, "none")
    return case


def slow(place):
    """Each answer comes late."""
    if output in ACKNOWLEDGED:
        server = Server(place, delay=300)
        return service(place, [server], settings_for([server.port], {"batch": {"max_events": 2000}}))
    server = Server(place)
    def fault():
        server.child.send_signal(signal.SIGSTOP)
        time.sleep(1.5)
        server.child.send_signal(signal.SIGCONT)
    return service(place, [server], settings_for([server.port], {}), lambda _: [fault] * 4, seconds=4) + "; the server was stopped 4 times for 1.5 s"


def slower(place):
    """Each answer comes later than `timeout`, and keep-alives before it: go-lumber sends one every 3 seconds."""
    server = Server(place, delay=7000)
    # A tenth of the events, because each window takes that long.
    return service(place, [server], settings_for([server.port], {"timeout": "5s"}), lines=messages()[: EVENTS // 10])


def balanced(place):
    servers = [Server(place, name) for name in "ab"]
    found = service(place, servers, settings_for([server.port for server in servers], {"batch": {"max_events": 1000}}), seconds=5)
    shares = [place.by_server[server.name] for server in servers]
    expect(min(shares) >= EVENTS / 5, f"{found}: the shares are {shares}")
    return f"{found}; shares {shares}"


def restarts(place, servers, victim, kills=3):
    """Kills a server and starts it again a moment later."""
    def fault():
        victim.kill()
        time.sleep(0.5)
        victim.start()
        place.kills += 1
    more = {"batch": {"max_events": 1000}} if output in ACKNOWLEDGED else {}
    if output == "splunk_hec":
        more |= {"acknowledge": True, "acknowledge_interval": "100ms"}
    found = service(place, servers, settings_for([server.port for server in servers], more), lambda _: [fault] * kills, seconds=8,
                    repeats=REPEATS_IN_A_RUN[output])
    return f"{found}; the server was killed {place.kills} times"


def slow_answers():
    """So that a kill finds requests that are not answered."""
    return {"delay": 100} | ({"acknowledge": 300} if output == "splunk_hec" else {}) if output in ACKNOWLEDGED else {}


def killed(place):
    server = Server(place, **slow_answers())
    return restarts(place, [server], server)


def one_of_two_killed(place):
    servers = [Server(place, name, **slow_answers()) for name in "ab"]
    found = restarts(place, servers, servers[1])
    shares = [place.by_server[server.name] for server in servers]
    expect(min(shares) > 0, f"{found}: the shares are {shares}")
    return f"{found}; shares {shares}"


def cut(place):
    server = Server(place)
    # About a tenth of everything, compressed or not.
    up, down = {"logstash": ((1, 600_000), (1, 60)), "forward": ((1, 6_000_000), (1, 400)), "otlp": ((1, 900_000), (1, 900))}.get(
        output, ((1, 4_000_000), (1, 900)))
    if output == "loki":
        up = (1, 800_000)
    if output in ("tcp", "syslog"):
        # What is sent again after a cut is as much as 8 MiB.
        up, down = (9_000_000, 16_000_000), (1, 2)
    cutter = Cutter(server.port, up, down)
    more = {"batch": {"max_events": 1000}} if output in ACKNOWLEDGED else {}
    found = service(place, [server], settings_for([cutter.port], more), seconds=4, repeats=REPEATS_IN_A_RUN[output])
    expect(cutter.cuts > 0, f"{found}: no connection was cut")
    return f"{found}; {cutter.cuts} connections were cut"


def busy(more):
    def case(place):
        """Every third request is answered with 429 or 503 and `Retry-After`."""
        server = Server(place, busy=3)
        settings = more | {"batch": {"max_events": 5000}}
        found = service(place, [server], settings_for([port_for(server, settings)], settings))
        said = server.has_said()
        statuses = ["busy"] if output == "otlp" else ["busy 429", "busy 503"]
        expect(all(said[status] for status in statuses), f"{found}: the server was not busy: {said}")
        return f"{found}; " + ", ".join(f"{status} {said[status]} times" for status in statuses)
    return case


def lost(place):
    """Every third request is stored, and its answer lost or replaced by 500."""
    server = Server(place, lose=3)
    found = service(place, [server], settings_for([server.port], {"batch": {"max_events": 5000}}), repeats=REPEATS_IN_A_RUN[output])
    said = server.has_said()
    answers = [int(line.split()[1]) for line in said.elements() if line.startswith("lost")]
    expect(answers, f"{found}: no answer was lost")
    found = f"{found}; {len(answers)} answers to {sum(answers)} events were lost"
    again = place.arrived.total() - len(place.arrived)
    expect(again == (0 if output == "clickhouse" else sum(answers)), f"{found}: other events were repeated")
    return found


def refused(place):
    """Some events are not accepted: they are dead letters, and all others arrive."""
    more, pad = {"batch": {"max_events": 2000}}, 0
    if output == "logstash":
        # Nothing but their size is a reason here.
        server, pad = Server(place), 20_000
        more["max_event_bytes"] = "16KiB"
    else:
        server = Server(place, refuse=REFUSED)
    lines = messages(pad)
    bad = {line for number, line in enumerate(lines) if number % REFUSED == 0}
    wanted = [line for line in lines if line not in bad]
    # Splunk keeps what is before a refused event, so that it comes again with what is behind it.
    repeats = REPEATS[output] if output in ("splunk_hec", "loki") else "none"
    found = service(place, [server], settings_for([server.port], more), lines=lines, wanted=wanted, repeats=repeats)
    letters = dead_letters(place)
    expect(sorted(letters) == sorted(bad), f"{found}: {len(letters)} dead letters, {len(bad)} of them expected")
    return f"{found}; {len(letters)} dead letters, those {len(bad)} that were refused"


def dead_letters(place):
    lines = subprocess.run([millpond, "dead-letters", "export", "--data-dir", f"{place.folder}/state"], capture_output=True, text=True, check=True)
    return [json.loads(line)["message"] for line in lines.stdout.splitlines()]


def sender_killed(place):
    """Millpond is killed at random moments."""
    server = Server(place, delay=20)
    def faults(sender):
        def fault():
            sender.kill()
            sender.start()
            place.kills += 1
        return [fault] * 8
    more = {"batch": {"max_events": 1000}} if output in ACKNOWLEDGED else {}
    found = service(place, [server], settings_for([server.port], more), faults, seconds=12, repeats=REPEATS[output])
    return f"{found}; Millpond was killed {place.kills} times"


def full_queue(place):
    """Millpond is killed while it sends what is in its queue, so that no input reads anything again."""
    in_flight, size, kills = 1, 500, 8
    server = Server(place, delay=30)
    server.kill()
    lines = messages()
    sender = Sender(place, settings_for([server.port], {"batch": {"max_events": size}, "concurrency": in_flight}))
    flow(place, sender, lines, 0)
    files = [millpond, "files", "--data-dir", f"{place.folder}/state"]
    until("the queue to have every event",
          lambda: f"{EVENTS:,} acknowledged" in subprocess.run(files, capture_output=True, text=True).stdout)
    sender.stop()
    expect(place.count() == 0, "something arrived while there was no server")
    server.start()
    sender.start()
    chance = random.Random(SEED)
    for _ in range(kills):
        before = place.arrived.total()
        # So that each life delivers something.
        until("events to arrive", lambda: place.count() and place.arrived.total() > before)
        time.sleep(chance.uniform(0, 0.5))
        expect(place.count() < EVENTS, "everything had arrived before the last kill")
        sender.kill()
        sender.start()
    place.await_all(EVENTS)
    sender.stop()
    settle(place)
    found = f"{place.check(lines, REPEATS[output])}; Millpond was killed {kills} times"
    # What was in flight, what was answered in the moment of the kill, and the rest of a batch of the queue (4,096 events), which is
    # sent again as a whole.
    most = kills * (4096 + 2 * in_flight * size)
    expect(place.arrived.total() - EVENTS <= most, f"{found}: more than {most} repeats")
    return found


def own(place):
    """To Millpond's own input."""
    server = Own(place)
    return service(place, [server], settings_for([server.port], {}, True))


def own_killed(place):
    """Both are killed at random moments. The output `file` of the receiver may repeat what it wrote last."""
    server = Own(place)
    def faults(sender):
        def fault(victim):
            victim.kill()
            victim.start()
            place.kills += 1
        return [lambda: fault(sender), lambda: fault(server)] * 4
    found = service(place, [server], settings_for([server.port], {"batch": {"max_events": 1000}}, True), faults, seconds=12, repeats="some")
    return f"{found}; each was killed {place.kills // 2} times"


def cases():
    found = {f"once {json.dumps(settings) if settings else ''}".strip(): once(settings) for settings in VARIANTS[output]}
    found["slow"] = slow
    if output == "logstash":
        found["slower than timeout"] = slower
    if output in ACKNOWLEDGED and output not in ("otlp", "loki"):
        found["two servers"] = balanced
    if output in ACKNOWLEDGED and output != "otlp":
        found["one of two servers killed"] = one_of_two_killed
    found["server killed"] = killed
    found["cut"] = cut
    if output in HTTP:
        found["429 and 503"] = busy({})
        if output == "otlp":
            found["429 and 503 (grpc)"] = busy({"protocol": "grpc"})
        else:
            found["answers lost"] = lost
    if output in HTTP or output == "logstash":
        found["refused"] = refused
    found["Millpond killed"] = sender_killed
    if output in ACKNOWLEDGED:
        found["Millpond killed, full queue"] = full_queue
    if output != "clickhouse":
        found["own input"] = own
        found["own input, both killed"] = own_killed
    return found


if output == "syslog":
    class Place(Place):
        """rsyslog writes the structured data as it came, and a blank where there is none."""

        def count(self):
            for name in glob.glob(f"{self.folder}/syslog-*.raw"):
                at = self.read.get(name, 0)
                with open(name, "rb") as file:
                    file.seek(at)
                    data = file.read()
                whole = data[: data.rfind(b"\n") + 1]
                self.read[name] = at + len(whole)
                for line in whole.decode("utf-8", "replace").splitlines():
                    found = re.fullmatch(r'\[event@32473 id="([^"]*)"\]\t ?(.*)', line)
                    self.take(["\t".join(found.groups())] if found else [f"?\t{line}"], name)
            return super().count()


def main():
    failed = 0
    wanted = sys.argv[6:]
    for name, case in cases().items():
        if wanted and not any(name.startswith(prefix) for prefix in wanted):
            continue
        place = Place(re.sub(r"[^a-z0-9]+", "-", name.lower()))
        begin = time.monotonic()
        try:
            found, verdict = case(place), "ok"
        except (Failed, subprocess.SubprocessError) as problem:
            found, verdict = str(problem), "FAILED"
            failed += 1
        finally:
            place.end()
        print(f"{output}, {name}: {verdict}: {found} ({time.monotonic() - begin:.0f} s)", flush=True)
        if verdict == "ok":
            shutil.rmtree(place.folder)
    sys.exit(failed > 0)


main()
