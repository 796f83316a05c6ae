//! One stage: a component's name and its settings.

use std::sync::Arc;

use super::lexer::{Cursor, Token, Value, Word};
use super::{Catalogue, Positional, Shape, StageRole, slips};
use crate::error::ConfigError;
use crate::node::{Node, NodeKind};
use crate::source::{Source, Span};

/// A stage that was read before its role was known: only the end of the text says which stage is the output.
pub(super) struct Stage {
    source: Arc<Source>,
    name: Word,
    body: Body,
}

enum Body {
    Expression(Word),
    /// Names, each with what is said of it.
    Pairs(Vec<(Word, Word)>),
    Names(Vec<Word>),
    Tokens(Vec<Token>),
}

impl Stage {
    /// A stage that nobody wrote.
    pub(super) fn bare(source: &Arc<Source>, place: usize, name: &str) -> Self {
        Self {
            source: source.clone(),
            name: Word {
                span: Span::empty(place),
                text: name.to_owned(),
                quoted: false,
            },
            body: Body::Tokens(Vec::new()),
        }
    }

    /// Reads a stage up to its end. Which shape it has decides where that is.
    pub(super) fn parse(
        cursor: &mut Cursor<'_>,
        is_first: bool,
        catalogue: &dyn Catalogue,
    ) -> Result<Self, ConfigError> {
        if let Some(end) = cursor.at_stage_end() {
            return Err(cursor
                .error(end, "empty stage: the name of a component is missing here")
                .note("stages are separated by `|`, for example: file access.log | stdout"));
        }
        let name = cursor.name();
        let roles: &[StageRole] = match is_first {
            true => &[StageRole::Input, StageRole::Processor, StageRole::Output],
            false => &[StageRole::Processor, StageRole::Output],
        };
        let mut known = roles
            .iter()
            .filter_map(|role| catalogue.positional(*role, &name.text));
        let shape = known.next().unwrap_or_default().shape;
        let body = Body::parse(cursor, &name, shape)?;
        let source = Arc::clone(cursor.source);
        Ok(Self { source, name, body })
    }

    /// Reads what stands after a component's name, up to the end of the text.
    pub(super) fn of_settings(
        mut cursor: Cursor<'_>,
        name: Word,
        shape: Shape,
    ) -> Result<Self, ConfigError> {
        let body = Body::parse(&mut cursor, &name, shape)?;
        if cursor.at_stage_end().is_some_and(|end| end.start < end.end) {
            let message = "a `|` ends a stage";
            return Err(cursor.error(cursor.next_char(), message));
        }
        let source = Arc::clone(cursor.source);
        Ok(Self { source, name, body })
    }

    /// Why the component cannot have a role; none when it can.
    pub(super) fn role_error(
        &self,
        role: StageRole,
        catalogue: &dyn Catalogue,
    ) -> Option<ConfigError> {
        let name = &self.name.text;
        if catalogue.positional(role, name).is_some() {
            return None;
        }
        let others = [StageRole::Output, StageRole::Processor, StageRole::Input];
        let other = others
            .into_iter()
            .find(|other| catalogue.positional(*other, name).is_some());
        let message = match other {
            None if role == StageRole::Output => {
                return Some(self.unknown(&[StageRole::Processor, role], catalogue));
            }
            None => return Some(self.unknown(&[role], catalogue)),
            Some(other) => {
                let place = match role {
                    StageRole::Input => "the first stage must be an input",
                    StageRole::Processor => "stages in the middle must be processors",
                    StageRole::Output => "the last stage must be an output",
                };
                format!("`{name}` is {}; {place}", other.with_article())
            }
        };
        let error = ConfigError::in_source(&self.source, self.name.span, message);
        let error = match (role, other) {
            (StageRole::Processor, Some(StageRole::Output)) => error.note(
                "a one-line pipeline has one output; several are listed below `outputs` in YAML",
            ),
            _ => error,
        };
        Some(error.accepted(catalogue.names(role)).closest_to(name))
    }

