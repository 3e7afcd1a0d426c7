//! What the targets share: choices made from the input, and a whole server that a request can be sent to.
//!
//! Nothing here is random and nothing is kept from one input to the next, so that an input that fails once fails again.

mod dice;
mod server;

pub use dice::Dice;
pub use server::{Answered, Asked, Server};

/// A panic that the product catches is not one that a caller meets. libFuzzer ends the process at every one: with this, only at those that come out.
/// They are told of when one input is run once more.
pub fn caught_panics_are_no_crash() {
    let tell = std::env::var_os("FUZZ_TELL").is_some();
    std::panic::set_hook(Box::new(move |panic| {
        if tell {
            eprintln!("{panic}");
        }
    }));
}
