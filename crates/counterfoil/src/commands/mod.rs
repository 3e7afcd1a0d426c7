//! One file per command, all of the same shape: `run(global, args)` reads what was typed, does one thing, prints it.

pub mod archive;
pub mod backup;
pub mod breakers;
pub mod call;
pub mod completions;
pub mod doctor;
pub mod effects;
pub mod erase;
pub mod flush;
pub mod house;
pub mod init;
pub mod keys;
pub mod mode;
pub mod progress;
pub mod receipts;
pub mod recover;
pub mod replay;
pub mod run;
pub mod runs;
pub mod schedules;
pub mod serve;
pub mod signals;
pub mod store;
pub mod tokens;
pub mod tools;
pub mod workflows;
