//! Lines as RFC 3164 has them: `<34>Jan  1 00:00:00 host program[pid]: message`.

use super::Writer;
use super::line::{Clock, Line};
use super::random::Bits;
use super::vocabulary::{addresses, domain};

const HOSTS: [&str; 12] = [
    "web01",
    "web02",
    "db01",
    "mail",
    "gw-berlin",
    "gw-oslo",
    "app01",
    "app02",
    "app03",
    "cache01",
    "build7",
    "bastion",
];

const USERS: [&str; 8] = [
    "root", "admin", "frank", "alice", "deploy", "postgres", "oracle", "test",
];

const UNITS: [&str; 6] = [
    "apt-daily",
    "logrotate",
    "certbot",
    "nginx",
    "fstrim",
    "man-db",
];

const TABLES: [&str; 5] = ["orders", "users", "sessions", "invoices", "events"];

pub(super) struct Syslog {
    bits: Bits,
    clock: Clock,
    addresses: Vec<String>,
}

impl Syslog {
    pub(super) fn new(seed: u64) -> Self {
        let mut bits = Bits::new(seed);
        let addresses = addresses(&mut bits, 500);
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
            addresses,
            bits,
        }
    }
}

impl Writer for Syslog {
    fn write(&mut self, number: u64, line: &mut Line<'_>) {
        let bits = &mut self.bits;
        // The facilities are auth (4), cron (9), daemon (3), mail (2) and the kernel (0); a priority is eight times that and a severity.
        match bits.below(100) {
            0..=34 => {
                head(line, 38, self.clock.at(number), bits, "sshd");
                let verb = if bits.percent(70) {
                    "Failed password for invalid user "
                } else {
                    "Accepted publickey for "
                };
                line.put(verb)
                    .put(bits.popular(&USERS))
                    .put(" from ")
                    .put(bits.popular(&self.addresses));
                line.put(" port ")
                    .number(1024 + bits.below(64_000))
                    .put(" ssh2");
            }
            35..=54 => {
                head(line, 78, self.clock.at(number), bits, "CRON");
                line.put("(").put(bits.popular(&USERS)).put(
                    ") CMD (test -x /usr/sbin/anacron || run-parts --report /etc/cron.hourly)",
                );
            }
            55..=74 => {
                head(line, 30, self.clock.at(number), bits, "systemd");
                let unit = bits.any(&UNITS);
                line.put(unit)
                    .put(".service: Deactivated successfully. Consumed ")
                    .number(bits.below(60))
                    .put(".");
                line.padded(bits.below(1000), 3).put("s CPU time.");
            }
            75..=84 => {
                head(line, 22, self.clock.at(number), bits, "postfix/smtp");
                line.padded(bits.wide(30) % 10_000_000_000, 10)
                    .put(": to=<")
                    .put(bits.popular(&USERS))
                    .put("@");
                line.put(domain(bits))
                    .put(">, delay=0.")
                    .number(bits.below(100))
                    .put(", dsn=2.0.0, status=sent (250 2.0.0 Ok)");
            }
            85..=94 => {
                head(line, 28, self.clock.at(number), bits, "postgres");
                line.put("LOG:  duration: ")
                    .number(bits.below(5000))
                    .put(".")
                    .padded(bits.below(1000), 3);
                line.put(" ms  statement: SELECT * FROM ")
                    .put(bits.any(&TABLES))
                    .put(" WHERE id = ")
                    .number(bits.next());
            }
            _ => {
                head(line, 4, self.clock.at(number), bits, "kernel");
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
fn head(line: &mut Line<'_>, priority: u64, time: &str, bits: &mut Bits, program: &str) {
    line.put("<")
        .number(priority)
        .put(">")
        .put(time)
        .put(bits.popular(&HOSTS))
        .put(" ")
        .put(program);
    if program != "kernel" {
        line.put("[").number(200 + bits.below(32_000)).put("]");
    }
    line.put(": ");
}
