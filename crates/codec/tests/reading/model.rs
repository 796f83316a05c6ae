//! What the events of a content are, written as simply as possible.

use codec::{ContainerFormat, Match, MultilineConfig, Settings};
use encoding_rs::{Encoding, UTF_16BE, UTF_16LE};
use regex::bytes::Regex;

use crate::reading::Event;

#[derive(Clone)]
struct Line {
    start: u64,
    source: u64,
    text: Vec<u8>,
    is_cut: bool,
}

#[derive(Default)]
struct Lane {
    /// Parts of a line, and lines of a record, each with how many lines.
    line: Option<Record>,
    record: Option<Record>,
}

struct Record {
    line: Line,
    lines: usize,
    stream: &'static str,
    time: String,
    tag: &'static str,
}

/// The events of lines of text.
pub fn events(
    content: &[u8],
    settings: &Settings,
    multiline: Option<&MultilineConfig>,
) -> Vec<Event> {
    let multiline = multiline.map(|config| (config, settings.record_max));
    let mut records = Vec::new();
    let mut lanes = [Lane::default(), Lane::default()];
    for line in lines(content, settings) {
        let record = |line, stream, time, tag| Record {
            line,
            lines: 1,
            stream,
            time,
            tag,
        };
        let Some(format) = settings.container else {
            add(
                &mut lanes[0],
                record(line, "", String::new(), ""),
                multiline,
                &mut records,
            );
            continue;
        };
        match container(format, &line.text) {
            None => {
                let line = Line {
                    text: without_return(&line.text),
                    ..line
                };
                records.push(record(line, "", String::new(), "_containerparsefailure"));
            }
            Some((stream, time, text, is_partial)) => {
                let lane = &mut lanes[usize::from(stream == "stderr")];
                let line = Line { text, ..line };
                let mut whole = match lane.line.take() {
                    None => record(line, stream, time, ""),
                    Some(mut held) => {
                        held.line.text.extend_from_slice(&line.text);
                        held.line.source += line.source;
                        held.line.is_cut |= line.is_cut;
                        held
                    }
                };
                if is_partial {
                    lane.line = Some(whole);
                } else {
                    whole.line.text = without_return(&whole.line.text);
                    add(lane, whole, multiline, &mut records);
                }
            }
        }
    }
    flush(&mut lanes, multiline, &mut records);
    records
        .into_iter()
        .filter_map(|record| event(record, settings))
        .collect()
}

/// Adds what waits for more.
fn flush(
    lanes: &mut [Lane; 2],
    multiline: Option<(&MultilineConfig, usize)>,
    records: &mut Vec<Record>,
) {
    lanes.sort_by_key(|lane| {
        lane.record
            .as_ref()
            .or(lane.line.as_ref())
            .map(|held| held.line.start)
    });
    for lane in lanes {
        if let Some(mut line) = lane.line.take() {
            line.line.text = without_return(&line.line.text);
            add(lane, line, multiline, records);
        }
        records.extend(lane.record.take());
    }
}

fn without_return(text: &[u8]) -> Vec<u8> {
    text.strip_suffix(b"\r").unwrap_or(text).to_vec()
}

/// Adds a whole line to the record that is open, or begins one.
fn add(
    lane: &mut Lane,
    line: Record,
    multiline: Option<(&MultilineConfig, usize)>,
    records: &mut Vec<Record>,
) {
    let Some((config, record_max)) = multiline else {
        records.push(line);
        return;
    };
    let matches = |pattern: &Option<String>| {
        let pattern = Regex::new(pattern.as_deref().expect("it is set")).expect("a pattern");
        pattern.is_match(&line.line.text[..line.line.text.len().min(record_max)])
    };
    let is_open = lane.record.is_some();
    let (begins, ends) = if config.pattern.is_some() {
        let goes_on = matches(&config.pattern) ^ config.negate;
        match config.matching {
            Some(Match::Before) => (false, !goes_on),
            _ => (!goes_on, false),
        }
    } else if config.end.is_some() {
        let starts = matches(&config.start);
        (starts, (!starts && !is_open) || matches(&config.end))
    } else {
        (matches(&config.start), false)
    };
    if begins {
        records.extend(lane.record.take());
    }
    match &mut lane.record {
        None => lane.record = Some(line),
        Some(record) => {
            record.lines += 1;
            record.line.source += line.line.source;
            record.line.is_cut |= line.line.is_cut;
            if record.lines > config.max_lines {
                record.line.is_cut = true;
            } else {
                record.line.text.push(b'\n');
                record.line.text.extend_from_slice(&line.line.text);
            }
        }
    }
    if ends {
        records.extend(lane.record.take());
    }
}