    /// The error for a name that no component has, where one of these was expected.
    fn unknown(&self, roles: &[StageRole], catalogue: &dyn Catalogue) -> ConfigError {
        let name = &self.name.text;
        let words: Vec<&str> = roles.iter().map(|role| role.word()).collect();
        let message = format!("there is no {} `{name}`", words.join(" or "));
        let names = roles.iter().flat_map(|role| catalogue.names(*role));
        let error = ConfigError::in_source(&self.source, self.name.span, message)
            .accepted(names)
            .closest_to(name);
        let error = match meant(name) {
            Some(meant) if error.accepted_words().iter().any(|word| word == meant) => {
                error.suggest(meant)
            }
            _ => error,
        };
        let is_path = name.contains(['.', '/', '~', '*']);
        match (roles.first(), is_path, &**name) {
            (Some(StageRole::Input), true, _) => error.note(format!("to read a file: file {name}")),
            (Some(StageRole::Processor), true, _) if roles.len() > 1 => {
                error.note(format!("to write to a file: file {name}"))
            }
            (_, _, "follow" | "tail") => error
                .note("to follow a file and read what is appended to it: file PATH follow=true"),
            _ => error,
        }
    }

    /// The node `{name: {settings}}`.
    pub(super) fn into_node(
        self,
        role: StageRole,
        catalogue: &dyn Catalogue,
    ) -> Result<Node, ConfigError> {
        if let Some(error) = self.role_error(role, catalogue) {
            return Err(error);
        }
        let positional = catalogue
            .positional(role, &self.name.text)
            .unwrap_or_default();
        let mut settings = Settings {
            source: &self.source,
            component: &self.name.text,
            positional,
            taken: 0,
            entries: Vec::new(),
        };
        match self.body {
            Body::Expression(expression) => settings.expression(expression),
            Body::Pairs(pairs) => settings.pairs(pairs)?,
            Body::Names(names) => settings.names(names),
            Body::Tokens(tokens) => {
                slips::refuse(
                    &self.source,
                    &self.name.text,
                    positional.shape,
                    &tokens,
                    catalogue,
                )?;
                for token in tokens {
                    settings.token(token)?;
                }
            }
        }
        let spans = settings
            .entries
            .iter()
            .map(|(key, value)| key.span.join(value.span));
        let span = spans.reduce(Span::join).unwrap_or(self.name.span);
        let settings = Node::map(&self.source, span, settings.entries);
        let name = word_node(&self.source, self.name);
        let whole = name.span.join(span);
        Ok(Node::map(&self.source, whole, vec![(name, settings)]))
    }
}

impl Body {
    fn parse(cursor: &mut Cursor<'_>, name: &Word, shape: Shape) -> Result<Self, ConfigError> {
        if shape.is_whole() {
            no_settings(cursor, name, shape)?;
        }
        let pairs = |cursor: &mut Cursor<'_>, is_rename: bool| {
            let mut pairs = Vec::new();
            while cursor.at_stage_end().is_none() {
                pairs.push(match is_rename {
                    true => cursor.new_name()?,
                    false => cursor.assignment()?,
                });
                if !cursor.comma() {
                    break;
                }
            }
            match cursor.at_stage_end() {
                Some(_) => Ok(Self::Pairs(pairs)),
                None => {
                    let place = cursor.next_char();
                    Err(cursor.error(place, "expected a comma or the end of the stage here"))
                }
            }
        };
        Ok(match shape {
            Shape::Expression => Self::Expression(cursor.expression()?),
            Shape::Assignments => pairs(cursor, false)?,
            Shape::Renames => pairs(cursor, true)?,
            Shape::Names => {
                let mut names = Vec::new();
                while cursor.at_stage_end().is_none() {
                    names.push(cursor.field(&[])?);
                    cursor.comma();
                }
                Self::Names(names)
            }
            Shape::Values | Shape::Rest => {
                let mut tokens = Vec::new();
                while let Some(token) = cursor.token(&[])? {
                    tokens.push(token);
                }
                Self::Tokens(tokens)
            }
            Shape::List => {
                let mut tokens = Vec::new();
                while let Some(token) = cursor.token(&[','])? {
                    tokens.push(token);
                    cursor.comma();
                }
                Self::Tokens(tokens)
            }
        })
    }
}

/// The settings of every processor: in a stage that is an expression they would be a part of it.
const COMMON: [&str; 3] = ["if", "on_failure", "tag"];

