//! Inputs that listen for connections: opened with their settings, and served until they are to stop. All inputs on TCP are opened
//! here except `tcp` and `syslog`, which [`crate::socket`] opens.

use std::future::Future;
use std::net::SocketAddr;

use async_trait::async_trait;
use component::{BuildContext, Input, InputContext, InputError};
use config::{ConfigError, Node};
use net::{Address, Listener, ServerTls};

use super::settings::{check_effects, listen};
use crate::error::RunError;

/// The settings of an input with a listener, and how it serves its clients.
pub(crate) trait Server: Send + Sync + Sized + 'static {
    /// Where it listens: `address`, `tls` and `max_connections`.
    fn place(&self) -> (&Address, Option<&ServerTls>, usize);

    /// Checks what can only be checked when the run begins, such as secrets in files.
    fn check_secrets(&self, _: &Node) -> Result<(), ConfigError> {
        Ok(())
    }

    /// Serves clients on the local address until `ctx` says to stop and all is answered.
    fn serve(
        self,
        listener: Listener,
        local: SocketAddr,
        ctx: &InputContext,
    ) -> impl Future<Output = Result<(), InputError>> + Send;
}

/// The input of a server, which is described by the settings `node`.
pub(crate) fn input<S: Server>(
    name: &str,
    server: S,
    node: &Node,
    context: &BuildContext,
) -> Result<Box<dyn Input>, ConfigError> {
    check_effects(name, node, context)?;
    Ok(Box::new(Listening {
        server,
        node: node.clone(),
        listener: None,
    }))
}

struct Listening<S> {
    server: S,
    /// The settings, for the places of errors.
    node: Node,
    listener: Option<Listener>,
}

#[async_trait]
impl<S: Server> Input for Listening<S> {
    async fn open(&mut self) -> Result<(), ConfigError> {
        self.server.check_secrets(&self.node)?;
        let (address, tls, max_connections) = self.server.place();
        let listener = listen(address, tls, max_connections, &self.node);
        self.listener = Some(listener.await?);
        Ok(())
    }

    async fn run(mut self: Box<Self>, ctx: InputContext) -> Result<(), InputError> {
        if self.listener.is_none() {
            self.open().await.map_err(RunError::from)?;
        }
        let Some(listener) = self.listener.take() else {
            return Ok(());
        };
        let local = listener.local_addr().map_err(RunError::LocalAddress)?;
        ctx.diagnostics.info(&format!("listening on {local}"));
        self.server.serve(listener, local, &ctx).await
    }
}
