//! How far a queue is on its way to its end.

/// How far a queue is on its way to its end. It only goes forward.
///
/// This is not the pipeline's [`component::Phase`], although four names are the same: a pipeline is `Draining` from the moment
/// at which its inputs are told to end, and its queue only after they have ended, because it still takes what they have in
/// hand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum QueuePhase {
    /// Batches come in and leave.
    #[default]
    Running,
    /// What inputs have in hand is the last: it is let in beyond the limits. Where the disk does not take it, it is refused,
    /// so that its source keeps it.
    LastCall,
    /// As [`QueuePhase::LastCall`], and nothing leaves any more: what comes in is stored for the next run.
    Storing,
    /// Nothing comes in any more; everything leaves.
    Draining,
    /// Nothing comes in any more; what is stored stays, the rest leaves.
    Leaving,
    /// Nothing comes in or leaves any more.
    Aborted,
    /// As [`QueuePhase::Aborted`], and the writer ends.
    Shut,
}

impl QueuePhase {
    /// Whether batches come in.
    pub(super) fn accepts(self) -> bool {
        self < Self::Draining
    }

    /// Whether inputs do not wait for room.
    pub(super) fn is_last_call(self) -> bool {
        matches!(self, Self::LastCall | Self::Storing)
    }

    /// Whether batches that wait in memory leave.
    pub(super) fn gives(self) -> bool {
        match self {
            Self::Running | Self::LastCall | Self::Draining | Self::Leaving => true,
            Self::Storing | Self::Aborted | Self::Shut => false,
        }
    }

    /// Whether what is stored is read back, so that it leaves.
    pub(super) fn reads_back(self) -> bool {
        self.gives() && self != Self::Leaving
    }

    /// The phase after being asked to go on to another: never an earlier one. A queue that gives nothing does not begin to give
    /// what is stored because nothing comes in any more.
    pub(super) fn advanced(self, to: Self) -> Self {
        match (self, to) {
            (Self::Storing, Self::Draining) | (Self::Draining, Self::Storing) => Self::Leaving,
            _ => self.max(to),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::QueuePhase::{self, *};

    #[test]
    fn it_goes_forward() {
        let all = [Running, LastCall, Storing, Draining, Leaving, Aborted, Shut];
        for from in all {
            for to in all {
                let after = from.advanced(to);
                assert!(after >= from && after >= to, "{from:?} to {to:?}");
                assert!(from.accepts() || !after.accepts(), "{from:?} to {to:?}");
                let reads = from.reads_back() && to.reads_back();
                assert_eq!(after.reads_back(), reads, "{from:?} to {to:?}");
            }
        }
    }

    #[test]
    fn a_stored_batch_stays_where_a_queue_stops_giving_while_it_drains() {
        for phases in [[Storing, Draining], [Draining, Storing]] {
            let phase = phases.into_iter().fold(Running, QueuePhase::advanced);
            assert_eq!(phase, Leaving);
        }
    }
}
