use super::*;
use load::trace::{Format, Options, Reader};
use std::sync::Arc;

/// A path of the test's own, removed at the end.
struct TempPath(PathBuf);

impl TempPath {
    fn new(name: &str) -> TempPath {
        let path = std::env::temp_dir().join(format!("upcall-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        TempPath(path)
    }

    /// Returns its I/Os: time, name and offset of each.
    fn read(&self) -> Vec<(u64, String, u64)> {
        let format = Some(Format::Recording);
        let mut reader = Reader::open(&self.0, format, Options::default()).unwrap();
        let mut all = Vec::new();
        while let Some(record) = reader.next() {
            let Traced { at_ns, io, .. } = record.unwrap();
            all.push((at_ns, reader.names()[io.file as usize].clone(), io.offset));
        }
        assert_eq!(reader.notes(), load::trace::Notes::default());
        all
    }
}

impl Drop for TempPath {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn recorded(at: u64, file: u32, offset: u64) -> Recorded {
    let (at, until, path) = (Instant(at), Instant(at + 5), Arc::from(format!("/{file}")));
    Recorded { at, until, act: Act::Read, file, path, offset, len: 1, stream: 2 }
}

#[test]
fn a_recording_is_begun_and_gone_on_with_where_it_is_whole() {
    let place = TempPath::new("record-twice");
    let begin =
        |secs| Recording::begin(Sheet::open(&place.0).unwrap(), Time::from_secs(secs)).unwrap();
    let first = begin(10);
    assert_eq!(first.keep(vec![recorded(100, 7, 1), recorded(200, 8, 2)]), Kept::Taken);
    assert_eq!(first.keep(vec![recorded(300, 7, 3)]), Kept::Taken);
    let text = first.end(Tally { taken: 3, lost: 4 });
    assert!(text.starts_with("upcall: recorded 3 I/Os into "), "{text}");
    assert!(text.contains(", 4 left out"), "{text}");
    let mut file = OpenOptions::new().append(true).open(&place.0).unwrap();
    file.write_all(b"the server was killed here").unwrap();
    let second = begin(11);
    assert_eq!(second.keep(vec![recorded(100, 0, 4)]), Kept::Taken);
    assert!(!second.end(Tally::default()).contains("left out"));
    let name = |number: u32| format!("/{number}");
    let all = [(0, name(7), 1), (100, name(8), 2), (200, name(7), 3), (1_000_000_000, name(0), 4)];
    assert_eq!(place.read(), all);
}

#[test]
fn other_files_are_not_overwritten_and_recordings_are_locked() {
    let place = TempPath::new("record-refused");
    std::fs::write(&place.0, "precious").unwrap();
    let error = Sheet::open(&place.0).unwrap_err();
    assert!(error.contains("is no recording"), "{error}");
    assert_eq!(std::fs::read(&place.0).unwrap(), b"precious");
    assert!(Sheet::open(Path::new("/dev/null")).unwrap_err().contains("is no recording"));
    assert!(Sheet::open(Path::new("/no/such/dir/f")).unwrap_err().contains("cannot record"));
    std::fs::write(&place.0, &HEADER[..30]).unwrap();
    let sheet = Sheet::open(&place.0).unwrap();
    assert_eq!(sheet.len, 0);
    assert!(Sheet::open(&place.0).unwrap_err().contains("another process records"));
}

#[test]
fn a_disk_that_fails_ends_the_recording_and_nothing_else() {
    let place = TempPath::new("record-fails");
    let mut sheet = Sheet::open(&place.0).unwrap();
    sheet.file = File::open(&place.0).unwrap();
    let recording = Recording::begin(sheet, Time::from_secs(1)).unwrap();
    while recording.keep(vec![recorded(1, 1, 1)]) != Kept::Ended {
        std::thread::yield_now();
    }
    let text = recording.end(Tally::default());
    assert!(text.starts_with("upcall: recorded 0 I/Os into "), "{text}");
    assert!(text.contains(", then: Bad file descriptor"), "{text}");
}

#[test]
fn names_are_written_anew_before_they_are_too_many_to_remember() {
    let place = TempPath::new("record-names");
    let recording = Recording::begin(Sheet::open(&place.0).unwrap(), Time::from_secs(1)).unwrap();
    let count = NAMES_MAX as u64 + 2;
    let all = (0..count).map(|at| recorded(at, u32::try_from(at).unwrap(), at)).collect();
    assert_eq!(recording.keep(all), Kept::Taken);
    assert_eq!(recording.keep(vec![recorded(count, 0, 1)]), Kept::Taken);
    recording.end(Tally::default());
    let read = place.read();
    assert_eq!(read.len() as u64, count + 1);
    assert_eq!(read.last(), Some(&(count, "/0".to_string(), 1)));
}
