//! The handshake of clients that have a shared key: HELO from the server, PING from the client, PONG from the server.
//!
//! Digests are SHA-512 in hexadecimal. Nonces are text of hexadecimal digits, because not every client reads binary data there.
//! What a client sends is compared in constant time, and a user who does not exist takes the time of one who does.

use batch::msgpack::{
    Value, elements, read, write_array_header, write_bool, write_map_header, write_str,
};
use net::{Secret, SecretError};
use ring::digest::{Context, SHA512};
use ring::rand::{SecureRandom, SystemRandom};
use subtle::ConstantTimeEq;

/// What clients must know.
pub(super) struct Security {
    shared_key: Secret,
    /// Empty where no user is asked for.
    users: Vec<(String, Secret)>,
    /// The server's name.
    host: String,
}

/// What a connection's client is to make its digests with.
pub(super) struct Challenge {
    nonce: String,
    /// The salt of passwords; empty where no user is asked for.
    salt: String,
}

/// The answer to a client's PING.
pub(super) struct Verdict {
    /// The answer itself.
    pub(super) pong: Vec<u8>,
    /// Why the client is refused.
    pub(super) refusal: Option<String>,
}

/// The fields of a PING.
struct Ping<'a> {
    host: &'a [u8],
    salt: &'a [u8],
    digest: &'a [u8],
    user: &'a [u8],
    password_digest: &'a [u8],
}

impl Security {
    pub(super) fn new(shared_key: Secret, users: Vec<(String, Secret)>, host: String) -> Self {
        Self {
            shared_key,
            users,
            host,
        }
    }

    /// A challenge of its own for a connection; none where the system gives no random numbers.
    pub(super) fn challenge(&self) -> Option<Challenge> {
        let salt = match self.users.is_empty() {
            true => String::new(),
            false => random_text()?,
        };
        Some(Challenge {
            nonce: random_text()?,
            salt,
        })
    }

    /// Judges a PING, a whole message.
    ///
    /// # Errors
    /// A secret cannot be read.
    pub(super) fn judge(
        &self,
        challenge: &Challenge,
        message: &[u8],
    ) -> Result<Verdict, SecretError> {
        let key = self.shared_key.reveal()?;
        let Some(ping) = Ping::read(message) else {
            return Ok(self.refuse("a PING with six elements was expected"));
        };
        let digest_of =
            |host: &[u8]| digest(&[ping.salt, host, challenge.nonce.as_bytes(), key.as_bytes()]);
        if !is_same(&digest_of(ping.host), ping.digest) {
            return Ok(self.refuse("shared_key mismatch"));
        }
        if !self.users.is_empty() && !self.admits(challenge, &ping)? {
            return Ok(self.refuse("username/password mismatch"));
        }
        Ok(Verdict {
            pong: pong(true, "", &self.host, &digest_of(self.host.as_bytes())),
            refusal: None,
        })
    }

    fn admits(&self, challenge: &Challenge, ping: &Ping<'_>) -> Result<bool, SecretError> {
        let mut is_admitted = false;
        for (user, password) in &self.users {
            let password = password.reveal()?;
            let expected = digest(&[
                challenge.salt.as_bytes(),
                user.as_bytes(),
                password.as_bytes(),
            ]);
            is_admitted |=
                is_same(user.as_bytes(), ping.user) & is_same(&expected, ping.password_digest);
        }
        Ok(is_admitted)
    }

    fn refuse(&self, reason: &str) -> Verdict {
        Verdict {
            pong: pong(false, reason, "", b""),
            refusal: Some(format!("the client was refused: {reason}")),
        }
    }
}

impl Challenge {
    /// The first message of the connection.
    pub(super) fn helo(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(128);
        write_array_header(&mut out, 2);
        write_str(&mut out, b"HELO");
        write_map_header(&mut out, 3);
        write_str(&mut out, b"nonce");
        write_str(&mut out, self.nonce.as_bytes());
        write_str(&mut out, b"auth");
        write_str(&mut out, self.salt.as_bytes());
        write_str(&mut out, b"keepalive");
        write_bool(&mut out, true);
        out
    }
}

impl<'a> Ping<'a> {
    fn read(message: &'a [u8]) -> Option<Self> {
        let mut texts = elements(message).map(|element| match read(message, element.start).0 {
            Value::Str(text) | Value::Bin(text) => Some(text),
            // Nil stands for a user who is not named.
            Value::Nil => Some(&b""[..]),
            _ => None,
        });
        let mut next = || texts.next().flatten();
        let is_ping = next()? == b"PING";
        is_ping.then_some(())?;
        let ping = Self {
            host: next()?,
            salt: next()?,
            digest: next()?,
            user: next()?,
            password_digest: next()?,
        };
        elements(message).nth(6).is_none().then_some(ping)
    }
}

fn pong(is_good: bool, reason: &str, host: &str, digest: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    write_array_header(&mut out, 5);
    write_str(&mut out, b"PONG");
    write_bool(&mut out, is_good);
    write_str(&mut out, reason.as_bytes());
    write_str(&mut out, host.as_bytes());
    write_str(&mut out, digest);
    out
}

