//! JSON documents like Suricata's EVE log: the members that all events have, and an object for their type.
//! The format: <https://docs.suricata.io/en/latest/output/eve/eve-json-format.html>.

use super::Writer;
use super::line::{Clock, Line, micros};
use super::random::Bits;
use super::vocabulary::{Vocabulary, list};

pub(super) struct Suricata {
    bits: Bits,
    clock: Clock,
    addresses: Vec<String>,
    agents: Vec<String>,
    paths: Vec<String>,
    domains: Vec<&'static str>,
    issuers: Vec<&'static str>,
    /// Alerts: id, severity, category and signature.
    signatures: Vec<[&'static str; 4]>,
    flow_bits: Vec<&'static str>,
}

/// What an event is about.
#[derive(Clone, Copy)]
enum Kind {
    Flow,
    Dns,
    Http,
    Tls,
    Alert,
}

impl Kind {
    fn pick(bits: &mut Bits) -> Self {
        match bits.below(100) {
            0..=34 => Self::Flow,
            35..=54 => Self::Dns,
            55..=72 => Self::Http,
            73..=89 => Self::Tls,
            _ => Self::Alert,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Flow => "flow",
            Self::Dns => "dns",
            Self::Http => "http",
            Self::Tls => "tls",
            Self::Alert => "alert",
        }
    }

    /// The protocol and the port that a server has for it.
    fn service(self) -> (&'static str, u64) {
        match self {
            Self::Dns => ("UDP", 53),
            Self::Http | Self::Alert => ("TCP", 80),
            Self::Flow | Self::Tls => ("TCP", 443),
        }
    }
}

impl Suricata {
    pub(super) fn new(seed: u64) -> Self {
        let mut bits = Bits::new(seed);
        let vocabulary = Vocabulary::new();
        let columns = |line: &'static str| {
            let mut columns = line.split(" | ");
            [(); 4].map(|()| columns.next().unwrap_or_default())
        };
        Self {
            clock: Clock::new(|moment| moment.date_time.to_owned()),
            addresses: vocabulary.addresses(&mut bits, 1200),
            agents: vocabulary.user_agents(&mut bits, 120),
            paths: (0..400).map(|_| vocabulary.path(&mut bits)).collect(),
            domains: vocabulary.domains,
            issuers: list("issuers"),
            signatures: list("signatures").into_iter().map(columns).collect(),
            flow_bits: list("flow_bits"),
            bits,
        }
    }
}

impl Writer for Suricata {
    fn write(&mut self, number: u64, line: &mut Line<'_>) {
        let kind = Kind::pick(&mut self.bits);
        self.common(number, kind, line);
        match kind {
            Kind::Flow => self.flow(number, line),
            Kind::Dns => self.dns(line),
            Kind::Http => {
                self.http(line);
                self.metadata(line);
            }
            Kind::Tls => self.tls(line),
            Kind::Alert => self.alert(line),
        }
        line.put("}");
    }
}

impl Suricata {
    /// The members that all events have.
    fn common(&mut self, number: u64, kind: Kind, line: &mut Line<'_>) {
        let bits = &mut self.bits;
        let (protocol, port) = kind.service();
        line.put("{\"timestamp\":\"")
            .put(self.clock.at(number))
            .put(".")
            .padded(micros(number), 6)
            .put("+0000\",\"flow_id\":")
            .number(1 << 50 | bits.wide(50));
        line.put(",\"in_iface\":\"eth")
            .number(bits.below(4))
            .put("\",\"event_type\":\"")
            .put(kind.name());
        line.put("\",\"src_ip\":\"10.")
            .number(bits.below(4))
            .put(".")
            .number(bits.below(256))
            .put(".")
            .number(1 + bits.below(254));
        line.put("\",\"src_port\":")
            .number(1024 + bits.below(64_000))
            .put(",\"dest_ip\":\"")
            .put(bits.popular(&self.addresses));
        line.put("\",\"dest_port\":")
            .number(port)
            .put(",\"proto\":\"")
            .put(protocol);
        line.put("\",\"community_id\":\"1:")
            .padded(bits.wide(60), 18)
            .padded(bits.wide(30), 9)
            .put("=\"");
        line.put(",\"vlan\":[").number(10 + bits.below(5)).put("]");
    }

