//! What tests and probes of connections have in common.

use std::sync::Arc;

use batch::{BufferPool, HostInfo};
use component::{Diagnostics, InputContext, Sink, Stop};

/// A context whose batches go to `sink`.
pub(crate) fn context(
    sink: Arc<dyn Sink>,
    pool: BufferPool,
    diagnostics: Diagnostics,
) -> InputContext {
    InputContext {
        sink,
        pool,
        host: Arc::new(HostInfo { name: "h".into() }),
        stop: Stop::default(),
        metrics: Arc::default(),
        progress: Arc::default(),
        scope: "p/i".into(),
        registry: None,
        data_dir: None,
        ledger: Arc::default(),
        diagnostics,
        written: Arc::default(),
        own: Default::default(),
    }
}

/// The context of a test that only reads: no batch is taken.
#[cfg(test)]
pub(crate) fn reading_context(pool: BufferPool) -> InputContext {
    use async_trait::async_trait;
    use batch::Batch;
    use component::{Receipt, Stopped};

    struct Nothing;

    #[async_trait]
    impl Sink for Nothing {
        async fn send(&self, _: Batch) -> Result<Receipt, Stopped> {
            Err(Stopped)
        }
    }

    context(Arc::new(Nothing), pool, Diagnostics::silent())
}
