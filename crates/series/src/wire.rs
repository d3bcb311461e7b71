//! What parts say to each other, as bytes: integers are little-endian, sequences begin with how
//! many there are.

use replica::binary;
use replica::data::{Value, counter, text};
use replica::esds::{Descriptor, Id, Label, Message, News};
use replica::ioa::Talk;
use std::sync::Arc;

/// What can be written as bytes.
pub(crate) trait Wire: Sized {
    /// Appends it.
    fn put(&self, bytes: &mut Vec<u8>);

    /// Takes it from the front of what [`Wire::put`] wrote.
    fn take(bytes: &mut &[u8]) -> Self;
}

/// What a message is about, as far as it is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum About {
    /// An operation goes to a replica.
    Request(u64),
    /// And its value goes back.
    Response(u64),
    /// News of so many operations.
    Gossip(u64),
    /// Who may act with whom.
    Agreement,
}

/// What parts say.
pub(crate) trait Spoken: Wire {
    /// What it is about.
    fn about(&self) -> About;
}

fn length(count: usize) -> u64 {
    u64::try_from(count).expect("a machine has no more")
}

fn split<'a>(bytes: &mut &'a [u8], at: usize) -> &'a [u8] {
    bytes.split_off(..at).expect("one of us wrote it")
}

macro_rules! integers {
    ($($integer:ty),*) => {$(
        impl Wire for $integer {
            fn put(&self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&self.to_le_bytes());
            }

            fn take(bytes: &mut &[u8]) -> $integer {
                let digits = split(bytes, size_of::<$integer>());
                <$integer>::from_le_bytes(digits.try_into().expect("as many were taken"))
            }
        }
    )*};
}

integers!(u8, u16, u64, i64, i128);

impl Wire for usize {
    fn put(&self, bytes: &mut Vec<u8>) {
        length(*self).put(bytes);
    }

    fn take(bytes: &mut &[u8]) -> usize {
        usize::try_from(u64::take(bytes)).expect("it was one")
    }
}

impl Wire for bool {
    fn put(&self, bytes: &mut Vec<u8>) {
        u8::from(*self).put(bytes);
    }

    fn take(bytes: &mut &[u8]) -> bool {
        u8::take(bytes) == 1
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, bytes: &mut Vec<u8>) {
        self.is_some().put(bytes);
        self.iter().for_each(|some| some.put(bytes));
    }

    fn take(bytes: &mut &[u8]) -> Option<T> {
        bool::take(bytes).then(|| T::take(bytes))
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn put(&self, bytes: &mut Vec<u8>) {
        self.len().put(bytes);
        self.iter().for_each(|each| each.put(bytes));
    }

    fn take(bytes: &mut &[u8]) -> Vec<T> {
        (0..usize::take(bytes)).map(|_| T::take(bytes)).collect()
    }
}

impl<T: Wire> Wire for Arc<T> {
    fn put(&self, bytes: &mut Vec<u8>) {
        (**self).put(bytes);
    }

    fn take(bytes: &mut &[u8]) -> Arc<T> {
        Arc::new(T::take(bytes))
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn put(&self, bytes: &mut Vec<u8>) {
        self.0.put(bytes);
        self.1.put(bytes);
    }

    fn take(bytes: &mut &[u8]) -> (A, B) {
        (A::take(bytes), B::take(bytes))
    }
}

impl Wire for Id {
    fn put(&self, bytes: &mut Vec<u8>) {
        self.0.put(bytes);
    }

    fn take(bytes: &mut &[u8]) -> Id {
        Id(u64::take(bytes))
    }
}

impl Wire for Label {
    fn put(&self, bytes: &mut Vec<u8>) {
        (self.counter, self.replica).put(bytes);
    }

