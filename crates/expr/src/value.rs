//! Values while an expression is evaluated for a row, and how they relate.
//!
//! Values borrow from the batch's columns and from the expression's constants; only computed text is owned. A JSON array
//! or object stays raw until somebody looks into it.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use batch::{Value, json, msgpack};
use datetime::span;

use crate::fault::What;
use crate::number::Num;
use crate::time;
use crate::types::Type;

/// A value of a row.
#[derive(Clone, Debug)]
pub(crate) enum Val<'a> {
    Absent,
    Null,
    Bool(bool),
    Int(i64),
    /// Beyond `i64::MAX`.
    UInt(u64),
    Float(f64),
    /// A JSON number as it stands.
    Number(Cow<'a, [u8]>),
    /// UTF-8.
    Text(Cow<'a, [u8]>),
    /// Nanoseconds since 1970.
    Time(i64),
    /// Nanoseconds.
    Duration(i64),
    /// A JSON array or object as it stands.
    Json(Cow<'a, [u8]>),
    /// A list that the expression made.
    List(Arc<[Val<'a>]>),
}

impl<'a> From<Value<'a>> for Val<'a> {
    #[inline]
    fn from(value: Value<'a>) -> Self {
        match value {
            Value::Missing => Self::Absent,
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(value),
            Value::Int(n) => Self::Int(n),
            Value::UInt(n) => Self::UInt(n),
            Value::Float(n) => Self::Float(n),
            Value::Time(nanos) => Self::Time(nanos),
            Value::Text(text) => Self::Text(Cow::Borrowed(text)),
            Value::Number(text) => Self::Number(Cow::Borrowed(text)),
            Value::Json(text) => Self::Json(Cow::Borrowed(text)),
            Value::MsgPack(bytes) => {
                let mut text = Vec::new();
                msgpack::to_json(bytes, &mut text);
                Self::Json(Cow::Owned(text))
            }
        }
    }
}

impl<'a> Val<'a> {
    /// Text of its own.
    pub fn text(text: impl Into<Vec<u8>>) -> Self {
        Self::Text(Cow::Owned(text.into()))
    }

    /// A list of its own.
    pub fn list(items: Vec<Self>) -> Self {
        Self::List(items.into())
    }

    /// The value that a JSON text without whitespace around it stands for.
    pub fn from_json(text: &'a [u8]) -> Self {
        match json::kind(text) {
            json::Kind::Null => Self::Null,
            json::Kind::Bool => Self::Bool(text[0] == b't'),
            json::Kind::Number => Self::Number(Cow::Borrowed(text)),
            json::Kind::Array | json::Kind::Object => Self::Json(Cow::Borrowed(text)),
            json::Kind::String => {
                let body = &text[1..text.len() - 1];
                if !json::has_escape(body) {
                    return Self::Text(Cow::Borrowed(body));
                }
                let mut out = Vec::with_capacity(body.len());
                json::unescape(body, &mut out);
                Self::Text(Cow::Owned(out))
            }
        }
    }

    /// The same value without copying text.
    #[inline]
    pub fn borrowed(&self) -> Val<'_> {
        match self {
            Self::Number(text) => Val::Number(Cow::Borrowed(text)),
            Self::Text(text) => Val::Text(Cow::Borrowed(text)),
            Self::Json(text) => Val::Json(Cow::Borrowed(text)),
            other => other.clone(),
        }
    }

    /// The same value with text of its own.
    pub fn into_owned(self) -> Val<'static> {
        let own = |text: Cow<'_, [u8]>| Cow::Owned(text.into_owned());
        match self {
            Self::Absent => Val::Absent,
            Self::Null => Val::Null,
            Self::Bool(value) => Val::Bool(value),
            Self::Int(n) => Val::Int(n),
            Self::UInt(n) => Val::UInt(n),
            Self::Float(n) => Val::Float(n),
            Self::Time(nanos) => Val::Time(nanos),
            Self::Duration(nanos) => Val::Duration(nanos),
            Self::Number(text) => Val::Number(own(text)),
            Self::Text(text) => Val::Text(own(text)),
            Self::Json(text) => Val::Json(own(text)),
            Self::List(items) => Val::List(items.iter().cloned().map(Val::into_owned).collect()),
        }
    }

    pub fn kind(&self) -> Type {
        match self {
            Self::Absent => Type::Absent,
            Self::Null => Type::Null,
            Self::Bool(_) => Type::Bool,
            Self::Int(_) | Self::UInt(_) => Type::Int,
            Self::Float(_) => Type::Double,
            Self::Number(text) if matches!(Num::read(text), Some(Num::Float(_))) => Type::Double,
            Self::Number(_) => Type::Int,
            Self::Text(_) => Type::Text,
            Self::Time(_) => Type::Time,
            Self::Duration(_) => Type::Duration,
            Self::Json(text) if text.first() == Some(&b'{') => Type::Map,
            Self::Json(_) | Self::List(_) => Type::List,
        }
    }

    /// Whether there is nothing to compute with: absent or null.
    #[inline]
    pub fn is_nothing(&self) -> bool {
        matches!(self, Self::Absent | Self::Null)
    }

    /// The number, of values that are one.
    #[inline]
    pub fn number(&self) -> Option<Num<'_>> {
        match self {
            Self::Int(n) => Some(Num::Int((*n).into())),
            Self::UInt(n) => Some(Num::Int((*n).into())),
            Self::Float(n) => Some(Num::Float(*n)),
            Self::Number(text) => Num::read(text),
            _ => None,
        }
    }

    /// The number, of values that are one or read as one.
    #[inline]
    pub fn number_or_text(&self) -> Option<Num<'_>> {
        match self {
            Self::Text(text) => Num::read(text.trim_ascii()),
            other => other.number(),
        }
    }

    /// The point in time, of values that are one or read as one.
    pub fn time(&self) -> Option<i64> {
        match self {
            Self::Time(nanos) => Some(*nanos),
            Self::Text(text) => time::parse_time(text),
            _ => None,
        }
    }

    /// The elements of a list.
    pub fn elements(&self) -> Option<Vec<Val<'a>>> {
        match self {
            Self::List(items) => Some(items.to_vec()),
            Self::Json(Cow::Borrowed(text)) if text.first() == Some(&b'[') => Some(
                json::elements(text)
                    .map(|at| Val::from_json(&text[at]))
                    .collect(),
            ),
            Self::Json(Cow::Owned(text)) if text.first() == Some(&b'[') => Some(
                json::elements(text)
                    .map(|at| Val::from_json(&text[at]).into_owned())
                    .collect(),
            ),
            _ => None,
        }
    }

    /// The members of a map, keys unescaped.
    pub fn members(&self) -> Option<Vec<Member<'_>>> {
        let Self::Json(text) = self else { return None };
        (self.kind() == Type::Map).then(|| {
            let member = |member: json::Member<'_>| {
                let mut key = Vec::new();
                json::unescape(member.key, &mut key);
                (Cow::Owned(key), Val::from_json(&text[member.value]))
            };
            json::members(text).map(member).collect()
        })
    }

    /// The element of a list at a number, or the member of a map with a name; absent where there is none.
    pub fn get(&self, index: &Val<'_>) -> Result<Val<'a>, What> {
        match (self.kind(), index) {
            (Type::Absent | Type::Null, _) => Ok(Val::Absent),
            (Type::Map, Val::Text(key)) => Ok(self.member(key)),
            (Type::Map, key) => Ok(self.member(&key_text(key)?)),
            (Type::List, _) => {
                let Some(Num::Int(at)) = index.number() else {
                    return Err(What::Needs(
                        "a whole number as the index of a list",
                        index.kind(),
                    ));
                };
                Ok(usize::try_from(at)
                    .ok()
                    .and_then(|at| self.element(at))
                    .unwrap_or(Val::Absent))
            }
            (other, _) => Err(What::Needs("a list or a map in front of the index", other)),
        }
    }

    /// The values of a map's members.
    pub fn member_values(&self) -> Option<Vec<Val<'a>>> {
        match self {
            Self::Json(Cow::Borrowed(text)) if text.first() == Some(&b'{') => Some(
                json::members(text)
                    .map(|member| Val::from_json(&text[member.value]))
                    .collect(),
            ),
            Self::Json(Cow::Owned(text)) if text.first() == Some(&b'{') => Some(
                json::members(text)
                    .map(|member| Val::from_json(&text[member.value]).into_owned())
                    .collect(),
            ),
            _ => None,
        }
    }

    fn element(&self, at: usize) -> Option<Val<'a>> {
        match self {
            Self::List(items) => items.get(at).cloned(),
            Self::Json(Cow::Borrowed(text)) => json::elements(text)
                .nth(at)
                .map(|at| Val::from_json(&text[at])),
            Self::Json(Cow::Owned(text)) => json::elements(text)
                .nth(at)
                .map(|at| Val::from_json(&text[at]).into_owned()),
            _ => None,
        }
    }

    fn member(&self, key: &[u8]) -> Val<'a> {
        let mut escaped = Vec::with_capacity(key.len());
        json::write_string_body(&mut escaped, key);
        match self {
            Self::Json(Cow::Borrowed(text)) => {
                json::find(text, &escaped).map_or(Val::Absent, |at| Val::from_json(&text[at]))
            }
            Self::Json(Cow::Owned(text)) => json::find(text, &escaped)
                .map_or(Val::Absent, |at| Val::from_json(&text[at]).into_owned()),
            _ => Val::Absent,
        }
    }

    /// Appends the value as JSON; absent appends `null`, a duration its text.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        match self {
            Self::List(items) => {
                out.push(b'[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    item.write_json(out);
                }
                out.push(b']');
            }
            Self::Duration(nanos) => {
                let mut buffer = [0; span::TEXT_LEN_MAX];
                json::write_string(out, span::text_of(*nanos, &mut buffer));
            }
            other => other.with_value(|value| value.write_json(out)),
        }
    }

    /// Hands the value over as a batch takes it.
    pub fn with_value<R>(&self, take: impl FnOnce(Value<'_>) -> R) -> R {
        let value = match self {
            Self::Absent => Value::Missing,
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(*value),
            Self::Int(n) => Value::Int(*n),
            Self::UInt(n) => Value::UInt(*n),
            Self::Float(n) => Value::Float(*n),
            Self::Number(text) => Value::Number(text),
            Self::Text(text) => Value::Text(text),
            Self::Time(nanos) => Value::Time(*nanos),
            Self::Json(text) => Value::Json(text),
            Self::Duration(nanos) => {
                let mut buffer = [0; span::TEXT_LEN_MAX];
                return take(Value::Text(span::text_of(*nanos, &mut buffer)));
            }
            Self::List(_) => {
                let mut text = Vec::new();
                self.write_json(&mut text);
                return take(Value::Json(&text));
            }
        };
        take(value)
    }
}

