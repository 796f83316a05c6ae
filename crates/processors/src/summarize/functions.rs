//! What is worked out of the events of a group.

use batch::{Cell, FieldPath, Value};
use config::{ConfigError, Node};

use super::distinct::Distinct;
use super::sketch::Sketch;
use crate::names;
use crate::number::Number;
use crate::remembered::SavedBytes;

/// What is worked out, and of which fields.
#[derive(Debug, Clone, Default)]
pub(super) struct Plan {
    /// The fields that functions read.
    pub fields: Vec<FieldPath>,
    /// What is kept of the events of a group. Functions share it where they can, as two percentiles of a field do.
    pub tasks: Vec<Task>,
    /// The functions in order.
    pub functions: Vec<Function>,
}

/// A function of a group's events, and the field that it is written to.
#[derive(Debug, Clone)]
pub(super) struct Function {
    /// Where the result goes.
    pub target: FieldPath,
    kind: Kind,
    /// Which of the tasks has what it needs.
    pub task: usize,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Count,
    Sum,
    Min,
    Max,
    Avg,
    /// From 0 to 1.
    Quantile(f64),
    Distinct,
}

/// What is kept of the values of a field, or of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Task {
    kind: TaskKind,
    /// Which of the fields that are read; none for events.
    pub field: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TaskKind {
    Count,
    Sum,
    Min,
    Max,
    Sketch,
    Distinct,
}

const NAMES: &str = "count(), count(FIELD), sum(FIELD), min(FIELD), max(FIELD), avg(FIELD), median(FIELD), p95(FIELD) and other percentiles, distinct(FIELD)";

impl Plan {
    /// Adds `sum(bytes)` or `total = sum(bytes)`.
    pub fn add(&mut self, at: &Node, text: &str) -> Result<(), ConfigError> {
        let (name, call) = match text.split_once('=') {
            Some((name, call)) => (Some(name.trim()), call.trim()),
            None => (None, text.trim()),
        };
        let refused = || {
            at.error(format!("`{text}` is not a function of events"))
                .note(format!("there are {NAMES}"))
        };
        let (function, argument) = call
            .strip_suffix(')')
            .and_then(|call| call.split_once('('))
            .ok_or_else(refused)?;
        let kind = Kind::parse(function).ok_or_else(refused)?;
        let argument = argument.trim();
        if argument.is_empty() && kind != Kind::Count {
            return Err(at
                .error(format!("`{function}` needs a field"))
                .note(format!("write {function}(FIELD)")));
        }
        let path = match argument.is_empty() {
            true => None,
            false => Some(names::path(at, argument)?),
        };
        let target = match (name, &path) {
            (Some(name), _) => names::path(at, name)?,
            (None, None) => FieldPath::from_keys([function]),
            (None, Some(path)) => beside(path, function),
        };
        if let Some(other) = self
            .functions
            .iter()
            .find(|it| names::overlap(&it.target, &target))
        {
            return Err(at
                .error(format!(
                    "two results go to `{}` and `{target}`",
                    other.target
                ))
                .note(format!("give one of them a name: NAME = {call}")));
        }
        let field = path.map(|path| place_of(&mut self.fields, path));
        let kind_of_task = kind.task();
        let task = place_of(
            &mut self.tasks,
            Task {
                kind: kind_of_task,
                field,
            },
        );
        self.functions.push(Function { target, kind, task });
        Ok(())
    }

    /// What tasks work with before the first event.
    pub fn begin(&self) -> impl Iterator<Item = Work> {
        self.tasks.iter().map(|task| match task.kind {
            TaskKind::Count => Work::Count(0),
            TaskKind::Sum => Work::Sum(Sum::default()),
            TaskKind::Min | TaskKind::Max => Work::Extreme(None),
            TaskKind::Sketch => Work::Sketch(Box::default()),
            TaskKind::Distinct => Work::Distinct(Box::default()),
        })
    }
}

/// The place of something in a list, to which it is added if it is not there.
fn place_of<T: PartialEq>(list: &mut Vec<T>, wanted: T) -> usize {
    let known = list.iter().position(|known| *known == wanted);
    known.unwrap_or_else(|| {
        list.push(wanted);
        list.len() - 1
    })
}

impl Task {
    /// Takes an event, of which the field has this value. Whether the value was of use.
    #[inline]
    pub fn add(&self, work: &mut Work, value: Value<'_>, text: &mut Vec<u8>) -> bool {
        let is_there = !matches!(value, Value::Missing | Value::Null);
        match work {
            Work::Count(count) => {
                *count += u64::from(is_there || self.field.is_none());
                return true;
            }
            _ if !is_there => return true,
            Work::Distinct(distinct) => {
                text.clear();
                value.write_json(text);
                distinct.add(text);
                return true;
            }
            _ => {}
        }
        let Some(number) = Number::of(value) else {
            return false;
        };
        match work {
            Work::Sum(sum) => sum.add(number),
            Work::Sketch(sketch) => sketch.add(number.to_f64()),
            Work::Extreme(known) => {
                let is_new = known.is_none_or(|known| {
                    let order = number.order(known);
                    match self.kind {
                        TaskKind::Min => order.is_lt(),
                        _ => order.is_gt(),
                    }
                });
                if is_new {
                    *known = Some(number);
                }
            }
            Work::Count(_) | Work::Distinct(_) => {}
        }
        true
    }
}

