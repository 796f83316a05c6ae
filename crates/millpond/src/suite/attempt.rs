//! One run of a scenario.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use config::{Environment, Node, Source, Variables, expand_variables, to_yaml};
use pipeline::usage::Reading;

use super::process::{LOOK, Own, Process, Watched, last_lines};
use super::results::Outcome;
use super::settings::{Scenario, Work};
use crate::console::say;
use crate::interruption::Interruption;

/// How long is waited for events that are one too many, and for the last ones when the sender has ended.
const AFTER: Duration = Duration::from_millis(500);

/// A run that is to be made.
pub struct Attempt<'s> {
    pub scenario: &'s Scenario,
    /// The folder of its files.
    pub files: Option<PathBuf>,
    /// A folder for what it writes, which is emptied.
    pub work: PathBuf,
    /// Events that must be read or arrive.
    pub events: u64,
    /// What ends it early.
    pub interruption: &'s Interruption,
}

/// Variables of a suite, before those of the environment.
struct Given<'v>(&'v BTreeMap<String, String>);

impl Variables for Given<'_> {
    fn get(&self, name: &str) -> Option<String> {
        self.0.get(name).cloned().or_else(|| Environment.get(name))
    }

    fn names(&self) -> Vec<String> {
        let mut names = Environment.names();
        names.extend(self.0.keys().cloned());
        names
    }
}

