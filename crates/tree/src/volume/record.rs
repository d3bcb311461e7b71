//! Format of the file tree's records.
//!
//! Numbers in keys are big-endian, so that keys sort in the order of numbers; numbers in values
//! are little-endian. Lengths are bytes. A date is seconds since 1970 (8, signed) and nanoseconds
//! (4).
//!
//! ```text
//! table 256, settings
//!   key 0:  | version 4 | zero 4 | seed 8 | inodes_max 8 | bytes_max 8 |
//!   key 1:  | next inode 8 | inodes 8 | blocks 8 |
//!
//! table 257, inodes                                 key: | inode 8 |
//!   0      1       2      4       8     12    16     24       32         44         56
//!   | kind | flags | mode | links | uid | gid | size | blocks | accessed | modified | changed |
//!   68       76       84        92      96           100
//!   | device | parent | entries | attrs | generation | project, if it has one, 8 | target ...
//!
//! table 258, entries                                key: | directory 8 | cookie 8 |
//!   0       8      9
//!   | inode | kind | name ...
//!
//! table 259, extended attributes                    key: | inode 8 | cookie 8 |
//!   0             1
//!   | name length | name ... | value ...
//!
//! table 260, contents: raw objects by inode
//!
//! table 261, orphans                                key: | inode 8 |
//!   0     1
//!   | why | end 8 |
//!
//! table 262, quotas                                 key: | 0: a user, 1: a project | number 8 |
//!   0           8            16       24       32        40
//!   | bytes_max | inodes_max | blocks | inodes | counted | directory |
//! ```
//!
//! A *cookie* is a hash of the name ([`super::names`]). *Kind* is an index in [`Kind::ALL`].
//! *Flags*: bit 0, contents behind the end are still there, and must be cut before the file may
//! grow; bit 1, it has a project. *Blocks* are the volume's blocks of the contents. *Parent* and
//! *entries* are zero but for directories, *device* but for devices. *Target* is that of a symbolic
//! link, if it is short; longer ones are contents. *Generation* is zero: inode numbers are not
//! reused, and grow with the volume's age, so that no number of a lost inode is used again either.
//! *Why* is 0 if no name is left, 1 if contents behind the file's end are still there; there are
//! none behind *end*, bytes.
//!
//! *Version* is 1, or 2 once there was a quota: older programs do not maintain quotas. A *project*
//! is the set of files that count for the quota of one directory; its number is taken from *next
//! inode*. Files of a project whose quota was removed keep its number. *Blocks* and *inodes* of a
//! quota are those of files whose inode is below *counted*, for a project those with its number;
//! the limits are enforced once *counted* is the largest number, or the one before while files are
//! counted again.

use base::{Kind, Name, Time};
use store::Table;

/// Settings and counters of the volume.
pub(super) const SETTINGS: Table = Table(256);
/// Files of every kind.
pub(super) const INODES: Table = Table(257);
/// Names in directories.
pub(super) const ENTRIES: Table = Table(258);
/// Extended attributes.
pub(super) const ATTRS: Table = Table(259);
/// Contents of plain files.
pub(super) const DATA: Table = Table(260);
/// Inodes whose storage is to be freed.
pub(super) const ORPHANS: Table = Table(261);
/// Quotas of users and directories.
pub(super) const QUOTAS: Table = Table(262);

/// The inode of the root directory.
pub(super) const ROOT: u64 = 1;

/// Maximum size of a file, bytes: the largest in clients of the protocols.
pub(super) const SIZE_MAX: u64 = i64::MAX as u64;

/// Maximum length of the target of a symbolic link, bytes (Linux `PATH_MAX` without the NUL).
pub(super) const TARGET_MAX: usize = 4095;

/// Versions of this format: without quotas, and with quotas since there was one.
pub(super) const VERSIONS: [u32; 2] = [1, 2];

/// Key of [`Settings`].
pub(super) const SETTINGS_KEY: [u8; 1] = [0];
/// Key of [`Counters`].
pub(super) const COUNTERS_KEY: [u8; 1] = [1];

/// Size of an inode's record before the target, bytes.
const INODE_BYTES: usize = 100;
/// Bits of an inode's flags.
const TRIMMING: u8 = 1;
const PROJECT: u8 = 2;

