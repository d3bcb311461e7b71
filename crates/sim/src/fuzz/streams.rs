//! Inputs of fuzzers: valid messages and requests, and ways to corrupt them.

use base::rng::Rng;
use wire::ninep::{Data, Names, Rmessage, Stat, Tmessage};

const NAMES: [&[u8]; 8] = [b"a", b"b", b"..", b".", b"", b"x/y", &[b'n'; 255], &[b'n'; 256]];

fn name(rng: &mut Rng) -> &'static [u8] {
    NAMES[rng.usize(..NAMES.len())]
}

/// Draws a number, with a preference for extremes.
pub(super) fn number(rng: &mut Rng) -> u64 {
    match rng.u8(..6) {
        0 => u64::MAX - rng.u64(..3),
        1 => rng.u64(..),
        2 => 1 << rng.u32(..64),
        _ => rng.u64(..9000),
    }
}

/// Changes, drops or duplicates a few bytes.
pub(super) fn spoil(rng: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..rng.usize(1..4) {
        if bytes.is_empty() {
            return;
        }
        let at = rng.usize(..bytes.len());
        match rng.u8(..6) {
            0 => bytes[at] = rng.u8(..),
            1 => bytes[at] ^= 1 << rng.u8(..8),
            2 => drop(bytes.remove(at)),
            3 => bytes.insert(at, rng.u8(..)),
            4 => bytes.truncate(at),
            _ => {
                let end = (at + rng.usize(1..20)).min(bytes.len());
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
        }
    }
}

/// Draws a valid message of a client.
pub(super) fn request(rng: &mut Rng, tag: u16) -> Vec<u8> {
    let data = vec![7; rng.usize(..300) * if rng.u8(..8) == 0 { 60 } else { 1 }];
    let list: Vec<&[u8]> = (0..rng.usize(..5)).map(|_| name(rng)).collect();
    let (fid, other, gid) = (rng.u32(..6), rng.u32(..6), 0);
    let (big, mode) = (number(rng), [0o644, 0o755, 0o20_644, 0o100_600][rng.usize(..4)]);
    let flags = [0, 1, 2, 0o1001, 0o2002, 0o200_000][rng.usize(..6)];
    let text = name(rng);
    let message = match rng.u8(..40) {
        0 | 1 => {
            let versions: [&[u8]; 4] = [b"9P2000.L", b"9P2000", b"9P2000.u", b"x"];
            let msize = if rng.bool() { 8192 } else { number(rng) as u32 };
            Tmessage::Version { msize, version: versions[rng.usize(..4)] }
        }
        2..=4 => Tmessage::Attach { fid, afid: !0, uname: b"me", aname: b"/a", uid: Some(0) },
        5 => Tmessage::Auth { afid: fid, uname: b"me", aname: b"", uid: None },
        6..=11 => {
            let names = Names::new(&list).expect("few");
            Tmessage::Walk { fid, newfid: other, names }
        }
        12 | 13 => Tmessage::Lopen { fid, flags },
        14 => Tmessage::Lcreate { fid, name: text, flags, mode, gid },
        15 => Tmessage::Open { fid, mode: rng.u8(..0x60) },
        16 | 17 => {
            let perm = mode | if rng.bool() { 0x8000_0000 } else { 0 };
            Tmessage::Create { fid, name: text, perm, mode: rng.u8(..4) }
        }
        18 | 19 => Tmessage::Read { fid, offset: big, count: number(rng) as u32 },
        20..=22 => Tmessage::Write { fid, offset: big, data: Data(&data) },
        23 => Tmessage::Readdir { fid, offset: big, count: rng.u32(..5000) },
        24 => Tmessage::Getattr { fid, mask: big },
        25 => Tmessage::Flush { oldtag: rng.u16(..12) },
        26 | 27 => Tmessage::Clunk { fid },
        28 => Tmessage::Remove { fid },
        29 => Tmessage::Stat { fid },
        30 => Tmessage::Wstat { fid, stat: Stat { name: text, length: big, ..Stat::unchanged() } },
        31 => Tmessage::Mkdir { dfid: fid, name: text, mode, gid },
        32 => Tmessage::Xattrwalk { fid, newfid: other, name: text },
        33 => Tmessage::Xattrcreate { fid, name: text, size: rng.u64(..400), flags: 0 },
        34 => Tmessage::Renameat { olddirfid: fid, oldname: text, newdirfid: other, newname: b"z" },
        _ => more(rng, fid, other, text, big),
    };
    let mut bytes = Vec::new();
    message.encode(tag, &mut bytes);
    bytes
}

fn more<'a>(rng: &mut Rng, fid: u32, other: u32, text: &'a [u8], big: u64) -> Tmessage<'a> {
    let (gid, client_id): (u32, &[u8]) = (0, b"me");
    let (kind, proc_id, start) = (rng.u8(..4), rng.u32(..3), big);
    let length = number(rng);
    match rng.u8(..11) {
        0 => Tmessage::Statfs { fid },
        1 => Tmessage::Readlink { fid },
        2 => Tmessage::Symlink { dfid: fid, name: text, target: b"t", gid },
        3 => Tmessage::Mknod { dfid: fid, name: text, mode: 0o10_600, major: 1, minor: 2, gid },
        4 => Tmessage::Rename { fid, dfid: other, name: text },
        5 => Tmessage::Link { dfid: fid, fid: other, name: text },
        6 => Tmessage::Unlinkat { dfid: fid, name: text, flags: rng.u32(..2) << 9 },
        7 => Tmessage::Fsync { fid, data_only: None },
        8 => Tmessage::Getlock { fid, kind, start, length, proc_id, client_id },
        9 => Tmessage::Lock { fid, kind, flags: 1, start, length, proc_id, client_id },
        _ => Tmessage::Setattr {
            fid,
            valid: rng.u32(..0x400),
            mode: 0o600,
            uid: 0,
            gid,
            size: big,
            atime_sec: big,
            atime_nsec: big,
            mtime_sec: big,
            mtime_nsec: big,
        },
    }
}

