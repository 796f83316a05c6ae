//! The progress bar of a finite run on a terminal.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant};

use component::grouped;
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::console::say;

/// How often the bar moves.
const STEP: Duration = Duration::from_millis(100);

/// A bar, or nothing where there is no terminal to draw it on. Cheap to clone.
#[derive(Clone)]
pub struct Bar(Option<ProgressBar>);

impl Bar {
    /// A bar on standard error, if that is a terminal which does not show the events at the same time.
    pub fn new(wanted: bool, writes_to_stdout: bool) -> Self {
        let busy = writes_to_stdout && std::io::stdout().is_terminal();
        if !wanted || busy || !std::io::stderr().is_terminal() {
            return Self(None);
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        Self(Some(bar))
    }

    /// Moves the bar until it is dropped.
    pub async fn draw(
        self,
        progress: Arc<dyn Fn() -> (u64, u64) + Send + Sync>,
        events: Arc<dyn Fn() -> u64 + Send + Sync>,
    ) {
        let Some(bar) = self.0 else { return };
        let begin = Instant::now();
        let known = ProgressStyle::with_template("{wide_bar} {percent:>3} %  {msg}");
        let unknown = ProgressStyle::with_template("{spinner} {msg}");
        let (Ok(known), Ok(unknown)) = (known, unknown) else {
            return;
        };
        loop {
            tokio::time::sleep(STEP).await;
            let (done, total) = progress();
            let elapsed = begin.elapsed();
            let rate = events() as f64 / elapsed.as_secs_f64();
            let mut message = format!("{} events/s", grouped(rate as u64));
            if total > 0 {
                bar.set_style(known.clone());
                bar.set_length(total);
                bar.set_position(done.min(total));
                if done > 0 && done < total {
                    let left = elapsed.mul_f64((total - done) as f64 / done as f64);
                    message = format!("{message}, {} left", HumanDuration(left));
                }
            } else {
                bar.set_style(unknown.clone());
                message = format!("{} events, {message}", grouped(events()));
            }
            bar.set_message(message);
            bar.tick();
        }
    }

    /// Says a line without breaking the bar.
    pub fn say(&self, text: &str) {
        match &self.0 {
            Some(bar) => bar.suspend(|| say(text)),
            None => say(text),
        }
    }

    /// Takes the bar away.
    pub fn clear(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
