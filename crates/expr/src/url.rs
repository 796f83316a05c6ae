//! The parts of URLs, by the rules of RFC 3986, appendix B.
//!
//! Nothing is decoded or normalised: a log shows what was asked for. So parts are views of the text, and a path alone, as
//! access logs hold it, has parts too; the crate `url` gives neither.

use std::net::Ipv6Addr;

/// The parts of a URL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UrlParts<'t> {
    /// What stands before the first `:`, such as `https`.
    pub scheme: Option<&'t str>,
    /// What stands before `@`, up to a `:`.
    pub username: Option<&'t str>,
    /// What stands between that `:` and `@`.
    pub password: Option<&'t str>,
    /// The host: a name or an address. An IPv6 address is without its brackets.
    pub domain: Option<&'t str>,
    /// The port, where one is named.
    pub port: Option<u16>,
    /// The path, unless it is empty.
    pub path: Option<&'t str>,
    /// What stands behind `?`.
    pub query: Option<&'t str>,
    /// What stands behind `#`.
    pub fragment: Option<&'t str>,
}

/// Why a text is no URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the text is not {0}")]
pub struct UrlError(pub(crate) &'static str);

const BEGINNING: UrlError =
    UrlError("a URL: it begins with a scheme, as in `https://example.com/a`, or with `/`");
const PORT: UrlError = UrlError("a URL, whose port is a number");
const BRACKETS: UrlError = UrlError(
    "a URL: brackets hold an IPv6 address, behind which nothing but a port stands, as in `http://[::1]:80/`",
);

impl<'t> UrlParts<'t> {
    /// Takes a URL with a scheme, or a path with what may follow it, apart.
    ///
    /// # Errors
    /// Any other text, a port that is no number up to 65535, and brackets that are not those of an address.
    pub fn read(text: &'t str) -> Result<Self, UrlError> {
        if !is_url(text) {
            return Err(BEGINNING);
        }
        let mut parts = Self::default();
        let (rest, fragment) = split(text, '#');
        let (mut rest, query) = split(rest, '?');
        parts.fragment = fragment;
        parts.query = query;
        if let (before, Some(after)) = split(rest, ':')
            && is_scheme(before)
        {
            parts.scheme = Some(before);
            rest = after;
        }
        if let Some(after) = rest.strip_prefix("//") {
            let (authority, path) = after.split_at(after.find('/').unwrap_or(after.len()));
            parts.read_authority(authority)?;
            rest = path;
        }
        parts.path = Some(rest).filter(|path| !path.is_empty());
        Ok(parts)
    }

    /// `user:password@host:port`; an IPv6 address stands in brackets, which are no part of it.
    fn read_authority(&mut self, authority: &'t str) -> Result<(), UrlError> {
        let host = match authority.rsplit_once('@') {
            Some((user, host)) => {
                let (name, password) = split(user, ':');
                self.username = Some(name);
                self.password = password;
                host
            }
            None => authority,
        };
        let (domain, port) = match host.strip_prefix('[') {
            Some(rest) => bracketed(rest).ok_or(BRACKETS)?,
            None => split(host, ':'),
        };
        self.domain = Some(domain);
        if let Some(port) = port.filter(|port| !port.is_empty()) {
            if !port.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(PORT);
            }
            self.port = Some(port.parse().map_err(|_| PORT)?);
        }
        Ok(())
    }

    /// The extension of the file that the path names, without its dot: `gz` of `/a/b.tar.gz`. A name that only begins with a
    /// dot has none.
    pub fn extension(&self) -> Option<&'t str> {
        let path = self.path?;
        let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
        let (stem, extension) = name.rsplit_once('.')?;
        let is_one = !stem.is_empty() && !extension.is_empty();
        is_one.then_some(extension)
    }
}

/// The address in brackets, and what stands behind their colon. `rest` begins behind the first bracket.
fn bracketed(rest: &str) -> Option<(&str, Option<&str>)> {
    let (address, after) = rest.split_once(']')?;
    // RFC 3986 also has addresses of later versions, as `v1.…`; RFC 6874 a zone behind `%25`, which is also written as `%`.
    let (plain, _) = split(address, '%');
    let is_later = plain.starts_with(['v', 'V']) && plain.contains('.');
    if !is_later && plain.parse::<Ipv6Addr>().is_err() {
        return None;
    }
    match after.strip_prefix(':') {
        Some(port) => Some((address, Some(port))),
        None => after.is_empty().then_some((address, None)),
    }
}

/// Whether this is a URL with a scheme, or a path. `host:80/a` begins like one with a scheme, behind which no digit stands.
fn is_url(text: &str) -> bool {
    if text.starts_with(['/', '?', '#']) || text == "*" {
        return true;
    }
    let (scheme, rest) = split(text, ':');
    is_scheme(scheme)
        && rest.is_some_and(|rest| {
            let opaque = !rest.is_empty() && !rest.starts_with(|c: char| c.is_ascii_digit());
            rest.starts_with("//") || opaque && !text.contains(char::is_whitespace)
        })
}

fn split(text: &str, at: char) -> (&str, Option<&str>) {
    match text.split_once(at) {
        Some((before, after)) => (before, Some(after)),
        None => (text, None),
    }
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .bytes()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, b'+' | b'-' | b'.'))
}
