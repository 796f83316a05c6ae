//! A real broker of Apache Kafka, as `bench/kafka-broker` installs and starts it.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::ports::free_port_before_another;
use crate::rights::leave_out;
use crate::search::{root, target};

/// How long a broker may take to start.
const START_MAX: Duration = Duration::from_secs(120);

/// A broker of this test's own, which ends with it.
pub struct KafkaBroker {
    home: TempDir,
    port: u16,
    child: Option<Child>,
}

impl KafkaBroker {
    /// A broker with topics that are created when they are used, with three partitions. None, with the test left out, where there is no Java.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start() -> Option<Self> {
        for (tool, package) in [("java", "default-jre-headless"), ("mvn", "maven")] {
            let asked = Command::new("sh")
                .args(["-c", &format!("command -v {tool}")])
                .output();
            if !asked.is_ok_and(|output| output.status.success()) {
                leave_out(&format!("{tool} is missing (package {package})"));
                return None;
            }
        }
        let installed = script(&[]).stderr(Stdio::inherit()).status();
        assert!(
            installed.is_ok_and(|status| status.success()),
            "Kafka cannot be installed"
        );
        let mut broker = Self {
            home: tempfile::tempdir().expect("a folder"),
            // The one behind it is that of the controller.
            port: free_port_before_another(),
            child: None,
        };
        broker.start_again();
        Some(broker)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Starts it with the data that it had.
    ///
    /// # Panics
    /// When it does not start, or runs already.
    pub fn start_again(&mut self) {
        assert!(self.child.is_none(), "it runs already");
        let log = File::create(self.home.path().join("log")).expect("a writable folder");
        let home = self.home.path().display().to_string();
        let mut child = script(&[&home, &self.port.to_string()])
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file"))
            .stderr(log)
            .spawn()
            .expect("the script runs");
        let begin = Instant::now();
        while TcpStream::connect(self.address()).is_err() {
            let ended = child.try_wait().expect("a child");
            let log = || std::fs::read_to_string(self.home.path().join("log")).unwrap_or_default();
            assert!(
                ended.is_none() && begin.elapsed() < START_MAX,
                "the broker does not start ({ended:?}):\n{}",
                log()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        self.child = Some(child);
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

    /// What one of the commands of Kafka prints, such as `org.apache.kafka.tools.GetOffsetShell`.
    ///
    /// # Panics
    /// When it fails.
    pub fn command(&self, class: &str, arguments: &[&str]) -> String {
        let address = self.address().to_string();
        let arguments = [&["tool", class, "--bootstrap-server", &address], arguments].concat();
        let output = script(&arguments).output().expect("the script runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (said, error) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{arguments:?}: {said}{error}");
        said
    }

    /// How many records a topic has been sent, those that came twice included.
    ///
    /// # Panics
    /// When there is no such topic.
    pub fn count(&self, topic: &str) -> u64 {
        let ends = self.command("org.apache.kafka.tools.GetOffsetShell", &["--topic", topic]);
        let end = |line: &str| {
            line.rsplit(':')
                .next()
                .and_then(|end| end.parse::<u64>().ok())
        };
        ends.lines().filter_map(end).sum()
    }
}

impl Drop for KafkaBroker {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn script(arguments: &[&str]) -> Command {
    let root = root();
    let mut command = Command::new(root.join("bench/kafka-broker"));
    command
        .args(arguments)
        .env("CARGO_TARGET_DIR", target(&root));
    command
}
