//! `millpond health`: whether a running Millpond is alive, or ready, as an exit code: for containers without a shell, and for scripts.

use std::process::ExitCode;

use clap::Args;
use component::terminal::escaped;
use config::Period;
use tokio::time::timeout;

use crate::api::stats::Readiness;
use crate::api_client::ApiArgs;
use crate::console::print;
use crate::log;

#[derive(Args)]
pub struct HealthArgs {
    #[command(flatten)]
    api: ApiArgs,
    /// Asks whether it is ready, instead of whether it is alive: every pipeline has started, no output has failed for good, and events can be stored.
    #[arg(long)]
    ready: bool,
    /// How long the answer may take.
    #[arg(long, value_name = "DURATION", default_value = "5s")]
    timeout: Period,
}

/// Asks, prints the answer, and exits with 0 if it is good and with 1 if not, or if nobody answers.
pub fn health(args: &HealthArgs) -> anyhow::Result<ExitCode> {
    let client = args.api.connect()?;
    let path = if args.ready { "/ready" } else { "/health" };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let answer = runtime.block_on(async {
        let answer = client.look::<Readiness>(path);
        timeout(args.timeout.0, answer).await
    });
    let (is_good, Readiness { status, reasons }) = match answer {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => {
            log::fail(&error.to_string());
            return Ok(ExitCode::FAILURE);
        }
        Err(_) => {
            log::fail(&format!("no answer within {}", args.timeout));
            return Ok(ExitCode::FAILURE);
        }
    };
    let reasons = reasons
        .iter()
        .map(|reason| format!("  {}\n", escaped(reason)));
    let status = escaped(&status);
    print(format!("{status}\n{}", reasons.collect::<String>()).as_bytes())?;
    Ok(ExitCode::from(u8::from(!is_good)))
}
