//! What every input says of itself.

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
        // One that has no settings has no list of them.
        let none = serde_json::Map::new();
        let settings = match config.get("properties") {
            Some(settings) => settings.as_object().expect("settings"),
            None => &none,
        };
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
