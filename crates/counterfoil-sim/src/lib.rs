//! The simulator: the real runtime, its processes, its store, its world and its time, all on one thread and from one seed.
//!
//! Nothing of the product is built anew here but its borders: clock, store, tools, threads and chance, which the runtime takes from outside anyway. Whatever is
//! found is a bug of the product or of this crate; a seed is its own reproduction. Never shipped.
//!
//! Reading order: [`driver`] (one seed from beginning to verdict), [`state`] (what all share), [`worker`] and [`clock`] (a process and its time), [`store`] and
//! [`log`], [`tools`] and [`world`], [`people`] and [`runs`] (what is asked for), [`weather`] (what goes wrong), [`checker`] and [`model`] (who watches),
//! [`bugs`] and [`sabotage`] (what they must find), [`marks`] (that they went everywhere).

pub mod bugs;
pub mod checker;
pub mod clock;
pub mod driver;
pub mod log;
pub mod many;
pub mod marks;
pub mod model;
pub mod people;
pub mod runs;
pub mod sabotage;
pub mod state;
pub mod store;
pub mod tools;
pub mod weather;
pub mod worker;
pub mod world;

pub use bugs::Bug;
pub use driver::{Verdict, simulate};
