use super::*;
use crate::parse_yaml;

pub(crate) struct Components;

const INPUTS: &[(&str, Positional)] = &[
    ("file", Positional::list(&["paths"])),
    ("stdin", Positional::NONE),
    ("generate", Positional::fields(&["kind"])),
];
const PROCESSORS: &[(&str, Positional)] = &[
    ("grok", Positional::fields(&["pattern"])),
    ("date", Positional::with_rest(&["field", "formats"])),
    (
        "where",
        Positional::whole(&["condition"], Shape::Expression),
    ),
    ("set", Positional::whole(&["fields"], Shape::Assignments)),
    ("rename", Positional::whole(&["fields"], Shape::Renames)),
    ("remove", Positional::whole(&["fields"], Shape::Names)),
    ("json", Positional::NONE),
    ("put", Positional::fields(&["from", "to"])),
];
const OUTPUTS: &[(&str, Positional)] = &[
    ("stdout", Positional::fields(&["codec"])),
    ("discard", Positional::NONE),
    ("file", Positional::fields(&["path"])),
    ("http", Positional::fields(&["url"]).nested(&["auth.basic"])),
];

fn table(role: StageRole) -> &'static [(&'static str, Positional)] {
    match role {
        StageRole::Input => INPUTS,
        StageRole::Processor => PROCESSORS,
        StageRole::Output => OUTPUTS,
    }
}

impl Catalogue for Components {
    fn positional(&self, role: StageRole, name: &str) -> Option<Positional> {
        let found = table(role).iter().find(|(known, _)| *known == name);
        found.map(|(_, positional)| *positional)
    }

    fn names(&self, role: StageRole) -> Vec<&str> {
        table(role).iter().map(|(name, _)| *name).collect()
    }
}

fn parse(text: &str) -> Result<Node, ConfigError> {
    parse_oneline(&Source::command_line(text), &Components)
}

/// The tree of a processor's settings.
fn settings(stage: &str) -> Result<Node, ConfigError> {
    let root = parse(&format!("stdin | {stage} | discard"))?;
    let name = stage.split_whitespace().next().unwrap_or_default();
    Ok(root
        .nearest(&format!("pipelines.main.processors[0].{name}"))
        .clone())
}

#[test]
fn both_spellings_give_one_tree() {
    let oneline = "file access.log* 'b c.log' | grok \"%{COMBINEDAPACHELOG}\" if='a == \"b\"'
        | date timestamp dd/MMM/yyyy:HH:mm:ss\\ Z \"x y\" target=@t\n | where status >= 500 && (a || !has(ua)) | stdout json color=false";
    let yaml = r#"
pipelines:
  main:
    input:
      file: { paths: [access.log*, b c.log] }
    processors:
      - grok: { pattern: "%{COMBINEDAPACHELOG}", if: 'a == "b"' }
      - date: { field: timestamp, formats: ["dd/MMM/yyyy:HH:mm:ss\\", Z, x y], target: "@t" }
      - where: { condition: "status >= 500 && (a || !has(ua))" }
    outputs:
      - stdout: { codec: json, color: false }
"#;
    let expected = parse_yaml(&Source::new("t.yaml", yaml)).expect("valid");
    assert_eq!(parse(oneline).expect("valid"), expected);
    let short = parse("stdin|discard").expect("valid");
    let expected = "pipelines: {main: {input: {stdin: {}}, outputs: [{discard: {}}]}}";
    assert_eq!(
        short,
        parse_yaml(&Source::new("t.yaml", expected)).expect("valid")
    );
}