/// Refuses a setting where the rest of the stage is an expression or the like.
fn no_settings(cursor: &mut Cursor<'_>, name: &Word, shape: Shape) -> Result<(), ConfigError> {
    cursor.skip_space();
    let Some(setting) = cursor.peek_setting() else {
        return Ok(());
    };
    let (component, given) = (&name.text, &setting.text);
    let is_setting = COMMON.contains(&&**given);
    match shape {
        Shape::Assignments if !is_setting && !given.starts_with("fields.") => return Ok(()),
        // The expression's own error names `==`.
        Shape::Expression if !is_setting && given != "condition" => return Ok(()),
        Shape::Renames if !is_setting => {
            let message = format!("expected `->` and the new name after `{given}`");
            return Err(cursor
                .error(setting.span, message)
                .note(format!("example: {component} clientip -> source.ip")));
        }
        Shape::Assignments if !is_setting => {
            let field = &given["fields.".len()..];
            let message = format!("`{component}` takes the names of fields without `fields.`");
            return Err(cursor
                .error(setting.span, message)
                .note(format!("write {component} {field} = EXPRESSION"))
                .note(format!(
                    "for a field in an object `fields`: {component} {given} = EXPRESSION, with blanks around the `=`"
                )));
        }
        _ => {}
    }
    let written = match shape {
        Shape::Expression => format!("{component} level == \"DEBUG\""),
        Shape::Assignments => format!("{component} total = bytes_in + bytes_out, env = \"prod\""),
        Shape::Renames => format!("{component} clientip -> source.ip"),
        _ => format!("{component} message, host"),
    };
    let message =
        format!("`{component}` does not accept the setting `{given}` in a one-line pipeline");
    Err(cursor
        .error(setting.span, message)
        .note(format!(
            "the rest of the stage belongs to it, for example: {written}"
        ))
        .note(format!(
            "in YAML, `{given}` can be set like any other setting"
        )))
}

/// The settings of a stage as they gather.
struct Settings<'s> {
    source: &'s Arc<Source>,
    component: &'s str,
    positional: Positional,
    /// How many values came by position.
    taken: usize,
    entries: Vec<(Node, Node)>,
}

