//! The output `redis` with a real server, which is killed, and whose connections are cut.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use testkit::cutter::Cutter;
use testkit::ports::free_port;
use testkit::rights::leave_out;

use crate::program::{Folder, millpond};
use crate::running::{Service, eventually, numbered};

/// A server whose data survive a kill.
pub struct Redis {
    pub port: u16,
    folder: String,
    child: Child,
}

impl Redis {
    /// None where it is not installed: the test is left out.
    pub fn start(folder: &Folder) -> Option<Self> {
        for (program, package) in [
            ("redis-server", "redis-server"),
            ("redis-cli", "redis-tools"),
        ] {
            let mut version = Command::new(program);
            if version.arg("--version").output().is_err() {
                leave_out(&format!("{program} is missing (package {package})"));
                return None;
            }
        }
        let (port, folder) = (free_port(), folder.path("redis"));
        std::fs::create_dir(&folder).expect("a writable folder");
        let child = Self::spawn(port, &folder);
        let redis = Self {
            port,
            folder,
            child,
        };
        redis.until_ready();
        Some(redis)
    }

    fn spawn(port: u16, folder: &str) -> Child {
        let port = port.to_string();
        let listens = ["--bind", "127.0.0.1", "--port", &port, "--dir", folder];
        let keeps = ["--appendonly", "yes", "--appendfsync", "always"];
        Command::new("redis-server")
            .args(listens)
            .args(keeps)
            .args(["--save", "", "--requirepass", "secret"])
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is installed")
    }

    fn until_ready(&self) {
        eventually("the server answers", || self.ask(&["PING"]) == "PONG");
    }

    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Kills it, and starts it again.
    pub fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
        self.child = Self::spawn(self.port, &self.folder);
        self.until_ready();
    }

    pub fn ask(&self, command: &[&str]) -> String {
        if TcpStream::connect(self.address()).is_err() {
            return String::new();
        }
        let output = Command::new("redis-cli")
            .args(["-p", &self.port.to_string(), "--no-auth-warning"])
            .args(["-a", "secret"])
            .args(command)
            .output()
            .expect("redis-cli is installed");
        String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned()
    }

    pub fn count(&self, command: &str, key: &str) -> usize {
        self.ask(&[command, key]).parse().unwrap_or(0)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn events_are_in_the_list_once_through_kills_and_cuts() {
    let folder = Folder::new();
    let Some(mut redis) = Redis::start(&folder) else {
        return;
    };
    let cutter = Cutter::start(redis.address(), 7, 2_000_000);
    let log = folder.write("log", numbered("app", 0..100_000));
    let pipeline = format!(
        "file {log} | redis {} key=logs password=secret batch.max_events=1000",
        cutter.address()
    );
    let run = Service::start(&folder, &["run", &pipeline]);
    for share in 1..4 {
        eventually("a part has arrived", || {
            redis.count("LLEN", "logs") >= share * 10_000
        });
        redis.kill();
    }
    run.until_ended(0);
    assert!(cutter.cut() > 0, "no connection was cut");
    let events = redis.ask(&["LRANGE", "logs", "0", "-1"]);
    let events: Vec<&str> = events.lines().collect();
    let different: BTreeSet<&str> = events.iter().copied().collect();
    assert_eq!((events.len(), different.len()), (100_000, 100_000));
}

#[test]
fn a_stream_is_bounded_and_its_entries_are_in_order() {
    let folder = Folder::new();
    let Some(redis) = Redis::start(&folder) else {
        return;
    };
    let log = folder.write("log", numbered("app", 0..5_000));
    let settings = "key='s:%{k}' data_type=stream max_length=1k codec=text password=secret";
    let pipeline = format!(
        "file {log} | set k='x' | redis 127.0.0.1:{} {settings}",
        redis.port
    );
    millpond(&["run", &pipeline]).expect(0);
    let kept = redis.count("XLEN", "s:x");
    assert!((1_000..1_500).contains(&kept), "{kept}");
    let last = redis.ask(&["XREVRANGE", "s:x", "+", "-", "COUNT", "1"]);
    let lines: Vec<&str> = last.lines().collect();
    let expected = numbered("app", 4_999..5_000);
    assert_eq!(lines[1..], ["event", expected.trim_end()]);
}

#[test]
fn what_must_be_mended_ends_a_run_and_is_said() {
    let folder = Folder::new();
    let Some(redis) = Redis::start(&folder) else {
        return;
    };
    redis.ask(&["SET", "text", "x"]);
    let log = folder.write("log", numbered("app", 0..10));
    for (settings, said) in [
        ("key=logs", "set `password`"),
        ("key=logs password=wrong", "WRONGPASS"),
        ("key=text password=secret", "WRONGTYPE"),
        ("key=logs password=secret db=99", "DB index is out of range"),
    ] {
        let pipeline = format!("file {log} | redis 127.0.0.1:{} {settings}", redis.port);
        let ended = millpond(&["run", &pipeline]).expect(1);
        assert!(ended.err.contains(said), "{settings}: {}", ended.err);
    }
    // A user who may not remember requests appends nothing, however often that is tried.
    let rights = ["+eval", "+exists", "+rpush", "+select", "+ping"];
    redis.ask(&[&["ACL", "SETUSER", "u", "on", ">p", "~*"], &rights[..]].concat());
    let settings = "key=logs user=u password=p";
    let pipeline = format!("file {log} | redis 127.0.0.1:{} {settings}", redis.port);
    let ended = millpond(&["run", &pipeline]).expect(1);
    // Older servers say it in their own words.
    let is_refused = ["NOPERM", "can't run this command"].map(|said| ended.err.contains(said));
    assert!(is_refused.contains(&true), "{}", ended.err);
    assert_eq!(redis.count("EXISTS", "logs"), 0);
    // What could not be appended is not taken for appended when it is sent again.
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(redis.ask(&["KEYS", "millpond:request:*"]), "");
}
