use super::*;
use crate::parse_yaml;

pub(crate) struct Components;

const INPUTS: &[(&str, Positional)] = &[
    ("file", Positional::with_rest(&["paths"])),
    ("stdin", Positional::NONE),
    ("generate", Positional::fields(&["kind"])),
];
const PROCESSORS: &[(&str, Positional)] = &[
    ("grok", Positional::fields(&["pattern"])),
    ("date", Positional::with_rest(&["field", "formats"])),
    ("where", Positional::expression(&["condition"])),
    ("set", Positional::NONE),
    ("rename", Positional::fields(&["from", "to"])),
    ("put", Positional::fields(&["field", "value"]).typed()),
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
        "set a=1 b='1' c= d=x=y e=null _f=null1",
        r#"{a: 1, b: "1", c: "", d: x=y, e: null, _f: null1}"#,
    ),
    ("set a.b=1 a.c.d=2 e.f=3", "{a: {b: 1, c.d: 2}, e: {f: 3}}"),
    (
        r#"grok "%{FOO:x}" definitions.FOO="\d+" definitions.B2=x"#,
        r#"{pattern: "%{FOO:x}", definitions: {FOO: "\\d+", B2: x}}"#,
    ),
    (
        "rename fields.Host=b fields.host.name=h fields.@x-Y=[1] fields.Host=c fields.größe=g",
        "{fields: {Host: [b, c], host.name: h, @x-Y: [1], größe: g}}",
    ),
    ("put a null", "{field: a, value: null}"),
    ("put a 'null'", r#"{field: a, value: "null"}"#),
    ("put a [1, 'x y',z]", r#"{field: a, value: [1, "x y", z]}"#),
    ("put a [a-z]+", "{field: a, value: [a-z]+}"),
    ("put a '[1]'", r#"{field: a, value: "[1]"}"#),
    ("rename null [a]", "{from: null, to: [a]}"),
    ("rename a.=b a.b==c", "{from: a.=b, to: a.b==c}"),
    ("rename a.'b'=c A.b=d", r#"{from: "a.b=c", to: A.b=d}"#),
    (
        "set a=[x, 'y, z',w] b=[] c=[ ]",
        r#"{a: [x, "y, z", w], b: [], c: []}"#,
    ),
    ("set a=[x]+ b='[x]'", r#"{a: [x]+, b: "[x]"}"#),
    (
        "set a=1 a=2 a=[3,4] b.c=5 b.c=6",
        "{a: [1, 2, 3, 4], b: {c: [5, 6]}}",
    ),
    ("set if='a || b'", r#"{if: "a || b"}"#),
    ("set if=a||b", "{if: a||b}"),
    ("date f", "{field: f}"),
    ("date f a 'b c'", r#"{field: f, formats: [a, "b c"]}"#),
    ("date f formats=x", "{field: f, formats: x}"),
    ("rename target=x a b", "{target: x, from: a, to: b}"),
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
    ("where if=x", r#"{condition: "if=x"}"#),
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
    ("", 1, "a stage is empty"),
    ("  ", 3, "a stage is empty"),
    ("stdin | | discard", 9, "a stage is empty"),
    ("stdin |", 8, "a stage is empty"),
    ("| stdin", 1, "a stage is empty"),
    ("stdin", 6, "a pipeline needs an input and an output"),
    ("stdni", 1, "did you mean `stdin`?"),
    (
        "stdin | grokk x | discard",
        9,
        "there is no processor `grokk`",
    ),
    (
        "stdin | grokk x | discard",
        9,
        "accepted: grok, date, where, set, rename, put",
    ),
    (
        "stdin | stdout | discard",
        9,
        "`stdout` is an output; stages in the middle must be processors",
    ),
    (
        "grok x | discard",
        1,
        "`grok` is a processor; the first stage must be an input",
    ),
    (
        "stdin | grok x",
        9,
        "`grok` is a processor; the last stage must be an output",
    ),
    ("stdin | where a", 9, "the last stage must be an output"),
    (
        "stdin | grok 'x | discard",
        14,
        "the quote ' that opens here is never closed",
    ),
    (
        "stdin | grok a \"x\\\" | discard",
        16,
        "the quote \" that opens here",
    ),
    (
        "stdin | where a == 'x | discard",
        20,
        "the quote ' that opens here",
    ),
    (
        "stdin | grok a b | discard",
        16,
        "grok takes one value by position, its pattern",
    ),
    ("stdin | rename a b c | discard", 20, "accepted: from, to"),
    (
        "stdin | set a | discard",
        13,
        "set takes no value by position",
    ),
    (
        "stdin | grok a pattern=b | discard",
        16,
        "by position and by its name",
    ),
    (
        "stdin | grok pattern=b a | discard",
        24,
        "by its name and by position",
    ),
    (
        "stdin | date formats=b a c | discard",
        26,
        "`formats` is given by its name and by position",
    ),
    (
        "stdin | set a=1 a.b=2 | discard",
        17,
        "`a` is given as a value and, with a dot, as a map",
    ),
    (
        "stdin | set a.b=2 a=1 | discard",
        19,
        "`a` is given as a value",
    ),
    (
        "stdin | set a=[x | discard",
        15,
        "this list has no closing `]`",
    ),
    ("stdin | set a=[x y] | discard", 18, "expected `,` or `]`"),
    ("stdin | set a=[,x] | discard", 16, "an item is missing"),
    ("stdin | put a [x | discard", 15, "no closing `]`"),
    ("stdin | put a b [x] | discard", 17, "put takes 2 values"),
    ("stdin || discard", 7, "`||` belongs into an expression"),
    (
        "stdin | grok a || b | discard",
        16,
        "`||` belongs into an expression",
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
        assert_eq!(error.file(), Some("<command line>"));
    }
}

#[test]
fn values_by_position_are_text_unless_the_component_has_typed_ones() {
    let value = |stage: &str, name: &str| {
        let node = settings(stage).expect(stage);
        node.get(name).map(|value| value.kind.clone())
    };
    let is_text = |kind| matches!(kind, Some(NodeKind::Scalar { .. }));
    assert!(is_text(value("rename null [a]", "from")));
    assert!(is_text(value("rename null [a]", "to")));
    assert!(is_text(value("put a 'null'", "value")));
    assert!(matches!(value("put a null", "value"), Some(NodeKind::Null)));
    assert!(matches!(
        value("put a [b]", "value"),
        Some(NodeKind::List(_))
    ));
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
        error.to_string().contains("`basic` is given as a value"),
        "{error}"
    );
}
