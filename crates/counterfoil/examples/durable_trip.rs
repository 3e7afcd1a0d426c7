//! A Rust function that is a run: it kills its own process between the hotel and the payment, twice, and still books and pays once.
//!
//! `cargo run --example durable_trip [FOLDER]`. The world is a file, `world.log`, to which each tool adds a line; what is in it at the end is what happened.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use counterfoil::core::{Caller, RunId, Tenant};
use counterfoil::durable::{Context, Failed};
use counterfoil::prelude::*;
use serde_json::{Value, json};

async fn trip(ctx: Context, input: Value) -> Result<Value, Failed> {
    let flight =
        ctx.call("book_flight", json!({ "who": input["who"] })).undo("cancel_flight", |booked| json!({ "id": booked["id"] })).await?;
    let hotel = ctx.call("book_hotel", json!({ "nights": 3 })).undo("cancel_hotel", |booked| json!({ "id": booked["id"] })).await?;
    // Whatever happens to the process here: what was booked is recorded, and the next process goes on from here.
    die_if_told();
    ctx.sleep(Duration::from_millis(50)).await?;
    let paid = ctx.call("charge", json!({ "flight": flight["id"], "hotel": hotel["id"] })).await?;
    Ok(json!({ "charge": paid["id"] }))
}

fn main() -> ExitCode {
    let folder =
        std::env::args().nth(1).map_or_else(|| std::env::temp_dir().join(format!("durable-trip-{}", std::process::id())), PathBuf::from);
    if std::env::var_os("TRIP_LIFE").is_some() {
        return live(&folder);
    }
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    // Each life but the last ends by itself, in the middle.
    for life in 1..=3 {
        let program = std::env::current_exe().expect("this program has a path");
        let status = Command::new(program).arg(&folder).env("TRIP_LIFE", life.to_string()).status().expect("it can be started");
        println!("life {life}: {status}");
        if status.success() {
            println!("{}", std::fs::read_to_string(folder.join("world.log")).expect("the world has a log"));
            return ExitCode::SUCCESS;
        }
    }
    ExitCode::FAILURE
}

fn die_if_told() {
    if std::env::var("TRIP_LIFE").is_ok_and(|life| life != "3") {
        // SIGABRT: nothing is flushed, nobody is told.
        std::process::abort();
    }
}

#[tokio::main]
async fn live(folder: &Path) -> ExitCode {
    let runtime = counterfoil::open(folder.join("ledger.db")).expect("the ledger opens");
    for name in ["book_flight", "cancel_flight", "book_hotel", "cancel_hotel", "charge"] {
        let log = folder.join("world.log");
        let tool = FnTool::new(move |call: Invocation| {
            let log = log.clone();
            async move {
                let mut world = std::fs::OpenOptions::new().append(true).create(true).open(&log).expect("the world can be written to");
                writeln!(world, "{} {}", call.tool, call.args.as_str()).expect("the world can be written to");
                Ok(json!({ "id": format!("{}-1", call.tool) }))
            }
        });
        runtime.register(Registered::new(name.parse().expect("a tool's name"), tool, Policy::default()));
    }
    runtime.register_function("trip", trip).expect("a function's name");
    let (tenant, caller) = (Tenant::new("default").expect("a name"), Caller::new("example").expect("a name"));
    let run: RunId = "trip-1".parse().expect("a name");
    // The same id is the same run: each life goes on with it.
    runtime.start_function(&tenant, &caller, &run, "trip", &json!({ "who": "ada" })).await.expect("the run starts");
    runtime.see_run_through(&tenant, &run).await.expect("the run goes on");
    let view = runtime.run(&tenant, &run).await.expect("the run is there");
    println!("{}: {}", view.state, view.output.map(|output| output.to_string()).unwrap_or_default());
    if view.state == "completed" { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
