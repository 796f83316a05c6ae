//! The settings of `syslog`.

use std::collections::BTreeMap;

use config::{ConfigError, Node, Period, Positive, Size};
use datetime::Zone;
use expr::{Template, zone_setting};
use net::ClientTls;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::choice::Choice;
use super::data::{Params, StructuredData};
use super::header::write_name;
use super::level::{Priority, facility, severity};
use super::message::Rendering;
use super::stamp::Stamp;
use crate::codec::{Codec, CodecName, CodecSettings, template};
use crate::socket::channel::{Channel, local, servers};
use crate::socket::datagrams::DatagramClient;
use crate::socket::framing::{Framing, FramingName};
use crate::socket::settings::{
    Kind, Oversized, datagrams, duration, refuse, resend_default, timeout_default,
    write_timeout_default,
};
use crate::socket::stream::{StreamClient, StreamSettings};

/// The settings of `syslog`, without those of the codec.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The protocol that messages are sent with.
    transport: Transport,
    /// The server: `HOST:PORT`, or `HOST` for the port 514, with TLS 6514. With `transport: unix`, the path of the socket, or `@` and
    /// its abstract name. Of several servers, messages go over TCP to the first one that can be reached, and to the next one if that fails.
    address: Vec<String>,
    /// The standard that messages follow.
    #[serde(default)]
    standard: StandardName,
    /// What separates messages on a connection: `octet_counted`, `lf` or `nul`. Default: `octet_counted` with `transport: tcp`, `lf`
    /// with `transport: unix` and `kind: stream`.
    framing: Option<FramingName>,
    /// With `transport: unix`: the kind of socket. Default: `datagram`, which is what `/dev/log` is.
    kind: Option<Kind>,
    /// With `transport: tcp`: enables TLS. Default: disabled.
    tls: Option<ClientTls>,
    /// The facility: a name such as `local0`, a number from 0 to 23, or a text with `%{field}` that gives one of these. Default: the
    /// fields `log.syslog.facility.code` and `log.syslog.facility.name`, or else `user`.
    #[schemars(with = "Option<String>")]
    facility: Option<Text>,
    /// The severity: a name such as `warning`, a number from 0 to 7, or a text with `%{field}` that gives one of these. Default: the
    /// fields `log.syslog.severity.code`, `log.syslog.severity.name` and `log.level`, or else `notice`.
    #[schemars(with = "Option<String>")]
    severity: Option<Text>,
    /// The host that the message names, which may contain `%{field}`. Default: the fields `log.syslog.hostname` and `host.name`, or
    /// else the name of this machine.
    hostname: Option<Text>,
    /// The program that the message names, which may contain `%{field}`. Default: the fields `log.syslog.appname`, `process.name` and
    /// `service.name`.
    appname: Option<Text>,
    /// The id of the process, which may contain `%{field}`. Default: the fields `log.syslog.procid` and `process.pid`.
    procid: Option<Text>,
    /// With `standard: rfc5424`: the type of the message, which may contain `%{field}`. Default: the field `log.syslog.msgid`.
    msgid: Option<Text>,
    /// With `standard: rfc5424`: parameters of structured data, each named `ELEMENT.PARAMETER`, such as `event@32473.id`, with its
    /// value, which may contain `%{field}`. A parameter is left out if an event lacks a field of it.
    structured_data: Option<BTreeMap<String, Text>>,
    /// With `standard: rfc5424`: a field with an object whose members are elements of structured data too. Default:
    /// `log.syslog.structured_data`.
    structured_data_field: Option<String>,
    /// With `standard: rfc5424`: whether the byte order mark is before the text, which RFC 5424 wants before UTF-8.
    bom: Option<bool>,
    /// The time zone of times with `standard: rfc3164`, and of those in `%{+time format}`: an IANA name such as `Europe/Berlin`, or an
    /// offset such as `+02:00`. Default: the local time zone of the machine with `standard: rfc3164`, UTC in `%{+time format}`.
    #[allow(dead_code, reason = "read from the tree, for its place")]
    timezone: Option<String>,
    /// With `transport: udp` and datagrams to a Unix domain socket: the maximum length of a message in bytes. Default: 65507.
    max_datagram_bytes: Option<Positive<Size>>,
    /// With datagrams: what happens to a message that is longer. Default: `reject`.
    oversized: Option<Oversized>,
    /// The maximum time to establish a connection, including TLS.
    #[serde(default = "timeout_default")]
    connect_timeout: Positive<Period>,
    /// How long the server may read nothing. After that, the connection is closed, and what was not delivered is sent again.
    #[serde(default = "write_timeout_default")]
    write_timeout: Positive<Period>,
    /// On connections: how many bytes of what was sent last are kept, and sent again if the connection breaks, because the server may
    /// not have read them; 0 for none. Default: 8MiB.
    max_resend_bytes: Option<Size>,
}

