//! Syntax to a checked expression: names resolved, arguments counted, regexes compiled, constants computed.

use std::collections::HashSet;
use std::ops::Range;

use batch::FieldPath;
use memchr::memmem::Finder;

use crate::ExprError;
use crate::columns::Columns;
use crate::dashed;
use crate::evaluate::evaluate;
use crate::functions::{self, FunctionDoc, Kind, Macro, Question, Refused};
use crate::node::{Arithmetic, Literals, Node, Op, Test};
use crate::number::Num;
use crate::parser::{Ast, Syntax};
use crate::slips;
use crate::type_check::{self, known};
use crate::types::Known;
use crate::value::{Comparison, Val, key_text};

/// Checks a parsed expression, whose text is `source`; gives it and the fields it reads.
pub(crate) fn check(source: &str, ast: &Ast) -> Result<(Node, Vec<Field>), ExprError> {
    let mut checker = Checker {
        source,
        fields: Vec::new(),
        asks: false,
        catches: false,
        locals: Vec::new(),
    };
    let node = checker.node(ast)?;
    Ok((node, checker.fields))
}

/// A field that an expression reads.
pub(crate) struct Field {
    pub path: FieldPath,
    /// Whether the expression asks if it is there: `has(x)`, `x ?? y`, `x == null`.
    pub may_be_absent: bool,
}

struct Checker<'s> {
    source: &'s str,
    fields: Vec<Field>,
    /// Whether the part at hand asks if fields are there.
    asks: bool,
    /// Whether an error of the part at hand gives way to another value: `try(x, y)`.
    catches: bool,
    /// Variables of the macros around, the outermost first.
    locals: Vec<Box<str>>,
}

type Checked = Result<Node, ExprError>;

