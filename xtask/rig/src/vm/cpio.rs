//! Archive in the kernel's initramfs format (cpio, "newc").

/// An archive under construction. Paths have no leading slash; parents come first.
#[derive(Default)]
pub(crate) struct Cpio {
    bytes: Vec<u8>,
    inode: u32,
}

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const CHARACTER: u32 = 0o020_600;

impl Cpio {
    /// Adds a directory.
    pub(crate) fn directory(&mut self, path: &str) {
        self.entry(path, DIRECTORY, (0, 0), &[]);
    }

    /// Adds an executable file.
    pub(crate) fn file(&mut self, path: &str, bytes: &[u8]) {
        self.entry(path, PROGRAM, (0, 0), bytes);
    }

    /// Adds a character device.
    pub(crate) fn device(&mut self, path: &str, major: u32, minor: u32) {
        self.entry(path, CHARACTER, (major, minor), &[]);
    }

    /// Returns the finished archive.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, device: (u32, u32), bytes: &[u8]) {
        self.inode += 1;
        let size = u32::try_from(bytes.len()).expect("files of an initramfs are small");
        let name = u32::try_from(path.len() + 1).expect("paths are short");
        // inode mode uid gid nlink mtime size devmajor devminor rdevmajor rdevminor name check
        let fields = [self.inode, mode, 0, 0, 1, 0, size, 0, 0, device.0, device.1, name, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend_from_slice(bytes);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}
