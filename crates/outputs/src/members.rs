//! Members of a JSON object whose values are the texts of templates.

use std::sync::Arc;

use batch::{Batch, FieldRead, json};
use config::{ConfigError, Node};
use expr::{Absent, BoundTemplate, Template};

use crate::codec::escape_json;

/// Names with the templates of their values. A value that is empty is left out.
#[derive(Debug, Default)]
pub struct Members(Vec<Member>);

#[derive(Debug)]
struct Member {
    /// A comma, the name, and what stands before the value.
    open: Vec<u8>,
    template: Template,
}

impl Members {
    /// Adds a member whose template is that of the setting `at` of an output.
    ///
    /// # Errors
    /// What is wrong with the template, with its place.
    pub fn add(
        &mut self,
        output: &Node,
        at: &Node,
        name: &str,
        text: &str,
    ) -> Result<(), ConfigError> {
        let template = crate::codec::template(output, at, text)?;
        let mut open = vec![b','];
        json::write_string(&mut open, name.as_bytes());
        open.extend_from_slice(b":\"");
        self.0.push(Member { open, template });
        Ok(())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The fields that its templates name.
    pub fn reads(&self) -> impl Iterator<Item = Arc<FieldRead>> {
        self.0.iter().flat_map(|member| member.template.reads())
    }

    /// The members over the columns of one batch.
    pub fn bind<'a>(&'a self, batch: &Batch) -> BoundMembers<'a> {
        let mut pieces: Vec<Piece<'a>> = Vec::new();
        for member in &self.0 {
            let mut template = member.template.bind(batch, Absent::Text(""));
            let is_constant = template.is_constant() && !batch.is_empty();
            match (is_constant, pieces.last_mut()) {
                (false, _) => pieces.push(Piece::Varying(member, template)),
                (true, Some(Piece::Constant(text))) => write(member, &mut template, 0, text),
                (true, _) => {
                    let mut text = Vec::new();
                    write(member, &mut template, 0, &mut text);
                    pieces.push(Piece::Constant(text));
                }
            }
        }
        BoundMembers(pieces)
    }
}

/// Members over the columns of one batch, in their order.
pub struct BoundMembers<'a>(Vec<Piece<'a>>);

enum Piece<'a> {
    /// Members that are the same for all rows.
    Constant(Vec<u8>),
    Varying(&'a Member, BoundTemplate<'a>),
}

impl BoundMembers<'_> {
    /// Appends the members of a row, each with a comma before it.
    pub fn write(&mut self, row: usize, out: &mut Vec<u8>) {
        for piece in &mut self.0 {
            match piece {
                Piece::Constant(text) => out.extend_from_slice(text),
                Piece::Varying(member, template) => write(member, template, row, out),
            }
        }
    }

    /// Appends `open` and the members of a row as an object; nothing where it has none.
    pub fn write_object(&mut self, open: &[u8], row: usize, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(open);
        let first = out.len();
        self.write(row, out);
        match out.get_mut(first) {
            Some(comma) => {
                *comma = b'{';
                out.push(b'}');
            }
            None => out.truncate(start),
        }
    }
}

fn write(member: &Member, template: &mut BoundTemplate<'_>, row: usize, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&member.open);
    let value = out.len();
    template.write(row, out);
    if out.len() == value {
        return out.truncate(start);
    }
    escape_json(out, value);
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn members_without_a_value_are_left_out() {
        let node = config::parse_yaml(&config::Source::new("t.yaml", "{}")).expect("YAML");
        let mut members = Members::default();
        for (name, text) in [("a", "%{a}"), ("fixed", "\"x\""), ("b", "%{b}")] {
            members.add(&node, &node, name, text).expect("a template");
        }
        let batch = testing::documents(&[r#"{"a":1,"b":"y\n"}"#, r#"{"b":null}"#]);
        let mut bound = members.bind(&batch);
        let mut shown = |row| {
            let mut out = Vec::new();
            bound.write_object(b"=", row, &mut out);
            String::from_utf8(out).expect("UTF-8")
        };
        assert_eq!(shown(0), r#"={"a":"1","fixed":"\"x\"","b":"y\n"}"#);
        assert_eq!(shown(1), r#"={"fixed":"\"x\""}"#);
        let none = Members::default();
        let mut out = Vec::new();
        none.bind(&batch).write_object(b"=", 0, &mut out);
        assert!(out.is_empty());
    }
}
