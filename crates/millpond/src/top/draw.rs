//! What `millpond top` shows: one screen, drawn from two looks at a process.

use std::cell::Cell;
use std::cmp::Reverse;
use std::time::Duration;

use component::grouped;
use pipeline::report::bytes;
use profiler::cost::Rates;
use ratatui::Frame;
use ratatui::crossterm::event::KeyCode;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, Clear, Padding, Paragraph, Row, Table, Wrap};

use super::rates::{Looks, OperatorRow, PipelineRow};
use crate::api::windows::OperatorShares;
use crate::queue::age;

/// Below this width, figures would be cut off.
pub const WIDTH_MIN: u16 = 80;

/// From this width on there is room for more columns.
const WIDE: u16 = 110;

/// Width of the bars that show how operators spent the time.
const BAR: usize = 12;

/// Hours of a year of 365 days.
const YEAR_HOURS: f64 = 8760.0;

/// What stands below the pipelines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    All,
    Operators,
    Files,
}

/// All that is shown.
pub struct Screen {
    pub looks: Looks,
    pub rates: Rates,
    /// The pipeline whose parts are shown, by its place.
    pub selected: usize,
    /// The window, by its place among 1, 5 and 15 minutes.
    pub window: usize,
    pub section: Section,
    /// Where the only list of a section begins; drawing it brings a number that is too large down.
    pub first: Cell<usize>,
    /// How many rows the list has that was drawn last and can be moved through.
    pub page: Cell<usize>,
    pub is_paused: bool,
    pub shows_help: bool,
    /// Why there is nothing new.
    pub trouble: Option<String>,
    pub interval: Duration,
}

/// What the keys do.
const KEYS: &[(&str, &str)] = &[
    ("↑ ↓", "choose: the pipeline"),
    ("w", "window: of shares and verdict: 1, 5, 15 minutes"),
    ("Tab", "below: everything, operators only, files only"),
    ("Space", "stop: stand still, go on"),
    ("?", "help: these lines"),
    ("q", "quit"),
];

/// Keys that have no room in the last line.
const OTHER_KEYS: &[(&str, &str)] = &[
    ("", "with operators only, files only: scroll"),
    ("PgUp PgDn", "as ↑ ↓, by a page; Home End: first and last"),
    ("← →", "the pipeline, whatever stands below"),
];

const COLUMNS: &[(&str, &str)] = &[
    ("IN/S OUT/S", "events a second, between the last two looks"),
    ("CPU", "CPUs used, all threads together"),
    ("NS/EVENT", "CPU time for each event, in nanoseconds"),
    ("SHARES", "█ at work  ▒ waiting for what comes behind it"),
    ("", "· waiting for events"),
    ("QUEUE", "events that some output has not taken yet"),
    ("OLDEST", "how long the oldest of them has been there"),
    ("LAG BEHIND", "unread bytes of a file; since when"),
];

