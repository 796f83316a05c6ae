//! What the settings of all listeners have in common: their defaults, and how a listener is opened with them.
//!
//! The settings themselves stand in the `Config` of each input, because their documentation is made of that.

use batch::json::DEPTH_MAX;
use component::{BuildContext, Effects};
use config::{ConfigError, Node, Period, Positive, Size};
use net::{Address, Listener, ServerTls};

/// The most that a frame or a body may be allowed to be: places in a batch are 32-bit numbers.
pub(crate) const MESSAGE_SIZE_MAX: Size = Size(1 << 30);

/// The default of `max_connections`.
pub(crate) fn connections_default() -> usize {
    10_000
}

/// The default of `idle_timeout`, and of the time for a frame or a body to arrive.
pub(crate) fn timeout_default() -> Positive<Period> {
    Positive::<Period>::from_secs(60)
}

/// The default of the limit on a frame or a body.
pub(crate) fn message_size_default() -> Positive<Size> {
    Positive::from_bytes(16 << 20)
}

/// The default of `max_depth`.
pub(crate) fn depth_default() -> usize {
    DEPTH_MAX
}

/// Refuses an input whose clients would be told that events are safe in a run that keeps none.
pub(crate) fn check_effects(
    name: &str,
    node: &Node,
    context: &BuildContext,
) -> Result<(), ConfigError> {
    if context.effects != Effects::Nothing {
        return Ok(());
    }
    let error = node.error(format!(
        "clients of the input `{name}` would be told that events are safe, and here every event is thrown away"
    ));
    Err(error.note(
        "run it with its outputs (`bench --real-outputs`), or measure the pipeline with the input `file` or `stdin`",
    ))
}

/// Refuses an input that works until it is stopped, in a run that is over when its inputs end.
pub(crate) fn check_unending(
    name: &str,
    node: &Node,
    context: &BuildContext,
) -> Result<(), ConfigError> {
    match context.effects {
        Effects::All => Ok(()),
        _ => Err(node.error(format!(
            "the input `{name}` never ends, so that there is nothing to measure"
        ))),
    }
}

/// Refuses a limit on connections that admits none.
pub(crate) fn check_connections(max_connections: usize, node: &Node) -> Result<(), ConfigError> {
    match max_connections {
        0 => {
            let setting = node.nearest("max_connections");
            Err(setting.error("at least 1 is expected"))
        }
        _ => Ok(()),
    }
}

/// Refuses a depth that admits nothing, or more than documents can be read with.
pub(crate) fn check_depth(max_depth: usize, node: &Node) -> Result<(), ConfigError> {
    match (1..=DEPTH_MAX).contains(&max_depth) {
        true => Ok(()),
        false => Err(node
            .nearest("max_depth")
            .error(format!("1 to {DEPTH_MAX} is expected"))),
    }
}

/// Refuses a limit on a frame or a body that is larger than a batch can hold.
pub(crate) fn check_size(
    name: &str,
    size: &Positive<Size>,
    node: &Node,
) -> Result<(), ConfigError> {
    if size.get() > MESSAGE_SIZE_MAX {
        return Err(node.nearest(name).error("at most 1GiB is accepted"));
    }
    Ok(())
}

/// Opens the listener of the settings `address`, `tls` and `max_connections` of `node`.
pub(crate) async fn listen(
    address: &Address,
    tls: Option<&ServerTls>,
    max_connections: usize,
    node: &Node,
) -> Result<Listener, ConfigError> {
    let tls = match tls {
        Some(tls) => Some(tls.open(node.nearest("tls"))?),
        None => None,
    };
    let tcp = address.bind(node.nearest("address")).await?;
    Ok(Listener::new(tcp, tls, max_connections))
}
