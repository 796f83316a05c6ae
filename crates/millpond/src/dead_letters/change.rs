//! `replay` and `purge`: what is asked of a running service, or done here.

use std::fmt::Write;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use component::{Diagnostics, grouped, plural, plural_were};
use queue::QueueError;
use queue::letters::request::{self, Action, Outcome, Request};
use queue::letters::{self, LetterFolder, RemovalError, Unreadable};

use super::{PurgeArgs, ReplayArgs, Selection};
use crate::console::{print, say};

/// How often it is looked what became of a request.
const LOOK: Duration = Duration::from_millis(100);

/// Letters of one store that something is done with.
struct Chosen<'s> {
    store: &'s LetterFolder,
    count: u64,
    /// Their numbers.
    numbers: Vec<(u64, u64)>,
    /// The numbers of their originals.
    originals: Vec<(u64, u64)>,
}

/// A request that was left.
struct Left<'s> {
    chosen: Chosen<'s>,
    id: String,
}

/// The letters that are wanted, by store, and for each store what cannot be read.
fn choose<'s>(
    selection: &Selection,
    stores: &'s [LetterFolder],
) -> anyhow::Result<(Vec<Chosen<'s>>, Vec<Unreadable>)> {
    let mut chosen: Vec<Chosen<'s>> = Vec::new();
    let unreadable = selection.each(stores, &mut |store, page, row, letter| {
        let place = stores.iter().position(|known| known.path() == store.path());
        let store = &stores[place.unwrap_or_default()];
        if chosen
            .last()
            .is_none_or(|last| last.store.path() != store.path())
        {
            chosen.push(Chosen {
                store,
                count: 0,
                numbers: Vec::new(),
                originals: Vec::new(),
            });
        }
        if let Some(last) = chosen.last_mut() {
            last.count += 1;
            last.numbers.push((letter.number, letter.number + 1));
            let original = page.original_number(row);
            last.originals
                .extend(original.map(|number| (number, number + 1)));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    for chosen in &mut chosen {
        chosen.numbers = joined(std::mem::take(&mut chosen.numbers));
        chosen.originals = joined(std::mem::take(&mut chosen.originals));
    }
    Ok((chosen, unreadable))
}

/// Ranges that touch as one.
fn joined(mut numbers: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    numbers.sort_unstable();
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for (start, end) in numbers {
        match ranges.last_mut() {
            Some(last) if last.1 >= start => last.1 = last.1.max(end),
            _ => ranges.push((start, end)),
        }
    }
    ranges
}

/// Has letters delivered.
pub fn replay(args: &ReplayArgs) -> anyhow::Result<ExitCode> {
    let stores = args.selection.stores()?;
    args.selection.one_store(&stores)?;
    let (chosen, unreadable) = choose(&args.selection, &stores)?;
    let is_complete = unreadable.iter().all(Unreadable::is_empty);
    if chosen.is_empty() {
        print(b"no dead letter matches; nothing was replayed\n")?;
        return Ok(ExitCode::from(u8::from(!is_complete)));
    }
    let action = match args.from_start {
        true => Action::ReplayFromStart,
        false => Action::Replay,
    };
    let is_in_use = chosen.iter().any(|chosen| chosen.store.holder().is_some());
    let Some(configuration) = &args.configuration else {
        let left = leave(chosen, action)?;
        if !is_in_use {
            let count: u64 = left.iter().map(|left| left.chosen.count).sum();
            let text = format!(
                "no service is using {}: {} will be replayed when one starts with it. To replay now, also give the YAML file of the pipelines\n",
                args.selection.data_dir.display(),
                plural(count, "dead letter")
            );
            print(text.as_bytes())?;
            // Nothing was delivered yet.
            return Ok(ExitCode::FAILURE);
        }
        return finish(left, is_complete, wait);
    };
    if is_in_use {
        bail!(
            "{} is in use by a service, which replays dead letters itself: run the command without {configuration}",
            args.selection.data_dir.display()
        );
    }
    let run = crate::run::Replay::prepare(configuration, &args.selection.data_dir)?;
    for Chosen { store, .. } in &chosen {
        if !run.has_pipeline(store.pipeline()) {
            bail!(
                "{configuration} has no pipeline `{}`, which some of the dead letters belong to; select another with --pipeline",
                store.pipeline()
            );
        }
    }
    let left = leave(chosen, action)?;
    let code = run.run()?;
    let ended = |left: &Left<'_>| request::outcome(left.chosen.store.path(), &left.id);
    let done = finish(left, is_complete, |left| {
        ended(left).unwrap_or_else(|| Outcome {
            problem: Some("the run ended before the replay began".to_owned()),
            ..Outcome::default()
        })
    })?;
    Ok(match code {
        0 => done,
        code => ExitCode::from(code),
    })
}

fn leave(chosen: Vec<Chosen<'_>>, action: Action) -> anyhow::Result<Vec<Left<'_>>> {
    let mut left = Vec::new();
    for chosen in chosen {
        let request = Request {
            action,
            numbers: chosen.numbers.clone(),
            others: Vec::new(),
            cleared: None,
        };
        let id = ask(chosen.store, &request)?;
        left.push(Left { chosen, id });
    }
    Ok(left)
}

/// Leaves a request in a store; its name.
fn ask(store: &LetterFolder, request: &Request) -> anyhow::Result<String> {
    let path = store.path();
    let place = || format!("cannot write a request to {}", path.display());
    request.leave(path).with_context(place)
}

fn wait(left: &Left<'_>) -> Outcome {
    wait_for(left.chosen.store, &left.id)
}

/// Waits until the process that has the store has carried a request out, or is gone.
fn wait_for(store: &LetterFolder, id: &str) -> Outcome {
    loop {
        let is_held = store.holder().is_some();
        let is_left = request::is_left(store.path(), id);
        let outcome = request::outcome(store.path(), id);
        match outcome {
            Some(outcome) if outcome.is_done => return outcome,
            outcome if !is_held => {
                let mut outcome = outcome.unwrap_or_default();
                outcome.problem.get_or_insert_with(|| {
                    "the service has stopped; the rest will be processed when it starts again"
                        .to_owned()
                });
                return outcome;
            }
            outcome if !is_left => {
                let mut outcome = outcome.unwrap_or_default();
                let unknown = "the request was executed, but its result could not be written; see the log of the service";
                outcome.problem.get_or_insert_with(|| unknown.to_owned());
                return outcome;
            }
            _ => thread::sleep(LOOK),
        }
    }
}

/// Says what became of requests.
fn finish(
    left: Vec<Left<'_>>,
    is_complete: bool,
    outcome: impl Fn(&Left<'_>) -> Outcome,
) -> anyhow::Result<ExitCode> {
    let mut is_clean = is_complete;
    for left in left {
        let outcome = outcome(&left);
        if outcome.is_done {
            request::forget(left.chosen.store.path(), &left.id);
        }
        is_clean &= tell(&left.chosen, &outcome)?;
    }
    Ok(ExitCode::from(u8::from(!is_clean)))
}

/// Says what became of the letters of a store; whether all of them are gone.
fn tell(chosen: &Chosen<'_>, outcome: &Outcome) -> anyhow::Result<bool> {
    let taken = match outcome.is_queued {
        true => "accepted by the disk queue",
        false => "delivered",
    };
    let Outcome {
        delivered,
        again,
        gone,
        ..
    } = outcome;
    let left = chosen.count.saturating_sub(delivered + again + gone);
    let mut text = format!(
        "{}: {} {taken}, {} became dead letters again, {} left",
        chosen.store.pipeline(),
        grouped(*delivered),
        grouped(*again),
        grouped(left)
    );
    if *gone > 0 {
        let _ = write!(text, ", {} no longer there", grouped(*gone));
    }
    text.push('\n');
    if outcome.is_queued && *delivered > 0 {
        text.push_str("the events are delivered after those that were already in the queue: `millpond queue inspect` shows how many the output still has to get, and `millpond dead-letters list` which are rejected again\n");
    }
    print(text.as_bytes())?;
    if let Some(problem) = &outcome.problem {
        say(&format!(
            "error: pipeline {}: {problem}",
            chosen.store.pipeline()
        ));
    }
    Ok(outcome.problem.is_none() && outcome.again == 0 && left == 0)
}

/// Removes letters.
pub fn purge(args: &PurgeArgs) -> anyhow::Result<ExitCode> {
    let selection = &args.selection;
    if !args.all && !selection.is_restricted() {
        bail!(
            "select the dead letters to remove with --reason, --component, --pipeline, --since, --until, --number or --limit, or use --all"
        );
    }
    let stores = selection.stores()?;
    selection.one_store(&stores)?;
    let (chosen, unreadable) = choose(selection, &stores)?;
    let (mut count, mut cleared) = (0, 0);
    for (store, unreadable) in stores.iter().zip(&unreadable) {
        let chosen = chosen
            .iter()
            .find(|chosen| chosen.store.path() == store.path());
        let mut request = Request {
            action: Action::Purge,
            numbers: chosen.map_or_else(Vec::new, |chosen| chosen.numbers.clone()),
            others: chosen.map_or_else(Vec::new, |chosen| chosen.originals.clone()),
            cleared: None,
        };
        if args.all && selection.is_everything() && !unreadable.is_empty() {
            // What is damaged goes, too.
            cleared += unreadable.damage.len() + unreadable.lost.len();
            request.others = vec![(0, unreadable.end)];
            request.cleared = Some(unreadable.parts());
        }
        if chosen.is_some() || request.cleared.is_some() {
            count += remove(store, &request)?;
        }
    }
    let mut text = match (count, cleared) {
        (0, 0) => "no dead letter matches; nothing was removed\n".to_owned(),
        (count, _) => format!("{} removed\n", plural_were(count, "dead letter")),
    };
    if cleared > 0 {
        let _ = writeln!(
            text,
            "{} cleared and will not be reported again; copies of damaged data are in `quarantine`",
            plural_were(cleared as u64, "damaged or missing range")
        );
    }
    print(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Removes letters through the process that has the store, or here; how many were there.
fn remove(store: &LetterFolder, request: &Request) -> anyhow::Result<u64> {
    let diagnostics = Diagnostics::new(|text| say(&format!("warning: {text}")));
    match letters::remove(store, request.purge(), diagnostics) {
        Err(RemovalError::Store(QueueError::InUse { .. })) => {
            let id = ask(store, request)?;
            let outcome = wait_for(store, &id);
            request::forget(store.path(), &id);
            match outcome.problem {
                None => Ok(outcome.purged),
                Some(problem) => Err(anyhow!("{problem}")),
            }
        }
        removed => Ok(removed?),
    }
}
