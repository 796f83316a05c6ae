//! Functions of lists and maps.

use std::collections::HashSet;

use super::Takes::{Any, List, Map, Within};
use super::{BELOW_ZERO, FunctionDoc, INDEX, Kind, Macro, list_of, whole_of};
use crate::fault::What;
use crate::number::Num;
use crate::types::Type;
use crate::value::{Val, equals, map_of, sort};

pub(super) const FUNCTIONS: &[FunctionDoc] = &[
    FunctionDoc::new(
        "exists",
        &[Any, Any, Any],
        Kind::Macro(Macro::Exists),
        [
            "list.exists(x, condition) -> bool",
            "Whether the condition is true for some element `x` of the list, or some key of the map.",
            "tags.exists(tag, tag.startsWith('sl'))",
        ],
    ),
    FunctionDoc::new(
        "exists_one",
        &[Any, Any, Any],
        Kind::Macro(Macro::ExistsOne),
        [
            "list.exists_one(x, condition) -> bool",
            "Whether the condition is true for exactly one element `x` of the list, or key of the map. An error for any of them is an error.",
            "tags.exists_one(tag, tag == 'web')",
        ],
    ),
    FunctionDoc::new(
        "all",
        &[Any, Any, Any],
        Kind::Macro(Macro::All),
        [
            "list.all(x, condition) -> bool",
            "Whether the condition is true for every element `x` of the list, or every key of the map.",
            "tags.all(tag, size(tag) < 5)",
        ],
    ),
    FunctionDoc::new(
        "filter",
        &[Any, Any, Any],
        Kind::Macro(Macro::Filter),
        [
            "list.filter(x, condition) -> list",
            "The elements `x` for which the condition is true.",
            "tags.filter(tag, tag != 'web') == ['slow']",
        ],
    ),
    FunctionDoc::new(
        "map",
        &[Any, Any, Any],
        Kind::Macro(Macro::Map),
        [
            "list.map(x, value) -> list",
            "The value for every element `x`.",
            "tags.map(tag, tag.upperAscii()) == ['WEB', 'SLOW']",
        ],
    ),
    FunctionDoc::new(
        "distinct",
        &[List],
        Kind::Call(distinct),
        [
            "list.distinct() -> list",
            "The list without repetitions: of equal elements the first.",
            "(tags + ['web']).distinct() == tags",
        ],
    ),
    FunctionDoc::new(
        "sort",
        &[List],
        Kind::Call(|args| Ok(Val::list(sort(list_of(&args[0])?)?))),
        [
            "list.sort() -> list",
            "The elements in ascending order. Elements that have no order, such as a number and a word, are an error.",
            "tags.sort() == ['slow', 'web'] && [10, 9].sort() == [9, 10]",
        ],
    ),
    FunctionDoc::new(
        "flatten",
        &[List, Within(0, i64::MAX, LEVELS)],
        Kind::Call(flatten),
        [
            "list.flatten([levels]) -> list",
            "The list with the elements of lists in it in their places, one level deep or so many.",
            "[tags, [['x']]].flatten() == ['web', 'slow', ['x']] && [[[1]]].flatten(2) == [1]",
        ],
    )
    .optional(1),
    FunctionDoc::new(
        "slice",
        &[List, INDEX, INDEX],
        Kind::Call(slice),
        [
            "list.slice(start, end) -> list",
            "The elements from `start` up to but without `end`, counted from 0. What lies beyond the end is left out (in cel-go an error); a negative number is an error.",
            "tags.slice(0, 1) == ['web'] && tags.slice(1, 9) == ['slow']",
        ],
    ),
    FunctionDoc::new(
        "keys",
        &[Map],
        Kind::Call(keys),
        [
            "map.keys() -> list",
            "The keys of a map, as texts, in its order.",
            "http.keys() == ['user-agent']",
        ],
    ),
    FunctionDoc::new(
        "values",
        &[Map],
        Kind::Call(values),
        [
            "map.values() -> list",
            "The values of a map, in its order.",
            "http.values() == ['curl/8.5.0']",
        ],
    ),
    FunctionDoc::new(
        "merge",
        &[Map],
        Kind::Call(merge),
        [
            "merge(map, …) -> map",
            "The members of all maps; of the same key the last one counts. Maps within are not merged. What is absent or null is left out.",
            "merge({'a': 1, 'b': 1}, user, {'b': 2}) == {'a': 1, 'b': 2}",
        ],
    )
    .repeats()
    .of_nothing(),
];

