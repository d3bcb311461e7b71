//! The page of a directory: a listing for all browsers, and for those with JavaScript a script that
//! sorts, searches and previews, and where writing is allowed uploads, renames and deletes with the
//! methods of HTTP and WebDAV.

use super::listing::{href, iso};
use base::op::Entry;
use base::{Kind, Name};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};
use std::io::Write as _;
use std::sync::LazyLock;
use wire::http::encode_component;

/// Maximum number of links in the heading: each has the length of its way up.
const LINKS_MAX: usize = 32;

const STYLE: &str = include_str!("page/page.css");

/// End of the page, with the script: text before it is readable in a terminal.
pub(super) const CLOSING: &[u8] =
    concat!("</ul></main>\n<script>", include_str!("page/page.js"), "</script></body></html>\n")
        .as_bytes();

/// Returns the content security policy of the page: its own style and script, and files and
/// requests of this server.
pub(super) fn policy() -> &'static str {
    static POLICY: LazyLock<String> = LazyLock::new(|| {
        let hash = |text: &str| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)));
        let (style, script) = (hash(STYLE), hash(include_str!("page/page.js")));
        format!(
            "default-src 'none'; style-src {style}; script-src {script}; img-src 'self'; \
             media-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; \
             frame-ancestors 'self'"
        )
    });
    &POLICY
}

/// Returns the page up to the first row.
pub(super) fn opening(path: &[Name], may_write: bool) -> Vec<u8> {
    let mut text = b"<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
        <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>/"
        .to_vec();
    path.iter().for_each(|name| escape(&format!("{name}/"), &mut text));
    writeln!(text, "</title><style>{STYLE}</style></head>").expect("memory");
    if may_write {
        let encoded = path.iter().map(|name| format!("{}/", encode_component(name.as_bytes())));
        let path: String = encoded.collect();
        write!(text, "<body data-write=\"/{path}\"><h1>").expect("memory");
    } else {
        text.extend_from_slice(b"<body><h1>");
    }
    heading(path, &mut text);
    text.extend_from_slice(b"</h1><main><ul>\n");
    if !path.is_empty() {
        text.extend_from_slice(b"<li id=\"up\"><a href=\"../\">..</a></li>\n");
    }
    text
}

/// Appends the path, with links to the directories above: the last ones of a very long path.
fn heading(path: &[Name], text: &mut Vec<u8>) {
    for at in 0..=path.len() {
        let up = path.len() - at;
        let is_link = (1..=LINKS_MAX).contains(&up);
        if is_link {
            write!(text, "<a href=\"{}\">", "../".repeat(up)).expect("memory");
        }
        match at.checked_sub(1) {
            Some(before) => escape(&format!("{}/", path[before]), text),
            None => text.push(b'/'),
        }
        if is_link {
            text.extend_from_slice(b"</a>");
        }
    }
}

/// Appends the row of an entry; `slash` follows the name of a directory.
pub(super) fn row(entry: &Entry, slash: &str, text: &mut Vec<u8>) {
    let class = if entry.kind == Kind::Symlink { " class=\"link\"" } else { "" };
    write!(text, "<li{class}><a href=\"").expect("memory");
    href(entry.name.as_bytes(), slash, text);
    text.extend_from_slice(b"\">");
    escape(&String::from_utf8_lossy(entry.name.as_bytes()), text);
    write!(text, "{slash}</a><small>").expect("memory");
    if let Some(stat) = &entry.stat {
        if entry.kind == Kind::File {
            write!(text, "<data value=\"{}\">", stat.size).expect("memory");
            size(stat.size, text);
            text.extend_from_slice(b"</data> ");
        }
        let mut minute = iso(stat.modified);
        minute[10] = b' ';
        text.extend_from_slice(b"<time>");
        text.extend_from_slice(&minute[..16]);
        text.extend_from_slice(b"</time>");
    }
    text.extend_from_slice(b"</small></li>\n");
}

/// Formats a size for people.
fn size(bytes: u64, text: &mut Vec<u8>) {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = usize::from(unit > 0 && value < 10.0);
    write!(text, "{value:.digits$} {}", units[unit]).expect("memory");
}

/// Escapes text for HTML.
fn escape(plain: &str, text: &mut Vec<u8>) {
    for byte in plain.bytes() {
        match byte {
            b'&' => text.extend_from_slice(b"&amp;"),
            b'<' => text.extend_from_slice(b"&lt;"),
            b'>' => text.extend_from_slice(b"&gt;"),
            b'"' => text.extend_from_slice(b"&quot;"),
            b'\'' => text.extend_from_slice(b"&#39;"),
            // HTML would read it as a line feed.
            b'\r' => text.extend_from_slice(b"&#13;"),
            plain => text.push(plain),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_leads_to_each_directory_above() {
        let path = [&b"a"[..], b"<b>"].map(|name| Name::new(name).expect("a name"));
        let text = String::from_utf8(opening(&path, true)).expect("text");
        let place = "<h1><a href=\"../../\">/</a><a href=\"../\">a/</a>&lt;b&gt;/</h1>";
        assert!(
            text.contains(place) && text.contains("<body data-write=\"/a/%3Cb%3E/\">"),
            "{text}"
        );
        assert!(text.contains("<title>/a/&lt;b&gt;/</title>"), "{text}");
        let text = String::from_utf8(opening(&[], false)).expect("text");
        assert!(text.ends_with("<body><h1>/</h1><main><ul>\n"), "{text}");
        let long = vec![Name::new(b"x").expect("a name"); 4000];
        assert!(opening(&long, true).len() < 32 << 10, "linear in the path");
    }

    #[test]
    fn names_are_escaped_in_rows() {
        let entry = |name: &[u8], kind| Entry {
            cookie: 1,
            inode: 1,
            device: None,
            kind,
            name: Name::new(name).expect("a name"),
            stat: None,
            handle: None,
        };
        for (name, href, text) in [
            (&b"<i>\"'&"[..], "%3Ci%3E%22%27%26", "&lt;i&gt;&quot;&#39;&amp;"),
            (b"a:b?c#d%20 e", "a%3Ab%3Fc%23d%2520%20e", "a:b?c#d%20 e"),
            (b"\xff\n", "%FF%0A", "\u{fffd}\n"),
        ] {
            let mut html = Vec::new();
            row(&entry(name, Kind::File), "", &mut html);
            let html = String::from_utf8(html).expect("text");
            let wanted = format!("<li><a href=\"{href}\">{text}</a><small></small></li>\n");
            assert_eq!(html, wanted);
        }
        let mut html = Vec::new();
        row(&entry(b"l", Kind::Symlink), "/", &mut html);
        assert!(html.starts_with(b"<li class=\"link\"><a href=\"l/\">l/</a>"));
    }

    #[test]
    fn a_script_cannot_end_itself() {
        let script = include_str!("page/page.js");
        assert!(!script.contains("</script") && !script.contains("<!--"));
        assert!(!STYLE.contains("</style"));
    }
}
