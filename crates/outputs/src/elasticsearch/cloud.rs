//! Cloud ids: `NAME:BASE64`, where what is encoded is `HOST[:PORT]$CLUSTER[:PORT]$…`. The cluster answers at
//! `https://CLUSTER.HOST:PORT`, by default at port 443. Further parts are Kibana's and other servers'.
//! Source: <https://www.elastic.co/docs/deploy-manage/deploy/elastic-cloud/find-cloud-id>.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

/// The address that a cloud id stands for.
///
/// # Errors
/// What is wrong with it.
pub fn address(id: &str) -> Result<String, &'static str> {
    // The name is for people, and may be missing.
    let encoded = id.rsplit(':').next().unwrap_or_default().trim();
    let decoded = match encoded.ends_with('=') {
        true => STANDARD.decode(encoded),
        false => STANDARD_NO_PAD.decode(encoded),
    };
    let decoded = decoded.ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let decoded = decoded.ok_or("the part after the last `:` is not base64-encoded text")?;
    let mut parts = decoded.split('$');
    let host = parts.next().unwrap_or_default();
    let cluster = parts.next().unwrap_or_default();
    if host.is_empty() || cluster.is_empty() || cluster == "undefined" {
        return Err("it contains no host and cluster");
    }
    let (host, common_port) = host.split_once(':').unwrap_or((host, "443"));
    let (cluster, port) = cluster.split_once(':').unwrap_or((cluster, common_port));
    let is_name = |text: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        !text.is_empty() && text.bytes().all(plain)
    };
    if !is_name(host) || !is_name(cluster) || port.parse::<u16>().is_err() {
        return Err("it contains no valid host, cluster and port");
    }
    Ok(format!("https://{cluster}.{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_name_a_cluster() {
        for (name, text, expected) in [
            (
                "x:",
                "us-east-1.aws.found.io$abc$def",
                "https://abc.us-east-1.aws.found.io:443",
            ),
            (
                "x:",
                "cloud.example:9243$abc$",
                "https://abc.cloud.example:9243",
            ),
            (
                "a:b:",
                "cloud.example$abc:9244$def:9245",
                "https://abc.cloud.example:9244",
            ),
            ("", "cloud.example$abc", "https://abc.cloud.example:443"),
        ] {
            for encoded in [STANDARD.encode(text), STANDARD_NO_PAD.encode(text)] {
                assert_eq!(
                    address(&format!("{name}{encoded}")).as_deref(),
                    Ok(expected)
                );
            }
        }
    }

    #[test]
    fn other_texts_are_none() {
        for text in [
            "",
            "$",
            "host",
            "host$",
            "$abc",
            "host$undefined$k",
            "ho/st$abc",
            "host:x$abc",
            "host$a@b",
        ] {
            assert!(
                address(&format!("x:{}", STANDARD.encode(text))).is_err(),
                "{text}"
            );
        }
        for id in ["", "x:", "x:%%%", "my-cluster", "x:/w=="] {
            assert!(address(id).is_err(), "{id}");
        }
    }
}