/// Draws a valid message of a server.
pub(super) fn answer(rng: &mut Rng, tag: u16) -> Vec<u8> {
    let data = vec![9; rng.usize(..100)];
    let message = match rng.u8(..7) {
        0 => Rmessage::Lerror { ecode: number(rng) as u32 },
        1 => Rmessage::Error { ename: name(rng) },
        2 => Rmessage::Read { data: Data(&data) },
        3 => Rmessage::Version { msize: 8192, version: b"9P2000" },
        4 => Rmessage::Stat { stat: Stat { name: name(rng), ..Stat::default() } },
        5 => Rmessage::Walk { qids: std::iter::repeat_n(wire::ninep::Qid::default(), 3).collect() },
        _ => Rmessage::Readlink { target: name(rng) },
    };
    let mut bytes = Vec::new();
    message.encode(tag, &mut bytes);
    bytes
}

/// Draws a valid request of an HTTP client, with its body.
pub(super) fn http_request(rng: &mut Rng) -> Vec<u8> {
    let methods = ["GET", "GET", "GET", "HEAD", "PUT", "PUT", "DELETE", "OPTIONS"];
    let paths = [
        "/",
        "/a",
        "/a/",
        "/%41%2e",
        "/a//b?q#f",
        "/.upcall/metrics",
        "*",
        "/..",
        "/%00",
        "http://localhost/a",
    ];
    let fields = [
        "Range: bytes=0-9",
        "Range: bytes=5-,-7",
        "Range: bytes=9999999999-",
        "Range: x",
        "If-None-Match: *",
        "If-Match: \"a\", W/\"b\"",
        "If-Range: \"x\"",
        "Accept: application/json",
        "If-Modified-Since: Sun, 09 Sep 2001 01:46:40 GMT",
        "Connection: close",
        "Connection: keep-alive",
        "Origin: http://localhost",
        "Expect: 100-continue",
        "Content-Digest: sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:",
        "Repr-Digest: sha-512=:x:, sha-256=:AAAA:",
        "X-Y: z",
    ];
    match rng.u8(..12) {
        0 | 1 => return http_post(rng),
        2..=4 => return webdav(rng),
        _other => {}
    }
    let method = methods[rng.usize(..methods.len())];
    let version = if rng.u8(..8) == 0 { "1.0" } else { "1.1" };
    let mut text = format!("{method} {} HTTP/{version}\r\n", paths[rng.usize(..paths.len())]);
    text += "Host: localhost\r\n";
    for _ in 0..rng.usize(..4) {
        text += fields[rng.usize(..fields.len())];
        text += "\r\n";
    }
    let length = rng.usize(..600) * if rng.u8(..9) == 0 { 300 } else { 1 };
    let mut bytes = text.into_bytes();
    if method != "PUT" {
        bytes.extend(b"\r\n");
    } else if rng.bool() {
        bytes.extend(format!("Content-Length: {length}\r\n\r\n").bytes());
        bytes.extend(std::iter::repeat_n(b'd', length));
    } else {
        bytes.extend(b"Transfer-Encoding: chunked\r\n\r\n");
        bytes.extend(chunked(rng, &vec![b'c'; length]));
    }
    bytes
}

