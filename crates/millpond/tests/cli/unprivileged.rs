//! Running the executable as somebody who is refused things. Root is refused nothing: where the tests are run by root, the
//! executable runs as a user of its own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::program::Folder;

/// Users that nothing else runs as begin here.
const USERS: u32 = 20_000;

/// How many there are.
const USERS_MAX: u32 = 40_000;

/// A user of its own for each test, whose threads are counted.
fn next_user() -> u32 {
    static USED: AtomicU32 = AtomicU32::new(0);
    let number = std::process::id() * 64 + USED.fetch_add(1, Ordering::SeqCst);
    USERS + number % USERS_MAX
}

/// Somebody who may write in one folder.
pub struct Unprivileged {
    executable: String,
    /// None where the tests are not run by root.
    user: Option<u32>,
}

impl Unprivileged {
    /// Somebody who may write in this folder, which gets a copy of the executable, because that of the tests may lie where
    /// only root can go.
    pub fn new(folder: &Folder) -> Self {
        let built = env!("CARGO_BIN_EXE_millpond");
        if !rustix::process::geteuid().is_root() {
            let executable = built.to_owned();
            let user = None;
            return Self { executable, user };
        }
        let executable = folder.path("millpond");
        if fs::hard_link(built, &executable).is_err() {
            // By a process of its own: a file that another test's process still has open to write cannot be run.
            let copied = Command::new("cp").args([built, &executable]).status();
            assert!(copied.is_ok_and(|status| status.success()));
        }
        let user = Some(next_user());
        let user = Self { executable, user };
        user.may_write(&folder.path(""));
        user
    }

    /// Whether nothing else runs as this user, so that its processes can be counted.
    pub fn is_alone(&self) -> bool {
        self.user.is_some()
    }

    /// Lets the user write in a folder.
    pub fn may_write(&self, folder: &str) {
        let all = fs::Permissions::from_mode(0o777);
        fs::set_permissions(folder, all).expect("it is ours");
    }

    /// The executable, to be run as that user.
    pub fn command(&self) -> Command {
        self.run(Command::new(&self.executable))
    }

    /// The executable, to be run as that user with this many threads at most, those of the user's other processes counted.
    pub fn with_threads(&self, max: usize) -> Command {
        let mut command = Command::new("prlimit");
        command.arg(format!("--nproc={max}")).arg(&self.executable);
        self.run(command)
    }

    fn run(&self, mut command: Command) -> Command {
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }
}
