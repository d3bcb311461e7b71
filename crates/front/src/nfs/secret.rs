//! Handles on the wire: those of trees, authenticated by the server.
//!
//! `version 1 | code 8 | handle of the tree`. The code (HMAC-SHA-256, shortened) keeps clients from
//! making handles of files that they were not shown: the kernel would open any file of the file
//! system.

use base::FileHandle;
use hmac::{Hmac, Mac as _};
use sha2::Sha256;
use wire::nfs::{HANDLE_MAX, Handle};

/// Version of this format.
const VERSION: u8 = 1;

/// Size of the authentication code, bytes.
const CODE_SIZE: usize = 8;

const _: () = assert!(1 + CODE_SIZE + base::FILE_HANDLE_MAX == HANDLE_MAX, "all of it is used");

/// A key of handles.
pub type Key = [u8; 32];

/// Returns the key of a tree, made from a secret.
pub fn key_of(secret: &Key, tree: &[u8]) -> Key {
    mac(secret, tree).finalize().into_bytes().into()
}

/// Returns the handle for clients.
pub fn seal(key: &Key, handle: &FileHandle) -> Handle {
    let mut bytes = vec![VERSION];
    bytes.extend(code(key, handle.as_bytes()));
    bytes.extend(handle.as_bytes());
    Handle::new(&bytes).expect("all of it fits")
}

/// Returns the handle of a tree; `None` if it was not made with this key.
pub(super) fn open(key: &Key, handle: &Handle) -> Option<FileHandle> {
    let (version, rest) = handle.as_bytes().split_first()?;
    let (found, bytes) = rest.split_first_chunk::<CODE_SIZE>()?;
    let is_ours = *version == VERSION && mac(key, bytes).verify_truncated_left(found).is_ok();
    FileHandle::from_bytes(bytes).filter(|_| is_ours)
}

fn code(key: &Key, bytes: &[u8]) -> [u8; CODE_SIZE] {
    *mac(key, bytes).finalize().into_bytes().first_chunk().expect("longer than a code")
}

fn mac(key: &Key, bytes: &[u8]) -> Hmac<Sha256> {
    let mut mac = <Hmac<Sha256> as hmac::Mac>::new_from_slice(key).expect("any size is a key");
    mac.update(bytes);
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_open_with_their_own_key_only() {
        let handle = FileHandle::new(b"inode 7").unwrap();
        let sealed = seal(&[1; 32], &handle);
        assert_eq!(open(&[1; 32], &sealed), Some(handle));
        assert_eq!(open(&[2; 32], &sealed), None);
        for index in 0..sealed.as_bytes().len() {
            let mut bytes = sealed.as_bytes().to_vec();
            bytes[index] ^= 1;
            assert_eq!(open(&[1; 32], &Handle::new(&bytes).unwrap()), None, "byte {index}");
        }
        assert_eq!(open(&[1; 32], &Handle::new(b"").unwrap()), None);
    }
}
