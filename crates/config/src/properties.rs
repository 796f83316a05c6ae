//! Properties of the parsers and the emitter over random input.

use std::fmt::Write as _;
use std::sync::Arc;

use proptest::prelude::*;

use crate::{
    Catalogue, Node, Positional, Shape, Source, Span, StageRole, expand_short_forms, parse_oneline,
    parse_yaml, to_yaml,
};

/// A tree without places.
#[derive(Debug, Clone)]
enum Tree {
    Null,
    Scalar(String, bool),
    List(Vec<Tree>),
    Map(Vec<(String, Tree)>),
}

impl Tree {
    fn node(&self, source: &Arc<Source>) -> Node {
        let span = Span::default();
        match self {
            Self::Null => Node::new(source, span, crate::NodeKind::Null),
            Self::Scalar(text, quoted) => Node::scalar(source, span, text, *quoted),
            Self::List(items) => Node::list(
                source,
                span,
                items.iter().map(|item| item.node(source)).collect(),
            ),
            Self::Map(entries) => {
                let entry = |(key, value): &(String, Tree)| {
                    (Node::scalar(source, span, key, true), value.node(source))
                };
                Node::map(source, span, entries.iter().map(entry).collect())
            }
        }
    }
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z0-9 :#'\"{}|>%@!&*?.,~=<\\[\\]\\\\-]{0,8}",
        "\\PC{0,6}",
        any::<String>(),
        "[0-9+._xoe-]{1,5}",
        prop::sample::select(vec![
            "true", "null", "~", "1", "-1.5", ".inf", "0x1F", "yes", "", "<<", "---", "...", "- a",
            "a: b", "a #b"
        ])
        .prop_map(str::to_owned),
        "[a-z]{1000,1100}",
    ]
}

fn tree() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![
        1 => Just(Tree::Null),
        6 => (text(), any::<bool>()).prop_map(|(text, quoted)| Tree::Scalar(text, quoted)),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Tree::List),
            prop::collection::btree_map(text(), inner, 0..4)
                .prop_map(|map| Tree::Map(map.into_iter().collect())),
        ]
    })
}

/// One value of a stage as a person could write it, with what it means.
fn word() -> impl Strategy<Value = (String, String)> {
    prop_oneof![
        "[a-z0-9./:*][a-z0-9./:*-]{0,7}".prop_map(|text| (text.clone(), text)),
        "[^']{0,8}".prop_map(|text| (format!("'{text}'"), text)),
        any::<String>().prop_map(|text| {
            let written = text.replace('\\', "\\\\").replace('"', "\\\"");
            (format!("\"{written}\""), text)
        }),
    ]
}

#[derive(Debug, Clone)]
struct RandomStage {
    name: &'static str,
    positional: Vec<(String, String)>,
    named: Vec<(String, (String, String))>,
}

fn stage(name: &'static str) -> impl Strategy<Value = RandomStage> {
    let named = prop::collection::btree_map("[a-z_][a-z0-9_]{0,5}", word(), 0..4);
    (prop::collection::vec(word(), 0..4), named).prop_map(move |(positional, named)| RandomStage {
        name,
        positional,
        named: named.into_iter().collect(),
    })
}

impl RandomStage {
    fn oneline(&self) -> String {
        let mut out = self.name.to_owned();
        for (written, _) in &self.positional {
            let _ = write!(out, " {written}");
        }
        for (name, (written, _)) in &self.named {
            let _ = write!(out, "\n{name}={written}");
        }
        out
    }

    fn tree(&self) -> Tree {
        let scalar = |(written, meant): &(String, String)| {
            let quoted = written != meant || meant.is_empty();
            Tree::Scalar(meant.clone(), quoted)
        };
        let mut entries = Vec::new();
        if !self.positional.is_empty() {
            let items = self.positional.iter().map(scalar).collect();
            entries.push(("Values".to_owned(), Tree::List(items)));
        }
        let named = self
            .named
            .iter()
            .map(|(name, value)| match value.0.as_str() {
                "null" => (name.clone(), Tree::Null),
                _ => (name.clone(), scalar(value)),
            });
        entries.extend(named);
        Tree::Map(vec![(self.name.to_owned(), Tree::Map(entries))])
    }
}

