use crate::cli::{DemoArgs, Global};
use crate::output::Exit;
pub async fn run(_: &Global, _: &DemoArgs) -> anyhow::Result<Exit> {
    anyhow::bail!("not yet")
}