/// A comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl Comparison {
    /// Whether two values in this order satisfy the operator.
    #[inline]
    pub fn accepts(self, order: Ordering) -> bool {
        match self {
            Self::Eq => order.is_eq(),
            Self::Ne => order.is_ne(),
            Self::Lt => order.is_lt(),
            Self::Le => order.is_le(),
            Self::Gt => order.is_gt(),
            Self::Ge => order.is_ge(),
        }
    }

    /// The operator that says the same with its sides exchanged.
    pub fn mirrored(self) -> Self {
        match self {
            Self::Lt => Self::Gt,
            Self::Le => Self::Ge,
            Self::Gt => Self::Lt,
            Self::Ge => Self::Le,
            same => same,
        }
    }

    /// Whether the operator holds between two values. Absent equals nothing, and what is absent or null has no order.
    #[inline]
    pub fn holds(self, a: &Val<'_>, b: &Val<'_>) -> Result<bool, What> {
        match self {
            Self::Eq => Ok(equals(a, b)),
            Self::Ne => Ok(!equals(a, b)),
            _ if a.is_nothing() || b.is_nothing() => Ok(false),
            _ => match order(a, b) {
                Order::Is(order) => Ok(self.accepts(order)),
                Order::NotANumber => Ok(false),
                Order::None => Err(What::Unordered(a.kind(), b.kind())),
            },
        }
    }
}

