//! A real broker of Apache Kafka, as `bench/kafka-broker` installs and starts it.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::authority::Authority;
use crate::ports::{free_port, free_port_before_another};
use crate::rights::leave_out;
use crate::search::{root, target};

/// How long a broker may take to start.
const START_MAX: Duration = Duration::from_secs(120);

/// A broker of this test's own, which ends with it.
pub struct KafkaBroker {
    home: TempDir,
    port: u16,
    /// That of the listener with TLS and SASL.
    secure_port: Option<u16>,
    /// Lines of its configuration.
    settings: Vec<String>,
    child: Option<Child>,
}

impl KafkaBroker {
    /// A broker with topics that are created when they are used, with three partitions. None, with the test left out, where there is no Java.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start() -> Option<Self> {
        let mut broker = Self::installed()?;
        broker.start_again();
        Some(broker)
    }

    /// The same with a second listener, [`Self::secure_address`], that has a certificate of the authority for `localhost`, asks clients for one, and knows a user
    /// `shipper` with the password `secret`, by PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512, and any user by a JSON Web Token without a signature.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_secure(authority: &Authority) -> Option<Self> {
        let mut broker = Self::installed()?;
        authority.issue("broker", "localhost");
        let read = |file: &str| std::fs::read_to_string(authority.path(file)).expect("PEM");
        let pem = read("broker.key") + &read("broker.pem");
        std::fs::write(broker.home.path().join("broker.pem"), pem).expect("a writable folder");
        broker.secure_port = Some(free_port());
        broker.settings = broker.secure_settings(authority);
        broker.start_again();
        for mechanism in ["SCRAM-SHA-256", "SCRAM-SHA-512"] {
            let password = format!("{mechanism}=[password=secret]");
            let user = ["--entity-type", "users", "--entity-name", "shipper"];
            let set = [&["--alter", "--add-config", &password], &user[..]].concat();
            broker.command("kafka.admin.ConfigCommand", &set);
        }
        Some(broker)
    }

    fn secure_settings(&self, authority: &Authority) -> Vec<String> {
        let (plain, controller) = (self.port, self.port + 1);
        let secure = self.secure_port.expect("it is secure");
        let module = |name: &str| format!("org.apache.kafka.common.security.{name} required");
        let own = |name: &str, module: String| {
            format!("listener.name.secure.{name}.sasl.jaas.config={module};")
        };
        let password = " user_shipper=\"secret\"";
        vec![
            format!(
                "listeners=PLAINTEXT://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{controller},SECURE://127.0.0.1:{secure}"
            ),
            format!(
                "advertised.listeners=PLAINTEXT://127.0.0.1:{plain},SECURE://localhost:{secure}"
            ),
            "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL".to_owned(),
            "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER".to_owned(),
            own("plain", module("plain.PlainLoginModule") + password),
            own("scram-sha-256", module("scram.ScramLoginModule")),
            own("scram-sha-512", module("scram.ScramLoginModule")),
            own("oauthbearer", module("oauthbearer.OAuthBearerLoginModule")),
            "ssl.keystore.type=PEM".to_owned(),
            format!("ssl.keystore.location={}", self.home.path().join("broker.pem").display()),
            "ssl.truststore.type=PEM".to_owned(),
            format!("ssl.truststore.location={}", authority.path("ca.pem").display()),
            "listener.name.secure.ssl.client.auth=required".to_owned(),
        ]
    }

    fn installed() -> Option<Self> {
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
        Some(Self {
            home: tempfile::tempdir().expect("a folder"),
            // The one behind it is that of the controller.
            port: free_port_before_another(),
            secure_port: None,
            settings: Vec::new(),
            child: None,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Where it listens with TLS and SASL.
    ///
    /// # Panics
    /// When it does not.
    pub fn secure_address(&self) -> String {
        format!("localhost:{}", self.secure_port.expect("it is secure"))
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
            .args(&self.settings)
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
