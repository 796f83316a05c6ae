//! What happens to events that a processor cannot handle, set for a pipeline or for a processor.

use crate::program::{Folder, millpond};

/// What a pipeline with these settings makes of a line that grok takes apart and one that it does not.
fn outcome(pipeline: &str, processor: &str) -> String {
    let folder = Folder::new();
    let (log, out) = (folder.write("a.log", "1\nx\n"), folder.path("out"));
    let yaml = folder.write(
        "p.yaml",
        format!(
            "pipelines:
  app:
    {pipeline}
    input: {{ file: {{ paths: [\"{log}\"], follow: false }} }}
    processors:
      - grok: {{ pattern: \"^%{{INT:n:int}}\", tag: bad{processor} }}
      - set: later = \"yes\"
    output: {{ file: {{ path: \"{out}\", codec: template, template: \"%{{message}} %{{later}} %{{tags}}\" }} }}
"
        ),
    );
    millpond(&["run", &yaml]).expect(0);
    folder.read("out")
}

#[test]
fn the_policy_of_a_pipeline_holds_unless_a_processor_has_its_own() {
    let (published, continued, dropped) = (
        "1 yes -\nx - [\"bad\"]\n",
        "1 yes -\nx yes [\"bad\"]\n",
        "1 yes -\n",
    );
    for (pipeline, processor, expected) in [
        ("", "", published),
        ("on_failure: publish", "", published),
        ("on_failure: continue", "", continued),
        ("on_failure: drop", "", dropped),
        ("on_failure: drop", ", on_failure: continue", continued),
        ("on_failure: continue", ", on_failure: publish", published),
    ] {
        assert_eq!(
            outcome(pipeline, processor),
            expected,
            "{pipeline} {processor}"
        );
    }
}

#[test]
fn a_policy_that_cannot_work_is_refused_with_its_place() {
    let folder = Folder::new();
    let check = |policy: &str, own: &str| {
        let yaml = folder.write(
            "p.yaml",
            format!(
                "pipelines:
  app:
    on_failure: {policy}
    input: stdin
    processors:
      - json: {{ field: message{own} }}
    output: stdout
"
            ),
        );
        millpond(&["check", &yaml])
    };
    for (policy, part) in [
        ("dead_letter", "`data_dir` is not set"),
        ("dorp", "did you mean `drop`?"),
    ] {
        let refused = check(policy, "").expect(2);
        assert!(refused.err.contains(part), "{}", refused.err);
        assert!(refused.err.contains("p.yaml:3:17"), "{}", refused.err);
    }
    let refused = check("drop", ", on_failure: dead_letter").expect(2);
    assert!(refused.err.contains("p.yaml:6:45"), "{}", refused.err);
}

#[test]
fn every_page_of_a_processor_that_may_fail_tells_what_becomes_of_the_event() {
    let sentence = "skips all later processors that write";
    for name in ["grok", "date", "json", "set", "rename"] {
        assert!(
            millpond(&["docs", name]).expect(0).out.contains(sentence),
            "{name}"
        );
    }
    assert!(
        !millpond(&["docs", "where"])
            .expect(0)
            .out
            .contains(sentence)
    );
}