/// How two values stand to each other.
enum Order {
    Is(Ordering),
    /// A float that is not a number is below, above and equal to nothing.
    NotANumber,
    /// The types do not compare.
    None,
}

#[inline]
fn order(a: &Val<'_>, b: &Val<'_>) -> Order {
    match (a, b) {
        (Val::Text(a), Val::Text(b)) => Order::Is(a.cmp(b)),
        (Val::Time(a), Val::Time(b)) | (Val::Duration(a), Val::Duration(b)) => Order::Is(a.cmp(b)),
        (Val::Bool(a), Val::Bool(b)) => Order::Is(a.cmp(b)),
        (Val::Time(_), Val::Text(_)) | (Val::Text(_), Val::Time(_)) => match (a.time(), b.time()) {
            (Some(a), Some(b)) => Order::Is(a.cmp(&b)),
            _ => Order::None,
        },
        _ => match (a.number_or_text(), b.number_or_text()) {
            (Some(a), Some(b)) => a.compare(b).map_or(Order::NotANumber, Order::Is),
            _ => Order::None,
        },
    }
}

/// Whether two values are the same. Different types are not, except for text that reads as a number or a time.
#[inline]
pub(crate) fn equals(a: &Val<'_>, b: &Val<'_>) -> bool {
    equals_within(a, b, EQUAL_DEPTH_MAX)
}