    fn flow(&mut self, number: u64, line: &mut Line<'_>) {
        let second = self.clock.at(number);
        let bits = &mut self.bits;
        line.put(",\"app_proto\":\"tls\",\"flow\":{\"pkts_toserver\":")
            .number(1 + bits.below(400));
        line.put(",\"pkts_toclient\":")
            .number(1 + bits.below(600))
            .put(",\"bytes_toserver\":")
            .number(60 + bits.wide(17));
        line.put(",\"bytes_toclient\":")
            .number(60 + bits.wide(21))
            .put(",\"start\":\"")
            .put(second)
            .put(".");
        line.padded(bits.wide(19), 6)
            .put("+0000\",\"end\":\"")
            .put(second)
            .put(".")
            .padded(500_000 + bits.wide(18), 6);
        line.put("+0000\",\"age\":")
            .number(bits.below(120))
            .put(",\"state\":\"closed\",\"reason\":\"timeout\",\"alerted\":");
        line.put(if bits.percent(3) { "true" } else { "false" });
        line.put("},\"tcp\":{\"tcp_flags\":\"1b\",\"tcp_flags_ts\":\"1b\",\"tcp_flags_tc\":\"1b\",\"syn\":true,\"fin\":true,\"psh\":true");
        line.put(",\"ack\":true,\"state\":\"closed\"}");
        self.metadata(line);
    }

    fn dns(&mut self, line: &mut Line<'_>) {
        let bits = &mut self.bits;
        let name = bits.popular(&self.domains);
        let id = bits.next();
        line.put(",\"dns\":{\"version\":2,\"type\":\"answer\",\"id\":")
            .number(id)
            .put(",\"flags\":\"8180\",\"qr\":true,\"rd\":true,\"ra\":true");
        line.put(",\"opcode\":0,\"rrname\":\"")
            .put(name)
            .put("\",\"rrtype\":\"A\",\"rcode\":\"NOERROR\",\"answers\":[");
        for answer in 0..2 {
            line.put(if answer == 0 {
                "{\"rrname\":\""
            } else {
                ",{\"rrname\":\""
            })
            .put(name);
            line.put("\",\"rrtype\":\"A\",\"ttl\":")
                .number(30 + bits.below(3600))
                .put(",\"rdata\":\"");
            line.put(bits.popular(&self.addresses)).put("\"}");
        }
        line.put("],\"grouped\":{\"A\":[\"")
            .put(bits.popular(&self.addresses))
            .put("\",\"")
            .put(bits.popular(&self.addresses));
        line.put("\"]}}");
        self.metadata(line);
    }

    fn http(&mut self, line: &mut Line<'_>) {
        let bits = &mut self.bits;
        line.put(",\"tx_id\":")
            .number(bits.below(20))
            .put(",\"http\":{\"hostname\":\"")
            .put(bits.popular(&self.domains))
            .put("\",\"url\":\"");
        line.put(bits.popular(&self.paths))
            .put("\",\"http_user_agent\":\"")
            .put(bits.popular(&self.agents));
        line.put("\",\"http_content_type\":\"text/html\",\"http_method\":\"GET\",\"protocol\":\"HTTP/1.1\",\"status\":");
        line.number(*bits.popular(&[200, 304, 404, 301, 500]))
            .put(",\"length\":")
            .number(bits.wide(18))
            .put("}");
    }

    fn tls(&mut self, line: &mut Line<'_>) {
        let bits = &mut self.bits;
        let name = bits.popular(&self.domains);
        line.put(",\"tls\":{\"subject\":\"CN=")
            .put(name)
            .put("\",\"issuerdn\":\"")
            .put(bits.popular(&self.issuers));
        line.put("\",\"serial\":\"03:")
            .padded(bits.below(100), 2)
            .put(":A7:")
            .padded(bits.below(100), 2)
            .put(":5C\",\"fingerprint\":\"");
        for pair in 0..20 {
            line.put(if pair == 0 { "" } else { ":" })
                .padded(bits.below(100), 2);
        }
        line.put("\",\"sni\":\"")
            .put(name)
            .put("\",\"version\":\"TLS 1.")
            .number(2 + bits.below(2));
        line.put("\",\"notbefore\":\"2025-11-01T00:00:00\",\"notafter\":\"2026-11-01T00:00:00\",\"ja3\":{\"hash\":\"");
        line.padded(bits.wide(60), 19)
            .padded(bits.wide(40), 13)
            .put("\"},\"ja3s\":{\"hash\":\"")
            .padded(bits.wide(60), 19);
        line.padded(bits.wide(40), 13).put("\"}}");
    }

    fn alert(&mut self, line: &mut Line<'_>) {
        let bits = &mut self.bits;
        let [id, severity, category, signature] = *bits.popular(&self.signatures);
        line.put(",\"alert\":{\"action\":\"allowed\",\"gid\":1,\"signature_id\":")
            .put(id)
            .put(",\"rev\":")
            .number(1 + bits.below(9));
        line.put(",\"signature\":\"")
            .put(signature)
            .put("\",\"category\":\"")
            .put(category)
            .put("\",\"severity\":")
            .put(severity);
        line.put("},\"app_proto\":\"http\",\"direction\":\"to_server\"");
        self.http(line);
    }

    /// What rules have noted about the flow.
    fn metadata(&mut self, line: &mut Line<'_>) {
        let bit = self.bits.any(&self.flow_bits);
        line.put(",\"metadata\":{\"flowbits\":[\"")
            .put(bit)
            .put("\"]}");
    }
}
