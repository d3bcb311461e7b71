//! Cell references and regions.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// Greatest row number, as in common spreadsheets.
pub const ROWS_MAX: u32 = 1 << 20;

/// Greatest column number: columns are A to XFD.
pub const COLUMNS_MAX: u32 = 1 << 14;

/// Reference to a cell: in JSON `"B9"`. Ordered by row, then by column.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cell {
    row: u32,
    column: u32,
}

impl Cell {
    /// Cell A1.
    pub const FIRST: Cell = Cell { row: 1, column: 1 };

    /// Returns the cell at this row and column, both counted from 1, if they are in range.
    pub fn at(row: u32, column: u32) -> Option<Cell> {
        let fits = (1..=ROWS_MAX).contains(&row) && (1..=COLUMNS_MAX).contains(&column);
        fits.then_some(Cell { row, column })
    }

    /// Row, counted from 1.
    pub fn row(&self) -> u32 {
        self.row
    }

    /// Column, counted from 1.
    pub fn column(&self) -> u32 {
        self.column
    }
}

/// Rectangle of cells: in JSON `"A1:B9"`, or `"A1"` for a single one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Region {
    first: Cell,
    last: Cell,
}

impl Region {
    /// Returns the rectangle with these two corners.
    pub fn between(a: Cell, b: Cell) -> Region {
        let first = Cell { row: a.row.min(b.row), column: a.column.min(b.column) };
        let last = Cell { row: a.row.max(b.row), column: a.column.max(b.column) };
        Region { first, last }
    }

    /// First cell.
    pub fn first(&self) -> Cell {
        self.first
    }

    /// Last cell.
    pub fn last(&self) -> Cell {
        self.last
    }

    /// Number of rows.
    pub fn rows(&self) -> u32 {
        self.last.row - self.first.row + 1
    }

    /// Number of columns.
    pub fn columns(&self) -> u32 {
        self.last.column - self.first.column + 1
    }

    /// Number of cells.
    pub fn area(&self) -> u64 {
        u64::from(self.rows()) * u64::from(self.columns())
    }

    /// Reports whether it contains this cell.
    pub fn contains(&self, cell: Cell) -> bool {
        (self.first.row..=self.last.row).contains(&cell.row)
            && (self.first.column..=self.last.column).contains(&cell.column)
    }

    /// Reports whether both regions share a cell.
    pub fn meets(&self, other: &Region) -> bool {
        self.first.row <= other.last.row
            && other.first.row <= self.last.row
            && self.first.column <= other.last.column
            && other.first.column <= self.last.column
    }

    /// Returns the cell at this offset from the first one, if it is inside.
    pub fn within(&self, rows: u32, columns: u32) -> Option<Cell> {
        let fits = rows < self.rows() && columns < self.columns();
        let (row, column) = (self.first.row.saturating_add(rows), self.first.column);
        fits.then_some(Cell { row, column: column.saturating_add(columns) })
    }

    /// Returns the first cell of the region at or after this one, in cell order.
    pub(super) fn onward(&self, cell: Cell) -> Option<Cell> {
        let cell = match cell {
            Cell { row, .. } if row < self.first.row => self.first,
            Cell { row, column } if column > self.last.column => {
                Cell { row: row + 1, column: self.first.column }
            }
            Cell { row, column } => Cell { row, column: column.max(self.first.column) },
        };
        (cell.row <= self.last.row).then_some(cell)
    }
}

impl From<Cell> for Region {
    fn from(cell: Cell) -> Region {
        Region { first: cell, last: cell }
    }
}

/// Error for an invalid cell or region reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoCell(String);

impl fmt::Display for NoCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not like B9, or B2:C9 where there may be several; ", self.0)?;
        write!(f, "cells are A1 to XFD{ROWS_MAX}")
    }
}

impl std::error::Error for NoCell {}

impl FromStr for Cell {
    type Err = NoCell;

    fn from_str(name: &str) -> Result<Cell, NoCell> {
        let letters = name.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (letters, digits) = name.split_at(letters);
        let plain =
            letters.len() <= 3 && digits.len() <= 7 && digits.as_bytes().first() != Some(&b'+');
        let column = letters
            .bytes()
            .filter(|_| plain)
            .fold(0, |column, letter| column * 26 + u32::from(letter.to_ascii_uppercase() - b'@'));
        let row = digits.parse().ok().filter(|_| plain);
        row.and_then(|row| Cell::at(row, column)).ok_or_else(|| NoCell(name.to_owned()))
    }
}

impl FromStr for Region {
    type Err = NoCell;

    fn from_str(name: &str) -> Result<Region, NoCell> {
        let (a, b) = name.split_once(':').unwrap_or((name, name));
        let cell = |half: &str| half.parse().map_err(|_| NoCell(name.to_owned()));
        Ok(Region::between(cell(a)?, cell(b)?))
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut letters = Vec::new();
        let mut column = self.column;
        while column > 0 {
            column -= 1;
            letters.push(char::from(b'A' + (column % 26) as u8));
            column /= 26;
        }
        letters.iter().rev().try_for_each(|letter| write!(f, "{letter}"))?;
        write!(f, "{}", self.row)
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => write!(f, "{}", self.first),
            false => write!(f, "{}:{}", self.first, self.last),
        }
    }
}

impl fmt::Debug for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Cell {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match to.is_human_readable() {
            true => to.collect_str(self),
            false => (self.row, self.column).serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for Cell {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Cell, D::Error> {
        if from.is_human_readable() {
            return String::deserialize(from)?.parse().map_err(D::Error::custom);
        }
        let (row, column) = Deserialize::deserialize(from)?;
        Cell::at(row, column).ok_or_else(|| D::Error::custom("no such cell"))
    }
}

impl Serialize for Region {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match to.is_human_readable() {
            true => to.collect_str(self),
            false => (self.first, self.last).serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for Region {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Region, D::Error> {
        if from.is_human_readable() {
            return String::deserialize(from)?.parse().map_err(D::Error::custom);
        }
        let (a, b) = Deserialize::deserialize(from)?;
        Ok(Region::between(a, b))
    }
}