/// Draws a request of WebDAV.
fn webdav(rng: &mut Rng) -> Vec<u8> {
    let methods =
        ["PROPFIND", "PROPPATCH", "MKCOL", "COPY", "MOVE", "DELETE", "LOCK", "LOCK", "UNLOCK"];
    let paths = ["/", "/a", "/a/", "/a/b", "/b/c/d", "/.upcall/metrics"];
    let fields = [
        "Depth: 0",
        "Depth: 1",
        "Depth: 1",
        "Depth: infinity",
        "Depth: 2",
        "Overwrite: F",
        "Overwrite: T",
        "If-Match: *",
        "If: (<urn:x>)",
        "If: (Not <DAV:no-lock>)",
        "If: (<urn:x>) </b> ([\"tag\"])",
        "Lock-Token: <urn:x>",
        "Timeout: Second-5, Infinite",
        "Destination: https://elsewhere/x",
        "Expect: 100-continue",
        "Connection: close",
    ];
    let method = methods[rng.usize(..methods.len())];
    let version = if rng.u8(..8) == 0 { "1.0" } else { "1.1" };
    let path = |rng: &mut Rng| paths[rng.usize(..paths.len())];
    let mut text = format!("{method} {} HTTP/{version}\r\nHost: localhost\r\n", path(rng));
    for _ in 0..rng.usize(..3) {
        text += fields[rng.usize(..fields.len())];
        text += "\r\n";
    }
    if ["COPY", "MOVE"].contains(&method) && !text.contains("Destination") {
        let host = if rng.bool() { "http://localhost" } else { "" };
        text += &format!("Destination: {host}{}x\r\n", path(rng));
    }
    if method == "PROPFIND" && !text.contains("Depth") && rng.u8(..4) > 0 {
        text += "Depth: 1\r\n";
    }
    let has_body = method.starts_with("PROP") || method == "LOCK";
    let body = if has_body { dav_body(rng) } else { String::new() };
    match body.len() {
        0 => format!("{text}\r\n").into_bytes(),
        length => format!("{text}Content-Length: {length}\r\n\r\n{body}").into_bytes(),
    }
}