impl Attempt<'_> {
    /// Makes it.
    ///
    /// # Errors
    /// It failed, took too long, or other events were read than expected.
    pub fn make(&self) -> anyhow::Result<Outcome> {
        let unwritten = || format!("cannot write {}", self.work.display());
        if self.work.exists() {
            fs::remove_dir_all(&self.work).with_context(unwritten)?;
        }
        fs::create_dir_all(&self.work).with_context(unwritten)?;
        let outcome = match &self.scenario.work {
            Work::Line(line) => self.own(line, false),
            Work::Configured(node) => self.own(&self.configuration(node)?, true),
            Work::Foreign {
                command,
                receive,
                write,
            } => {
                for (name, text) in write {
                    fs::write(self.work.join(name), text).with_context(unwritten)?;
                }
                self.foreign(command, receive.as_deref())
            }
        }?;
        // What a disk queue holds is not needed any more, and may be much.
        let _ = fs::remove_dir_all(&self.work);
        Ok(outcome)
    }

    /// Checks a pipeline without running it; nothing for other programs.
    ///
    /// # Errors
    /// It is not valid.
    pub fn check(&self) -> anyhow::Result<()> {
        let pipeline = match &self.scenario.work {
            Work::Line(line) => line.clone(),
            Work::Configured(node) => {
                fs::create_dir_all(&self.work)
                    .with_context(|| format!("cannot write {}", self.work.display()))?;
                self.configuration(node)?
            }
            Work::Foreign {
                receive: Some(input),
                ..
            } => receiver(input),
            Work::Foreign { .. } => return Ok(()),
        };
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["check", &pipeline]).envs(self.variables()?);
        if let Work::Configured(_) = &self.scenario.work {
            command.arg("--data-dir").arg(self.work.join("data"));
        }
        let output = command.output().context("cannot start Millpond")?;
        if !output.status.success() {
            say(String::from_utf8_lossy(&output.stderr).trim_end());
            let (node, name) = (&self.scenario.node, &self.scenario.name);
            let place = node.get("receive").or_else(|| node.get("pipeline"));
            let error = place.unwrap_or(node);
            bail!(error.error(format!("the pipeline of `{name}` is not valid")));
        }
        Ok(())
    }

    /// Writes the configuration with the settings of a pipeline; its path.
    fn configuration(&self, pipeline: &Node) -> anyhow::Result<String> {
        let source = Source::new("suite", "");
        let word = |text: &str| Node::scalar(&source, pipeline.span, text, false);
        let map =
            |key: &str, value: Node| Node::map(&source, pipeline.span, vec![(word(key), value)]);
        let root = map("pipelines", map("main", pipeline.clone()));
        let path = self.work.join("pipeline.yaml");
        fs::write(&path, to_yaml(&root))
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path.display().to_string())
    }

    /// What the processes of a run find in their environment.
    fn variables(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let text = |path: &Path| path.display().to_string();
        let port = TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr());
        let port = port.context("no port is free")?.port();
        let program = std::env::current_exe().context("cannot find the program")?;
        let mut variables = BTreeMap::from([
            ("MILLPOND".to_owned(), text(&program)),
            ("WORK".to_owned(), text(&self.work)),
            ("PORT".to_owned(), port.to_string()),
            ("EVENTS".to_owned(), self.events.to_string()),
        ]);
        if let Some(files) = &self.files {
            variables.insert("FILES".to_owned(), text(files));
        }
        Ok(variables)
    }

    /// A pipeline.
    fn own(&self, pipeline: &str, with_data_dir: bool) -> anyhow::Result<Outcome> {
        let machine = Reading::now();
        let data_dir = with_data_dir.then(|| self.work.join("data"));
        let own = Own::start(pipeline, data_dir, &self.variables()?, &self.work)?;
        let mut watched = Watched::new(own.process.id());
        let deadline = Instant::now() + self.scenario.timeout();
        while !own.process.has_ended()? {
            watched.look();
            self.in_time(deadline, own.log())?;
            thread::sleep(LOOK);
        }
        watched.take();
        let (events, end) = own.finish()?;
        self.expect(events)?;
        let others = others(&machine, end.cpu_seconds);
        Ok(Outcome {
            events,
            wall_seconds: end.wall_seconds,
            cpu_seconds: end.cpu_seconds,
            memory_peak_bytes: end.memory_peak_bytes,
            others_cpus: others,
            receiver_cpu_seconds: None,
            verdict: Some(end.verdict),
            samples: watched.samples,
        })
    }

    /// Another program.
    fn foreign(&self, command: &Node, input: Option<&str>) -> anyhow::Result<Outcome> {
        let variables = self.variables()?;
        let mut command = command.clone();
        expand_variables(&mut command, &Given(&variables))?;
        let words: Vec<String> = command.deserialize()?;
        let machine = Reading::now();
        let start = |input: &str| Own::start(&receiver(input), None, &variables, &self.work);
        let mut own = input.map(start).transpose()?;
        if let Some(own) = &mut own {
            own.wait_until_ready(self.interruption)?;
        }
        let log = self.work.join("output.log");
        let mut process = Process::start(
            Command::new(&words[0])
                .args(&words[1..])
                .envs(&variables)
                .current_dir(&self.work)
                .stdout(File::create(&log)?)
                .stderr(File::options().append(true).open(&log)?),
        )
        .with_context(|| format!("cannot start {}", words[0]))?;
        let mut watched = Watched::new(process.id());
        let wall = self.until_done(&mut process, own.as_mut(), &mut watched, &log)?;
        let last = watched.take();
        process.end()?;
        let mut events = self.events;
        let mut receiver_cpu = None;
        if let Some(mut own) = own {
            thread::sleep(AFTER);
            own.process.end()?;
            let (arrived, end) = own.finish()?;
            events = arrived;
            receiver_cpu = Some(end.cpu_seconds);
        }
        self.expect(events)?;
        let others = others(&machine, last.cpu_seconds + receiver_cpu.unwrap_or(0.0));
        Ok(Outcome {
            events,
            wall_seconds: wall.as_secs_f64(),
            cpu_seconds: last.cpu_seconds,
            memory_peak_bytes: watched.peak(),
            others_cpus: others,
            receiver_cpu_seconds: receiver_cpu,
            verdict: None,
            samples: watched.samples,
        })
    }

    /// Waits until every event has arrived, or without a receiver until the program has ended; how long it took.
    fn until_done(
        &self,
        process: &mut Process,
        mut own: Option<&mut Own>,
        watched: &mut Watched,
        log: &Path,
    ) -> anyhow::Result<Duration> {
        let deadline = Instant::now() + self.scenario.timeout();
        let mut ended = None;
        loop {
            if ended.is_none() {
                watched.look();
            }
            if let Some(own) = &mut own {
                own.listen(LOOK)?;
                if own.events >= self.events {
                    return Ok(own.changed.duration_since(watched.begin));
                }
            } else {
                thread::sleep(LOOK);
            }
            if ended.is_none() && process.has_ended()? {
                ended = Some(Instant::now());
                watched.take();
                let status = process.status()?;
                if !status.success() {
                    bail!("the program ended with {status}{}", last_lines(log));
                }
                if own.is_none() {
                    return Ok(watched.begin.elapsed());
                }
            }
            if let (Some(own), Some(at)) = (&own, ended)
                && at.elapsed().min(own.changed.elapsed()) > AFTER
            {
                let (events, expected) = (own.events, self.events);
                bail!(
                    "the program ended, and {events} events arrived of {expected}{}",
                    last_lines(log)
                );
            }
            self.in_time(deadline, log)?;
        }
    }

    /// Goes on where there is time left; what the program said is in the log.
    fn in_time(&self, deadline: Instant, log: &Path) -> anyhow::Result<()> {
        self.interruption.check()?;
        if Instant::now() > deadline {
            let timeout = self.scenario.settings.timeout;
            bail!("it took longer than {timeout}{}", last_lines(log));
        }
        Ok(())
    }

    fn expect(&self, events: u64) -> anyhow::Result<()> {
        if events != self.events {
            bail!(
                "{events} events were counted, {} were expected",
                self.events
            );
        }
        Ok(())
    }
}

/// CPUs that were in use since a reading, on average, beside this process and those that used so many CPU-seconds.
fn others(machine: &Reading, measured: f64) -> f64 {
    let usage = machine.usage(0);
    let others = usage.others_cpu.as_secs_f64() - measured;
    (others / usage.wall.as_secs_f64().max(1e-9)).max(0.0)
}

/// The pipeline that receives what a program sends.
fn receiver(input: &str) -> String {
    format!("{input} | discard")
}