const SETTINGS: &[(&str, &str)] = &[
    ("grok p", "{pattern: p}"),
    (
        r#"grok "a \"b\" \\ \d|x"'c\'d"#,
        r#"{pattern: "a \"b\" \\ \\d|xc\\d"}"#,
    ),
    ("grok ''", r#"{pattern: ""}"#),
    ("grok a==b", "{pattern: a==b}"),
    ("grok http://x?y=z", "{pattern: http://x?y=z}"),
    ("grok 'x=y'", r#"{pattern: "x=y"}"#),
    ("grok A=b", "{pattern: A=b}"),
    ("grok [ab]*.log", "{pattern: [ab]*.log}"),
    ("grok a||b", "{pattern: a||b}"),
    (
        "json a=1 b='1' c= d=x=y e=null _f=null1",
        r#"{a: 1, b: "1", c: "", d: x=y, e: null, _f: null1}"#,
    ),
    ("json a.b=1 a.c.d=2 e.f=3", "{a: {b: 1, c.d: 2}, e: {f: 3}}"),
    (
        r#"grok "%{FOO:x}" definitions.FOO="\d+" definitions.B2=x"#,
        r#"{pattern: "%{FOO:x}", definitions: {FOO: "\\d+", B2: x}}"#,
    ),
    (
        "put fields.Host=b fields.host.name=h fields.@x-Y=[1] fields.Host=c fields.größe=g",
        "{fields: {Host: [b, c], host.name: h, @x-Y: [1], größe: g}}",
    ),
    ("put null [a]", "{from: null, to: [a]}"),
    ("put a.=b a.b==c", "{from: a.=b, to: a.b==c}"),
    ("put a.'b'=c A.b=d", r#"{from: "a.b=c", to: A.b=d}"#),
    (
        "json a=[x, 'y, z',w] b=[] c=[ ]",
        r#"{a: [x, "y, z", w], b: [], c: []}"#,
    ),
    ("json a=[x]+ b='[x]'", r#"{a: [x]+, b: "[x]"}"#),
    (
        "json a=1 a=2 a=[3,4] b.c=5 b.c=6",
        "{a: [1, 2, 3, 4], b: {c: [5, 6]}}",
    ),
    ("json if='a || b'", r#"{if: "a || b"}"#),
    ("json if=a||b", "{if: a||b}"),
    ("date f", "{field: f}"),
    ("date f a 'b c'", r#"{field: f, formats: [a, "b c"]}"#),
    ("date f formats=x", "{field: f, formats: x}"),
    ("put target=x a b", "{target: x, from: a, to: b}"),
    ("where", "{}"),
    (
        "where   a == 'x | y' || b != \"|\"  ",
        r#"{condition: "a == 'x | y' || b != \"|\""}"#,
    ),
    (
        r"where a == 'it\'s | x'",
        r#"{condition: "a == 'it\\'s | x'"}"#,
    ),
    (r"where a == r'\' || b", r#"{condition: "a == r'\\' || b"}"#),
    (
        r"where a == '''it's | x'''",
        r#"{condition: "a == '''it's | x'''"}"#,
    ),
    (
        "set a = b + 1, `c d`='x, y' ,e.f=[1, {2: 3}], 'g,h' = i == j",
        r#"{fields: {a: "b + 1", "`c d`": "'x, y'", e.f: "[1, {2: 3}]", "g,h": "i == j"}}"#,
    ),
    ("set if_a = 1 || x", r#"{fields: {if_a: "1 || x"}}"#),
    (
        "set a = `b | , c`, d = 1",
        r#"{fields: {a: "`b | , c`", d: "1"}}"#,
    ),
    ("set", "{}"),
    (
        "rename a -> b.c , x-y->@z, 'p q' -> `r,s`",
        r#"{fields: {a: b.c, x-y: @z, "p q": "`r,s`"}}"#,
    ),
    (
        "remove a, b c,d , `e f`",
        r#"{fields: [a, b, c, d, "`e f`"]}"#,
    ),
    ("remove", "{}"),
];

#[test]
fn settings_and_quotes() {
    for &(stage, expected) in SETTINGS {
        let tree = settings(stage).expect(stage);
        assert_eq!(format!("{tree:?}"), expected, "{stage}");
    }
}

#[test]
fn spans_point_at_what_was_written() {
    let text = "stdin | grok 'ä b' tag=[x, 'y'] a.b=c | where a ||  b | discard";
    let root = parse(text).expect("valid");
    let processors = "pipelines.main.processors";
    for (path, expected) in [
        ("[0].grok.pattern", "'ä b'"),
        ("[0].grok.tag", "[x, 'y']"),
        ("[0].grok.tag[1]", "'y'"),
        ("[0].grok.a.b", "c"),
        ("[0].grok", "'ä b' tag=[x, 'y'] a.b=c"),
        ("[1].where.condition", "a ||  b"),
    ] {
        let node = root.nearest(&format!("{processors}{path}"));
        assert_eq!(node.source().slice(node.span), expected, "{path}");
        assert_eq!(node.path().to_string(), format!("{processors}{path}"));
    }
    let error = root
        .nearest("pipelines.main.processors[0].grok.pattern")
        .error("broken")
        .pointing_at(3);
    assert_eq!(error.column(), Some(17), "{error}");
}

const REFUSED: &[(&str, usize, &str)] = &[
    ("", 1, "empty stage"),
    ("  ", 3, "empty stage"),
    ("stdin | | discard", 9, "empty stage"),
    ("stdin |", 8, "empty stage"),
    ("| stdin", 1, "empty stage"),
    ("stdni", 1, "did you mean `stdin`?"),
    (
        "stdin | grokk x | discard",
        9,
        "there is no processor `grokk`",
    ),
    (
        "stdin | grokk x | discard",
        9,
        "accepted: grok, date, where, set, rename, remove, json, put",
    ),
    (
        "stdin | stdout | discard",
        9,
        "`stdout` is an output; stages in the middle must be processors",
    ),
    (
        "grok x | generate",
        10,
        "`generate` is an input; the last stage must be an output",
    ),
    (
        "stdin | set a 1 | discard",
        15,
        "expected `=` and an expression after `a`",
    ),
    ("stdin | set a == 1 | discard", 15, "expected `=`"),
    (
        "stdin | set a = , b = 1",
        17,
        "expected an expression for `a`",
    ),
    ("stdin | set a = 1, a = 2", 20, "`a` is given twice"),
    ("stdin | set = 1", 13, "the name of a field is missing"),
    (
        "stdin | set if=x",
        13,
        "`set` does not accept the setting `if` in a one-line pipeline",
    ),
    (
        "stdin | where if=x",
        15,
        "example: where level == \"DEBUG\"",
    ),
    (
        "stdin | rename a b",
        18,
        "expected `->` and the new name after `a`",
    ),
    (
        "stdin | rename a -> b c -> d",
        23,
        "expected a comma or the end of the stage",
    ),
    (
        "stdin | rename from=a to=b",
        16,
        "example: rename clientip -> source.ip",
    ),
    (
        "stdin | remove a b=c",
        19,
        "expected a name here, not a setting",
    ),
    (
        "stdin | remove fields=a",
        16,
        "example: remove message, host",
    ),
    ("stdin | remove `a | discard", 16, "the quote ` opened here"),
    (
        "stdin | grok 'x | discard",
        14,
        "the quote ' opened here is never closed",
    ),
    (
        "stdin | grok a \"x\\\" | discard",
        16,
        "the quote \" opened here",
    ),
    (
        "stdin | where a == 'x | discard",
        20,
        "the quote ' opened here",
    ),
    (
        "stdin | grok a b | discard",
        16,
        "grok accepts one value without a name, its pattern",
    ),
    ("stdin | put a b c | discard", 17, "accepted: from, to"),
    (
        "stdin | json a | discard",
        14,
        "json accepts no value without a name",
    ),
    (
        "stdin | grok a pattern=b | discard",
        16,
        "both by position and by name",
    ),
    (
        "stdin | grok pattern=b a | discard",
        24,
        "both by name and by position",
    ),
    (
        "stdin | date formats=b a c | discard",
        26,
        "`formats` is given both by name and by position",
    ),
    (
        "stdin | json a=1 a.b=2 | discard",
        18,
        "`a` is given both as a value and, with a dot, as a map",
    ),
    (
        "stdin | json a.b=2 a=1 | discard",
        20,
        "`a` is given both as a value",
    ),
    (
        "stdin | json a=[x | discard",
        16,
        "this list has no closing `]`",
    ),
    ("stdin | json a=[x y] | discard", 19, "expected `,` or `]`"),
    ("stdin | json a=[,x] | discard", 17, "an item is missing"),
    ("stdin | put a b [x] | discard", 17, "put accepts 2 values"),
    (
        "stdin || discard",
        7,
        "`||` is only valid inside an expression",
    ),
    (
        "stdin | grok a || b | discard",
        16,
        "`||` is only valid inside an expression",
    ),
];

#[test]
fn refuses_with_place_and_reason() {
    for &(text, column, part) in REFUSED {
        let error = parse(text).expect_err(text);
        assert_eq!(
            (error.line(), error.column()),
            (Some(1), Some(column)),
            "{error}"
        );
        assert!(error.to_string().contains(part), "{error}");
        assert!(error.to_string().contains("<command line>"), "{error}");
    }
}

#[test]
fn values_by_position_are_text() {
    let node = settings("put null [a]").expect("valid");
    for name in ["from", "to"] {
        let kind = node.get(name).map(|value| value.kind.clone());
        assert!(matches!(kind, Some(NodeKind::Scalar { .. })));
    }
}

#[test]
fn what_is_not_written_is_standard_input_and_output() {
    for (short, long) in [
        ("grok x", "stdin | grok x | stdout"),
        ("file a.log", "file a.log | stdout"),
        ("generate | where a", "generate | where a | stdout"),
        ("where a | discard", "stdin | where a | discard"),
        ("discard", "stdin | discard"),
        ("where a | file a", "stdin | where a | file a"),
    ] {
        assert_eq!(
            parse(short).expect(short),
            parse(long).expect(long),
            "{short}"
        );
    }
}

#[test]
fn short_forms_in_yaml_give_the_same_tree() {
    let short = r#"
pipelines:
  one: file a.log | where n == 2 && m == "x" | set a = 'its' | stdout json
  "two": "grok \"%{X:a}\"\t | remove a, b"
  three:
    input: file a.log
    processors:
      - where n == 2
      - where: n == 2
      - set: a = b + 1, c = "d"
      - set: { fields: { a: b + 1 } }
      - rename: a -> b, c -> d
      - remove: [a, b]
      - remove: a, b
      - grok: "%{X}"
      - put x y
      - json
    outputs: [file x y=z, discard]
"#;
    let long = r#"
pipelines:
  one:
    input: { file: { paths: [a.log] } }
    processors:
      - where: { condition: 'n == 2 && m == "x"' }
      - set: { fields: { a: "'its'" } }
    outputs: [{ stdout: { codec: json } }]
  two:
    input: { stdin: {} }
    processors:
      - grok: { pattern: "%{X:a}" }
      - remove: { fields: [a, b] }
    outputs: [{ stdout: {} }]
  three:
    input: { file: { paths: [a.log] } }
    processors:
      - where: { condition: n == 2 }
      - where: { condition: n == 2 }
      - set: { fields: { a: b + 1, c: '"d"' } }
      - set: { fields: { a: b + 1 } }
      - rename: { fields: { a: b, c: d } }
      - remove: { fields: [a, b] }
      - remove: { fields: [a, b] }
      - grok: { pattern: "%{X}" }
      - put: { from: x, to: y }
      - json
    outputs: [{ file: { path: x, y: z } }, discard]
"#;
    let parse = |text: &str| parse_yaml(&Source::new("t.yaml", text)).expect("valid");
    let expanded = expand_short_forms(parse(short), &Components).expect("valid");
    assert_eq!(expanded, parse(long));
    let place = expanded.nearest("pipelines.three.processors[2].set.fields.c");
    assert_eq!(place.source().slice(place.span), "\"d\"");
}

#[test]
fn errors_in_short_forms_have_their_place() {
    for (yaml, line, column, part) in [
        ("pipelines:\n  a: file x | set b 1\n", 2, 21, "expected `=`"),
        (
            "pipelines:\n  a:\n    processors:\n      - set: b 1\n",
            4,
            16,
            "expected `=`",
        ),
        (
            "pipelines:\n  a:\n    processors:\n      - where a | where b\n",
            4,
            17,
            "a `|` ends a stage",
        ),
        (
            "pipelines:\n  a:\n    processors:\n      - gork a\n",
            4,
            9,
            "did you mean `grok`?",
        ),
    ] {
        let tree = parse_yaml(&Source::new("t.yaml", yaml)).expect("valid");
        let error = expand_short_forms(tree, &Components).expect_err(yaml);
        assert_eq!(
            (error.line(), error.column()),
            (Some(line), Some(column)),
            "{error}"
        );
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn maps_in_maps_are_given_with_dots_where_a_component_has_them() {
    for (stage, expected) in [
        (
            "http u auth.basic.user=a auth.basic.password='b c' x.y.z=1",
            r#"{url: u, auth: {basic: {user: a, password: "b c"}}, x: {y.z: 1}}"#,
        ),
        ("http auth.bearer=t", "{auth: {bearer: t}}"),
        ("http auth.basically.x=1", "{auth: {basically.x: 1}}"),
        ("http auth.basic.a.b=1", "{auth: {basic: {a.b: 1}}}"),
        ("http auth.basic=1", "{auth: {basic: 1}}"),
    ] {
        let root = parse(&format!("stdin | {stage}")).expect(stage);
        let found = root.nearest("pipelines.main.outputs[0].http");
        let yaml = parse_yaml(&Source::new("t.yaml", expected)).expect("YAML");
        assert_eq!(crate::to_yaml(found), crate::to_yaml(&yaml), "{stage}");
    }
    let error = parse("stdin | http u auth.basic=1 auth.basic.user=a").expect_err("both");
    assert!(
        error
            .to_string()
            .contains("`basic` is given both as a value"),
        "{error}"
    );
}

#[test]
fn commas_separate_paths_like_blanks() {
    for (stage, expected) in [
        ("file a.log b.log", &["a.log", "b.log"][..]),
        ("file a.log,b.log , c.log,", &["a.log", "b.log", "c.log"]),
        ("file {a,b}.log,[c,d].log", &["{a,b}.log", "[c,d].log"]),
        ("file 'a, b.log', c.log codec=json", &["a, b.log", "c.log"]),
        ("file a.log, codec=json b.log", &["a.log", "b.log"]),
    ] {
        let root = parse(&format!("{stage} | stdout")).expect(stage);
        let paths = root.nearest("pipelines.main.input.file.paths").items();
        let paths: Vec<_> = paths.iter().filter_map(Node::as_str).collect();
        assert_eq!(paths, expected, "{stage}");
    }
    // Elsewhere a comma is a part of the value, as in formats of times.
    let date = settings("date time HH:mm:ss,SSS").expect("it reads");
    assert_eq!(date.nearest("formats[0]").as_str(), Some("HH:mm:ss,SSS"));
    let error = parse("file a.log,, b.log | stdout").expect_err("nothing between commas");
    assert_eq!(error.message(), "a value is missing before this `,`");
}

#[test]
fn what_can_only_be_a_slip_is_refused() {
    for (text, column, part) in [
        ("stdin | grok x if=a==\"b\"", 19, "write if='a==\"b\"'"),
        ("stdin | grok x if='a'\"b\"c", 19, "quotes around the whole"),
        ("stdin | grok x y=a&&\"b\"", 18, "only partly quoted"),
        ("stdin | grok x if=a == b z=1", 16, "write if='a == b'"),
        ("file a == | stdout", 8, "`==` is not a value of `file`"),
        ("file a >b | stdout", 8, "| file out.ndjson"),
        ("stdin | date a b where c", 18, "did you forget the `|`"),
        ("stdin | grok x --y", 16, "name=value"),
        ("stdin | where (a | b)", 18, "did you mean `||`?"),
        (
            "stdin | set a = b c = d",
            19,
            "a comma is missing before `c`",
        ),
        ("stdin | set a = b; c = d", 18, "separated by commas"),
        ("stdin | where a == 1 if=b", 22, "`if` cannot be set behind"),
        ("stdin | set fields.a=1", 13, "write set a = EXPRESSION"),
        ("stdin | rename a=b", 16, "expected `->`"),
        ("stdin | wher a == 1", 9, "did you mean `where`?"),
        ("stdin | file a | file b", 9, "has one output"),
        ("a.log | stdout", 1, "file a.log"),
    ] {
        let error = parse(text).expect_err(text);
        assert!(
            error.to_string().contains(part),
            "{text}: {part} in\n{error}"
        );
        assert_eq!(error.column(), Some(column), "{text}\n{error}");
    }
    for text in [
        "stdin | grok x if='a == b' if2=c\"d e\"",
        "stdin | grok \"==\" | discard",
        "file 'stdout' '>' '--x' | discard",
        "file stdout | discard",
        "stdin | date a b \"where\" | discard",
        "stdin | where a == {\"b\": [c, d]} && e <= f && g != 'h=i' | discard",
        "stdin | set a = b <= c, d = e != f, g = h == i ? j : k | discard",
    ] {
        parse(text).expect(text);
    }
}

#[test]
fn backticks_stay_in_the_names_of_fields() {
    for (stage, expected) in [
        ("remove `a b`, c.`d.e` f", "fields: ['`a b`', 'c.`d.e`', f]"),
        (
            "rename a.`b -> c` -> `d | e`",
            "fields: {'a.`b -> c`': '`d | e`'}",
        ),
        ("set `a=b` = `c d` + 1", "fields: {'`a=b`': '`c d` + 1'}"),
        ("put `a b` to=`c | d`", "{from: '`a b`', to: '`c | d`'}"),
        ("put a`b", "{from: 'a`b'}"),
    ] {
        let expected = parse_yaml(&Source::new("t.yaml", expected)).expect("YAML");
        assert_eq!(settings(stage).expect(stage), expected, "{stage}");
    }
}

#[test]
fn one_value_stands_behind_a_name() {
    for (item, part) in [
        ("put: a b", "for example: put a b"),
        ("put: a to=b", "reads like several"),
        ("date: a b", "reads like several"),
        ("date: 'a b'", "reads like several"),
    ] {
        let yaml = format!("pipelines: {{ p: {{ processors: [{item}] }} }}");
        let tree = parse_yaml(&Source::new("t.yaml", yaml)).expect("valid");
        let error = expand_short_forms(tree, &Components).expect_err(item);
        assert!(error.to_string().contains(part), "{item}: {error}");
    }
    for (input, is_right) in [
        ("a.log", true),
        ("'my a.log'", true),
        ("['a, b.log', c d=e]", true),
        ("'a.log, b.log'", false),
        ("'a.log x=y'", false),
        ("a.log b.log", false),
    ] {
        let yaml = format!("pipelines: {{ p: {{ input: {{ file: {input} }} }} }}");
        let tree = parse_yaml(&Source::new("t.yaml", yaml)).expect("valid");
        let expanded = expand_short_forms(tree, &Components);
        assert_eq!(expanded.is_ok(), is_right, "{input}");
    }
}

#[test]
fn a_pipeline_without_ends_gets_them() {
    let parse = |text: &str| parse_yaml(&Source::new("t.yaml", text)).expect("valid");
    for (short, long) in [
        (
            "{ processors: [] }",
            "{ processors: [], input: stdin, output: stdout }",
        ),
        (
            "{ inputs: [file x], queue: disk }",
            "{ inputs: [file: { paths: [x] }], queue: disk, output: stdout }",
        ),
        (
            "{ outputs: [discard] }",
            "{ outputs: [discard], input: stdin }",
        ),
        ("{}", "{}"),
    ] {
        let expanded =
            expand_short_forms(parse(&format!("pipelines: {{ p: {short} }}")), &Components);
        let expected = parse(&format!("pipelines: {{ p: {long} }}"));
        assert_eq!(expanded.expect(short), expected, "{short}");
    }
}