/// Parameters of a new tree. The limits can be changed later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    /// Whether there ever was a quota.
    pub(super) quotas: bool,
    pub(super) seed: u64,
    pub(super) inodes_max: u64,
    pub(super) bytes_max: u64,
}

/// Counters of the volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    /// Number of the next new inode.
    pub(super) next: u64,
    /// Number of files of every kind, including those without a name.
    pub(super) inodes: u64,
    /// Number of blocks of contents.
    pub(super) blocks: u64,
}

/// The record of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Inode {
    pub(super) kind: Kind,
    /// Whether contents behind the end are still there.
    pub(super) trimming: bool,
    /// Permission bits, below `0o10000`.
    pub(super) mode: u32,
    /// Number of names; for a directory two and one for each subdirectory, as in Linux.
    pub(super) links: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Length of the contents, or of a link's target, bytes.
    pub(super) size: u64,
    /// Number of the volume's blocks of the contents.
    pub(super) blocks: u64,
    pub(super) accessed: Time,
    pub(super) modified: Time,
    pub(super) changed: Time,
    /// Device number of a device file.
    pub(super) special: u64,
    /// Parent of a directory.
    pub(super) parent: u64,
    /// Number of entries of a directory.
    pub(super) entries: u64,
    /// Number of extended attributes.
    pub(super) attrs: u32,
    pub(super) generation: u32,
    /// Project that it counts for; zero for none.
    pub(super) project: u64,
    /// Target of a link, if it is short.
    pub(super) target: Vec<u8>,
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) ino: u64,
    pub(super) kind: Kind,
    pub(super) name: Name,
}

/// An extended attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attr<'a> {
    pub(super) name: &'a [u8],
    pub(super) value: &'a [u8],
}

/// An inode whose storage is to be freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Orphan {
    pub(super) why: FreeReason,
    /// Offset behind which there are no contents, bytes.
    pub(super) end: u64,
}

/// Reason why an inode's storage is to be freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FreeReason {
    /// No name is left: all of it is freed after its last use.
    Nameless,
    /// Contents behind its end are still there.
    Trimming,
}

/// Holder of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Holder {
    /// Owner of files, by uid.
    User(u32),
    /// Number of a project: the files in one directory and beneath.
    Project(u64),
}

/// Limits and usage of a holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Quota {
    /// Maximum number of bytes of contents; `u64::MAX` for none.
    pub(super) bytes_max: u64,
    /// Maximum number of files of every kind; `u64::MAX` for none.
    pub(super) inodes_max: u64,
    /// Blocks and files in use, of inodes below `counted`.
    pub(super) blocks: u64,
    pub(super) inodes: u64,
    /// Inode below which all files have been counted; `u64::MAX` when all are, and the limits are
    /// enforced. For a project zero until all files have its number, or the largest number but one
    /// if the limits are enforced meanwhile.
    pub(super) counted: u64,
    /// Directory of a project; zero for a user.
    pub(super) directory: u64,
}

/// Returns a key of one number.
pub(super) fn key(ino: u64) -> [u8; 8] {
    ino.to_be_bytes()
}

/// Returns a key of two numbers.
pub(super) fn pair(ino: u64, cookie: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&ino.to_be_bytes());
    key[8..].copy_from_slice(&cookie.to_be_bytes());
    key
}

/// Returns the number of a key.
pub(super) fn of_key(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.try_into().ok()?))
}

/// Returns the two numbers of a key.
pub(super) fn of_pair(key: &[u8]) -> Option<(u64, u64)> {
    let (ino, cookie) = key.split_at_checked(8)?;
    Some((of_key(ino)?, of_key(cookie)?))
}

