//! Directory listings, as HTML for people or as JSON for programs.
//!
//! Entries are gathered up to [`SORT_BYTES`] and sorted; the rest of a larger directory follows
//! unsorted. Rows are generated as the client takes them, so memory stays bounded. Symbolic links
//! are resolved one after the other: the reference to one that leads to a directory ends in a
//! slash.

use super::answer::Head;
use super::exchange::{AHEAD, Context, Exchange, Stay};
use super::get::safe;
use super::page;
use super::room::HANDLES;
use super::{CALL, State};
use crate::CallId;
use base::op::{Detail, Entry};
use base::{Buf, Error, Instant, Kind, Name, Time};
use std::collections::VecDeque;
use std::io::Write as _;
use std::time::Duration;
use tree::{Ask, OpenId, Reply};
use wire::http::{Method, Request, date, encode_component};

/// Maximum number of bytes of entries gathered for sorting.
const SORT_BYTES: usize = 256 << 10;
/// Maximum number of bytes of names requested at once.
const PAGE: u32 = 16 << 10;
/// Approximate number of bytes of rows generated in one step: concurrent listings delay others by
/// one step each.
const ROWS: usize = 8 << 10;

/// A listing in progress.
#[derive(Debug)]
pub(super) struct Listing {
    open: OpenId,
    path: Vec<Name>,
    json: bool,
    head_only: bool,
    /// Whether the body is chunked; for HTTP/1.0, the end of the connection ends it.
    chunked: bool,
    cookie: u64,
    /// Entries read; if the first is a symbolic link, its target is being resolved.
    read: VecDeque<Entry>,
    /// Number of symbolic links that may still be resolved, and deadline of the present one.
    links: usize,
    link_until: Instant,
    /// Rows gathered and not yet sent, the next one first.
    rows: VecDeque<Row>,
    /// Approximate memory of entries and rows, bytes.
    gathered: usize,
    /// Whether the directory has no more entries.
    ended: bool,
    /// Number of entries sent; the head is sent with the first.
    rows_sent: Option<usize>,
    asking: bool,
}

/// Maximum number of symbolic links of a listing that are resolved, one after the other, and
/// timeout for one: its target may be on a file system that hangs. Others are listed without a
/// slash.
const LINKS_MAX: usize = 200;
const LINK_TIME: Duration = Duration::from_secs(1);

/// An entry, and whether it is a directory or a link to one.
#[derive(Debug)]
struct Row {
    entry: Entry,
    is_directory: bool,
}

impl Row {
    /// Returns the suffix of its name.
    fn slash(&self) -> &'static str {
        if self.is_directory { "/" } else { "" }
    }
}

impl Listing {
    /// Lists an open directory.
    pub(super) fn begin(cx: &mut Context, request: &Request, open: OpenId) -> State {
        let listing = Listing {
            open,
            path: request.target.path.clone(),
            json: request.preference.json,
            head_only: request.method == Method::Head,
            chunked: request.is_1_1,
            cookie: 0,
            read: VecDeque::new(),
            links: LINKS_MAX,
            link_until: Instant(u64::MAX),
            rows: VecDeque::new(),
            gathered: 0,
            ended: false,
            rows_sent: None,
            asking: false,
        };
        Box::new(listing).sent(cx)
    }

    fn gather(&mut self, entries: Vec<Entry>) {
        self.cookie = entries.last().map_or(self.cookie, |entry| entry.cookie);
        self.gathered += entries.iter().map(weight).sum::<usize>();
        self.read.extend(entries);
        self.make_rows();
    }

    /// Generates rows of the entries up to the next symbolic link.
    fn make_rows(&mut self) {
        let is_next = |entry: &Entry| entry.kind != Kind::Symlink || self.links == 0;
        while self.read.front().is_some_and(is_next) {
            let entry = self.read.pop_front().expect("looked at above");
            let is_directory = entry.kind == Kind::Directory;
            self.rows.push_back(Row { entry, is_directory });
        }
    }

    /// Generates a row of the resolved symbolic link, and those up to the next one.
    fn follow(&mut self, is_directory: bool) {
        let entry = self.read.pop_front().expect("its target was requested");
        self.links = self.links.saturating_sub(1);
        self.link_until = Instant(u64::MAX);
        self.rows.push_back(Row { entry, is_directory });
        self.make_rows();
    }

    /// Returns whether rows can be sent: the first ones are sorted before.
    fn is_ready(&self, gathered_max: usize) -> bool {
        let is_sortable = self.read.is_empty() && (self.ended || self.gathered >= gathered_max);
        self.rows_sent.is_some() || is_sortable
    }

