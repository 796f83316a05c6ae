//! The end of connections during a stop.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, timeout};

/// How long a stop waits at least for a connection that no request is answered on.
const PATIENCE: Duration = Duration::from_millis(500);

/// How long a client at least has to read its last answer during a stop. At most it has twice that.
const LAST_BYTES: Duration = Duration::from_millis(100);

/// What a connection ends with during a stop. None for a client that sends half a request, or keeps its side open after its
/// answer: it is not waited for.
pub(crate) async fn last_answers<T>(
    served: impl Future<Output = T>,
    at_work: &AtomicUsize,
) -> Option<T> {
    let mut served = pin!(served);
    let patient_until = Instant::now() + PATIENCE;
    let mut was_idle = false;
    loop {
        if let Ok(done) = timeout(LAST_BYTES, &mut served).await {
            return Some(done);
        }
        let is_idle = at_work.load(Ordering::Relaxed) == 0;
        if is_idle && was_idle && Instant::now() >= patient_until {
            return None;
        }
        was_idle = is_idle;
    }
}
