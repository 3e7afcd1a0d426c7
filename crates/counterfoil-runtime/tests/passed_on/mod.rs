//! A store under test does most things as the store inside of it does.

/// `passed_on!(inner: load, due);` in an `impl Store`: these are done by `self.inner`.
macro_rules! passed_on {
    ($inner:tt: $($method:ident),+) => { $( passed_on!(@$method $inner); )+ };
    (@load $inner:tt) => {
        fn load(
            &self,
            stream: counterfoil_core::StreamId,
            reach: counterfoil_store::Reach,
        ) -> counterfoil_store::Eventually<'_, Result<counterfoil_store::History, counterfoil_store::StoreError>> {
            self.$inner.load(stream, reach)
        }
    };
    (@append $inner:tt) => {
        fn append<'a>(
            &'a self,
            batch: &'a counterfoil_store::Batch,
        ) -> counterfoil_store::Eventually<'a, Result<counterfoil_store::Position, counterfoil_store::AppendError>> {
            self.$inner.append(batch)
        }
    };
    (@due $inner:tt) => {
        fn due(
            &self,
            now: counterfoil_core::Timestamp,
            limit: usize,
        ) -> counterfoil_store::Eventually<'_, Result<Vec<counterfoil_core::StreamId>, counterfoil_store::StoreError>> {
            self.$inner.due(now, limit)
        }
    };
    (@tail $inner:tt) => {
        fn tail(
            &self,
            after: counterfoil_store::Position,
            limit: usize,
        ) -> counterfoil_store::Eventually<'_, Result<Vec<counterfoil_store::Recorded>, counterfoil_store::StoreError>> {
            self.$inner.tail(after, limit)
        }
    };
    (@search $inner:tt) => {
        fn search(
            &self,
            query: counterfoil_store::Query,
        ) -> counterfoil_store::Eventually<'_, Result<counterfoil_store::Page, counterfoil_store::StoreError>> {
            self.$inner.search(query)
        }
    };
    (@prune $inner:tt) => {
        fn prune(
            &self,
            before: counterfoil_core::Timestamp,
            limit: usize,
        ) -> counterfoil_store::Eventually<'_, Result<counterfoil_store::Pruned, counterfoil_store::StoreError>> {
            self.$inner.prune(before, limit)
        }
    };
}
