//! `millpond top`: what a running Millpond does, on one screen that renews itself.
//!
//! It asks the API of the process, on a thread of its own so that keys are answered while an answer takes its time. `rates` finds out
//! what happened between two answers, `draw` shows it.

mod draw;
mod rates;

use std::cell::Cell;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use config::Period;
use profiler::cost::Tariff;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::{
    DefaultTerminal, Terminal,
    backend::TestBackend,
    buffer::{self, Buffer},
};

use crate::api::stats::Stats;
use crate::api_client::{ApiArgs, ApiClient, ApiError};
use crate::console::print;
use crate::profile::rates::RateArgs;
use draw::{Screen, Section, WIDTH_MIN};
use rates::Looks;

/// How many files of each pipeline are asked for.
const FILES: &str = "50";

/// How soon a key is answered.
const KEY_WAIT: Duration = Duration::from_millis(100);

/// The shortest time between two looks.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// The size of the screen that is printed where no terminal says how wide it is.
const PRINTED: (u16, u16) = (120, 200);

#[derive(Args)]
pub struct TopArgs {
    #[command(flatten)]
    api: ApiArgs,
    /// The pipeline that is shown first.
    #[arg(value_name = "PIPELINE")]
    pipeline: Option<String>,
    /// How often it looks.
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    interval: Period,
    /// Looks twice, prints one screen as text, and ends.
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    rates: RateArgs,
}

/// Shows what a process does until it is told to quit.
pub fn top(args: &TopArgs) -> anyhow::Result<ExitCode> {
    if args.interval.0 < INTERVAL_MIN {
        bail!("--interval is too short: 100ms at least");
    }
    if !args.once && !std::io::stdout().is_terminal() {
        bail!("`millpond top` needs a terminal; `millpond top --once` prints one screen as text");
    }
    let tariff = args.rates.tariff()?;
    let client = args.api.connect()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    // What is wrong with the address or the token is told before the screen is taken.
    let first = runtime.block_on(look(&client))?;
    let mut top = Top {
        screen: Screen {
            looks: Looks::default(),
            rates: *tariff.of(&first.host),
            selected: args
                .pipeline
                .as_deref()
                .map_or(Ok(0), |name| place(&first, name))?,
            window: 0,
            section: Section::All,
            first: Cell::new(0),
            page: Cell::new(1),
            is_paused: false,
            shows_help: false,
            trouble: None,
            interval: args.interval.0,
        },
        tariff,
    };
    top.take(Ok(first));
    if args.once {
        std::thread::sleep(args.interval.0);
        top.take(Ok(runtime.block_on(look(&client))?));
        print(top.text()?.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let interval = args.interval.0;
    let (sender, answers) = sync_channel(1);
    component::thread::start("api", move || {
        runtime.block_on(look_again(&client, interval, &sender));
    })
    .context("cannot create the thread that asks the API")?;
    let mut terminal = ratatui::try_init().context("cannot use the terminal")?;
    let shown = top.show(&mut terminal, &answers);
    ratatui::restore();
    shown?;
    Ok(ExitCode::SUCCESS)
}

async fn look(client: &ApiClient) -> Result<Stats, ApiError> {
    client.get("/api/v1/stats", &[("files", FILES)]).await
}

async fn look_again(
    client: &ApiClient,
    interval: Duration,
    answers: &SyncSender<Result<Stats, ApiError>>,
) {
    loop {
        tokio::time::sleep(interval).await;
        if answers.send(look(client).await).is_err() {
            return;
        }
    }
}

/// The place of a pipeline among those that run.
fn place(stats: &Stats, name: &str) -> anyhow::Result<usize> {
    let place = stats.pipelines.iter().position(|it| it.name == name);
    place.with_context(|| {
        let names: Vec<&str> = stats.pipelines.iter().map(|it| it.name.as_str()).collect();
        format!(
            "there is no pipeline `{name}`; those that run are {}",
            names.join(", ")
        )
    })
}

/// A screen and what changes it.
struct Top {
    screen: Screen,
    tariff: Tariff,
}

impl Top {
    fn take(&mut self, answer: Result<Stats, ApiError>) {
        let screen = &mut self.screen;
        match answer {
            Ok(stats) => {
                screen.trouble = None;
                if !screen.is_paused {
                    screen.rates = *self.tariff.of(&stats.host);
                    screen.looks.take(stats);
                }
            }
            Err(error) => {
                let text = error.to_string();
                let line = text.lines().next().unwrap_or_default();
                screen.trouble = Some(component::terminal::escaped(line));
            }
        }
    }

    fn show(
        &mut self,
        terminal: &mut DefaultTerminal,
        answers: &Receiver<Result<Stats, ApiError>>,
    ) -> anyhow::Result<()> {
        loop {
            terminal.draw(|frame| self.screen.draw(frame))?;
            let mut is_new = false;
            while !is_new {
                is_new = event::poll(KEY_WAIT)?;
                if is_new && self.answer(&event::read()?) {
                    return Ok(());
                }
                while let Ok(answer) = answers.try_recv() {
                    self.take(answer);
                    is_new = true;
                }
            }
        }
    }

    /// Does what an event asks for; whether that is to quit.
    fn answer(&mut self, event: &Event) -> bool {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => self.press(*key),
            _ => false,
        }
    }

    fn press(&mut self, key: KeyEvent) -> bool {
        let screen = &mut self.screen;
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if is_control => return true,
            KeyCode::Char('q') => return true,
            // It closes what is open before it ends all.
            KeyCode::Esc if screen.shows_help => screen.shows_help = false,
            KeyCode::Esc => return true,
            KeyCode::Left => screen.choose(screen.selected.saturating_sub(1)),
            KeyCode::Right => screen.choose(screen.selected + 1),
            KeyCode::Char('w') => screen.window = (screen.window + 1) % 3,
            KeyCode::Char(' ') => screen.is_paused = !screen.is_paused,
            KeyCode::Char('?' | 'h') => screen.shows_help = !screen.shows_help,
            KeyCode::Tab => {
                screen.section = match screen.section {
                    Section::All => Section::Operators,
                    Section::Operators => Section::Files,
                    Section::Files => Section::All,
                };
                screen.first.set(0);
            }
            code => screen.scroll(code),
        }
        false
    }

    /// The screen as text, as wide as the terminal and as high as it needs to be.
    fn text(&self) -> anyhow::Result<String> {
        let size = ratatui::crossterm::terminal::size();
        let width = size.ok().filter(|_| std::io::stdout().is_terminal());
        let width = width.map_or(PRINTED.0, |(width, _)| width.max(WIDTH_MIN));
        let mut terminal = Terminal::new(TestBackend::new(width, PRINTED.1))?;
        terminal.draw(|frame| self.screen.draw(frame))?;
        Ok(text_of(terminal.backend().buffer()))
    }
}

