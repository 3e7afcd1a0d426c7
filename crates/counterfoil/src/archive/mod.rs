//! Finished runs, moved out of the ledger into a file that can be verified and read again.
//!
//! What must stay true: nothing leaves the ledger before the file that holds it is whole on the disk, and has been read back; a run leaves whole or not
//! at all; what is left of it (tombstones, its receipts, where it went) answers as before. Stopped or killed anywhere, the same command goes
//! on where it stopped.
//!
//! Reading order: `format` (the lines of the file), `gather` (what belongs to a run), [`make`], `verify`, [`restore`].

mod format;
mod gather;
mod make;
mod restore;
mod verify;

pub use format::{Damage, Header};
pub use make::{ArchiveError, Left, Made, Progress, Wanted, make};
pub use restore::{RestoreError, Restored, restore};
pub use verify::{Verified, verify};