impl Checker<'_> {
    fn node(&mut self, ast: &Ast) -> Checked {
        let op = match &ast.syntax {
            Syntax::Literal(value) => {
                slips::refuse_reference(ast)?;
                Op::Const(value.clone())
            }
            Syntax::Name(name) if self.local(name).is_some() => {
                Op::Local(self.local(name).unwrap_or(0))
            }
            Syntax::Name(_) => return self.place(ast),
            Syntax::Select(..) | Syntax::Index(..) => return self.place(ast),
            Syntax::Call { .. } => return self.call(ast),
            Syntax::Not(operand) => Op::Not(Box::new(self.condition(operand)?)),
            Syntax::Negate(operand) => Op::Negate(self.boxed(operand)?),
            Syntax::Chain("||", operands) => Op::Or(self.conditions(operands)?),
            Syntax::Chain(_, operands) => Op::And(self.conditions(operands)?),
            Syntax::Binary("??", a, b) => coalesce(self.asking(a)?, self.node(b)?),
            Syntax::Binary(operator, a, b) if is_null(a) || is_null(b) => {
                let (a, b) = (self.asking(a)?, self.asking(b)?);
                self.binary(operator, a, b)?
            }
            Syntax::Binary(operator @ ("-" | "/"), a, b) => {
                let (a, b) = (self.node(a)?, self.node(b)?);
                dashed::refuse_subtracted(ast, &b)?;
                self.binary(operator, a, b)?
            }
            Syntax::Binary(operator, a, b) => {
                dashed::refuse_compared(a, b)?;
                slips::refuse_list(self.source, operator, a, b)?;
                let (a, b) = (self.node(a)?, self.node(b)?);
                self.binary(operator, a, b)?
            }
            Syntax::Conditional(parts) => {
                let [condition, yes, no] = &**parts;
                Op::Conditional(Box::new([
                    self.condition(condition)?,
                    self.node(yes)?,
                    self.node(no)?,
                ]))
            }
            Syntax::List(items) => Op::List(self.nodes(items)?),
            Syntax::Map(entries) => self.map(entries)?,
        };
        self.folded(op, &ast.at)
    }

    /// A map. A key that is given twice cannot be meant; `1` and `"1"` are the same.
    fn map(&mut self, entries: &[(Ast, Ast)]) -> Result<Op, ExprError> {
        let mut nodes = Vec::with_capacity(entries.len());
        let mut given = HashSet::new();
        for (key, value) in entries {
            let key = self.node(key)?;
            if let Op::Const(constant) = &key.op
                && let Ok(text) = key_text(constant)
                && !given.insert(text.to_vec())
            {
                let text = String::from_utf8_lossy(&text);
                let message = format!("the key `{text}` is given twice");
                return Err(ExprError::new(message, key.at));
            }
            nodes.push((key, self.node(value)?));
        }
        Ok(Op::Map(nodes))
    }

    fn nodes(&mut self, all: &[Ast]) -> Result<Vec<Node>, ExprError> {
        all.iter().map(|ast| self.node(ast)).collect()
    }

    /// A part that must be true or false. What never is is a slip such as `a == 1 || 2` or `a && size(b)`.
    fn condition(&mut self, ast: &Ast) -> Checked {
        let node = self.node(ast)?;
        match &node.op {
            Op::Const(value) if !value.is_nothing() && !matches!(value, Val::Bool(_)) => {
                let message = format!("expected true or false, found {}", value.kind());
                Err(ExprError::new(message, node.at))
            }
            Op::Const(_) => Ok(node),
            op if op.is_never_true() => {
                let message = "expected true or false, which this never is";
                Err(ExprError::new(message, node.at))
            }
            _ => Ok(node),
        }
    }

    fn conditions(&mut self, all: &[Ast]) -> Result<Vec<Node>, ExprError> {
        all.iter().map(|ast| self.condition(ast)).collect()
    }

    /// A part that asks whether its fields are there.
    fn asking(&mut self, ast: &Ast) -> Checked {
        let before = std::mem::replace(&mut self.asks, true);
        let node = self.node(ast);
        self.asks = before;
        node
    }

    fn boxed(&mut self, ast: &Ast) -> Result<Box<Node>, ExprError> {
        self.node(ast).map(Box::new)
    }

    /// How many macros lie between here and the one whose variable this is.
    fn local(&self, name: &str) -> Option<usize> {
        self.locals.iter().rev().position(|local| **local == *name)
    }

    /// A field, or a step into a value that is not one.
    fn place(&mut self, ast: &Ast) -> Checked {
        if let Some(keys) = self.path(ast)? {
            return Ok(Node {
                op: Op::Field(self.field(FieldPath::from_keys(keys))),
                at: ast.at.clone(),
            });
        }
        let (of, index) = match &ast.syntax {
            Syntax::Select(of, key) => (
                self.node(of)?,
                Node {
                    op: Op::Const(Val::text(key.as_bytes())),
                    at: ast.at.clone(),
                },
            ),
            Syntax::Index(of, index) => {
                slips::refuse_brackets(self.source, of, index)?;
                (self.node(of)?, self.node(index)?)
            }
            _ => return Err(ExprError::new("expected a field", ast.at.clone())),
        };
        self.check_index(&of, &index)?;
        self.folded(Op::Index(Box::new([of, index])), &ast.at)
    }

    /// Refuses an index that no list has, and a part that no URL has.
    fn check_index(&self, of: &Node, index: &Node) -> Result<(), ExprError> {
        let Op::Const(constant) = &index.op else {
            return Ok(());
        };
        if let Some(Num::Int(number)) = constant.number()
            && number < 0
            && known(of).is_none_or(|kind| kind == Known::List)
        {
            let list = &self.source[of.at.clone()];
            let message = "elements are counted from 0, so that no index is below it";
            let right = format!("{list}[size({list}) - {}]", -number);
            return Err(ExprError::new(message, index.at.clone()).suggest(&right));
        }
        let Op::Call(function, _) = &of.op else {
            return Ok(());
        };
        let key = type_check::literal_text(index).unwrap_or_default();
        match function.unknown_member(key) {
            Some((message, meant)) => {
                let error = ExprError::new(message, of.at.start..index.at.end);
                Err(meant.map_or(error.clone(), |meant| error.suggest(meant)))
            }
            None => Ok(()),
        }
    }

    /// The keys of a field path: a name, and selections and text indexes behind it.
    fn path(&self, ast: &Ast) -> Result<Option<Vec<Box<str>>>, ExprError> {
        let (of, key) = match &ast.syntax {
            Syntax::Name(name) if self.local(name).is_some() => return Ok(None),
            Syntax::Name(name) => (None, name.clone()),
            Syntax::Select(of, key) => (Some(of), key.clone()),
            Syntax::Index(of, index) => match &index.syntax {
                Syntax::Literal(Val::Text(key)) => (Some(of), String::from_utf8_lossy(key).into()),
                _ => return Ok(None),
            },
            _ => return Ok(None),
        };
        let mut keys = match of {
            None => Vec::new(),
            Some(of) => match self.path(of)? {
                Some(keys) => keys,
                None => return Ok(None),
            },
        };
        if key.is_empty() {
            return Err(ExprError::new(
                "a field name has an empty part",
                ast.at.clone(),
            ));
        }
        keys.push(key);
        Ok(Some(keys))
    }

    fn field(&mut self, path: FieldPath) -> usize {
        let known = self.fields.iter().position(|known| known.path == path);
        let number = known.unwrap_or_else(|| {
            self.fields.push(Field {
                path,
                may_be_absent: false,
            });
            self.fields.len() - 1
        });
        self.fields[number].may_be_absent |= self.asks;
        number
    }

    fn call(&mut self, ast: &Ast) -> Checked {
        let (function, args) = self.function(ast)?;
        if !function.accepts_count(args.len()) {
            if function.name == "exists" && args.len() == 1 {
                let message = "`exists` looks for an element of a list; whether a field is there is another function";
                let right = format!("has({})", &self.source[args[0].at.clone()]);
                return Err(ExprError::new(message, ast.at.clone()).suggest(&right));
            }
            let message = format!(
                "wrong number of arguments; the function is `{}`",
                function.signature
            );
            return Err(ExprError::new(message, ast.at.clone()));
        }
        let op = match function.kind {
            Kind::Has => self.has(args[0])?,
            Kind::Now => Op::Now,
            Kind::Metadata(keys) => {
                Op::Field(self.field(FieldPath::from_keys(keys.iter().copied())))
            }
            Kind::WriteMetadata(keys, _) => {
                let field = Op::Field(self.field(FieldPath::from_keys(keys.iter().copied())));
                let at = ast.at.clone();
                bound(function, vec![Node { op: field, at }])?
            }
            Kind::Coalesce => {
                let operands = args.iter().map(|arg| self.asking(arg));
                Op::Coalesce(operands.collect::<Result<_, _>>()?)
            }
            Kind::Try => {
                let before = std::mem::replace(&mut self.catches, true);
                let operands: Result<_, _> = args.iter().map(|arg| self.asking(arg)).collect();
                self.catches = before;
                Op::Try(operands?)
            }
            Kind::Matches => self.matches(function, args[0], args[1])?,
            Kind::Question(question) => self.question(function, question, &args)?,
            Kind::Macro(kind) => self.over_elements(function, kind, &args)?,
            Kind::Format => self.format(function, args[0], args[1])?,
            Kind::Type | Kind::Call(_) | Kind::Write(_) | Kind::Prepared(_) | Kind::Part(_) => {
                bound(function, self.arguments(function, &args)?)?
            }
        };
        self.folded(op, &ast.at)
    }

    /// The function that is called, and its arguments. In front of the dot stands the first one, or a namespace.
    fn function<'s>(
        &self,
        ast: &'s Ast,
    ) -> Result<(&'static FunctionDoc, Vec<&'s Ast>), ExprError> {
        let Syntax::Call {
            name,
            name_at,
            receiver,
            args,
        } = &ast.syntax
        else {
            return Err(ExprError::new("expected a function", ast.at.clone()));
        };
        let args = args.iter();
        let receiver = receiver.as_deref();
        match receiver.map(|receiver| (&receiver.syntax, receiver)) {
            Some((Syntax::Name(space), receiver)) if self.local(space).is_none() => {
                let full = format!("{space}.{name}");
                if let Some(function) = functions::find(&full) {
                    return Ok((function, args.collect()));
                }
                if functions::is_namespace(space) && functions::find(name).is_none() {
                    let at = receiver.at.start..name_at.end;
                    return Err(unknown_function(&full, at));
                }
            }
            Some((Syntax::Select(_, space), _)) => {
                if let Some(function) = functions::find(&format!("{space}.{name}")) {
                    let message = format!(
                        "`{}` does not stand behind its first argument; it is `{}`",
                        function.name, function.signature
                    );
                    return Err(ExprError::new(message, ast.at.clone()));
                }
            }
            _ => {}
        }
        match functions::find(name) {
            Some(function) => Ok((function, receiver.into_iter().chain(args).collect())),
            None => Err(unknown_function(name, name_at.clone())),
        }
    }

    fn operands(&mut self, args: &[&Ast]) -> Result<Vec<Node>, ExprError> {
        let operand = |arg: &&Ast| match &arg.syntax {
            // Whatever a function is asked to look for may be meant as it stands.
            Syntax::Literal(value) => Ok(Node {
                op: Op::Const(value.clone()),
                at: arg.at.clone(),
            }),
            _ => self.node(arg),
        };
        args.iter().map(operand).collect()
    }

    /// The arguments of a function. Constants that it cannot take are refused here, whatever the events have.
    fn arguments(
        &mut self,
        function: &'static FunctionDoc,
        args: &[&Ast],
    ) -> Result<Vec<Node>, ExprError> {
        let nodes = self.operands(args)?;
        for (index, node) in nodes.iter().enumerate() {
            let checked = match &node.op {
                Op::Const(constant) => function.check(index, constant),
                _ => known(node).map_or(Ok(()), |kind| function.check_type(index, kind)),
            };
            checked.map_err(|message| ExprError::new(message, node.at.clone()))?;
            if let Syntax::Literal(Val::Text(text)) = &args[index].syntax {
                let checked = function.check_plain(index, &String::from_utf8_lossy(text));
                checked.map_err(|message| ExprError::new(message, node.at.clone()))?;
            }
        }
        Ok(nodes)
    }

    /// A macro: the list, the name of its element, and what is evaluated for each.
    fn over_elements(
        &mut self,
        function: &'static FunctionDoc,
        kind: Macro,
        args: &[&Ast],
    ) -> Result<Op, ExprError> {
        let list = self.node(args[0])?;
        if let Some(other) = known(&list).filter(|kind| !kind.has_elements()) {
            let message = format!(
                "`{}` needs a list or a map, and this is {}",
                function.name,
                other.name()
            );
            return Err(ExprError::new(message, list.at));
        }
        let Syntax::Name(variable) = &args[1].syntax else {
            let message = format!(
                "expected a name for the element; the function is `{}`",
                function.signature
            );
            return Err(ExprError::new(message, args[1].at.clone()));
        };
        self.locals.push(variable.clone());
        let body = self.node(args[2]);
        self.locals.pop();
        Ok(Op::Macro(kind, Box::new([list, body?])))
    }

    /// `format`. The elements of a list that stands there become arguments, so that no list is made for each event.
    fn format(
        &mut self,
        function: &'static FunctionDoc,
        format: &Ast,
        list: &Ast,
    ) -> Result<Op, ExprError> {
        let Syntax::List(elements) = &list.syntax else {
            return bound(function, self.arguments(function, &[format, list])?);
        };
        let mut nodes = self.arguments(function, &[format])?;
        nodes.extend(self.nodes(elements)?);
        let constant = constants(&nodes).first().copied().flatten();
        let refused = |refused: Refused| ExprError::new(refused.message, format.at.clone());
        let bound = functions::bind_format(function, constant, Some(elements.len()));
        Ok(Op::Call(Box::new(bound.map_err(refused)?), nodes))
    }

    fn has(&mut self, ast: &Ast) -> Result<Op, ExprError> {
        if !matches!(
            ast.syntax,
            Syntax::Name(_) | Syntax::Select(..) | Syntax::Index(..)
        ) {
            let message = match dashed::dashed_name(ast) {
                Some(right) => {
                    let (what, sign) = dashed::words(ast);
                    format!(
                        "`has` takes a field, and this is a {what}; a name with a {sign} in it stands in backticks: has({right})"
                    )
                }
                None => "`has` takes a field, such as has(user.name)".to_owned(),
            };
            return Err(ExprError::new(message, ast.at.clone()));
        }
        let field = Box::new(self.asking(ast)?);
        Ok(Op::Test(field, Box::new(Test::Present)))
    }

    fn matches(
        &mut self,
        function: &'static FunctionDoc,
        text: &Ast,
        pattern: &Ast,
    ) -> Result<Op, ExprError> {
        let at = pattern.at.clone();
        let mut args = self.arguments(function, &[text, pattern])?;
        let (Some(pattern), Some(text)) = (args.pop(), args.pop()) else {
            return Err(ExprError::new("expected a text", at));
        };
        let Op::Const(Val::Text(pattern)) = pattern.op else {
            return Err(ExprError::new(
                "the regular expression of `matches` must be a text literal",
                at,
            ));
        };
        match functions::compile(&pattern) {
            Ok(regex) => Ok(Op::Test(Box::new(text), Box::new(Test::Matches(regex)))),
            Err(message) => Err(ExprError::new(message, at)),
        }
    }

    fn question(
        &mut self,
        function: &'static FunctionDoc,
        question: Question,
        args: &[&Ast],
    ) -> Result<Op, ExprError> {
        let mut args = self.arguments(function, args)?;
        let [
            _,
            Node {
                op: Op::Const(Val::Text(literal)),
                ..
            },
        ] = &args[..]
        else {
            return bound(function, args);
        };
        let test = match question {
            Question::Contains => Test::Contains(Box::new(Finder::new(literal).into_owned())),
            _ => Test::Ask(question, literal.to_vec().into()),
        };
        let text = args.swap_remove(0);
        Ok(Op::Test(Box::new(text), Box::new(test)))
    }
    fn binary(&mut self, operator: &str, a: Node, b: Node) -> Result<Op, ExprError> {
        let is_time = [self.is_time(&a), self.is_time(&b)];
        if let Some(kind) = arithmetic(operator) {
            if !self.catches {
                type_check::check_arithmetic(kind, &a, &b, is_time)?;
            }
            return Ok(Op::Arithmetic(kind, Box::new([a, b])));
        }
        if let Some(kind) = relation(operator) {
            type_check::check_comparison((operator, is_time), &a, &b)?;
            if !matches!(kind, Comparison::Eq | Comparison::Ne) {
                type_check::check_order(self.source, &a, &b)?;
            }
            return Ok(comparison(kind, a, b));
        }
        type_check::check_in(self.source, &a, &b)?;
        Ok(match &b.op {
            Op::Const(Val::List(literals)) => {
                let literals: Vec<_> = literals
                    .iter()
                    .cloned()
                    .map(|value| as_time(value, &a))
                    .collect();
                Op::Test(Box::new(a), Box::new(Test::OneOf(Literals::new(&literals))))
            }
            _ => Op::In(Box::new([a, b])),
        })
    }

    /// Whether this is the field that holds the time of an event, as a timestamp or as a text.
    fn is_time(&self, node: &Node) -> bool {
        let Op::Field(field) = node.op else {
            return matches!(node.op, Op::Now);
        };
        let name = self.fields[field].path.to_string();
        matches!(&*name, "@timestamp" | "@metadata.timestamp")
    }

    /// A node whose operands are all constants becomes one. One that fails would fail for every row: that is an error here, unless
    /// the expression says what to do with errors.
    fn folded(&self, op: Op, at: &Range<usize>) -> Checked {
        match folded(op, at) {
            Err((_, node)) if self.catches => Ok(node),
            outcome => outcome.map_err(|(error, _)| error),
        }
    }
}

