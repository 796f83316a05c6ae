//! Which requests are answered at all.
//!
//! Without a token, only programs of this machine can connect. A web page that its user looks at can have a browser send requests
//! here, too: such a page must neither read answers, which it could under a name of its own that leads to this machine (DNS
//! rebinding), nor change anything. So the `Host` of a request must be a name of this machine, and a request that changes
//! something must not come from a page of another origin.

use std::net::IpAddr;

use http::header::{HOST, HeaderName, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode};
use net::Auth;

/// Where a browser says that the page is from.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// What is asked of requests.
pub struct Guard {
    auth: Option<Auth>,
    /// Whether the name that a client asks for must be one of this machine.
    checks_host: bool,
}

/// Why a request is not answered.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    pub status: StatusCode,
    pub reason: String,
}

impl Refusal {
    pub fn new(status: StatusCode, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self { status, reason }
    }
}

impl Guard {
    /// `is_mutual` says whether clients have shown a certificate.
    pub fn new(auth: Option<Auth>, is_mutual: bool) -> Self {
        Self {
            checks_host: auth.is_none() && !is_mutual,
            auth,
        }
    }

    /// Whether clients show neither a token nor a certificate, so that any program of this machine may ask.
    pub fn is_anonymous(&self) -> bool {
        self.checks_host
    }

    /// The header with which credentials are asked for.
    pub fn challenge(&self) -> Option<http::HeaderValue> {
        self.auth.as_ref().map(Auth::challenge)
    }

    /// Whether a request is answered. `is_open` says that it tells nothing but whether the process is well.
    pub fn admit(&self, head: &Parts, is_open: bool) -> Result<(), Refusal> {
        let headers = &head.headers;
        if self.checks_host {
            let host = text(headers, &HOST);
            let host = host.or_else(|| head.uri.authority().map(http::uri::Authority::as_str));
            let is_ours = host.is_some_and(is_this_machine);
            if !is_ours {
                return Err(Refusal::new(
                    StatusCode::FORBIDDEN,
                    "the API is for programs of this machine: ask for 127.0.0.1 or localhost, or set `api.token`",
                ));
            }
        }
        let is_safe = matches!(head.method, Method::GET | Method::HEAD | Method::OPTIONS);
        if !is_safe && is_cross_site(headers) {
            let reason = "requests from pages of other sites are refused";
            return Err(Refusal::new(StatusCode::FORBIDDEN, reason));
        }
        let Some(auth) = self.auth.as_ref().filter(|_| !is_open) else {
            return Ok(());
        };
        match auth.admits(headers) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Refusal::new(
                StatusCode::UNAUTHORIZED,
                "wrong or missing token: send it as `Authorization: Bearer TOKEN`",
            )),
            Err(error) => Err(Refusal::new(
                StatusCode::SERVICE_UNAVAILABLE,
                format!("tokens cannot be checked at the moment: {error}"),
            )),
        }
    }
}

fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

/// Whether `HOST:PORT` is a name that no other machine can have.
fn is_this_machine(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.strip_prefix('[').unwrap_or(name);
    let name = name.strip_suffix(']').unwrap_or(name);
    let address: Result<IpAddr, _> = name.parse();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|it| it.is_loopback())
}

/// Whether a page of another site has a browser send this.
fn is_cross_site(headers: &HeaderMap) -> bool {
    if let Some(site) = text(headers, &FETCH_SITE)
        && !matches!(site, "same-origin" | "none")
    {
        return true;
    }
    let Some(origin) = headers.get(ORIGIN) else {
        return false;
    };
    let origin = origin.to_str().unwrap_or_default();
    let from = origin.split_once("://").map(|(_, host)| host);
    from.is_none() || from != text(headers, &HOST)
}

#[cfg(test)]
mod tests {
    use http::Request;
    use net::Secret;

    use super::*;

    fn admitted(guard: &Guard, method: &str, headers: &[(&str, &str)]) -> Result<(), u16> {
        let mut request = Request::builder().method(method).uri("/metrics");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).expect("a request").into_parts();
        let admitted = guard.admit(&head, false);
        admitted.map_err(|refusal| refusal.status.as_u16())
    }

    #[test]
    fn names_of_other_machines_are_refused_where_nothing_else_guards() {
        let open = Guard::new(None, false);
        for (host, expected) in [
            ("127.0.0.1:9610", Ok(())),
            ("127.8.8.8", Ok(())),
            ("localhost:9610", Ok(())),
            ("LOCALHOST", Ok(())),
            ("[::1]:9610", Ok(())),
            ("rebound.example:9610", Err(403)),
            ("localhost.example", Err(403)),
            ("10.0.0.1", Err(403)),
            ("", Err(403)),
        ] {
            assert_eq!(
                admitted(&open, "GET", &[("host", host)]),
                expected,
                "{host}"
            );
        }
        assert_eq!(admitted(&open, "GET", &[]), Err(403));
        let mutual = Guard::new(None, true);
        assert_eq!(admitted(&mutual, "GET", &[("host", "a.example")]), Ok(()));
    }

    #[test]
    fn pages_of_other_sites_change_nothing() {
        let open = Guard::new(None, false);
        let host = ("host", "localhost:9610");
        for (method, header, expected) in [
            ("POST", ("origin", "http://localhost:9610"), Ok(())),
            ("POST", ("origin", "http://evil.example"), Err(403)),
            ("POST", ("origin", "http://localhost:8080"), Err(403)),
            ("POST", ("origin", "null"), Err(403)),
            ("POST", ("sec-fetch-site", "cross-site"), Err(403)),
            ("POST", ("sec-fetch-site", "same-site"), Err(403)),
            ("POST", ("sec-fetch-site", "same-origin"), Ok(())),
            ("POST", ("accept", "*/*"), Ok(())),
            ("GET", ("origin", "http://evil.example"), Ok(())),
        ] {
            let found = admitted(&open, method, &[host, header]);
            assert_eq!(found, expected, "{method} {header:?}");
        }
    }

    #[test]
    fn a_token_is_asked_for() {
        let guard = Guard::new(Some(Auth::Bearer(Secret::new("right"))), false);
        for (header, expected) in [
            (("authorization", "Bearer right"), Ok(())),
            (("authorization", "Bearer wrong"), Err(401)),
            (("authorization", "Bearer righ"), Err(401)),
            (("authorization", "Basic right"), Err(401)),
            (("accept", "*/*"), Err(401)),
        ] {
            let found = admitted(&guard, "GET", &[("host", "a.example"), header]);
            assert_eq!(found, expected, "{header:?}");
        }
        let lost = Guard::new(Some(Auth::Bearer(Secret::new("file:/nowhere"))), false);
        let header = ("authorization", "Bearer right");
        assert_eq!(admitted(&lost, "GET", &[header]), Err(503));
    }
}
