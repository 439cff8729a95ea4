//! A transaction stays on its thread, so a task that may move to another thread cannot hold one across an `.await`.

use std::future::Future;
use weft::{Database, Failure};

/// As an executor with several threads does.
fn spawn(_task: impl Future<Output = Result<(), Failure>> + Send + 'static) {}

async fn something() {}

fn main() {
    let database = Database::builder().open().unwrap();
    spawn(async move {
        let tx = database.begin()?;
        something().await;
        drop(tx);
        Ok(())
    });
}
