//! What a store said, for messages.

use std::error::Error as _;

use object_store::Error;

/// How much of what a store said is shown, in characters.
const SAID_MAX: usize = 300;

/// What went wrong and what the store said, without what the library wraps around it. `doing` is what was tried: `reading`, `writing`.
pub fn reason(error: &Error, doing: &str) -> String {
    let mut innermost = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        innermost = cause.to_string();
        next = cause.source();
    }
    let what = match error {
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
            format!("the store refuses the credentials or does not allow {doing}")
        }
        Error::NotFound { .. } => "the bucket or container does not exist".to_owned(),
        _ => "the request failed".to_owned(),
    };
    format!("{what}: {}", said(&innermost))
}

/// What a store said in XML, without what surrounds it.
fn said(text: &str) -> String {
    let element = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        rest.split_once(&format!("</{name}>")).map(|(text, _)| text)
    };
    let text = match (element("Code"), element("Message")) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        (Some(code), None) => code.to_owned(),
        (None, _) => text.to_owned(),
    };
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(SAID_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_store_said_is_short() {
        let xml = "Server returned non-2xx status code: 403 Forbidden: <?xml version=\"1.0\"?>\n<Error><Code>AccessDenied</Code><Message>Access\nDenied.</Message><X>y</X></Error>";
        assert_eq!(said(xml), "AccessDenied: Access Denied.");
        assert_eq!(said("cannot connect:\n refused"), "cannot connect: refused");
        assert_eq!(said(&"ä".repeat(400)).chars().count(), SAID_MAX + 1);
    }
}
