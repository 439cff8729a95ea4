//! HTTP, for those who look after the server: `/metrics` and `/health`. Load balancers that look for the primary, or for
//! standbys, ask `/health/primary` and `/health/standby`.

use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;
use weft_inspect::openmetrics::CONTENT_TYPE;

use crate::metrics;
use crate::replication::{Current, Replication, Standing};
use crate::server::Server;

/// Serves until the task is aborted.
pub async fn serve(current: Current, listener: TcpListener) {
    let [metrics, health, primary, standby] = std::array::from_fn(|_| current.clone());
    let pages = Router::new()
        .route("/metrics", get(move || show_metrics(metrics.get())))
        .route("/health", get(move || show_health(health.get(), None)))
        .route("/health/primary", get(move || show_health(primary.get(), Some(true))))
        .route("/health/standby", get(move || show_health(standby.get(), Some(false))));
    // It ends with the task.
    let _ = axum::serve(listener, pages).await;
}

async fn show_metrics(server: Arc<Server>) -> impl IntoResponse {
    // Counting the memory takes a while if there are many tables.
    let (status, text) = match tokio::task::spawn_blocking(move || metrics::render(&server)).await {
        Ok(Ok(text)) => (StatusCode::OK, text),
        Ok(Err(error)) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    };
    (status, [(header::CONTENT_TYPE, CONTENT_TYPE)], text)
}

/// Shows whether the server works and, if it is replicated, what it is. `is_primary` is what a load balancer wants it to be.
async fn show_health(server: Arc<Server>, is_primary: Option<bool>) -> impl IntoResponse {
    let standing = server.standing();
    let name = standing.map_or("ok", Standing::name);
    // `check_health` does not look at that: a new start would change nothing.
    let missing = server.replication.as_ref().and_then(Replication::missing);
    let (name, is_complete) = match missing {
        Some(missing) => (format!("{name}: {missing}"), false),
        None => (name.to_owned(), true),
    };
    let is_wanted = is_complete
        && match is_primary {
            None => true,
            Some(true) => matches!(standing, None | Some(Standing::Primary)),
            Some(false) => standing == Some(Standing::Standby),
        };
    match tokio::task::spawn_blocking(move || server.check_health()).await {
        Ok(Ok(())) if is_wanted => (StatusCode::OK, format!("{name}\n")),
        Ok(Ok(())) => (StatusCode::SERVICE_UNAVAILABLE, format!("{name}\n")),
        Ok(Err(error)) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}
