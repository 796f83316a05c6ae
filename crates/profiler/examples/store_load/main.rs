//! Fills stores with profiles of hosts that are made up, and measures what they cost; `bench/profile-store` and `bench/profile-size` call it.
//!
//! - `store_load fleet STORE HOSTS STACKS (day|hours)`: a day of a fleet, as files of days or of hours
//! - `store_load query STORE [by=LABEL] [flame] [NAME=VALUE] [function=TEXT]`: a query over all of it, once
//! - `store_load minutes STORE STACKS CORES HOURS`: a host's hours, a file a minute
//! - `store_load compact STORE`: joins what can be joined long after
//! - `store_load tables STORE`: writes the tables that are missing, and joins nothing
//! - `store_load shape FILE`: what the stacks of a pprof file are like

#![allow(clippy::print_stdout)]

mod simulated;

use std::error::Error;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use profiler::cost::Rates;
use profiler::filter::Filter;
use profiler::flame;
use profiler::pprof;
use profiler::profile::SECOND_NS;
use profiler::store::Store;
use profiler::store::query::{Query, TableSum};
use profiler::top::Group;
use rustix::time::{ClockId, clock_gettime};
use simulated::Host;

/// A day in November 2026.
const START_NS: i64 = 1_795_392_000 * SECOND_NS as i64;
const FREQUENCY_HZ: f64 = 20.0;
const CORES_OF_HOST: f64 = 16.0;
const BUSY: f64 = 0.5;

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["fleet", store, hosts, stacks, of] => fleet(
            Path::new(store),
            hosts.parse()?,
            stacks.parse()?,
            of == "day",
        ),
        ["query", store, ref asked @ ..] => query(Path::new(store), asked),
        ["minutes", store, stacks, cores, hours] => minutes(
            Path::new(store),
            stacks.parse()?,
            cores.parse()?,
            hours.parse()?,
        ),
        ["compact", store] => compact(Path::new(store)),
        ["tables", store] => tables(Path::new(store)),
        ["shape", file] => shape(Path::new(file)),
        _ => Err("see the head of the source for what to call it with".into()),
    }
}

/// A day of a fleet, half of whose processors are idle.
fn fleet(store: &Path, hosts: u64, stacks: usize, is_days: bool) -> Outcome {
    let store = Store::create(store)?;
    let rate = CORES_OF_HOST * FREQUENCY_HZ * BUSY;
    let seconds = if is_days { 24 * 3600 } else { 3600 };
    let parts = 24 * 3600 / seconds;
    let next = std::sync::atomic::AtomicU64::new(0);
    let work = || -> std::io::Result<()> {
        loop {
            let number = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            if number >= hosts {
                return Ok(());
            }
            let host = Host::new(number, stacks, rate);
            for part in 0..parts {
                let start_ns = START_NS + (part * seconds * SECOND_NS) as i64;
                store.write(
                    &host.profile(start_ns, seconds, FREQUENCY_HZ, number * 24 + part),
                    &host.name,
                )?;
            }
        }
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(work);
        work().and(other.join().expect("it does not panic"))
    })?;
    report_files(&store)
}

fn report_files(store: &Store) -> Outcome {
    let slices = store.slices(&(i64::MIN..i64::MAX))?;
    let bytes: u64 = slices.iter().map(|slice| slice.bytes).sum();
    let tables = slices.iter().filter_map(|slice| slice.table.as_ref());
    let of_tables: u64 = tables.map(|(_, bytes)| bytes).sum();
    println!(
        "{} files, {:.1} MB, and {:.1} MB of tables",
        slices.len(),
        bytes as f64 / 1e6,
        of_tables as f64 / 1e6
    );
    Ok(())
}

