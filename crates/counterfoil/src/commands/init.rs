//! `counterfoil init`: a commented config to start from.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};

use anyhow::Context;
use counterfoil_runtime::config::STARTER;

use crate::cli::{Global, InitArgs};
use crate::output::{self, Exit, Refused};

pub fn run(global: &Global, args: &InitArgs) -> anyhow::Result<Exit> {
    let shown = args.file.display();
    let mut options = OpenOptions::new();
    options.write(true).create_new(!args.force).create(args.force).truncate(args.force);
    let mut file = match options.open(&args.file) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            return Err(Refused::refused("file_exists", format!("{shown} is there already and was not touched; --force overwrites it")));
        }
        Err(e) => return Err(e).with_context(|| format!("{shown} cannot be written")),
    };
    file.write_all(STARTER.as_bytes()).with_context(|| format!("{shown} cannot be written"))?;
    if global.json {
        output::json(&serde_json::json!({ "written": args.file }));
    } else {
        output::note(format_args!("wrote {shown}. Try:"));
        output::note("  counterfoil tools list");
        output::note("  counterfoil call write_note --args '{\"name\":\"hello\",\"text\":\"hi\"}' --key note-1");
    }
    Ok(Exit::Done)
}