const LEVELS: &str = "the number of levels is not below 0";

fn distinct<'a>(args: &[Val<'a>]) -> Result<Val<'a>, What> {
    let elements = list_of(&args[0])?;
    let mut texts = HashSet::new();
    let mut numbers = HashSet::new();
    let mut kept: Vec<&Val<'a>> = Vec::new();
    for element in &elements {
        let known = match (element, element.number()) {
            // A text equals a number that it reads as, so it is looked for among those of the other kind too.
            (Val::Text(text), _) => {
                !texts.insert(&text[..]) || Num::read(text).is_some() && holds_equal(&kept, element)
            }
            (_, Some(Num::Int(number))) => !numbers.insert(number) || holds_equal(&kept, element),
            _ => holds_equal(&kept, element),
        };
        if !known {
            kept.push(element);
        }
    }
    let kept = kept.into_iter().cloned().collect();
    Ok(Val::list(kept))
}

fn holds_equal(kept: &[&Val<'_>], element: &Val<'_>) -> bool {
    // What is absent equals nothing, itself included, and would be kept each time.
    kept.iter().any(|other| {
        equals(other, element) || matches!((other, element), (Val::Absent, Val::Absent))
    })
}

fn flatten<'a>(args: &[Val<'a>]) -> Result<Val<'a>, What> {
    let levels = args.get(1).map(whole_of).transpose()?.unwrap_or(1);
    if levels < 0 {
        return Err(What::Other(LEVELS));
    }
    let mut elements = list_of(&args[0])?;
    for _ in 0..levels {
        if !elements.iter().any(|element| element.kind() == Type::List) {
            break;
        }
        let mut flat = Vec::with_capacity(elements.len());
        for element in elements {
            match element.elements() {
                Some(inner) => flat.extend(inner),
                None => flat.push(element),
            }
        }
        elements = flat;
    }
    Ok(Val::list(elements))
}

fn slice<'a>(args: &[Val<'a>]) -> Result<Val<'a>, What> {
    let mut elements = list_of(&args[0])?;
    let index = |value: &Val<'a>| {
        let index = usize::try_from(whole_of(value)?);
        index.map_err(|_| What::Other(BELOW_ZERO))
    };
    let (start, end) = (index(&args[1])?, index(&args[2])?);
    elements.truncate(end);
    Ok(Val::list(elements.split_off(start.min(elements.len()))))
}

fn keys<'a>(args: &[Val<'a>]) -> Result<Val<'a>, What> {
    let members = args[0].members();
    let members = members.ok_or(What::Needs("a map", args[0].kind()))?;
    Ok(Val::list(
        members.into_iter().map(|(key, _)| Val::text(key)).collect(),
    ))
}

fn values<'a>(args: &[Val<'a>]) -> Result<Val<'a>, What> {
    args[0]
        .member_values()
        .map(Val::list)
        .ok_or(What::Needs("a map", args[0].kind()))
}

fn merge<'a>(args: &[Val<'a>]) -> Result<Val<'a>, What> {
    let mut entries = Vec::new();
    for map in args.iter().filter(|map| !map.is_nothing()) {
        let members = map.members().ok_or(What::Needs("a map", map.kind()))?;
        entries.extend(
            members
                .into_iter()
                .map(|(key, value)| (Val::text(key), value)),
        );
    }
    match map_of(&entries)? {
        Val::Json(text) => Ok(Val::Json(text.into_owned().into())),
        _ => Ok(Val::Absent),
    }
}
