//! Pages of a search: how many rows, behind which, and how many follow.

use std::{cmp::Ordering, collections::BinaryHeap};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

use crate::search::{Facts, Order, Value};

/// Which of the rows that match, in their order, are given.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// How many at most; absent for all.
    pub limit: Option<usize>,
    /// How many are left out before the first, behind [`Self::after`] if there is one.
    pub offset: usize,
    /// The row behind which it begins.
    pub after: Option<Position>,
    /// The answer says where the next page begins.
    pub with_continue: bool,
    /// The answer says how many rows follow.
    pub with_remaining: bool,
    /// How many rows all pages together may give, of which earlier ones gave [`Position::given`].
    pub total: Option<usize>,
}

/// A place in the order of a search, behind one row. Rows that come or go elsewhere do not move it.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Position {
    #[serde(rename = "v")]
    version: u8,
    /// The order, as [`Order::text`] has it: a place in another order means nothing.
    #[serde(rename = "o")]
    order: String,
    /// What the row is ordered by.
    #[serde(rename = "k")]
    key: Vec<Value>,
    /// How many rows were given up to it.
    #[serde(rename = "n")]
    given: usize,
}

impl Position {
    /// The place behind a row of that key.
    pub fn behind(order: &Order, key: Vec<Value>, given: usize) -> Self {
        Self { version: 1, order: order.text(), key, given }
    }

    /// What the row is ordered by.
    pub fn key(&self) -> &[Value] {
        &self.key
    }

    /// How many rows were given up to it.
    pub fn given(&self) -> usize {
        self.given
    }

    /// As clients carry it.
    pub fn encode(&self) -> String {
        // Texts and numbers only: serialization has no way to fail.
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default())
    }

    /// Reads it back. `None`: it is none of ours, or one of another order.
    pub fn decode(text: &str, order: &Order) -> Option<Self> {
        let position: Self = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
        let fits =
            position.version == 1 && position.order == order.text() && position.key.len() == order.fields().len();
        fits.then_some(position)
    }
}

impl Page {
    /// How many rows are looked for: those that the page may have, and those before it.
    pub fn room(&self) -> Option<usize> {
        self.size().map(|size| size.saturating_add(self.offset))
    }

    /// How many rows this page may have.
    pub fn size(&self) -> Option<usize> {
        let given = self.after.as_ref().map_or(0, Position::given);
        let left = self.total.map(|total| total.saturating_sub(given));
        [self.limit, left].into_iter().flatten().min()
    }

    /// Says whether a next page may give more.
    pub fn may_go_on(&self, given: usize) -> bool {
        let before = self.after.as_ref().map_or(0, Position::given);
        self.with_continue && self.total.is_none_or(|total| before + given < total)
    }
}

/// A page that was found.
#[derive(Debug)]
pub struct Paged<T> {
    /// The rows, in order.
    pub rows: Vec<T>,
    /// Where the next page begins, if the answer says so and there is one.
    pub next: Option<Position>,
    /// How many rows follow.
    pub remaining: u64,
}

/// A row and what it is ordered by.
#[derive(Clone, Debug)]
pub struct Ranked<T> {
    /// What it is ordered by.
    pub key: Vec<Value>,
    /// The row.
    pub row: T,
}

/// The first rows of all that are shown to it, in memory for those rows alone.
#[derive(Debug)]
pub struct Top<'o, T> {
    order: &'o Order,
    /// Rows that it keeps; absent for all.
    room: Option<usize>,
    heap: BinaryHeap<Placed<'o, T>>,
    rest: Vec<Ranked<T>>,
    seen: u64,
}

#[derive(Debug)]
struct Placed<'o, T> {
    order: &'o Order,
    ranked: Ranked<T>,
}

impl<'o, T> Top<'o, T> {
    /// Keeps the first `room` rows in that order.
    pub fn new(order: &'o Order, room: Option<usize>) -> Self {
        Self { order, room, heap: BinaryHeap::new(), rest: Vec::new(), seen: 0 }
    }

    /// Takes one row more.
    ///
    /// Shape: O(log room), and nothing for a row behind all that are kept.
    pub fn take(&mut self, key: Vec<Value>, row: T) {
        self.seen += 1;
        let ranked = Ranked { key, row };
        let Some(room) = self.room else {
            self.rest.push(ranked);
            return;
        };
        let placed = Placed { order: self.order, ranked };
        if self.heap.len() < room {
            self.heap.push(placed);
        } else if self.heap.peek().is_some_and(|last| placed < *last) {
            self.heap.pop();
            self.heap.push(placed);
        }
    }

    /// Takes one row more, and makes of it what is kept only where it is kept.
    pub fn offer(&mut self, facts: &Facts<'_>, json: &str, row: impl FnOnce() -> T) {
        let is_full = self.room.is_some_and(|room| self.heap.len() >= room);
        let is_behind = |last: &Placed<'_, T>| self.order.compare_row(facts, json, &last.ranked.key).is_ge();
        if is_full && self.heap.peek().is_none_or(is_behind) {
            self.seen += 1;
        } else {
            self.take(self.order.key(facts, json), row());
        }
    }

    /// Counts rows that stand behind all that it keeps, and that it is not shown.
    pub fn pass(&mut self, rows: u64) {
        self.seen += rows;
    }

    /// How many rows it was shown, or was told of.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// The page that it kept the rows for, the first of which are left out.
    pub fn into_page(self, page: &Page) -> Paged<T> {
        let (order, seen) = (self.order, self.seen);
        let mut rows = self.into_rows();
        rows.drain(..page.offset.min(rows.len()));
        rows.truncate(page.size().unwrap_or(usize::MAX));
        let left_out = (page.offset as u64).min(seen);
        let remaining = seen.saturating_sub(left_out).saturating_sub(rows.len() as u64);
        let given = page.after.as_ref().map_or(0, Position::given) + rows.len();
        let goes_on = remaining > 0 && page.may_go_on(rows.len());
        let next = rows.last().filter(|_| goes_on).map(|last| Position::behind(order, last.key.clone(), given));
        Paged { rows: rows.into_iter().map(|ranked| ranked.row).collect(), next, remaining }
    }

    /// The rows that it kept, in order.
    pub fn into_rows(mut self) -> Vec<Ranked<T>> {
        let order = self.order;
        self.rest.extend(self.heap.into_iter().map(|placed| placed.ranked));
        self.rest.sort_by(|one, other| order.compare(&one.key, &other.key));
        self.rest
    }
}

impl<T> Ord for Placed<'_, T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order.compare(&self.ranked.key, &other.ranked.key)
    }
}

impl<T> PartialOrd for Placed<'_, T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Placed<'_, T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T> Eq for Placed<'_, T> {}
