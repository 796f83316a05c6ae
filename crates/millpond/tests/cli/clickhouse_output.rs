//! The `clickhouse` output against a strict double of ClickHouse's HTTP interface.

use std::collections::BTreeSet;

use serde_json::Value;
use testkit::clickhouse::ClickHouse;
use testkit::cutter::Cutter;
use testkit::http::HttpServer;

use crate::program::{Folder, run};
use crate::shipping::{apache, expect_lines, moody, with_kills};

fn messages(clickhouse: &ClickHouse, table: &str) -> Vec<String> {
    assert_eq!(clickhouse.violations(), Vec::<String>::new());
    let rows = clickhouse.rows(table);
    let text = |row: &Value| row["message"].as_str().expect("a text").to_owned();
    rows.iter().map(text).collect()
}

fn serve(clickhouse: &ClickHouse) -> HttpServer {
    let double = clickhouse.clone();
    HttpServer::start(move |taken, _| double.answer(taken))
}

#[test]
fn real_events_arrive_once_each() {
    let folder = Folder::new();
    let (log, lines) = apache(&folder, 100_000);
    for (settings, table) in [
        ("table=logs", "logs"),
        ("table=logs database=db compression=gzip", "db.logs"),
        (
            "table='logs' compression=zstd settings.async_insert=1",
            "logs",
        ),
    ] {
        let clickhouse = ClickHouse::new(&["logs", "db.logs"]);
        let server = serve(&clickhouse);
        let url = server.url();
        run(&format!("file {log} | clickhouse {url} {settings}")).expect(0);
        assert_eq!(
            expect_lines(&messages(&clickhouse, table), &lines),
            0,
            "{settings}"
        );
    }
}

#[test]
fn rows_that_do_not_fit_are_rejected_alone() {
    let folder = Folder::new();
    let (log, mut lines) = apache(&folder, 3000);
    let clickhouse = ClickHouse::new(&["logs"]);
    let server = serve(&clickhouse);
    let url = server.url();
    let done = run(&format!(
        "file {log} | set n = message.contains(\"#77 \") ? \"many\" : message.contains(\"#1999 \") ? \"many\" : 1 | clickhouse {url} table=logs"
    ));
    assert!(done.err.contains("Cannot parse input"), "{}", done.err);
    lines.retain(|line| !line.contains("#77 ") && !line.contains("#1999 "));
    assert_eq!(expect_lines(&messages(&clickhouse, "logs"), &lines), 0);
}

#[test]
fn a_missing_table_ends_a_one_line_pipeline() {
    let clickhouse = ClickHouse::new(&["logs"]);
    let server = serve(&clickhouse);
    let url = server.url();
    let done = run(&format!(
        "generate apache count=10 | clickhouse {url} table=nope"
    ));
    assert_eq!(done.code, Some(1), "{}", done.err);
    assert!(
        done.err.contains("Table nope does not exist"),
        "{}",
        done.err
    );
}

#[test]
fn cut_connections_and_moody_servers_lose_and_repeat_nothing() {
    let folder = Folder::new();
    let (log, lines) = apache(&folder, 20_000);
    for (seed, settings) in [(1, ""), (2, "compression=gzip")] {
        let clickhouse = ClickHouse::new(&["logs"]);
        let double = clickhouse.clone();
        let server = moody(0, move |taken| double.answer(taken));
        let cutter = Cutter::start(server.address(), seed, 400_000);
        let url = format!("http://{}", cutter.address());
        let batch = "batch.max_bytes=64KiB";
        run(&format!(
            "file {log} | clickhouse {url} table=logs {batch} {settings}"
        ))
        .expect(0);
        assert!(cutter.cut() > 0, "{} cuts", cutter.cut());
        // A request that is sent again has the token of the first time.
        assert_eq!(expect_lines(&messages(&clickhouse, "logs"), &lines), 0);
    }
}

#[test]
fn kills_of_both_sides_lose_nothing() {
    let folder = Folder::new();
    let (_, lines) = apache(&folder, 30_000);
    let clickhouse = ClickHouse::new(&["logs"]);
    let output = "clickhouse: { hosts: 'http://127.0.0.1:PORT', table: logs, batch: { max_events: 200, max_age: 20ms } }";
    let double = clickhouse.clone();
    let start = move |port| {
        let double = double.clone();
        HttpServer::start_at(port, None, move |taken, _| double.answer(taken))
    };
    let is_done = || {
        let messages = messages(&clickhouse, "logs");
        messages.iter().collect::<BTreeSet<_>>().len() == lines.len()
    };
    with_kills(&folder, output, start, || {}, is_done);
    let repeats = expect_lines(&messages(&clickhouse, "logs"), &lines);
    assert!(repeats < lines.len(), "only what was in flight: {repeats}");
}
