//! Names of fields as configurations spell them, and what is written in their place by mistake.

use batch::FieldPath;
use config::{ConfigError, Node};

/// The field that `text` names, which stands at `at`.
///
/// # Errors
/// A text that is not a field name: the call of a function, a reference such as `%{a}`, an empty part.
pub fn path(at: &Node, text: &str) -> Result<FieldPath, ConfigError> {
    if let Some(name) = text.strip_prefix("%{") {
        let name = name.strip_suffix('}').unwrap_or(name);
        let error = at.error(format!("`{text}` is not a field name"));
        return Err(error.note(format!(
            "`%{{…}}` belongs in a pattern or a template, in quotes; a field is written as it is called: {name}"
        )));
    }
    if call(text).is_some() {
        let error = at.error(format!("`{text}` is not a field name but an expression"));
        return Err(error.note(format!(
            "`set NAME = {text}` writes its value to a field; a field that is called so is written ['{text}']"
        )));
    }
    component::field_at(at, text)
}

/// The field that the setting `name` of `node` holds.
///
/// # Errors
/// As for [`path`].
pub fn field(node: &Node, name: &str, text: &str) -> Result<FieldPath, ConfigError> {
    path(node.nearest(name), text)
}

/// The setting `target` of `node`: the object that gets the fields; none where these become fields of the event.
///
/// # Errors
/// As for [`path`].
pub fn target(node: &Node, text: Option<&str>) -> Result<Option<FieldPath>, ConfigError> {
    text.map(|text| field(node, "target", text)).transpose()
}

/// The path of the field with these keys in the object `target`, or in the event itself.
pub fn below<K: Into<Box<str>>>(
    target: Option<&FieldPath>,
    keys: impl IntoIterator<Item = K>,
) -> FieldPath {
    let above = target.map_or(&[][..], FieldPath::keys).iter().cloned();
    FieldPath::from_keys(above.chain(keys.into_iter().map(Into::into)))
}

/// Whether the paths are the same or one lies in the other.
pub fn overlap(a: &FieldPath, b: &FieldPath) -> bool {
    a.keys().starts_with(b.keys()) || b.keys().starts_with(a.keys())
}

/// The name and the arguments of a function that `text` calls.
pub fn call(text: &str) -> Option<(&str, &str)> {
    let (name, rest) = text.split_once('(')?;
    let arguments = rest.strip_suffix(')')?;
    let is_function = expr::functions().any(|function| function.name == name);
    is_function.then_some((name, arguments))
}
