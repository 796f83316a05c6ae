//! Whole lookups, over files.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;
use testkit::mmdb::write_database;

use super::plan::{KeyColumns, Plan, TableFormat};
use super::table::FoundRows;
use super::watched::WatchedTable;
use super::*;
use crate::testing::{batch_of, build, build_error, lines_of, numbers, process, run};

/// A folder with one file.
fn file(name: &str, bytes: impl AsRef<[u8]>) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join(name);
    fs::write(&path, bytes).expect("a file");
    (folder, path)
}

/// What a stage with the table at `path` makes of events.
fn looked_up(stage: &str, path: &Path, input: &str) -> Vec<String> {
    run(&SPEC, &with_table(stage, path), input)
}

fn with_table(stage: &str, path: &Path) -> String {
    format!("{stage} table='{}'", path.display())
}

/// The reason for which a table is refused.
fn refused(stage: &str, name: &str, bytes: impl AsRef<[u8]>) -> String {
    let (_folder, path) = file(name, bytes);
    let message = build_error(&SPEC, &with_table(stage, &path));
    match message.split_once(&format!("cannot use the table `{}`: ", path.display())) {
        Some((_, reason)) => reason.to_owned(),
        None => message,
    }
}

const HOSTS: &str = "\u{feff}ip,name,owner\r\n10.0.0.1,web-1,shop\r\n\r\n10.0.0.2,\"db, \"\"main\"\"\n2\",\r\n7,seven,x";