/// Decodes fields from the front of a record.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*field)
    }

    fn u8(&mut self) -> Option<u8> {
        self.bytes::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Option<u16> {
        self.bytes().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_le_bytes)
    }

    fn kind(&mut self) -> Option<Kind> {
        Kind::ALL.get(usize::from(self.u8()?)).copied()
    }

    fn time(&mut self) -> Option<Time> {
        let secs = self.bytes().map(i64::from_le_bytes)?;
        let nanos = self.u32().filter(|nanos| *nanos < 1_000_000_000)?;
        Some(Time { secs, nanos })
    }

    fn rest(self) -> &'a [u8] {
        self.0
    }

    fn end(self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

fn put_kind(kind: Kind, bytes: &mut Vec<u8>) {
    let place = Kind::ALL.iter().position(|known| *known == kind).expect("every kind is there");
    bytes.push(place as u8);
}

fn put_time(time: Time, bytes: &mut Vec<u8>) {
    bytes.extend(time.secs.to_le_bytes());
    bytes.extend(time.nanos.to_le_bytes());
}

impl Settings {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(32);
        bytes.extend(VERSIONS[usize::from(self.quotas)].to_le_bytes());
        bytes.extend([0; 4]);
        for number in [self.seed, self.inodes_max, self.bytes_max] {
            bytes.extend(number.to_le_bytes());
        }
        bytes
    }

    /// Decodes the settings; `None` also for an unknown version.
    pub(super) fn decode(bytes: &[u8]) -> Option<Settings> {
        let mut fields = Fields(bytes);
        let version = fields.u32()?;
        let quotas = VERSIONS.iter().position(|known| *known == version)? > 0;
        fields.u32().filter(|zero| *zero == 0)?;
        let (seed, inodes_max, bytes_max) = (fields.u64()?, fields.u64()?, fields.u64()?);
        fields.end().map(|()| Settings { quotas, seed, inodes_max, bytes_max })
    }
}

impl Counters {
    pub(super) fn encode(&self) -> Vec<u8> {
        [self.next, self.inodes, self.blocks].iter().flat_map(|n| n.to_le_bytes()).collect()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Counters> {
        let mut fields = Fields(bytes);
        let (next, inodes, blocks) = (fields.u64()?, fields.u64()?, fields.u64()?);
        fields.end().map(|()| Counters { next, inodes, blocks })
    }
}

impl Inode {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(INODE_BYTES + self.target.len());
        put_kind(self.kind, &mut bytes);
        let trimming = if self.trimming { TRIMMING } else { 0 };
        bytes.push(trimming | if self.project > 0 { PROJECT } else { 0 });
        bytes.extend((self.mode as u16).to_le_bytes());
        for number in [self.links, self.uid, self.gid] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(self.size.to_le_bytes());
        bytes.extend(self.blocks.to_le_bytes());
        for time in [self.accessed, self.modified, self.changed] {
            put_time(time, &mut bytes);
        }
        for number in [self.special, self.parent, self.entries] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(self.attrs.to_le_bytes());
        bytes.extend(self.generation.to_le_bytes());
        if self.project > 0 {
            bytes.extend(self.project.to_le_bytes());
        }
        bytes.extend(&self.target);
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Inode> {
        let mut fields = Fields(bytes);
        let kind = fields.kind()?;
        let flags = fields.u8().filter(|flags| flags & !(TRIMMING | PROJECT) == 0)?;
        Some(Inode {
            kind,
            trimming: flags & TRIMMING > 0,
            mode: fields.u16().filter(|mode| *mode < 0o10000)?.into(),
            links: fields.u32()?,
            uid: fields.u32()?,
            gid: fields.u32()?,
            size: fields.u64().filter(|size| i64::try_from(*size).is_ok())?,
            blocks: fields.u64()?,
            accessed: fields.time()?,
            modified: fields.time()?,
            changed: fields.time()?,
            special: fields.u64()?,
            parent: fields.u64()?,
            entries: fields.u64()?,
            attrs: fields.u32()?,
            generation: fields.u32()?,
            project: match flags & PROJECT {
                0 => 0,
                _set => fields.u64().filter(|project| *project > 0)?,
            },
            target: fields.rest().to_vec(),
        })
    }

    pub(super) fn is_directory(&self) -> bool {
        self.kind == Kind::Directory
    }
}

impl Entry {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(9 + self.name.as_bytes().len());
        bytes.extend(self.ino.to_le_bytes());
        put_kind(self.kind, &mut bytes);
        bytes.extend(self.name.as_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Entry> {
        let mut fields = Fields(bytes);
        let (ino, kind) = (fields.u64()?, fields.kind()?);
        let name = Name::new(fields.rest()).ok().filter(Name::plain)?;
        Some(Entry { ino, kind, name })
    }

    /// Returns the name in an entry's record, without checking the rest.
    pub(super) fn name_of(bytes: &[u8]) -> &[u8] {
        bytes.get(9..).unwrap_or_default()
    }
}

impl<'a> Attr<'a> {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(1 + self.name.len() + self.value.len());
        bytes.push(self.name.len() as u8);
        bytes.extend(self.name);
        bytes.extend(self.value);
        bytes
    }

