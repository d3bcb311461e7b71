//! Requests for one file that overlap in time, compared with every serial order of them.

use super::*;
use base::rng::{Rng, seeded};
use base::serial::{self, Call, Edit, Fate};

/// Groups of requests in one run.
const GROUPS: u64 = 3000;

/// A pending request with its start time.
struct Begun {
    id: RequestId,
    edit: Edit,
    at: u64,
}

/// A file that is open in every mode, and requests for it that overlap.
struct Bench {
    lab: Lab,
    rng: Rng,
    begun: Vec<Begun>,
    calls: Vec<Call>,
    /// Next byte to write: neighbouring writes differ.
    salt: u8,
}

impl Bench {
    fn new(seed: u64) -> Bench {
        let (begun, calls) = (Vec::new(), Vec::new());
        Bench { lab: Lab::new(), rng: seeded(seed), begun, calls, salt: 0 }
    }

    fn data(&mut self) -> Vec<u8> {
        let most = [16, 5_000, 60_000, 110_000][self.rng.usize(..4)];
        self.salt = self.salt.wrapping_add(1);
        let count = self.rng.usize(1..=most);
        (0..count).map(|at| self.salt ^ (at >> 4) as u8).collect()
    }

    fn edit(&mut self) -> Edit {
        match self.rng.u8(..9) {
            0..4 => Edit::Append(self.data()),
            4 | 5 => Edit::Write(self.rng.u64(..150_000), self.data()),
            6 => Edit::Resize(self.rng.u64(..150_000)),
            7 => Edit::ReadAt(self.rng.u64(..150_000), self.rng.usize(..100_000), Vec::new()),
            _ => Edit::Resize(0),
        }
    }

    /// Starts a request for the file, which is open to append and to write.
    fn begin(&mut self, node: NodeId, append: OpenId, write: OpenId) {
        let (edit, at) = (self.edit(), self.lab.now);
        let ask = match &edit {
            Edit::Append(data) => {
                Ask::Write { open: append, offset: 0, data: Buf::from(data.clone()) }
            }
            Edit::Write(offset, data) => {
                Ask::Write { open: write, offset: *offset, data: Buf::from(data.clone()) }
            }
            Edit::Resize(size) => {
                let set = SetStat { size: Some(*size), ..SetStat::default() };
                Ask::SetStat { node, open: None, set }
            }
            Edit::ReadAt(offset, count, _) => {
                let count = u32::try_from(*count).unwrap();
                Ask::Read { open: write, offset: *offset, count, headroom: 0 }
            }
            Edit::Read(_) => unreachable!("reads of all are not drawn"),
        };
        let id = self.lab.begin(ask);
        self.begun.push(Begun { id, edit, at });
    }

    /// Takes the replies so far.
    fn collect(&mut self) {
        let end = self.lab.now;
        for begun in mem::take(&mut self.begun) {
            let Some(reply) = self.lab.answered(begun.id) else {
                self.begun.push(begun);
                continue;
            };
            let mut edit = begun.edit;
            let fate = match (reply, &mut edit) {
                (Ok(Reply::Written(count)), Edit::Append(data) | Edit::Write(_, data)) => {
                    data.truncate(count as usize);
                    Fate::Done
                }
                (Ok(Reply::Done), Edit::Resize(_)) => Fate::Done,
                (Ok(Reply::Data(data)), Edit::ReadAt(.., seen)) => {
                    *seen = data.to_vec();
                    Fate::Done
                }
                (Ok(Reply::Pieces(pieces)), Edit::ReadAt(.., seen)) => {
                    *seen = pieces.iter().flat_map(|piece| piece.to_vec()).collect();
                    Fate::Done
                }
                (Err(Error::Cancelled), Edit::ReadAt(..)) => continue,
                (Err(Error::Cancelled), _) => Fate::Unknown,
                (other, edit) => panic!("{edit:?}: {other:?}"),
            };
            self.calls.push(Call { edit, fate, span: (begun.at, end) });
        }
    }

    /// Performs a random operation, or cancels a random request.
    fn happen(&mut self) {
        if self.rng.u8(..16) == 0 && !self.begun.is_empty() {
            let at = self.rng.usize(..self.begun.len());
            let id = self.begun[at].id;
            self.lab.input(Input::Cancel(id));
        } else if self.lab.ops.is_empty() {
            let counts = self.lab.volume.counts();
            assert!(self.lab.tick(), "nothing is going to answer: {counts:?}");
        } else {
            let at = self.rng.usize(..self.lab.ops.len());
            self.lab.ops.swap(0, at);
            self.lab.operate();
        }
        self.collect();
    }

    /// Runs one group: requests that overlap, then a comparison of the file with every order.
    fn group(&mut self, before: Vec<u8>) -> Vec<u8> {
        let node = self.lab.walk("/f").unwrap();
        let append = self.lab.open_node(node, APPEND).unwrap();
        let write = self.lab.open_node(node, WRITE).unwrap();
        let mut left = self.rng.usize(2..6);
        while left > 0 || !self.begun.is_empty() {
            if left > 0 && (self.begun.is_empty() || self.rng.bool()) {
                left -= 1;
                self.begin(node, append, write);
                self.collect();
            } else {
                self.happen();
            }
        }
        self.lab.close(append);
        self.lab.close(write);
        self.lab.release(node);
        let (after, calls) = (self.lab.read("/f").unwrap(), mem::take(&mut self.calls));
        if serial::explain(&before, &calls, &after).is_none() {
            let spans: Vec<String> = calls.iter().map(Call::to_string).collect();
            panic!("no order of {spans:#?} leads from {} to {} bytes", before.len(), after.len());
        }
        after
    }
}

#[test]
fn overlapping_requests_for_one_file_are_serializable() {
    for seed in 0..4 {
        let mut bench = Bench::new(seed);
        bench.lab.create("/f", 0o644).unwrap();
        let mut contents = Vec::new();
        for group in 0..GROUPS / 4 {
            if contents.len() > 400_000 {
                bench.lab.resize("/f", 0).unwrap();
                contents.clear();
            }
            contents = bench.group(contents);
            if group % 64 == 0 {
                bench.lab.idle();
                bench.lab.verify();
            }
        }
    }
}

#[test]
fn a_small_append_does_not_move_the_end_under_a_large_one() {
    let mut lab = Lab::new();
    lab.create("/f", 0o644).unwrap();
    lab.write("/f", 0, b"0123456789").unwrap();
    let open = lab.open("/f", APPEND).unwrap();
    let data: Vec<u8> = (0..100_000).map(|at| (at / 7) as u8).collect();
    let large = lab.begin(Ask::Write { open, offset: 0, data: Buf::from(data.clone()) });
    assert_eq!(lab.volume.counts().pending, [("place", 1)]);
    let small = lab.begin(Ask::Write { open, offset: 0, data: Buf::from(vec![b'x'; 10]) });
    let cut = lab.begin(Ask::Write { open, offset: 0, data: Buf::from(vec![b'y'; 10]) });
    assert_eq!(lab.volume.counts().pending, [("place", 1), ("append", 2)]);
    lab.input(Input::Cancel(cut));
    assert!(matches!(lab.answered(cut), Some(Err(Error::Cancelled))));
    while lab.operate() {}
    assert!(matches!(lab.answered(large), Some(Ok(Reply::Written(100_000)))));
    assert!(matches!(lab.answered(small), Some(Ok(Reply::Written(10)))));
    let wanted = [b"0123456789".as_slice(), &data, b"xxxxxxxxxx"].concat();
    assert!(lab.read("/f").unwrap() == wanted);
    lab.close(open);
    lab.verify();
}