/// How syslog messages are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Transport {
    /// Each message is a datagram.
    Udp,
    /// Over a connection, also with TLS.
    Tcp,
    /// To a program on the same machine, over a Unix domain socket.
    Unix,
}

/// Standards of syslog messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum StandardName {
    /// RFC 5424.
    #[default]
    Rfc5424,
    /// RFC 3164, the older format, without structured data and year.
    Rfc3164,
}

/// A text, which may be written as a number.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Text {
    Number(u64),
    Text(String),
}

impl Text {
    fn text(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        }
    }

    /// Whether it is the same for all events, and no level.
    fn is_no(&self, level: fn(&[u8]) -> Option<u8>) -> bool {
        let text = self.text();
        !text.contains("%{") && level(text.as_bytes()).is_none()
    }
}

const OF_DATAGRAMS: [&str; 2] = ["max_datagram_bytes", "oversized"];
const OF_STREAMS: [&str; 2] = ["framing", "max_resend_bytes"];
const OF_RFC5424: [&str; 4] = ["msgid", "structured_data", "structured_data_field", "bom"];

impl Config {
    /// How messages are written, and with what they are sent.
    ///
    /// # Errors
    /// A setting is invalid or does not go with others, with its place.
    pub fn parts(
        self,
        codec: &CodecSettings,
        node: &Node,
    ) -> Result<(Rendering, Channel), ConfigError> {
        if self.transport != Transport::Tcp {
            refuse(node, &["tls"], "`transport: tcp`")?;
        }
        if self.transport != Transport::Unix {
            refuse(node, &["kind"], "`transport: unix`")?;
        }
        if self.standard == StandardName::Rfc3164 {
            refuse(node, &OF_RFC5424, "`standard: rfc5424`")?;
        }
        let codec = codec.codec(node, CodecName::Text)?;
        if matches!(codec, Codec::MsgPack) {
            let message = "the text of a message is UTF-8: `msgpack` cannot be one";
            return Err(node.nearest("codec").error(message));
        }
        let zone = zone_setting(node)?;
        let has_zone = node.get("timezone").is_some_and(|zone| !zone.is_null());
        let stamp = match self.standard {
            StandardName::Rfc5424 => Stamp::Rfc5424,
            StandardName::Rfc3164 if has_zone => Stamp::rfc3164(zone),
            StandardName::Rfc3164 => Stamp::rfc3164(Zone::of_host()),
        };
        let rendering = Rendering {
            priority: self.priority(node)?,
            stamp,
            hostname: self.hostname(node)?,
            appname: choice(
                node,
                "appname",
                self.appname.as_ref(),
                &["log.syslog.appname", "process.name", "service.name"],
            )?,
            procid: choice(
                node,
                "procid",
                self.procid.as_ref(),
                &["log.syslog.procid", "process.pid"],
            )?,
            msgid: choice(node, "msgid", self.msgid.as_ref(), &["log.syslog.msgid"])?,
            data: self.data(node)?,
            codec,
            has_mark: self.bom == Some(true),
            framing: self.framing(node)?,
        };
        Ok((rendering, self.channel(node)?))
    }

    fn priority(&self, node: &Node) -> Result<Priority, ConfigError> {
        let (set, fields) = (self.facility.as_ref(), Priority::FACILITY_FIELDS);
        if set.is_some_and(|text| text.is_no(facility)) {
            let message = "expected a facility such as `local0` or a number from 0 to 23";
            return Err(node.nearest("facility").error(message));
        }
        let facility = choice(node, "facility", set, fields)?;
        let (set, fields) = (self.severity.as_ref(), Priority::SEVERITY_FIELDS);
        if set.is_some_and(|text| text.is_no(severity)) {
            let message = "expected a severity such as `warning` or a number from 0 to 7";
            return Err(node.nearest("severity").error(message));
        }
        let severity = choice(node, "severity", set, fields)?;
        Ok(Priority { facility, severity })
    }

    fn hostname(&self, node: &Node) -> Result<Choice, ConfigError> {
        const FIELDS: &[&str] = &["log.syslog.hostname", "host.name", "@metadata.host.name"];
        choice(node, "hostname", self.hostname.as_ref(), FIELDS)
    }

