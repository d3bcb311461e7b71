//! Everything that developer commands share: running programs, servers under test and their peers,
//! virtual machines, clients, packages, reports.

pub mod apt;
pub mod client;
pub mod dist;
pub mod files;
pub mod go;
pub mod guests;
pub mod lanes;
pub mod linux;
pub mod machine;
pub mod mounted;
pub mod report;
pub mod server;
pub mod sh;
pub mod vm;
pub mod volume;