fn query(store: &Path, asked: &[&str]) -> Outcome {
    let (mut filter, mut group, mut is_flame) = (Filter::default(), Group::Function, false);
    for asked in asked {
        match asked.split_once('=') {
            Some(("by", name)) => group = Group::Label(name.to_owned()),
            Some(("function", text)) => filter.function = Some(text.to_owned()),
            Some(label) => filter.labels.push((label.0.to_owned(), label.1.to_owned())),
            None => is_flame = true,
        }
    }
    let started = (Instant::now(), cpu());
    let slices = Store::at(store).slices(&(START_NS..START_NS + 24 * 3600 * SECOND_NS as i64))?;
    let query = Query {
        slices: &slices,
        filter: &filter,
        names: None,
    };
    if is_flame {
        let (profile, _) = query.profile()?;
        let options = flame::Options {
            title: "a day".to_owned(),
            rates: Rates::default(),
        };
        let page = flame::html(&profile, &Filter::default(), &options);
        report(
            &format!(
                "{} distinct stacks, a page of {:.1} MB",
                profile.len(),
                page.len() as f64 / 1e6
            ),
            started,
        );
        return Ok(());
    }
    let mut sum = TableSum::default();
    query.tables(&group, |_, scanned| sum.add(scanned, &Rates::here()))?;
    let table = sum.table();
    report(
        &format!("{} rows, {} samples", table.rows.len(), table.all.samples),
        started,
    );
    if std::env::var_os("ROWS").is_some() {
        for row in table.rows.iter().take(10) {
            println!(
                "  {} {} {} {}",
                row.own.samples, row.total.samples, row.name, row.binary
            );
        }
    }
    Ok(())
}

/// Hours of one host all of whose cores are busy, a file a minute.
fn minutes(store: &Path, stacks: usize, cores: f64, hours: u64) -> Outcome {
    let host = Host::new(0, stacks, cores * FREQUENCY_HZ);
    let store = Store::create(store)?;
    let (mut spent, mut distinct) = (Duration::ZERO, 0);
    for minute in 0..hours * 60 {
        let start_ns = START_NS + (minute * 60 * SECOND_NS) as i64;
        let profile = host.profile(start_ns, 60, FREQUENCY_HZ, minute);
        distinct += profile.len() as u64;
        let before = cpu();
        store.write(&profile, &host.name)?;
        spent += cpu() - before;
    }
    println!(
        "written in {:.1} s of CPU, {} distinct stacks a minute",
        spent.as_secs_f64(),
        distinct / (hours * 60).max(1)
    );
    memory();
    report_files(&store)
}

fn compact(store: &Path) -> Outcome {
    let store = Store::at(store);
    for (what, hours) in [("hours", 24.2), ("days", 72.0)] {
        let now = at_hours(hours);
        let started = (Instant::now(), cpu());
        let done = store.compact(now, None, |_, profile| profile.clone())?;
        report(
            &format!("{what}: {} files joined to {}", done.joined, done.made),
            started,
        );
        report_files(&store)?;
    }
    Ok(())
}

fn tables(store: &Path) -> Outcome {
    let store = Store::at(store);
    let (hosts, next) = (store.hosts()?, std::sync::atomic::AtomicUsize::new(0));
    let started = (Instant::now(), cpu());
    let now = at_hours(24.2);
    let work = || -> std::io::Result<()> {
        loop {
            let number = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let Some(host) = hosts.get(number) else {
                return Ok(());
            };
            store.compact(now, Some(host), |_, profile| profile.clone())?;
        }
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(work);
        work().and(other.join().expect("it does not panic"))
    })?;
    let slices = store.slices(&(i64::MIN..i64::MAX))?;
    let tables = slices.iter().filter(|slice| slice.table.is_some());
    report(&format!("{} tables", tables.count()), started);
    report_files(&store)
}

/// So many hours after the day began.
fn at_hours(hours: f64) -> SystemTime {
    let start = SystemTime::UNIX_EPOCH + Duration::from_nanos(START_NS as u64);
    start + Duration::from_secs_f64(hours * 3600.0)
}

fn shape(file: &Path) -> Outcome {
    let bytes = fs::read(file)?;
    let profile = pprof::read(&bytes)?;
    let frames: usize = profile
        .samples()
        .map(|(stack, ..)| profile.frame_ids(stack).count())
        .sum();
    println!(
        "{} samples, {} distinct, {:.1} frames each, {:.1} nodes each, {} frames, {} label sets, {} bytes",
        profile.total().samples,
        profile.len(),
        frames as f64 / profile.len() as f64,
        profile.stack_count() as f64 / profile.len() as f64,
        profile.frames().count(),
        profile.label_sets().count(),
        bytes.len()
    );
    Ok(())
}

fn cpu() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        now.tv_sec.unsigned_abs(),
        u32::try_from(now.tv_nsec).unwrap_or(0),
    )
}

fn report(what: &str, (wall, before): (Instant, Duration)) {
    let (wall, cpu) = (wall.elapsed().as_secs_f64(), (cpu() - before).as_secs_f64());
    println!("wall {wall:.3} s, CPU {cpu:.3} s: {what}");
    memory();
}

fn memory() {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    println!("peak memory {}", peak.unwrap_or_default().trim());
}