/// How deep lists and maps are compared value by value, which takes stack; what lies deeper is compared as text.
const EQUAL_DEPTH_MAX: usize = 64;

fn equals_within(a: &Val<'_>, b: &Val<'_>, depth: usize) -> bool {
    match (a, b) {
        (Val::Absent, _) | (_, Val::Absent) => false,
        (Val::Null, Val::Null) => true,
        (Val::Text(a), Val::Text(b)) => a == b,
        (Val::Json(a), Val::Json(b)) if a == b || depth == 0 => a == b,
        (Val::Json(_) | Val::List(_), Val::Json(_) | Val::List(_)) => equal_inside(a, b, depth),
        _ => matches!(order(a, b), Order::Is(Ordering::Equal)),
    }
}

fn equal_inside(a: &Val<'_>, b: &Val<'_>, depth: usize) -> bool {
    let below = depth.saturating_sub(1);
    if let (Some(a), Some(b)) = (a.elements(), b.elements()) {
        return a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| equals_within(a, b, below));
    }
    let (Some(mut a), Some(mut b)) = (a.members(), b.members()) else {
        return false;
    };
    a.sort_by(|a, b| a.0.cmp(&b.0));
    b.sort_by(|a, b| a.0.cmp(&b.0));
    let same = |(a, b): (&Member<'_>, &Member<'_>)| a.0 == b.0 && equals_within(&a.1, &b.1, below);
    a.len() == b.len() && a.iter().zip(&b).all(same)
}

/// A key, unescaped, and its value.
type Member<'a> = (Cow<'a, [u8]>, Val<'a>);

/// Whether `item` is an element of a list or a key of a map. Nothing is in what is absent or null.
pub(crate) fn is_in(item: &Val<'_>, container: &Val<'_>) -> Result<bool, What> {
    match container {
        Val::Absent | Val::Null => Ok(false),
        Val::List(items) => Ok(items.iter().any(|other| equals(item, other))),
        Val::Json(text) if text.first() == Some(&b'[') => {
            Ok(json::elements(text).any(|at| equals(item, &Val::from_json(&text[at]))))
        }
        Val::Json(_) => match item {
            Val::Text(key) => Ok(!matches!(container.member(key), Val::Absent)),
            Val::Absent | Val::Null => Ok(false),
            key => Ok(!matches!(container.member(&key_text(key)?), Val::Absent)),
        },
        other => Err(What::Needs("a list or a map behind `in`", other.kind())),
    }
}

