//! Bounded reading of files named on the command line: a device or a pipe may be endless.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Maximum size of a configuration, names file or workload file, bytes.
pub(crate) const TEXT_MAX: u64 = 4 << 20;

/// Reads a file of at most `max` bytes.
///
/// # Errors
/// Those of `open(2)` and `read(2)`; `FileTooLarge` if the file is larger.
pub(crate) fn read(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        let text = format!("file exceeds {max} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    Ok(bytes)
}

/// Reads a text of at most [`TEXT_MAX`] bytes.
///
/// # Errors
/// As [`read`]; `InvalidData` if it is not UTF-8.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    String::from_utf8(read(path, TEXT_MAX)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "file is not UTF-8 text"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

    use super::{TEXT_MAX, read, read_text};
    use std::io::ErrorKind;
    use std::path::Path;

    #[test]
    fn a_file_without_an_end_is_refused() {
        let endless = Path::new("/dev/zero");
        assert_eq!(read(endless, 1000).unwrap_err().kind(), ErrorKind::FileTooLarge);
        let error = read_text(endless).unwrap_err();
        assert_eq!(error.to_string(), format!("file exceeds {TEXT_MAX} bytes"));
    }

    #[test]
    fn a_file_of_the_largest_size_is_read() {
        let path = std::env::temp_dir().join(format!("upcall-bounded-{}", std::process::id()));
        std::fs::write(&path, b"four").unwrap();
        assert_eq!(read(&path, 4).unwrap(), b"four");
        assert_eq!(read(&path, 3).unwrap_err().kind(), ErrorKind::FileTooLarge);
        std::fs::write(&path, b"\xff").unwrap();
        assert_eq!(read_text(&path).unwrap_err().kind(), ErrorKind::InvalidData);
        std::fs::remove_file(path).unwrap();
    }
}
