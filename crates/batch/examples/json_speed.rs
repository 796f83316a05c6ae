//! Times the JSON, MessagePack and time primitives on nested events of about 700 bytes, shaped like an intrusion detection system's alerts.
//!
//! `cargo run --release -p batch --example json_speed [-- part of a measurement's name]`
#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::time::Instant;

use batch::{json, msgpack};
use datetime::rfc3339;

const EVENTS: usize = 4096;
const ROUNDS: usize = 60;

/// A small generator of numbers, so that every run sees the same events.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn pick<'a>(&mut self, among: &[&'a str]) -> &'a str {
        among[self.below(among.len() as u64) as usize]
    }
}

fn event(r: &mut Random) -> String {
    let signature = r.pick(&[
        "ET SCAN Suspicious inbound to PostgreSQL port 5432",
        "ET POLICY curl User-Agent Outbound",
        "GPL ICMP_INFO PING *NIX",
        "SURICATA STREAM ESTABLISHED packet out of window",
    ]);
    let category = r.pick(&[
        "Potentially Bad Traffic",
        "Misc activity",
        "Attempted Information Leak",
    ]);
    let http = format!(
        r#""http":{{"hostname":"{}.example.net","url":"/{}/index.php?id={}","http_user_agent":"{}","http_method":"{}","protocol":"HTTP/1.1","status":{},"length":{}}},"#,
        r.pick(&["www", "cdn", "static-assets"]),
        r.pick(&["wp-admin", "a", "downloads/2024"]),
        r.below(100_000),
        r.pick(&[
            "curl/8.5.0",
            "Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101 Firefox/115.0"
        ]),
        r.pick(&["GET", "POST"]),
        r.pick(&["200", "301", "404"]),
        r.below(1_000_000),
    );
    format!(
        r#"{{"timestamp":"2024-0{}-1{}T{:02}:{:02}:0{}.{:06}+0000","flow_id":{},"in_iface":"eth{}","event_type":"{}","src_ip":"10.{}.{}.{}","src_port":{},"dest_ip":"192.168.{}.{}","dest_port":{},"proto":"{}","alert":{{"action":"{}","gid":1,"signature_id":{},"rev":{},"signature":"{}","category":"{}","severity":{}}},{}"flow":{{"pkts_toserver":{},"pkts_toclient":{},"bytes_toserver":{},"bytes_toclient":{},"start":"2024-01-01T00:00:0{}.{:06}+0000"}},"tx_id":{}}}"#,
        1 + r.below(9),
        r.below(9),
        r.below(24),
        r.below(60),
        r.below(9),
        r.below(1_000_000),
        r.below(1 << 51),
        r.below(4),
        r.pick(&["alert", "http", "flow"]),
        r.below(256),
        r.below(256),
        r.below(256),
        r.below(65536),
        r.below(256),
        r.below(256),
        r.below(65536),
        r.pick(&["TCP", "UDP"]),
        r.pick(&["allowed", "blocked"]),
        2_000_000 + r.below(100_000),
        r.below(20),
        signature,
        category,
        1 + r.below(3),
        http,
        r.below(1000),
        r.below(100),
        r.below(100_000),
        r.below(10_000_000),
        r.below(9),
        r.below(1_000_000),
        r.below(5),
    )
}

/// Runs `work` on every event, several rounds, and prints the fastest round.
fn measure(name: &str, events: &[Vec<u8>], mut work: impl FnMut(&[u8])) {
    if std::env::args()
        .nth(1)
        .is_some_and(|part| !name.contains(&part))
    {
        return;
    }
    let bytes: usize = events.iter().map(Vec::len).sum();
    let fastest = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            events.iter().for_each(|event| work(black_box(event)));
            start.elapsed()
        })
        .min()
        .expect("there is at least one round");
    let ns = fastest.as_nanos() as f64;
    println!(
        "{name:34} {:8.1} ns/event {:8.2} GB/s",
        ns / events.len() as f64,
        bytes as f64 / ns
    );
}

fn main() {
    let mut random = Random(0x2545_F491_4F6C_DD1D);
    let events: Vec<Vec<u8>> = (0..EVENTS)
        .map(|_| event(&mut random).into_bytes())
        .collect();
    let bytes: usize = events.iter().map(Vec::len).sum();
    println!("{} bytes an event", bytes / events.len());

    measure("validate_object", &events, |e| {
        black_box(json::validate_object(e).is_ok_and(|scan| !scan.rewrite && !scan.dotted_keys));
    });
    measure("skip_value", &events, |e| {
        black_box(json::skip_value(e, 0));
    });
    measure("members, the outermost", &events, |e| {
        black_box(
            json::members(e)
                .map(|member| member.value.len())
                .sum::<usize>(),
        );
    });
    for key in [
        "timestamp",
        "event_type",
        "alert",
        "proto",
        "tx_id",
        "missing",
    ] {
        measure(&format!("find {key}"), &events, |e| {
            black_box(json::find(e, key.as_bytes()));
        });
    }
    measure("find alert, severity in it", &events, |e| {
        black_box(json::find(e, b"alert").and_then(|alert| json::find(&e[alert], b"severity")));
    });

    let mut out = Vec::with_capacity(4096);
    let clean = vec![vec![b'x'; 100]; EVENTS];
    measure("write_string, 100 clean bytes", &clean, |text| {
        out.clear();
        json::write_string(&mut out, text);
        black_box(&out);
    });
    let short = vec![b"192.168.0.1".to_vec(); EVENTS];
    measure("write_string, 11 clean bytes", &short, |text| {
        out.clear();
        json::write_string(&mut out, text);
        black_box(&out);
    });
    measure("write_string, the event", &events, |e| {
        out.clear();
        json::write_string(&mut out, e);
        black_box(&out);
    });
    measure("normalise", &events, |e| {
        out.clear();
        json::normalise(e, &mut out);
        black_box(&out);
    });

    let packed: Vec<Vec<u8>> = events.iter().map(|e| pack(e)).collect();
    measure("msgpack validate_map", &packed, |e| {
        black_box(msgpack::validate_map(e).is_ok_and(|scan| !scan.rewrite && !scan.dotted_keys));
    });
    for key in ["timestamp", "alert", "tx_id"] {
        measure(&format!("msgpack find {key}"), &packed, |e| {
            black_box(msgpack::find(e, key.as_bytes()));
        });
    }
    measure("msgpack to_json", &packed, |e| {
        out.clear();
        msgpack::to_json(e, &mut out);
        black_box(&out);
    });
    measure("msgpack from_json", &events, |e| {
        out.clear();
        msgpack::from_json(e, &mut out);
        black_box(&out);
    });
    let mut nanos = 1_700_000_000_000_000_000;
    measure("write_rfc3339, milliseconds", &events, |_| {
        out.clear();
        nanos += 1_001_000_000;
        rfc3339::write_rfc3339(&mut out, black_box(nanos));
        black_box(&out);
    });
}

fn pack(event: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    msgpack::from_json(event, &mut out);
    out
}