/// Components that take any number of values, and one that takes an expression.
struct AnyComponent;

impl Catalogue for AnyComponent {
    fn positional(&self, _: StageRole, name: &str) -> Option<Positional> {
        match name {
            "where" => Some(Positional::whole(&["condition"], Shape::Expression)),
            "set" => Some(Positional::whole(&["fields"], Shape::Assignments)),
            "rename" => Some(Positional::whole(&["fields"], Shape::Renames)),
            "remove" => Some(Positional::whole(&["fields"], Shape::Names)),
            // The name has a capital, so that no setting of a random stage is called so.
            "a_" | "b_" | "c_" => Some(Positional::with_rest(&["Values"])),
            _ => None,
        }
    }

    fn names(&self, _: StageRole) -> Vec<&str> {
        vec!["any"]
    }
}

proptest! {
    #[test]
    fn yaml_reads_back_as_it_was(tree in tree()) {
        let source = Source::new("t.yaml", "");
        let node = tree.node(&source);
        let text = to_yaml(&node);
        let read = parse_yaml(&Source::new("t.yaml", text.clone()));
        prop_assert_eq!(read.map_err(|error| format!("{error}\n{text}")), Ok(node), "{}", text);
    }

    #[test]
    fn a_rendered_pipeline_reads_as_it_was_meant(
        input in stage("a_"), processors in prop::collection::vec(stage("b_"), 0..3), output in stage("c_")
    ) {
        let stages: Vec<&RandomStage> = [&input].into_iter().chain(&processors).chain([&output]).collect();
        let text: Vec<String> = stages.iter().map(|stage| stage.oneline()).collect();
        let source = Source::command_line(text.join(" | "));
        let read = parse_oneline(&source, &AnyComponent);
        let mut entries = vec![("input".to_owned(), input.tree())];
        if !processors.is_empty() {
            let trees = processors.iter().map(RandomStage::tree).collect();
            entries.push(("processors".to_owned(), Tree::List(trees)));
        }
        entries.push(("outputs".to_owned(), Tree::List(vec![output.tree()])));
        let pipelines = Tree::Map(vec![("main".to_owned(), Tree::Map(entries))]);
        let expected = Tree::Map(vec![("pipelines".to_owned(), pipelines)]).node(&source);
        let read = read.map_err(|error| error.to_string());
        prop_assert_eq!(read.as_ref(), Ok(&expected));
        let yaml = Source::new("t.yaml", to_yaml(&expected));
        prop_assert_eq!(parse_yaml(&yaml).map_err(|error| error.to_string()), Ok(expected));
    }

    #[test]
    fn no_text_makes_a_parser_panic(
        text in prop_oneof![any::<String>(), "[a-c:\\-{}\\[\\],&*!|>'\"%@#?<= \n\t\r\u{feff}é]{0,60}"]
    ) {
        let yaml = Source::new("t.yaml", text.clone());
        let _ = parse_yaml(&yaml).map(|node| to_yaml(&node)).map_err(|error| error.to_string());
        let stages = ["", "where", "set", "rename", "remove"];
        let stages = stages.iter().map(|name| format!("a_ | {name} {text} | b_"));
        for text in stages.chain([text.clone()]) {
            let source = Source::command_line(text);
            let _ = parse_oneline(&source, &AnyComponent).map_err(|error| error.to_string());
        }
        let short = format!("pipelines:\n  a: {text}\n  b:\n    processors:\n      - set: {text}\n      - b_ {text}\n");
        if let Ok(tree) = parse_yaml(&Source::new("t.yaml", short)) {
            let _ = expand_short_forms(tree, &AnyComponent).map_err(|error| error.to_string());
        }
    }

    #[test]
    fn errors_render_anywhere(text in any::<String>(), start in 0..40_usize, length in 0..40_usize, at in 0..20_usize) {
        let source = Source::command_line(text);
        let node = Node::scalar(&source, Span::new(start, start + length), "vä\nlue", true);
        let rendered = node.error("m").pointing_at(at).to_string();
        prop_assert!(rendered.starts_with("error: m"));
    }
}
