//! Functions of fields as such, and of the event and the machine around them.

use super::Takes::{Any, Text};
use super::run::{Refused, Run};
use super::{FunctionDoc, Kind, hash};
use crate::value::Val;

pub(super) const FUNCTIONS: &[FunctionDoc] = &[
    FunctionDoc::new(
        "has",
        &[Any],
        Kind::Has,
        [
            "has(field) -> bool",
            "Whether the event has the field; one that is null is there.",
            "has(note) && has(http['user-agent']) && !has(user.name)",
        ],
    ),
    FunctionDoc::new(
        "type",
        &[Any],
        Kind::Type,
        [
            "type(value) -> string",
            "The type: `absent`, `null`, `bool`, `int`, `double`, `string`, `timestamp`, `duration`, `list` or `map`.",
            "type(bytes) == 'int' && type(user) == 'absent'",
        ],
    )
    .of_nothing(),
    FunctionDoc::new(
        "coalesce",
        &[Any],
        Kind::Coalesce,
        [
            "coalesce(value, …) -> value",
            "The first value that is neither absent nor null, else the last one; `a ?? b` is the same for two. An error in a value that is looked at stays an error; `try` catches those.",
            "coalesce(user.name, note, method) == 'get' && (user.name ?? 'nobody') == 'nobody'",
        ],
    )
    .repeats(),
    FunctionDoc::new(
        "try",
        &[Any, Any],
        Kind::Try,
        [
            "try(value, …, default) -> value",
            "The first value that can be computed and is neither absent nor null, else what the last one gives. Unlike `??` and `coalesce` it catches errors: `try(int(x), 0)` is 0 where `x` is missing or reads as no number.",
            "try(int(method), 0) == 0 && try(int(status), 0) == 502 && try(int(user.age), -1) == -1",
        ],
    )
    .repeats(),
    FunctionDoc::new(
        "now",
        &[],
        Kind::Now,
        [
            "now() -> timestamp",
            "When the batch that the event came in was received: the same in every pass over it.",
            "now() > @timestamp",
        ],
    ),
    FunctionDoc::new(
        "uuid",
        &[],
        Kind::WriteMetadata(&["@metadata", "id"], hash::UUID),
        [
            "uuid() -> string",
            "A UUID (version 5) made of the event's id: the same for the same event in every pass over it, and wherever it stands in a pipeline.",
            "size(uuid()) == 36 && uuid() == uuid()",
        ],
    ),
    FunctionDoc::new(
        "host",
        &[],
        Kind::Metadata(&["@metadata", "host", "name"]),
        [
            "host() -> string",
            "The name of the machine that Millpond runs on.",
            "size(host()) > 0",
        ],
    ),
    FunctionDoc::new(
        "env",
        &[Text, Any],
        Kind::Prepared(env),
        [
            "env(name[, default]) -> string",
            "An environment variable, read once at the start. Without a default a variable that is not set is refused at the start. Both arguments are literals.",
            "env('MILLPOND_EXAMPLE_STAGE', 'production') == 'production'",
        ],
    )
    .optional(1),
];

fn env(args: &[Option<&Val<'static>>]) -> Result<Run, Refused> {
    let Some(Some(Val::Text(name))) = args.first() else {
        return Err(Refused::new(
            0,
            "the name of the variable must be a text literal",
        ));
    };
    let default = match args.get(1) {
        Some(None) => return Err(Refused::new(1, "the default must be a literal")),
        Some(Some(default)) => Some((*default).clone()),
        None => None,
    };
    let name = String::from_utf8_lossy(name).into_owned();
    let value = match (std::env::var(&name), default) {
        (Ok(value), _) => Val::text(value),
        (Err(std::env::VarError::NotPresent), Some(default)) => default,
        (Err(std::env::VarError::NotPresent), None) => {
            let message = format!(
                "the environment variable `{name}` is not set; env(\"{name}\", \"…\") gives a default"
            );
            return Err(Refused::new(0, message));
        }
        (Err(std::env::VarError::NotUnicode(_)), _) => {
            let message = format!("the environment variable `{name}` is not UTF-8");
            return Err(Refused::new(0, message));
        }
    };
    Ok(Run::call(move |_| Ok(value.clone())))
}
