//! Expressions in settings.

use config::{ConfigError, Node};
use expr::Expr;

/// The expression in `text`, which stands in the setting `name` of `node`.
///
/// # Errors
/// A text that is no expression, with the place of the fault in it.
pub(crate) fn parse(node: &Node, name: &str, text: &str) -> Result<Expr, ConfigError> {
    Expr::parse(text).map_err(|fault| {
        let error = node
            .nearest(name)
            .error(fault.message)
            .pointing_at_range(fault.at);
        match fault.suggestion {
            Some(right) => error.suggest(right),
            None => error,
        }
    })
}
