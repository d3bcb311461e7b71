use super::*;
use std::time::Duration;

fn message(opcode: u32, body: &[u8]) -> Vec<u8> {
    let size = u32::try_from(IN_HEADER_SIZE + body.len()).expect("small");
    let mut bytes = size.to_ne_bytes().to_vec();
    bytes.extend(opcode.to_ne_bytes());
    bytes.extend(7_u64.to_ne_bytes());
    bytes.extend(3_u64.to_ne_bytes());
    for field in [1000_u32, 100, 4242, 0] {
        bytes.extend(field.to_ne_bytes());
    }
    bytes.extend(body);
    bytes
}

fn words(list: &[u32]) -> Vec<u8> {
    list.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn longs(list: &[u64]) -> Vec<u8> {
    list.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

#[test]
fn names_end_at_their_nul() {
    let bytes = message(6, b"link\0../target\0");
    let (header, request) = decode(&bytes).unwrap();
    assert_eq!((header.node, header.uid, header.pid, header.unique), (3, 1000, 4242, 7));
    assert_eq!(request, Request::Symlink { name: b"link", target: b"../target" });
    assert_eq!(decode(&message(1, b"endless")), Err(DecodeError::Name));
}

#[test]
fn writes_carry_their_data() {
    let mut body = longs(&[5, 8192]);
    body.extend(words(&[3, 1, 0, 0, 0, 0]));
    body.extend(b"abc");
    let bytes = message(16, &body);
    let wanted = Request::Write { handle: 5, offset: 8192, flags: 1, data: b"abc" };
    assert_eq!(decode(&bytes).unwrap().1, wanted);
    body.pop();
    assert_eq!(decode(&message(16, &body)), Err(DecodeError::Short));
}

#[test]
fn a_false_count_of_forgets_is_refused() {
    let mut body = words(&[2, 0]);
    body.extend(longs(&[10, 1, 11, 4]));
    let wanted = Request::BatchForget { nodes: vec![(10, 1), (11, 4)] };
    assert_eq!(decode(&message(42, &body)).unwrap().1, wanted);
    body[0] = 200;
    assert_eq!(decode(&message(42, &body)), Err(DecodeError::Short));
}

#[test]
fn locks_are_decoded_by_their_opcode() {
    let mut body = longs(&[5, 77, 0, 9]);
    body.extend(words(&[1, 4242, 1, 0]));
    let lock = FileLock { start: 0, end: 9, kind: 1, pid: 4242 };
    let get = Request::GetLock { handle: 5, owner: 77, lock };
    assert_eq!(decode(&message(31, &body)).unwrap().1, get);
    let set = Request::SetLock { handle: 5, owner: 77, lock, flock: true, wait: true };
    assert_eq!(decode(&message(33, &body)).unwrap().1, set);
}

#[test]
fn every_prefix_of_every_request_decodes_or_is_an_error() {
    for opcode in 0..60 {
        let body: Vec<u8> = (0..120_u8).collect();
        for size in 0..body.len() {
            // No panic; the outcome depends on the opcode.
            let _ = decode(&message(opcode, &body[..size]));
        }
    }
    assert_eq!(decode(&[1, 0]), Err(DecodeError::Short));
    assert_eq!(decode(&message(1, b"x\0")[..41]), Err(DecodeError::Size));
}

#[test]
fn init_has_a_second_word_if_announced() {
    let low = u32::try_from(init::INIT_EXT | init::ASYNC_READ).unwrap();
    let bytes = message(26, &words(&[7, 45, 131_072, low, 16, 0]));
    let flags = init::INIT_EXT | init::ASYNC_READ | init::DIRECT_IO_ALLOW_MMAP;
    let wanted = Request::Init { major: 7, minor: 45, max_readahead: 131_072, flags };
    assert_eq!(decode(&bytes).unwrap().1, wanted);
    let reply = InitReply {
        minor: 38,
        max_readahead: 0,
        flags,
        max_background: 64,
        max_write: 4096,
        max_pages: 1,
    };
    let bytes = reply.encode();
    assert_eq!(bytes.len(), 64);
    assert_eq!(bytes[12..16], low.to_ne_bytes());
    assert_eq!(bytes[32..36], 16_u32.to_ne_bytes());
}

#[test]
fn replies_have_the_sizes_of_the_kernel() {
    let attributes = Attributes { ino: 1, mode: 0o100_644, ..Attributes::default() };
    let second = Duration::from_secs(1);
    assert_eq!(attr_reply(second, &attributes).len(), 104);
    let entry = Entry { node: 2, name_valid: second, attr_valid: second, attributes };
    assert_eq!(entry_reply(&entry).len(), 128);
    assert_eq!(open_reply(1, 0).len(), 16);
    assert_eq!(statfs_reply(&StatFs::default()).len(), 80);
    assert_eq!(inval_inode(9, false).len(), 40);
    assert_eq!(expire_entry(9, b"name").len(), 37);
    assert_eq!(error(7, 2)[4..8], (-2_i32).to_ne_bytes());
    assert_eq!(header(7, 3)[..4], 19_u32.to_ne_bytes());
}

#[test]
fn entries_of_directories_stay_within_their_room() {
    let mut out = Vec::new();
    assert!(put_dirent((1, 10, 4, b"directory"), 64, &mut out));
    assert_eq!(out.len(), 40);
    assert!(!put_dirent((2, 11, 8, b"x"), 64, &mut out));
    assert_eq!(out.len(), 40);
    let entry = Entry { node: 2, ..Entry::default() };
    assert!(!put_dirent_plus(&entry, (2, 11, 8, b"x"), 190, &mut out));
    assert_eq!(out.len(), 40);
    assert!(put_dirent_plus(&entry, (2, 11, 8, b"x"), 200, &mut out));
    assert_eq!(out.len(), 200);
}
