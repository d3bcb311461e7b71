//! Links Debian's librocksdb, whose C interface `src/rocks.rs` declares.

fn main() {
    println!("cargo::rustc-link-lib=dylib=rocksdb");
    println!("cargo::rerun-if-changed=build.rs");
}
