//! A store's records one by one, in commit order, a page in memory at a time.

use std::collections::VecDeque;

use super::PAGE;
use crate::{Position, Recorded, Store, StoreError};

pub struct Walk<'a> {
    pub store: &'a dyn Store,
    /// Everything up to here was read.
    after: Position,
    page: VecDeque<Recorded>,
}

impl<'a> Walk<'a> {
    pub fn new(store: &'a dyn Store) -> Self {
        Self { store, after: Position(0), page: VecDeque::new() }
    }

    /// `None` at the end, as it is now: what is appended later is given later.
    pub async fn next(&mut self) -> Result<Option<Recorded>, StoreError> {
        if self.page.is_empty() {
            self.page = self.read().await?.into();
        }
        Ok(self.page.pop_front())
    }

    /// The last one, to be given again.
    pub fn put_back(&mut self, recorded: Recorded) {
        self.page.push_front(recorded);
    }

    /// What was read and not given yet, or else the next page. Empty at the end.
    pub async fn page(&mut self) -> Result<Vec<Recorded>, StoreError> {
        match self.page.is_empty() {
            true => self.read().await,
            false => Ok(std::mem::take(&mut self.page).into()),
        }
    }

    async fn read(&mut self) -> Result<Vec<Recorded>, StoreError> {
        let page = self.store.tail(self.after, PAGE).await?;
        if let Some(last) = page.last() {
            self.after = last.record.position;
        }
        Ok(page)
    }
}
