//! What is counted and told: each kind of call moves its own series by its own amount and no other, and nothing secret is ever said.

mod house;
mod logs;
mod metrics;