#[test]
fn rows_of_csv_are_found_by_their_keys() {
    let (_folder, path) = file("hosts.csv", HOSTS);
    for (stage, event, expected) in [
        (
            "lookup a key=ip",
            r#"{"a":"10.0.0.1"}"#,
            r#"{"a":"10.0.0.1","name":"web-1","owner":"shop"}"#,
        ),
        (
            "lookup a key=ip",
            r#"{"a":"10.0.0.2","owner":"old"}"#,
            r#"{"a":"10.0.0.2","owner":"old","name":"db, \"main\"\n2"}"#,
        ),
        (
            "lookup ip",
            r#"{"ip":7}"#,
            r#"{"ip":7,"name":"seven","owner":"x"}"#,
        ),
        (
            "lookup a key=ip",
            r#"{"a":["7",8]}"#,
            r#"{"a":["7",8],"name":"seven","owner":"x"}"#,
        ),
        (
            "lookup a key=ip",
            r#"{"a":"10.0.0.3"}"#,
            r#"{"a":"10.0.0.3"}"#,
        ),
        (
            "lookup a key=ip tag=t",
            r#"{"a":"1"}"#,
            r#"{"a":"1","tags":["t"]}"#,
        ),
        ("lookup a key=ip tag=t", r#"{"a":null}"#, r#"{"a":null}"#),
        ("lookup a key=ip tag=t", r#"{"b":1}"#, r#"{"b":1}"#),
        (
            "lookup a key=ip target=h columns=[owner, 'ip -> x.ip']",
            r#"{"a":"7","h":{"x":{"z":1}}}"#,
            r#"{"a":"7","h":{"x":{"z":1,"ip":"7"},"owner":"x"}}"#,
        ),
        (
            "lookup a key=[ip] columns=[owner] default.owner=none",
            r#"{"a":"10.0.0.2"}"#,
            r#"{"a":"10.0.0.2","owner":"none"}"#,
        ),
        (
            "lookup a key=ip default.owner=[1] default.name=7 target=t",
            r#"{"a":""}"#,
            r#"{"a":"","t":{"name":7,"owner":[1]}}"#,
        ),
        (
            "lookup a key=ip target=a",
            r#"{"a":"7"}"#,
            r#"{"a":"7","tags":["_lookupfailure"],"error":{"message":"cannot write a.name: there is a value above it that is not an object"}}"#,
        ),
    ] {
        assert_eq!(
            looked_up(stage, &path, event),
            [expected],
            "{stage} on {event}"
        );
    }
}

#[test]
fn a_key_may_have_several_columns() {
    let (_folder, path) = file("t.tsv", "u\th\tn.m\na\tbc\t1\nab\tc\t2\n");
    for (event, expected) in [
        (
            r#"{"u":"a","h":"bc"}"#,
            r#"{"u":"a","h":"bc","n":{"m":"1"}}"#,
        ),
        (
            r#"{"u":"ab","h":"c"}"#,
            r#"{"u":"ab","h":"c","n":{"m":"2"}}"#,
        ),
        (r#"{"u":"a","h":"c"}"#, r#"{"u":"a","h":"c"}"#),
        (r#"{"u":"a"}"#, r#"{"u":"a"}"#),
    ] {
        assert_eq!(
            looked_up("lookup u, h", &path, event),
            [expected],
            "{event}"
        );
    }
    let (_folder, path) = file("t.txt", "h;u;x\nbc;a;1\n");
    let stage = "lookup u h key=[u,h] format=csv delimiter=';'";
    assert_eq!(
        looked_up(stage, &path, r#"{"u":"a","h":"bc"}"#),
        [r#"{"u":"a","h":"bc","x":"1"}"#]
    );
}

#[test]
fn objects_keep_the_types_of_their_values() {
    let table = concat!(
        r#"{"id":1,"n":1.50,"t":true,"f":false,"o":{"p":{"q.r":"\u00e9\n"}},"l":[1, 2],"z":null}"#,
        "\n\n",
        r#"{"id":"two","late":"yes","n":"x","n":"y"}"#
    );
    let (_folder, path) = file("t.ndjson", table);
    for (stage, event, expected) in [
        (
            "lookup id",
            r#"{"id":"1"}"#,
            r#"{"id":"1","n":1.50,"t":true,"f":false,"o":{"p":{"q.r":"\u00e9\n"}},"l":[1, 2]}"#,
        ),
        (
            "lookup id",
            r#"{"id":"two"}"#,
            r#"{"id":"two","n":"y","late":"yes"}"#,
        ),
        (
            "lookup a key=n columns=[id, 'o.p -> p', late]",
            r#"{"a":1.50}"#,
            r#"{"a":1.50,"id":1,"p":{"q.r":"\u00e9\n"}}"#,
        ),
    ] {
        assert_eq!(looked_up(stage, &path, event), [expected], "{stage}");
    }
    // A dot in a key within a value is found by later processors.
    let mut batch = batch_of([r#"{"id":1}"#]);
    let stage = with_table("lookup id columns=[o]", &path);
    process(
        build(&SPEC, &stage).expect("it builds").as_mut(),
        &mut batch,
    );
    let column = batch.column(&FieldPath::parse("o.p.q.r").expect("a path"));
    assert_eq!(column.value(0), batch::Value::Text("é\n".as_bytes()));
}

#[test]
fn addresses_are_found_in_networks_and_ranges() {
    let networks =
        "n,v\n10.0.0.0/8,a\n10.1.0.0/16,b\n10.1.2.3,c\n2001:db8::/32,d\n::ffff:192.0.2.0/120,e\n";
    let (_one, networks) = file("n.csv", networks);
    let ranges = "f,t,v\n10.0.0.0,10.0.255.255,a\n10.1.2.3,10.1.2.3,c\n2001:db8::,2001:db8:ffff::,d\n192.0.2.0,192.0.2.255,e\n10.1.0.0,10.1.2.2,b\n10.1.2.4,10.1.255.255,b\n10.2.0.0,10.255.255.255,a\n";
    let (_two, ranges) = file("r.csv", ranges);
    for (stage, path) in [
        ("lookup a network=n", &networks),
        ("lookup a from=f to=t", &ranges),
    ] {
        for (address, value) in [
            ("10.0.0.0", "a"),
            ("10.255.255.255", "a"),
            (" 10.1.2.2", "b"),
            ("10.1.2.3", "c"),
            ("::ffff:10.1.2.4", "b"),
            ("2001:DB8::1", "d"),
            ("192.0.2.255", "e"),
            ("11.0.0.0", "-"),
            ("9.255.255.255", "-"),
            ("2001:db9::", "-"),
            ("10.1", "-"),
            ("", "-"),
        ] {
            let event = json!({ "a": address }).to_string();
            let expected = json!({ "a": address, "v": value }).to_string();
            let stage = format!("{stage} default.v=-");
            assert_eq!(looked_up(&stage, path, &event), [expected], "{stage}");
        }
        let event = r#"{"a":10}"#;
        assert_eq!(
            looked_up(&format!("{stage} tag=t"), path, event),
            [r#"{"a":10,"tags":["t"]}"#]
        );
    }
}

#[test]
fn numbers_are_found_in_ranges() {
    let (_folder, path) = file(
        "r.csv",
        "f,t,v\n500,599,a\n-1.5,0.5,b\n9007199254740993,9007199254740993,c\n",
    );
    for (number, value) in [
        ("500", "a"),
        ("\"599\"", "a"),
        ("599.5", "-"),
        ("5e2", "a"),
        ("-1.5", "b"),
        ("0.25", "b"),
        ("-1.6", "-"),
        ("9007199254740993", "c"),
        ("9007199254740992", "-"),
        ("\"x\"", "-"),
        ("true", "-"),
    ] {
        let event = format!(r#"{{"a":{number}}}"#);
        let expected = format!(r#"{{"a":{number},"v":"{value}"}}"#);
        let stage = "lookup a from=f to=t default.v=-";
        assert_eq!(looked_up(stage, &path, &event), [expected]);
    }
}

#[test]
fn databases_of_any_type_are_tables() {
    let bytes = write_database(
        "Own-Type",
        &[
            (
                "10.0.0.0/8",
                json!({ "site": { "name": "office", "n": 7 }, "tags": ["x", true, -1, 0.5] }),
            ),
            ("10.1.0.0/16", json!({ "site": { "name": "lab" } })),
            (
                "2001:db8::/32",
                json!({ "site": { "name": "office", "n": 7 }, "tags": ["x", true, -1, 0.5] }),
            ),
        ],
    );
    let (_folder, path) = file("t.mmdb", bytes);
    for (stage, address, expected) in [
        (
            "lookup a",
            "10.2.0.1",
            r#""site":{"name":"office","n":7},"tags":["x",true,-1,0.5]"#,
        ),
        ("lookup a", "10.1.255.255", r#""site":{"name":"lab"}"#),
        (
            "lookup a target=g",
            "2001:db8::1",
            r#""g":{"site":{"name":"office","n":7},"tags":["x",true,-1,0.5]}"#,
        ),
        (
            "lookup a columns=[site.name, 'site.n -> n'] default.site.n=0",
            "10.1.0.0",
            r#""site":{"name":"lab"},"n":0"#,
        ),
    ] {
        let event = json!({ "a": address }).to_string();
        let expected = format!(r#"{{"a":"{address}",{expected}}}"#);
        assert_eq!(looked_up(stage, &path, &event), [expected], "{stage}");
    }
    let event = r#"{"a":"192.0.2.1"}"#;
    assert_eq!(looked_up("lookup a", &path, event), [event]);
}

#[test]
fn rows_that_cannot_be_used_are_refused_with_their_line() {
    for (stage, name, table, reason) in [
        (
            "lookup a",
            "t.csv",
            "a,b\n1,2\n\n3\n",
            "line 4: it has 1 field and the header 2",
        ),
        (
            "lookup a",
            "t.csv",
            "a,b\n\"1\n2\",3\n\"4,5\n6,7\n",
            "line 4: a quote is not closed",
        ),
        (
            "lookup a",
            "t.csv",
            "a,b\n1,2\n1,3\n",
            "line 3: its key, 1, is in an earlier row already",
        ),
        (
            "lookup a,b",
            "t.csv",
            "a,b\n1,2\n1,3\n1,2",
            "line 4: its key, 1, 2, is in an earlier row already",
        ),
        (
            "lookup a",
            "t.csv",
            "a,b\n1,2\n,3\n",
            "line 3: the key column `a` has no value",
        ),
        ("lookup a", "t.csv", "a,a\n", "two columns are called `a`"),
        (
            "lookup a",
            "t.csv",
            "a,\n",
            "column 2 has no name; `columns` says which ones are wanted",
        ),
        (
            "lookup a",
            "t.csv",
            "a,b,b.c\n",
            "`b` and `b.c` would both be written to b.c; `columns` says which ones are wanted, and where",
        ),
        (
            "lookup a",
            "t.csv",
            "b,c\n",
            "it has no column `a`; its columns are b, c",
        ),
        (
            "lookup a columns=[d]",
            "t.csv",
            "a,c\n",
            "it has no column `d`; its columns are a, c",
        ),
        (
            "lookup a default.d=1",
            "t.csv",
            "a,c\n",
            "it has no column `d`; its columns are a, c",
        ),
        ("lookup a", "t.csv", "", "the file is empty"),
        (
            "lookup a network=n",
            "t.csv",
            "n,c\n10.0.0.0/8,1\nx,2",
            "line 3: `x` is not a network such as 10.0.0.0/8, and not an address",
        ),
        (
            "lookup a network=n",
            "t.csv",
            "n,c\n10.0.0.0/8,1\n10.2.0.0/16,1\n10.1.1.1/8,2",
            "line 4: it has the same network as line 2",
        ),
        (
            "lookup a from=f to=t",
            "t.csv",
            "f,t\n1,5\n8,9\n3,7",
            "line 4: its range overlaps with that of line 2",
        ),
        (
            "lookup a from=f to=t",
            "t.csv",
            "f,t\n5,1",
            "line 2: the range ends before it begins: 5 to 1",
        ),
        (
            "lookup a from=f to=t",
            "t.csv",
            "f,t\n5,x",
            "line 2: 5 to x is not a range: both must be numbers, or IP addresses of one version",
        ),
        (
            "lookup a from=f to=t",
            "t.csv",
            "f,t\n5,7\n10.0.0.1,10.0.0.2",
            "line 3: 10.0.0.1 to 10.0.0.2 is a range of another kind than in the rows before: numbers and addresses do not mix",
        ),
        (
            "lookup a",
            "t.ndjson",
            "{\"a\":1}\n{\"a\":}",
            "line 2: unexpected character at byte 5",
        ),
        (
            "lookup a",
            "t.ndjson",
            "{\"a\":1}\n{\"b\":1}",
            "line 2: the key column `a` has no value",
        ),
        (
            "lookup a",
            "t.ndjson",
            "{\"a\":1}\n\n{\"a\":{}}",
            "line 3: the key column `a` has no value",
        ),
        (
            "lookup a columns=[b, c]",
            "t.ndjson",
            "{\"a\":1,\"c\":null}",
            "no row has `b`",
        ),
        (
            "lookup a",
            "t.mmdb",
            "no database",
            "it is not a MaxMind database: ",
        ),
    ] {
        let found = refused(stage, name, table);
        assert!(found.starts_with(reason), "{stage} on {table:?}: {found}");
    }
    assert_eq!(
        refused("lookup a", "t.csv", b"a,b\n1,\xff\n"),
        "line 2: it is not UTF-8"
    );
    assert!(
        build_error(&SPEC, "lookup a table=/nonexistent/t.csv")
            .ends_with("No such file or directory (os error 2)")
    );
}

#[test]
fn bad_settings_are_refused() {
    for (stage, expected) in [
        ("lookup table=t.csv", "fields"),
        ("lookup a", "table"),
        (
            "lookup a table=t.txt",
            "the name of `t.txt` does not say its format",
        ),
        (
            "lookup a table=t.csv key=b network=c",
            "`key` and `network` do not go together",
        ),
        ("lookup a table=t.csv from=b", "`from` needs `to`"),
        ("lookup a table=t.csv to=b", "`to` needs `from`"),
        ("lookup a table=t.csv key=[]", "name at least one column"),
        (
            "lookup a table=t.mmdb key=b",
            "`key` has no effect: in a database, addresses are looked up",
        ),
        (
            "lookup a, b table=t.csv key=c",
            "2 fields cannot be looked up in 1 column",
        ),
        (
            "lookup a, b table=t.csv network=c",
            "one field is looked up in networks and ranges",
        ),
        (
            "lookup a table=t.json delimiter=x",
            "`delimiter` is for CSV",
        ),
        (
            "lookup a table=t.csv delimiter=xy",
            "the delimiter is one ASCII character, or `tab`",
        ),
        (
            "lookup a table=t.csv columns=['b -> c..d']",
            "`c..d` is not a field name",
        ),
        (
            "lookup a table=t.csv columns=['-> c']",
            "the name of a column is missing",
        ),
        (
            "lookup a table=t.csv columns=[b] default.c=1",
            "`c` is not among the columns that are written",
        ),
        (
            "lookup a table=t.csv target=b..c",
            "`b..c` is not a field name",
        ),
    ] {
        let message = build_error(&SPEC, stage);
        assert!(
            message.contains(expected),
            "{stage} is refused with: {message}"
        );
    }
}

#[test]
fn hits_and_misses_are_counted() {
    let (_folder, path) = file("hosts.csv", HOSTS);
    let mut processor = build(&SPEC, &with_table("lookup a key=ip", &path)).expect("it builds");
    let events = [r#"{"a":"7"}"#, r#"{"a":"8"}"#, r#"{"a":7}"#, r#"{"b":1}"#];
    process(processor.as_mut(), &mut batch_of(events));
    assert_eq!(processor.take_counters(), [("hits", 2), ("misses", 1)]);
    assert_eq!(processor.take_counters(), [("hits", 0), ("misses", 0)]);
}

fn make_pipe(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status();
    assert!(made.expect("mkfifo runs").success());
}

#[test]
fn a_pipe_is_refused_and_not_waited_for() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for name in ["t.csv", "t.ndjson", "t.mmdb"] {
        let path = folder.path().join(name);
        make_pipe(&path);
        let message = build_error(&SPEC, &with_table("lookup a", &path));
        assert!(message.contains("it is not a regular file"), "{message}");
    }
}

/// Waits until a condition holds.
fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_table_is_read_again_when_its_file_changes() {
    let (_folder, path) = file("t.csv", "a,b\n1,old\n");
    let plan = Plan {
        path: path.display().to_string(),
        format: TableFormat::Csv { delimiter: b',' },
        key: KeyColumns::Exact(vec!["a".into()]),
        columns: None,
        target: None,
        defaults: Vec::new(),
    };
    let source = WatchedTable::open(plan, Duration::from_millis(5)).expect("a table");
    let mut one = Lookup {
        fields: vec![FieldPath::from_keys(["a"])],
        source: source.clone(),
        miss_tag: None,
        failure_tag: FAILURE_TAG.into(),
        found: FoundRows::default(),
        hits: 0,
        misses: 0,
    };
    let mut value = || {
        let mut batch = batch_of([r#"{"a":1}"#]);
        process(&mut one, &mut batch);
        lines_of(&batch)
    };
    let written = |value: &str| vec![format!(r#"{{"a":1,{value}}}"#)];
    assert_eq!(value(), written(r#""b":"old""#));
    // In place, with another column.
    fs::write(&path, "a,b,c\n1,new,x\n").expect("a file");
    wait_for("it is read again", || {
        value() == written(r#""b":"new","c":"x""#)
    });
    assert_eq!(source.take_reloads(), (1, 0));
    // One that cannot be used, then none.
    fs::write(&path, "a,b,c\n1,newer\n").expect("a file");
    let mut warnings = Vec::new();
    let mut warned = |text: &str| {
        wait_for(text, || {
            warnings.extend(source.take_warnings());
            !warnings.is_empty()
        });
        let warning = warnings.remove(0);
        assert!(warning.text.contains(text), "{warning:?}");
        assert!(
            warning.text.ends_with("; the one from before stays in use"),
            "{warning:?}"
        );
    };
    warned("line 2: it has 2 fields and the header 3");
    assert_eq!(value(), written(r#""b":"new","c":"x""#));
    fs::remove_file(&path).expect("it is removed");
    warned("No such file or directory");
    assert_eq!(value(), written(r#""b":"new","c":"x""#));
    assert_eq!(source.take_reloads(), (0, 2));
    // A pipe, which is not waited for.
    make_pipe(&path);
    warned("it is not a regular file");
    // Renamed into place.
    let beside = path.with_extension("new");
    fs::write(&beside, "a,b\n1,last\n").expect("a file");
    fs::rename(&beside, &path).expect("it is renamed");
    wait_for("the new file is read", || {
        value() == written(r#""b":"last""#)
    });
    // Nobody uses it any more: the thread lets go of it.
    drop(one);
    let weak = Arc::downgrade(&source);
    drop(source);
    wait_for("the thread ends", || weak.strong_count() == 0);
}

/// Against a plain map, with keys of any bytes that JSON has, over many rows.
#[test]
fn every_key_of_a_large_table_is_found() {
    let mut random = numbers(7);
    let mut text = String::from("k,v,w\n");
    for key in 0..20_000 {
        let long = "x".repeat(random(200) as usize);
        text.push_str(&format!("k{key},{key}{long},{}\n", random(2)));
    }
    let (_folder, path) = file("t.csv", &text);
    let events: Vec<String> = (0..4000)
        .map(|_| format!(r#"{{"k":"k{}"}}"#, random(30_000)))
        .collect();
    let lines = looked_up("lookup k", &path, &events.join("\n"));
    let rows: Vec<Vec<&str>> = text
        .lines()
        .skip(1)
        .map(|line| line.split(',').collect())
        .collect();
    for (event, line) in events.iter().zip(lines) {
        let key: usize = event[7..event.len() - 2].parse().expect("a number");
        let expected = match rows.get(key) {
            Some(row) => format!(r#"{{"k":"{}","v":"{}","w":"{}"}}"#, row[0], row[1], row[2]),
            None => event.clone(),
        };
        assert_eq!(line, expected);
    }
}