impl Function {
    /// The result of what its task worked with.
    pub fn result(&self, work: &Work) -> Cell {
        match (work, self.kind) {
            (Work::Count(count), _) => Number::Int((*count).into()).cell(),
            (Work::Sum(sum), Kind::Avg) => sum.average().map_or(Cell::Null, Cell::Float),
            (Work::Sum(sum), _) => sum.total().cell(),
            (Work::Extreme(known), _) => known.map_or(Cell::Null, Number::cell),
            (Work::Sketch(sketch), Kind::Quantile(part)) => {
                sketch.quantile(part).map_or(Cell::Null, Cell::Float)
            }
            (Work::Sketch(_), _) => Cell::Null,
            (Work::Distinct(distinct), _) => Number::Int(distinct.count().into()).cell(),
        }
    }
}

impl Kind {
    fn task(self) -> TaskKind {
        match self {
            Self::Count => TaskKind::Count,
            Self::Sum | Self::Avg => TaskKind::Sum,
            Self::Min => TaskKind::Min,
            Self::Max => TaskKind::Max,
            Self::Quantile(_) => TaskKind::Sketch,
            Self::Distinct => TaskKind::Distinct,
        }
    }

    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "count" => Self::Count,
            "sum" => Self::Sum,
            "min" => Self::Min,
            "max" => Self::Max,
            "avg" | "mean" => Self::Avg,
            "median" => Self::Quantile(0.5),
            "distinct" => Self::Distinct,
            _ => {
                let percent = name.strip_prefix('p')?;
                let is_plain = |c: char| c.is_ascii_digit() || c == '.';
                let percent: f64 = percent
                    .chars()
                    .all(is_plain)
                    .then(|| percent.parse().ok())??;
                (0.0..=100.0).contains(&percent).then_some(())?;
                Self::Quantile(percent / 100.0)
            }
        })
    }
}

/// The field that has the name of another one with the function's behind it.
fn beside(path: &FieldPath, function: &str) -> FieldPath {
    let mut keys: Vec<String> = path.keys().iter().map(ToString::to_string).collect();
    if let Some(last) = keys.last_mut() {
        last.push('_');
        last.push_str(&function.replace('.', "_"));
    }
    FieldPath::from_keys(keys)
}

/// What a function works with.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Work {
    Count(u64),
    Sum(Sum),
    Extreme(Option<Number>),
    Sketch(Box<Sketch>),
    Distinct(Box<Distinct>),
}

impl Work {
    /// Appends all of it.
    pub fn save(&self, out: &mut Vec<u8>) {
        match self {
            Self::Count(count) => out.extend(count.to_le_bytes()),
            Self::Sum(sum) => {
                out.extend(sum.whole.to_le_bytes());
                out.extend(sum.broken.to_bits().to_le_bytes());
                out.extend(sum.count.to_le_bytes());
                out.push(u8::from(sum.is_broken));
            }
            Self::Extreme(known) => match known {
                None => out.push(0),
                Some(Number::Int(whole)) => {
                    out.push(1);
                    out.extend(whole.to_le_bytes());
                }
                Some(Number::Float(broken)) => {
                    out.push(2);
                    out.extend(broken.to_bits().to_le_bytes());
                }
            },
            Self::Sketch(sketch) => sketch.save(out),
            Self::Distinct(distinct) => distinct.save(out),
        }
    }

    /// Takes what [`Work::save`] wrote of the same function.
    pub fn restore(&mut self, saved: &mut SavedBytes<'_>) -> Option<()> {
        match self {
            Self::Count(count) => *count = saved.number()?,
            Self::Sum(sum) => {
                *sum = Sum {
                    whole: saved.wide()?,
                    broken: f64::from_bits(saved.number()?),
                    count: saved.number()?,
                    is_broken: saved.byte()? != 0,
                }
            }
            Self::Extreme(known) => {
                *known = match saved.byte()? {
                    0 => None,
                    1 => Some(Number::Int(saved.wide()?)),
                    _ => Some(Number::Float(f64::from_bits(saved.number()?))),
                }
            }
            Self::Sketch(sketch) => **sketch = Sketch::restore(saved)?,
            Self::Distinct(distinct) => **distinct = Distinct::restore(saved)?,
        }
        Some(())
    }
}

/// A sum, exact as long as all numbers are whole.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Sum {
    whole: i128,
    broken: f64,
    count: u64,
    is_broken: bool,
}

impl Sum {
    fn add(&mut self, number: Number) {
        self.count += 1;
        match number {
            Number::Int(whole) => self.whole = self.whole.saturating_add(whole),
            Number::Float(broken) => {
                self.broken += broken;
                self.is_broken = true;
            }
        }
    }

    fn total(&self) -> Number {
        match self.is_broken {
            true => Number::Float(self.whole as f64 + self.broken),
            false => Number::Int(self.whole),
        }
    }

    fn average(&self) -> Option<f64> {
        (self.count > 0).then(|| self.total().to_f64() / self.count as f64)
    }
}