impl Screen {
    /// Draws it.
    pub fn draw(&self, frame: &mut Frame<'_>) {
        let area = frame.area();
        if area.width < WIDTH_MIN {
            let text = format!(
                "{WIDTH_MIN} columns are needed, and there are {}; q quits",
                area.width
            );
            frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), area);
            return;
        }
        let pipelines = self.looks.pipelines(self.window);
        let trouble = u16::from(self.trouble.is_some());
        let [head, trouble, body, foot] = Layout::vertical([
            Constraint::Length(2),
            Constraint::Length(trouble),
            Constraint::Min(0),
            Constraint::Length(1),
        ])
        .areas(area);
        self.head(frame, head);
        if let Some(text) = &self.trouble {
            frame.render_widget(Paragraph::new(text.as_str()).style(BAD), trouble);
        }
        let more = self.body(frame, body, &pipelines);
        self.foot(frame, foot, more.as_deref());
        if self.shows_help {
            help(frame, area);
        }
    }

    /// Chooses the pipeline at this place, or the last one.
    pub fn choose(&mut self, place: usize) {
        let pipelines = self.looks.last().map_or(0, |stats| stats.pipelines.len());
        self.selected = place.min(pipelines.saturating_sub(1));
        self.first.set(0);
    }

    /// Moves through the pipelines, or through the only list of a section.
    pub fn scroll(&mut self, key: KeyCode) {
        let (is_all, page) = (self.section == Section::All, self.page.get());
        let place = match is_all {
            true => self.selected,
            false => self.first.get(),
        };
        let place = match key {
            KeyCode::Up | KeyCode::Char('k') => place.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => place + 1,
            KeyCode::PageUp => place.saturating_sub(page),
            KeyCode::PageDown => place + page,
            KeyCode::Home => 0,
            // Drawing makes it the last one that leaves no room empty.
            KeyCode::End => usize::MAX / 2,
            _ => return,
        };
        match is_all {
            true => self.choose(place),
            false => self.first.set(place),
        }
    }

    fn head(&self, frame: &mut Frame<'_>, area: Rect) {
        let Some(stats) = self.looks.last() else {
            return;
        };
        let status = match stats.status.as_str() {
            "running" => String::new(),
            other => format!(", {other}"),
        };
        let first = format!(
            "Millpond {} on {}, up {}, configuration {}{status}",
            stats.version,
            stats.host,
            age(Some(stats.uptime_seconds)),
            stats.configuration.number,
        );
        let cpus = self.looks.cpus();
        let usd = cpus.map(|cpus| cpus * self.rates.usd_per_core_hour);
        let cost = usd.map_or_else(String::new, |usd| {
            format!(
                ", {} an hour ({} a year)",
                dollars(usd),
                dollars(usd * YEAR_HOURS)
            )
        });
        let second = format!(
            "{} CPUs{cost}, memory {}, {} open files",
            number(cpus, 2),
            bytes(stats.process.resident_memory_bytes),
            grouped(stats.process.open_files),
        );
        let first = Line::styled(first, STRONG);
        let left = usize::from(area.width).saturating_sub(first.width());
        let lines = vec![first, Line::raw(second)];
        frame.render_widget(Paragraph::new(lines), area);
        let interval = format!("every {}", age(Some(self.interval.as_secs_f64())));
        let right = if self.is_paused {
            "standing still".to_owned()
        } else {
            interval
        };
        if right.len() < left {
            frame.render_widget(Paragraph::new(right).alignment(Alignment::Right), area);
        }
    }

    /// The keys, and what is not on the screen.
    fn foot(&self, frame: &mut Frame<'_>, area: Rect, more: Option<&str>) {
        let keys = KEYS.iter().map(|(key, what)| {
            let short = what.split(':').next().unwrap_or(what);
            vec![
                Span::styled((*key).to_owned(), STRONG),
                Span::raw(format!(" {short}  ")),
            ]
        });
        let keys = Line::from(keys.flatten().collect::<Vec<_>>());
        let left = usize::from(area.width).saturating_sub(keys.width());
        frame.render_widget(Paragraph::new(keys), area);
        if let Some(more) = more.filter(|more| more.chars().count() <= left) {
            let more = Paragraph::new(more).style(CHOSEN);
            frame.render_widget(more.alignment(Alignment::Right), area);
        }
    }

    /// Draws what stands between head and foot; says where there is more than there is room for.
    fn body(
        &self,
        frame: &mut Frame<'_>,
        area: Rect,
        pipelines: &[PipelineRow<'_>],
    ) -> Option<String> {
        let selected = self.selected.min(pipelines.len().saturating_sub(1));
        let Some(chosen) = pipelines.get(selected) else {
            let text = "no pipelines";
            frame.render_widget(Paragraph::new(text), area);
            return None;
        };
        let verdict = self.verdict(chosen);
        let verdict_rows = rows_of(&verdict, area.width).clamp(1, 6);
        let heights = Heights::of(
            area.height,
            verdict_rows as u16,
            chosen,
            pipelines.len(),
            self.section,
        );
        let [top, text, operators, outputs, files] = Layout::vertical([
            Constraint::Length(heights.pipelines),
            Constraint::Length(heights.verdict),
            Constraint::Length(heights.operators),
            Constraint::Length(heights.outputs),
            Constraint::Min(0),
        ])
        .areas(area);
        let is_wide = area.width >= WIDE;
        let table = self.pipelines_table(pipelines, selected, top.height, is_wide);
        frame.render_widget(table, top);
        frame.render_widget(Paragraph::new(verdict).wrap(Wrap { trim: true }), text);
        let first = match self.section {
            Section::All => 0,
            Section::Operators | Section::Files => self.first.get(),
        };
        let stats = chosen.stats;
        let of_operators = Excerpt::of(chosen.operators.len(), operators.height, first);
        let of_outputs = Excerpt::of(stats.outputs.len(), outputs.height, 0);
        let of_files = Excerpt::of(stats.files.len(), files.height, first);
        if operators.height > 1 {
            let table = operators_table(chosen, is_wide, of_operators);
            frame.render_widget(table, operators);
        }
        if outputs.height > 1 {
            frame.render_widget(outputs_table(chosen, of_outputs), outputs);
        }
        if files.height > 1 && !stats.files.is_empty() {
            frame.render_widget(files_table(chosen, of_files), files);
        }
        let of_pipelines = Excerpt::of(pipelines.len(), top.height, 0);
        self.more(selected, of_pipelines, [of_operators, of_outputs, of_files])
    }

    /// Says where there is more than is shown of the pipelines, or of operators, outputs and files; remembers what can be moved through.
    fn more(
        &self,
        selected: usize,
        pipelines: Excerpt,
        [operators, outputs, files]: [Excerpt; 3],
    ) -> Option<String> {
        let is_cut = |it: Excerpt| it.count < it.all;
        let list = match self.section {
            Section::Operators => operators,
            Section::Files => files,
            Section::All => {
                self.page.set(pipelines.count.max(1));
                let is_below = [operators, outputs, files].into_iter().any(is_cut);
                return if is_cut(pipelines) {
                    Some(format!("pipeline {} of {}", selected + 1, pipelines.all))
                } else {
                    is_below.then(|| "more: Tab".to_owned())
                };
            }
        };
        self.first.set(list.first);
        self.page.set(list.count.max(1));
        let (from, to) = (list.first + 1, list.first + list.count);
        is_cut(list).then(|| format!("{from}-{to} of {}", list.all))
    }

    fn verdict(&self, pipeline: &PipelineRow<'_>) -> Line<'static> {
        let name = &pipeline.stats.name;
        let Some(window) = pipeline.window else {
            let is_short = pipeline.stats.windows.is_empty();
            let text = match is_short {
                true => "what limits it is known after some seconds",
                false => "it has not run as long",
            };
            return Line::raw(format!("{name}: {text}"));
        };
        let minutes = component::plural(window.seconds / 60, "minute");
        let so_far = match window.wall_seconds + 1.0 < window.seconds as f64 {
            true => format!(" ({} so far)", age(Some(window.wall_seconds))),
            false => String::new(),
        };
        Line::from(vec![
            Span::styled(format!("{name}, last {minutes}{so_far}: "), STRONG),
            Span::raw(window.verdict.clone()),
        ])
    }

    fn pipelines_table(
        &self,
        pipelines: &[PipelineRow<'_>],
        selected: usize,
        height: u16,
        is_wide: bool,
    ) -> Table<'static> {
        let room = usize::from(height.saturating_sub(1)).max(1);
        let first = (selected + 1).saturating_sub(room);
        let shown = pipelines.iter().enumerate().skip(first);
        let rows = shown.take(room).map(|(place, pipeline)| {
            let row = self.pipeline_row(pipeline, is_wide);
            let is_chosen = place == selected && pipelines.len() > 1;
            row.style(if is_chosen { CHOSEN } else { Style::new() })
        });
        let mut columns = vec![
            ("PIPELINE", Constraint::Min(10)),
            ("STATE", Constraint::Length(8)),
            (" IN/S", Constraint::Length(9)),
            (" OUT/S", Constraint::Length(9)),
            (" CPU", Constraint::Length(6)),
            (" QUEUE", Constraint::Length(10)),
            (" OLDEST", Constraint::Length(8)),
        ];
        if is_wide {
            columns.push((" ON DISK", Constraint::Length(9)));
            columns.push((" USD/HOUR", Constraint::Length(8)));
        }
        columns.push(("LIMITED BY", Constraint::Min(14)));
        let rows: Vec<Row<'_>> = rows.collect();
        let all = Excerpt::of(rows.len(), u16::MAX, 0);
        table(rows, &columns, all)
    }

    fn pipeline_row(&self, pipeline: &PipelineRow<'_>, is_wide: bool) -> Row<'static> {
        let PipelineRow { stats, speed, .. } = pipeline;
        let (queue, oldest) = (&stats.queue, stats.queue.oldest_age_seconds);
        let limits = pipeline.window.and_then(|window| window.limits.as_ref());
        let mut cells = vec![
            Text::raw(stats.name.clone()),
            Text::styled(stats.state.clone(), state_style(&stats.state)),
            figure(rate(speed.events_in)),
            figure(rate(speed.events_out)),
            figure(number(speed.cpus, 2)),
            figure(short(queue.events)).style(if queue.is_paused { BAD } else { Style::new() }),
            figure(age(oldest)),
        ];
        if is_wide {
            let usd = speed.cpus.map(|cpus| cpus * self.rates.usd_per_core_hour);
            cells.push(figure(bytes(queue.disk_bytes)));
            cells.push(figure(number(usd, 4)));
        }
        cells.push(Text::raw(match (queue.is_paused, limits) {
            (true, _) => "the queue cannot store".to_owned(),
            (false, Some(limits)) => format!("{} {}", limits.role, limits.name),
            (false, None) => "-".to_owned(),
        }));
        Row::new(cells)
    }
}

/// How many rows a line takes that is wrapped at words.
fn rows_of(line: &Line<'_>, width: u16) -> usize {
    let text: String = line
        .spans
        .iter()
        .map(|span| span.content.as_ref())
        .collect();
    let width = usize::from(width).max(1);
    let (mut rows, mut used) = (1, 0);
    for word in text.split_whitespace() {
        let len = word.chars().count();
        if used > 0 && used + 1 + len > width {
            rows += 1;
            used = 0;
        }
        used += len + usize::from(used > 0);
    }
    rows
}

/// How many rows each part has, its heading included.
struct Heights {
    pipelines: u16,
    verdict: u16,
    operators: u16,
    outputs: u16,
}

impl Heights {
    fn of(
        height: u16,
        verdict: u16,
        chosen: &PipelineRow<'_>,
        pipelines: usize,
        section: Section,
    ) -> Self {
        let rows = |count: usize| count.min(usize::from(u16::MAX) - 1) as u16 + 1;
        let pipelines = rows(pipelines).min((height / 4).max(2));
        let left = height.saturating_sub(pipelines + verdict);
        let outputs = match section {
            Section::All => rows(chosen.stats.outputs.len()).min((left / 4).max(2)),
            _ => 0,
        };
        let operators = match section {
            Section::Files => 0,
            _ => rows(chosen.operators.len()).min(left.saturating_sub(outputs)),
        };
        Self {
            pipelines,
            verdict,
            operators,
            outputs,
        }
    }
}

/// Which rows of a list are shown.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Excerpt {
    first: usize,
    count: usize,
    all: usize,
}

impl Excerpt {
    /// Of so many rows, from about `first` on, below a heading. If there are more behind them, a line has room that says so.
    fn of(all: usize, height: u16, first: usize) -> Self {
        let room = usize::from(height.saturating_sub(1)).max(1);
        let last = all.saturating_sub(room);
        let first = first.min(last);
        let count = match first == last {
            true => room.min(all),
            false => room - 1,
        };
        Self { first, count, all }
    }
}

fn operators_table(pipeline: &PipelineRow<'_>, is_wide: bool, shown: Excerpt) -> Table<'static> {
    let rows = pipeline
        .operators
        .iter()
        .map(|it| operator_row(it, is_wide));
    let mut columns = vec![
        ("OPERATOR", Constraint::Min(14)),
        (" IN/S", Constraint::Length(9)),
        (" OUT/S", Constraint::Length(9)),
        (" CPU", Constraint::Length(6)),
        (" NS/EVENT", Constraint::Length(8)),
        ("SHARES", Constraint::Length(BAR as u16)),
        (" FAILED", Constraint::Length(7)),
        (" DROPPED", Constraint::Length(7)),
    ];
    if is_wide {
        columns.push((" DEAD LETTERS", Constraint::Length(12)));
        columns.push((" BYTES/S", Constraint::Length(10)));
    }
    table(rows, &columns, shown)
}

fn operator_row(operator: &OperatorRow<'_>, is_wide: bool) -> Row<'static> {
    let OperatorRow {
        stats,
        speed,
        shares,
    } = operator;
    let mut cells = vec![
        Text::raw(format!("{} {}", stats.role, stats.name)),
        figure(rate(speed.events_in)),
        figure(rate(speed.events_out)),
        figure(number(speed.cpus, 2)),
        figure(rate(speed.nanoseconds_per_event())),
        shares.map_or_else(|| Text::raw(""), bar),
        trouble(stats.failures),
        figure(short(stats.dropped)),
    ];
    if is_wide {
        let rate = speed.bytes.map(|rate| bytes(rate as u64));
        cells.push(trouble(stats.dead_letters));
        cells.push(figure(rate.unwrap_or_else(|| "-".to_owned())));
    }
    Row::new(cells)
}

/// How an operator spent the time.
fn bar(shares: &OperatorShares) -> Text<'static> {
    let cells = |share: f64| (share * BAR as f64).round() as usize;
    let busy = cells(shares.busy_share).min(BAR);
    let output = cells(shares.waiting_for_output_share).min(BAR - busy);
    Text::from(Line::from(vec![
        Span::styled("█".repeat(busy), Color::Green),
        Span::styled("▒".repeat(output), Color::Yellow),
        Span::styled("·".repeat(BAR - busy - output), Modifier::DIM),
    ]))
}

fn outputs_table(pipeline: &PipelineRow<'_>, shown: Excerpt) -> Table<'static> {
    // What fails is not among those for which there is no room.
    let is_well = |state: &str| matches!(state, "working" | "ended");
    let mut outputs: Vec<_> = pipeline.stats.outputs.iter().collect();
    outputs.sort_by_key(|output| is_well(&output.state));
    let rows = outputs.into_iter().map(|output| {
        let since = output
            .failing_seconds
            .map(|seconds| format!("for {}: ", age(Some(seconds))));
        let reason = output.reason.clone().unwrap_or_default();
        Row::new(vec![
            Text::raw(output.name.clone()),
            Text::styled(output.state.clone(), state_style(&output.state)),
            figure(short(output.requests_in_flight)),
            figure(short(output.requests_waiting)),
            Text::raw(since.unwrap_or_default() + &reason),
        ])
    });
    let names = pipeline.stats.outputs.iter();
    let longest = names.map(|it| it.name.chars().count()).max();
    let width = longest.unwrap_or(0).clamp("OUTPUT".len(), 24) as u16;
    let columns = [
        ("OUTPUT", Constraint::Length(width)),
        ("STATE", Constraint::Length(8)),
        (" IN FLIGHT", Constraint::Length(9)),
        (" WAITING", Constraint::Length(7)),
        ("FAILING", Constraint::Min(20)),
    ];
    table(rows, &columns, shown)
}

fn files_table(pipeline: &PipelineRow<'_>, shown: Excerpt) -> Table<'static> {
    let mut files: Vec<_> = pipeline.stats.files.iter().collect();
    files.sort_by_key(|file| Reverse(file.lag_bytes + file.in_flight_bytes));
    let rows = files.into_iter().map(|file| {
        let behind = Some(file.lag_seconds as f64).filter(|seconds| *seconds > 0.0);
        Row::new(vec![
            Text::raw(file.path.clone()),
            Text::raw(file.state.to_string()),
            figure(bytes(file.size)),
            figure(bytes(file.lag_bytes)),
            figure(age(behind)),
        ])
    });
    let columns = [
        ("FILE", Constraint::Min(20)),
        ("STATE", Constraint::Length(6)),
        (" SIZE", Constraint::Length(10)),
        (" LAG", Constraint::Length(10)),
        (" BEHIND", Constraint::Length(8)),
    ];
    table(rows, &columns, shown)
}

/// A table under a heading. Names of columns that begin with a space are those of figures.
fn table(
    rows: impl IntoIterator<Item = Row<'static>>,
    columns: &[(&'static str, Constraint)],
    shown: Excerpt,
) -> Table<'static> {
    let rows = rows.into_iter().skip(shown.first).take(shown.count);
    let more = match shown.all - shown.first - shown.count {
        0 => None,
        more => Some(Row::new([Text::raw(format!("… {more} more"))])),
    };
    let rows = rows.chain(more);
    let heading = columns
        .iter()
        .map(|(name, _)| match name.strip_prefix(' ') {
            Some(name) => Text::raw(name).alignment(Alignment::Right),
            None => Text::raw(*name),
        });
    let widths = columns.iter().map(|(_, width)| *width);
    Table::new(rows, widths).header(Row::new(heading).style(HEADING))
}

fn help(frame: &mut Frame<'_>, area: Rect) {
    let width = 64.min(area.width);
    let lines = KEYS.len() + OTHER_KEYS.len() + COLUMNS.len();
    let height = (lines as u16 + 3).min(area.height);
    let place = Rect {
        x: (area.width - width) / 2,
        y: (area.height - height) / 2,
        width,
        height,
    };
    let line = |(name, what): &(&'static str, &'static str)| {
        Line::from(vec![
            Span::styled(format!("{name:<11}"), STRONG),
            Span::raw(*what),
        ])
    };
    let keys = KEYS[..1].iter().chain(OTHER_KEYS).chain(&KEYS[1..]);
    let lines = keys
        .map(line)
        .chain([Line::raw("")])
        .chain(COLUMNS.iter().map(line));
    let block = Block::bordered()
        .title(" Keys and columns ")
        .padding(Padding::horizontal(1));
    frame.render_widget(Clear, place);
    frame.render_widget(
        Paragraph::new(lines.collect::<Vec<_>>()).block(block),
        place,
    );
}

const STRONG: Style = Style::new().add_modifier(Modifier::BOLD);
const HEADING: Style = Style::new().add_modifier(Modifier::REVERSED);
const CHOSEN: Style = Style::new()
    .add_modifier(Modifier::BOLD)
    .bg(Color::DarkGray);
const BAD: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);

fn state_style(state: &str) -> Style {
    match state {
        "failed" => BAD,
        "retrying" | "paused" | "stopping" => Style::new().fg(Color::Yellow),
        "running" | "working" => Style::new().fg(Color::Green),
        _ => Style::new(),
    }
}

fn figure(text: String) -> Text<'static> {
    Text::raw(text).alignment(Alignment::Right)
}

/// A count of what should be none.
fn trouble(count: u64) -> Text<'static> {
    figure(short(count)).style(if count > 0 { BAD } else { Style::new() })
}

fn number(number: Option<f64>, decimals: usize) -> String {
    number.map_or_else(|| "-".to_owned(), |number| format!("{number:.decimals$}"))
}

fn rate(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".to_owned(), |rate| short(rate.round() as u64))
}

/// A count of at most seven characters: what is cut off would be its first digits.
fn short(count: u64) -> String {
    if count < 1_000_000 {
        return grouped(count);
    }
    let mut value = count as f64 / 1e6;
    let mut units = ["M", "G", "T", "P", "E"].iter();
    let mut unit = units.next();
    while value >= 999.5 {
        value /= 1e3;
        unit = units.next();
    }
    let decimals = match value {
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {}", unit.unwrap_or(&""))
}

fn dollars(usd: f64) -> String {
    match usd {
        usd if usd >= 100.0 => format!("${}", grouped(usd.round() as u64)),
        usd if usd >= 1.0 => format!("${usd:.2}"),
        usd => format!("${usd:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_counts_lose_no_digits_of_weight() {
        for (count, expected) in [
            (0, "0"),
            (999_999, "999,999"),
            (1_000_000, "1.00 M"),
            (2_383_811, "2.38 M"),
            (9_995_000, "10.0 M"),
            (99_950_000, "100 M"),
            (999_499_999, "999 M"),
            (999_600_000, "1.00 G"),
            (u64::MAX, "18.4 E"),
        ] {
            assert_eq!(short(count), expected);
            assert!(short(count).len() <= 7);
        }
    }

    #[test]
    fn an_excerpt_ends_with_the_last_row() {
        for (all, height, first, expected) in [
            (3, 4, 9, (0, 3)),
            (10, 5, 0, (0, 3)),
            (10, 5, 5, (5, 3)),
            (10, 5, 6, (6, 4)),
            (10, 5, usize::MAX, (6, 4)),
            (2, 0, 0, (0, 0)),
            (0, 5, 1, (0, 0)),
        ] {
            let found = Excerpt::of(all, height, first);
            assert_eq!(
                (found.first, found.count),
                expected,
                "{all} {height} {first}"
            );
        }
    }

    #[test]
    fn rows_are_counted_as_they_are_wrapped() {
        for (text, width, rows) in [
            ("", 10, 1),
            ("one two", 7, 1),
            ("one two", 6, 2),
            ("aaaa bbbb cccc", 9, 2),
            ("aaaaaa bbbbbb cccccc", 10, 3),
        ] {
            assert_eq!(rows_of(&Line::raw(text), width), rows, "{text:?}");
        }
    }
}
