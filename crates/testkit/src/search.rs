//! Real search servers: OpenSearch and Elasticsearch, as `bench/search-server` installs and starts them.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::ports::free_port;
use crate::rights::leave_out;

/// How long a server may take to start.
const START_MAX: Duration = Duration::from_secs(120);

/// How long an answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// A server of this test's own, which ends with it.
pub struct SearchServer {
    name: String,
    settings: Vec<String>,
    home: TempDir,
    address: SocketAddr,
    child: Option<Child>,
}

impl SearchServer {
    /// One of these: `opensearch`, `elasticsearch7`, `elasticsearch8`. None, with the test left out, where there is no Java.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(name: &str, settings: &[&str]) -> Option<Self> {
        for (tool, package) in [
            ("javac", "default-jdk-headless"),
            ("mvn", "maven"),
            ("unzip", "unzip"),
        ] {
            let asked = Command::new("sh")
                .args(["-c", &format!("command -v {tool}")])
                .output();
            if !asked.is_ok_and(|output| output.status.success()) {
                leave_out(&format!("{tool} is missing (package {package})"));
                return None;
            }
        }
        let installed = script(name).stderr(Stdio::inherit()).status();
        assert!(
            installed.is_ok_and(|status| status.success()),
            "{name} cannot be installed"
        );
        let mut server = Self {
            name: name.to_owned(),
            settings: settings.iter().map(ToString::to_string).collect(),
            home: tempfile::tempdir().expect("a folder"),
            // Which nobody else gets while it is killed and restarted.
            address: (Ipv4Addr::LOCALHOST, free_port()).into(),
            child: None,
        };
        server.start_again();
        Some(server)
    }

    /// Starts it with the data that it had.
    ///
    /// # Panics
    /// When it does not start, or runs already.
    pub fn start_again(&mut self) {
        assert!(self.child.is_none(), "it runs already");
        let log = File::create(self.home.path().join("log")).expect("a writable folder");
        let mut command = script(&self.name);
        command
            .arg(self.home.path())
            .arg(self.address.port().to_string())
            .args(&self.settings)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file"))
            .stderr(log);
        let mut child = command.spawn().expect("the script runs");
        let begin = Instant::now();
        while !self.is_ready() {
            let ended = child.try_wait().expect("a child");
            assert!(
                ended.is_none() && begin.elapsed() < START_MAX,
                "{} does not start ({ended:?}):\n{}",
                self.name,
                self.log()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        self.child = Some(child);
    }

    fn is_ready(&self) -> bool {
        let path = "/_cluster/health?wait_for_status=yellow&timeout=5s";
        matches!(self.try_ask("GET", path, ""), Some((200, _)))
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.home.path().join("log")).unwrap_or_default()
    }

    /// Ends it with SIGKILL.
    ///
    /// # Panics
    /// When it does not run.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().expect("it runs");
        child.wait().expect("it ends");
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its address as text.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The answer to a request with this JSON as its body.
    ///
    /// # Panics
    /// When there is none, or its status is that of an error.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> Value {
        let answer = self.try_ask(method, path, body);
        let (status, body) = answer.unwrap_or_else(|| panic!("{method} {path}: no answer"));
        assert!(status < 300, "{method} {path}: {status}: {body}");
        body
    }

    /// The status and the body of the answer to a request; none where it breaks off.
    pub fn try_ask(&self, method: &str, path: &str, body: &str) -> Option<(u16, Value)> {
        let mut connection = TcpStream::connect(self.address).ok()?;
        connection.set_read_timeout(Some(ANSWER_MAX)).ok()?;
        let len = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {len}\r\n\r\n{body}"
        );
        connection.write_all(request.as_bytes()).ok()?;
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer).ok()?;
        let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let mut body = answer.split_off(end + 4);
        if head.contains("transfer-encoding: chunked") {
            body = joined(&body)?;
        }
        Some((status, serde_json::from_slice(&body).unwrap_or_default()))
    }

    /// How many documents there are, those of a moment ago included; none where there is no such index or no answer.
    pub fn count(&self, index: &str) -> Option<u64> {
        self.try_ask("POST", &format!("/{index}/_refresh"), "")?;
        let (_, counted) = self.try_ask("GET", &format!("/{index}/_count"), "")?;
        counted["count"].as_u64()
    }

    /// Every document, in the order of a field of whole numbers in which no two are alike.
    ///
    /// # Panics
    /// When there is no such index.
    pub fn documents(&self, index: &str, order: &str) -> Vec<Value> {
        self.ask("POST", &format!("/{index}/_refresh"), "");
        let mut documents: Vec<Value> = Vec::new();
        let mut after = String::new();
        loop {
            let query = format!(
                r#"{{"size":5000,"sort":[{{"{order}":"asc"}}],"track_total_hits":false{after}}}"#
            );
            let found = self.ask("POST", &format!("/{index}/_search"), &query);
            let hits = found["hits"]["hits"].as_array().expect("hits");
            let Some(last) = hits.last() else {
                return documents;
            };
            after = format!(r#","search_after":{}"#, last["sort"]);
            documents.extend(hits.iter().map(|hit| hit["_source"].clone()));
        }
    }
}

impl Drop for SearchServer {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The content of chunks (RFC 9112, section 7.1).
fn joined(mut chunks: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = chunks.windows(2).position(|bytes| bytes == b"\r\n")?;
        let size = std::str::from_utf8(&chunks[..line]).ok()?;
        let size = usize::from_str_radix(size.trim(), 16).ok()?;
        chunks = &chunks[line + 2..];
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(chunks.get(..size)?);
        chunks = chunks.get(size + 2..)?;
    }
}

/// The folder of this repository.
///
/// # Panics
/// Cargo does not run this.
pub fn root() -> PathBuf {
    // Said at run time: a test that was built in another clone may be run here.
    let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("run by Cargo");
    Path::new(&package).join("../..")
}

fn script(name: &str) -> Command {
    let root = root();
    let mut command = Command::new(root.join("bench/search-server"));
    command.arg(name).env("CARGO_TARGET_DIR", target(&root));
    command
}

/// The folder that this test was built in, where servers are kept as well.
pub(crate) fn target(root: &Path) -> PathBuf {
    let test = std::env::current_exe().expect("this test");
    let profile = test.ancestors().find(|place| {
        let name = place.file_name().and_then(|name| name.to_str());
        matches!(name, Some("debug" | "release"))
    });
    let target = profile.and_then(Path::parent);
    target.map_or_else(|| root.join("target"), Path::to_owned)
}