impl Settings<'_> {
    fn expression(&mut self, expression: Word) {
        let field = self.positional.fields.first().copied();
        if let Some(field) = field.filter(|_| !expression.text.is_empty()) {
            let key = Node::scalar(self.source, expression.span, field, false);
            self.entries.push((key, word_node(self.source, expression)));
        }
    }

    fn pairs(&mut self, pairs: Vec<(Word, Word)>) -> Result<(), ConfigError> {
        let spans = pairs.iter().map(|(name, value)| name.span.join(value.span));
        let Some(span) = spans.reduce(Span::join) else {
            return Ok(());
        };
        let mut entries: Vec<(Node, Node)> = Vec::with_capacity(pairs.len());
        for (name, value) in pairs {
            let is_known = |(key, _): &(Node, Node)| key.as_str() == Some(&*name.text);
            if entries.iter().any(is_known) {
                let message = format!("`{}` is given twice", name.text);
                return Err(self.error(name.span, message));
            }
            entries.push((word_node(self.source, name), word_node(self.source, value)));
        }
        if let Some(field) = self.positional.fields.first() {
            self.push(field, span, Node::map(self.source, span, entries));
        }
        Ok(())
    }

    fn names(&mut self, names: Vec<Word>) {
        let Some(span) = names.iter().map(|name| name.span).reduce(Span::join) else {
            return;
        };
        let names = names.into_iter().map(|name| word_node(self.source, name));
        let list = Node::list(self.source, span, names.collect());
        if let Some(field) = self.positional.fields.first() {
            self.push(field, span, list);
        }
    }

    fn token(&mut self, token: Token) -> Result<(), ConfigError> {
        match token {
            Token::Positional(value) => self.by_position(value),
            Token::Setting { name, value } => {
                let value = value_node(self.source, value);
                self.insert_named(&self.steps(&name.text), name.span, value)
            }
        }
    }

    /// The keys that lead to a setting. What follows the first dot is one key, as names of fields have dots of their own,
    /// but where the component has a map there.
    fn steps<'n>(&self, name: &'n str) -> Vec<&'n str> {
        let inner = |map: &&str| {
            let key = name.strip_prefix(map)?.strip_prefix('.')?;
            (!key.is_empty()).then_some((&name[..map.len()], key))
        };
        match self.positional.nested.iter().find_map(inner) {
            Some((map, key)) => map.split('.').chain([key]).collect(),
            None => name.splitn(2, '.').collect(),
        }
    }

    fn by_position(&mut self, value: Word) -> Result<(), ConfigError> {
        let fields = self.positional.fields;
        let last = fields.len().saturating_sub(1);
        let takes_rest = matches!(self.positional.shape, Shape::Rest | Shape::List);
        let is_rest = takes_rest && self.taken >= last;
        let index = if is_rest { last } else { self.taken };
        let Some(&field) = fields.get(index) else {
            return Err(self.too_many(value.span));
        };
        let first = self.taken == index;
        self.taken += 1;
        let span = value.span;
        let value = word_node(self.source, value);
        let known = self
            .entries
            .iter_mut()
            .find(|(key, _)| key.as_str() == Some(field));
        match known {
            None if is_rest => {
                let list = Node::list(self.source, span, vec![value]);
                self.push(field, span, list);
            }
            None => self.push(field, span, value),
            Some((_, list)) if is_rest && !first => append(list, value),
            Some(_) => {
                let message = format!("`{field}` is given both by name and by position");
                return Err(self.error(span, message));
            }
        }
        Ok(())
    }

    fn push(&mut self, field: &str, span: Span, value: Node) {
        let key = Node::scalar(self.source, span, field, false);
        self.entries.push((key, value));
    }

    fn too_many(&self, span: Span) -> ConfigError {
        let component = self.component;
        let fields = self.positional.fields;
        let message = match fields {
            [] => format!("{component} accepts no value without a name, only name=value"),
            [only] => format!("{component} accepts one value without a name, its {only}"),
            [..] => format!("{component} accepts {} values without names", fields.len()),
        };
        let error = self.error(span, message);
        let error = if fields.len() > 1 {
            error.accepted(fields.iter().copied())
        } else {
            error
        };
        error.note("a value with spaces needs quotes; other settings are given as name=value")
    }

    fn insert_named(&mut self, steps: &[&str], span: Span, value: Node) -> Result<(), ConfigError> {
        let by_position = self.positional.fields.iter().take(self.taken);
        if let [name] = steps
            && by_position.clone().any(|field| field == name)
        {
            let message = format!("`{name}` is given both by position and by name");
            return Err(self.error(span, message));
        }
        let conflict = insert(self.source, &mut self.entries, steps, span, value);
        conflict.map_err(|name| {
            let message = format!("`{name}` is given both as a value and, with a dot, as a map");
            self.error(span, message)
        })
    }

    fn error(&self, span: Span, message: impl Into<String>) -> ConfigError {
        ConfigError::in_source(self.source, span, message)
    }
}

/// Puts a value at the end of a dotted name; one that is there becomes a list with it. Refuses, with the step's name,
/// a name that is both a value and a map.
fn insert<'n>(
    source: &Arc<Source>,
    entries: &mut Vec<(Node, Node)>,
    steps: &[&'n str],
    span: Span,
    value: Node,
) -> Result<(), &'n str> {
    let [step, below @ ..] = steps else {
        return Ok(());
    };
    let known = entries
        .iter()
        .position(|(key, _)| key.as_str() == Some(step));
    let Some(known) = known else {
        // Built from the last step outwards.
        let wrap = |value: Node, step: &&str| {
            let key = Node::scalar(source, span, *step, false);
            let whole = span.join(value.span);
            Node::map(source, whole, vec![(key, value)])
        };
        let value = below.iter().rev().fold(value, wrap);
        entries.push((Node::scalar(source, span, *step, false), value));
        return Ok(());
    };
    let node = &mut entries[known].1;
    match (&mut node.kind, below) {
        (NodeKind::Map(_), []) => Err(step),
        (NodeKind::Map(entries), below) => {
            node.span = node.span.join(span).join(value.span);
            insert(source, entries, below, span, value)?;
            Ok(())
        }
        (_, []) => {
            append(node, value);
            Ok(())
        }
        _ => Err(step),
    }
}

