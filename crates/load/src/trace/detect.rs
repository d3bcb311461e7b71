//! Format detection by the start of a file, and otherwise by its name.

use super::error::shown;
use super::{Error, Format};
use super::{blkparse, blktrace, hfplayer, iolog, mqsim, msr, recording, run, spc, vscsi};
use std::path::Path;

/// Magic numbers of compressed files, with the tools to decompress them.
const PACKED: [(&[u8], &str); 4] = [
    (b"\x1f\x8b", "zcat"),
    (b"\x28\xb5\x2f\xfd", "zstdcat"),
    (b"\xfd7zXZ", "xzcat"),
    (b"BZh", "bzcat"),
];

/// File name patterns of formats whose contents are mostly ambiguous.
const NAMED: [(&str, Format); 8] = [
    (".blktrace.", Format::BlktraceBinary),
    (".blkparse", Format::BlkparseText),
    (".spc", Format::Spc),
    (".vscsi", Format::Vscsi),
    (".hfplayer", Format::Hfplayer),
    (".mqsim", Format::Mqsim),
    (".msr", Format::Msr),
    (".recording", Format::Recording),
];

/// Detects the format of a file from its start, `head` (some kilobytes or all), and its path.
pub fn detect(head: &[u8], path: &Path) -> Result<Format, Error> {
    if let Some(format) = Format::ALL.into_iter().find(|format| fits(*format, head)) {
        return Ok(format);
    }
    let file = path.display().to_string();
    let packed = PACKED.into_iter().find(|(magic, _)| head.starts_with(magic));
    if let Some((_, tool)) = packed {
        let found = format!("the file is compressed; decompress it with `{tool}` first");
        return Err(Error::Unknown { file, found });
    }
    let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase());
    let name = name.unwrap_or_default();
    match NAMED.into_iter().find(|(part, _)| name.contains(part)) {
        Some((_, format)) if !head.is_empty() => Ok(format),
        Some(_) | None if head.is_empty() => {
            Err(Error::Unknown { file, found: "the file is empty".to_string() })
        }
        Some(_) | None => {
            let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
            let found = format!("no known format begins with {}", shown(line));
            Err(Error::Unknown { file, found })
        }
    }
}

fn fits(format: Format, head: &[u8]) -> bool {
    match format {
        Format::BlktraceBinary => blktrace::fits(head),
        Format::BlkparseText => first_lines(head, blkparse::fits),
        Format::Iolog2 => head.starts_with(iolog::VERSION_2),
        Format::Iolog3 => head.starts_with(iolog::VERSION_3),
        Format::Msr => first_lines(head, msr::fits),
        Format::Spc => first_lines(head, spc::fits),
        Format::Vscsi => vscsi::fits(head),
        Format::Mqsim => first_lines(head, mqsim::fits),
        Format::Hfplayer => first_lines(head, hfplayer::fits),
        Format::Recording => recording::fits(head),
        Format::Run => run::fits(head),
    }
}

/// Reports whether one of the first two nonblank lines has a format; the other may be a heading.
fn first_lines(head: &[u8], fits: impl Fn(&[u8]) -> bool) -> bool {
    let lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    lines.filter(|line| !line.is_empty()).take(2).any(fits)
}
