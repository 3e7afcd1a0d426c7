pub mod config;
pub mod spec;
pub mod template;
pub mod tool;
pub mod tools;
