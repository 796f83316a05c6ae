//! What a component is: the traits of inputs, processors and outputs, how a component describes itself, and what the
//! engine gives it to work with.
//!
//! | module | holds |
//! | --- | --- |
//! | [`spec`] | [`Spec`]: name, settings, examples and constructor of a component; the source of docs and schema |
//! | [`input`] | [`Input`] and what it works with: context, receipts, stopping |
//! | [`processor`] | [`Processor`], [`Order`] |
//! | [`output`] | [`Output`]: a [`Writer`] or a [`Sender`], with how to write one |
//! | [`anchor`] | [`Anchor`]: what an output that collects has to know of the queue |
//! | [`phase`] | how far a run is on its way to its end |
//! | [`diagnostics`] | messages for the person who runs Millpond |
//! | [`activity`] | what each thread works for at each moment, and the CPU time that it is charged with |
//! | [`kept`] | sockets that stay open while another configuration takes the place of the one that runs |
//! | [`metrics`] | counters of an operator |
//! | [`ledger`] | what became of every file |
//! | [`series`] | metrics that processors make of events |
//! | [`standard`] | whether standard input and output can be used |
//! | [`thread`] | threads for blocking work |
//! | [`words`] | numbers in messages |
//! | [`written`] | files that the process writes, which its inputs leave alone |

pub mod activity;
pub mod anchor;
pub mod diagnostics;
pub mod input;
pub mod kept;
pub mod ledger;
pub mod metrics;
pub mod output;
pub mod own;
pub mod phase;
pub mod processor;
pub mod series;
pub mod settings;
pub mod spec;
pub mod standard;
pub mod terminal;
pub mod thread;
pub mod words;
pub mod written;

pub use activity::{Activities, Activity};
pub use anchor::Anchor;
pub use diagnostics::{Component, Diagnostics, Level, Limit, Message, Role, Warning};
pub use input::{
    Delivery, DroppedRows, Input, InputContext, InputError, Receipt, Sink, Stop, Stopped,
    StreamDelivery, receipt,
};
pub use ledger::{Dropped, FileLedger, FileStatus, Ledger};
pub use metrics::{OperatorMetrics, Progress, Waiting};
pub use output::{
    AnyOutput, Collector, Compression, DestinationPart, Encoded, Feeder, Framing, Output, Request,
    RequestLimits, RequestOrder, Requests, RowAnswer, RowEnd, Rows, SendError, Sender, Sent,
    WriteError, Writer, Written,
};
pub use own::Own;
pub use phase::{Phase, Phases};
pub use processor::{Order, Processor};
pub use spec::{
    Build, BuildContext, Effects, Example, Spec, beside, field, field_at, fields, parse,
};
pub use words::{grouped, plural, plural_were};
pub use written::{FileIdentity, WrittenFiles};
