//! File requests to web servers, like those of SPECweb96 and SPECweb99.
//!
//! Each directory has 36 files: nine sizes in each of four classes. Requests are for whole files:
//!
//! | class | sizes | share | maximum, bytes |
//! |---|---|---|---|
//! | 0 | below 1 KiB, in steps of 102.4 bytes | 35 % | 921 |
//! | 1 | 1 to 9 KiB | 50 % | 9,216 |
//! | 2 | 10 to 90 KiB | 14 % | 92,160 |
//! | 3 | 100 to 900 KiB | 1 % | 921,600 |
//!
//! | | SPECweb96 | SPECweb99 |
//! |---|---|---|
//! | directories | 10 · √(requests per second / 5) | 25 + connections · (400,000 / 122,000) / 5 |
//! | choice of directory | uniform | Zipf distribution, exponent 1 |
//! | choice of size | Poisson around the middle | Zipf distribution over a fixed order |
//!
//! The fixed order of sizes, from the most to the least probable: 5, 6, 4, 3, 7, 2, 8, 9, 1.
//!
//! Sources: classes, shares, sizes and the Poisson distribution are in SPEC's public description of
//! the SPECweb96 workload (its mean there is "the midpoint"; here it is 4 above the first); classes
//! and the Zipf distribution over directories for SPECweb99 are in Ruan and Pai (USENIX 2006); the
//! number of directories and the order of sizes in SPECweb99 are as commonly cited, and could not
//! be compared with the benchmark's own text.
//!
//! This is an approximation, not the benchmark. SPECweb99's dynamic requests (30 % of all: pages
//! derived from cookies, posts, and programs) are omitted, as are its slow lines (400 kbit/s) and
//! the number of requests per connection, which the target determines.

use super::pace::{Lifetime, Pace};
use super::place::Zipf;
use super::stream::Stream;
use super::users::Users;
use super::{Draw, Weighted};
use crate::{Filament, Io, Kind};

/// Version of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Year {
    /// SPECweb96.
    Y96,
    /// SPECweb99.
    Y99,
}

/// Files of a directory.
pub const FILES: u32 = 36;

/// Maximum file size, in bytes.
pub const IO_MAX: u32 = 921_600;

/// Maximum directories, so that file numbers fit.
pub const DIRECTORIES_MAX: u32 = 1_000_000;

const SIZES: u32 = 9;

/// Shares of the classes.
const CLASSES: [f64; 4] = [35.0, 50.0, 14.0, 1.0];

/// SPECweb99: sizes of a class by descending probability.
const POPULAR: [u32; 9] = [4, 5, 3, 2, 6, 1, 7, 8, 0];

/// File set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSet {
    year: Year,
    directories: u32,
}

/// File of the set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// File number in I/Os.
    pub number: u32,
    /// Path from the root of the set: `dir00007/class1_3`.
    pub path: String,
    /// Size, in bytes.
    pub size: u32,
}

impl FileSet {
    /// Creates a set with this many directories; at least one, at most [`DIRECTORIES_MAX`].
    pub fn new(year: Year, directories: u32) -> FileSet {
        FileSet { year, directories: directories.clamp(1, DIRECTORIES_MAX) }
    }

    /// Creates the set for a load: requests per second for SPECweb96, connections for SPECweb99.
    pub fn of_load(year: Year, load: f64) -> FileSet {
        let load = load.max(0.0);
        let directories = match year {
            Year::Y96 => 10.0 * (load / 5.0).sqrt(),
            Year::Y99 => 25.0 + load * (400_000.0 / 122_000.0) / 5.0,
        };
        FileSet::new(year, directories.min(f64::from(DIRECTORIES_MAX)) as u32)
    }

    /// Number of directories.
    pub fn directories(&self) -> u32 {
        self.directories
    }

    /// Number of files, and the exclusive upper bound of their numbers.
    pub fn count(&self) -> u32 {
        self.directories * FILES
    }

    /// Total size, in bytes.
    pub fn bytes(&self) -> u64 {
        (0..FILES).map(|file| u64::from(size(file))).sum::<u64>() * u64::from(self.directories)
    }

    /// Returns the files by number, for their creation.
    pub fn files(&self) -> impl Iterator<Item = File> + use<> {
        (0..self.count()).map(|number| {
            let (directory, file) = (number / FILES, number % FILES);
            let (class, which) = (file / SIZES, file % SIZES);
            let path = format!("dir{directory:05}/class{class}_{which}");
            File { number, path, size: size(file) }
        })
    }

    /// Returns the filament of requests: open, or from a number of connections.
    pub fn filament(self, pace: Pace, seed: u64, life: Lifetime) -> Box<dyn Filament> {
        let drawer = Drawer::new(self, seed);
        match pace {
            Pace::Open(arrival) => {
                Box::new(Stream::of(arrival, drawer, life.begin, life.count).until(life.end))
            }
            Pace::Closed { count, think } => Box::new(
                Users::of(u64::from(count), think, drawer, life.begin, life.count).until(life.end),
            ),
        }
    }
}

/// Size in bytes of a file, by its number within its directory.
fn size(file: u32) -> u32 {
    let (class, which) = (file / SIZES, file % SIZES + 1);
    1024 * which * 10_u32.pow(class) / 10
}

/// Returns the popularity of the sizes of a class.
fn popularity(year: Year) -> [f64; 9] {
    let mut weights = [0.0; 9];
    match year {
        Year::Y96 => {
            let mut weight = 1.0;
            for (which, slot) in weights.iter_mut().enumerate() {
                *slot = weight;
                weight *= 4.0 / (which + 1) as f64;
            }
        }
        Year::Y99 => {
            for (rank, which) in (1_u32..).zip(POPULAR) {
                weights[which as usize] = 1.0 / f64::from(rank);
            }
        }
    }
    weights
}

/// Distribution of directories.
#[derive(Clone, Debug)]
enum Directory {
    Any(u32),
    Zipf(Zipf),
}

/// Generator of requests for files of a set.
#[derive(Clone, Debug)]
pub struct Drawer {
    directory: Directory,
    /// Files of a directory, by their numbers in it.
    files: Weighted<u32>,
    random: fastrand::Rng,
}

impl Drawer {
    /// Creates a generator with this seed.
    pub fn new(set: FileSet, seed: u64) -> Drawer {
        let within = popularity(set.year);
        let total: f64 = within.iter().sum();
        let weight =
            |file: u32| CLASSES[(file / SIZES) as usize] * within[(file % SIZES) as usize] / total;
        let directory = match set.year {
            Year::Y96 => Directory::Any(set.directories),
            Year::Y99 => Directory::Zipf(Zipf::new(u64::from(set.directories), 1.0)),
        };
        Drawer {
            directory,
            files: Weighted::new((0..FILES).map(|file| (file, weight(file))).collect()),
            random: fastrand::Rng::with_seed(seed),
        }
    }
}

impl Draw for Drawer {
    fn draw(&mut self) -> Io {
        let directory = match &self.directory {
            Directory::Any(count) => self.random.u32(..*count),
            Directory::Zipf(zipf) => zipf.draw(&mut self.random) as u32,
        };
        let file = *self.files.draw(&mut self.random);
        Io { kind: Kind::Read, file: directory * FILES + file, offset: 0, len: size(file) }
    }

    fn random(&mut self) -> &mut fastrand::Rng {
        &mut self.random
    }
}

#[cfg(test)]
mod tests;
