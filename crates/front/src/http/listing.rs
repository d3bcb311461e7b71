//! A directory as a page for people or as JSON for programs.
//!
//! Entries are gathered up to [`SORT_BYTES`] and sorted; of a larger directory the rest follows as
//! it comes. Rows are made as the client takes them, so memory stays bounded.

use super::answer::Head;
use super::get::safe;
use super::{Session, State};
use crate::Output;
use base::op::Entry;
use base::{Buf, Error, Instant, Kind, Time};
use std::collections::VecDeque;
use std::fmt::Write as _;
use tree::{Ask, OpenId, Reply};
use wire::http::{Method, Request, date, encode_component};

/// How many bytes of entries are gathered to be sorted.
const SORT_BYTES: usize = 256 << 10;
/// How many bytes of names are asked for at once.
const PAGE: u32 = 16 << 10;
/// How many bytes may be unsent before more rows are made.
const AHEAD: usize = 64 << 10;
/// About how many bytes of rows are made in one step: many listings at once keep others waiting for
/// one step each.
const ROWS: usize = 16 << 10;

/// A listing on its way.
#[derive(Debug)]
pub(super) struct Listing {
    open: OpenId,
    /// The path, for the heading.
    title: String,
    json: bool,
    head_only: bool,
    /// HTTP/1.0 knows no chunks: the end of the connection is the end of the body.
    chunked: bool,
    is_root: bool,
    cookie: u64,
    /// Gathered and not yet said, the next one first; and about how many bytes of memory they take.
    entries: VecDeque<Entry>,
    gathered: usize,
    /// The directory has no more.
    ended: bool,
    /// How many entries were said; the head is said with the first.
    said: Option<usize>,
    asking: bool,
}

impl Listing {
    pub(super) fn new(request: &Request, open: OpenId) -> Listing {
        let names = request.target.path.iter().map(|name| name.to_string() + "/");
        Listing {
            open,
            title: names.fold("/".to_string(), |path, name| path + &name),
            json: request.wants_json,
            head_only: request.method == Method::Head,
            chunked: request.is_1_1,
            is_root: request.target.path.is_empty(),
            cookie: 0,
            entries: VecDeque::new(),
            gathered: 0,
            ended: false,
            said: None,
            asking: false,
        }
    }

    /// Gives back the directory; whether a question is under way.
    pub(super) fn forget(self, out: &mut Vec<Output>) -> bool {
        out.push(Output::Close(self.open));
        self.asking
    }

    /// How many bytes are gathered and not yet said.
    pub(super) fn gathered(&self) -> usize {
        self.gathered
    }

    fn gather(&mut self, entries: Vec<Entry>) {
        self.cookie = entries.last().map_or(self.cookie, |entry| entry.cookie);
        self.gathered += entries.iter().map(weight).sum::<usize>();
        self.entries.extend(entries);
    }

    /// Whether rows can be said: the first are sorted before.
    fn is_ready(&self, gathered_max: usize) -> bool {
        self.said.is_some() || self.ended || self.gathered >= gathered_max
    }

    fn sort(&mut self) {
        let place = |entry: &Entry| entry.kind != Kind::Directory;
        let entries = self.entries.make_contiguous();
        entries.sort_unstable_by(|a, b| (place(a), &a.name).cmp(&(place(b), &b.name)));
    }

    fn frame(&self, text: &str) -> Vec<u8> {
        if !self.chunked || text.is_empty() {
            return text.as_bytes().to_vec();
        }
        format!("{:x}\r\n{text}\r\n", text.len()).into_bytes()
    }

    /// The next entries gathered, as text.
    fn take_rows(&mut self) -> String {
        let mut text = String::new();
        while text.len() < ROWS
            && let Some(entry) = self.entries.pop_front()
        {
            self.gathered -= weight(&entry);
            let first = self.said == Some(0);
            self.said = self.said.map(|count| count + 1);
            match self.json {
                true => json_row(&entry, first, &mut text),
                false => html_row(&entry, &mut text),
            }
        }
        if self.entries.is_empty() {
            self.entries.shrink_to_fit();
        }
        text
    }

    fn opening(&self) -> String {
        if self.json {
            return "[".to_string();
        }
        let title = escape(&self.title);
        let parent = if self.is_root { "" } else { "<a href=\"../\">..</a>" };
        format!("{PAGE_TOP}<title>{title}</title></head><body><h1>{title}</h1><main>{parent}\n")
    }

    fn closing(&self) -> &'static str {
        if self.json { "\n]\n" } else { "</main></body></html>\n" }
    }
}

/// About how many bytes an entry takes.
fn weight(entry: &Entry) -> usize {
    entry.name.as_bytes().len() + size_of::<Entry>()
}

