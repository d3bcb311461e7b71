//! RocksDB, by its C interface (`rocksdb/c.h`): the few functions that are needed are declared
//! here, so that neither its C++ nor a generator of bindings has to be built.
//!
//! Settings are those its wiki recommends: a shared block cache, bloom filters of ten bits a key.

use crate::engine::{Engine, Entry, MEMORY, Session, Shared, Users};
use anyhow::{Result, bail, ensure};
use std::ffi::{CStr, CString, c_char, c_double, c_int, c_uchar, c_void};
use std::path::Path;
use std::ptr::null_mut;

/// Any of RocksDB's objects.
type Object = *mut c_void;

unsafe extern "C" {
    fn rocksdb_options_create() -> Object;
    fn rocksdb_options_set_create_if_missing(options: Object, yes: c_uchar);
    fn rocksdb_options_increase_parallelism(options: Object, threads: c_int);
    fn rocksdb_options_set_block_based_table_factory(options: Object, table: Object);
    fn rocksdb_block_based_options_create() -> Object;
    fn rocksdb_block_based_options_set_block_cache(table: Object, cache: Object);
    fn rocksdb_block_based_options_set_filter_policy(table: Object, policy: Object);
    fn rocksdb_filterpolicy_create_bloom_full(bits: c_double) -> Object;
    fn rocksdb_cache_create_lru(bytes: usize) -> Object;
    fn rocksdb_open(options: Object, name: *const c_char, error: *mut *mut c_char) -> Object;
    fn rocksdb_close(database: Object);
    fn rocksdb_free(memory: *mut c_void);
    fn rocksdb_writeoptions_create() -> Object;
    fn rocksdb_writeoptions_set_sync(options: Object, yes: c_uchar);
    fn rocksdb_readoptions_create() -> Object;
    fn rocksdb_writebatch_create() -> Object;
    fn rocksdb_writebatch_put(batch: Object, key: *const u8, k: usize, value: *const u8, v: usize);
    fn rocksdb_writebatch_destroy(batch: Object);
    fn rocksdb_write(database: Object, options: Object, batch: Object, error: *mut *mut c_char);
    fn rocksdb_flush_wal(database: Object, sync: c_uchar, error: *mut *mut c_char);
    fn rocksdb_get_pinned(
        database: Object,
        options: Object,
        key: *const u8,
        length: usize,
        error: *mut *mut c_char,
    ) -> Object;
    fn rocksdb_pinnableslice_value(slice: Object, length: *mut usize) -> *const u8;
    fn rocksdb_pinnableslice_destroy(slice: Object);
    fn rocksdb_create_iterator(database: Object, options: Object) -> Object;
    fn rocksdb_iter_seek_to_first(iterator: Object);
    fn rocksdb_iter_valid(iterator: Object) -> c_uchar;
    fn rocksdb_iter_next(iterator: Object);
    fn rocksdb_iter_key(iterator: Object, length: *mut usize) -> *const u8;
    fn rocksdb_iter_value(iterator: Object, length: *mut usize) -> *const u8;
    fn rocksdb_iter_destroy(iterator: Object);
}

struct Open {
    database: Object,
    durable: Object,
    soon: Object,
    reads: Object,
}

// SAFETY: RocksDB's database and options may be used by several threads at once (c.h, basics).
unsafe impl Sync for Open {}