/// Draws a body of `PROPFIND` or `PROPPATCH`.
pub(super) fn dav_body(rng: &mut Rng) -> String {
    let bodies = [
        "",
        "<propfind xmlns=\"DAV:\"><allprop/></propfind>",
        "<propfind xmlns=\"DAV:\"><propname/></propfind>",
        "<D:propfind xmlns:D='DAV:'><D:prop><D:getetag/><D:quota-used-bytes/></D:prop>\
         </D:propfind>",
        "<propfind xmlns=\"DAV:\"><prop><a xmlns='x'/><getcontentlength/></prop></propfind>",
        "<propertyupdate xmlns='DAV:'><set><prop><a xmlns='x' xml:lang='de'>v<b/>&amp;</a></prop>\
         </set><remove><prop><b xmlns='y'/></prop></remove></propertyupdate>",
        "<propertyupdate xmlns='DAV:'><remove><prop><b xmlns='y'/></prop></remove>\
         </propertyupdate>",
        "<propertyupdate xmlns='DAV:'><set><prop><getetag>x</getetag></prop></set>\
         </propertyupdate>",
        "<propertyupdate xmlns='DAV:'><set><prop>\
         <executable xmlns='http://apache.org/dav/props/'>T</executable></prop></set>\
         </propertyupdate>",
        "<lockinfo xmlns='DAV:'><lockscope><exclusive/></lockscope><locktype><write/></locktype>\
         <owner>me</owner></lockinfo>",
        "<lockinfo xmlns='DAV:'><lockscope><shared/></lockscope><locktype><write/></locktype>\
         </lockinfo>",
        "<![CDATA[<propfind/>",
    ];
    bodies[rng.usize(..bodies.len())].to_string()
}

/// Draws a valid `POST`: operations of a service, or a storelet.
fn http_post(rng: &mut Rng) -> Vec<u8> {
    let bodies: [&[u8]; 8] = [
        b"add 5\n",
        b"{\"op\": \"read\", \"strict\": true}\nadd 1\n",
        b"read",
        b"after 7-1:2\nread\n",
        b"\n\n\n",
        b"\xff\xfe\n",
        b"\0asm\x01\0\0\0",
        b"",
    ];
    let paths = [
        "/services/hits/ops",
        "/services/hits/ops?strict=1",
        "/services/nobody/ops",
        "/.upcall/storelets?arg=a&arg=b&root=/a&cpu=1s",
        "/.upcall/storelets?storelet=wc",
        "/.upcall/storelets/install?name=wc&arg=a",
        "/.upcall/storelets?cpu=x&%zz",
        "/a",
    ];
    let mut body = bodies[rng.usize(..bodies.len())].repeat(rng.usize(1..4));
    if rng.u8(..20) == 0 {
        body = body.repeat(3000);
    }
    let mut text = format!("POST {} HTTP/1.1\r\n", paths[rng.usize(..paths.len())]);
    text += "Host: localhost\r\n";
    let cookies = ["7-1:2", "\"7-1:2\"", "", "7-1:99999999999999999999"];
    if rng.u8(..3) == 0 {
        text += &format!("Cookie: upcall-hits={}; other=1\r\n", cookies[rng.usize(..4)]);
    }
    let is_chunked = rng.bool();
    match is_chunked {
        true => text += "Transfer-Encoding: chunked\r\n\r\n",
        false => text += &format!("Content-Length: {}\r\n\r\n", body.len()),
    }
    let mut bytes = text.into_bytes();
    bytes.extend(if is_chunked { chunked(rng, &body) } else { body });
    bytes
}

/// Encodes a body in chunks.
pub(super) fn chunked(rng: &mut Rng, mut data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    while !data.is_empty() {
        let count = rng.usize(1..=data.len());
        let extension = if rng.u8(..5) == 0 { ";x=y" } else { "" };
        bytes.extend(format!("{count:x}{extension}\r\n").bytes());
        bytes.extend_from_slice(&data[..count]);
        bytes.extend(b"\r\n");
        data = &data[count..];
    }
    let trailer = if rng.u8(..5) == 0 { "T: u\r\n" } else { "" };
    bytes.extend(format!("0\r\n{trailer}\r\n").bytes());
    bytes
}
