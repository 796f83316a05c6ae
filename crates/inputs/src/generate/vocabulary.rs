//! Addresses, hosts, user agents and paths, made from parts.

use super::random::Bits;

/// The first two numbers of the networks that clients have addresses in, the most frequent first. All belong to
/// providers of different countries, so that a database of places has something to say about them.
const NETWORKS: [(u8, u8); 40] = [
    (83, 149),
    (66, 249),
    (46, 105),
    (130, 237),
    (75, 97),
    (50, 16),
    (65, 55),
    (208, 115),
    (14, 160),
    (199, 16),
    (86, 76),
    (93, 114),
    (218, 30),
    (200, 49),
    (91, 177),
    (24, 236),
    (188, 143),
    (115, 112),
    (207, 241),
    (67, 214),
    (81, 220),
    (144, 76),
    (198, 46),
    (178, 154),
    (123, 125),
    (82, 165),
    (5, 102),
    (180, 76),
    (108, 174),
    (212, 58),
    (41, 221),
    (190, 104),
    (196, 207),
    (202, 46),
    (61, 135),
    (133, 11),
    (193, 244),
    (49, 50),
    (110, 136),
    (2, 81),
];

/// So many different addresses of clients, one in fifty of version 6.
pub(super) fn addresses(bits: &mut Bits, count: usize) -> Vec<String> {
    let address = |at: usize| {
        if at % 50 == 49 {
            return format!("2001:db8:{:x}::{:x}", bits.next(), bits.next());
        }
        let (a, b) = *bits.popular(&NETWORKS);
        format!("{a}.{b}.{}.{}", bits.below(256), 1 + bits.below(254))
    };
    (0..count).map(address).collect()
}

const SYSTEMS: [&str; 14] = [
    "Windows NT 6.1; WOW64",
    "Windows NT 10.0; Win64; x64",
    "Macintosh; Intel Mac OS X 10_9_1",
    "X11; Linux x86_64",
    "Windows NT 6.1",
    "Macintosh; Intel Mac OS X 10_15_7",
    "Windows NT 6.3; WOW64",
    "X11; Ubuntu; Linux x86_64",
    "Windows NT 5.1",
    "Linux; Android 4.2.2; GT-I9505",
    "Linux; Android 13; Pixel 7",
    "Linux; Android 10; SM-A505F",
    "Windows NT 6.0",
    "X11; CrOS x86_64 14541.0.0",
];

/// Programs that say who they are, the most frequent first; `-` is one that does not.
const PROGRAMS: [&str; 20] = [
    "-",
    "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
    "UniversalFeedParser/4.2-pre-314-svn +http://feedparser.org/",
    "Mozilla/5.0 (compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)",
    "Tiny Tiny RSS/1.11 (http://tt-rss.org/)",
    "Feedly/1.0 (+http://www.feedly.com/fetcher.html; like FeedFetcher-Google)",
    "curl/8.5.0",
    "Mozilla/5.0 (compatible; YandexBot/3.0; +http://yandex.com/bots)",
    "python-requests/2.31.0",
    "Mozilla/5.0 (compatible; AhrefsBot/5.0; +http://ahrefs.com/robot/)",
    "Wget/1.21.4",
    "Mozilla/5.0 (compatible; Baiduspider/2.0; +http://www.baidu.com/search/spider.html)",
    "Go-http-client/1.1",
    "msnbot/2.0b (+http://search.msn.com/msnbot.htm)",
    "FeedBurner/1.0 (http://www.FeedBurner.com)",
    "check_http/v2.4.9 (monitoring-plugins 2.4.9)",
    "facebookexternalhit/1.1 (+http://www.facebook.com/externalhit_uatext.php)",
    "Apache-HttpClient/4.5.14 (Java/17.0.9)",
    "Twitterbot/1.0",
    "kube-probe/1.29",
];

/// So many user agents, about every sixth a program that is no browser.
pub(super) fn user_agents(bits: &mut Bits, count: usize) -> Vec<String> {
    let mut programs = PROGRAMS.iter();
    let agent = |at: usize| {
        let program = if at % 6 == 1 { programs.next() } else { None };
        program.map_or_else(|| browser(bits), |program| (*program).to_owned())
    };
    (0..count).map(agent).collect()
}

fn browser(bits: &mut Bits) -> String {
    let system = bits.popular(&SYSTEMS);
    match bits.below(10) {
        0..=4 => {
            let (major, build) = (28 + bits.below(94), 1000 + bits.below(5000));
            let mobile = if system.contains("Android") {
                " Mobile"
            } else {
                ""
            };
            format!(
                "Mozilla/5.0 ({system}) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/{major}.0.{build}.{}{mobile} Safari/537.36",
                bits.below(200)
            )
        }
        5..=7 => {
            let version = 10 + bits.below(112);
            format!("Mozilla/5.0 ({system}; rv:{version}.0) Gecko/20100101 Firefox/{version}.0")
        }
        8 => {
            let (major, minor) = (9 + bits.below(9), bits.below(6));
            format!(
                "Mozilla/5.0 (iPhone; CPU iPhone OS {major}_{minor} like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/{major}.{minor} Mobile/15E148 Safari/604.1"
            )
        }
        _ => format!(
            "Mozilla/5.0 (compatible; MSIE {}.0; {system}; Trident/{}.0)",
            7 + bits.below(4),
            4 + bits.below(3)
        ),
    }
}

const WORDS: [&str; 32] = [
    "images",
    "blog",
    "presentations",
    "style",
    "reset",
    "projects",
    "articles",
    "index",
    "logstash",
    "monitorama",
    "geekery",
    "search",
    "files",
    "login",
    "api",
    "v2",
    "users",
    "orders",
    "products",
    "static",
    "scripts",
    "fonts",
    "plugin",
    "highlight",
    "kibana",
    "dashboard",
    "puppet",
    "feed",
    "tags",
    "admin",
    "download",
    "about",
];

const ENDINGS: [&str; 12] = [
    ".html", ".png", "", ".css", ".js", "/", ".ico", ".jpg", ".php", ".xml", ".pdf", ".svg",
];

/// The path of a request, with a query in one of five cases.
pub(super) fn path(bits: &mut Bits) -> String {
    let mut path = String::new();
    for _ in 0..1 + bits.below(4) {
        path.push('/');
        path += *bits.popular(&WORDS);
        if bits.percent(30) {
            path.push('-');
            path += *bits.any(&WORDS);
        }
    }
    path += *bits.popular(&ENDINGS);
    if bits.percent(20) {
        path.push_str(&format!(
            "?{}={}&page={}",
            bits.any(&WORDS),
            bits.next(),
            bits.below(40)
        ));
    }
    path
}

const DOMAINS: [&str; 16] = [
    "semicomplete.com",
    "www.google.com",
    "shop.example.com",
    "www.example.org",
    "cdn.example.net",
    "news.example.com",
    "api.example.com",
    "www.bing.com",
    "t.example.co",
    "mail.example.org",
    "search.example.net",
    "static.example.com",
    "login.example.org",
    "update.example.net",
    "telemetry.example.com",
    "time.example.net",
];

/// The name of a host on the internet.
pub(super) fn domain(bits: &mut Bits) -> &'static str {
    let domain: &&str = bits.popular(&DOMAINS);
    domain
}
