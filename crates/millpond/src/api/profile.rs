//! `/api/v1/profile`: the processor time of the process itself, from the store of its profiles.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::anyhow;
use component::thread;
use http::StatusCode;
use profiler::filter::Filter;
use profiler::pprof;
use profiler::store::name::nanoseconds;

use super::reply::{Answer, Request, answer as reply, failed};
use super::state::{ApiState, Profiles};
use crate::profile::files::Sources;

/// How far back a profile goes at most, and by default, in seconds.
const SECONDS_MAX: usize = 86_400;
const SECONDS: usize = 600;

/// The answer.
pub async fn answer(state: &ApiState, request: &Request) -> Answer {
    let folder = match &state.profiles {
        Profiles::Store(folder) => folder.clone(),
        Profiles::None(reason) => return failed(StatusCode::NOT_FOUND, reason),
    };
    let seconds = match request.number("seconds", SECONDS) {
        Ok(seconds) => seconds.clamp(1, SECONDS_MAX),
        Err(answer) => return *answer,
    };
    // One at a time: joining the profiles of a day takes a while.
    let _turn = state.profiling.lock().await;
    let work = thread::start("api-profile", move || pprof_of(folder, seconds));
    let made = match work {
        Ok(work) => work
            .ended()
            .await
            .unwrap_or_else(|_| Err(anyhow!("internal error"))),
        Err(error) => Err(error.into()),
    };
    match made {
        Ok(Some(profile)) => reply(StatusCode::OK, "application/octet-stream", profile),
        Ok(None) => failed(
            StatusCode::NOT_FOUND,
            &format!(
                "there is no profile of the last {seconds} seconds yet: one is stored every minute"
            ),
        ),
        Err(error) => failed(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error:#}")),
    }
}

fn pprof_of(folder: PathBuf, seconds: usize) -> anyhow::Result<Option<Vec<u8>>> {
    let now = nanoseconds(std::time::SystemTime::now());
    let back = Duration::from_secs(seconds as u64).as_nanos() as i64;
    let Ok(sources) = Sources::new(&[folder], &(now - back..i64::MAX)) else {
        // Nothing is of that time.
        return Ok(None);
    };
    let profile = sources.graph(&Filter::default())?;
    Ok((!profile.is_empty()).then(|| pprof::write(&profile)))
}