fn is_same(expected: &[u8], given: &[u8]) -> bool {
    expected.ct_eq(given).into()
}

fn digest(parts: &[&[u8]]) -> Vec<u8> {
    let mut context = Context::new(&SHA512);
    parts.iter().for_each(|part| context.update(part));
    hexadecimal(context.finish().as_ref()).into_bytes()
}

fn random_text() -> Option<String> {
    let mut bytes = [0; 16];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(hexadecimal(&bytes))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn security(users: &[(&str, &str)]) -> Security {
        let users = users
            .iter()
            .map(|(user, password)| ((*user).to_owned(), Secret::new(password)));
        Security::new(Secret::new("key"), users.collect(), "server".to_owned())
    }

    fn challenge(salt: &str) -> Challenge {
        Challenge {
            nonce: "nonce".to_owned(),
            salt: salt.to_owned(),
        }
    }

    fn message(elements: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        write_array_header(&mut out, elements.len());
        elements.iter().for_each(|text| write_str(&mut out, text));
        out
    }

    /// Another program's digests: `printf saltclientnoncekey | sha512sum`, and so on.
    const DIGESTS: [&str; 3] = [
        "3e248aa088bb87580dd4d9dadb22c4a0335df68b0741d007d17ec8005aeb9998e843e2a85c37bd98d796ff5e2bd5e616e2c5fa1c72deb0a074e05ece1705ecba",
        "1e07e0d86d96dbaf29f56a6b1497d4da9b91a6ae8e8ceb617cf7a6b89d4164172175274bf14d3cf697cb9f64f62e264282a700046101af0ba9e7a8b051830c7f",
        "4dff3a5a3d8680af197de0648391b48544cbc697f8d65a8dc65fd26ad5be7ecb0ff6987cdde1a923a4378573bfae7aa6e50107354fce00d8bb0b2e8e72fb8182",
    ];

    fn ping(digest: &str, user: &str, password_digest: &str) -> Vec<u8> {
        message(&[
            b"PING",
            b"client",
            b"salt",
            digest.as_bytes(),
            user.as_bytes(),
            password_digest.as_bytes(),
        ])
    }

    fn judged(security: &Security, ping: &[u8]) -> (Vec<u8>, Option<String>) {
        let verdict = security
            .judge(&challenge("auth"), ping)
            .expect("secrets can be read");
        (verdict.pong, verdict.refusal)
    }

    #[test]
    fn whoever_knows_the_key_is_admitted_and_learns_that_we_do() {
        let (pong, refusal) = judged(&security(&[]), &ping(DIGESTS[0], "", ""));
        assert_eq!(refusal, None);
        let expected = super::pong(true, "", "server", DIGESTS[1].as_bytes());
        assert_eq!(pong, expected);
    }

    #[test]
    fn others_are_refused_and_hear_why() {
        let wrong = "0".repeat(128);
        let users = security(&[("bob", "x"), ("alice", "secret")]);
        let plain = security(&[]);
        let mismatch = "shared_key mismatch";
        let user = "username/password mismatch";
        let shape = "a PING with six elements was expected";
        let short = message(&[b"PING", b"client", b"salt", DIGESTS[0].as_bytes(), b""]);
        let long = message(&[
            b"PING",
            b"client",
            b"salt",
            DIGESTS[0].as_bytes(),
            b"",
            b"",
            b"",
        ]);
        let number = [&[0x96], &message(&[b"PING"])[1..], &[1, 1, 1, 1, 1]].concat();
        let cases: [(&Security, Vec<u8>, Option<&str>); 12] = [
            (&users, ping(DIGESTS[0], "alice", DIGESTS[2]), None),
            (&users, ping(DIGESTS[0], "alice", &wrong), Some(user)),
            (&users, ping(DIGESTS[0], "bob", DIGESTS[2]), Some(user)),
            (&users, ping(DIGESTS[0], "", ""), Some(user)),
            (&users, ping(&wrong, "alice", DIGESTS[2]), Some(mismatch)),
            (&plain, ping("", "", ""), Some(mismatch)),
            (&plain, ping(&DIGESTS[0][..127], "", ""), Some(mismatch)),
            (&plain, short, Some(shape)),
            (&plain, long, Some(shape)),
            (&plain, number, Some(shape)),
            (&plain, message(&[&b"HELO"[..]; 6]), Some(shape)),
            (&plain, vec![0xC0], Some(shape)),
        ];
        for (security, ping, expected) in cases {
            let (pong, refusal) = judged(security, &ping);
            let expected_refusal =
                expected.map(|reason| format!("the client was refused: {reason}"));
            assert_eq!(refusal, expected_refusal, "{ping:x?}");
            if let Some(reason) = expected {
                assert_eq!(pong, super::pong(false, reason, "", b""));
            }
        }
    }

    #[test]
    fn challenges_differ() {
        let security = security(&[("alice", "secret")]);
        let [one, other] = [(); 2].map(|()| security.challenge().expect("random numbers"));
        assert_ne!(one.nonce, other.nonce);
        assert_ne!(one.salt, other.salt);
        assert!(one.helo().starts_with(b"\x92\xA4HELO\x83\xA5nonce\xD9\x20"));
    }
}
