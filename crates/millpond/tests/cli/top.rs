//! What limits running pipelines, in the API and in `millpond top`.

use std::fs::File;
use std::io::{Read, Write};

use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::{Value, json};

use crate::api::{get, on_a_free_port, port};
use crate::notation::terminal;
use crate::posting::free_port;
use crate::program::{Ended, Folder, command, millpond};
use crate::running::Service;

/// A service of two pipelines whose events no destination takes: the queue of one is full, and one has no memory left.
fn held_up(folder: &Folder) -> Service {
    let away =
        json!({ "http": { "url": format!("http://127.0.0.1:{}/", free_port()), "name": "away" } });
    let pipeline = |queue: Value| {
        json!({
            "input": { "generate": { "format": "apache" } },
            "queue": queue,
            "outputs": [away, "discard"],
        })
    };
    let configuration = json!({
        "data_dir": folder.path("state"),
        "api": on_a_free_port(),
        "max_memory_bytes": "16MiB",
        "pipelines": {
            "full": pipeline(json!({ "memory": { "max_bytes": "1MiB" } })),
            "idle": { "input": { "generate": { "format": "apache", "rate": 10 } }, "output": "discard" },
        },
    });
    let path = folder.write("service.yaml", configuration.to_string());
    Service::start(folder, &["run", &path])
}

fn top(port: u16, args: &[&str]) -> Ended {
    let address = port.to_string();
    millpond(&[&["top", "--api", &address, "--interval", "300ms"], args].concat())
}

#[test]
fn what_limits_a_pipeline_is_told_while_it_waits() {
    let folder = Folder::new();
    let mut service = held_up(&folder);
    let port = port(&mut service);
    let pipelines = || get(port, "/api/v1/stats?files=0").json()["pipelines"].clone();
    service.until("pipelines", || pipelines()[0]["windows"].is_array());
    let window = |place: usize| pipelines()[place]["windows"][0].clone();
    // The first window may have caught it while it still worked.
    service.until("a verdict", || window(0)["limits"]["name"] == "away");
    let full = window(0);
    assert_eq!(full["seconds"], 60);
    assert!(full["wall_seconds"].as_f64().is_some_and(|wall| wall > 4.0));
    assert_eq!(full["limits"]["role"], "output");
    let verdict = full["verdict"].as_str().expect("a sentence");
    assert!(
        verdict.starts_with("Output away limits this pipeline"),
        "{verdict}"
    );
    let input = &full["operators"][0];
    let share = |name: &str| input[name].as_f64().expect("a share");
    assert!(share("waiting_for_output_share") > 0.5, "{input}");
    let sum =
        share("busy_share") + share("waiting_for_input_share") + share("waiting_for_output_share");
    assert!((sum - 1.0).abs() < 1e-6, "{input}");
    let idle = window(1);
    assert_eq!(idle["limits"], Value::Null);
    assert!(
        idle["verdict"]
            .as_str()
            .is_some_and(|it| it.starts_with("Nothing limits")),
        "{idle}"
    );

    // The same in the terminal.
    let shown = top(port, &["--once"]).expect(0);
    for expected in [
        verdict.split(':').next().unwrap_or_default(),
        "output away",
        "an hour",
        "cannot connect",
    ] {
        assert!(
            shown.out.contains(expected),
            "{expected} is not in\n{}",
            shown.out
        );
    }
    assert_eq!(shown.err, "");
    let shown = top(port, &["idle", "--once"]).expect(0);
    assert!(shown.out.contains("idle, last 1 minute"), "{}", shown.out);
    service.kill();
}

#[test]
fn what_cannot_be_shown_is_told_before_the_screen_is_taken() {
    let folder = Folder::new();
    let mut service = crate::api::service(
        &folder,
        &json!({ "address": "127.0.0.1:0", "token": "secret" }),
        &json!({}),
    );
    let port = port(&mut service);
    let token = folder.write("token", "secret\n");
    let refused = top(port, &["--once"]).expect(2);
    assert!(refused.err.contains("--token-file"), "{}", refused.err);
    let shown = top(port, &["--once", "--token-file", &token]).expect(0);
    assert!(shown.out.contains("main"), "{}", shown.out);
    let unknown = top(port, &["nobody", "--once", "--token-file", &token]).expect(2);
    assert!(
        unknown
            .err
            .contains("there is no pipeline `nobody`; those that run are main"),
        "{}",
        unknown.err
    );
    let piped = top(port, &["--token-file", &token]).expect(2);
    assert!(piped.err.contains("--once"), "{}", piped.err);
    let hasty = top(port, &["--interval", "1ms"]);
    assert_eq!(hasty.code, Some(2), "{}", hasty.err);
    service.stop();
    let gone = top(port, &["--once"]).expect(2);
    assert!(gone.err.contains("no Millpond answers"), "{}", gone.err);
}

#[test]
fn the_screen_is_drawn_until_somebody_quits() {
    let folder = Folder::new();
    let mut service = crate::api::service(&folder, &on_a_free_port(), &json!({}));
    let port = port(&mut service).to_string();
    let (mut controller, user) = terminal();
    let size = Winsize {
        ws_row: 30,
        ws_col: 100,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&controller, size).expect("a size");
    let mut command = command(&["top", "--api", &port, "--interval", "100ms"]);
    command
        .stdin(user.try_clone().expect("a terminal"))
        .stdout(user)
        .env("TERM", "xterm");
    let mut child = command.spawn().expect("the executable runs");
    // It holds descriptors of the terminal; without them, reading ends when the child has ended.
    drop(command);
    let until = |controller: &mut File, expected: &str| {
        let (mut shown, mut piece) = (String::new(), [0; 4096]);
        while !shown.contains(expected) {
            let read = controller.read(&mut piece).expect("it goes on");
            shown += &String::from_utf8_lossy(&piece[..read]);
        }
    };
    until(&mut controller, "PIPELINE");
    controller.write_all(b"?").expect("typed");
    until(&mut controller, "Keys");
    controller.write_all(b"q").expect("typed");
    let mut rest = Vec::new();
    // The end of a terminal is an error.
    let _ = controller.read_to_end(&mut rest);
    assert!(child.wait().expect("it ends").success());
    let rest = String::from_utf8_lossy(&rest);
    assert!(
        rest.contains("\x1b[?1049l"),
        "the first screen is back: {rest:?}"
    );
    service.stop();
}
