//! What nobody means in a stage that takes values and settings: operators, a missing `|`, an expression without quotes.
//!
//! Each would be read as a text, and would silently do something else. Quotes make a text of it that was meant.

use std::sync::Arc;

use super::lexer::{Token, Value, Word};
use super::{Catalogue, Shape, StageRole};
use crate::error::ConfigError;
use crate::source::{Source, Span};

/// The setting of every component that is an expression.
const EXPRESSION: &str = "if";

/// Texts that are operators and never values.
const OPERATORS: &[&str] = &[
    "==", "!=", "<", ">", "<=", ">=", "&&", "=", "=~", "!~", "->", "=>", ">>", "&", ";", "{", "}",
];

/// Refuses what cannot be meant among the values and settings of a stage.
pub(super) fn refuse(
    source: &Arc<Source>,
    component: &str,
    shape: Shape,
    tokens: &[Token],
    catalogue: &dyn Catalogue,
) -> Result<(), ConfigError> {
    let mut values = 0;
    for (index, token) in tokens.iter().enumerate() {
        match token {
            Token::Setting {
                name,
                value: Value::One(value),
            } => {
                split_expression(source, name, value, &tokens[index + 1..])?;
                mixed_quotes(source, name, value)?;
            }
            Token::Setting { .. } => {}
            Token::Positional(word) if word.quoted => values += 1,
            Token::Positional(word) => {
                if values > 0 {
                    missing_bar(source, component, word, catalogue)?;
                }
                operator(source, component, shape, word)?;
                values += 1;
            }
        }
    }
    Ok(())
}

/// `if=level == "DEBUG"`: blanks end the value, and the rest would be values by position.
fn split_expression(
    source: &Arc<Source>,
    name: &Word,
    value: &Word,
    after: &[Token],
) -> Result<(), ConfigError> {
    if name.text != EXPRESSION {
        return Ok(());
    }
    let mut words = after.iter().map_while(|token| match token {
        Token::Positional(word) => Some(word),
        Token::Setting { .. } => None,
    });
    let is_operator = |word: &&Word| {
        !word.quoted && (OPERATORS.contains(&&*word.text) || is_infix_word(&word.text))
    };
    // The first word is the operator, or what it stands behind: `if= level == "x"`.
    let mut near = words.clone().take(2);
    if !near.any(|word| is_operator(&word)) {
        return Ok(());
    }
    let end = words
        .by_ref()
        .last()
        .map_or(value.span.end, |word| word.span.end);
    let whole = Span::new(value.span.start, end);
    let error = ConfigError::in_source(
        source,
        name.span.join(whole),
        format!(
            "the expression of `{}` contains blanks and is not quoted",
            name.text
        ),
    );
    Err(quoted_form(error, name, source.slice(whole)))
}

fn is_infix_word(text: &str) -> bool {
    matches!(text, "in" | "+" | "-" | "*" | "/" | "%" | "?")
}

/// `if=level=="DEBUG"`: as in a shell, the quotes would be gone, and `DEBUG` a field.
fn mixed_quotes(source: &Arc<Source>, name: &Word, value: &Word) -> Result<(), ConfigError> {
    let raw = source.slice(value.span);
    let bare = outside_quotes(raw);
    let is_slip = match &*name.text {
        EXPRESSION => !bare.is_empty(),
        _ => ["==", "!=", "<=", ">=", "&&", "||"]
            .iter()
            .any(|operator| bare.contains(operator)),
    };
    if !value.quoted || !is_slip {
        return Ok(());
    }
    let message = format!(
        "the value of `{}` is only partly quoted, so that its quotes would be lost",
        name.text
    );
    let error = ConfigError::in_source(source, value.span, message);
    Err(quoted_form(error, name, raw))
}

/// The characters of a value, as it is written, that stand outside of all quotes.
fn outside_quotes(raw: &str) -> String {
    let mut bare = String::new();
    let mut open = None;
    let mut chars = raw.chars();
    while let Some(c) = chars.next() {
        match (open, c) {
            (None, '\'' | '"') => open = Some(c),
            (None, c) => bare.push(c),
            (Some('"'), '\\') => {
                chars.next();
            }
            (Some(quote), c) if c == quote => open = None,
            (Some(_), _) => {}
        }
    }
    bare
}

/// Adds the value with quotes around all of it.
fn quoted_form(error: ConfigError, name: &Word, raw: &str) -> ConfigError {
    let raw = raw.trim();
    let name = &name.text;
    match (raw.contains('\''), raw.contains(['"', '\\'])) {
        (false, _) => error.note(format!("write {name}='{raw}'")),
        (true, false) => error.note(format!("write {name}=\"{raw}\"")),
        (true, true) => error.note(format!(
            "put quotes around the whole expression, for example: {name}='level == \"DEBUG\"'"
        )),
    }
}

/// `grok "%{WORD:l}" where n == 2`: the name of a component behind a value.
fn missing_bar(
    source: &Arc<Source>,
    component: &str,
    word: &Word,
    catalogue: &dyn Catalogue,
) -> Result<(), ConfigError> {
    let roles = [StageRole::Processor, StageRole::Output];
    let is_one = |role: &StageRole| catalogue.positional(*role, &word.text).is_some();
    let Some(role) = roles.into_iter().find(is_one) else {
        return Ok(());
    };
    let name = &word.text;
    let message = format!(
        "`{name}` is {}: did you forget the `|` before it?",
        role.with_article()
    );
    Err(
        ConfigError::in_source(source, word.span, message).note(format!(
            "stages are separated by `|`; put `{name}` in quotes if it is a value of `{component}`"
        )),
    )
}

/// An operator, or an option with dashes, where a value stands.
fn operator(
    source: &Arc<Source>,
    component: &str,
    shape: Shape,
    word: &Word,
) -> Result<(), ConfigError> {
    let text = &*word.text;
    let is_redirection = shape == Shape::List && text.starts_with('>');
    let is_option = text.starts_with("--")
        || (text.len() == 2
            && text.starts_with('-')
            && text.ends_with(|c: char| c.is_ascii_alphabetic()));
    if !OPERATORS.contains(&text) && !is_redirection && !is_option {
        return Ok(());
    }
    let error = ConfigError::in_source(
        source,
        word.span,
        format!("`{text}` is not a value of `{component}`"),
    );
    let note = match text {
        _ if is_option => {
            "settings are written name=value, for example: file app.log follow=true".to_owned()
        }
        "{" | "}" | "=>" => {
            "settings are written name=value, without braces: grok \"%{COMBINEDAPACHELOG}\" field=message".to_owned()
        }
        "->" | "&" | ";" => "stages are separated by `|`, for example: file access.log | stdout".to_owned(),
        _ if text.starts_with('>') => {
            "stages are separated by `|`; to write to a file: | file out.ndjson".to_owned()
        }
        _ => "an expression belongs to `where`, `drop`, `set` or, in quotes, to a setting: if='level == \"DEBUG\"'".to_owned(),
    };
    Err(error.note(note).note(format!(
        "put `{text}` in quotes if it is meant as it stands"
    )))
}