    fn sort(&mut self) {
        let key = |row: &Row| !row.is_directory;
        let rows = self.rows.make_contiguous();
        rows.sort_unstable_by(|a, b| (key(a), &a.entry.name).cmp(&(key(b), &b.entry.name)));
    }

    /// Appends a part of the body.
    fn frame(&self, part: &[u8], out: &mut Vec<u8>) {
        let is_chunk = self.chunked && !part.is_empty();
        if is_chunk {
            write!(out, "{:x}\r\n", part.len()).expect("memory");
        }
        out.extend_from_slice(part);
        out.extend_from_slice(if is_chunk { b"\r\n" } else { b"" });
    }

    /// Appends rows of the next gathered entries.
    fn take_rows(&mut self, text: &mut Vec<u8>) {
        let end = text.len() + ROWS;
        while text.len() < end
            && let Some(row) = self.rows.pop_front()
        {
            assert!(weight(&row.entry) <= self.gathered, "gathered bytes are counted");
            self.gathered -= weight(&row.entry);
            let first = self.rows_sent == Some(0);
            self.rows_sent = self.rows_sent.map(|count| count + 1);
            match self.json {
                true => json_row(&row, first, text),
                false => page::row(&row.entry, row.slash(), text),
            }
        }
        if self.rows.is_empty() {
            self.rows.shrink_to_fit();
        }
    }

    fn opening(&self, may_write: bool) -> Vec<u8> {
        if self.json { b"[".to_vec() } else { page::opening(&self.path, may_write) }
    }

    fn closing(&self) -> &'static [u8] {
        if self.json { b"\n]\n" } else { page::CLOSING }
    }
}

/// Returns the approximate memory of an entry, bytes.
fn weight(entry: &Entry) -> usize {
    entry.name.as_bytes().len() + size_of::<Entry>()
}

fn json_row(row: &Row, first: bool, text: &mut Vec<u8>) {
    let entry = &row.entry;
    let kind = entry.kind.name();
    text.extend_from_slice(if first { b"\n{\"name\":" } else { b",\n{\"name\":" });
    let name = String::from_utf8_lossy(entry.name.as_bytes());
    serde_json::to_writer(&mut *text, &name).expect("a string is JSON");
    text.extend_from_slice(b",\"href\":\"");
    href(entry.name.as_bytes(), row.slash(), text);
    write!(text, "\",\"type\":\"{kind}\"").expect("memory");
    if let Some(stat) = &entry.stat {
        write!(text, ",\"size\":{},\"modified\":\"", stat.size).expect("memory");
        text.extend_from_slice(&iso(stat.modified));
        text.push(b'"');
    }
    text.push(b'}');
}

/// Formats a name for a link: the result has no special characters of HTML and JSON.
pub(super) fn href(name: &[u8], slash: &str, text: &mut Vec<u8>) {
    encode_component(name).for_each(|part| text.extend_from_slice(part.as_bytes()));
    text.extend_from_slice(slash.as_bytes());
}

/// Formats a date so that it sorts as text, like `2001-09-09T01:46:40Z`.
pub(super) fn iso(time: Time) -> [u8; 20] {
    // "Sun, 09 Sep 2001 01:46:40 GMT": fixed positions (RFC 9110 §5.6.7).
    let mut date_of_http = [0; 29];
    write!(&mut date_of_http[..], "{}", date(time)).expect("dates have one length");
    const MONTHS: &[u8] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
    let month = MONTHS.chunks(3).position(|month| month == &date_of_http[8..11]).unwrap_or(0) + 1;
    let mut text = *b"0000-00-00T00:00:00Z";
    text[..4].copy_from_slice(&date_of_http[12..16]);
    text[5..7].copy_from_slice(&[b'0' + (month / 10) as u8, b'0' + (month % 10) as u8]);
    text[8..10].copy_from_slice(&date_of_http[5..7]);
    text[11..19].copy_from_slice(&date_of_http[17..25]);
    text
}