    fn data(&self, node: &Node) -> Result<StructuredData, ConfigError> {
        if self.standard == StandardName::Rfc3164 {
            return Ok(StructuredData::default());
        }
        let mut elements: Vec<(Vec<u8>, Params)> = Vec::new();
        for (key, text) in self.structured_data.iter().flatten() {
            let map = node.nearest("structured_data");
            let at = map.get(key).unwrap_or(map);
            let Some((element, param)) = key.rsplit_once('.') else {
                let message =
                    format!("expected ELEMENT.PARAMETER, such as `event@32473.id`, not `{key}`");
                return Err(at.error(message));
            };
            let (element, param) = (named(element, at)?, named(param, at)?);
            let param = (param, template(node, at, &text.text())?);
            match elements.iter_mut().find(|(known, _)| *known == element) {
                Some((_, params)) => params.push(param),
                None => elements.push((element, vec![param])),
            }
        }
        let field = self.structured_data_field.as_deref();
        let field = field.unwrap_or("log.syslog.structured_data");
        Ok(StructuredData {
            elements,
            field: Some(component::field(node, "structured_data_field", field)?),
        })
    }

    /// Whether messages are datagrams.
    fn has_datagrams(&self) -> bool {
        match self.transport {
            Transport::Udp => true,
            Transport::Tcp => false,
            Transport::Unix => self.kind != Some(Kind::Stream),
        }
    }

    fn framing(&self, node: &Node) -> Result<Framing, ConfigError> {
        if self.has_datagrams() {
            let required = "`transport: tcp`, or `transport: unix` with `kind: stream`";
            refuse(node, &OF_STREAMS, required)?;
            return datagrams(self.max_datagram_bytes, self.oversized, node);
        }
        let required = "`transport: udp`, or `transport: unix` with `kind: datagram`";
        refuse(node, &OF_DATAGRAMS, required)?;
        let default = match self.transport {
            Transport::Unix => FramingName::Lf,
            Transport::Udp | Transport::Tcp => FramingName::OctetCounted,
        };
        match self.framing.unwrap_or(default) {
            FramingName::None => {
                let message = "a syslog message does not say where it ends: use `octet_counted`, `lf` or `nul`";
                Err(node.nearest("framing").error(message))
            }
            FramingName::Nul => Ok(FramingName::Nul.framing(b"\0")),
            // Receivers that end messages at line feeds often end them at zero bytes as well.
            name => Ok(name.framing(b"\n\0")),
        }
    }

    fn channel(self, node: &Node) -> Result<Channel, ConfigError> {
        let at = node.nearest("address");
        let target = match (self.transport, self.address.as_slice()) {
            (Transport::Unix, [path]) => local(path, at)?,
            (Transport::Unix | Transport::Udp, [_, _, ..]) => {
                return Err(at.error("several addresses require `transport: tcp`"));
            }
            (_, addresses) => {
                let port = if self.tls.is_some() { 6514 } else { 514 };
                servers(addresses, Some(port), node)?
            }
        };
        let write_timeout = duration(&self.write_timeout);
        if self.has_datagrams() {
            let client = DatagramClient::new(target, write_timeout);
            return Ok(Channel::Datagrams(client));
        }
        let settings = StreamSettings {
            target,
            tls: self.tls,
            connect_timeout: duration(&self.connect_timeout),
            write_timeout,
            resend_bytes_max: self.max_resend_bytes.unwrap_or_else(resend_default).bytes(),
        };
        Ok(Channel::Stream(StreamClient::new(settings, node)))
    }
}

/// A name in structured data.
///
/// # Errors
/// It cannot be one, at the place of the setting.
fn named(name: &str, at: &Node) -> Result<Vec<u8>, ConfigError> {
    let mut clean = Vec::new();
    write_name(name.as_bytes(), &mut clean);
    match clean == name.as_bytes() {
        true => Ok(clean),
        false => Err(at.error(format!(
            "`{name}` cannot be a name in structured data: expected at most 32 printable ASCII characters without spaces, quotes, `=` and `]`"
        ))),
    }
}

/// The text in a setting, or else the first of these fields that an event has.
fn choice(
    node: &Node,
    name: &str,
    set: Option<&Text>,
    fields: &[&str],
) -> Result<Choice, ConfigError> {
    let Some(text) = set else {
        return Ok(Choice::fields(fields));
    };
    let text: Template = template(node, node.nearest(name), &text.text())?;
    Ok(Choice::set(text))
}
