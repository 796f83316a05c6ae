//! Tokens to a syntax tree: CEL's grammar and precedence.
//!
//! From loose to tight: `?:`, `||`, `&&`, relations (`== != < <= > >= in`), `??`, `+ -`, `* / %`, `! -`, then selection,
//! index and call. `??`, which CEL does not have, stands where a default is mostly wanted: `(a ?? b) == c`. Chains of `||` and `&&` become one node of many operands, so that they may be as long as one likes;
//! everything else nests [`NESTING_MAX`] deep at most, which bounds the stack of all later steps as well.
//!
//! The parser is our own. The `cel` crate compiles its generated parser, and with it the ANTLR runtime, with every set of
//! features, refuses field names such as `@timestamp` and `package`, and keeps the byte ranges of its tree to itself, so that no
//! error could show its position to a user.

use std::ops::Range;

use crate::ExprError;
use crate::lexer::{self, Tok, Token};
use crate::value::{self, Val};

/// How deep expressions may nest.
pub(crate) const NESTING_MAX: usize = 50;

/// A piece of syntax and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Ast {
    pub syntax: Syntax,
    pub at: Range<usize>,
    depth: usize,
}

/// The kinds of syntax.
#[derive(Clone, Debug)]
pub(crate) enum Syntax {
    Literal(Val<'static>),
    Name(Box<str>),
    Select(Box<Ast>, Box<str>),
    Index(Box<Ast>, Box<Ast>),
    Call {
        name: Box<str>,
        name_at: Range<usize>,
        receiver: Option<Box<Ast>>,
        args: Vec<Ast>,
    },
    Not(Box<Ast>),
    Negate(Box<Ast>),
    /// `||` or `&&` of two or more.
    Chain(&'static str, Vec<Ast>),
    /// A relation or arithmetic operator.
    Binary(&'static str, Box<Ast>, Box<Ast>),
    Conditional(Box<[Ast; 3]>),
    List(Vec<Ast>),
    Map(Vec<(Ast, Ast)>),
}

/// Parses a whole expression.
pub(crate) fn parse(text: &str) -> Result<Ast, ExprError> {
    let mut parser = Parser {
        text,
        tokens: lexer::tokens(text)?,
        next: 0,
        open: 0,
    };
    let ast = parser.expression()?;
    match parser.peek() {
        Tok::End => Ok(ast),
        _ => Err(parser.unexpected("an operator or the end")),
    }
}

/// Operators of two operands, the loosest level first.
const LEVELS: [&[&str]; 4] = [
    &["==", "!=", "<", "<=", ">", ">=", "in"],
    &["??"],
    &["+", "-"],
    &["*", "/", "%"],
];

/// Words of other languages, and what they are here.
const HABITS: [(&str, &str); 4] = [("and", "&&"), ("or", "||"), ("is", "=="), ("not", "!")];

/// Literals as other languages write them.
const LITERAL_HABITS: [(&str, &str); 9] = [
    ("TRUE", "true"),
    ("True", "true"),
    ("FALSE", "false"),
    ("False", "false"),
    ("NULL", "null"),
    ("Null", "null"),
    ("None", "null"),
    ("nil", "null"),
    ("undefined", "null"),
];

struct Parser<'t> {
    text: &'t str,
    tokens: Vec<Token>,
    next: usize,
    /// How many rules are in progress that may contain themselves.
    open: usize,
}

type Parsed = Result<Ast, ExprError>;

impl Parser<'_> {
    fn peek(&self) -> &Tok {
        &self.tokens[self.next].tok
    }

    fn here(&self) -> Range<usize> {
        self.tokens[self.next].at.clone()
    }

    fn advance(&mut self) -> Token {
        let token = self.tokens[self.next].clone();
        self.next = (self.next + 1).min(self.tokens.len() - 1);
        token
    }

    fn is_symbol(&self, symbol: &str) -> bool {
        matches!(self.peek(), Tok::Symbol(found) if *found == symbol)
    }

    fn accept(&mut self, symbol: &str) -> bool {
        let found = self.is_symbol(symbol);
        if found {
            self.advance();
        }
        found
    }

    fn expect(&mut self, symbol: &str) -> Result<usize, ExprError> {
        if self.is_symbol(symbol) {
            Ok(self.advance().at.end)
        } else {
            Err(self.unexpected(&format!("`{symbol}`")))
        }
    }

    fn unexpected(&self, wanted: &str) -> ExprError {
        let found = match self.peek() {
            Tok::End => "the end".to_owned(),
            Tok::Name(word) | Tok::Quoted(word) => format!("`{word}`"),
            Tok::Number(_) => format!("`{}`", &self.text[self.here()]),
            Tok::Text(_) => "a text".to_owned(),
            Tok::Symbol(symbol) => format!("`{symbol}`"),
        };
        let error = ExprError::new(format!("expected {wanted}, found {found}"), self.here());
        let Tok::Name(word) = self.peek() else {
            return error;
        };
        match HABITS
            .iter()
            .find(|(habit, _)| word.eq_ignore_ascii_case(habit))
        {
            Some((_, right)) => error.suggest(right),
            None => error,
        }
    }

    fn node(&self, syntax: Syntax, at: Range<usize>, below: usize) -> Parsed {
        let depth = below + 1;
        if depth > NESTING_MAX {
            return Err(too_deep(at));
        }
        Ok(Ast { syntax, at, depth })
    }

    /// Runs a rule that may contain itself.
    fn nested(&mut self, rule: impl FnOnce(&mut Self) -> Parsed) -> Parsed {
        if self.open == NESTING_MAX {
            return Err(too_deep(self.here()));
        }
        self.open += 1;
        let parsed = rule(self);
        self.open -= 1;
        parsed
    }

    fn expression(&mut self) -> Parsed {
        self.nested(|parser| {
            let condition = parser.chain("||")?;
            if !parser.accept("?") {
                return Ok(condition);
            }
            let yes = parser.chain("||")?;
            parser.expect(":")?;
            let no = parser.expression()?;
            let (at, depth) = (
                condition.at.start..no.at.end,
                condition.depth.max(yes.depth).max(no.depth),
            );
            parser.node(
                Syntax::Conditional(Box::new([condition, yes, no])),
                at,
                depth,
            )
        })
    }

    fn chain(&mut self, operator: &'static str) -> Parsed {
        let operand = |parser: &mut Self| {
            if operator == "||" {
                parser.chain("&&")
            } else {
                parser.binary(0)
            }
        };
        let first = operand(self)?;
        if !self.is_symbol(operator) {
            return Ok(first);
        }
        let mut all = vec![first];
        while self.accept(operator) {
            all.push(operand(self)?);
        }
        let (at, depth) = (all[0].at.start..all[all.len() - 1].at.end, deepest(&all));
        self.node(Syntax::Chain(operator, all), at, depth)
    }

    fn binary(&mut self, level: usize) -> Parsed {
        let Some(operators) = LEVELS.get(level) else {
            return self.unary();
        };
        let mut left = self.binary(level + 1)?;
        let mut previous = None;
        while let Some(operator) = self.operator(operators) {
            let operator_at = self.advance().at;
            if level == 0
                && previous.is_some_and(|previous| is_ordering(previous) || is_ordering(operator))
            {
                let message = "comparisons do not chain; write `a < b && b < c`";
                return Err(ExprError::new(message, operator_at));
            }
            let right = self.binary(level + 1)?;
            let (at, depth) = (left.at.start..right.at.end, left.depth.max(right.depth));
            left = self.node(
                Syntax::Binary(operator, Box::new(left), Box::new(right)),
                at,
                depth,
            )?;
            previous = Some(operator);
        }
        Ok(left)
    }

    fn operator(&self, among: &[&'static str]) -> Option<&'static str> {
        let found = match self.peek() {
            Tok::Symbol(symbol) => symbol,
            Tok::Name(word) => &**word,
            _ => return None,
        };
        among.iter().copied().find(|operator| *operator == found)
    }

    fn unary(&mut self) -> Parsed {
        let start = self.here().start;
        if self.accept("!") {
            let operand = self.nested(Self::unary)?;
            let (at, depth) = (start..operand.at.end, operand.depth);
            return self.node(Syntax::Not(Box::new(operand)), at, depth);
        }
        if !self.accept("-") {
            return self.postfix();
        }
        if let Tok::Number(number) = self.peek() {
            let literal = value::number_literal(&format!("-{number}"));
            let at = start..self.advance().at.end;
            let literal = self.node(Syntax::Literal(literal), at, 0)?;
            return self.steps(literal);
        }
        let operand = self.nested(Self::unary)?;
        let (at, depth) = (start..operand.at.end, operand.depth);
        self.node(Syntax::Negate(Box::new(operand)), at, depth)
    }

    fn postfix(&mut self) -> Parsed {
        let primary = self.primary()?;
        self.steps(primary)
    }

    /// Selections, indexes and calls behind an operand.
    fn steps(&mut self, mut ast: Ast) -> Parsed {
        loop {
            if self.accept(".") {
                ast = self.member(ast)?;
            } else if self.accept("[") {
                let index = self.expression()?;
                let (at, depth) = (ast.at.start..self.expect("]")?, ast.depth.max(index.depth));
                ast = self.node(Syntax::Index(Box::new(ast), Box::new(index)), at, depth)?;
            } else {
                self.refuse_dotted_index(&ast)?;
                return Ok(ast);
            }
        }
    }

    /// Refuses `list.0`, which reads as a name and the number 0.0.
    fn refuse_dotted_index(&self, of: &Ast) -> Result<(), ExprError> {
        let number = &self.text[self.here()];
        if !matches!(self.peek(), Tok::Number(_))
            || self.here().start != of.at.end
            || !number.starts_with('.')
        {
            return Ok(());
        }
        let message = format!("expected an operator or the end, found `{number}`");
        let right = format!("{}[{}]", &self.text[of.at.clone()], &number[1..]);
        Err(ExprError::new(message, self.here()).suggest(&right))
    }

    fn member(&mut self, of: Ast) -> Parsed {
        let token = self.advance();
        let (Tok::Name(name) | Tok::Quoted(name)) = token.tok else {
            self.next -= usize::from(token.tok != Tok::End);
            return Err(self.unexpected("a field or a function after the dot"));
        };
        if self.accept("(") {
            return self.call(name, token.at, Some(of));
        }
        let (at, depth) = (of.at.start..token.at.end, of.depth);
        self.node(Syntax::Select(Box::new(of), name), at, depth)
    }

    fn call(&mut self, name: Box<str>, name_at: Range<usize>, receiver: Option<Ast>) -> Parsed {
        let (args, end) = self.list(")")?;
        let start = receiver
            .as_ref()
            .map_or(name_at.start, |receiver| receiver.at.start);
        let depth = deepest(&args).max(receiver.as_ref().map_or(0, |receiver| receiver.depth));
        let receiver = receiver.map(Box::new);
        self.node(
            Syntax::Call {
                name,
                name_at,
                receiver,
                args,
            },
            start..end,
            depth,
        )
    }

    /// Expressions with commas between them, and where the closing bracket ends.
    fn list(&mut self, closing: &str) -> Result<(Vec<Ast>, usize), ExprError> {
        let mut items = Vec::new();
        while !self.is_symbol(closing) {
            items.push(self.expression()?);
            if !self.accept(",") {
                break;
            }
        }
        match self.expect(closing) {
            Ok(end) => Ok((items, end)),
            Err(_) => Err(self.unexpected(&format!("`,` or `{closing}`"))),
        }
    }

    fn primary(&mut self) -> Parsed {
        let token = self.advance();
        let start = token.at.start;
        let literal =
            |parser: &Self, value| parser.node(Syntax::Literal(value), token.at.clone(), 0);
        match token.tok {
            Tok::Number(number) => literal(self, value::number_literal(&number)),
            Tok::Text(text) => literal(self, Val::text(text.as_bytes().to_vec())),
            Tok::Name(word) if &*word == "true" => literal(self, Val::Bool(true)),
            Tok::Name(word) if &*word == "false" => literal(self, Val::Bool(false)),
            Tok::Name(word) if &*word == "null" => literal(self, Val::Null),
            Tok::Name(ref word) if &**word == "if" && self.is_condition_next() => {
                let message = "there is no `if` in expressions: a condition stands alone, and a choice is `condition ? value : other`; \
                               a field of this name stands in backticks";
                Err(ExprError::new(message, token.at))
            }
            Tok::Name(ref word) if self.literal_habit(word).is_some() => {
                let message =
                    format!("`{word}` would be a field; a field of this name stands in backticks");
                let right = self.literal_habit(word).unwrap_or_default();
                Err(ExprError::new(message, token.at).suggest(right))
            }
            Tok::Name(ref word) if &**word != "in" && !self.is_foreign(word) => {
                self.named(word.clone(), token.at)
            }
            Tok::Quoted(name) => self.node(Syntax::Name(name), token.at, 0),
            Tok::Symbol("(") => {
                let inner = self.expression()?;
                if self.is_symbol(",") {
                    let message = "a list stands in square brackets, as in `x in [1, 2]`";
                    return Err(ExprError::new(message, start..self.here().end));
                }
                let at = start..self.expect(")")?;
                // A node of its own would cost depth; the wider range is all that the brackets leave behind.
                Ok(Ast { at, ..inner })
            }
            Tok::Symbol("[") => {
                let (items, end) = self.list("]")?;
                let depth = deepest(&items);
                self.node(Syntax::List(items), start..end, depth)
            }
            Tok::Symbol("{") => self.map(start),
            tok => {
                self.next -= usize::from(tok != Tok::End);
                Err(self.unexpected("a value"))
            }
        }
    }

    /// `not x` of other languages, which would otherwise be a field followed by nonsense.
    fn is_foreign(&self, word: &str) -> bool {
        word.eq_ignore_ascii_case("not")
            && matches!(self.peek(), Tok::Name(next) if &**next != "in")
    }

    /// Whether what comes next would be the condition of an `if`.
    fn is_condition_next(&self) -> bool {
        match self.peek() {
            Tok::Name(next) => &**next != "in",
            Tok::Quoted(_) | Tok::Number(_) | Tok::Text(_) => true,
            Tok::Symbol(symbol) => matches!(*symbol, "[" | "(" | "!"),
            Tok::End => false,
        }
    }

    /// The literal that somebody who wrote `True` means. Before a dot it is a field.
    fn literal_habit(&self, word: &str) -> Option<&'static str> {
        let is_field = [".", "[", "("].iter().any(|symbol| self.is_symbol(symbol));
        let habit = LITERAL_HABITS.iter().find(|(habit, _)| *habit == word);
        habit.filter(|_| !is_field).map(|(_, right)| *right)
    }

    fn named(&mut self, name: Box<str>, at: Range<usize>) -> Parsed {
        if self.accept("(") {
            return self.call(name, at, None);
        }
        self.node(Syntax::Name(name), at, 0)
    }

    fn map(&mut self, start: usize) -> Parsed {
        let mut entries = Vec::new();
        let mut depth = 0;
        while !self.is_symbol("}") {
            let key = self.expression()?;
            self.expect(":")?;
            let value = self.expression()?;
            depth = depth.max(key.depth).max(value.depth);
            entries.push((key, value));
            if !self.accept(",") {
                break;
            }
        }
        let end = self.expect("}")?;
        self.node(Syntax::Map(entries), start..end, depth)
    }
}

fn is_ordering(operator: &str) -> bool {
    matches!(operator, "<" | "<=" | ">" | ">=")
}

fn deepest(all: &[Ast]) -> usize {
    all.iter().map(|ast| ast.depth).max().unwrap_or(0)
}

fn too_deep(at: Range<usize>) -> ExprError {
    ExprError::new(
        format!("the expression nests deeper than {NESTING_MAX} levels"),
        at,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tree with every operator in brackets.
    fn brackets(ast: &Ast) -> String {
        let all = |items: &[Ast], between: &str| {
            items.iter().map(brackets).collect::<Vec<_>>().join(between)
        };
        match &ast.syntax {
            Syntax::Literal(value) => {
                let mut out = Vec::new();
                value.write_json(&mut out);
                String::from_utf8(out).unwrap()
            }
            Syntax::Name(name) => name.to_string(),
            Syntax::Select(of, name) => format!("{}.{name}", brackets(of)),
            Syntax::Index(of, index) => format!("{}[{}]", brackets(of), brackets(index)),
            Syntax::Call {
                name,
                receiver: None,
                args,
                ..
            } => format!("{name}({})", all(args, ",")),
            Syntax::Call {
                name,
                receiver: Some(of),
                args,
                ..
            } => {
                format!("{}.{name}({})", brackets(of), all(args, ","))
            }
            Syntax::Not(operand) => format!("(!{})", brackets(operand)),
            Syntax::Negate(operand) => format!("(-{})", brackets(operand)),
            Syntax::Chain(operator, operands) => format!("({})", all(operands, operator)),
            Syntax::Binary(operator, a, b) => {
                format!("({} {operator} {})", brackets(a), brackets(b))
            }
            Syntax::Conditional(parts) => format!("({})", all(&parts[..], "?")),
            Syntax::List(items) => format!("[{}]", all(items, ",")),
            Syntax::Map(entries) => {
                let entry =
                    |(key, value): &(Ast, Ast)| format!("{}:{}", brackets(key), brackets(value));
                format!(
                    "{{{}}}",
                    entries.iter().map(entry).collect::<Vec<_>>().join(",")
                )
            }
        }
    }

    #[test]
    fn precedence_is_cels() {
        let cases = [
            ("a || b && c || d", "(a||(b&&c)||d)"),
            ("a && !b == c", "(a&&((!b) == c))"),
            ("a + b * c - d", "((a + (b * c)) - d)"),
            ("a - b - c", "((a - b) - c)"),
            ("a % b in c", "((a % b) in c)"),
            ("-a.b * -1", "((-a.b) * -1)"),
            ("!a.f(1)", "(!a.f(1))"),
            ("a ? b : c ? d : e", "(a?b?(c?d?e))"),
            ("a == b == c", "((a == b) == c)"),
            ("(a || b) && c", "((a||b)&&c)"),
            ("a['x-y'].b[0]", "a[\"x-y\"].b[0]"),
            ("[1, 2,].size()", "[1,2].size()"),
            ("{'a': 1, 'b': [x]}['a']", "{\"a\":1,\"b\":[x]}[\"a\"]"),
            ("package == loop.namespace", "(package == loop.namespace)"),
            ("a.in.true == `null`", "(a.in.true == null)"),
            ("not in list", "(not in list)"),
            ("a ?? b + 1 == c", "((a ?? (b + 1)) == c)"),
            ("a ?? b ?? c || d", "(((a ?? b) ?? c)||d)"),
            ("a ? b ?? c : d", "(a?(b ?? c)?d)"),
        ];
        for (text, expected) in cases {
            assert_eq!(brackets(&parse(text).expect(text)), expected, "{text}");
        }
    }

    #[test]
    fn errors_point_at_their_place() {
        let cases = [
            ("", 0..0, "expected a value, found the end", None),
            ("a ==", 4..4, "expected a value, found the end", None),
            (
                "a == 1 b",
                7..8,
                "expected an operator or the end, found `b`",
                None,
            ),
            (
                "a and b",
                2..5,
                "expected an operator or the end, found `and`",
                Some("&&"),
            ),
            (
                "a OR b",
                2..4,
                "expected an operator or the end, found `OR`",
                Some("||"),
            ),
            ("not a", 0..3, "expected a value, found `not`", Some("!")),
            ("(a", 2..2, "expected `)`, found the end", None),
            ("f(a b)", 4..5, "expected `,` or `)`, found `b`", None),
            (
                "a.",
                2..2,
                "expected a field or a function after the dot, found the end",
                None,
            ),
            (
                "a.'x'",
                2..5,
                "expected a field or a function after the dot, found a text",
                None,
            ),
            (
                "1 < a < 3",
                6..7,
                "comparisons do not chain; write `a < b && b < c`",
                None,
            ),
            ("a ? b", 5..5, "expected `:`, found the end", None),
            ("{'a' 1}", 5..6, "expected `:`, found `1`", None),
            (
                "a.0 == 1",
                1..3,
                "expected an operator or the end, found `.0`",
                Some("a[0]"),
            ),
            (
                "a 1.50",
                2..6,
                "expected an operator or the end, found `1.50`",
                None,
            ),
            (
                "a == TRUE",
                5..9,
                "`TRUE` would be a field; a field of this name stands in backticks",
                Some("true"),
            ),
            (
                "if[level] == 'x'",
                0..2,
                "there is no `if` in expressions: a condition stands alone, and a choice is `condition ? value : other`; a field of this name stands in backticks",
                None,
            ),
            ("ä == )", 6..7, "expected a value, found `)`", None),
        ];
        for (text, at, message, suggestion) in cases {
            let error = parse(text).expect_err(text);
            let found = (error.at, &*error.message, error.suggestion.as_deref());
            assert_eq!(found, (at, message, suggestion), "{text}");
        }
    }

    #[test]
    fn nesting_is_limited_and_chains_are_not() {
        let deep = |open: &str, close: &str, count: usize| {
            format!("{}a{}", open.repeat(count), close.repeat(count))
        };
        for (open, close) in [
            ("(", ")"),
            ("!", ""),
            ("- ", ""),
            ("[", "]"),
            ("a ? b : ", ""),
            ("f(", ")"),
            ("a[", "]"),
            ("{1:", "}"),
        ] {
            assert!(parse(&deep(open, close, 40)).is_ok(), "{open}");
            for count in [200, 100_000] {
                let error = parse(&deep(open, close, count)).expect_err(open);
                assert!(
                    error.message.contains("nests deeper"),
                    "{open}: {}",
                    error.message
                );
            }
        }
        for step in [" + a", ".b()", "[0]", " == a"] {
            assert!(
                parse(&format!("a{}", step.repeat(100_000))).is_err(),
                "{step}"
            );
        }
        assert!(parse(&format!("a{}", " || a && b".repeat(10_000))).is_ok());
    }
}
