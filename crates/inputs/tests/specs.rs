//! What every input says of itself.

use std::sync::Arc;

use batch::HostInfo;
use component::{Build, BuildContext};
use config::{Catalogue, Positional, Source, StageRole, parse_oneline};

/// The inputs, and one output so that a pipeline has an end.
struct Inputs;

impl Catalogue for Inputs {
    fn positional(&self, role: StageRole, name: &str) -> Option<Positional> {
        match role {
            StageRole::Input => inputs::SPECS
                .iter()
                .find(|spec| spec.name == name)
                .map(|spec| spec.positional),
            _ => (name == "end").then_some(Positional::NONE),
        }
    }

    fn names(&self, _: StageRole) -> Vec<&str> {
        inputs::SPECS.iter().map(|spec| spec.name).collect()
    }
}

#[test]
fn every_example_is_accepted() {
    let context = BuildContext {
        host: Arc::new(HostInfo { name: "h".into() }),
        tag: None,
        finite: true,
    };
    for spec in inputs::SPECS {
        let Build::Input(build) = spec.build else {
            panic!("{} is an input", spec.name)
        };
        assert!(!spec.examples.is_empty(), "{} has an example", spec.name);
        for example in spec.examples {
            let source = Source::command_line(format!("{} | end", example.stage));
            let tree = parse_oneline(&source, &Inputs).unwrap_or_else(|error| panic!("{error}"));
            let input = tree.nearest("pipelines.main.input");
            let (name, settings) = input
                .component("input")
                .unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(name.as_str(), Some(spec.name));
            build(&settings, &context)
                .map(|_| ())
                .unwrap_or_else(|error| panic!("{error}"));
        }
    }
}

#[test]
fn every_setting_is_described() {
    for spec in inputs::SPECS {
        let mut generator = schemars::SchemaGenerator::default();
        let schema = (spec.schema)(&mut generator);
        let definitions = generator.take_definitions(true);
        let name = schema
            .get("$ref")
            .and_then(|reference| reference.as_str()?.rsplit('/').next());
        let config = name.map_or(schema.as_value(), |name| &definitions[name]);
        let settings = config["properties"].as_object().expect("settings");
        for (setting, described) in settings {
            assert!(
                described.get("description").is_some(),
                "`{setting}` of {} is described",
                spec.name
            );
        }
        for setting in spec.positional.fields {
            assert!(
                settings.contains_key(*setting),
                "`{setting}` of {} exists",
                spec.name
            );
        }
    }
}

#[test]
fn names_are_in_order() {
    assert!(inputs::SPECS.is_sorted_by_key(|spec| spec.name));
}