pub(crate) fn open(directory: &Path, _users: Users) -> Result<Box<dyn Engine>> {
    let name = CString::new(directory.join("rocksdb").into_os_string().into_encoded_bytes())?;
    let mut error = null_mut();
    // SAFETY: every object was just made; those that are handed over are not used again.
    let open = unsafe {
        let (options, table) = (rocksdb_options_create(), rocksdb_block_based_options_create());
        let cache = rocksdb_cache_create_lru(MEMORY);
        rocksdb_block_based_options_set_block_cache(table, cache);
        let policy = rocksdb_filterpolicy_create_bloom_full(10.0);
        rocksdb_block_based_options_set_filter_policy(table, policy);
        rocksdb_options_set_block_based_table_factory(options, table);
        rocksdb_options_set_create_if_missing(options, 1);
        rocksdb_options_increase_parallelism(options, 2);
        let (durable, soon) = (rocksdb_writeoptions_create(), rocksdb_writeoptions_create());
        rocksdb_writeoptions_set_sync(durable, 1);
        let database = rocksdb_open(options, name.as_ptr(), &raw mut error);
        Open { database, durable, soon, reads: rocksdb_readoptions_create() }
    };
    output(error)?;
    Ok(Box::new(open))
}

/// Returns the error reported by RocksDB, if there is one.
fn output(error: *mut c_char) -> Result<()> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: it is a text that ends with a zero, and ours to free.
    let text = unsafe { CStr::from_ptr(error).to_string_lossy().into_owned() };
    // SAFETY: as above; nobody has it any more.
    unsafe { rocksdb_free(error.cast()) };
    bail!("RocksDB: {text}")
}

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: nobody uses it any more: sessions borrow it.
        unsafe { rocksdb_close(self.database) };
    }
}

impl Engine for Open {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(self))
    }

    fn shared(&self) -> Option<&dyn Shared> {
        Some(self)
    }
}

impl Shared for Open {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(self))
    }
}

impl Session for &Open {
    fn put(&self, entries: Vec<Entry>, durable: bool) -> Result<()> {
        let options = if durable { self.durable } else { self.soon };
        let mut error = null_mut();
        // SAFETY: the batch copies what it is given, and is destroyed once.
        unsafe {
            let batch = rocksdb_writebatch_create();
            for (key, value) in &entries {
                let (k, v) = (key.len(), value.len());
                rocksdb_writebatch_put(batch, key.as_ptr(), k, value.as_ptr(), v);
            }
            rocksdb_write(self.database, options, batch, &raw mut error);
            rocksdb_writebatch_destroy(batch);
        }
        output(error)
    }

    fn sync(&self) -> Result<()> {
        let mut error = null_mut();
        // SAFETY: the database is open as long as this lives.
        unsafe { rocksdb_flush_wal(self.database, 1, &raw mut error) };
        output(error)
    }

    fn get(
        &self,
        keys: &mut dyn Iterator<Item = [u8; 24]>,
        show: &mut dyn FnMut(&[u8]),
    ) -> Result<()> {
        for key in keys {
            let (mut error, mut length) = (null_mut(), 0);
            let (at, count) = (key.as_ptr(), key.len());
            // SAFETY: the key lives longer than the call.
            let slice =
                unsafe { rocksdb_get_pinned(self.database, self.reads, at, count, &raw mut error) };
            output(error)?;
            ensure!(!slice.is_null(), "a key is missing");
            // SAFETY: the value is there until the slice is destroyed, which happens once.
            unsafe {
                let bytes = rocksdb_pinnableslice_value(slice, &raw mut length);
                show(std::slice::from_raw_parts(bytes, length));
                rocksdb_pinnableslice_destroy(slice);
            }
        }
        Ok(())
    }

    fn scan(&self, show: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        // SAFETY: key and value are there until the iterator moves; it is destroyed once.
        unsafe {
            let iterator = rocksdb_create_iterator(self.database, self.reads);
            rocksdb_iter_seek_to_first(iterator);
            while rocksdb_iter_valid(iterator) != 0 {
                let (mut k, mut v) = (0, 0);
                let key = rocksdb_iter_key(iterator, &raw mut k);
                let value = rocksdb_iter_value(iterator, &raw mut v);
                show(std::slice::from_raw_parts(key, k), std::slice::from_raw_parts(value, v));
                rocksdb_iter_next(iterator);
            }
            rocksdb_iter_destroy(iterator);
        }
        Ok(())
    }
}