/// The event of a record, unless it is filtered out.
fn event(record: Record, settings: &Settings) -> Option<Event> {
    let Line {
        start,
        source,
        mut text,
        mut is_cut,
    } = record.line;
    let record_max = settings.record_max;
    if text.len() > record_max {
        is_cut = true;
        let whole = (record_max.saturating_sub(3)..=record_max)
            .rev()
            .find(|at| text[*at] & 0xC0 != 0x80);
        text.truncate(whole.unwrap_or(record_max));
    }
    let text = String::from_utf8_lossy(&text).into_owned();
    let passes = |set: &Option<regex::bytes::RegexSet>, empty| {
        set.as_ref()
            .filter(|set| !set.is_empty())
            .map_or(empty, |set| set.is_match(text.as_bytes()))
    };
    if !passes(&settings.include_lines, true) || passes(&settings.exclude_lines, false) {
        return None;
    }
    let mut tags = Vec::new();
    if is_cut {
        tags.push("_truncated");
    }
    if !record.tag.is_empty() {
        tags.push("_containerparsefailure");
    }
    tags.sort_unstable();
    let tags = tags.join(",");
    let (stream, time) = (record.stream.to_owned(), record.time);
    Some(Event {
        text,
        start,
        end: start + source,
        tags,
        stream,
        time,
    })
}

/// The lines of a content, decoded.
fn lines(content: &[u8], settings: &Settings) -> Vec<Line> {
    let charset = charset(content, settings);
    let is_wide = charset == Some(UTF_16LE) || charset == Some(UTF_16BE);
    let unit = |character: u8| match charset {
        Some(set) if set == UTF_16LE => vec![character, 0],
        Some(set) if set == UTF_16BE => vec![0, character],
        _ => vec![character],
    };
    let terminator = unit(match settings.line_ending {
        codec::LineEnding::Lf => b'\n',
        codec::LineEnding::Cr => b'\r',
        codec::LineEnding::Nul => 0,
    });
    let mark = match charset {
        None => &b"\xEF\xBB\xBF"[..],
        Some(set) if set == UTF_16LE => b"\xFF\xFE",
        Some(set) if set == UTF_16BE => b"\xFE\xFF",
        Some(_) => b"",
    };
    let step = if is_wide { 2 } else { 1 };
    let mut lines = Vec::new();
    let mut start = if content.starts_with(mark) {
        mark.len()
    } else {
        0
    };
    while start < content.len() {
        let end = (start..content.len())
            .step_by(step)
            .find(|at| content[*at..].starts_with(&terminator));
        let mut text = &content[start..end.unwrap_or(content.len())];
        if end.is_some()
            && settings.container.is_none()
            && settings.line_ending == codec::LineEnding::Lf
        {
            text = text.strip_suffix(&unit(b'\r')[..]).unwrap_or(text);
        }
        let line_max = settings.record_max * if settings.container.is_some() { 2 } else { 1 }
            + if settings.container.is_some() {
                65_536
            } else {
                0
            };
        let is_cut = text.len() > line_max;
        let decoded = match charset {
            None => text[..text.len().min(line_max + 1)].to_vec(),
            Some(set) => {
                let kept = if is_cut { &text[..line_max & !1] } else { text };
                let mut decoder = set.new_decoder_without_bom_handling();
                let mut out = String::with_capacity(4 * kept.len() + 16);
                let _ = decoder.decode_to_string(kept, &mut out, !is_cut);
                out.into_bytes()
            }
        };
        let next = end.map_or(content.len(), |end| end + terminator.len());
        lines.push(Line {
            start: start as u64,
            source: (next - start) as u64,
            text: decoded,
            is_cut,
        });
        start = next;
    }
    lines
}

fn charset(content: &[u8], settings: &Settings) -> Option<&'static Encoding> {
    let set = settings.charset?;
    if set != UTF_16LE && set != UTF_16BE {
        return Some(set);
    }
    Some(match content {
        [0xFF, 0xFE, ..] => UTF_16LE,
        [0xFE, 0xFF, ..] => UTF_16BE,
        _ => set,
    })
}

/// Stream, time, text, and whether the line goes on.
fn container(
    format: ContainerFormat,
    line: &[u8],
) -> Option<(&'static str, String, Vec<u8>, bool)> {
    let stream = |name: &str| {
        ["stdout", "stderr"]
            .into_iter()
            .find(|known| *known == name)
    };
    let is_docker = line.first() == Some(&b'{');
    if is_docker && format != ContainerFormat::Cri {
        let object: serde_json::Value = serde_json::from_slice(line).ok()?;
        let text = object["log"].as_str()?;
        let whole = text.strip_suffix('\n');
        let bytes = whole.unwrap_or(text).as_bytes().to_vec();
        return Some((
            stream(object["stream"].as_str()?)?,
            object["time"].as_str()?.to_owned(),
            bytes,
            whole.is_none(),
        ));
    }
    let mut parts = line.splitn(4, |byte| *byte == b' ');
    let [time, name, tags] = [parts.next()?, parts.next()?, parts.next()?];
    let is_partial = match tags {
        b"P" => true,
        b"F" => false,
        _ => return None,
    };
    let time = std::str::from_utf8(time)
        .ok()
        .filter(|time| time.ends_with('Z'))?;
    let name = stream(std::str::from_utf8(name).ok()?)?;
    Some((
        name,
        time.to_owned(),
        parts.next().unwrap_or_default().to_vec(),
        is_partial,
    ))
}