/// Adds to a list, or makes one of a single value; the items of a list are added one by one.
fn append(node: &mut Node, value: Node) {
    let span = node.span.join(value.span);
    if !matches!(node.kind, NodeKind::List(_)) {
        let first = node.clone();
        node.kind = NodeKind::List(vec![first]);
    }
    if let NodeKind::List(items) = &mut node.kind {
        match value.kind {
            NodeKind::List(more) => items.extend(more),
            _ => items.push(value),
        }
    }
    node.span = span;
}

fn value_node(source: &Arc<Source>, value: Value) -> Node {
    let typed = |word: Word| {
        if !word.quoted && word.text == "null" {
            Node::new(source, word.span, NodeKind::Null)
        } else {
            word_node(source, word)
        }
    };
    match value {
        Value::One(word) => typed(word),
        Value::List(span, items) => {
            Node::list(source, span, items.into_iter().map(typed).collect())
        }
    }
}

fn word_node(source: &Arc<Source>, word: Word) -> Node {
    Node::scalar(source, word.span, word.text, word.quoted)
}

/// The stage that somebody means who writes a word of another tool.
fn meant(name: &str) -> Option<&'static str> {
    Some(match name.to_ascii_lowercase().as_str() {
        "filter" | "grep" | "include" | "match" | "search" => "where",
        "exclude" | "reject" | "ignore" => "drop",
        "add" | "assign" | "convert" | "eval" | "extend" | "let" | "lowercase" | "map"
        | "mutate" | "put" | "transform" | "uppercase" => "set",
        "delete" | "del" | "unset" => "remove",
        "anonymize" | "anonymise" | "mask" | "obfuscate" | "pseudonymize" | "scrub"
        | "sanitize" => "redact",
        "checksum" | "digest" | "hash" => "fingerprint",
        "project" | "select" => "keep",
        "move" | "mv" => "rename",
        "abbreviate" | "shorten" | "trunc" => "truncate",
        "dedup" | "deduplicate" | "distinct" | "uniq" | "unique" => "dedupe",
        "first" | "limit" | "take" => "head",
        "coalesce" | "correlate" | "sessionize" | "transaction" => "reduce",
        "order" | "order_by" | "orderby" => "sort",
        "last" => "tail",
        "rate_limit" | "ratelimit" | "rate_limiter" => "throttle",
        "aggregate" | "group" | "group_by" | "groupby" | "stats" | "stats1" | "summarise" => {
            "summarize"
        }
        "explode" | "flatmap" | "unnest" | "unroll" => "split",
        "decode_csv" | "decode_csv_fields" | "parse_csv" => "csv",
        "decode_json" | "jq" | "parse_json" => "json",
        "decode_logfmt" | "parse_logfmt" => "logfmt",
        "parse_kv" | "keyvalue" | "key_value" => "kv",
        "counter" | "gauge" | "histogram" | "log_to_metric" | "log_to_metrics" => "metric",
        "parse" | "regex" => "grok",
        "tokenize" => "dissect",
        "timestamp" | "parse_date" => "date",
        "check" | "ensure" | "expect" | "require" | "validate" | "verify" => "assert",
        "flat" => "flatten",
        "de_dot" | "dedot" | "expand" | "unflatten" => "nest",
        "add_kubernetes_metadata" | "k8s" | "kubernetes_metadata" => "kubernetes",
        "enrich" | "enrichment" | "enrichment_table" | "join" | "translate" => "lookup",
        "dns_lookup" | "nslookup" | "rdns" | "resolve" | "reverse_dns" => "dns",
        "decode_cef" | "parse_cef" => "cef",
        "decode_xml" | "parse_xml" | "decode_xml_wineventlog" => "xml",
        "parse_url" | "uri" | "uri_parts" => "url",
        "parse_leef" => "leef",
        "useragent" => "user_agent",
        "console" | "out" | "output" | "print" => "stdout",
        "null" | "blackhole" | "sink" => "discard",
        "es" | "opensearch" => "elasticsearch",
        "jetstream" | "nats_jetstream" => "nats",
        "redpanda" => "kafka",
        "aws_s3"
        | "azure_blob"
        | "azureblob"
        | "gcp_cloud_storage"
        | "gcs"
        | "google_cloud_storage"
        | "s3" => "object_store",
        "cat" | "read" | "write" => "file",
        "dragonfly" | "keydb" | "valkey" => "redis",
        _ => return None,
    })
}