    fn take(bytes: &mut &[u8]) -> Label {
        Label { counter: u64::take(bytes), replica: usize::take(bytes) }
    }
}

/// What has a binary form of its own, behind its length.
macro_rules! binary {
    ($($type:ty),*) => {$(
        impl Wire for $type {
            fn put(&self, bytes: &mut Vec<u8>) {
                let form = binary::write(self);
                length(form.len()).put(bytes);
                bytes.extend_from_slice(&form);
            }

            fn take(bytes: &mut &[u8]) -> $type {
                let count = usize::take(bytes);
                binary::read(split(bytes, count)).expect("one of us wrote it")
            }
        }
    )*};
}

binary!(counter::Operator, text::Operator, Value);

impl<O: Wire> Wire for Descriptor<O> {
    fn put(&self, bytes: &mut Vec<u8>) {
        let prev: Vec<Id> = self.prev.iter().copied().collect();
        ((self.id, self.sender), (prev, self.strict)).put(bytes);
        self.operator.put(bytes);
    }

    fn take(bytes: &mut &[u8]) -> Descriptor<O> {
        let ((id, sender), (prev, strict)) = <((Id, usize), (Vec<Id>, bool))>::take(bytes);
        let prev = prev.into_iter().collect();
        Descriptor { id, sender, prev, strict, operator: O::take(bytes) }
    }
}

impl<O: Wire> Wire for News<O> {
    fn put(&self, bytes: &mut Vec<u8>) {
        self.descriptor.put(bytes);
        (self.label, self.solid).put(bytes);
    }

    fn take(bytes: &mut &[u8]) -> News<O> {
        let descriptor = Arc::take(bytes);
        let (label, solid) = <(Option<Label>, bool)>::take(bytes);
        News { descriptor, label, solid }
    }
}

impl<O: Wire, V: Wire> Wire for Message<O, V> {
    fn put(&self, bytes: &mut Vec<u8>) {
        match self {
            Message::Request(descriptor) => {
                0_u8.put(bytes);
                descriptor.put(bytes);
            }
            Message::Response(id, value) => {
                (1_u8, *id).put(bytes);
                value.put(bytes);
            }
            Message::Gossip(news) => {
                2_u8.put(bytes);
                news.put(bytes);
            }
        }
    }

    fn take(bytes: &mut &[u8]) -> Message<O, V> {
        match u8::take(bytes) {
            0 => Message::Request(Arc::take(bytes)),
            1 => Message::Response(Id::take(bytes), V::take(bytes)),
            _ => Message::Gossip(Vec::take(bytes)),
        }
    }
}

impl<O: Wire, V: Wire> Spoken for Message<O, V> {
    fn about(&self) -> About {
        match self {
            Message::Request(descriptor) => About::Request(descriptor.id.0),
            Message::Response(id, _) => About::Response(id.0),
            Message::Gossip(news) => About::Gossip(length(news.len())),
        }
    }
}

impl<M: Wire> Wire for Talk<M> {
    fn put(&self, bytes: &mut Vec<u8>) {
        match self {
            Talk::Ask => 0_u8.put(bytes),
            Talk::Grant => 1_u8.put(bytes),
            Talk::Refuse => 2_u8.put(bytes),
            Talk::Release => 3_u8.put(bytes),
            Talk::Join { message, alone } => {
                (4_u8, *alone).put(bytes);
                message.put(bytes);
            }
            Talk::Done => 5_u8.put(bytes),
            Talk::Over => 6_u8.put(bytes),
        }
    }

    fn take(bytes: &mut &[u8]) -> Talk<M> {
        match u8::take(bytes) {
            0 => Talk::Ask,
            1 => Talk::Grant,
            2 => Talk::Refuse,
            3 => Talk::Release,
            4 => {
                let alone = bool::take(bytes);
                Talk::Join { message: M::take(bytes), alone }
            }
            5 => Talk::Done,
            _ => Talk::Over,
        }
    }
}

impl<M: Spoken> Spoken for Talk<M> {
    fn about(&self) -> About {
        match self {
            Talk::Join { message, .. } => message.about(),
            Talk::Ask | Talk::Grant | Talk::Refuse | Talk::Release | Talk::Done | Talk::Over => {
                About::Agreement
            }
        }
    }
}