/// The text that stands for a value as the key of a map. Maps have texts as keys; numbers that are equal give the same one.
pub(crate) fn key_text<'v>(key: &'v Val<'_>) -> Result<Cow<'v, [u8]>, What> {
    const NEEDS: &str = "a text, a number or a truth value as the key of a map";
    let mut out = Vec::new();
    match (key, key.number()) {
        (Val::Text(text), _) => return Ok(Cow::Borrowed(text)),
        (_, Some(Num::Float(number))) if number.fract() == 0.0 && number.abs() < 1e15 => {
            json::write_i64(&mut out, number as i64);
        }
        (Val::Absent | Val::Null | Val::Json(_) | Val::List(_), _) => {
            return Err(What::Needs(NEEDS, key.kind()));
        }
        _ => key.with_value(|value| value.write_text(&mut out)),
    }
    Ok(Cow::Owned(out))
}

/// Up to so many entries of a map are compared one by one.
const COMPARED_MAX: usize = 16;

/// A map. Of equal keys the last one counts, as in documents; what is absent is left out.
pub(crate) fn map_of<'a>(entries: &[(Val<'_>, Val<'_>)]) -> Result<Val<'a>, What> {
    let keys: Vec<_> = entries
        .iter()
        .map(|(key, _)| key_text(key))
        .collect::<Result<_, _>>()?;
    let last: Option<HashMap<&[u8], usize>> = (keys.len() > COMPARED_MAX).then(|| {
        let numbered = keys.iter().enumerate();
        numbered.map(|(index, key)| (&key[..], index)).collect()
    });
    let is_last = |index: usize| match &last {
        Some(last) => last.get(&keys[index][..]) == Some(&index),
        None => !keys[index + 1..].contains(&keys[index]),
    };
    let mut out = vec![b'{'];
    for (index, (_, value)) in entries.iter().enumerate() {
        if matches!(value, Val::Absent) || !is_last(index) {
            continue;
        }
        if out.len() > 1 {
            out.push(b',');
        }
        json::write_string(&mut out, &keys[index]);
        out.push(b':');
        value.write_json(&mut out);
    }
    out.push(b'}');
    Ok(Val::Json(out.into()))
}

/// Sorts values of one kind: texts, numbers, times, durations or truth values.
pub(crate) fn sort<'a>(mut values: Vec<Val<'a>>) -> Result<Vec<Val<'a>>, What> {
    let Some(first) = values.first().map(Val::kind) else {
        return Ok(values);
    };
    let same = |kind: Type| kind == first || kind.is_number() && first.is_number();
    let is_sortable = matches!(first, Type::Text | Type::Time | Type::Duration | Type::Bool);
    if let Some(other) = values.iter().map(Val::kind).find(|kind| !same(*kind)) {
        return Err(What::Unordered(first, other));
    }
    if !is_sortable && !first.is_number() {
        return Err(What::Unordered(first, first));
    }
    values.sort_by(|a, b| match (a.number(), b.number()) {
        (Some(a), Some(b)) => number_order(a, b),
        _ => match order(a, b) {
            Order::Is(order) => order,
            _ => Ordering::Equal,
        },
    });
    Ok(values)
}

/// The value of a number literal.
pub(crate) fn number_literal(text: &str) -> Val<'static> {
    match Num::read(text.as_bytes()) {
        Some(Num::Int(n)) => {
            whole(n).unwrap_or_else(|| Val::Number(text.as_bytes().to_vec().into()))
        }
        Some(Num::Float(n)) => Val::Float(n),
        _ => Val::Number(text.as_bytes().to_vec().into()),
    }
}

/// A whole number as a value, where it fits into 64 bits.
pub(crate) fn whole(n: i128) -> Option<Val<'static>> {
    match i64::try_from(n) {
        Ok(n) => Some(Val::Int(n)),
        Err(_) => u64::try_from(n).ok().map(Val::UInt),
    }
}

/// A total order of numbers: whole numbers beside a float are told apart exactly, which the float cannot be.
fn number_order(a: Num<'_>, b: Num<'_>) -> Ordering {
    let is_float = |number: Num<'_>| matches!(number, Num::Float(_));
    let by_value = a.to_f64().total_cmp(&b.to_f64());
    by_value.then_with(|| match (is_float(a), is_float(b)) {
        (false, false) => a.compare(b).unwrap_or(Ordering::Equal),
        (a, b) => b.cmp(&a),
    })
}
