//! What the four inputs say of themselves, and how they are made of their settings.

use component::{Build, BuildContext, Effects, Example, Input, Spec};
use config::{ConfigError, Node, Positional, Size};
use net::Address;

use super::settings::{
    Format, Framing, Kind, Messages, SyslogConfig, TcpConfig, Transport, UdpConfig, UnixConfig,
};
use super::stream::Patience;
use super::{Endpoint, Socket, local};
use crate::connections::settings::check_connections;

/// The input `syslog`.
pub const SYSLOG: Spec = Spec {
    name: "syslog",
    aliases: &[],
    summary: "Receives syslog messages over UDP, TCP, TLS or a Unix domain socket.",
    description: include_str!("syslog.md"),
    positional: Positional::fields(&["transport", "address"]),
    one_line: &[],
    examples: &[
        Example {
            title: "Datagrams on port 5514 of this machine",
            stage: "syslog udp 5514",
            input: "",
            output: "",
        },
        Example {
            title: "Messages of other machines, over TCP, whose times are those of Berlin",
            stage: "syslog tcp :5514 timezone=Europe/Berlin",
            input: "",
            output: "",
        },
        Example {
            title: "The messages of local programs",
            stage: "syslog unix /dev/log",
            input: "",
            output: "",
        },
        Example {
            title: "TLS, with clients that show a certificate",
            stage: "syslog tcp :6514 tls.cert=server.pem tls.key=server.key tls.client_ca=clients.pem",
            input: "",
            output: "",
        },
    ],
    schema: |generator| generator.subschema_for::<SyslogConfig>(),
    build: Build::Input(syslog),
};

/// The input `tcp`.
pub const TCP: Spec = Spec {
    name: "tcp",
    aliases: &[],
    summary: "Receives lines, JSON documents, MessagePack maps or syslog messages over TCP or TLS.",
    description: include_str!("tcp.md"),
    positional: Positional::fields(&["address"]),
    one_line: &[],
    examples: &[
        Example {
            title: "Lines of text on port 5170 of this machine",
            stage: "tcp 5170",
            input: "",
            output: "",
        },
        Example {
            title: "JSON documents of other machines, one per line",
            stage: "tcp :5170 codec=json",
            input: "",
            output: "",
        },
    ],
    schema: |generator| generator.subschema_for::<TcpConfig>(),
    build: Build::Input(tcp),
};

/// The input `udp`.
pub const UDP: Spec = Spec {
    name: "udp",
    aliases: &[],
    summary: "Receives datagrams over UDP, each of which is an event.",
    description: include_str!("udp.md"),
    positional: Positional::fields(&["address"]),
    one_line: &[],
    examples: &[
        Example {
            title: "Datagrams on port 5170 of this machine",
            stage: "udp 5170",
            input: "",
            output: "",
        },
        Example {
            title: "JSON documents of other machines",
            stage: "udp :5170 codec=json",
            input: "",
            output: "",
        },
    ],
    schema: |generator| generator.subschema_for::<UdpConfig>(),
    build: Build::Input(udp),
};

/// The input `unix`.
pub const UNIX: Spec = Spec {
    name: "unix",
    aliases: &[],
    summary: "Receives messages of programs on the same machine over a Unix domain socket.",
    description: include_str!("unix.md"),
    positional: Positional::fields(&["path"]),
    one_line: &[],
    examples: &[
        Example {
            title: "Lines of text",
            stage: "unix /run/millpond.sock",
            input: "",
            output: "",
        },
        Example {
            title: "A JSON document in each datagram, from every user",
            stage: "unix /run/millpond.sock kind=datagram codec=json mode=0666",
            input: "",
            output: "",
        },
    ],
    schema: |generator| generator.subschema_for::<UnixConfig>(),
    build: Build::Input(unix),
};

fn syslog(node: &Node, context: &BuildContext) -> Result<Box<dyn Input>, ConfigError> {
    let config: SyslogConfig = component::parse(node)?;
    check_connections(config.max_connections, node)?;
    if config.transport != Transport::Tcp && config.tls.is_some() {
        return Err(node.nearest("tls").error("`tls` requires `transport: tcp`"));
    }
    let of_unix = [
        ("kind", config.kind.is_some()),
        ("mode", config.mode.is_some()),
    ];
    for (name, _) in of_unix.into_iter().filter(|(_, is_set)| *is_set) {
        if config.transport != Transport::Unix {
            let text = format!("`{name}` requires `transport: unix`");
            return Err(node.nearest(name).error(text));
        }
    }
    let messages = Messages {
        codec: Format::Syslog,
        framing: Framing::OctetCounted,
        max_line_bytes: config.max_line_bytes,
        add_fields: false,
        timezone: config.timezone.as_deref(),
    };
    let address = || {
        let address = config.address.parse::<Address>();
        address.map_err(|error| node.nearest("address").error(error))
    };
    let place = match config.transport {
        Transport::Udp => Endpoint::Udp(address()?),
        Transport::Tcp => Endpoint::Tcp {
            address: address()?,
            tls: config.tls,
        },
        Transport::Unix => {
            // As `/dev/log`, to which every program may write.
            let mode = config.mode.as_deref().unwrap_or("0666");
            let path = local::Path::new(&config.address, mode, node)?;
            match config.kind {
                Some(Kind::Stream) => Endpoint::Stream(path),
                Some(Kind::Datagram) | None => Endpoint::Datagrams(path),
            }
        }
    };
    let socket = Socket {
        max_connections: config.max_connections,
        patience: Patience {
            idle: config.idle_timeout.map(|idle| idle.get().0),
            line: config.line_timeout.get().0,
        },
        receive_buffer_bytes: config.receive_buffer_bytes.bytes(),
        ..Socket::new("syslog", place, messages.settings(node)?, node)
    };
    finish(socket, context)
}

