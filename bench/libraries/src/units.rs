//! Sizes and durations in settings: which spellings are read, and as what.

use std::time::{Duration, Instant};

use bytesize::ByteSize;
use config::{Period, Size};
use jiff::SignedDuration;

/// Durations as people write them, with their nanoseconds; none for those that are to be refused: `5` has no unit, others are typing errors.
const DURATIONS: [(&str, Option<u128>); 16] = [
    ("5s", Some(5_000_000_000)),
    ("100ms", Some(100_000_000)),
    ("2us", Some(2_000)),
    ("2µs", Some(2_000)),
    ("2μs", Some(2_000)),
    ("1.5s", Some(1_500_000_000)),
    ("1h30m", Some(5_400_000_000_000)),
    ("1h 30m", Some(5_400_000_000_000)),
    ("1d", Some(86_400_000_000_000)),
    ("0", Some(0)),
    ("5", None),
    ("1m30m", None),
    ("5s1h", None),
    ("-5s", None),
    ("5 s x", None),
    ("1,5s", None),
];

/// Likewise sizes, with their bytes.
const SIZES: [(&str, Option<u64>); 14] = [
    ("512", Some(512)),
    ("64KiB", Some(65_536)),
    ("64kib", Some(65_536)),
    ("10MB", Some(10_000_000)),
    ("10 MB", Some(10_000_000)),
    ("1.5GiB", Some(1_610_612_736)),
    ("1_000_000", Some(1_000_000)),
    ("1.1TiB", Some(1_209_462_790_553)),
    ("9007199254740993B", Some(9_007_199_254_740_993)),
    ("1.5", None),
    ("-1", None),
    ("10Mi B", None),
    ("10mb/s", None),
    ("99999999TiB", None),
];

/// Prints, for each way of reading, what it makes of the table and what one reading costs.
pub fn compare() {
    let nanos = |duration: Duration| duration.as_nanos();
    let ours = |text: &str| text.parse::<Period>().ok().map(|period| nanos(period.0));
    let jiff = |text: &str| {
        let duration = text.parse::<SignedDuration>().ok()?;
        Duration::try_from(duration).ok().map(nanos)
    };
    let humantime = |text: &str| humantime::parse_duration(text).ok().map(nanos);
    table("durations, ours", &DURATIONS, ours);
    table("durations, jiff", &DURATIONS, jiff);
    table("durations, humantime", &DURATIONS, humantime);
    table("sizes, ours", &SIZES, |text| {
        text.parse::<Size>().ok().map(|size| size.0)
    });
    table("sizes, bytesize", &SIZES, |text| {
        text.parse::<ByteSize>().ok().map(|size| size.0)
    });
    println!("\nwhat is said of a duration without a unit, and of a wrong unit of a size:");
    println!(
        "  ours       {}",
        "5".parse::<Period>().expect_err("no unit")
    );
    println!(
        "  jiff       {}",
        "5".parse::<SignedDuration>().expect_err("no unit")
    );
    println!(
        "  humantime  {}",
        humantime::parse_duration("5").expect_err("no unit")
    );
    println!(
        "  ours       {}",
        "10MiBs".parse::<Size>().expect_err("no such unit")
    );
    println!(
        "  bytesize   {}",
        "10MiBs".parse::<ByteSize>().expect_err("no such unit")
    );
}

fn table<T: PartialEq + std::fmt::Debug>(
    name: &str,
    cases: &[(&str, Option<T>)],
    read: impl Fn(&str) -> Option<T>,
) {
    const ROUNDS: u32 = 100_000;
    let begin = Instant::now();
    for _ in 0..ROUNDS {
        for (text, _) in cases {
            std::hint::black_box(read(std::hint::black_box(text)));
        }
    }
    let each = begin.elapsed().as_nanos() as f64 / f64::from(ROUNDS) / cases.len() as f64;
    let wrong = cases
        .iter()
        .filter(|(text, expected)| read(text) != *expected);
    let wrong: Vec<_> = wrong
        .map(|(text, _)| format!("`{text}` {:?}", read(text)))
        .collect();
    let right = cases.len() - wrong.len();
    println!(
        "{name:21} {right:2} of {} as wanted, {each:4.0} ns; not: {}",
        cases.len(),
        wrong.join(", ")
    );
}
