//! Lines as RFC 3164 has them: `<34>Jan  1 00:00:00 host program[pid]: message`.

use super::Writer;
use super::line::{Clock, Line};
use super::random::Bits;
use super::vocabulary::{Vocabulary, list};

pub(super) struct Syslog {
    bits: Bits,
    clock: Clock,
    addresses: Vec<String>,
    domains: Vec<&'static str>,
    hosts: Vec<&'static str>,
    users: Vec<&'static str>,
    units: Vec<&'static str>,
    tables: Vec<&'static str>,
}

impl Syslog {
    pub(super) fn new(seed: u64) -> Self {
        let mut bits = Bits::new(seed);
        let vocabulary = Vocabulary::new();
        // The day of the month has no leading zero but a space.
        let render = |moment: &super::line::Moment<'_>| {
            format!(
                "{} {:>2} {} ",
                moment.month,
                moment.day.trim_start_matches('0'),
                moment.time
            )
        };
        Self {
            clock: Clock::new(render),
            addresses: vocabulary.addresses(&mut bits, 500),
            domains: vocabulary.domains,
            hosts: list("hosts"),
            users: list("users"),
            units: list("units"),
            tables: list("tables"),
            bits,
        }
    }
}

impl Writer for Syslog {
    fn write(&mut self, number: u64, line: &mut Line<'_>) {
        let bits = &mut self.bits;
        // The facilities are auth (4), cron (9), daemon (3), mail (2) and the kernel (0); a priority is eight times that and a severity.
        let kind = bits.below(100);
        let start = (self.clock.at(number), *bits.popular(&self.hosts));
        match kind {
            0..=34 => {
                head(line, 38, start, bits, "sshd");
                let verb = if bits.percent(70) {
                    "Failed password for invalid user "
                } else {
                    "Accepted publickey for "
                };
                line.put(verb)
                    .put(bits.popular(&self.users))
                    .put(" from ")
                    .put(bits.popular(&self.addresses));
                line.put(" port ").number(1024 + bits.below(64_000));
                line.put(" ssh2");
            }
            35..=54 => {
                head(line, 78, start, bits, "CRON");
                line.put("(").put(bits.popular(&self.users)).put(
                    ") CMD (test -x /usr/sbin/anacron || run-parts --report /etc/cron.hourly)",
                );
            }
            55..=74 => {
                head(line, 30, start, bits, "systemd");
                line.put(bits.any(&self.units))
                    .put(".service: Deactivated successfully. Consumed ")
                    .number(bits.below(60))
                    .put(".");
                line.padded(bits.below(1000), 3).put("s CPU time.");
            }
            75..=84 => {
                head(line, 22, start, bits, "postfix/smtp");
                line.padded(bits.wide(30) % 10_000_000_000, 10)
                    .put(": to=<")
                    .put(bits.popular(&self.users))
                    .put("@");
                line.put(bits.popular(&self.domains))
                    .put(">, delay=0.")
                    .number(bits.below(100))
                    .put(", dsn=2.0.0, status=sent (250 2.0.0 Ok)");
            }
            85..=94 => {
                head(line, 28, start, bits, "postgres");
                line.put("LOG:  duration: ")
                    .number(bits.below(5000))
                    .put(".")
                    .padded(bits.below(1000), 3);
                line.put(" ms  statement: SELECT * FROM ")
                    .put(bits.any(&self.tables))
                    .put(" WHERE id = ")
                    .number(bits.next());
            }
            _ => {
                head(line, 4, start, bits, "kernel");
                line.put("[UFW BLOCK] IN=eth0 OUT= SRC=")
                    .put(bits.popular(&self.addresses))
                    .put(" DST=10.0.0.");
                line.number(bits.below(256))
                    .put(" PROTO=TCP SPT=")
                    .number(bits.next())
                    .put(" DPT=")
                    .number(bits.below(9000))
                    .put(" SYN");
            }
        }
    }
}

/// Writes everything before the message.
fn head(
    line: &mut Line<'_>,
    priority: u64,
    (time, host): (&str, &str),
    bits: &mut Bits,
    program: &str,
) {
    line.put("<")
        .number(priority)
        .put(">")
        .put(time)
        .put(host)
        .put(" ")
        .put(program);
    if program != "kernel" {
        line.put("[").number(200 + bits.below(32_000)).put("]");
    }
    line.put(": ");
}
