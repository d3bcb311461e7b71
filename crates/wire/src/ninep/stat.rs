//! The directory entry of 9P2000 (stat(5)): attributes with user names as strings.

use super::codec::{DecodeError, Field, Qid, Reader};

/// The attributes in an `Rstat`, in the data of a directory, and in a `Twstat`.
///
/// In a `Twstat`, a number of all ones and an empty string mean "leave unchanged".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stat<'a> {
    /// For the server's use.
    pub kind: u16,
    /// For the server's use.
    pub dev: u32,
    /// Qid of the file.
    pub qid: Qid,
    /// Permission bits, and [`Stat::DIR`].
    pub mode: u32,
    /// Time of the last read, seconds since 1970.
    pub atime: u32,
    /// Time of the last change, seconds since 1970.
    pub mtime: u32,
    /// Length, bytes; zero for a directory.
    pub length: u64,
    /// Last component of the path.
    pub name: &'a [u8],
    /// Owner.
    pub uid: &'a [u8],
    /// Group.
    pub gid: &'a [u8],
    /// User of the last change.
    pub muid: &'a [u8],
}

impl Stat<'_> {
    /// The mode bit of a directory.
    pub const DIR: u32 = 0x8000_0000;

    /// Returns the stat of a `Twstat` that changes nothing; set the fields to change.
    pub fn unchanged() -> Stat<'static> {
        Stat {
            kind: !0,
            dev: !0,
            qid: Qid { kind: !0, version: !0, path: !0 },
            mode: !0,
            atime: !0,
            mtime: !0,
            length: !0,
            ..Stat::default()
        }
    }

    /// Appends the entry as in the data of a directory: without the outer count.
    pub fn put_entry(&self, out: &mut Vec<u8>) {
        let start = out.len();
        0u16.put(out);
        self.kind.put(out);
        self.dev.put(out);
        self.qid.put(out);
        self.mode.put(out);
        self.atime.put(out);
        self.mtime.put(out);
        self.length.put(out);
        for text in [self.name, self.uid, self.gid, self.muid] {
            Field::put(&&text[..text.len().min(4096)], out);
        }
        let size = u16::try_from(out.len() - start - 2).expect("four strings of at most 4 KiB");
        out[start..start + 2].copy_from_slice(&size.to_le_bytes());
    }
}

impl<'a> Stat<'a> {
    /// Decodes the first entry of the data of a directory.
    ///
    /// # Errors
    /// If an entry is truncated or longer than its size field.
    pub fn get_entry(reader: &mut Reader<'a>) -> Result<Stat<'a>, DecodeError> {
        let size: u16 = reader.get()?;
        let mut body = Reader::new(reader.take(size.into())?);
        let stat = Stat {
            kind: body.get()?,
            dev: body.get()?,
            qid: body.get()?,
            mode: body.get()?,
            atime: body.get()?,
            mtime: body.get()?,
            length: body.get()?,
            name: body.get()?,
            uid: body.get()?,
            gid: body.get()?,
            muid: body.get()?,
        };
        body.end()?;
        Ok(stat)
    }
}

/// In a message, one more count of all its bytes precedes the stat.
impl<'a> Field<'a> for Stat<'a> {
    fn get(reader: &mut Reader<'a>) -> Result<Stat<'a>, DecodeError> {
        let size: u16 = reader.get()?;
        let mut body = Reader::new(reader.take(size.into())?);
        let stat = Stat::get_entry(&mut body)?;
        body.end()?;
        Ok(stat)
    }

    fn put(&self, out: &mut Vec<u8>) {
        let start = out.len();
        0u16.put(out);
        self.put_entry(out);
        let size = u16::try_from(out.len() - start - 2).expect("four strings of at most 4 KiB");
        out[start..start + 2].copy_from_slice(&size.to_le_bytes());
    }
}