fn is_null(ast: &Ast) -> bool {
    matches!(ast.syntax, Syntax::Literal(Val::Null))
}

fn unknown_function(name: &str, at: Range<usize>) -> ExprError {
    let error = ExprError::new(format!("unknown function `{name}`"), at);
    match functions::closest(name) {
        Some(closest) => error.suggest(closest),
        None => error,
    }
}

/// The values of those nodes that are constants.
fn constants(nodes: &[Node]) -> Vec<Option<&Val<'static>>> {
    let constant = nodes.iter().map(|node| match &node.op {
        Op::Const(value) => Some(value),
        _ => None,
    });
    constant.collect()
}

/// A call of a function that its constant arguments are worked into.
fn bound(function: &'static FunctionDoc, args: Vec<Node>) -> Result<Op, ExprError> {
    let refused = |refused: Refused| {
        let at = args.get(refused.argument).map(|arg| arg.at.clone());
        ExprError::new(refused.message, at.unwrap_or_default())
    };
    let bound = functions::bind(function, &constants(&args)).map_err(refused)?;
    Ok(Op::Call(Box::new(bound), args))
}

/// `a ?? b`; a chain of them becomes one node.
fn coalesce(a: Node, b: Node) -> Op {
    match a.op {
        Op::Coalesce(mut operands) => {
            operands.push(b);
            Op::Coalesce(operands)
        }
        _ => Op::Coalesce(vec![a, b]),
    }
}

