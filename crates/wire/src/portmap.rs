//! The portmapper's version 2 (RFC 1833, 3): which port serves a program.
//!
//! Results are an XDR boolean (SET, UNSET) or a list of mappings (DUMP). GETPORT is left out:
//! rpcbind answers with the port of another version if the wanted one is not registered.

use crate::xdr::structure;

/// Number of the program.
pub const PROGRAM: u32 = 100_000;

/// Version of the program.
pub const VERSION: u32 = 2;

/// Port of the portmapper.
pub const PORT: u16 = 111;

/// Procedure that registers a mapping.
pub const SET: u32 = 1;

/// Procedure that removes all mappings of a version of a program.
pub const UNSET: u32 = 2;

/// Procedure without an argument that returns all mappings.
pub const DUMP: u32 = 4;

/// Transport protocol TCP.
pub const TCP: u32 = 6;

/// Transport protocol UDP.
pub const UDP: u32 = 17;

structure! {
    /// A mapping, which is the argument of [`SET`] and [`UNSET`].
    Mapping {
        /// Program.
        program: u32,
        /// Version of the program.
        version: u32,
        /// Transport protocol; ignored by [`UNSET`].
        protocol: u32,
        /// Port; ignored by [`UNSET`].
        port: u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::{Reader, Xdr as _};

    #[test]
    fn a_mapping_has_four_numbers_in_the_order_of_the_rfc() {
        let mapping = Mapping { program: 100_003, version: 3, protocol: TCP, port: 2049 };
        let mut bytes = Vec::new();
        mapping.put(&mut bytes);
        assert_eq!(bytes, [0, 1, 0x86, 0xa3, 0, 0, 0, 3, 0, 0, 0, 6, 0, 0, 8, 1]);
        assert_eq!(Reader::new(&bytes).get(), Ok(mapping));
        assert!(Reader::new(&bytes[1..]).get::<Mapping>().is_err());
    }
}