fn tcp(node: &Node, context: &BuildContext) -> Result<Box<dyn Input>, ConfigError> {
    let config: TcpConfig = component::parse(node)?;
    check_connections(config.max_connections, node)?;
    let messages = Messages {
        codec: config.codec,
        framing: config.framing,
        max_line_bytes: config.max_line_bytes,
        add_fields: config.add_fields,
        timezone: config.timezone.as_deref(),
    };
    let place = Endpoint::Tcp {
        address: config.address,
        tls: config.tls,
    };
    let socket = Socket {
        max_connections: config.max_connections,
        patience: Patience {
            idle: config.idle_timeout.map(|idle| idle.get().0),
            line: config.line_timeout.get().0,
        },
        ..Socket::new("tcp", place, messages.settings(node)?, node)
    };
    finish(socket, context)
}

fn udp(node: &Node, context: &BuildContext) -> Result<Box<dyn Input>, ConfigError> {
    let config: UdpConfig = component::parse(node)?;
    refuse_msgpack(config.codec, node)?;
    let settings = of_datagrams(
        config.codec,
        config.max_line_bytes,
        config.add_fields,
        config.timezone.as_deref(),
        node,
    )?;
    let socket = Socket {
        receive_buffer_bytes: config.receive_buffer_bytes.bytes(),
        ..Socket::new("udp", Endpoint::Udp(config.address), settings, node)
    };
    finish(socket, context)
}

fn unix(node: &Node, context: &BuildContext) -> Result<Box<dyn Input>, ConfigError> {
    let config: UnixConfig = component::parse(node)?;
    check_connections(config.max_connections, node)?;
    let path = local::Path::new(&config.path, &config.mode, node)?;
    let (place, settings) = match config.kind {
        Kind::Stream => {
            let messages = Messages {
                codec: config.codec,
                framing: config.framing,
                max_line_bytes: config.max_line_bytes,
                add_fields: config.add_fields,
                timezone: config.timezone.as_deref(),
            };
            (Endpoint::Stream(path), messages.settings(node)?)
        }
        Kind::Datagram => {
            refuse_msgpack(config.codec, node)?;
            if config.framing != Framing::default() {
                let setting = node.nearest("framing");
                return Err(setting.error("`framing` requires `kind: stream`"));
            }
            let settings = of_datagrams(
                config.codec,
                config.max_line_bytes,
                config.add_fields,
                config.timezone.as_deref(),
                node,
            )?;
            (Endpoint::Datagrams(path), settings)
        }
    };
    let socket = Socket {
        max_connections: config.max_connections,
        patience: Patience {
            idle: config.idle_timeout.map(|idle| idle.get().0),
            line: config.line_timeout.get().0,
        },
        receive_buffer_bytes: config.receive_buffer_bytes.bytes(),
        ..Socket::new("unix", place, settings, node)
    };
    finish(socket, context)
}

/// How datagrams become events: each is one, whatever is in it.
fn of_datagrams(
    codec: Format,
    max_line_bytes: Size,
    add_fields: bool,
    timezone: Option<&str>,
    node: &Node,
) -> Result<codec::Settings, ConfigError> {
    let messages = Messages {
        codec,
        framing: Framing::Lf,
        max_line_bytes,
        add_fields,
        timezone,
    };
    messages.settings(node)
}

/// Datagrams that hold MessagePack are not read yet.
fn refuse_msgpack(codec: Format, node: &Node) -> Result<(), ConfigError> {
    match codec {
        Format::Msgpack => Err(node
            .nearest("codec")
            .error("datagrams are text, JSON or syslog; `msgpack` requires a connection")),
        _ => Ok(()),
    }
}

fn finish(socket: Socket, context: &BuildContext) -> Result<Box<dyn Input>, ConfigError> {
    if context.effects == Effects::Nothing {
        let error = socket.node.error(format!(
            "the events that clients send to the input `{}` would be thrown away",
            socket.name
        ));
        return Err(error.note(
            "run it with its outputs (`bench --real-outputs`), or measure the pipeline with the input `file` or `stdin`",
        ));
    }
    Ok(Box::new(socket))
}