fn arithmetic(operator: &str) -> Option<Arithmetic> {
    Some(match operator {
        "+" => Arithmetic::Add,
        "-" => Arithmetic::Sub,
        "*" => Arithmetic::Mul,
        "/" => Arithmetic::Div,
        "%" => Arithmetic::Rem,
        _ => return None,
    })
}

fn relation(operator: &str) -> Option<Comparison> {
    Some(match operator {
        "==" => Comparison::Eq,
        "!=" => Comparison::Ne,
        "<" => Comparison::Lt,
        "<=" => Comparison::Le,
        ">" => Comparison::Gt,
        ">=" => Comparison::Ge,
        _ => return None,
    })
}

/// A comparison; with a literal on one side it becomes a test of the other.
fn comparison(comparison: Comparison, a: Node, b: Node) -> Op {
    if matches!((&a.op, &b.op), (Op::Const(_), Op::Const(_))) {
        return Op::Compare(comparison, Box::new([a, b]));
    }
    let (comparison, operand, literal) = match (a, b) {
        (
            operand,
            Node {
                op: Op::Const(literal),
                ..
            },
        ) => (comparison, operand, literal),
        (
            Node {
                op: Op::Const(literal),
                ..
            },
            operand,
        ) => (comparison.mirrored(), operand, literal),
        (a, b) => return Op::Compare(comparison, Box::new([a, b])),
    };
    let literal = as_time(literal, &operand);
    Op::Test(
        Box::new(operand),
        Box::new(Test::Compare(comparison, literal)),
    )
}

