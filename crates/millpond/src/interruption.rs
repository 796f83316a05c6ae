//! SIGINT and SIGTERM, for commands that tidy up before they end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, bail};
use tokio::signal::unix::{SignalKind, signal};

/// Waits for SIGINT (Ctrl-C) or SIGTERM.
pub async fn interruption() {
    let Ok(mut term) = signal(SignalKind::terminate()) else {
        let _ = tokio::signal::ctrl_c().await;
        return;
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = term.recv() => {}
    }
}

/// Whether one of these signals has come, for work that looks now and then.
pub struct Interruption(Arc<AtomicBool>);

impl Interruption {
    /// Listens from now on.
    ///
    /// # Errors
    /// The system refuses.
    pub fn listen() -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("the system refuses an event loop")?;
        let has_come = Arc::new(AtomicBool::new(false));
        let told = has_come.clone();
        let listen = move || {
            runtime.block_on(interruption());
            told.store(true, Ordering::Relaxed);
        };
        thread::Builder::new()
            .spawn(listen)
            .context("the system refuses a thread")?;
        Ok(Self(has_come))
    }

    pub fn has_come(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Goes on only where no signal has come.
    ///
    /// # Errors
    /// One has.
    pub fn check(&self) -> anyhow::Result<()> {
        if self.has_come() {
            bail!("interrupted");
        }
        Ok(())
    }
}