    pub(super) fn decode(bytes: &'a [u8]) -> Option<Attr<'a>> {
        let mut fields = Fields(bytes);
        let length = usize::from(fields.u8()?);
        let (name, value) = fields.rest().split_at_checked(length)?;
        (!name.is_empty()).then_some(Attr { name, value })
    }
}

impl Orphan {
    pub(super) fn encode(self) -> Vec<u8> {
        let why = match self.why {
            FreeReason::Nameless => 0,
            FreeReason::Trimming => 1,
        };
        std::iter::once(why).chain(self.end.to_le_bytes()).collect()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Orphan> {
        let mut fields = Fields(bytes);
        let why = match fields.u8()? {
            0 => FreeReason::Nameless,
            1 => FreeReason::Trimming,
            _unknown => return None,
        };
        let end = fields.u64()?;
        fields.end().map(|()| Orphan { why, end })
    }
}

impl Holder {
    pub(super) fn key(self) -> [u8; 9] {
        let (kind, number) = match self {
            Holder::User(uid) => (0, uid.into()),
            Holder::Project(project) => (1, project),
        };
        let mut bytes = [kind; 9];
        bytes[1..].copy_from_slice(&key(number));
        bytes
    }

    pub(super) fn of_key(bytes: &[u8]) -> Option<Holder> {
        let (kind, number) = bytes.split_first()?;
        let number = of_key(number)?;
        match kind {
            0 => u32::try_from(number).ok().map(Holder::User),
            // Zero is no project.
            1 => (number > 0).then_some(Holder::Project(number)),
            _unknown => None,
        }
    }
}

impl Quota {
    pub(super) fn encode(&self) -> Vec<u8> {
        let Quota { bytes_max, inodes_max, blocks, inodes, counted, directory } = *self;
        let numbers = [bytes_max, inodes_max, blocks, inodes, counted, directory];
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Quota> {
        let mut fields = Fields(bytes);
        let quota = Quota {
            bytes_max: fields.u64()?,
            inodes_max: fields.u64()?,
            blocks: fields.u64()?,
            inodes: fields.u64()?,
            counted: fields.u64()?,
            directory: fields.u64()?,
        };
        fields.end().map(|()| quota)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use std::fmt::Write as _;

    fn inode() -> Inode {
        Inode {
            kind: Kind::Symlink,
            trimming: true,
            mode: 0o6755,
            links: 3,
            uid: 0x0102_0304,
            gid: 7,
            size: 0x1122_3344_5566,
            blocks: 9,
            accessed: Time { secs: -1, nanos: 999_999_999 },
            modified: Time::from_secs(2),
            changed: Time { secs: 3, nanos: 4 },
            special: 0x0801,
            parent: 5,
            entries: 6,
            attrs: 8,
            generation: 0,
            project: 0,
            target: b"to".to_vec(),
        }
    }

    fn quota() -> Quota {
        Quota { bytes_max: 1, inodes_max: 2, blocks: 3, inodes: 4, counted: 5, directory: 6 }
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.chunks(16).fold(String::new(), |mut text, line| {
            line.iter().for_each(|byte| write!(text, "{byte:02x}").unwrap());
            text + "\n"
        })
    }

    fn entry() -> Entry {
        Entry { ino: 0x0102, kind: Kind::Directory, name: Name::new(b"name").unwrap() }
    }

    #[test]
    fn the_bytes_on_the_disk_stay_the_same() {
        let settings =
            Settings { quotas: false, seed: 0x0102_0304_0506_0708, inodes_max: 9, bytes_max: 10 };
        let counters = Counters { next: 2, inodes: 1, blocks: 0x0100 };
        let mut text = String::new();
        for bytes in [
            settings.encode(),
            counters.encode(),
            inode().encode(),
            Inode { project: 0x0304, ..inode() }.encode(),
            entry().encode(),
            Attr { name: b"user.a", value: b"v" }.encode(),
            Orphan { why: FreeReason::Trimming, end: 0x0102 }.encode(),
            Holder::User(0x0102).key().to_vec(),
            Holder::Project(0x0304).key().to_vec(),
            quota().encode(),
            pair(1, 0x0203).to_vec(),
        ] {
            text += &hex(&bytes);
            text += "\n";
        }
        expect![[r#"
            01000000000000000807060504030201
            09000000000000000a00000000000000

            02000000000000000100000000000000
            0001000000000000

            0201ed0d030000000403020107000000
            66554433221100000900000000000000
            ffffffffffffffffffc99a3b02000000
            00000000000000000300000000000000
            04000000010800000000000005000000
            00000000060000000000000008000000
            00000000746f

            0203ed0d030000000403020107000000
            66554433221100000900000000000000
            ffffffffffffffffffc99a3b02000000
            00000000000000000300000000000000
            04000000010800000000000005000000
            00000000060000000000000008000000
            000000000403000000000000746f

            0201000000000000016e616d65

            06757365722e6176

            010201000000000000

            000000000000000102

            010000000000000304

            01000000000000000200000000000000
            03000000000000000400000000000000
            05000000000000000600000000000000

            00000000000000010000000000000203

        "#]]
        .assert_eq(&text);
    }

    #[test]
    fn records_round_trip_and_invalid_bytes_are_refused() {
        assert_eq!(Inode::decode(&inode().encode()), Some(inode()));
        assert_eq!(Entry::decode(&entry().encode()), Some(entry()));
        let of_project = Inode { project: 9, ..inode() };
        assert_eq!(Inode::decode(&of_project.encode()), Some(of_project));
        assert_eq!(Quota::decode(&quota().encode()), Some(quota()));
        for holder in [Holder::User(7), Holder::Project(u64::MAX)] {
            assert_eq!(Holder::of_key(&holder.key()), Some(holder));
        }
        let attr = Attr { name: b"user.a", value: b"" };
        assert_eq!(Attr::decode(&attr.encode()), Some(attr));
        assert_eq!(of_pair(&pair(3, 4)), Some((3, 4)));
        assert_eq!(of_pair(&key(3)), None);
        for why in [FreeReason::Nameless, FreeReason::Trimming] {
            let orphan = Orphan { why, end: 5 };
            assert_eq!(Orphan::decode(&orphan.encode()), Some(orphan));
        }
        let with = |at: usize, byte: u8| {
            let mut bytes = inode().encode();
            bytes[at] = byte;
            Inode::decode(&bytes)
        };
        // Invalid kinds, flags, modes, sizes and timestamps.
        for (at, byte) in [(0, 7), (1, 4), (3, 0x10), (23, 0x80), (43, 0xff)] {
            assert_eq!(with(at, byte), None, "{at}");
        }
        assert_eq!(Entry::decode(&entry().encode()[..9]), None);
        assert_eq!(Attr::decode(&[0]), None);
        // An invalid user, no project, and an unknown kind.
        for key in [[0, 0, 0, 0, 1, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0, 0, 0], [2; 9]] {
            assert_eq!(Holder::of_key(&key), None);
        }
        assert_eq!(Orphan::decode(&[2, 0, 0, 0, 0, 0, 0, 0, 0]), None);
    }

    #[test]
    fn no_bytes_make_a_decoder_panic() {
        let mut rng = base::rng::seeded(5);
        for _ in 0..20_000 {
            let mut bytes = inode().encode();
            bytes.truncate(rng.usize(..=bytes.len()));
            for _ in 0..rng.usize(..4) {
                let at = rng.usize(..bytes.len().max(1));
                bytes.get_mut(at).into_iter().for_each(|byte| *byte = rng.u8(..));
            }
            if let Some(read) = Inode::decode(&bytes) {
                assert_eq!(read.encode(), bytes);
            }
            Entry::decode(&bytes);
            Entry::name_of(&bytes);
            Attr::decode(&bytes);
            Settings::decode(&bytes);
            Counters::decode(&bytes);
            Orphan::decode(&bytes);
            Quota::decode(&bytes);
            Holder::of_key(&bytes);
            of_pair(&bytes);
        }
    }
}
