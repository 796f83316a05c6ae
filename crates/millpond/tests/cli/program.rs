//! Running the executable.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// What a run printed and how it ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    /// Standard error, as [`plain`] has it.
    pub err: String,
}

impl Ended {
    /// The events on standard output.
    pub fn events(&self) -> Vec<Value> {
        self.out
            .lines()
            .map(|line| serde_json::from_str(line).expect("a JSON line"))
            .collect()
    }

    /// Checks the exit code, showing everything when it is another one.
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(
            self.code,
            Some(code),
            "standard error:\n{}\nstandard output:\n{}",
            self.err,
            head(&self.out)
        );
        self
    }
}

fn head(text: &str) -> String {
    text.lines().take(20).collect::<Vec<_>>().join("\n")
}

/// The executable with these arguments.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millpond"));
    command
        .env_remove("RUST_LOG")
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs the executable to its end.
pub fn millpond(args: &[&str]) -> Ended {
    ended(command(args).output().expect("the executable runs"))
}

/// Runs a one-line pipeline to its end.
pub fn run(pipeline: &str) -> Ended {
    millpond(&["run", pipeline])
}

/// Runs a one-line pipeline on this standard input.
pub fn run_on(input: &[u8], pipeline: &str) -> Ended {
    let mut child = command(&["run", pipeline])
        .stdin(Stdio::piped())
        .spawn()
        .expect("the executable runs");
    let mut pipe = child.stdin.take().expect("a pipe");
    let input = input.to_vec();
    // A run that ends early closes the pipe, which is no error here.
    let writer = std::thread::spawn(move || drop(pipe.write_all(&input)));
    let output = child.wait_with_output().expect("the executable ends");
    writer.join().expect("the writer ends");
    ended(output)
}

pub fn ended(output: std::process::Output) -> Ended {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is UTF-8");
    Ended {
        code: output.status.code(),
        out: text(output.stdout),
        err: plain(&text(output.stderr)),
    }
}

/// The log of a service as a one-line pipeline would say it: without times, `warning: ` and `error: ` for the levels, and
/// without what frames every service's log, its start, its API and its end.
pub fn plain(log: &str) -> String {
    log.lines()
        .filter_map(plain_line)
        .fold(String::new(), |text, line| text + &line + "\n")
}

/// What services say of which another one has the API's port.
const NO_API: &str = "there is no API: cannot listen on 127.0.0.1:9610: another program";

fn plain_line(line: &str) -> Option<String> {
    let is_time = |word: &str| {
        word.len() == 24
            && word.ends_with('Z')
            && word
                .bytes()
                .zip("dddd-dd-ddTdd:dd:dd.dddZ".bytes())
                .all(|(byte, form)| match form {
                    b'd' => byte.is_ascii_digit(),
                    form => byte == form,
                })
    };
    let Some((_, line)) = line.split_once(' ').filter(|(time, _)| is_time(time)) else {
        return Some(line.to_owned());
    };
    let (level, message) = line.split_at_checked(6).expect("a level");
    let is_frame = message.starts_with("Millpond ") || message.contains(": started: ");
    // Services that run side by side have one port for the API between them.
    if message.starts_with("API on ") || message.starts_with(NO_API) {
        return None;
    }
    match level.trim_end() {
        "ERROR" => Some(format!("error: {message}")),
        "WARN" => Some(format!("warning: {message}")),
        "INFO" => (!is_frame).then(|| message.to_owned()),
        "DEBUG" | "TRACE" => Some(line.to_owned()),
        other => panic!("an unknown level {other}: {line}"),
    }
}

/// A folder of the test's own, with a way to name files in it.
pub struct Folder(TempDir);

impl Folder {
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    /// The path of `name` in the folder, as text.
    pub fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// Writes a file and gives its path.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        std::fs::write(self.0.path().join(name), content).expect("a writable folder");
        self.path(name)
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.path().join(name)).expect("a readable file")
    }
}

impl AsRef<Path> for Folder {
    fn as_ref(&self) -> &Path {
        self.0.path()
    }
}

/// The bytes as a gzip file.
pub fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(content).expect("writing to memory");
    encoder.finish().expect("writing to memory")
}
