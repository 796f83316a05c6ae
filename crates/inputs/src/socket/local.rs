//! Sockets of Unix: their files, and the connections of stream sockets.

use std::fmt;
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use component::{InputContext, Limit, kept};
use config::{ConfigError, Node};
use net::{Places, Watched};
use tokio::net::UnixStream as Client;

use super::stream::{ClientBytes, Conversation};
use crate::connections::closing::{report_as, watch};

/// How long to wait after the system refused to accept a connection.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Where a socket is made, and who may write to it.
#[derive(Debug, Clone)]
pub(super) struct Path {
    path: PathBuf,
    mode: u32,
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

/// The file of a socket, which is removed when this is dropped.
pub(super) struct File {
    path: PathBuf,
    /// Device and inode: another one may have made a socket of that name since.
    identity: Option<(u64, u64)>,
}

impl Drop for File {
    fn drop(&mut self) {
        if self.identity.is_some() && identity(&self.path) == self.identity {
            // Where it cannot be removed, the next run replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &std::path::Path) -> Option<(u64, u64)> {
    let meta = fs::symlink_metadata(path).ok()?;
    Some((meta.dev(), meta.ino()))
}

impl Path {
    /// A path with the permissions that `mode` says in octal.
    ///
    /// # Errors
    /// The permissions are none.
    pub(super) fn new(path: &str, mode: &str, node: &Node) -> Result<Self, ConfigError> {
        let digits = mode.strip_prefix("0o").unwrap_or(mode);
        let mode = u32::from_str_radix(digits, 8)
            .ok()
            .filter(|mode| *mode <= 0o777);
        let mode = mode.ok_or_else(|| {
            let setting = node.nearest("mode");
            setting.error("permissions are expected in octal, such as 0660")
        })?;
        if path.is_empty() {
            return Err(node.nearest("path").error("a path is expected"));
        }
        Ok(Self {
            path: path.into(),
            mode,
        })
    }

    /// A socket that receives datagrams.
    ///
    /// # Errors
    /// The socket cannot be made there, at the place of the setting.
    pub(super) fn bind_datagrams(&self, node: &Node) -> Result<(OwnedFd, Arc<File>), ConfigError> {
        let name = format!("unix datagram {self}");
        if let Some(taken) = self.taken(&name, node) {
            return taken;
        }
        self.make_way(node, |path| UnixDatagram::unbound()?.connect(path))?;
        let socket = UnixDatagram::bind(&self.path).map_err(|error| self.refused(node, &error))?;
        let file = self.made(&name, &socket, node)?;
        Ok((socket.into(), file))
    }

    /// The socket of an input that is about to end.
    fn taken(&self, name: &str, node: &Node) -> Option<Result<(OwnedFd, Arc<File>), ConfigError>> {
        let (socket, guard) = kept::take(name)?;
        let file = guard?.downcast().ok()?;
        let set = self.set_permissions(node);
        Some(set.map(|()| (socket, file)))
    }

    /// Removes a socket that nobody listens on.
    fn make_way(
        &self,
        node: &Node,
        connect: impl Fn(&std::path::Path) -> io::Result<()>,
    ) -> Result<(), ConfigError> {
        let Ok(meta) = fs::symlink_metadata(&self.path) else {
            return Ok(());
        };
        if !meta.file_type().is_socket() {
            let text = format!("{self} is there already, and is not a socket");
            return Err(node.error(text));
        }
        match connect(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                fs::remove_file(&self.path).map_err(|error| self.refused(node, &error))
            }
            _ => Err(node.error(format!("another program is already listening on {self}"))),
        }
    }

    /// Sets the permissions of the socket that was made, and keeps it for the time of a reload.
    fn made(&self, name: &str, socket: &impl AsFd, node: &Node) -> Result<Arc<File>, ConfigError> {
        let file = Arc::new(File {
            path: self.path.clone(),
            identity: identity(&self.path),
        });
        self.set_permissions(node)?;
        let guard: kept::Guard = file.clone();
        kept::put(name, socket, Some(&guard)).map_err(|error| self.refused(node, &error))?;
        Ok(file)
    }

    fn set_permissions(&self, node: &Node) -> Result<(), ConfigError> {
        let set = fs::set_permissions(&self.path, Permissions::from_mode(self.mode));
        set.map_err(|error| self.refused(node, &error))
    }

    fn refused(&self, node: &Node, error: &io::Error) -> ConfigError {
        node.error(format!("cannot listen on {self}: {error}"))
    }
}

/// Accepts connections.
pub(super) struct LocalListener {
    listener: UnixListener,
    name: String,
    places: Places,
    _file: Arc<File>,
}

impl LocalListener {
    /// Starts to listen.
    ///
    /// # Errors
    /// The socket cannot be made there, at the place of the setting.
    pub(super) fn open(
        path: &Path,
        max_connections: usize,
        node: &Node,
    ) -> Result<Self, ConfigError> {
        let name = format!("unix stream {path}");
        let (listener, file) = match path.taken(&name, node) {
            Some(taken) => {
                let (socket, file) = taken?;
                (socket.into(), file)
            }
            None => {
                path.make_way(node, |path| UnixStream::connect(path).map(drop))?;
                let listener =
                    UnixListener::bind(&path.path).map_err(|error| path.refused(node, &error))?;
                let file = path.made(&name, &listener, node)?;
                (listener, file)
            }
        };
        listener
            .set_nonblocking(true)
            .map_err(|error| path.refused(node, &error))?;
        Ok(Self {
            listener,
            name: path.to_string(),
            places: Places::new(max_connections),
            _file: file,
        })
    }

    /// The path.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Serves connections until it is time to stop and all have ended. `begin` makes the conversation of each.
    pub(super) async fn serve(
        mut self,
        begin: impl Fn(Watched<Client>, u64) -> Conversation<Watched<Client>>,
        ctx: &InputContext,
    ) {
        let Ok(listener) = tokio::net::UnixListener::from_std(self.listener) else {
            return ctx.diagnostics.warn("the socket cannot be listened on");
        };
        let stop = ctx.stop.stopped();
        let mut stop = std::pin::pin!(stop);
        let notice = watch(ctx);
        for number in 0.. {
            let connection = tokio::select! {
                biased;
                () = &mut stop => break,
                connection = accept(&listener, &mut self.places, ctx) => connection,
            };
            let stopping = connection.place().stopping();
            let conversation = begin(connection, number);
            let (ctx, name) = (ctx.clone(), self.name.clone());
            let task = {
                let mut stopping = stopping.clone();
                async move {
                    let ending = conversation.read(stopping.begun()).await;
                    report_as(&ctx, &name, &name, &ending);
                }
            };
            net::accept::spawn(task, self.name.clone(), stopping, notice.clone());
        }
        drop(listener);
        self.places.close().await;
    }
}

impl ClientBytes for Watched<Client> {
    fn refuse_more(&self) -> bool {
        rustix::net::shutdown(self.get_ref(), rustix::net::Shutdown::Read).is_ok()
    }
}

/// The next connection, once there is room for it.
async fn accept(
    listener: &tokio::net::UnixListener,
    places: &mut Places,
    ctx: &InputContext,
) -> Watched<Client> {
    loop {
        match listener.accept().await {
            Ok((connection, _)) => {
                return Watched::new(connection, places.take(&watch(ctx)).await);
            }
            Err(error) => {
                let text = || format!("cannot accept connections: {error}; trying again");
                ctx.diagnostics.warn_limited(Limit::once("accept"), text);
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}