const PAGE_TOP: &str = "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
<style>:root{color-scheme:light dark}body{font:1rem/1.5 system-ui,sans-serif;max-width:60rem;\
margin:0 auto;padding:1rem}h1{font-size:1.1rem;overflow-wrap:anywhere}main{display:grid}\
a{display:grid;grid-template-columns:1fr auto;gap:0 1rem;padding:.5rem .25rem;\
border-top:1px solid #8884;text-decoration:none;overflow-wrap:anywhere}\
a:hover,a:focus{background:#8882}small{opacity:.7;white-space:nowrap}</style>";

fn html_row(entry: &Entry, text: &mut String) {
    let directory = entry.kind == Kind::Directory;
    let link = escape(&href(entry.name.as_bytes(), directory));
    let name = escape(&entry.name.to_string());
    let slash = if directory { "/" } else { "" };
    let detail = match (&entry.stat, entry.kind) {
        (Some(stat), Kind::File) => format!("{} · {}", size(stat.size), minute(stat.modified)),
        (Some(stat), _) => minute(stat.modified),
        (None, _) => String::new(),
    };
    writeln!(text, "<a href=\"{link}\">{name}{slash}<small>{detail}</small></a>")
        .expect("a string");
}

fn json_row(entry: &Entry, first: bool, text: &mut String) {
    let comma = if first { "\n" } else { ",\n" };
    let name = serde_json::Value::from(entry.name.to_string());
    let kind = match entry.kind {
        Kind::File => "file",
        Kind::Directory => "directory",
        Kind::Symlink => "symlink",
        Kind::Fifo => "fifo",
        Kind::Socket => "socket",
        Kind::CharDevice => "char-device",
        Kind::BlockDevice => "block-device",
    };
    let link = href(entry.name.as_bytes(), entry.kind == Kind::Directory);
    write!(text, "{comma}{{\"name\":{name},\"href\":\"{link}\",\"type\":\"{kind}\"")
        .expect("a string");
    if let Some(stat) = &entry.stat {
        let date = iso(stat.modified);
        write!(text, ",\"size\":{},\"modified\":\"{date}\"", stat.size).expect("a string");
    }
    text.push('}');
}

fn minute(time: Time) -> String {
    iso(time)[..16].replace('T', " ")
}

/// A size as people read it.
fn size(bytes: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = usize::from(unit > 0 && value < 10.0);
    format!("{value:.digits$} {}", units[unit])
}

/// A name as it stands in a link.
fn href(name: &[u8], directory: bool) -> String {
    let slash = if directory { "/" } else { "" };
    format!("{}{slash}", encode_component(name))
}

/// A date as people sort it.
fn iso(time: Time) -> String {
    let text = date(time).to_string();
    // "Sun, 09 Sep 2001 01:46:40 GMT": fixed places (RFC 9110 §5.6.7).
    let months =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = months.iter().position(|month| *month == &text[8..11]).unwrap_or(0) + 1;
    format!("{}-{month:02}-{}T{}Z", &text[12..16], &text[5..7], &text[17..25])
}

/// Text as it stands in HTML.
fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            plain => safe.push(plain),
        }
    }
    safe
}

impl Session {
    /// Says rows and asks for more entries, as far as the client has taken what was said.
    pub(super) fn list_on(
        &mut self,
        now: Instant,
        mut listing: Listing,
        out: &mut Vec<Output>,
    ) -> State {
        if listing.head_only {
            let head = self.listing_head(now, &mut listing);
            self.say(Buf::from(head), out);
            listing.forget(out);
            return self.done(now, out);
        }
        let (gathered_max, ahead) = (self.at_most(SORT_BYTES), self.at_most(AHEAD));
        // One piece a step: the next one follows when this one has been sent.
        if listing.is_ready(gathered_max) && !listing.entries.is_empty() && self.unsent <= ahead {
            self.say_entries(now, &mut listing, out);
        }
        if listing.ended && listing.entries.is_empty() {
            return self.end_listing(now, listing, out);
        }
        let is_ready = listing.is_ready(gathered_max);
        let wanted = !is_ready || (listing.entries.is_empty() && self.unsent <= ahead);
        if wanted && !listing.asking && !listing.ended {
            listing.asking = true;
            let (open, cookie) = (listing.open, listing.cookie);
            self.asked = PAGE as usize;
            self.ask(Ask::List { open, cookie, bytes_max: PAGE, with_stat: true }, out);
        }
        State::Listing(listing)
    }

    fn end_listing(&mut self, now: Instant, mut listing: Listing, out: &mut Vec<Output>) -> State {
        if listing.said.is_none() {
            self.say_entries(now, &mut listing, out);
        }
        let mut end = listing.frame(listing.closing());
        end.extend_from_slice(if listing.chunked { b"0\r\n\r\n" } else { b"" });
        self.say(Buf::from(end), out);
        listing.forget(out);
        self.done(now, out)
    }

    pub(super) fn listed(
        &mut self,
        now: Instant,
        mut listing: Listing,
        reply: Result<Reply, Error>,
        out: &mut Vec<Output>,
    ) -> State {
        listing.asking = false;
        match reply {
            Ok(Reply::Entries(entries)) => {
                listing.ended = entries.is_empty();
                listing.gather(entries);
                if listing.said.is_none() && listing.is_ready(self.at_most(SORT_BYTES)) {
                    listing.sort();
                }
                self.list_on(now, listing, out)
            }
            Err(error) if listing.said.is_none() => {
                listing.forget(out);
                self.fail(now, super::answer::status(error), out)
            }
            Ok(_) | Err(_) => {
                listing.forget(out);
                self.hang_up("the directory could not be read to its end", out)
            }
        }
    }

    /// Says some rows; the head and the opening in front of the first.
    fn say_entries(&mut self, now: Instant, listing: &mut Listing, out: &mut Vec<Output>) {
        let mut text = String::new();
        let mut bytes = Vec::new();
        if listing.said.is_none() {
            bytes = self.listing_head(now, listing);
            text = listing.opening();
        }
        text += &listing.take_rows();
        bytes.extend(listing.frame(&text));
        self.say(Buf::from(bytes), out);
    }

    fn listing_head(&mut self, now: Instant, listing: &mut Listing) -> Vec<u8> {
        listing.said = Some(0);
        let kind = if listing.json { "application/json" } else { "text/html; charset=utf-8" };
        let mut head = safe(Head::new(200).field("Content-Type", kind))
            .field("Vary", "Accept")
            .field("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'");
        if listing.chunked {
            head = head.field("Transfer-Encoding", "chunked");
        } else {
            self.last = true;
        }
        self.end(now, head)
    }
}
