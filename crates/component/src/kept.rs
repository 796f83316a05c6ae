//! Sockets that stay open while another configuration takes the place of the one that runs.
//!
//! Where a pipeline changes, the inputs of the new one are opened before those of the old one end. An input that is to listen where the old
//! one listens gets the same socket ([`take`]), so that no client is refused meanwhile, and what clients send waits in the system. For this a
//! second handle of every listening socket is kept here ([`put`]), with what is to go when the socket goes, such as the file of a Unix socket.
//!
//! Both functions do something only within [`Kept::scope`], which says for which pipeline components are opened, and which pipelines are about to
//! end: nobody gets the socket of a pipeline that goes on.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::fs::{read_dir, read_link};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use parking_lot::Mutex;

/// What goes when the last handle of a socket goes.
pub type Guard = Arc<dyn Any + Send + Sync>;

/// Second handles of listening sockets.
#[derive(Debug, Default)]
pub struct Kept(Mutex<BTreeMap<String, Entry>>);

#[derive(Debug)]
struct Entry {
    /// The pipeline whose input listens.
    owner: String,
    socket: OwnedFd,
    guard: Option<Guard>,
}

/// An attempt to put other pipelines in the place of some.
#[derive(Debug, Default)]
pub struct Attempt {
    /// Those that are about to end.
    ending: Vec<String>,
    /// What was taken, and by which pipeline.
    taken: Mutex<BTreeMap<String, String>>,
}

impl Attempt {
    /// These pipelines are about to end.
    pub fn new(ending: Vec<String>) -> Arc<Self> {
        Arc::new(Self {
            ending,
            taken: Mutex::default(),
        })
    }
}

struct Scope {
    kept: Arc<Kept>,
    owner: String,
    attempt: Arc<Attempt>,
}

tokio::task_local! {
    static SCOPE: Scope;
}

impl Kept {
    /// Opens components for a pipeline.
    pub async fn scope<F: Future>(
        self: &Arc<Self>,
        owner: &str,
        attempt: &Arc<Attempt>,
        opening: F,
    ) -> F::Output {
        let scope = Scope {
            kept: self.clone(),
            owner: owner.to_owned(),
            attempt: attempt.clone(),
        };
        SCOPE.scope(scope, opening).await
    }

    /// What an attempt took belongs to those who took it from now on.
    pub fn settle(&self, attempt: &Attempt) {
        let mut kept = self.0.lock();
        for (name, owner) in attempt.taken.lock().iter() {
            if let Some(entry) = kept.get_mut(name) {
                entry.owner.clone_from(owner);
            }
        }
    }

    /// Forgets every socket, so that each closes when its input ends.
    pub fn forget(&self) {
        self.0.lock().clear();
    }

    /// Closes the sockets that no input has any more.
    pub fn prune(&self) {
        let handles = handles();
        let is_used = |entry: &Entry| {
            let Ok(stat) = rustix::fs::fstat(&entry.socket) else {
                return false;
            };
            handles.get(&stat.st_ino).is_some_and(|count| *count > 1)
        };
        self.0.lock().retain(|_, entry| is_used(entry));
    }
}

/// How many handles this process has of each of its sockets, by inode.
fn handles() -> HashMap<u64, usize> {
    let mut handles = HashMap::new();
    for entry in read_dir("/proc/self/fd").into_iter().flatten().flatten() {
        let target = read_link(entry.path()).unwrap_or_default();
        let inode = target.to_str().and_then(|target| {
            let number = target.strip_prefix("socket:[")?.strip_suffix(']')?;
            number.parse().ok()
        });
        if let Some(inode) = inode {
            *handles.entry(inode).or_default() += 1;
        }
    }
    handles
}

/// The socket that a pipeline which is about to end listens on there, with its guard; none where there is none. A name begins with the
/// protocol, such as `tcp :5044`.
pub fn take(name: &str) -> Option<(OwnedFd, Option<Guard>)> {
    let taken = SCOPE.try_with(|scope| {
        let kept = scope.kept.0.lock();
        let entry = kept.get(name)?;
        let attempt = &scope.attempt;
        let mut taken = attempt.taken.lock();
        // One input listens on it, no two.
        if !attempt.ending.contains(&entry.owner) || taken.contains_key(name) {
            return None;
        }
        let socket = entry.socket.try_clone().ok()?;
        taken.insert(name.to_owned(), scope.owner.clone());
        Some((socket, entry.guard.clone()))
    });
    taken.ok().flatten()
}

/// Keeps a second handle of a socket that an input listens on there.
///
/// # Errors
/// The system gives no second handle.
pub fn put(name: &str, socket: &impl AsFd, guard: Option<&Guard>) -> io::Result<()> {
    let put = SCOPE.try_with(|scope| {
        let entry = Entry {
            owner: scope.owner.clone(),
            socket: socket.as_fd().try_clone_to_owned()?,
            guard: guard.cloned(),
        };
        scope.kept.0.lock().insert(name.to_owned(), entry);
        Ok(())
    });
    // Without a scope nothing is kept.
    put.unwrap_or(Ok(()))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    const NAME: &str = "tcp here";

    fn listen() -> io::Result<TcpListener> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        put(NAME, &listener, None)?;
        Ok(listener)
    }

    #[tokio::test]
    async fn a_socket_goes_from_a_pipeline_that_ends_to_one_that_begins() {
        let kept = Arc::<Kept>::default();
        let first = Attempt::new(Vec::new());
        let old = kept.scope("web", &first, async { listen().expect("a socket") });
        let old = old.await;
        let address = old.local_addr().expect("an address");
        // Not while the pipeline goes on.
        let other = Attempt::new(vec!["mail".to_owned()]);
        let taken = kept.scope("mail", &other, async { take(NAME).is_some() });
        assert!(!taken.await);
        // An attempt that fails changes nothing.
        for owner in ["app", "web"] {
            let attempt = Attempt::new(vec!["web".to_owned()]);
            let twice = kept.scope(owner, &attempt, async { (take(NAME), take(NAME)) });
            let (taken, again) = twice.await;
            assert!(taken.is_some() && again.is_none(), "{owner}");
        }
        let attempt = Attempt::new(vec!["web".to_owned()]);
        let (taken, _) = kept
            .scope("app", &attempt, async { take(NAME) })
            .await
            .expect("the socket");
        drop(old);
        // Whoever connects in between is not refused.
        let client = TcpStream::connect(address).expect("a connection");
        let new = TcpListener::from(taken);
        let (_, from) = new.accept().expect("the connection");
        assert_eq!(from, client.local_addr().expect("an address"));
        kept.settle(&attempt);
        kept.prune();
        let attempt = Attempt::new(vec!["app".to_owned()]);
        let taken = kept.scope("web", &attempt, async { take(NAME).is_some() });
        assert!(taken.await, "it is that of the new pipeline");
        drop(new);
        kept.prune();
        assert!(TcpStream::connect(address).is_err(), "nobody listens");
    }

    #[test]
    fn outside_a_reload_nothing_is_kept() {
        let listener = listen().expect("a socket");
        assert!(take(NAME).is_none());
        drop(listener);
    }
}
