//! Which records of a request brokers have not answered for.
//!
//! librdkafka gives back a number with each report: that of the request's slot, and that of the record in its request.
//! Reports come on the thread that polls librdkafka; who waits for a request is woken when the last one has come.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use ::kafka::LinkState;
use ::kafka::rdkafka::error::RDKafkaErrorCode;
use ::kafka::rdkafka::producer::DeliveryResult;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::polled::DeliveryReports;

/// How many bits of a number say which record it is.
const ROW_BITS: u32 = 24;

/// The most records of a request.
pub const ROWS_MAX: usize = 1 << ROW_BITS;

/// A record that was not taken.
pub type FailedRow = (usize, RDKafkaErrorCode);

/// The requests whose records are on their way.
#[derive(Debug, Default)]
pub struct Flights(Mutex<FlightTable>);

#[derive(Debug, Default)]
struct FlightTable {
    slots: Vec<Option<Flight>>,
    free: Vec<usize>,
    by_request: HashMap<u128, usize>,
}

#[derive(Debug)]
struct Flight {
    /// Records that were not reported on.
    left: usize,
    failed: Vec<FailedRow>,
    /// Whether these records are sent in batches of their own.
    is_alone: bool,
    landed: Arc<Notify>,
}

/// A request in the table.
#[derive(Debug, Clone)]
pub struct FlightHandle {
    slot: usize,
    begun_millis: i64,
    landed: Arc<Notify>,
}

impl FlightHandle {
    /// The number of a record for librdkafka.
    pub fn number(&self, row: usize) -> usize {
        self.slot << ROW_BITS | row
    }

    /// When its records were handed over, or this handle was made, in milliseconds since 1970.
    pub fn begun_millis(&self) -> i64 {
        self.begun_millis
    }

    /// Waits for the last report.
    pub async fn landed(&self) {
        self.landed.notified().await;
    }
}

/// What became of the records of a request.
#[derive(Debug, PartialEq, Eq)]
pub struct Landed {
    /// Those that were not taken.
    pub failed: Vec<FailedRow>,
    /// Whether they were sent in batches of their own.
    pub is_alone: bool,
}

impl Flights {
    /// The request with this id, if its records are on their way already.
    pub fn find(&self, request: u128) -> Option<FlightHandle> {
        let table = self.0.lock();
        let slot = *table.by_request.get(&request)?;
        let flight = table.slots[slot].as_ref()?;
        Some(FlightHandle {
            slot,
            begun_millis: now_millis(),
            landed: flight.landed.clone(),
        })
    }

    /// A request whose records are about to be sent.
    pub fn begin(&self, request: u128, rows: usize) -> FlightHandle {
        let landed = Arc::new(Notify::new());
        let flight = Flight {
            left: rows,
            failed: Vec::new(),
            is_alone: false,
            landed: landed.clone(),
        };
        let mut table = self.0.lock();
        let slot = match table.free.pop() {
            Some(slot) => slot,
            None => {
                table.slots.push(None);
                table.slots.len() - 1
            }
        };
        table.slots[slot] = Some(flight);
        table.by_request.insert(request, slot);
        FlightHandle {
            slot,
            begun_millis: now_millis(),
            landed,
        }
    }

    /// Some records of a request that has landed are about to be sent in batches of their own; the others have failed.
    pub fn begin_alone(&self, handle: &FlightHandle, rows: usize, failed: Vec<FailedRow>) {
        if let Some(flight) = &mut self.0.lock().slots[handle.slot] {
            flight.left = rows;
            flight.failed = failed;
            flight.is_alone = true;
        }
    }

    /// A report on the record of this number.
    pub fn report(&self, number: usize, error: Option<RDKafkaErrorCode>) {
        let (slot, row) = (number >> ROW_BITS, number & (ROWS_MAX - 1));
        let mut table = self.0.lock();
        let Some(Some(flight)) = table.slots.get_mut(slot) else {
            return;
        };
        if let Some(error) = error {
            flight.failed.push((row, error));
        }
        flight.left = flight.left.saturating_sub(1);
        if flight.left == 0 {
            flight.landed.notify_one();
        }
    }

    /// What became of a request whose records were all reported on.
    pub fn landed(&self, handle: &FlightHandle) -> Option<Landed> {
        let table = self.0.lock();
        let flight = table.slots[handle.slot].as_ref()?;
        (flight.left == 0).then(|| Landed {
            failed: flight.failed.clone(),
            is_alone: flight.is_alone,
        })
    }

    /// Nobody asks for the request any more.
    pub fn end(&self, request: u128) {
        let mut table = self.0.lock();
        if let Some(slot) = table.by_request.remove(&request) {
            table.slots[slot] = None;
            table.free.push(slot);
        }
    }
}

fn now_millis() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_millis() as i64)
}

impl DeliveryReports for Flights {
    fn delivered(&self, _: &LinkState, number: usize, result: &DeliveryResult<'_>) {
        let error = result.as_ref().err();
        let code = error.map(|(error, _)| {
            let code = error.rdkafka_error_code();
            code.unwrap_or(RDKafkaErrorCode::Unknown)
        });
        self.report(number, code);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_landed_when_all_its_records_were_reported_on() {
        let flights = Flights::default();
        let (one, two) = (flights.begin(7, 2), flights.begin(8, 1));
        assert_eq!(
            flights.find(7).expect("it is there").number(1),
            one.number(1)
        );
        let code = RDKafkaErrorCode::MessageSizeTooLarge;
        flights.report(one.number(1), Some(code));
        assert_eq!(flights.landed(&one), None);
        flights.report(one.number(0), None);
        let landed = flights.landed(&one).expect("it has landed");
        assert_eq!(landed.failed, [(1, code)]);
        assert!(!landed.is_alone);
        flights.begin_alone(&one, 1, Vec::new());
        assert_eq!(flights.landed(&one), None);
        flights.report(one.number(1), None);
        assert!(flights.landed(&one).expect("again").is_alone);
        flights.end(7);
        assert!(flights.find(7).is_none());
        let three = flights.begin(9, 1);
        assert_eq!(three.number(0), one.number(0), "its place is used again");
        flights.report(two.number(0), None);
        assert!(flights.landed(&two).is_some());
        assert!(flights.landed(&three).is_none());
    }
}
