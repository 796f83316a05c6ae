//! What a service manager and a packager get: notifications, manual pages, completions, configurations of the packages.

use std::fs;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use testkit::rights::leave_out;
use testkit::search::root;

use crate::program::{Folder, command, ended, millpond};

/// How long a message may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A service manager.
struct Manager(UnixDatagram);

impl Manager {
    fn new(socket: io::Result<UnixDatagram>) -> Self {
        let socket = socket.expect("a socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Self(socket)
    }

    /// The next message.
    fn message(&self) -> String {
        let mut bytes = [0; 1000];
        let length = self.0.recv(&mut bytes).expect("a message");
        String::from_utf8(bytes[..length].to_vec()).expect("text")
    }
}

fn stop(child: &Child) {
    let id = child.id().to_string();
    let sent = Command::new("kill").arg(&id).status();
    assert!(sent.expect("kill").success());
}

fn service(folder: &Folder) -> String {
    let data = folder.path("data");
    let log = folder.write("log", "");
    let out = folder.path("out");
    folder.write(
        "service.yaml",
        format!(
            "data_dir: {data}\npipelines:\n  one: {{ input: file {log}, output: file {out} }}\n  two: {{ input: unix {}, output: discard }}\n",
            folder.path("socket")
        ),
    )
}

#[test]
fn a_service_manager_is_told_of_start_life_and_stop() {
    let folder = Folder::new();
    let manager = Manager::new(UnixDatagram::bind(folder.path("notify")));
    let mut command = command(&["run", &service(&folder)]);
    command.env("NOTIFY_SOCKET", folder.path("notify"));
    command.env("WATCHDOG_USEC", "200000");
    let child = command.spawn().expect("runs");
    assert_eq!(manager.message(), "READY=1\nSTATUS=running 2 pipelines");
    assert!(
        Path::new(&folder.path("socket")).exists(),
        "it is ready before its socket is"
    );
    let begin = Instant::now();
    for _ in 0..10 {
        assert_eq!(manager.message(), "WATCHDOG=1");
    }
    // The first one comes at once, each of the others after half of the time.
    assert!(begin.elapsed() > Duration::from_millis(700));
    stop(&child);
    let stopping = std::iter::repeat_with(|| manager.message()).find(|said| said != "WATCHDOG=1");
    let expected = "STOPPING=1\nSTATUS=stopping: delivering the events already read";
    assert_eq!(stopping.as_deref(), Some(expected));
    ended(child.wait_with_output().expect("ends")).expect(0);
}

#[test]
fn a_service_manager_is_told_of_reloads() {
    let folder = Folder::new();
    let manager = Manager::new(UnixDatagram::bind(folder.path("notify")));
    let path = service(&folder);
    let mut command = command(&["run", &path]);
    command.env("NOTIFY_SOCKET", folder.path("notify"));
    let child = command.spawn().expect("runs");
    assert_eq!(manager.message(), "READY=1\nSTATUS=running 2 pipelines");
    let reload = || {
        let id = child.id().to_string();
        let sent = Command::new("kill").args(["-HUP", &id]).status();
        assert!(sent.expect("kill").success());
        let said = manager.message();
        let clock = said.strip_prefix("RELOADING=1\nMONOTONIC_USEC=");
        let clock =
            clock.and_then(|rest| rest.strip_suffix("\nSTATUS=reloading the configuration"));
        assert!(
            clock.is_some_and(|clock| clock.parse::<u64>().is_ok()),
            "{said}"
        );
        manager.message()
    };
    let good = fs::read_to_string(&path).expect("a file");
    let fewer = good.lines().filter(|line| !line.contains("two:"));
    folder.write("service.yaml", fewer.collect::<Vec<_>>().join("\n"));
    assert_eq!(reload(), "READY=1\nSTATUS=running 1 pipeline");
    folder.write("service.yaml", "pipelines: [");
    let kept = "READY=1\nSTATUS=the configuration was not reloaded, version 2 stays in force: ";
    let said = reload();
    let reason = said.strip_prefix(kept).unwrap_or_default();
    assert!(!reason.is_empty() && !reason.contains('\n'), "{said}");
    stop(&child);
    ended(child.wait_with_output().expect("ends")).expect(0);
}

#[test]
fn an_abstract_socket_is_told_too_and_the_watchdog_of_another_process_is_not_fed() {
    let folder = Folder::new();
    let name = format!("millpond-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("a name");
    let manager = Manager::new(UnixDatagram::bind_addr(&address));
    let mut command = command(&["run", &service(&folder)]);
    command.env("NOTIFY_SOCKET", format!("@{name}"));
    command
        .env("WATCHDOG_USEC", "1000")
        .env("WATCHDOG_PID", "1");
    let child = command.spawn().expect("runs");
    assert!(manager.message().starts_with("READY=1\n"));
    stop(&child);
    assert!(manager.message().starts_with("STOPPING=1\n"));
    ended(child.wait_with_output().expect("ends")).expect(0);
}

#[test]
fn a_service_that_cannot_start_does_not_say_that_it_has() {
    let folder = Folder::new();
    let manager = UnixDatagram::bind(folder.path("notify")).expect("a socket");
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = port.local_addr().expect("an address");
    let path = folder.write(
        "service.yaml",
        format!("pipelines:\n  one: {{ input: beats {address}, output: discard }}\n"),
    );
    let mut refused = command(&["run", &path]);
    refused.env("NOTIFY_SOCKET", folder.path("notify"));
    ended(refused.output().expect("runs")).expect(2);
    manager.set_nonblocking(true).expect("possible");
    let error = manager.recv(&mut [0; 100]).expect_err("nothing was sent");
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn a_service_manager_that_is_not_there_is_reported_and_ends_nothing() {
    let folder = Folder::new();
    let mut command = command(&["run", &service(&folder)]);
    command.env("NOTIFY_SOCKET", folder.path("nothing"));
    let child = command.spawn().expect("runs");
    let begin = Instant::now();
    while !Path::new(&folder.path("socket")).exists() {
        assert!(begin.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(10));
    }
    // The warning follows the start.
    std::thread::sleep(Duration::from_millis(500));
    stop(&child);
    let ended = ended(child.wait_with_output().expect("ends")).expect(0);
    let expected = "warning: the service manager cannot be reached: No such file or directory";
    assert!(ended.err.contains(expected), "{}", ended.err);
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = Folder::new();
    millpond(&["man", "--out", &folder.path("man")]).expect(0);
    let page = |name: &str| folder.read(&format!("man/{name}"));
    assert_eq!(page("millpond.1"), millpond(&["man"]).expect(0).out);
    for name in ["run", "check", "bench", "queue", "profile"] {
        let reference = format!("millpond\\-{name}(1)");
        assert!(page("millpond.1").contains(&reference), "{name}");
    }
    for name in ["run", "queue-inspect", "profile-record"] {
        let text = page(&format!("millpond-{name}.1"));
        let title = format!(".TH MILLPOND-{} 1 ", name.to_uppercase());
        for part in [&*title, ".SH SYNOPSIS", ".SH EXIT STATUS"] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }
    assert!(page("millpond-run.1").contains("\\-\\-data\\-dir"));
    let file = folder.write("file", "");
    let refused = millpond(&["man", "--out", &file]).expect(2);
    let expected = format!("error: cannot write manual pages to {file}");
    assert!(refused.err.starts_with(&expected), "{}", refused.err);
}

#[test]
fn shells_get_completions() {
    for (shell, line) in [
        ("bash", "complete -F _millpond"),
        ("zsh", "#compdef millpond"),
        ("fish", "complete -c millpond"),
    ] {
        let script = millpond(&["completions", shell]).expect(0).out;
        assert!(script.contains(line), "{script}");
        assert!(script.contains("data-dir"), "{script}");
    }
    let folder = Folder::new();
    let script = folder.write("millpond", millpond(&["completions", "bash"]).expect(0).out);
    let complete = "source \"$0\"; COMP_WORDS=(millpond queue insp); COMP_CWORD=2; _millpond millpond insp queue; echo \"${COMPREPLY[@]}\"";
    let output = Command::new("bash")
        .args(["-c", complete, &script])
        .output();
    assert_eq!(ended(output.expect("bash")).expect(0).out, "inspect\n");
    let refused = millpond(&["completions", "cmd"]).expect(2);
    assert!(refused.err.contains("possible values"), "{}", refused.err);
}

/// The folder with the files of packages.
fn packaging() -> PathBuf {
    root().join("packaging")
}

/// The configurations in a manifest of Kubernetes: what stands, indented by four, below `millpond.yaml: |`.
fn configurations(manifest: &str) -> Vec<String> {
    let parts = manifest.split("\n  millpond.yaml: |\n").skip(1);
    let text = |part: &str| {
        let lines = part.lines().take_while(|line| line.starts_with("    "));
        lines.map(|line| line[4..].to_owned() + "\n").collect()
    };
    parts.map(text).collect()
}

#[test]
fn configurations_of_packages_are_valid() {
    let folder = Folder::new();
    let read = |name: &str| fs::read_to_string(packaging().join(name)).expect("a file");
    let mut all = vec![read("debian/millpond.yaml")];
    for name in ["kubernetes/daemonset.yaml", "kubernetes/gateway.yaml"] {
        let manifest = read(name);
        // What every client is told, without a token.
        for path in ["/health", "/ready"] {
            assert!(manifest.contains(&format!("path: {path}\n")), "{name}");
        }
        let found = configurations(&manifest);
        assert_eq!(found.len(), 1, "{name}");
        all.extend(found);
    }
    for text in all {
        let path = folder.write("millpond.yaml", &text);
        let data = folder.path("data");
        let output = command(&["check", &path, "--data-dir", &data])
            .env("NODE_NAME", "node-1")
            .env("ELASTICSEARCH_URL", "https://es.example:9200")
            .env("ELASTICSEARCH_API_KEY", "abc")
            .env("API_TOKEN", "0123456789abcdef")
            .output();
        let ended = ended(output.expect("runs"));
        assert_eq!(ended.code, Some(0), "{text}\n{}", ended.err);
    }
}

#[test]
fn systemd_accepts_the_unit() {
    let analyze = |args: &[&str]| Command::new("systemd-analyze").args(args).output();
    if analyze(&["--version"]).is_err() {
        return leave_out("systemd-analyze is missing (package systemd)");
    }
    let unit = fs::read_to_string(packaging().join("systemd/millpond.service")).unwrap();
    let folder = Folder::new();
    // Where the package puts what the unit names, there may be nothing here.
    let program = env!("CARGO_BIN_EXE_millpond");
    let lines = unit
        .lines()
        .filter(|line| !line.starts_with("Documentation="));
    let unit: String = lines
        .map(|line| line.replace("/usr/bin/millpond", program) + "\n")
        .collect();
    let path = folder.write("millpond.service", unit.replace("/bin/kill", program));
    let verified = ended(analyze(&["verify", &path]).unwrap()).expect(0);
    assert_eq!(verified.err, "");
    // At most 2.0, of 10 for a unit that may do anything.
    let security = ["security", "--offline=true", "--threshold=20", &path];
    ended(analyze(&security).unwrap()).expect(0);
}

#[test]
fn the_agent_on_a_node_knows_pod_namespace_and_container() {
    let folder = Folder::new();
    let manifest = fs::read_to_string(packaging().join("kubernetes/daemonset.yaml")).unwrap();
    let [text] = &configurations(&manifest)[..] else {
        panic!("one configuration")
    };
    let logs = folder.path("containers");
    fs::create_dir(&logs).unwrap();
    fs::create_dir(folder.path("pods")).unwrap();
    let id = "0123456789abcdef".repeat(4);
    let line = "2026-01-31T12:00:00.123456789Z stdout F GET /\n";
    for (name, target) in [
        (format!("web-7d4_shop_nginx-proxy-{id}.log"), "pods/0.log"),
        (
            format!("millpond-agent-x_logging_millpond-{id}.log"),
            "pods/1.log",
        ),
    ] {
        folder.write(target, line);
        std::os::unix::fs::symlink(folder.path(target), format!("{logs}/{name}")).unwrap();
    }
    let out = folder.path("out.ndjson");
    let (before, _) = text.split_once("    output:\n").expect("an output");
    let before = before.replace("/var/log/containers", &logs);
    let before = before.replace(":9610", "127.0.0.1:0");
    let path = folder.write("agent.yaml", format!("{before}    output: file {out}\n"));
    let child = command(&["run", &path, "--data-dir", &folder.path("data")])
        .env("NODE_NAME", "node-1")
        .env("API_TOKEN", "0123456789abcdef")
        .spawn()
        .expect("runs");
    let begin = Instant::now();
    while fs::read_to_string(&out).unwrap_or_default().is_empty() {
        assert!(begin.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(300));
    stop(&child);
    ended(child.wait_with_output().expect("ends")).expect(0);
    let text = folder.read("out.ndjson");
    let [event] = &text.lines().collect::<Vec<_>>()[..] else {
        panic!("{text}")
    };
    let event: serde_json::Value = serde_json::from_str(event).unwrap();
    assert_eq!(event["message"], "GET /");
    assert_eq!(event["kubernetes"]["pod"]["name"], "web-7d4");
    assert_eq!(event["kubernetes"]["namespace"], "shop");
    assert_eq!(event["kubernetes"]["container"]["name"], "nginx-proxy");
    assert_eq!(event["container"]["id"], id.as_str());
    assert_eq!(event["host"]["name"], "node-1");
}
