//! External Data Representation (RFC 4506): big-endian, every item a multiple of four bytes.

use std::fmt;

/// Reason for a failed decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// An item extends past the end.
    Short,
    /// Bytes follow the last item.
    Trailing,
    /// A list or opaque item is longer than the protocol's limit.
    Long,
    /// No item of this type has this discriminant or value.
    Value(u32),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Short => write!(f, "an item reaches past the end of the message"),
            DecodeError::Trailing => write!(f, "bytes follow the last item of the message"),
            DecodeError::Long => write!(f, "an item is longer than the protocol allows"),
            DecodeError::Value(value) => write!(f, "no item of this type has the value {value}"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// Decodes items from the front of a message.
#[derive(Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Returns a reader of these bytes.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// Returns the bytes not yet read.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Decodes the next item.
    ///
    /// # Errors
    /// `Short` if it extends past the end, `Long` or `Value` if the protocol does not allow it.
    pub fn get<T: Xdr<'a>>(&mut self) -> Result<T, DecodeError> {
        T::get(self)
    }

    /// Returns the next `n` bytes.
    fn take(&mut self, n: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(n).ok_or(DecodeError::Short)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Decodes opaque bytes or a string of at most `max` bytes. The padding may have any value.
    ///
    /// # Errors
    /// `Short` if it extends past the end, `Long` if it is longer.
    pub fn opaque(&mut self, max: usize) -> Result<&'a [u8], DecodeError> {
        let length = self.get::<u32>()? as usize;
        if length > max {
            return Err(DecodeError::Long);
        }
        let bytes = self.take(length)?;
        self.take(padding(length))?;
        Ok(bytes)
    }

    /// Checks that all bytes have been read.
    ///
    /// # Errors
    /// `Trailing` if some are left.
    pub fn end(&self) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError::Trailing) }
    }
}

/// Returns the number of zero bytes behind an opaque item of this length.
pub fn padding(length: usize) -> usize {
    length.wrapping_neg() % 4
}

/// A type of items.
pub trait Xdr<'a>: Sized {
    /// Decodes the next item.
    ///
    /// # Errors
    /// `Short` if it extends past the end, `Long` or `Value` if the protocol does not allow it.
    fn get(reader: &mut Reader<'a>) -> Result<Self, DecodeError>;

    /// Appends the item.
    fn put(&self, out: &mut Vec<u8>);
}

macro_rules! integers {
    ($($type:ty),*) => { $(impl Xdr<'_> for $type {
        fn get(reader: &mut Reader<'_>) -> Result<$type, DecodeError> {
            let bytes = reader.take(size_of::<$type>())?;
            Ok(<$type>::from_be_bytes(bytes.try_into().expect("as many as were taken")))
        }

        fn put(&self, out: &mut Vec<u8>) {
            out.extend(self.to_be_bytes());
        }
    })* };
}

integers!(u32, u64);

impl Xdr<'_> for bool {
    fn get(reader: &mut Reader<'_>) -> Result<bool, DecodeError> {
        match reader.get::<u32>()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(DecodeError::Value(other)),
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        u32::from(*self).put(out);
    }
}

/// Eight opaque bytes: a verifier.
impl Xdr<'_> for [u8; 8] {
    fn get(reader: &mut Reader<'_>) -> Result<[u8; 8], DecodeError> {
        Ok(reader.take(8)?.try_into().expect("as many as were taken"))
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.extend(self);
    }
}

/// Opaque bytes or a string, as long as the message allows.
impl<'a> Xdr<'a> for &'a [u8] {
    fn get(reader: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
        reader.opaque(usize::MAX)
    }

    fn put(&self, out: &mut Vec<u8>) {
        u32::try_from(self.len()).expect("items are below 4 GiB").put(out);
        out.extend(*self);
        out.extend(&[0; 3][..padding(self.len())]);
    }
}

/// Optional data (RFC 4506, 4.19).
impl<'a, T: Xdr<'a>> Xdr<'a> for Option<T> {
    fn get(reader: &mut Reader<'a>) -> Result<Option<T>, DecodeError> {
        if reader.get::<bool>()? { reader.get().map(Some) } else { Ok(None) }
    }

    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }
}

/// A linked list: each element behind a `true`, then a `false`.
impl<'a, T: Xdr<'a>> Xdr<'a> for Vec<T> {
    fn get(reader: &mut Reader<'a>) -> Result<Vec<T>, DecodeError> {
        let mut list = Vec::new();
        while let Some(element) = reader.get()? {
            list.push(element);
        }
        Ok(list)
    }

    fn put(&self, out: &mut Vec<u8>) {
        for element in self {
            true.put(out);
            element.put(out);
        }
        false.put(out);
    }
}

/// Declares a structure with its codec: the items in order.
macro_rules! structure {
    ($(#[$doc:meta])* $name:ident $(<$life:lifetime>)? {
        $($(#[$fdoc:meta])* $field:ident : $type:ty),* $(,)?
    }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name $(<$life>)? { $($(#[$fdoc])* pub $field: $type),* }

        impl<'a> $crate::xdr::Xdr<'a> for structure!(@type $name $($life)?) {
            fn get(
                reader: &mut $crate::xdr::Reader<'a>,
            ) -> Result<Self, $crate::xdr::DecodeError> {
                Ok($name { $($field: reader.get()?),* })
            }

            fn put(&self, out: &mut Vec<u8>) {
                $($crate::xdr::Xdr::put(&self.$field, out);)*
            }
        }
    };
    (@type $name:ident) => { $name };
    (@type $name:ident $life:lifetime) => { $name<'a> };
}

/// Declares an enumeration with its codec: names and numbers.
macro_rules! enumeration {
    ($(#[$doc:meta])* $name:ident {
        $($(#[$vdoc:meta])* $variant:ident = $code:literal),* $(,)?
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$vdoc])* $variant = $code),* }

        impl $crate::xdr::Xdr<'_> for $name {
            fn get(
                reader: &mut $crate::xdr::Reader<'_>,
            ) -> Result<$name, $crate::xdr::DecodeError> {
                match reader.get::<u32>()? {
                    $($code => Ok($name::$variant),)*
                    other => Err($crate::xdr::DecodeError::Value(other)),
                }
            }

            fn put(&self, out: &mut Vec<u8>) {
                $crate::xdr::Xdr::put(&(*self as u32), out);
            }
        }
    };
}

pub(crate) use {enumeration, structure};
