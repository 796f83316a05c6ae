//! Lines of an Apache access log in the combined format.
//!
//! A line is put together from six ready-made pieces, so that making it costs little more than copying it.

use super::Writer;
use super::line::{Clock, Line};
use super::random::Bits;
use super::vocabulary::Vocabulary;

/// How often a line is cut off, as happens when a disk is full or a process dies.
const CUT_EVERY: u64 = 10_000;

/// Which of them it is.
const CUT_AT: u64 = 7_777;

pub(super) struct Apache {
    bits: Bits,
    clock: Clock,
    /// `83.149.9.216 - - [`
    clients: Vec<String>,
    /// `"GET /index.html HTTP/1.1" `
    requests: Vec<String>,
    /// `200 4711 `
    results: Vec<String>,
    /// `"http://example.com/" `
    referrers: Vec<String>,
    /// `"curl/8.5.0"`
    agents: Vec<String>,
}

impl Apache {
    pub(super) fn new(seed: u64) -> Self {
        let mut bits = Bits::new(seed);
        let vocabulary = Vocabulary::new();
        let clients = vocabulary.addresses(&mut bits, 1750);
        let clients = clients
            .iter()
            .enumerate()
            .map(|(at, address)| format!("{address} - {} [", user(at)))
            .collect();
        let agents = vocabulary
            .user_agents(&mut bits, 520)
            .iter()
            .map(|agent| format!("\"{agent}\""))
            .collect();
        Self {
            clock: Clock::new(|moment| {
                format!(
                    "{}/{}/{}:{} +0000] ",
                    moment.day, moment.month, moment.year, moment.time
                )
            }),
            clients,
            requests: (0..1500).map(|_| request(&vocabulary, &mut bits)).collect(),
            results: (0..3000).map(|_| result(&mut bits)).collect(),
            referrers: (0..900)
                .map(|at| referrer(at, &vocabulary, &mut bits))
                .collect(),
            agents,
            bits,
        }
    }
}

impl Writer for Apache {
    fn write(&mut self, number: u64, line: &mut Line<'_>) {
        let bits = &mut self.bits;
        line.put(bits.popular(&self.clients));
        line.put(self.clock.at(number));
        line.put(bits.popular(&self.requests));
        line.put(bits.any(&self.results));
        line.put(bits.popular(&self.referrers));
        line.put(bits.popular(&self.agents));
        if number % CUT_EVERY == CUT_AT {
            line.halve();
        }
    }
}

/// The name that a client gives, which few do.
fn user(at: usize) -> &'static str {
    match at % 97 {
        13 => "frank",
        57 => "alice",
        _ => "-",
    }
}

fn request(vocabulary: &Vocabulary, bits: &mut Bits) -> String {
    let method = match bits.below(100) {
        0..=88 => "GET",
        89..=94 => "POST",
        95..=97 => "HEAD",
        98 => "OPTIONS",
        _ => "PUT",
    };
    let version = match bits.below(100) {
        0..=84 => "1.1",
        85..=93 => "1.0",
        _ => "2.0",
    };
    format!("\"{method} {} HTTP/{version}\" ", vocabulary.path(bits))
}

fn result(bits: &mut Bits) -> String {
    match bits.below(1000) {
        0..=44 => "304 - ".to_owned(),
        45..=60 => format!("301 {} ", 180 + bits.below(400)),
        61..=85 => format!("404 {} ", 200 + bits.below(400)),
        86..=90 => format!("206 {} ", 1 + bits.wide(20)),
        91..=93 => format!("500 {} ", 600 + bits.below(100)),
        94..=96 => format!("403 {} ", 200 + bits.below(100)),
        // Sizes of every order from bytes to megabytes.
        _ => {
            let size_bits = 4 + bits.below(18) as u32;
            format!("200 {} ", 1 + bits.wide(size_bits))
        }
    }
}

fn referrer(at: usize, vocabulary: &Vocabulary, bits: &mut Bits) -> String {
    // Among the most popular ones every second is none, which gives two of five lines without.
    if at < 300 && at.is_multiple_of(2) {
        return "\"-\" ".to_owned();
    }
    let scheme = if bits.percent(40) { "https" } else { "http" };
    format!(
        "\"{scheme}://{}{}\" ",
        bits.popular(&vocabulary.domains),
        vocabulary.path(bits)
    )
}