/// A literal that reads as a time is one, so that texts compare with it as times, whatever their zones. Beside another literal it
/// is a text, as in CEL.
fn as_time(literal: Val<'static>, beside: &Node) -> Val<'static> {
    match literal.time() {
        Some(nanos) if !matches!(beside.op, Op::Const(_)) => Val::Time(nanos),
        _ => literal,
    }
}

fn folded(op: Op, at: &Range<usize>) -> Result<Node, (ExprError, Node)> {
    let node = Node { op, at: at.clone() };
    if matches!(node.op, Op::Const(_)) || !has_constant_operands(&node.op) {
        return Ok(node);
    }
    let value = evaluate(&node, &Columns::none(), 0, None).map(Val::into_owned);
    match value {
        Ok(value) => Ok(Node {
            op: Op::Const(value),
            at: node.at,
        }),
        Err(fault) => Err((ExprError::new(fault.what().to_string(), fault.at()), node)),
    }
}

fn has_constant_operands(op: &Op) -> bool {
    match op {
        Op::Field(_) | Op::Local(_) | Op::Now => false,
        Op::Macro(_, pair) => is_closed(&pair[0], 0) && is_closed(&pair[1], 1),
        Op::Try(operands) => operands.iter().all(|operand| {
            // One that fails stays as it is.
            matches!(operand.op, Op::Const(_)) || has_constant_operands(&operand.op)
        }),
        _ => {
            let operands = op.operands();
            operands.iter().all(|node| matches!(node.op, Op::Const(_)))
        }
    }
}

/// Whether a part depends on nothing but constants and the variables of so many macros around it.
fn is_closed(node: &Node, macros: usize) -> bool {
    match &node.op {
        Op::Field(_) | Op::Now => false,
        Op::Local(distance) => *distance < macros,
        Op::Macro(_, pair) => is_closed(&pair[0], macros) && is_closed(&pair[1], macros + 1),
        op => {
            let mut operands = op.operands().into_iter();
            operands.all(|operand| is_closed(operand, macros))
        }
    }
}