/// The lines of a screen without the keys at its end.
fn text_of(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width).max(1);
    let lines = buffer.content.chunks(width).map(|cells| {
        let line: String = cells.iter().map(buffer::Cell::symbol).collect();
        line.trim_end().to_owned()
    });
    let mut lines: Vec<String> = lines.collect();
    lines.pop();
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use profiler::cost::Rates;

    fn screen(looks: Looks) -> Screen {
        Screen {
            looks,
            rates: Rates::X86_64,
            selected: 0,
            window: 0,
            section: Section::All,
            first: Cell::new(0),
            page: Cell::new(1),
            is_paused: false,
            shows_help: false,
            trouble: None,
            interval: Duration::from_secs(2),
        }
    }

    fn two_looks() -> Looks {
        let mut looks = Looks::default();
        looks.take(rates::tests::look(100.0, "a", 10_000));
        looks.take(rates::tests::look(102.0, "a", 2_010_000));
        looks
    }

    fn drawn(screen: &Screen, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a screen");
        terminal.draw(|frame| screen.draw(frame)).expect("drawn");
        text_of(terminal.backend().buffer())
    }

    #[test]
    fn a_screen_of_80_columns_shows_what_counts() {
        let text = drawn(&screen(two_looks()), 80, 24);
        for expected in [
            "Millpond 1.2.3 on web-1, up 102.0 s, configuration 4",
            "2.00 CPUs, $0.0850 an hour ($745 a year), memory 84.0 MiB",
            "1.00 M",
            "processor grok",
            "web, last 1 minute (30.0 s so far): Processor grok limits",
            "███████████·",
            "██▒▒▒▒▒▒▒▒▒▒",
            "retrying",
            "for 12.0 s: connection refused",
            "/var/log/web.log",
            "2.0 KiB",
        ] {
            assert!(text.contains(expected), "{expected} is not in\n{text}");
        }
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }

    #[test]
    fn nothing_needs_a_large_screen_or_a_second_look() {
        let mut one = Looks::default();
        one.take(rates::tests::look(1.0, "a", 10));
        for looks in [Looks::default(), one, two_looks()] {
            let mut screen = screen(looks);
            for section in [Section::All, Section::Operators, Section::Files] {
                screen.section = section;
                for (width, height) in [(1, 1), (5, 3), (30, 8), (80, 24), (300, 100)] {
                    for shows_help in [false, true] {
                        screen.shows_help = shows_help;
                        drawn(&screen, width, height);
                    }
                }
            }
        }
    }

    #[test]
    fn long_lists_are_scrolled() {
        let mut stats = rates::tests::look(1.0, "a", 10);
        let file = stats.pipelines[0].files[0].clone();
        let file = |number: usize| component::FileLedger {
            path: format!("/log/{number:02}"),
            ..file.clone()
        };
        stats.pipelines[0].files = (0..40).map(file).collect();
        let mut looks = Looks::default();
        looks.take(stats);
        let mut top = Top {
            screen: screen(looks),
            tariff: Tariff::default(),
        };
        let drawn = |top: &Top| {
            let mut terminal = Terminal::new(TestBackend::new(80, 24)).expect("a screen");
            terminal
                .draw(|frame| top.screen.draw(frame))
                .expect("drawn");
            terminal.backend().to_string()
        };
        assert!(drawn(&top).contains("more: Tab"), "{}", drawn(&top));
        top.screen.section = Section::Files;
        let mut shows = |code: Option<KeyCode>, first: &str, rest: &[&str]| {
            if let Some(code) = code {
                assert!(!top.press(KeyEvent::from(code)));
            }
            let text = drawn(&top);
            let file = text.lines().find(|line| line.contains("/log/"));
            assert!(file.is_some_and(|line| line.contains(first)), "{text}");
            for part in rest {
                assert!(text.contains(part), "{part} is not in\n{text}");
            }
        };
        shows(None, "/log/00", &["of 40", "more"]);
        shows(Some(KeyCode::Up), "/log/00", &[]);
        shows(Some(KeyCode::Down), "/log/01", &["2-"]);
        shows(Some(KeyCode::Home), "/log/00", &["1-"]);
        shows(Some(KeyCode::End), "/log/2", &["/log/39", "-40 of 40"]);
        shows(Some(KeyCode::Down), "/log/2", &["/log/39"]);
        shows(Some(KeyCode::PageUp), "/log/0", &["of 40"]);
        shows(Some(KeyCode::PageDown), "/log/2", &["of 40"]);
        shows(Some(KeyCode::Home), "/log/00", &[]);
    }

    #[test]
    fn keys_change_what_is_shown() {
        let mut top = Top {
            screen: screen(two_looks()),
            tariff: Tariff::default(),
        };
        let press = |top: &mut Top, code| top.press(KeyEvent::from(code));
        assert!(!press(&mut top, KeyCode::Char('?')));
        assert!(drawn(&top.screen, 80, 24).contains("Keys and columns"));
        assert!(!press(&mut top, KeyCode::Esc), "it closes the help");
        press(&mut top, KeyCode::Char('w'));
        assert!(drawn(&top.screen, 80, 24).contains("it has not run as long"));
        press(&mut top, KeyCode::Down);
        assert_eq!(top.screen.selected, 0, "there is one pipeline");
        press(&mut top, KeyCode::Tab);
        press(&mut top, KeyCode::Tab);
        let text = drawn(&top.screen, 80, 24);
        assert!(
            text.contains("/var/log/web.log") && !text.contains("SHARES"),
            "{text}"
        );
        press(&mut top, KeyCode::Char(' '));
        top.take(Ok(rates::tests::look(104.0, "a", 3_000_000)));
        assert!(
            drawn(&top.screen, 80, 24).contains("up 102.0 s"),
            "it stands still"
        );
        assert!(!press(&mut top, KeyCode::Left), "it does nothing here");
        let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert!(top.press(control) && press(&mut top, KeyCode::Char('q')));
    }
}
