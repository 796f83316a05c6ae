//! Lines as they are found in the wild.

use codec::syslog::Format;
use serde_json::Value;

use crate::read;

/// A line; its time, host, name, process and text, each empty where there is none.
pub type Row = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
);

#[rustfmt::skip]
pub const LINES: &[Row] = &[
    // RFC 3164's examples.
    ("<34>Oct 11 22:14:15 mymachine su: 'su root' failed for lonvick on /dev/pts/8", "2003-10-11T22:14:15.000Z", "mymachine", "su", "", "'su root' failed for lonvick on /dev/pts/8"),
    ("<13>Feb  5 17:32:18 10.0.0.99 Use the BFG!", "2003-02-05T17:32:18.000Z", "10.0.0.99", "", "", "Use the BFG!"),
    ("<165>Aug 24 05:34:00 CST 1987 mymachine myproc[10]: %% It's time to make the do-nuts.  %%", "1987-08-24T11:34:00.000Z", "mymachine", "myproc", "10", "%% It's time to make the do-nuts.  %%"),
    ("<0>1990 Oct 22 10:52:01 TZ-6 scapegoat.dmz.example.org 10.1.2.3 sched[0]: That's All Folks!", "1990-10-22T10:52:01.000Z", "TZ-6", "", "", "scapegoat.dmz.example.org 10.1.2.3 sched[0]: That's All Folks!"),
    ("<13>Use the BFG!", "", "", "", "", "Use the BFG!"),
    // Files of rsyslog and syslog-ng.
    ("Oct 11 22:14:15 mymachine su[230]: 'su root' failed", "2003-10-11T22:14:15.000Z", "mymachine", "su", "230", "'su root' failed"),
    ("Oct  1 22:14:15 mymachine su[230]: x", "2003-10-01T22:14:15.000Z", "mymachine", "su", "230", "x"),
    ("Oct 1 22:14:15 mymachine su[230]: x", "2003-10-01T22:14:15.000Z", "mymachine", "su", "230", "x"),
    ("Oct 01 22:14:15 mymachine su[230]: x", "2003-10-01T22:14:15.000Z", "mymachine", "su", "230", "x"),
    ("2003-10-11T22:14:15.003Z mymachine sshd[12]: Accepted publickey for root from 10.0.0.1 port 22 ssh2", "2003-10-11T22:14:15.003Z", "mymachine", "sshd", "12", "Accepted publickey for root from 10.0.0.1 port 22 ssh2"),
    ("2003-10-11T22:14:15.123456+02:00 web-01 systemd[1]: Started Session 3 of user root.", "2003-10-11T20:14:15.123456Z", "web-01", "systemd", "1", "Started Session 3 of user root."),
    ("<30>2003-10-11T22:14:15+02:00 web-01 dockerd: level=info msg=\"a: b\"", "2003-10-11T20:14:15.000Z", "web-01", "dockerd", "", "level=info msg=\"a: b\""),
    ("Oct 11 22:14:15 web postfix/smtpd[1234]: connect from unknown[10.0.0.1]", "2003-10-11T22:14:15.000Z", "web", "postfix/smtpd", "1234", "connect from unknown[10.0.0.1]"),
    ("Oct 11 22:14:15 web sshd(pam_unix)[1234]: session opened", "2003-10-11T22:14:15.000Z", "web", "sshd(pam_unix)", "1234", "session opened"),
    ("Oct 11 22:14:15 web kernel: [   12.345678] usb 1-1: new device", "2003-10-11T22:14:15.000Z", "web", "kernel", "", "[   12.345678] usb 1-1: new device"),
    ("Oct 11 22:14:15 web CRON[99]: (root) CMD (run-parts /etc/cron.hourly)", "2003-10-11T22:14:15.000Z", "web", "CRON", "99", "(root) CMD (run-parts /etc/cron.hourly)"),
    ("Oct 11 22:14:15 web sudo:    bob : TTY=pts/0 ; COMMAND=/bin/ls", "2003-10-11T22:14:15.000Z", "web", "sudo", "", "   bob : TTY=pts/0 ; COMMAND=/bin/ls"),
    ("Oct 11 22:14:15 web last message repeated 2 times", "2003-10-11T22:14:15.000Z", "web", "", "", "last message repeated 2 times"),
    ("Oct 11 22:14:15 mac com.apple.xpc.launchd[1] (com.apple.x): exited", "2003-10-11T22:14:15.000Z", "mac", "com.apple.xpc.launchd", "1", "(com.apple.x): exited"),
    ("Oct 11 22:14:15 src@relay/10.0.0.1 app[-]:x", "2003-10-11T22:14:15.000Z", "src@relay/10.0.0.1", "app", "", "x"),
    ("Oct 11 22:14:15 fe80::1%eth0 app: \u{FEFF}x", "2003-10-11T22:14:15.000Z", "fe80::1%eth0", "app", "", "x"),
    ("Oct 11 22:14:15 [fe80::1] app: x", "2003-10-11T22:14:15.000Z", "[fe80::1]", "app", "", "x"),
    ("Oct 11 22:14:15 - app: x", "2003-10-11T22:14:15.000Z", "", "app", "", "x"),
    ("Oct 11 22:14:15 web app:", "2003-10-11T22:14:15.000Z", "web", "app", "", ""),
    ("Oct 11 22:14:15 web ", "2003-10-11T22:14:15.000Z", "web", "", "", ""),
    ("Oct 11 22:14:15", "2003-10-11T22:14:15.000Z", "", "", "", ""),
    // The years.
    ("Oct 11 2001 22:14:15 fw : %ASA-6-302013: Built inbound TCP", "2001-10-11T22:14:15.000Z", "fw", "%ASA-6-302013", "", "Built inbound TCP"),
    ("<166>:Oct 11 22:14:15 EST: %ASA-session-6-302021: Teardown", "2003-10-12T03:14:15.000Z", "", "%ASA-session-6-302021", "", "Teardown"),
    ("<166>%ASA-6-302013: Built inbound TCP", "", "", "%ASA-6-302013", "", "Built inbound TCP"),
    // Cisco's IOS and NX-OS; all of it but `event.sequence`.
    ("<189>29: r1: Mar  1 18:46:11.123 UTC: %LINK-3-UPDOWN: down", "2003-03-01T18:46:11.123Z", "r1", "%LINK-3-UPDOWN", "", "down"),
    ("<189>123: *Mar  1 18:46:11.123: %SYS-5-CONFIG_I: Configured", "2003-03-01T18:46:11.123Z", "", "%SYS-5-CONFIG_I", "", "Configured"),
    ("<189>29: sw-1.example: .Mar 1 2002 18:46:11 CET: %SYS-5-CONFIG_I: Configured", "2002-03-01T17:46:11.000Z", "sw-1.example", "%SYS-5-CONFIG_I", "", "Configured"),
    ("<189>: 2002 Mar  1 18:46:11 UTC: %ETHPORT-5-IF_UP: Interface Ethernet1/1 is up", "2002-03-01T18:46:11.000Z", "", "%ETHPORT-5-IF_UP", "", "Interface Ethernet1/1 is up"),
    ("<189>2002 Mar  1 18:46:11 n9k %ETHPORT-5-IF_UP: Interface Ethernet1/1 is up", "2002-03-01T18:46:11.000Z", "n9k", "%ETHPORT-5-IF_UP", "", "Interface Ethernet1/1 is up"),
    ("Mar  1 18:46:11.123 EST: %SYS-5-CONFIG_I: Configured", "2003-03-01T23:46:11.123Z", "", "%SYS-5-CONFIG_I", "", "Configured"),
    ("<13>Mar  1 18:46:11 EST host app: x", "2003-03-01T23:46:11.000Z", "host", "app", "", "x"),
    ("<13>Mar  1 18:46:11 CET host app: x", "2003-03-01T17:46:11.000Z", "host", "app", "", "x"),
    ("<13>Mar  1 18:46:11 UTC host app: x", "2003-03-01T18:46:11.000Z", "host", "app", "", "x"),
    ("<13>Mar  1 18:46:11 AEST: %A-3-B: x", "2003-03-01T18:46:11.000Z", "", "%A-3-B", "", "x"),
    ("<13>Mar  1 18:46:11 WEB app: x", "2003-03-01T18:46:11.000Z", "WEB", "app", "", "x"),
    ("<189>29: 000123: Mar  1 18:46:11.123: %A-3-B: x", "2003-03-01T18:46:11.123Z", "", "%A-3-B", "", "x"),
    ("<189>29: sw1: 000123: Mar  1 18:46:11.123 UTC: %A-3-B: x", "2003-03-01T18:46:11.123Z", "sw1", "%A-3-B", "", "x"),
    ("<189>29: sw1: 000123: %A-3-B: x", "", "sw1", "%A-3-B", "", "x"),
    ("<189>29: RP/0/RSP0/CPU0:Mar  1 18:46:11.123 UTC: config[65703]: %MGBL-SYS-5-CONFIG_I : x", "2003-03-01T18:46:11.123Z", "RP/0/RSP0/CPU0", "config", "65703", "%MGBL-SYS-5-CONFIG_I : x"),
    ("<189>RP/0/RSP0/CPU0:Mar  1 18:46:11.123 UTC: config[65703]: %MGBL-SYS-5-CONFIG_I : x", "2003-03-01T18:46:11.123Z", "RP/0/RSP0/CPU0", "config", "65703", "%MGBL-SYS-5-CONFIG_I : x"),
    // Times of other forms, two blanks, and hosts that begin like a year.
    ("<13>Mar  1 18:46:11  host app: x", "2003-03-01T18:46:11.000Z", "host", "app", "", "x"),
    ("<13>Mar 1 8:46:11 h a: x", "2003-03-01T08:46:11.000Z", "h", "a", "", "x"),
    ("<13>Mar 01 18:46 h a: x", "2003-03-01T18:46:00.000Z", "h", "a", "", "x"),
    ("Mar 01 18:46 h a: x", "2003-03-01T18:46:00.000Z", "h", "a", "", "x"),
    ("<13>2003-03-01 18:46 h a: x", "2003-03-01T18:46:00.000Z", "h", "a", "", "x"),
    ("<13>2003-03-01T18:46Z h a: x", "2003-03-01T18:46:00.000Z", "h", "a", "", "x"),
    ("<13>20030301T184611Z h a: x", "2003-03-01T18:46:11.000Z", "h", "a", "", "x"),
    ("<13>20030301T184611.5+0100 h a: x", "2003-03-01T17:46:11.500Z", "h", "a", "", "x"),
    ("<13>[2003-03-01 18:46:11] app: x", "2003-03-01T18:46:11.000Z", "", "app", "", "x"),
    ("<13>[Mar  1 18:46:11] h app: x", "2003-03-01T18:46:11.000Z", "h", "app", "", "x"),
    ("<134>1046544371 10.0.0.1 flows src=a", "2003-03-01T18:46:11.000Z", "10.0.0.1", "", "", "flows src=a"),
    ("<134>1 1046544371.774247467 mx84 urls src=a", "2003-03-01T18:46:11.774247467Z", "mx84", "", "", "urls src=a"),
    ("<13>Mar  1 18:46:11 2001:db8::1 app: x", "2003-03-01T18:46:11.000Z", "2001:db8::1", "app", "", "x"),
    ("Mar  1 18:46:11 2001:db8::1 app: x", "2003-03-01T18:46:11.000Z", "2001:db8::1", "app", "", "x"),
    ("<13>1046544371 is no time: x", "2003-03-01T18:46:11.000Z", "is", "", "", "no time: x"),
    ("<13>job 12 ended at 8:46:11", "", "", "", "", "job 12 ended at 8:46:11"),
    ("<13>12345678901 10.0.0.1 x", "", "", "", "", "12345678901 10.0.0.1 x"),
    ("<189>29: %LINK-3-UPDOWN: down", "", "", "%LINK-3-UPDOWN", "", "down"),
    ("<189>29: r1: %LINK-3-UPDOWN: down", "", "r1", "%LINK-3-UPDOWN", "", "down"),
    ("<189>29: r1: 3w4d: %LINK-3-UPDOWN: down", "", "r1", "", "", "3w4d: %LINK-3-UPDOWN: down"),
    ("<189>29: 00:00:46: %LINK-3-UPDOWN: down", "", "", "", "", "00:00:46: %LINK-3-UPDOWN: down"),
    ("<189>18:47:02: %SYS-5-CONFIG_I: Configured", "", "", "", "", "18:47:02: %SYS-5-CONFIG_I: Configured"),
    ("*Mar  1 18:46:11: %SYS-5-CONFIG_I: Configured", "2003-03-01T18:46:11.000Z", "", "%SYS-5-CONFIG_I", "", "Configured"),
    // A blank after the priority, and a blank for `T`.
    ("<34> Oct 11 22:14:15 web su[230]: x", "2003-10-11T22:14:15.000Z", "web", "su", "230", "x"),
    ("<34>  su[230]: x", "", "", "su", "230", "x"),
    ("<34>2003-10-11 22:14:15.003+02:00 web su: x", "2003-10-11T20:14:15.003Z", "web", "su", "", "x"),
    ("2003-10-11 22:14:15 web su: x", "2003-10-11T22:14:15.000Z", "web", "su", "", "x"),
    ("<166>Oct 11 2001 22:14:15: %ASA-6-302013: Built inbound TCP", "2001-10-11T22:14:15.000Z", "", "%ASA-6-302013", "", "Built inbound TCP"),
    ("Oct 11 22:14:15 2001 web su: x", "2001-10-11T22:14:15.000Z", "web", "su", "", "x"),
    ("2001 Oct 11 22:14:15.5 web su: x", "2001-10-11T22:14:15.500Z", "web", "su", "", "x"),
    ("Oct 11 22:14:15 1000 su: x", "2003-10-11T22:14:15.000Z", "1000", "su", "", "x"),
    // Without a host, as programs write to /dev/log.
    ("<38>Oct 11 22:14:15 su[230]: x", "2003-10-11T22:14:15.000Z", "", "su", "230", "x"),
    ("<38>Oct 11 22:14:15 su: x", "2003-10-11T22:14:15.000Z", "", "su", "", "x"),
    ("<38>su[230]: x", "", "", "su", "230", "x"),
    ("<6>[   12.3] usb 1-1", "", "", "", "", "[   12.3] usb 1-1"),
    ("<38>", "", "", "", "", ""),
    // What is no name stays text.
    ("Oct 11 22:14:15 web http://example.com/ is down", "2003-10-11T22:14:15.000Z", "web", "", "", "http://example.com/ is down"),
    ("Oct 11 22:14:15 web {\"level\": \"info\"}", "2003-10-11T22:14:15.000Z", "web", "", "", "{\"level\": \"info\"}"),
    ("Oct 11 22:14:15 {\"level\": \"info\"}", "2003-10-11T22:14:15.000Z", "", "", "", "{\"level\": \"info\"}"),
    ("Oct 11 22:14:15 web app[1 2]: x", "2003-10-11T22:14:15.000Z", "web", "", "", "app[1 2]: x"),
    ("Oct 11 22:14:15 web app[12", "2003-10-11T22:14:15.000Z", "web", "", "", "app[12"),
    ("Oct 11 22:14:15 hello", "2003-10-11T22:14:15.000Z", "", "", "", "hello"),
    ("<38>Oct 11 22:14:15 CRON: (root) CMD", "2003-10-11T22:14:15.000Z", "", "CRON", "", "(root) CMD"),
    ("<38>Oct 11 22:14:15: hello world", "2003-10-11T22:14:15.000Z", "", "", "", "hello world"),
    ("<13>Mayday called", "", "", "", "", "Mayday called"),
    ("<13>Mar 5 disks failed", "", "", "", "", "Mar 5 disks failed"),
    ("<13>2 disks failed", "", "", "", "", "2 disks failed"),
    ("<13>2 disks failed at 22:14:15", "", "", "", "", "2 disks failed at 22:14:15"),
    ("<13>12:30 is lunch", "", "", "", "", "12:30 is lunch"),
    ("<13>404: page not found", "", "", "", "", "404: page not found"),
    ("<13>404: page: not found", "", "", "", "", "404: page: not found"),
    ("<13>100: 5 %-4-x", "", "", "", "", "100: 5 %-4-x"),
];

#[test]
fn lines_in_the_wild() {
    for &(line, time, host, name, process, message) in LINES {
        for format in [Format::Auto, Format::Rfc3164] {
            let event = read(format, line);
            assert_eq!(event.get("tags"), None, "{line}: {event}");
            let expected = if time.is_empty() {
                "2003-10-12T00:00:00.000Z"
            } else {
                time
            };
            assert_eq!(event["@timestamp"], expected, "{line}");
            assert_eq!(event["message"], message, "{line}");
            for (key, expected) in [("hostname", host), ("appname", name), ("procid", process)] {
                let found = event["syslog"].get(key).and_then(Value::as_str);
                assert_eq!(found.unwrap_or_default(), expected, "{key} of {line}");
            }
            let has_priority = event["syslog"].get("priority").is_some();
            assert_eq!(has_priority, line.starts_with('<'), "{line}");
        }
    }
}