impl Exchange for Listing {
    fn name(&self) -> &'static str {
        "listing"
    }

    fn answered(
        mut self: Box<Self>,
        cx: &mut Context,
        _call: CallId,
        reply: Result<Reply, Error>,
    ) -> State {
        assert!(self.asking, "entries were requested");
        self.asking = false;
        match reply {
            Ok(Reply::Entries(entries)) => {
                self.ended = entries.is_empty();
                self.gather(entries);
            }
            Ok(Reply::Fetched(stat, _, open)) if !self.read.is_empty() => {
                cx.close(open);
                self.follow(stat.kind == Kind::Directory);
            }
            Err(_) if !self.read.is_empty() => self.follow(false),
            Err(error) if self.rows_sent.is_none() => {
                cx.close(self.open);
                return cx.fail(super::answer::status(error));
            }
            Ok(_) | Err(_) => {
                cx.close(self.open);
                return cx.hang_up("the directory could not be read to its end");
            }
        }
        if self.rows_sent.is_none() && self.is_ready(cx.at_most(SORT_BYTES)) {
            self.sort();
        }
        self.sent(cx)
    }

    /// Sends rows and requests more entries, at the pace of the client.
    fn sent(mut self: Box<Self>, cx: &mut Context) -> State {
        if self.head_only {
            let head = self.head(cx);
            cx.send_head(head, b"");
            cx.close(self.open);
            return cx.done();
        }
        let (gathered_max, ahead) = (cx.at_most(SORT_BYTES), cx.at_most(AHEAD));
        // One piece per step: the next one follows when this one has been sent.
        if self.is_ready(gathered_max) && !self.rows.is_empty() && cx.session.unsent <= ahead {
            self.send_entries(cx);
        }
        if self.ended && self.rows.is_empty() {
            return self.end(cx);
        }
        let is_ready = self.is_ready(gathered_max);
        let wanted = !is_ready || (self.rows.is_empty() && cx.session.unsent <= ahead);
        if wanted && !self.asking && !self.ended {
            self.asking = true;
            self.ask_for_entries(cx);
        }
        self.stay()
    }

    /// Gives up resolving a link that takes too long, and those behind it.
    fn ticked(mut self: Box<Self>, cx: &mut Context) -> State {
        if self.link_until <= cx.now {
            (self.links, self.link_until) = (0, Instant(u64::MAX));
            cx.cancel(CALL, true);
        }
        self.stay()
    }

    fn abort(self: Box<Self>, cx: &mut Context) -> usize {
        cx.close(self.open);
        cx.cancel(CALL, self.asking)
    }

    /// Returns the deadline for resolving a link.
    fn deadline(&self) -> Option<Instant> {
        Some(self.link_until).filter(|until| until.0 < u64::MAX)
    }

    /// With the target of a link, also opened.
    fn handles(&self) -> usize {
        HANDLES
    }

    fn gathered(&self) -> usize {
        self.gathered
    }
}

impl Listing {
    /// Requests the target of the next symbolic link, or else the next entries.
    fn ask_for_entries(&mut self, cx: &mut Context) {
        if let Some(link) = self.read.front() {
            self.link_until = cx.now + LINK_TIME;
            let path = self.path.iter().chain([&link.name]).cloned().collect();
            return cx.ask(Ask::Fetch { root: None, path, read_max: 0, headroom: 0 });
        }
        let (open, cookie) = (self.open, self.cookie);
        cx.session.outstanding = PAGE as usize;
        cx.ask(Ask::List { open, cookie, bytes_max: PAGE, detail: Detail::Stat });
    }

    fn end(&mut self, cx: &mut Context) -> State {
        if self.rows_sent.is_none() {
            self.send_entries(cx);
        }
        let mut end = Vec::new();
        self.frame(self.closing(), &mut end);
        end.extend_from_slice(if self.chunked { b"0\r\n\r\n" } else { b"" });
        cx.send(Buf::from(end));
        cx.close(self.open);
        cx.done()
    }

    /// Sends some rows, with the head and the opening in front of the first ones.
    fn send_entries(&mut self, cx: &mut Context) {
        let (mut bytes, mut text) = (Vec::new(), Vec::new());
        if self.rows_sent.is_none() {
            let head = self.head(cx);
            bytes = cx.end(head);
            text = self.opening(cx.session.export.web.write);
        }
        self.take_rows(&mut text);
        self.frame(&text, &mut bytes);
        cx.send(Buf::from(bytes));
    }

    fn head(&mut self, cx: &mut Context) -> Head {
        self.rows_sent = Some(0);
        let kind = if self.json { "application/json" } else { "text/html; charset=utf-8" };
        let policy = if self.json { "default-src 'none'" } else { page::policy() };
        let head = safe(Head::new(200).field("Content-Type", kind))
            .field("Vary", "Accept")
            .field("Content-Security-Policy", policy);
        cx.stream(head)
    }
}
